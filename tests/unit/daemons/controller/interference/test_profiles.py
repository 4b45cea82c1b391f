"""What the controller learns of jobs: from reports, from copies that ran together, from standard jobs; what decisions
see of it, and what outlives the controller."""

from __future__ import annotations

import numpy as np
import pytest

from daemons.controller.interference.profiles import KEYS_MAX
from daemons.models.loading_history import LoadingHistory
from daemons.values.records.cluster import LoadingRecord
from daemons.values.settings import InterferenceSettings
from shared.policy_api.snapshot import LoadingColumns
from shared.protocol.operator_messages import CancelJob
from shared.values.load_vector import Loading, StandardPace
from shared.values.vms import VmState, VmStatus
from tests.support import parts
from tests.support.interference_harness import TYPES, InterferenceHarness


@pytest.fixture
def desk() -> InterferenceHarness:
    made = InterferenceHarness()
    made.lead()
    return made


def seen(desk: InterferenceHarness) -> LoadingColumns | None:
    return desk.controller.deciding.builder.build(desk.now_s).loading


def part(desk: InterferenceHarness, workload: str, node: str) -> float:
    """What decisions see of the part at the disk."""
    snapshot = desk.controller.deciding.builder.build(desk.now_s)
    loading = snapshot.loading
    assert loading is not None
    row, at = snapshot.workloads.names.index(workload), snapshot.nodes.names.index(node)
    return float(loading.parts[loading.node_type[at], row, loading.resources.index("io")])


# --- samples ----------------------------------------------------------------------------------------------------------


def test_a_class_is_learnt_while_a_job_of_it_runs_alone(desk: InterferenceHarness) -> None:
    """Given a job that is on the CPU 0.6 and at the disk 0.3 of its time, then after some windows that is the profile
    of its class on that type of node, and decisions see it for another job of the class."""
    desk.run("j1", "n1", (0.6, 0.3), "sort")
    desk.work(400.0)
    assert desk.profile("sort")["status"] == "measuring"
    assert seen(desk) is None
    desk.work(800.0)

    row = desk.profile("sort")
    assert (row["status"], row["source"]["io"]) == ("measured", "samples")
    assert row["loading"] == pytest.approx({"cpu": 0.6, "io": 0.3, "net": 0.0}, abs=1e-6)
    assert desk.told("profile-measured") == ["on a: cpu 0.60, io 0.30, net 0.00"]
    desk.run("j2", "n2", (0.6, 0.3), "sort")
    assert part(desk, "j2", "n1") == pytest.approx(0.3)


def test_two_jobs_at_one_disk_are_learnt_as_if_alone(desk: InterferenceHarness) -> None:
    """Given two jobs that would be at the disk half of their time alone and together wait there (dilation 1.25, so 0.6
    of the time is seen), then a half is learnt."""
    for name in ("j1", "j2"):
        desk.run(name, "n1", (0.4, 0.6), "sort")
    desk.work(900.0)

    assert desk.profile("sort")["loading"] == pytest.approx({"cpu": 0.5, "io": 0.5, "net": 0.0}, abs=1e-3)


def test_a_job_that_waits_for_the_cpu_says_nothing(desk: InterferenceHarness) -> None:
    """Given a node whose CPU is all in use and a job that was given less than it can use, then waiting and idling
    cannot be told apart: nothing is learnt."""
    desk.run("j1", "n1", (0.5, 0.3), "sort")
    desk.change("n1", "j1#0", cpu_mhz=300.0)
    desk.vms["n1"]["web"] = VmStatus("web", VmState.RUNNING, vcpus=4, cpu_mhz=4000.0, managed=False)
    desk.does["web"] = (3.4, 0.0)
    desk.work(900.0)

    assert desk.view()["profiles"] == []


def test_windows_in_which_vms_come_or_go_say_nothing_of_shares(desk: InterferenceHarness) -> None:
    desk.run("j1", "n1", (0.6, 0.3), "sort")
    for number in range(30):
        desk.work(10.0)
        desk.vms["n1"] |= {f"web{number}": VmStatus(f"web{number}", VmState.RUNNING, managed=False)}
        desk.vms["n1"].pop(f"web{number - 1}", None)

    assert desk.view()["profiles"] == []


def test_a_class_that_changes_is_learnt_anew(desk: InterferenceHarness) -> None:
    desk.run("j1", "n1", (0.6, 0.1), "sort")
    desk.work(12 * 330.0)
    desk.does["j1#0"] = (0.2, 0.7)
    desk.work(8 * 330.0)

    assert desk.told("profile-drifted") == ["on a: it is learnt anew"]
    row = desk.profile("sort")
    assert row["loading"]["io"] == pytest.approx(0.7, abs=0.05)
    assert (row["drifts"], row["drifted_at_s"] is None) == (1, False)


