"""Jobs whose guests crash: they begin anew at once, but not again and again without a pause."""

from __future__ import annotations

from shared.protocol.operator_messages import SubmitJob
from shared.values.actions import ActionKind, GuestChange
from shared.values.vms import VmState, VmStatus
from tests.support.controller_harness import ControllerHarness, job

RETRY_S = 15.0
NODES = ("n1", "n2")


class Crashing(ControllerHarness):
    """A cluster with one job, whose guest crashes when it is told to."""

    def __init__(self) -> None:
        super().__init__(NODES, retry_s=RETRY_S, retry_max_s=900.0, reconcile_s=5.0)
        self.lead()
        self.ask(SubmitJob("s", job()))
        self.guests = 0

    def crash(self, state: VmState = VmState.CRASHED) -> None:
        """The guest that runs is no more."""
        self.obey()
        (node,) = [name for name, vms in self.vms.items() if vms]
        self.change(node, "j#0", state=state)
        self.guests += 1
        self.guest(node, "j#0", GuestChange.VANISHED, self.guests)

    def starts_within(self, seconds: float) -> bool:
        """Whether it is begun anew in that time, and not before its end but for the last reconcile period."""
        self.wait(seconds - 6.0, reporting=NODES)
        early = [order for order in self.orders if order.kind is ActionKind.START]
        self.wait(12.0, reporting=NODES)
        late = [order for order in self.orders if order.kind is ActionKind.START]
        return not early and len(late) == 1


def test_a_job_that_crashes_begins_anew_at_once() -> None:
    harness = Crashing()
    harness.crash()
    assert [order.kind for order in harness.orders] == [ActionKind.START]


def test_a_job_that_crashes_again_and_again_waits_longer_each_time() -> None:
    """Given a program that always fails, when it is begun anew, then after 15 s, 30 s, 60 s."""
    harness = Crashing()
    harness.crash()
    for pause_s in (RETRY_S, 2 * RETRY_S, 4 * RETRY_S):
        harness.crash()
        assert harness.orders == []
        assert harness.starts_within(pause_s)


def test_a_job_that_ran_for_long_begins_anew_at_once() -> None:
    harness = Crashing()
    harness.crash()
    harness.obey()
    harness.wait(1_000.0, reporting=NODES)
    harness.crash()
    assert [order.kind for order in harness.orders] == [ActionKind.START]


def test_a_guest_that_is_lost_has_not_crashed() -> None:
    """One that somebody else has removed, or that went with its host: as often as that may be."""
    harness = Crashing()
    for _ in range(3):
        harness.crash(VmState.RUNNING)
        harness.wait(5.0, reporting=NODES)
        assert [order.kind for order in harness.orders] == [ActionKind.START]


def test_a_crash_before_the_start_is_answered_counts_too() -> None:
    """Given a program that fails so soon that its job has not come together, when it fails again, then it waits."""
    harness = Crashing()
    (start,) = harness.take_orders()
    assert start.spec is not None
    harness.result(start, status=VmStatus("j#0", VmState.CRASHED, 1, attempt=1, memory_mib=start.spec.memory_mib))
    assert harness.happenings("job-started") == []
    harness.change(start.node, "j#0", state=VmState.CRASHED)
    harness.guests += 1
    harness.guest(start.node, "j#0", GuestChange.VANISHED, harness.guests)
    assert harness.starts_within(RETRY_S)
    harness.crash()
    assert harness.orders == []
    assert harness.starts_within(RETRY_S)
