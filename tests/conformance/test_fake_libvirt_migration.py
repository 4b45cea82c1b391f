"""Guests that change memory fast: the driver's migrations over the stand-in's links, with every method and each end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.hypervisors.libvirt.statistics import HALTED
from shared.base.clock import SystemClock
from shared.base.errors import TransientError
from shared.config.agent import CopyStorage
from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.migration_terms import NOT_MEASURED, MigrationFigures, MigrationMethod, MigrationTerms
from shared.values.vms import VmSpec, VmState, VmStatus
from sim_backend.fake_libvirt.codes import Err, Migrate
from sim_backend.fake_libvirt.faults import Fault
from sim_backend.world.migrating import GuestMemory
from tests.conformance.fake_libvirt_rig import Fakes, fakes

VM = "job#0"
SPEC = VmSpec(VM, 1, 1, memory_mib=400, vcpus=1, cpu_mhz=1_000.0, template="guest")
LINK = 100.0  # MiB/s
CALM = GuestMemory(400.0, 5.0, 200.0)
FAST = GuestMemory(400.0, 150.0, 200.0)  # 200 MiB cannot be sent in 0.3 s, and are changed in much less than 2 s
WILD = GuestMemory(400.0, 400.0)
LIMIT_S = 20.0
STEP_S = 0.1


class Lab:
    """Two hosts with drivers that look at migrations all the time, and a VM on h1."""

    def __init__(self, made: Fakes) -> None:
        self.made, self.cluster, self.clock = made, made.cluster, SystemClock()
        self.answers: dict[str, Operated] = {}
        self.ids = 0
        self.cluster.transfers.link_mib_per_s = LINK
        for driver in made.drivers.values():
            driver._site.watch_s = 0.001
        self.hear()

    def start(self, memory: GuestMemory, vm: str = VM, **fields: Any) -> None:
        self.cluster.memories[vm] = memory
        answer = self.wait(self.begin(ActionKind.START, vm=vm, generation=1, spec=replace(SPEC, vm=vm, **fields)))
        assert answer.outcome is Outcome.OK, answer

    def begin(self, kind: ActionKind, node: str = "h1", vm: str = VM, **fields: Any) -> str:
        self.ids += 1
        action = Action(f"a{self.ids}", kind, node, vm=vm, term=1, boot_id="boot", expires_at_s=1e12, **fields)
        self.made.drivers[node].begin(action, 0.0)
        return action.id

    def migrate(self, terms: MigrationTerms | None = None, vm: str = VM, **fields: Any) -> str:
        return self.begin(ActionKind.MIGRATE, vm=vm, expects=1, generation=1, to_node="h2", migration=terms, **fields)

    def wait(self, call: str, meanwhile: Callable[[], object] = lambda: None) -> Operated:
        limit_s = self.clock.monotonic_s() + LIMIT_S
        while call not in self.answers:
            assert self.clock.monotonic_s() < limit_s
            self.tick()
            meanwhile()
        return self.answers[call]

    def tick(self) -> None:
        """A little time passes, once the watch has looked."""
        self.hear()
        if not self.cluster.waiting:
            self.clock.sleep(0.0005)
            return
        looked = self.looks()
        limit_s = self.clock.monotonic_s() + 0.05
        while self.looks() == looked and self.clock.monotonic_s() < limit_s:
            self.clock.sleep(0.0005)
        self.cluster.advance(STEP_S)

    def looks(self) -> int:
        return sum(call == "jobStats" for _, call, _ in list(self.cluster.calls))

    def hear(self) -> None:
        for driver in self.made.drivers.values():
            with suppress(TransientError):
                driver.vms(0.0)
            for event in driver.poll(0.0):
                if not isinstance(event, GuestChanged):
                    self.answers[event.call_id] = event

    def until(self, ready: Callable[[], object]) -> None:
        limit_s = self.clock.monotonic_s() + LIMIT_S
        while not ready():
            assert self.clock.monotonic_s() < limit_s
            self.tick()

    def status(self, node: str, vm: str = VM) -> VmStatus | None:
        self.hear()
        return next((one for one in self.made.drivers[node].vms(0.0) if one.vm == vm), None)

    def executing(self) -> list[str]:
        return [host.name for host in self.cluster.hosts.values() for dom in host.live() if dom.running]

    def switched(self) -> bool:
        dom = self.made.drift("h2").domain(VM)
        return dom is not None and dom.running


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with fakes(tmp_path, durations_s={}) as made:
        yield Lab(made)
        assert made.cluster.doubles == []
        assert made.cluster.misuses == []


def figures(answer: Operated) -> MigrationFigures:
    assert answer.migrated is not None, answer
    return answer.migrated


# --- methods ---------------------------------------------------------------------------------------------------------


def test_a_calm_guest_is_migrated_by_pre_copy_and_measured(lab: Lab) -> None:
    lab.start(CALM)
    answer = lab.wait(lab.migrate())
    assert (answer.outcome, lab.executing()) == (Outcome.OK, ["h2"])
    found = figures(answer)
    assert found.method is MigrationMethod.PRE_COPY
    assert found.duration_s == pytest.approx(4.3, abs=0.2)  # 400 MiB, then the little that was changed
    assert 0.0 < found.downtime_s <= 0.4
    assert found.transferred_mib == pytest.approx(420.0, rel=0.05)


def test_a_fast_guest_is_given_up_and_stays_where_it_is(lab: Lab) -> None:
    lab.start(FAST)
    answer = lab.wait(lab.migrate(MigrationTerms(limit_s=200.0)))
    assert answer.outcome is Outcome.NOT_CONVERGING
    assert re.fullmatch(r"[1-9]\d* MiB left after [1-9]\d* rounds, the guest changes [1-9]\d* MiB/s", answer.detail)
    assert lab.executing() == ["h1"]
    found = figures(answer)
    assert found.duration_s < 60.0  # long before its limit
    assert found.rounds > 5
    assert found.dirty_mib_per_s > 0.9 * LINK
    assert lab.status("h2") is None
    status = lab.status("h1")
    assert status is not None
    assert (status.state, status.busy) == (VmState.RUNNING, "")


def test_auto_converge_slows_the_guest_until_it_ends(lab: Lab) -> None:
    lab.start(FAST)
    answer = lab.wait(lab.migrate(MigrationTerms(MigrationMethod.AUTO_CONVERGE)))
    assert (answer.outcome, lab.executing()) == (Outcome.OK, ["h2"])
    found = figures(answer)
    assert found.method is MigrationMethod.AUTO_CONVERGE
    assert found.throttle_frac >= 0.5


def test_post_copy_moves_the_guest_after_one_round(lab: Lab) -> None:
    lab.start(WILD)
    answer = lab.wait(lab.migrate(MigrationTerms(MigrationMethod.POST_COPY)))
    assert (answer.outcome, lab.executing()) == (Outcome.OK, ["h2"])
    found = figures(answer)
    assert found.method is MigrationMethod.POST_COPY
    assert found.duration_s == pytest.approx(8.0, rel=0.1)  # all of it, twice
    assert found.downtime_s == NOT_MEASURED  # libvirt does not tell


@pytest.mark.parametrize("method", [MigrationMethod.PRE_COPY, MigrationMethod.AUTO_CONVERGE])
def test_one_that_does_not_converge_switches_to_post_copy_where_it_may(lab: Lab, method: MigrationMethod) -> None:
    lab.start(WILD)
    answer = lab.wait(lab.migrate(MigrationTerms(method, limit_s=100.0, post_copy=True)))
    assert (answer.outcome, lab.executing()) == (Outcome.OK, ["h2"])
    assert figures(answer).method is MigrationMethod.POST_COPY
    assert figures(answer).rounds > 2


def test_several_connections_carry_more(lab: Lab) -> None:
    lab.cluster.transfers.stream_mib_per_s = 20.0
    lab.start(CALM)
    answer = lab.wait(lab.migrate(MigrationTerms(streams=4)))
    assert figures(answer).duration_s == pytest.approx(5.2, rel=0.1)


def test_a_share_of_the_link_is_kept_to(lab: Lab) -> None:
    lab.start(CALM)
    answer = lab.wait(lab.migrate(MigrationTerms(bandwidth_mib_per_s=40)))
    assert figures(answer).duration_s == pytest.approx(11.2, rel=0.1)


def test_two_migrations_share_the_link(lab: Lab) -> None:
    lab.start(CALM)
    lab.start(CALM, "job#1")
    calls = [lab.migrate(), lab.migrate(vm="job#1")]
    for call in calls:
        assert figures(lab.wait(call)).duration_s == pytest.approx(8.8, rel=0.1)


def test_a_paused_guest_converges_whatever_it_did(lab: Lab) -> None:
    lab.start(WILD)
    assert lab.wait(lab.begin(ActionKind.PAUSE, expects=1)).outcome is Outcome.OK
    answer = lab.wait(lab.migrate(MigrationTerms(MigrationMethod.POST_COPY)))
    assert (answer.outcome, figures(answer).method) == (Outcome.OK, MigrationMethod.PRE_COPY)
    status = lab.status("h2")
    assert status is not None
    assert status.state is VmState.PAUSED


# --- what is told to libvirt -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "flag", "params"),
    [
        (MigrationTerms(), 0, {}),
        (MigrationTerms(MigrationMethod.AUTO_CONVERGE), Migrate.AUTO_CONVERGE, {}),
        (MigrationTerms(MigrationMethod.POST_COPY), Migrate.POSTCOPY, {}),
        (MigrationTerms(streams=3), Migrate.PARALLEL, {"parallel.connections": 3}),
        (MigrationTerms(streams=3, post_copy=True), Migrate.POSTCOPY, {}),
        (
            MigrationTerms(post_copy=True, bandwidth_mib_per_s=70),
            Migrate.POSTCOPY,
            {"bandwidth": 70, "bandwidth.postcopy": 70},
        ),
    ],
)
def test_terms_become_flags_and_parameters(lab: Lab, terms: MigrationTerms, flag: int, params: dict[str, int]) -> None:
    lab.start(CALM)
    assert lab.wait(lab.migrate(terms)).outcome is Outcome.OK
    (transfer,) = lab.cluster.transfers.history
    methods = Migrate.AUTO_CONVERGE | Migrate.POSTCOPY | Migrate.PARALLEL
    assert transfer.flags & methods == flag
    tuned = ("bandwidth", "bandwidth.postcopy", "parallel.connections")
    assert {key: transfer.params[key] for key in tuned if key in transfer.params} == params


# --- ends ------------------------------------------------------------------------------------------------------------


def test_a_limit_ends_it_and_the_copy_that_was_made(lab: Lab) -> None:
    lab.start(CALM)
    answer = lab.wait(lab.migrate(MigrationTerms(limit_s=2.0)))
    assert (answer.outcome, lab.executing()) == (Outcome.FAILED, ["h1"])
    assert answer.detail.startswith("given up after 2 s")
    assert figures(answer).duration_s == pytest.approx(2.0, abs=0.5)


def test_it_is_aborted_on_request(lab: Lab) -> None:
    lab.start(CALM)
    call = lab.migrate()
    lab.until(lambda: lab.cluster.now_s() > 1.0)
    lab.made.drivers["h1"].abort(VM, 0.0)
    answer = lab.wait(call)
    assert (answer.outcome, answer.detail, lab.executing()) == (Outcome.TIMED_OUT, "aborted", ["h1"])


def test_post_copy_that_is_interrupted_is_resumed(lab: Lab) -> None:
    lab.start(WILD)
    call = lab.migrate(MigrationTerms(MigrationMethod.POST_COPY))
    lab.until(lab.switched)
    lab.cluster.cut("h2")
    lab.until(lambda: not lab.switched())
    assert lab.executing() == []
    status = lab.status("h1")
    assert status is not None
    assert status.busy == "migrate"
    lab.cluster.mend("h2")
    answer = lab.wait(call)
    assert (answer.outcome, lab.executing()) == (Outcome.OK, ["h2"])
    assert figures(answer).method is MigrationMethod.POST_COPY


def test_post_copy_that_cannot_be_resumed_is_left_as_it_is(lab: Lab) -> None:
    """Given a link that stays down during post-copy, then neither half is destroyed, and neither is called running."""
    lab.start(WILD)
    call = lab.migrate(MigrationTerms(MigrationMethod.POST_COPY))
    lab.until(lab.switched)
    lab.cluster.cut("h2")
    answer = lab.wait(call)
    assert (answer.outcome, HALTED in answer.detail) == (Outcome.FAILED, True)
    assert lab.executing() == []
    source, target = lab.status("h1"), lab.status("h2")
    assert source is not None
    assert target is not None
    assert (source.state, source.busy) == (VmState.PAUSED, "migrate")
    assert target.state is VmState.INCOMING
    lab.made.drivers["h1"].close()
    lab.made.drivers["h1"] = lab.made.driver("h1")  # another agent puts nothing in order
    again = lab.status("h1")
    assert again is not None
    assert (again.state, again.busy) == (VmState.PAUSED, "migrate")
    for kind in (ActionKind.UNPAUSE, ActionKind.SUSPEND, ActionKind.SET_CPU, ActionKind.MIGRATE):
        refused = lab.wait(lab.begin(kind, expects=1, generation=1, to_node="h2", cpu_mhz=500.0))
        assert (refused.outcome, refused.detail) == (Outcome.BUSY, HALTED)
    assert lab.executing() == []
    assert lab.wait(lab.begin(ActionKind.STOP, expects=1)).outcome is Outcome.OK
    assert lab.status("h1") is None


def test_an_abort_after_the_switch_is_too_late(lab: Lab) -> None:
    lab.start(WILD)
    call = lab.migrate(MigrationTerms(MigrationMethod.POST_COPY))
    lab.until(lab.switched)
    lab.made.drivers["h1"].abort(VM, 0.0)
    answer = lab.wait(call)
    assert (answer.outcome, lab.executing()) == (Outcome.OK, ["h2"])


@pytest.mark.parametrize("how", ["lose-answer", "answer-late"])
def test_an_arrival_that_is_heard_of_late_is_an_arrival(lab: Lab, how: Any) -> None:
    lab.start(CALM)
    lab.cluster.fail(Fault("migrateToURI3", how, host="h1"))
    answer = lab.wait(lab.migrate())
    assert (answer.outcome, lab.executing()) == (Outcome.OK, ["h2"])
    assert figures(answer).duration_s == pytest.approx(4.3, abs=1.0)


def test_a_failure_half_way_leaves_it_at_the_source(lab: Lab) -> None:
    lab.cluster.durations_s["migrate"] = 4.0
    lab.start(FAST)
    lab.cluster.fail(Fault("migrateToURI3", "break", Err.OPERATION_FAILED, host="h1"))
    answer = lab.wait(lab.migrate(MigrationTerms(MigrationMethod.AUTO_CONVERGE)))
    assert (answer.outcome, lab.executing()) == (Outcome.FAILED, ["h1"])


# --- what is reported ------------------------------------------------------------------------------------------------


def test_sizes_and_dirty_rates_are_reported(lab: Lab) -> None:
    lab.start(GuestMemory(300.0, 60.0, 120.0))
    driver = lab.made.drivers["h1"]
    status = lab.status("h1")
    assert status is not None
    assert (status.resident_mib, status.disk_mib, status.dirty_mib_per_s) == (300, 0, -1.0)  # its disk is shared
    for _ in range(12):  # each look takes one step; QEMU measures in the cluster's time, the driver waits in its own
        driver._dirty_rates._asked = _long_ago(driver._dirty_rates._asked)
        driver._measure_dirty_rate()
        lab.until(lambda: not driver._measuring)
        lab.cluster.advance(10.0)
    status = lab.status("h1")
    assert status is not None
    assert status.dirty_mib_per_s == pytest.approx(60.0, abs=1.0)
    assert status.working_set_mib == pytest.approx(120.0, rel=0.1)


def test_dirty_rates_are_measured_between_two_looks(lab: Lab) -> None:
    """Given half a minute between two looks at all domains, then the steps of a measurement do not wait for them, and
    need none."""
    for vm in ("job#0", "job#1"):
        lab.start(GuestMemory(100.0, 0.0), vm, memory_mib=100)
    lab.made.drivers["h1"].close()
    lab.made.drivers["h1"] = driver = lab.made.driver("h1")
    driver._site.dirty_rate_every_s = 0.02
    driver._look_now.set()
    limit_s = lab.clock.monotonic_s() + LIMIT_S

    def measured() -> set[str]:
        return {vm for _, call, vm in list(lab.cluster.calls) if call == "startDirtyRateCalc"}

    while measured() != {"job#0", "job#1"}:
        assert lab.clock.monotonic_s() < limit_s
        driver._dirty_rates._asked = _long_ago(driver._dirty_rates._asked)
        lab.cluster.advance(10.0)
        lab.clock.sleep(0.005)
    looks = [call for host, call, _ in lab.cluster.calls if (host, call) == ("h1", "getAllDomainStats")]
    began = len(looks)
    lab.clock.sleep(0.1)
    looks = [call for host, call, _ in lab.cluster.calls if (host, call) == ("h1", "getAllDomainStats")]
    assert len(looks) == began


def _long_ago(asked: Any) -> Any:
    return None if asked is None else replace(asked, at_s=asked.at_s - 30.0)


# --- firmware variables ----------------------------------------------------------------------------------------------


def with_nvram(lab: Lab, path: str) -> None:
    """The template's VMs keep firmware variables in a file."""
    text = lab.made.template.read_text().replace("</os>", f"<nvram>{path}</nvram></os>")
    lab.made.template.write_text(text)
    for name in lab.made.names:
        lab.made.drivers[name].close()
        lab.made.drivers[name] = lab.made.driver(name)
        lab.made.drivers[name]._site.watch_s = 0.001
        host = lab.cluster.hosts[name]
        host.hardware = replace(host.hardware, nvram_folders=(path.rpartition("/")[0],))
        host.files.put(path, b"boot order")
    lab.hear()


