"""Which nodes are in service."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from daemons.models import node_choice
from shared.policy_api.snapshot import Snapshot
from tests.support.provisioning_cases import cluster, power, window


def chosen(seen: Snapshot, *sizes: int) -> tuple[str, ...]:
    rows, enough = node_choice.for_windows(seen, sizes)
    assert enough
    return node_choice.names(seen, rows)


def test_cheapest_first() -> None:
    """By watts for the work done, not by watts."""
    watts, rate = [200.0, 300.0, 200.0, 150.0], np.array([1.0, 2.0, 1.1, 0.5])
    seen = cluster(window(rate=rate), powers=power(peak_w=watts, wanted=[False] * 4))
    assert [chosen(seen, size) for size in (0, 1, 2, 3, 4)] == [
        (),
        ("n1",),
        ("n1",),
        ("n1", "n2"),
        ("n0", "n1", "n2"),
    ]


def test_what_is_wanted_stays_on_a_tie_and_before_cheaper_ones() -> None:
    seen = cluster(window(), powers=power(wanted=[False, True, False, True], peak_w=[100.0, 200.0, 100.0, 200.0]))
    assert chosen(seen, 2) == ("n1", "n3")
    assert chosen(seen, 3) == ("n0", "n1", "n3")


def test_the_most_expensive_leaves_first_and_the_idle_one_of_equals() -> None:
    seen = cluster(window(), powers=power(peak_w=[200.0, 250.0, 200.0, 200.0]))
    assert chosen(seen, 3) == ("n0", "n2", "n3")
    nodes = seen.nodes
    busy = np.array([4000.0, 4000.0, 1000.0, 4000.0])
    assert chosen(replace(seen, nodes=replace(nodes, free_cpu_mhz=busy)), 1) == ("n2",)


def test_a_node_that_takes_long_to_come_costs_more() -> None:
    slow = power(wanted=[False] * 4, peak_w=[190.0, 200.0, 200.0, 200.0], deploy_s=[600.0, 25.0, 25.0, 25.0])
    assert chosen(cluster(window(), powers=slow), 1) == ("n1",)


def test_those_that_must_stay_come_first_and_always() -> None:
    seen = cluster(window(), powers=power(must_stay=[False, False, True, False], peak_w=[1.0, 1.0, 900.0, 1.0]))
    assert chosen(seen, 0) == ("n2",)
    assert chosen(seen, 1) == ("n2",)
    assert chosen(seen, 2) == ("n0", "n2")


def test_what_is_not_available_is_never_chosen() -> None:
    seen = cluster(window(), powers=power(available=[False, True, True, False], must_stay=[True, False, False, False]))
    assert chosen(seen, 2) == ("n1", "n2")
    assert not node_choice.for_windows(seen, [3])[1]
    assert node_choice.others(seen, np.zeros(4, dtype=np.bool_)).tolist() == [1, 2]


def test_windows_share_a_node() -> None:
    """Half of a node that is worth two for each."""
    rate = np.array([2.0, 2.0])
    seen = cluster(window("a", rate=rate), window("b", rate=rate), nodes=2)
    assert chosen(seen, 1, 1) == ("n0",)
    assert chosen(seen, 2, 1) == ("n0", "n1")
    assert not node_choice.for_windows(seen, [3, 2])[1]


def test_the_window_with_fewer_nodes_to_choose_from_goes_first() -> None:
    seen = cluster(window("any"), window("picky", rate=np.array([1.0, 0.0, 0.0, 0.0])))
    assert chosen(seen, 3, 1) == ("n0", "n1", "n2", "n3")


@pytest.mark.parametrize("bad", [np.nan, -1.0, 0.0, np.inf])
def test_a_rate_that_is_none_is_no_use(bad: float) -> None:
    seen = cluster(window(rate=np.array([bad, 1.0, 1.0, 1.0])))
    assert chosen(seen, 3) == ("n1", "n2", "n3")
    assert not node_choice.for_windows(seen, [4])[1]


def test_others_by_watts_per_mhz() -> None:
    seen = cluster(powers=power(wanted=[False, False, False, True], peak_w=[300.0, 200.0, 100.0, 400.0]))
    assert node_choice.others(seen, np.array([False, True, False, False])).tolist() == [3, 2, 0]


def test_a_repeated_name_is_its_first_row() -> None:
    seen = cluster(window())
    seen = replace(seen, nodes=replace(seen.nodes, names=("n0", "n1", "n1", "n2")))
    assert node_choice.available(seen).tolist() == [True, True, False, True]
    assert not node_choice.for_windows(seen, [4])[1]


def test_without_power_all_may_serve() -> None:
    seen = replace(cluster(window()), power=None)
    assert chosen(seen, 2) == ("n0", "n1")


# --- what others hold ------------------------------------------------------------------------------------------------


def test_jobs_with_goals_on_a_windows_nodes_bring_it_more() -> None:
    """Given six goal jobs on six of the eight slots of two nodes, when the window needs two nodes, then it has two
    others besides, wherever the six are."""
    seen = cluster(window(taken=[0.75, 0.75, 0.0, 0.0]), powers=power(wanted=[True, True, False, False]))
    assert chosen(seen, 2) == ("n0", "n1", "n2", "n3")
    elsewhere = cluster(window(taken=[0.0, 0.0, 0.75, 0.75]), powers=power(wanted=[True, True, False, False]))
    assert chosen(elsewhere, 2) == ("n0", "n1", "n2", "n3")
    assert len(chosen(seen, 1)) == 3
    assert chosen(seen, 0) == ()


def test_others_never_take_all() -> None:
    """A window may have one node however much others hold, and not two."""
    seen = cluster(window(taken=np.ones(4)))
    assert len(chosen(seen, 1)) == 4
    assert not node_choice.for_windows(seen, [2])[1]


def test_what_others_hold_is_counted_once() -> None:
    """Given two windows on the same nodes, a fourth of each held by others, then these get one node for both."""
    quarter = np.full(6, 0.25)
    views = [window(name, count=6, rate=np.ones(6), taken=quarter) for name in ("a", "b")]
    assert len(chosen(cluster(*views, nodes=6), 2, 2)) == 6
    assert len(chosen(cluster(views[0], nodes=6), 2)) == 4


def test_numbers_of_others_that_cannot_be_used_are_none() -> None:
    seen = cluster(window(taken=[math.nan, -1.0, math.inf, 0.0]))
    assert node_choice.held(seen.windows[0]).tolist() == [0.0, 0.0, 1.0, 0.0]
