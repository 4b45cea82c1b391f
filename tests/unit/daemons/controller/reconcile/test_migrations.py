"""VMs are migrated in the way that ends, as forecast; what would not end is not begun, or not soon again."""

from __future__ import annotations

from typing import Any

import pytest

from daemons.values.settings import Automation, MigrationSettings, PolicyChoice
from shared.protocol.operator_messages import AdoptVm, DrainNode, MoveVm, PowerVm, SetJob
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.migration_terms import MigrationFigures, MigrationMethod, MigrationTerms
from shared.values.vm_terms import TermChanges
from shared.values.vms import VmState, VmStatus
from tests.support.controller_harness import ControllerHarness

LINK_MIB_PER_S = 100.0
CALM: dict[str, Any] = {"dirty_mib_per_s": 5.0, "resident_mib": 1_000, "working_set_mib": 100}
# Its migration converges neither at full speed nor at a hundredth of it.
BUSY: dict[str, Any] = {"dirty_mib_per_s": 50_000.0, "resident_mib": 60_000, "working_set_mib": 60_000}


def harness_of(link: float = LINK_MIB_PER_S, **fields: Any) -> ControllerHarness:
    """A cluster with one adopted VM that runs on n1."""
    keys = {"link_mib_per_s": link} | {key: fields.pop(key) for key in ("streams", "post_copy") if key in fields}
    harness = ControllerHarness(
        placement=PolicyChoice("apc"), automation=Automation.AUTO, migration=MigrationSettings(**keys)
    ).lead()
    harness.vms["n1"]["pet"] = VmStatus(
        "pet", VmState.RUNNING, memory_mib=1_000, vcpus=2, cpu_mhz=700.0, managed=False, **fields
    )
    harness.report("n1")
    harness.ask(AdoptVm("a", "n1", "pet", job="pet"))
    harness.obey()
    harness.report("n1")
    return harness


def moves(harness: ControllerHarness) -> list[Action]:
    return [one for one in harness.take_orders() if one.kind is ActionKind.MIGRATE]


def terms_of(action: Action) -> MigrationTerms:
    assert action.migration is not None
    return action.migration


def moved(harness: ControllerHarness, number: int = 1, to: str = "n2") -> Action:
    harness.ask(MoveVm(f"m{number}", "pet", to))
    (action,) = moves(harness)
    return action


def test_a_calm_guest_is_copied_and_the_event_says_how_long_that_took() -> None:
    harness = harness_of(**CALM)
    action = moved(harness)
    assert terms_of(action).method is MigrationMethod.PRE_COPY
    figures = MigrationFigures(MigrationMethod.PRE_COPY, duration_s=12.0, downtime_s=0.2, transferred_mib=1_050.0)
    harness.result(action, migrated=figures)
    (event,) = harness.happenings("vm-migrated")
    assert "pre-copy, took 12.0 s (forecast 1" in event.detail
    assert event.detail.endswith("paused for 0.20 s")


def test_a_pause_that_was_not_measured_is_not_given_a_number() -> None:
    harness = harness_of(**CALM)
    harness.result(moved(harness), migrated=MigrationFigures(MigrationMethod.POST_COPY, duration_s=12.0))
    (event,) = harness.happenings("vm-migrated")
    assert event.detail.endswith("not known how long paused")


def test_forecasts_follow_what_was_measured() -> None:
    harness = harness_of(**CALM)
    found = []
    for number, (start, end) in enumerate([("n1", "n2"), ("n2", "n1")] * 4):
        action = moved(harness, number, end)
        figures = MigrationFigures(MigrationMethod.PRE_COPY, duration_s=30.0, transferred_mib=1_000.0)
        harness.result(action, migrated=figures)
        harness.report(start)
        harness.report(end)
        harness.wait(60.0, reporting=["n1", "n2"])
        found.append(float(harness.happenings("vm-migrated")[-1].detail.partition("(forecast ")[2].split()[0]))
    assert found[0] < 15.0
    assert abs(found[-1] - 30.0) < abs(found[0] - 30.0) / 2.0


def test_a_new_leader_forecasts_with_what_its_predecessor_has_learned() -> None:
    harness = harness_of(0.0, **CALM)
    for number, (start, end) in enumerate([("n1", "n2"), ("n2", "n1")] * 3):
        action = moved(harness, number, end)
        figures = MigrationFigures(MigrationMethod.PRE_COPY, duration_s=30.0, transferred_mib=1_000.0)
        harness.result(action, migrated=figures)
        for node in (start, end):
            harness.report(node)
        harness.wait(60.0, reporting=["n1", "n2"])
    before = harness.controller.cluster
    known, rates = (
        before.instances["pet"].migration_facts,
        {name: one.migration_facts for name, one in before.nodes.items()},
    )
    assert known.ratio.count == 5  # the first had no rate to be forecast with
    assert rates["n1"].mib_per_s == pytest.approx(1_000.0 / 30.0)

    after = ControllerHarness(store=harness.store).lead().controller.cluster

    assert after.instances["pet"].migration_facts == known
    assert {name: one.migration_facts for name, one in after.nodes.items()} == rates


def test_what_would_not_converge_is_not_begun_by_a_decision() -> None:
    harness = harness_of(**BUSY)
    harness.ask(DrainNode("d", "n1", True))
    harness.wait(120.0, reporting=["n1", "n2"])
    assert moves(harness) == []
    (event, *_) = harness.happenings("migration-will-not-converge")
    assert "changes 50000 MiB/s, the link carries 100 MiB/s" in event.detail
    assert len(harness.happenings("migration-will-not-converge")) == 1