def has(lab: Lab, node: str, path: str) -> bool:
    return lab.cluster.hosts[node].files.get(path) is not None


SHARED, LOCAL = "/shared/volumes/vm.fd", "/var/lib/libvirt/qemu/nvram/vm.fd"


@pytest.mark.parametrize("shared_disk", [True, False])
def test_shared_firmware_variables_stay_for_the_target(shared_disk: bool, tmp_path: Path) -> None:
    """Given a source that keeps the definition until copied disks are removed, then the file that the target uses is
    left; so it is where libvirt removes the definition."""
    with fakes(tmp_path, durations_s={}, shared=shared_disk) as made:
        lab = Lab(made)
        with_nvram(lab, SHARED)
        lab.start(CALM)
        for start, end in (("h1", "h2"), ("h2", "h1")):
            call = lab.begin(ActionKind.MIGRATE, start, expects=1, generation=1, to_node=end)
            answer = lab.wait(call)
            assert answer.outcome is Outcome.OK, answer
            lab.until(lambda gone=start: lab.made.drift(gone).domain(VM) is None)  # type: ignore[misc]
            assert has(lab, end, SHARED)
        removals = [host for host, call, _ in made.cluster.calls if call == "undefineFlags"]
        assert removals == ([] if shared_disk else ["h1", "h2"])


