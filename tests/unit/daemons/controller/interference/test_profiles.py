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
def harness() -> InterferenceHarness:
    made = InterferenceHarness()
    made.lead()
    return made


def seen(harness: InterferenceHarness) -> LoadingColumns | None:
    return harness.controller.deciding.builder.build(harness.now_s).loading


def part(harness: InterferenceHarness, workload: str, node: str) -> float:
    """What decisions see of the part at the disk."""
    snapshot = harness.controller.deciding.builder.build(harness.now_s)
    loading = snapshot.loading
    assert loading is not None
    row, at = snapshot.workloads.names.index(workload), snapshot.nodes.names.index(node)
    return float(loading.parts[loading.node_type[at], row, loading.resources.index("io")])


# --- samples ----------------------------------------------------------------------------------------------------------


def test_a_class_is_learnt_while_a_job_of_it_runs_alone(harness: InterferenceHarness) -> None:
    """Given a job that is on the CPU 0.6 and at the disk 0.3 of its time, then after some windows that is the profile
    of its class on that type of node, and decisions see it for another job of the class."""
    harness.run("j1", "n1", (0.6, 0.3), "sort")
    harness.work(400.0)
    assert harness.profile("sort")["status"] == "measuring"
    assert seen(harness) is None
    harness.work(800.0)

    row = harness.profile("sort")
    assert (row["status"], row["source"]["io"]) == ("measured", "samples")
    assert row["loading"] == pytest.approx({"cpu": 0.6, "io": 0.3, "net": 0.0}, abs=1e-6)
    assert harness.told("profile-measured") == ["on a: cpu 0.60, io 0.30, net 0.00"]
    harness.run("j2", "n2", (0.6, 0.3), "sort")
    assert part(harness, "j2", "n1") == pytest.approx(0.3)


def test_two_jobs_at_one_disk_are_learnt_as_if_alone(harness: InterferenceHarness) -> None:
    """Given two jobs that would be at the disk half of their time alone and together wait there (dilation 1.25, so 0.6
    of the time is seen), then a half is learnt."""
    for name in ("j1", "j2"):
        harness.run(name, "n1", (0.4, 0.6), "sort")
    harness.work(900.0)

    assert harness.profile("sort")["loading"] == pytest.approx({"cpu": 0.5, "io": 0.5, "net": 0.0}, abs=1e-3)


def test_a_job_that_waits_for_the_cpu_says_nothing(harness: InterferenceHarness) -> None:
    """Given a node whose CPU is all in use and a job that was given less than it can use, then waiting and idling
    cannot be told apart: nothing is learnt."""
    harness.run("j1", "n1", (0.5, 0.3), "sort")
    harness.change("n1", "j1#0", cpu_mhz=300.0)
    harness.vms["n1"]["web"] = VmStatus("web", VmState.RUNNING, vcpus=4, cpu_mhz=4000.0, managed=False)
    harness.does["web"] = (3.4, 0.0)
    harness.work(900.0)

    assert harness.view()["profiles"] == []


def test_windows_in_which_vms_come_or_go_say_nothing_of_shares(harness: InterferenceHarness) -> None:
    harness.run("j1", "n1", (0.6, 0.3), "sort")
    for number in range(30):
        harness.work(10.0)
        harness.vms["n1"] |= {f"web{number}": VmStatus(f"web{number}", VmState.RUNNING, managed=False)}
        harness.vms["n1"].pop(f"web{number - 1}", None)

    assert harness.view()["profiles"] == []


def test_a_class_that_changes_is_learnt_anew(harness: InterferenceHarness) -> None:
    harness.run("j1", "n1", (0.6, 0.1), "sort")
    harness.work(12 * 330.0)
    harness.does["j1#0"] = (0.2, 0.7)
    harness.work(8 * 330.0)

    assert harness.told("profile-drifted") == ["on a: it is learnt again"]
    row = harness.profile("sort")
    assert row["loading"]["io"] == pytest.approx(0.7, abs=0.05)
    assert (row["drifts"], row["drifted_at_s"] is None) == (1, False)


