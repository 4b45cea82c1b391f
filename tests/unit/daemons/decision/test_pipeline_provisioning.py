"""A controller whose windows are decided on by tables: what it asks of its workers, and what nodes it then wants."""

from __future__ import annotations

from typing import Any

from daemons.decision.pipeline import DecideRequest, Prepared, PrepareRequest, no_tables
from daemons.values.settings import PolicyChoice
from shared.ports import effects as fx
from tests.support import parts
from tests.support.window_harness import HOUR_S, WindowHarness

CYCLE_S = 900.0


def desk_of(policy: str = "threshold", nodes: tuple[str, ...] = ("n1", "n2", "n3"), **settings: Any) -> WindowHarness:
    desk = WindowHarness(nodes=nodes, provisioning=PolicyChoice(policy), **settings)
    desk.lead()
    return desk


def wanted(desk: WindowHarness) -> list[str]:
    return [name for name, node in desk.controller.cluster.nodes.items() if node.wanted]


def prepares(desk: WindowHarness) -> list[fx.Compute]:
    return [effect for effect in desk.computations if isinstance(effect.request, PrepareRequest)]


def events(desk: WindowHarness) -> list[str]:
    return [event.what for event in desk.events if event.what.startswith("tables-")]


def test_a_window_with_little_to_do_leaves_nodes_to_rest() -> None:
    desk = desk_of()
    desk.submit()
    desk.pass_time(CYCLE_S + 5.0)
    assert len(wanted(desk)) == 1
    size = parts.windows(desk.controller).sizes["night"]
    assert (size.nodes, size.jobs) == (1, 1)
    assert size.breach[0] < 1e-4
    assert not prepares(desk)


def test_a_window_with_much_to_do_has_all() -> None:
    desk = desk_of()
    for _ in range(30):
        desk.submit(work=4e7)
    desk.pass_time(CYCLE_S + 5.0)
    assert len(wanted(desk)) == 3
    assert parts.windows(desk.controller).sizes["night"].reason.code.value == "out-of-reach"


def test_missing_tables_are_asked_for_and_decided_on_when_they_are_there() -> None:
    """Given a cache without tables, when a cycle has been decided, then they are asked for once; when they are there,
    there is a cycle's decision at once."""
    desk = desk_of()
    table_cache, desk.table_cache = desk.table_cache, no_tables
    desk.submit()
    desk.compute = False
    desk.computations.clear()
    desk.pass_time(CYCLE_S + 5.0)
    [asked] = desk.computations
    desk.answer(asked)
    desk.settle()
    [prepare] = prepares(desk)
    assert len(prepare.request.specs) == 2
    assert parts.windows(desk.controller).sizes["night"].reason.code.value == "no-tables"
    desk.computations.clear()
    desk.pass_time(60.0)
    assert not prepares(desk)
    desk.table_cache = table_cache
    desk.carry(desk.controller.handle(fx.Computed(prepare.compute_id, Prepared(2)), desk.now_s))
    desk.settle()
    [again] = [effect for effect in desk.computations if isinstance(effect.request, DecideRequest)]
    assert again.request.provisioning is not None
    desk.answer(again)
    assert parts.windows(desk.controller).sizes["night"].reason.code.value in ("keep", "spare")
    assert events(desk) == ["tables-missing", "tables-ready"]


def test_a_worker_that_makes_no_tables_is_told_of_and_decisions_go_on() -> None:
    desk = desk_of()
    desk.table_cache = no_tables
    desk.submit()
    desk.compute = False
    desk.computations.clear()
    desk.pass_time(CYCLE_S + 5.0)
    desk.answer(desk.computations[0])
    desk.settle()
    [prepare] = prepares(desk)
    desk.carry(desk.controller.handle(fx.Computed(prepare.compute_id, None, "out of time"), desk.now_s))
    desk.settle()
    assert events(desk) == ["tables-missing", "tables-failed"]
    desk.computations.clear()
    desk.pass_time(CYCLE_S)
    [asked] = desk.computations
    desk.answer(asked)
    desk.settle()
    assert not prepares(desk)
    assert len(wanted(desk)) == 1


def test_outside_its_period_a_window_takes_no_node() -> None:
    desk = desk_of(nodes=("n1", "n2"))
    desk.pass_time(13 * HOUR_S)
    assert parts.windows(desk.controller).sizes == {}
    assert len(wanted(desk)) == 1  # so many are always kept