@pytest.mark.parametrize(("path", "shared"), [(SHARED, True), (LOCAL, False)])
def test_where_no_disk_is_copied_libvirts_own_folder_is_still_each_hosts_own(lab: Lab, path: str, shared: bool) -> None:
    with_nvram(lab, path)
    lab.start(CALM)
    driver = lab.made.drivers["h1"]
    keys = driver._site.keys
    driver._site.keys = replace(keys, migration=replace(keys.migration, copy_storage=CopyStorage.NEVER))
    driver._fresh = True
    driver._meet()
    seen = driver._site.see(VM)
    assert seen is not None
    assert driver._site.shares_nvram(seen) is shared


def test_a_vm_that_is_stopped_takes_its_firmware_variables_along(lab: Lab) -> None:
    with_nvram(lab, SHARED)
    lab.start(CALM)
    assert lab.wait(lab.begin(ActionKind.STOP, expects=1)).outcome is Outcome.OK
    assert not has(lab, "h1", SHARED)


def test_an_image_that_is_discarded_leaves_shared_firmware_variables(lab: Lab) -> None:
    """Given a VM that was resumed elsewhere from its image, when the image is discarded, then its file stays."""
    with_nvram(lab, SHARED)
    lab.start(CALM)
    assert lab.wait(lab.begin(ActionKind.SUSPEND, expects=1)).outcome is Outcome.OK
    spec = replace(SPEC, generation=2)
    resume = lab.begin(ActionKind.RESUME, "h2", expects=1, generation=2, from_node="h1", spec=spec)
    assert lab.wait(resume).outcome is Outcome.OK
    assert lab.wait(lab.begin(ActionKind.DISCARD_IMAGE, expects=1)).outcome is Outcome.OK
    assert lab.made.drift("h1").domain(VM) is None
    assert has(lab, "h2", SHARED)


def test_local_firmware_variables_go_with_the_definition(lab: Lab) -> None:
    with_nvram(lab, LOCAL)
    lab.start(CALM)
    assert lab.wait(lab.begin(ActionKind.STOP, expects=1)).outcome is Outcome.OK
    assert not has(lab, "h1", LOCAL)
    assert has(lab, "h2", LOCAL)