def test_a_job_without_a_class_learns_for_itself_while_it_runs(harness: InterferenceHarness) -> None:
    harness.run("j1", "n1", (0.6, 0.3))
    harness.work(1_000.0)

    assert harness.profile("job/j1")["status"] == "measured"
    assert part(harness, "j1", "n1") == pytest.approx(0.3)
    harness.finish("j1")
    harness.work(1_000.0)
    assert harness.view()["profiles"] == []
    assert not [record for record in harness.store.records() if record.key[0] == "loading"]


def test_nothing_is_learnt_where_that_is_switched_off() -> None:
    harness = InterferenceHarness(interference=InterferenceSettings(learn=False))
    harness.lead()
    harness.run("j1", "n1", (0.6, 0.3), "sort")
    harness.work(1_000.0)

    assert harness.view()["profiles"] == []


# --- copies -----------------------------------------------------------------------------------------------------------


def test_copies_tell_the_part_by_their_times(harness: InterferenceHarness) -> None:
    """Given 1, 2 and 3 copies of a job whose disk the hypervisor says nothing of, which slow each other as 0.6 at the
    disk does, then that part is learnt of their times."""
    for count in (1, 2, 3):
        speed = 0.4 / (1.0 + (count - 1) * 0.36)
        for copy in range(count):
            harness.run(f"c{count}{copy}", "n1", (speed, 0.0), "sort")
        harness.work(300.0)
        for copy in range(count):
            harness.finish(f"c{count}{copy}")
        harness.work(30.0)

    row = harness.profile("sort")
    assert (row["source"]["io"], row["status"]) == ("copies", "measured")
    assert row["loading"]["io"] == pytest.approx(0.6, abs=0.02)


def test_copies_beside_something_else_tell_nothing(harness: InterferenceHarness) -> None:
    harness.run("other", "n1", (0.1, 0.1), "web")
    harness.run("c1", "n1", (0.4, 0.0), "sort")
    harness.work(300.0)
    harness.finish("c1")

    assert parts.profiles(harness.controller).history("sort", "a").copies == ()


# --- standard jobs ----------------------------------------------------------------------------------------------------


def test_a_standard_job_on_an_empty_node_tells_how_fast_its_type_is(harness: InterferenceHarness) -> None:
    assert harness.probe("n1").done
    asked = harness.sent[-1]
    assert (asked.node, asked.boot_id, asked.term, asked.expires_at_s) == ("n1", "boot-1", 1, 60.0)
    assert harness.view()["runs"][0]["ok"] is None
    harness.ran(200.0)
    assert harness.probe("n2", copies=4).done
    harness.ran(190.0)

    row = harness.view()["node_types"][0]
    assert (row["node_type"], row["units_per_s"], row["servers"]) == (
        "a",
        {"cpu": None, "io": 200.0},
        {"cpu": None, "io": 4},
    )
    assert [run["ok"] for run in harness.view()["runs"]] == [True, True]


def test_a_standard_job_beside_a_job_tells_its_part(harness: InterferenceHarness) -> None:
    """Given a pace of 200 alone and 125 beside the job, then the job is at the disk 0.6 of its time."""
    harness.probe("n2")
    harness.ran(200.0)
    harness.run("j1", "n1", (0.4, 0.0), "sort")
    assert harness.probe("n1", beside="j1").done
    harness.ran(125.0)

    row = harness.profile("sort")
    assert (row["loading"]["io"], row["source"]["io"], row["status"]) == (pytest.approx(0.6), "probe", "measured")
    assert part(harness, "j1", "n2") == pytest.approx(0.6)


def test_windows_of_a_node_on_which_a_standard_job_runs_say_nothing(harness: InterferenceHarness) -> None:
    harness.probe("n2")
    harness.ran(200.0)
    harness.run("j1", "n1", (0.4, 0.1), "sort")
    harness.probe("n1", beside="j1", run_s=600.0)
    harness.does["j1#0"] = (0.3, 0.5)
    harness.work(600.0)
    harness.ran(180.0)
    harness.does["j1#0"] = (0.4, 0.1)
    harness.work(700.0)

    assert parts.profiles(harness.controller).history("sort", "a").samples.mean == pytest.approx((0.4, 0.1, 0.0))


