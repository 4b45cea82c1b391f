"""VMs are migrated in the way that ends, as forecast; what would not end is not begun, or not soon again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from daemons.controller.state.vm_terms import moves_left, pause_left_s
from daemons.models.migration_time import SWITCH_OVER_S
from daemons.values.settings import Automation, ControllerSettings, MigrationSettings, PolicyChoice
from shared.protocol.operator_messages import AdoptVm, DrainNode, MoveVm, PowerVm, Query, SetJob
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.jobs import Rules
from shared.values.migration_terms import (
    NOT_MEASURED,
    MigrationBounds,
    MigrationFigures,
    MigrationMethod,
    MigrationTerms,
)
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
    bounds = fields.pop("bounds", None)
    harness = ControllerHarness(
        placement=PolicyChoice("apc"), automation=Automation.AUTO, migration=MigrationSettings(**keys)
    )
    if bounds is not None:
        harness.nodes["n1"] = replace(harness.nodes["n1"], migration_bounds=bounds)
    harness.lead()
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
    assert event.detail.endswith("paused for 0.20 s (forecast 0.05 s)")


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
    large: dict[str, Any] = {"dirty_mib_per_s": 5.0, "resident_mib": 200_000, "working_set_mib": 100}
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


# --- what the agent allows --------------------------------------------------------------------------------------------

SIZES = (15_000, 23_000, 25_000, 35_000, 47_000, 49_000)


@pytest.mark.parametrize("resident_mib", SIZES)
@pytest.mark.parametrize("limit_s", [60.0, None, 450.0, 900.0])
def test_none_is_begun_that_is_forecast_to_run_into_the_limit_of_its_agent(
    resident_mib: int, limit_s: float | None
) -> None:
    """Given a controller that allows 600 s, and an agent that reports its limit, or is too old to report one."""
    bounds = None if limit_s is None else MigrationBounds(limit_s)
    calm: dict[str, Any] = {"dirty_mib_per_s": 0.0, "resident_mib": resident_mib, "working_set_mib": 0}
    harness = harness_of(bounds=bounds, **calm)
    harness.ask(DrainNode("d", "n1", True))
    harness.wait(60.0, reporting=["n1", "n2"])
    takes_s, agent_s = 1.25 * (resident_mib / LINK_MIB_PER_S + 1.03), limit_s or 300.0
    assert bool(moves(harness)) is (takes_s <= min(600.0, agent_s))
    events = harness.happenings("migration-will-not-converge")
    if takes_s > agent_s and agent_s < 600.0:
        assert f"would take longer than {agent_s:g} s, the limit of n1's agent: " in events[0].detail
    elif takes_s > 600.0:
        assert "would take longer than 600 s: " in events[0].detail
    else:
        assert events == []


def test_local_disks_count_against_the_limit_of_the_agent() -> None:
    harness = harness_of(disk_mib=28_000, **CALM)
    harness.ask(DrainNode("d", "n1", True))
    harness.wait(60.0, reporting=["n1", "n2"])
    assert moves(harness) == []
    assert "the limit of n1's agent" in harness.happenings("migration-will-not-converge")[0].detail


def test_post_copy_may_last_longer_than_the_agent_waits_for_its_begin() -> None:
    """Given memory that takes 160 s to send, and as long again in post-copy."""
    harness = harness_of(400.0, post_copy=True, **BUSY | {"resident_mib": 64_000, "working_set_mib": 64_000})
    harness.ask(DrainNode("d", "n1", True))
    harness.wait(60.0, reporting=["n1", "n2"])
    assert [terms_of(one).method for one in moves(harness)] == [MigrationMethod.POST_COPY]


def test_the_downtime_and_the_bandwidth_of_the_agent_are_counted_with() -> None:
    """Given a guest of whose memory more changes within a round than 0.3 s carry."""
    busy: dict[str, Any] = {"dirty_mib_per_s": 149.0, "resident_mib": 1_000, "working_set_mib": 150}
    migrations = harness_of(bounds=MigrationBounds(), **busy).controller.reconciler.migrations
    found = migrations.choice(migrations.cluster.instances["pet"], "n1", "n2")
    assert found is not None
    assert found.forecast is not None
    assert found.forecast.method is MigrationMethod.AUTO_CONVERGE
    patient = harness_of(bounds=MigrationBounds(downtime_ms=2_000), **busy)
    assert terms_of(moved(patient)) == MigrationTerms(MigrationMethod.PRE_COPY, downtime_ms=2_000, limit_s=600.0)
    slow = harness_of(bounds=MigrationBounds(bandwidth_mib_per_s=2), **CALM)
    slow.ask(DrainNode("d", "n1", True))
    slow.wait(60.0, reporting=["n1", "n2"])
    assert moves(slow) == []
    assert "n1's agent allows 2 MiB/s" in slow.happenings("migration-will-not-converge")[0].detail


# --- connections ------------------------------------------------------------------------------------------------------

HEAVY: dict[str, Any] = {"dirty_mib_per_s": 1_250.0, "resident_mib": 60_000, "working_set_mib": 60_000}


@pytest.mark.parametrize(
    ("link", "streams", "wanted"),
    [
        (5_000.0, 4, (MigrationMethod.PRE_COPY, 4)),
        (5_000.0, 1, (MigrationMethod.AUTO_CONVERGE, 1)),
        (1_000.0, 4, (MigrationMethod.AUTO_CONVERGE, 1)),
        (400.0, 4, (MigrationMethod.AUTO_CONVERGE, 1)),
    ],
)
def test_several_connections_are_used_where_the_link_carries_more_than_one(
    link: float, streams: int, wanted: tuple[MigrationMethod, int]
) -> None:
    terms = terms_of(moved(harness_of(link, streams=streams, **HEAVY)))
    assert (terms.method, terms.streams) == wanted


def test_a_calm_guest_has_one_connection_on_a_fast_link_too() -> None:
    assert terms_of(moved(harness_of(5_000.0, streams=4, **CALM))).streams == 1


def test_one_connection_that_has_carried_more_is_known_to() -> None:
    harness = harness_of(5_000.0, streams=4, **CALM)
    figures = MigrationFigures(MigrationMethod.PRE_COPY, duration_s=5.0, downtime_s=0.1, transferred_mib=20_000.0)
    harness.result(moved(harness), migrated=figures)
    migrations = harness.controller.reconciler.migrations
    assert migrations._stream_rate("n1", "n2") == 4_000.0
    assert migrations._stream_rate("n1", "n3") == 1_200.0  # n3 has not shown it
    assert ControllerHarness(store=harness.store).lead().controller.reconciler.migrations._stream_rate(
        "n1", "n2"
    ) == pytest.approx(4_000.0)


# --- pauses -----------------------------------------------------------------------------------------------------------


CYCLE_S = ControllerSettings().decide_s


def unwanted(pause_s: float, link: float = LINK_MIB_PER_S, **fields: Any) -> ControllerHarness:
    """A rule that a decision repairs wants the VM off its node; its terms allow pauses of so many seconds."""
    harness = harness_of(link, **fields)
    terms = TermChanges(pause_s_per_day=pause_s, moves_per_day=5)
    assert harness.ask(SetJob("s", "pet", terms=terms, rules=Rules(node_anti_affinity=("n1",)))).done
    harness.wait(CYCLE_S + 5.0 - harness.now_s, reporting=["n1", "n2"])
    return harness


def pause_of(harness: ControllerHarness) -> float:
    migrations = harness.controller.reconciler.migrations
    found = migrations.choice(migrations.cluster.instances["pet"], "n1", "n2")
    assert found is not None
    assert found.forecast is not None
    return found.forecast.pause_s


@pytest.mark.parametrize("spare", [0.5, 0.99, 1.01, 3.0])
@pytest.mark.parametrize("fields", [CALM, {**CALM, "dirty_mib_per_s": 70.0}])
def test_no_decision_moves_a_vm_whose_pause_is_forecast_to_exceed_its_budget(
    spare: float, fields: Mapping[str, Any]
) -> None:
    most_s = spare * pause_of(harness_of(**fields))
    harness = unwanted(most_s, **fields)
    assert bool(moves(harness)) is (spare >= 1.0)
    events = [event.detail for event in harness.happenings("migration-over-budget")]
    if spare >= 1.0:
        assert events == []
        return
    assert events == [
        f"pet to n2: would pause it for {most_s / spare:.2f} s; {most_s:.2f} s of pause_s_per_day are left"
    ]
    entry = harness.controller.cluster.jobs["pet"]
    assert moves_left(entry, harness.now_s) == 5
    assert ("pet",) in [one.members for one in harness.controller.deciding.builder.build(harness.now_s).constraints]
    view = harness.ask(Query("v", "vm", "pet")).data["migration"]["forecasts"]
    assert ["would pause it" in row["why_not"] for row in view if row["node"] == "n2"] == [True]


def test_a_larger_budget_counts_at_once_and_a_drain_and_an_operator_for_more() -> None:
    harness = unwanted(0.01, **CALM)
    assert ActionKind.MIGRATE not in [one.kind for one in harness.obey()]
    harness.ask(SetJob("t", "pet", terms=TermChanges(pause_s_per_day=10.0)))
    harness.wait(CYCLE_S, reporting=["n1", "n2"])
    assert {one.vm for one in moves(harness)} == {"pet"}

    harness = unwanted(0.01, **CALM)
    harness.obey()
    harness.ask(DrainNode("d", "n1", True))
    harness.wait(60.0, reporting=["n1", "n2"])
    assert [one.vm for one in moves(harness)] == ["pet"]

    harness = unwanted(0.01, **CALM)
    harness.obey()
    assert moved(harness).vm == "pet"


def test_where_nothing_is_forecast_the_downtime_limit_is_what_it_pauses() -> None:
    assert moves(unwanted(0.3, link=0.0, **CALM)) == []
    assert len(moves(unwanted(0.3 + SWITCH_OVER_S, link=0.0, **CALM))) == 1


FAST: dict[str, Any] = {"dirty_mib_per_s": 900.0, "resident_mib": 1_000, "working_set_mib": 1_000}


@pytest.mark.parametrize(
    ("link", "figures", "outcome", "counted_s"),
    [
        # Half of the working set is fetched at 100 MiB/s, at most for as long as it took.
        (100.0, MigrationFigures(MigrationMethod.POST_COPY, 21.0), Outcome.OK, 10.03),
        (100.0, MigrationFigures(MigrationMethod.POST_COPY, 6.0), Outcome.OK, 6.0),
        (100.0, MigrationFigures(MigrationMethod.POST_COPY, 6.0), Outcome.FAILED, 6.0),
        (0.0, MigrationFigures(MigrationMethod.POST_COPY, 21.0), Outcome.OK, 21.0),
        (100.0, MigrationFigures(MigrationMethod.PRE_COPY, 21.0), Outcome.OK, 0.33),
        (100.0, MigrationFigures(MigrationMethod.PRE_COPY, 21.0), Outcome.NOT_CONVERGING, 0.0),
        (100.0, MigrationFigures(MigrationMethod.PRE_COPY, 21.0, downtime_s=0.7), Outcome.OK, 0.7),
    ],
)
def test_a_pause_that_was_not_measured_counts_with_its_bound(
    link: float, figures: MigrationFigures, outcome: Outcome, counted_s: float
) -> None:
    assert MigrationFigures(MigrationMethod.POST_COPY, 1.0).downtime_s == NOT_MEASURED
    harness = unwanted(100.0, link, post_copy=True, **FAST)
    (action,) = moves(harness)
    harness.result(action, outcome, migrated=figures)
    left_s = pause_left_s(harness.controller.cluster.jobs["pet"], harness.now_s)
    assert left_s == pytest.approx(100.0 - counted_s, abs=0.01)


def test_forecast_downtimes_follow_what_was_measured() -> None:
    """Given guests that stand still four times as long as the model says."""
    harness = harness_of(**CALM)
    found = []
    for number, (start, end) in enumerate([("n1", "n2"), ("n2", "n1")] * 4):
        figures = MigrationFigures(MigrationMethod.PRE_COPY, duration_s=11.0, downtime_s=0.2, transferred_mib=1_000.0)
        harness.result(moved(harness, number, end), migrated=figures)
        for node in (start, end):
            harness.report(node)
        harness.wait(60.0, reporting=["n1", "n2"])
        found.append(float(harness.happenings("vm-migrated")[-1].detail.rpartition("(forecast ")[2].split()[0]))
    assert found[0] < 0.1
    assert abs(found[-1] - 0.2) < abs(found[0] - 0.2) / 4.0
    facts = harness.controller.cluster.instances["pet"].migration_facts
    assert (facts.downtime.count, facts.ratio.count) == (8, 8)
    after = ControllerHarness(store=harness.store).lead().controller.cluster
    assert after.instances["pet"].migration_facts == facts


def test_a_downtime_of_post_copy_teaches_nothing() -> None:
    harness = harness_of(**CALM)
    figures = MigrationFigures(MigrationMethod.POST_COPY, duration_s=11.0, downtime_s=9.0, transferred_mib=1_000.0)
    harness.result(moved(harness), migrated=figures)
    assert harness.controller.cluster.instances["pet"].migration_facts.downtime.count == 0