def test_an_operator_who_insists_is_followed() -> None:
    action = moved(harness_of(**BUSY))
    assert terms_of(action).method is MigrationMethod.AUTO_CONVERGE


@pytest.mark.parametrize("of_vm", [False, True])
def test_post_copy_is_used_where_it_is_allowed(of_vm: bool) -> None:
    harness = harness_of(400.0, post_copy=not of_vm, **BUSY)
    if of_vm:
        harness.ask(SetJob("s", "pet", terms=TermChanges(post_copy=True)))
    harness.ask(DrainNode("d", "n1", True))
    harness.wait(20.0, reporting=["n1", "n2"])
    (action,) = moves(harness)
    assert (terms_of(action).method, terms_of(action).may_switch) == (MigrationMethod.POST_COPY, True)


def test_without_figures_nothing_is_refused() -> None:
    harness = harness_of(link=0.0)
    action = moved(harness)
    assert terms_of(action) == MigrationTerms(MigrationMethod.AUTO_CONVERGE, downtime_ms=300, limit_s=600.0)
    harness.result(action)
    assert harness.happenings("vm-migrated")


def test_a_link_is_known_once_a_migration_has_used_it() -> None:
    harness = harness_of(link=0.0, **BUSY)
    figures = MigrationFigures(MigrationMethod.AUTO_CONVERGE, duration_s=20.0, transferred_mib=2_000.0)
    harness.result(moved(harness), migrated=figures)
    harness.report("n1")
    harness.report("n2")
    harness.ask(DrainNode("d", "n2", True))
    harness.wait(60.0, reporting=["n1", "n2"])
    assert moves(harness) == []
    assert "the link carries 100 MiB/s" in harness.happenings("migration-will-not-converge")[0].detail


def test_one_that_did_not_converge_is_tried_again_after_ever_longer_times() -> None:
    harness = harness_of(link=0.0, **BUSY)
    figures = MigrationFigures(MigrationMethod.AUTO_CONVERGE, duration_s=60.0, dirty_mib_per_s=900.0)
    harness.ask(DrainNode("d", "n1", True))
    tries: list[float] = []
    while len(tries) < 3:
        harness.wait(5.0, reporting=["n1", "n2"])
        for action in moves(harness):
            tries.append(harness.now_s)
            harness.result(action, Outcome.NOT_CONVERGING, migrated=figures)
        assert harness.now_s < 20_000.0
    assert tries[1] - tries[0] >= 890.0
    assert tries[2] - tries[1] >= 1_780.0


def test_one_that_did_not_converge_is_still_shut_down_resized_and_moved_by_an_operator() -> None:
    """What waits is the next migration by a decision, and nothing else."""
    harness = harness_of(link=0.0, **BUSY)
    figures = MigrationFigures(MigrationMethod.AUTO_CONVERGE, duration_s=60.0, dirty_mib_per_s=900.0)
    harness.ask(DrainNode("d", "n1", True))
    harness.wait(15.0, reporting=["n1", "n2"])
    (action,) = moves(harness)
    harness.result(action, Outcome.NOT_CONVERGING, migrated=figures)
    harness.wait(60.0, reporting=["n1", "n2"])
    assert ActionKind.MIGRATE not in [order.kind for order in harness.obey()]
    harness.ask(DrainNode("u", "n1", False))
    harness.obey()

    assert harness.ask(MoveVm("m", "pet", "n2")).done
    (again,) = moves(harness)
    harness.result(again, Outcome.NOT_CONVERGING, migrated=figures)
    harness.wait(60.0, reporting=["n1", "n2"])
    harness.obey()
    assert harness.ask(PowerVm("p", "pet", False)).done
    assert ActionKind.STOP in [order.kind for order in harness.take_orders()]


def test_migrations_that_wait_for_their_turn_are_judged_when_it_comes() -> None:
    """Given three large VMs whose migrations take all of the link, then each is migrated in its turn."""
    harness = harness_of(link=1_000.0, **CALM)
    large: dict[str, Any] = {"dirty_mib_per_s": 5.0, "resident_mib": 400_000, "working_set_mib": 100}
    for number in range(3):
        name = f"large{number}"
        harness.vms["n1"][name] = VmStatus(
            name, VmState.RUNNING, memory_mib=200, vcpus=1, cpu_mhz=100.0, managed=False, **large
        )
        harness.report("n1")
        assert harness.ask(AdoptVm(f"a{number}", "n1", name, job=name)).done
        harness.obey()
        harness.report("n1")
    harness.ask(DrainNode("d", "n1", True))
    found = set()
    for _ in range(20):
        harness.wait(5.0, reporting=["n1", "n2"])
        for action in moves(harness):
            found.add(action.vm)
            harness.result(action)
    assert found >= {"large0", "large1", "large2"}
    assert harness.happenings("migration-will-not-converge") == []


def test_several_at_a_time_share_the_link() -> None:
    harness = harness_of(**CALM)
    for number in range(2):
        harness.vms["n1"][f"pet{number}"] = VmStatus(
            f"pet{number}", VmState.RUNNING, memory_mib=100, vcpus=1, cpu_mhz=100.0, managed=False, **CALM
        )
    harness.report("n1")
    migrations = harness.controller.reconciler.migrations
    assert migrations._share("n1", "n2") == LINK_MIB_PER_S
    moved(harness)
    assert migrations._share("n1", "n2") == LINK_MIB_PER_S / 2.0
    assert migrations._share("n3", "n4") == LINK_MIB_PER_S