def test_a_job_without_a_class_learns_for_itself_while_it_runs(desk: InterferenceHarness) -> None:
    desk.run("j1", "n1", (0.6, 0.3))
    desk.work(1_000.0)

    assert desk.profile("job/j1")["status"] == "measured"
    assert part(desk, "j1", "n1") == pytest.approx(0.3)
    desk.finish("j1")
    desk.work(1_000.0)
    assert desk.view()["profiles"] == []
    assert not [record for record in desk.store.records() if record.key[0] == "loading"]


def test_nothing_is_learnt_where_that_is_switched_off() -> None:
    desk = InterferenceHarness(interference=InterferenceSettings(learn=False))
    desk.lead()
    desk.run("j1", "n1", (0.6, 0.3), "sort")
    desk.work(1_000.0)

    assert desk.view()["profiles"] == []


# --- copies -----------------------------------------------------------------------------------------------------------


def test_copies_tell_the_part_by_their_times(desk: InterferenceHarness) -> None:
    """Given 1, 2 and 3 copies of a job whose disk the hypervisor says nothing of, which slow each other as 0.6 at the
    disk does, then that part is learnt of their times."""
    for count in (1, 2, 3):
        speed = 0.4 / (1.0 + (count - 1) * 0.36)
        for copy in range(count):
            desk.run(f"c{count}{copy}", "n1", (speed, 0.0), "sort")
        desk.work(300.0)
        for copy in range(count):
            desk.finish(f"c{count}{copy}")
        desk.work(30.0)

    row = desk.profile("sort")
    assert (row["source"]["io"], row["status"]) == ("copies", "measured")
    assert row["loading"]["io"] == pytest.approx(0.6, abs=0.02)


def test_copies_beside_something_else_tell_nothing(desk: InterferenceHarness) -> None:
    desk.run("other", "n1", (0.1, 0.1), "web")
    desk.run("c1", "n1", (0.4, 0.0), "sort")
    desk.work(300.0)
    desk.finish("c1")

    assert parts.profiles(desk.controller).history("sort", "a").copies == ()


# --- standard jobs ----------------------------------------------------------------------------------------------------


def test_a_standard_job_on_an_empty_node_tells_how_fast_its_type_is(desk: InterferenceHarness) -> None:
    assert desk.probe("n1").done
    asked = desk.sent[-1]
    assert (asked.node, asked.boot_id, asked.term, asked.expires_at_s) == ("n1", "boot-1", 1, 60.0)
    assert desk.view()["runs"][0]["ok"] is None
    desk.ran(200.0)
    assert desk.probe("n2", copies=4).done
    desk.ran(190.0)

    row = desk.view()["node_types"][0]
    assert (row["node_type"], row["units_per_s"], row["servers"]) == (
        "a",
        {"cpu": None, "io": 200.0},
        {"cpu": None, "io": 4},
    )
    assert [run["ok"] for run in desk.view()["runs"]] == [True, True]


def test_a_standard_job_beside_a_job_tells_its_part(desk: InterferenceHarness) -> None:
    """Given a pace of 200 alone and 125 beside the job, then the job is at the disk 0.6 of its time."""
    desk.probe("n2")
    desk.ran(200.0)
    desk.run("j1", "n1", (0.4, 0.0), "sort")
    assert desk.probe("n1", beside="j1").done
    desk.ran(125.0)

    row = desk.profile("sort")
    assert (row["loading"]["io"], row["source"]["io"], row["status"]) == (pytest.approx(0.6), "probe", "measured")
    assert part(desk, "j1", "n2") == pytest.approx(0.6)


def test_windows_of_a_node_on_which_a_standard_job_runs_say_nothing(desk: InterferenceHarness) -> None:
    desk.probe("n2")
    desk.ran(200.0)
    desk.run("j1", "n1", (0.4, 0.1), "sort")
    desk.probe("n1", beside="j1", run_s=600.0)
    desk.does["j1#0"] = (0.3, 0.5)
    desk.work(600.0)
    desk.ran(180.0)
    desk.does["j1#0"] = (0.4, 0.1)
    desk.work(700.0)

    assert parts.profiles(desk.controller).history("sort", "a").samples.mean == pytest.approx((0.4, 0.1, 0.0))