def test_what_cannot_be_profiled_is_refused(harness: InterferenceHarness) -> None:
    """Given nodes in every state, then each request that could tell nothing is refused, with its reason, and sends
    nothing."""
    harness.run("j1", "n1", (0.4, 0.1), "sort")
    harness.run("j2", "n2", (0.4, 0.1), "sort")
    harness.run("j3", "n2", (0.4, 0.1), "sort")

    def refused(*args: object, **fields: object) -> str:
        return harness.probe(*args, **fields).code  # type: ignore[arg-type]  # as given

    assert refused("n9") == "unknown-node"
    assert refused("n1") == "node-not-empty"
    assert refused("n1", beside="j9") == "unknown-job"
    assert refused("n1", beside="j2") == "job-not-there"
    assert refused("n2", beside="j2") == "several-jobs"
    assert refused("n1", beside="j1") == "no-pace"
    assert refused("n1", "cpu", "j1") == "too-few-copies"
    harness.vms["n3"]["web"] = VmStatus("web", VmState.RUNNING, memory_mib=100, managed=False)
    harness.report("n3")
    assert refused("n3") == "node-not-empty"
    harness.wait(60.0, reporting=["n1", "n2"])
    assert refused("n3") == "node-not-usable"
    assert harness.sent == []


def test_one_at_a_time_and_an_answer_that_never_comes_is_given_up(harness: InterferenceHarness) -> None:
    harness.probe("n3", run_s=30.0)
    assert harness.probe("n3").code == "busy"
    harness.wait(149.0, reporting=TYPES)
    assert harness.told("standard-job-failed") == []
    harness.wait(2.0, reporting=TYPES)

    assert harness.told("standard-job-failed") == ["no answer came in time"]
    harness.ran(200.0)  # too late
    assert harness.view()["node_types"][1]["units_per_s"] == {"cpu": None, "io": None}
    assert harness.probe("n3").done


def test_answers_that_tell_nothing_are_told(harness: InterferenceHarness) -> None:
    """Given an agent that could not run it, a host that began anew, and a VM that came meanwhile, then each failed."""
    harness.probe("n1")
    harness.ran(0.0, ok=False)
    harness.probe("n1")
    harness.ran(200.0, boot_id="boot-0")
    harness.probe("n1")
    harness.run("j1", "n1", (0.4, 0.1))
    harness.ran(200.0)

    assert harness.told("standard-job-failed") == [
        "no room on the disk",
        "the node restarted meanwhile",
        "VMs have come to the node meanwhile",
    ]
    assert parts.profiles(harness.controller).paces == {}


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
def test_paces_that_cannot_be_tell_nothing(harness: InterferenceHarness, paces: tuple[StandardPace, ...]) -> None:
    """Given figures beyond all numbers, below 0, of fewer or more copies, then nothing is learnt and all is shown."""
    harness.probe("n1", copies=2)
    harness.ran(0.0, paces=paces)

    assert harness.told("standard-job-failed") == ["it did nothing"]
    assert harness.view()["node_types"][0]["units_per_s"]["io"] is None


def test_a_vm_that_is_not_ours_and_came_meanwhile_spoils_a_measurement(harness: InterferenceHarness) -> None:
    harness.probe("n1")
    harness.vms["n1"]["web"] = VmStatus("web", VmState.RUNNING, memory_mib=500, managed=False)
    harness.report("n1")
    harness.ran(200.0)

    assert harness.told("standard-job-failed") == ["VMs have come to the node meanwhile"]


# --- what decisions see -----------------------------------------------------------------------------------------------


def test_what_is_declared_counts_until_it_is_measured(harness: InterferenceHarness) -> None:
    harness.run("j1", "n1", (0.6, 0.3), "sort", resource_profile=Loading((("io", 0.8),)))
    assert part(harness, "j1", "n1") == pytest.approx(0.8)
    harness.work(1_000.0)

    assert part(harness, "j1", "n1") == pytest.approx(0.3)


def test_another_node_type_gets_it_converted(harness: InterferenceHarness) -> None:
    """Given a type whose disk is three times as fast, then a job at the disk half of its time is there a quarter."""
    for node, cpu, io in (("n2", 10.0, 100.0), ("n3", 10.0, 300.0)):
        for standard, pace in (("cpu", cpu), ("io", io)):
            harness.probe(node, standard)
            harness.ran(pace)
    harness.run("j1", "n1", (0.5, 0.5), "sort")
    harness.work(1_000.0)

    row = harness.profile("sort", "b")
    assert (row["status"], row["converted_from"], row["scaled"]) == ("converted", "a", True)
    assert (part(harness, "j1", "n1"), part(harness, "j1", "n3")) == pytest.approx((0.5, 0.25))


