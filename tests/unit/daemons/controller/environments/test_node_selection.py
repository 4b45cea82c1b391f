"""Which nodes an environment gets and gives up, and whose jobs give way."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from daemons.controller.environments.node_selection import (
    RunningJob,
    Unit,
    arriving,
    evicted,
    fitted,
    idle_first,
    pending,
)
from tests.extent import examples
from tests.support.victims import victims


def tenant(name: str, *nodes: str, start_s: float = 0.0, arrival: int = 0) -> RunningJob:
    return RunningJob(name, start_s, arrival, frozenset(nodes))


def test_nodes_come_that_take_least_to_be_handed_over() -> None:
    free = [
        Unit("asleep", awake=False),
        Unit("full", empty=False),
        Unit("kept", images=True),
        Unit("other", kind=1),
        Unit("ready"),
        Unit("still", holder="hpc", settled=False),
    ]
    assert arriving(free, ("hpc",), (2, 0)) == ("still", "ready")
    assert arriving(free, ("hpc",), (5, 1)) == ("still", "other", "ready", "kept", "full", "asleep")


def test_idle_nodes_that_have_not_come_yet_go_first_and_those_with_saved_vms_last() -> None:
    units = [
        Unit("a", holder="hpc"),
        Unit("b", holder="hpc", images=True),
        Unit("c", holder="hpc"),
        Unit("d", holder=""),
        Unit("e", holder="hpc", idle=False),
    ]
    assert [unit.name for unit in idle_first(units, "hpc")] == ["d", "c", "a", "b"]


def test_nodes_that_nobody_is_on_any_more_need_no_victim() -> None:
    assert evicted([tenant("one", "a", "b")], ["a", "b", "c"], 1) == ((), ("c",))
    assert evicted([tenant("one", "a", "b")], ["a", "b", "c"], 2) == (("one",), ("c", "a", "b"))
    assert evicted([], [], 3) == ((), ())


def test_where_jobs_share_nodes_the_node_goes_whose_jobs_are_smallest_together() -> None:
    crowd = [tenant("x", "a"), tenant("y", "a"), tenant("z", "a"), tenant("wide", "b", "c")]
    assert evicted(crowd, ["a", "b", "c"], 1) == (("wide",), ("b", "c"))
    crowd = [*crowd, tenant("late", "b", "c", start_s=1.0)]
    assert evicted(crowd, ["a", "b", "c"], 1) == (("x", "y", "z"), ("a",))
    assert evicted(crowd, ["b", "c"], 1) == (("late", "wide"), ("b", "c"))


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), max_size=12), st.integers(0, 30))
def test_where_every_node_has_one_job_the_papers_order_holds(jobs: list[tuple[int, int]], needed: int) -> None:
    """The same victims as the rule of section 5.1 names, and all their nodes."""
    crowd, nodes = [], []
    for index, (size, start_s) in enumerate(jobs):
        own = [f"n{index:02}-{part}" for part in range(size)]
        nodes += own
        crowd.append(tenant(f"j{index:02}", *own, start_s=float(start_s), arrival=index))
    sizes, starts_s = [size for size, _ in jobs], [float(start_s) for _, start_s in jobs]
    expected = victims(sizes, starts_s, range(len(jobs)), needed)
    left, freed = evicted(crowd, nodes, needed)
    assert left == tuple(f"j{index:02}" for index in expected)
    assert len(freed) == sum(sizes[index] for index in expected)


@settings(max_examples=examples(100))
@given(
    st.lists(st.tuples(st.frozensets(st.sampled_from("abcdefgh"), min_size=1), st.integers(0, 3)), max_size=10),
    st.integers(0, 9),
)
def test_victims_free_what_is_needed_and_every_one_of_them_is_on_a_freed_node(
    jobs: list[tuple[frozenset[str], int]], needed: int
) -> None:
    """Where jobs share nodes."""
    crowd = [tenant(f"j{index}", *on, start_s=float(start)) for index, (on, start) in enumerate(jobs)]
    left, freed = evicted(crowd, list("abcdefgh"), needed)
    gone = set(left)
    empty = {name for name in "abcdefgh" if all(one.name in gone for one in crowd if name in one.nodes)}
    assert set(freed) <= empty
    assert len(freed) >= min(needed, 8)
    assert all(not one.nodes.isdisjoint(freed) for one in crowd if one.name in gone)
    if needed <= 0:
        assert not left


def test_sizes_are_cut_where_units_are_missing_the_web_environment_last() -> None:
    assert fitted((6, 4), (5, 3), 10, 0, 1) == (6, 4)
    assert fitted((6, 4), (5, 3), 9, 0, 1) == (5, 4)
    assert fitted((6, 4), (5, 3), 8, 0, 1) == (5, 3)
    assert fitted((6, 4), (5, 3), 5, 0, 1) == (2, 3)
    assert fitted((6, 4), (5, 3), 0, 10, 1) == (6, 4)  # within the lower bound they are yet to come
    assert fitted((6, 4), (5, 3), 8, 9, 1) == (5, 4)


def test_what_a_batch_environment_was_not_granted_stands_up_to_the_firm_bound() -> None:
    assert pending((9, 5), (3, 2), 10, 0) == (5, 5)
    assert pending((9, 5), (3, 2), 4, 0) == (3, 5)
    assert pending((9, 5), (3, 2), 99, 0) == (9, 5)
    assert pending((5,), (2,), 0, None) == (5,)