def test_what_cannot_be_profiled_is_refused(desk: InterferenceHarness) -> None:
    """Given nodes in every state, then each request that could tell nothing is refused, with its reason, and sends
    nothing."""
    desk.run("j1", "n1", (0.4, 0.1), "sort")
    desk.run("j2", "n2", (0.4, 0.1), "sort")
    desk.run("j3", "n2", (0.4, 0.1), "sort")

    def refused(*args: object, **fields: object) -> str:
        return desk.probe(*args, **fields).code  # type: ignore[arg-type]  # as given

    assert refused("n9") == "unknown-node"
    assert refused("n1") == "node-not-empty"
    assert refused("n1", beside="j9") == "unknown-job"
    assert refused("n1", beside="j2") == "job-not-there"
    assert refused("n2", beside="j2") == "several-jobs"
    assert refused("n1", beside="j1") == "no-pace"
    assert refused("n1", "cpu", "j1") == "too-few-copies"
    desk.vms["n3"]["web"] = VmStatus("web", VmState.RUNNING, memory_mib=100, managed=False)
    desk.report("n3")
    assert refused("n3") == "node-not-empty"
    desk.wait(60.0, reporting=["n1", "n2"])
    assert refused("n3") == "node-not-usable"
    assert desk.sent == []


def test_one_at_a_time_and_an_answer_that_never_comes_is_given_up(desk: InterferenceHarness) -> None:
    desk.probe("n3", run_s=30.0)
    assert desk.probe("n3").code == "busy"
    desk.wait(149.0, reporting=TYPES)
    assert desk.told("standard-job-failed") == []
    desk.wait(2.0, reporting=TYPES)

    assert desk.told("standard-job-failed") == ["no answer came in time"]
    desk.ran(200.0)  # too late
    assert desk.view()["node_types"][1]["units_per_s"] == {"cpu": None, "io": None}
    assert desk.probe("n3").done


def test_answers_that_tell_nothing_are_told(desk: InterferenceHarness) -> None:
    """Given an agent that could not run it, a host that began anew, and a VM that came meanwhile, then each failed."""
    desk.probe("n1")
    desk.ran(0.0, ok=False)
    desk.probe("n1")
    desk.ran(200.0, boot_id="boot-0")
    desk.probe("n1")
    desk.run("j1", "n1", (0.4, 0.1))
    desk.ran(200.0)

    assert desk.told("standard-job-failed") == [
        "no room on the disk",
        "the node began anew meanwhile",
        "VMs have come to the node meanwhile",
    ]
    assert parts.profiles(desk.controller).paces == {}


@pytest.mark.parametrize(
    "paces",
    [
        (StandardPace(1e308, 1e-10, 1.0), StandardPace(1.0, 1.0, 1.0)),
        (StandardPace(900.0, 1.0, 1.0), StandardPace(-100.0, 1.0, 1.0)),
        (StandardPace(900.0, -1.0, 1.0), StandardPace(900.0, 1.0, 1.0)),
        (StandardPace(900.0, 1.0, 1.0),),
        (StandardPace(900.0, 1.0, 1.0),) * 3,
    ],
)
def test_paces_that_cannot_be_tell_nothing(desk: InterferenceHarness, paces: tuple[StandardPace, ...]) -> None:
    """Given figures beyond all numbers, below 0, of fewer or more copies, then nothing is learnt and all is shown."""
    desk.probe("n1", copies=2)
    desk.ran(0.0, paces=paces)

    assert desk.told("standard-job-failed") == ["it did nothing"]
    assert desk.view()["node_types"][0]["units_per_s"]["io"] is None


def test_a_vm_that_is_not_ours_and_came_meanwhile_spoils_a_measurement(desk: InterferenceHarness) -> None:
    desk.probe("n1")
    desk.vms["n1"]["web"] = VmStatus("web", VmState.RUNNING, memory_mib=500, managed=False)
    desk.report("n1")
    desk.ran(200.0)

    assert desk.told("standard-job-failed") == ["VMs have come to the node meanwhile"]


# --- what decisions see -----------------------------------------------------------------------------------------------


def test_what_is_declared_counts_until_it_is_measured(desk: InterferenceHarness) -> None:
    desk.run("j1", "n1", (0.6, 0.3), "sort", loading=Loading((("io", 0.8),)))
    assert part(desk, "j1", "n1") == pytest.approx(0.8)
    desk.work(1_000.0)

    assert part(desk, "j1", "n1") == pytest.approx(0.3)


