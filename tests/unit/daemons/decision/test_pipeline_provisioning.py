"""A controller whose windows are decided on by tables: what it asks of its workers, and what nodes it then wants."""

from __future__ import annotations

from typing import Any

from daemons.decision.pipeline import DecideRequest, Prepared, PrepareRequest, no_tables
from daemons.values.settings import PolicyChoice
from shared.ports import effects as fx
from tests.support import parts
from tests.support.window_harness import HOUR_S, WindowHarness

CYCLE_S = 900.0


def harness_of(
    policy: str = "threshold", nodes: tuple[str, ...] = ("n1", "n2", "n3"), **settings: Any
) -> WindowHarness:
    harness = WindowHarness(nodes=nodes, provisioning=PolicyChoice(policy), **settings)
    harness.lead()
    return harness


def wanted(harness: WindowHarness) -> list[str]:
    return [name for name, node in harness.controller.cluster.nodes.items() if node.wanted]


def prepares(harness: WindowHarness) -> list[fx.Compute]:
    return [effect for effect in harness.computations if isinstance(effect.request, PrepareRequest)]


def events(harness: WindowHarness) -> list[str]:
    return [event.what for event in harness.events if event.what.startswith("tables-")]


def test_a_window_with_little_to_do_leaves_nodes_to_rest() -> None:
    harness = harness_of()
    harness.submit()
    harness.pass_time(CYCLE_S + 5.0)
    assert len(wanted(harness)) == 1
    size = parts.windows(harness.controller).sizes["night"]
    assert (size.nodes, size.jobs) == (1, 1)
    assert size.breach[0] < 1e-4
    assert not prepares(harness)


def test_a_window_with_much_to_do_has_all() -> None:
    harness = harness_of()
    for _ in range(30):
        harness.submit(work=4e7)
    harness.pass_time(CYCLE_S + 5.0)
    assert len(wanted(harness)) == 3
    assert parts.windows(harness.controller).sizes["night"].reason.code.value == "out-of-reach"


def test_missing_tables_are_asked_for_and_decided_on_when_they_are_there() -> None:
    """Given a cache without tables, when a cycle has been decided, then they are asked for once; when they are there,
    there is a cycle's decision at once."""
    harness = harness_of()
    table_cache, harness.table_cache = harness.table_cache, no_tables
    harness.submit()
    harness.compute = False
    harness.computations.clear()
    harness.pass_time(CYCLE_S + 5.0)
    [asked] = harness.computations
    harness.answer(asked)
    harness.settle()
    [prepare] = prepares(harness)
    assert len(prepare.request.specs) == 2
    assert parts.windows(harness.controller).sizes["night"].reason.code.value == "no-tables"
    harness.computations.clear()
    harness.pass_time(60.0)
    assert not prepares(harness)
    harness.table_cache = table_cache
    harness.carry(harness.controller.handle(fx.Computed(prepare.compute_id, Prepared(2)), harness.now_s))
    harness.settle()
    [again] = [effect for effect in harness.computations if isinstance(effect.request, DecideRequest)]
    assert again.request.provisioning is not None
    harness.answer(again)
    assert parts.windows(harness.controller).sizes["night"].reason.code.value in ("keep", "spare")
    assert events(harness) == ["tables-missing", "tables-ready"]


def test_a_worker_that_makes_no_tables_is_told_of_and_decisions_go_on() -> None:
    harness = harness_of()
    harness.table_cache = no_tables
    harness.submit()
    harness.compute = False
    harness.computations.clear()
    harness.pass_time(CYCLE_S + 5.0)
    harness.answer(harness.computations[0])
    harness.settle()
    [prepare] = prepares(harness)
    harness.carry(harness.controller.handle(fx.Computed(prepare.compute_id, None, "out of time"), harness.now_s))
    harness.settle()
    assert events(harness) == ["tables-missing", "tables-failed"]
    harness.computations.clear()
    harness.pass_time(CYCLE_S)
    [asked] = harness.computations
    harness.answer(asked)
    harness.settle()
    assert not prepares(harness)
    assert len(wanted(harness)) == 1


def test_outside_its_period_a_window_takes_no_node() -> None:
    harness = harness_of(nodes=("n1", "n2"))
    harness.pass_time(13 * HOUR_S)
    assert parts.windows(harness.controller).sizes == {}
    assert len(wanted(harness)) == 1  # so many are always kept