def test_decisions_see_nothing_where_nothing_is_shared_or_that_is_switched_off(harness: InterferenceHarness) -> None:
    harness.run("j1", "n1", (0.9, 0.0), "sort")
    harness.work(1_000.0)
    assert harness.profile("sort")["status"] == "measured"
    assert seen(harness) is None
    other = InterferenceHarness(interference=InterferenceSettings(decisions=False))
    other.lead()
    other.run("j1", "n1", (0.6, 0.3), "sort", resource_profile=Loading((("io", 0.8),)))
    assert seen(other) is None


def test_columns_have_the_servers_of_each_node_type(harness: InterferenceHarness) -> None:
    harness.probe("n3")
    harness.ran(100.0)
    harness.probe("n3", copies=3)
    harness.ran(67.0)
    harness.run("j1", "n1", (0.6, 0.3), resource_profile=Loading((("io", 0.8), ("net", 0.1))))

    loading = seen(harness)
    assert loading is not None
    assert (loading.resources, loading.model) == (("io", "net"), "auto")
    assert loading.servers.tolist() == [[1.0, 1.0], [2.0, 1.0]]
    assert np.array_equal(loading.node_type, [0, 0, 1])
    assert loading.parts.shape == (2, 1, 2)


# --- what outlives the controller -------------------------------------------------------------------------------------


def test_a_new_leader_knows_what_was_learnt(harness: InterferenceHarness) -> None:
    """Given a measured class and a pace, stored at the last cycle, then a successor has both and learns on."""
    harness.probe("n2")
    harness.ran(200.0)
    harness.run("j1", "n1", (0.6, 0.3), "sort")
    harness.work(1_900.0)
    before = harness.profile("sort")

    other = harness.successor()

    after = other.profile("sort")
    assert (after["loading"], after["status"], after["observations"]) == (before["loading"], "measured", 5)
    assert other.view()["node_types"][0]["units_per_s"]["io"] == 200.0
    other.work(700.0)
    assert other.profile("sort")["observations"] > 5


def test_what_was_not_used_for_longest_is_forgotten(harness: InterferenceHarness) -> None:
    """Given more classes than are kept, then the oldest go, from the store too."""
    profiles = parts.profiles(harness.controller)
    for number in range(KEYS_MAX + 3):
        profiles.load(LoadingRecord(f"c{number}", "a", LoadingHistory(), float(number)))
    harness.store.write(1, (LoadingRecord("c0", "a", LoadingHistory()),))
    harness.work(1_000.0)

    assert len(profiles.keys()) == KEYS_MAX
    assert not profiles.knows("c2")
    assert profiles.knows("c3")
    assert harness.store.get(("loading", "c0/a")) is None


def test_what_jobs_declared_goes_with_them(harness: InterferenceHarness) -> None:
    """Given jobs that ended before anything was learnt of them, each of a class of its own, of none, or with a vector
    of its own, then nothing is kept of them."""
    for at in range(3):
        vector = Loading((("io", 0.3 + at / 10.0),))
        harness.run(f"own{at}", "n1", (0.6, 0.3), resource_profile=vector)
        harness.run(f"one{at}", "n2", (0.6, 0.3), f"class{at}", resource_profile=vector)
    assert seen(harness) is not None
    assert parts.profiles(harness.controller).answers() == 6 * len(set(TYPES.values()))
    for at in range(3):
        harness.ask(CancelJob(f"cancel-own{at}", f"own{at}"))
        harness.ask(CancelJob(f"cancel-one{at}", f"one{at}"))
    harness.obey()
    parts.profiles(harness.controller).cycle()
    assert parts.profiles(harness.controller).answers() == 0


def test_a_cancelled_job_leaves_what_was_observed(harness: InterferenceHarness) -> None:
    harness.run("j1", "n1", (0.6, 0.3), "sort")
    harness.work(200.0)
    harness.ask(CancelJob("cancel", "j1"))
    harness.obey()

    assert harness.profile("sort")["observations"] == 1