def test_another_node_type_gets_it_converted(desk: InterferenceHarness) -> None:
    """Given a type whose disk is three times as fast, then a job at the disk half of its time is there a quarter."""
    for node, cpu, io in (("n2", 10.0, 100.0), ("n3", 10.0, 300.0)):
        for standard, pace in (("cpu", cpu), ("io", io)):
            desk.probe(node, standard)
            desk.ran(pace)
    desk.run("j1", "n1", (0.5, 0.5), "sort")
    desk.work(1_000.0)

    row = desk.profile("sort", "b")
    assert (row["status"], row["converted_from"], row["scaled"]) == ("converted", "a", True)
    assert (part(desk, "j1", "n1"), part(desk, "j1", "n3")) == pytest.approx((0.5, 0.25))


def test_decisions_see_nothing_where_nothing_is_shared_or_that_is_switched_off(desk: InterferenceHarness) -> None:
    desk.run("j1", "n1", (0.9, 0.0), "sort")
    desk.work(1_000.0)
    assert desk.profile("sort")["status"] == "measured"
    assert seen(desk) is None
    other = InterferenceHarness(interference=InterferenceSettings(decisions=False))
    other.lead()
    other.run("j1", "n1", (0.6, 0.3), "sort", loading=Loading((("io", 0.8),)))
    assert seen(other) is None


def test_columns_have_the_servers_of_each_node_type(desk: InterferenceHarness) -> None:
    desk.probe("n3")
    desk.ran(100.0)
    desk.probe("n3", copies=3)
    desk.ran(67.0)
    desk.run("j1", "n1", (0.6, 0.3), loading=Loading((("io", 0.8), ("net", 0.1))))

    loading = seen(desk)
    assert loading is not None
    assert (loading.resources, loading.model) == (("io", "net"), "auto")
    assert loading.servers.tolist() == [[1.0, 1.0], [2.0, 1.0]]
    assert np.array_equal(loading.node_type, [0, 0, 1])
    assert loading.parts.shape == (2, 1, 2)


# --- what outlives the controller -------------------------------------------------------------------------------------


def test_a_new_leader_knows_what_was_learnt(desk: InterferenceHarness) -> None:
    """Given a measured class and a pace, stored at the last cycle, then a successor has both and learns on."""
    desk.probe("n2")
    desk.ran(200.0)
    desk.run("j1", "n1", (0.6, 0.3), "sort")
    desk.work(1_900.0)
    before = desk.profile("sort")

    other = desk.successor()

    after = other.profile("sort")
    assert (after["loading"], after["status"], after["observations"]) == (before["loading"], "measured", 5)
    assert other.view()["node_types"][0]["units_per_s"]["io"] == 200.0
    other.work(700.0)
    assert other.profile("sort")["observations"] > 5


def test_what_was_not_used_for_longest_is_forgotten(desk: InterferenceHarness) -> None:
    """Given more classes than are kept, then the oldest go, from the store too."""
    profiles = parts.profiles(desk.controller)
    for number in range(KEYS_MAX + 3):
        profiles.load(LoadingRecord(f"c{number}", "a", LoadingHistory(), float(number)))
    desk.store.write(1, (LoadingRecord("c0", "a", LoadingHistory()),))
    desk.work(1_000.0)

    assert len(profiles.keys()) == KEYS_MAX
    assert not profiles.knows("c2")
    assert profiles.knows("c3")
    assert desk.store.get(("loading", "c0/a")) is None


def test_what_jobs_declared_goes_with_them(desk: InterferenceHarness) -> None:
    """Given jobs that ended before anything was learnt of them, each of a class of its own, of none, or with a vector
    of its own, then nothing is kept of them."""
    for at in range(3):
        vector = Loading((("io", 0.3 + at / 10.0),))
        desk.run(f"own{at}", "n1", (0.6, 0.3), loading=vector)
        desk.run(f"one{at}", "n2", (0.6, 0.3), f"class{at}", loading=vector)
    assert seen(desk) is not None
    assert parts.profiles(desk.controller).answers() == 6 * len(set(TYPES.values()))
    for at in range(3):
        desk.ask(CancelJob(f"cancel-own{at}", f"own{at}"))
        desk.ask(CancelJob(f"cancel-one{at}", f"one{at}"))
    desk.obey()
    parts.profiles(desk.controller).cycle()
    assert parts.profiles(desk.controller).answers() == 0


def test_a_cancelled_job_leaves_what_was_observed(desk: InterferenceHarness) -> None:
    desk.run("j1", "n1", (0.6, 0.3), "sort")
    desk.work(200.0)
    desk.ask(CancelJob("cancel", "j1"))
    desk.obey()

    assert desk.profile("sort")["observations"] == 1
