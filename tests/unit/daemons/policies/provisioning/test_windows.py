"""The sizes that policies give to deadline windows, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from daemons.decision.pipeline import name_of, no_tables
from daemons.decision.tables.memory import MemoryTables
from daemons.models.deadline.breaches import BreachSpec
from daemons.models.deadline.capacity import breach
from daemons.models.deadline.phases import hyperexponential
from daemons.models.deadline.rules import TableSpec
from daemons.policies.provisioning.analysers import BatchDeadline
from daemons.policies.provisioning.chances import risks_of, shown
from daemons.policies.provisioning.memory import Memory
from daemons.policies.provisioning.outlay import averages, period_price
from daemons.policies.provisioning.sized import observed_windows
from daemons.policies.provisioning.windows import limits_of, posed, removal_prices
from shared.base.errors import InvalidInput
from shared.policy_api.decision import ProvisioningDecision, ReasonCode, WindowSize
from shared.policy_api.snapshot import Snapshot, WindowView
from shared.ports.plugins import find_policy, names, policy_group
from tests.support.provisioning_cases import INTERVALS, cluster, power, prices, window

TABLE_CACHE = MemoryTables()
BY_TABLE = [name for name in names(policy_group("provisioning")) if name != "static"]
CHEAP_LATER = prices(0.9, 0.9, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)


def decided(
    name: str, seen: Snapshot, state: Any = None, table_cache: Any = TABLE_CACHE, **params: Any
) -> ProvisioningDecision:
    decision: ProvisioningDecision = find_policy("provisioning", name).decide(seen, state, params, table_cache)[0]
    return decision


def size(name: str, seen: Snapshot, **params: Any) -> WindowSize:
    [given] = decided(name, seen, **params).windows
    return given


def least(view: WindowView) -> int:
    """The fewest nodes that keep the promise from now on, by the model itself."""
    kept = [chance <= 1.0 - view.confidence for chance in BatchDeadline().breach(view, range(1, 5), {})]
    return 1 + kept.index(True) if any(kept) else 4


@pytest.mark.parametrize("jobs", range(0, 14, 2))
@pytest.mark.parametrize("interval", [1, 3, 5, 7])
def test_threshold_is_the_fewest_nodes_that_keep_the_promise(interval: int, jobs: int) -> None:
    view = window(interval=interval, jobs=jobs)
    given = size("threshold", cluster(view))
    assert given.nodes == given.wanted == least(view)
    assert len(decided("threshold", cluster(view)).in_service) == given.nodes


def test_delayed_threshold_removes_when_asked_twice() -> None:
    """Given three nodes where one is enough, when that is so twice in a row, then two are removed; adding waits for
    nothing."""
    policy = find_policy("provisioning", "delayed-threshold")
    views = [window(interval=s, jobs=0, nodes=3) for s in (5, 6)]
    first, state = policy.decide(cluster(views[0]), None, {}, TABLE_CACHE)
    assert first.windows[0].nodes == 3
    second, _ = policy.decide(cluster(views[1]), state, {}, TABLE_CACHE)
    assert second.windows[0].nodes == 1
    between, state = policy.decide(cluster(replace(views[1], jobs=9)), state, {}, TABLE_CACHE)
    assert between.windows[0].nodes == 4
    again, _ = policy.decide(cluster(window(interval=7, jobs=0, nodes=4)), state, {}, TABLE_CACHE)
    assert again.windows[0].nodes == 4


def test_two_decisions_in_one_interval_are_one_decision_point() -> None:
    policy = find_policy("provisioning", "delayed-threshold")
    seen = cluster(window(interval=5, jobs=0, nodes=3))
    _, state = policy.decide(seen, None, {}, TABLE_CACHE)
    again, state = policy.decide(seen, state, {}, TABLE_CACHE)
    assert again.windows[0].nodes == 3
    later, _ = policy.decide(cluster(window(interval=6, jobs=0, nodes=3)), state, {}, TABLE_CACHE)
    assert later.windows[0].nodes == 1


@pytest.mark.full
@pytest.mark.parametrize("name", ["cost-aware", "cost-aware-monotone", "cost-aware-fast", "optimal", "lp"])
def test_what_can_wait_waits_for_cheap_hours(name: str) -> None:
    view = window(interval=1, jobs=2, nodes=1, intervals=INTERVALS, confidence=0.9)
    assert size(name, cluster(view, price=CHEAP_LATER)).nodes <= size("threshold", cluster(view)).nodes
    late = replace(view, interval=3)
    assert size(name, cluster(late, price=prices(0.1, 5.0, 5.0, 5.0, 5.0))).nodes >= 2


def test_a_table_serves_the_whole_period() -> None:
    """Given prices by the hour, when decisions follow each other, then the table of the first one is used again."""
    table_cache = MemoryTables()
    policy, state = find_policy("provisioning", "cost-aware"), None
    series = [0.9, 0.8, 0.1, 0.1, 0.2, 0.3, 0.1, 0.1, 0.4, 0.4]
    for at in range(INTERVALS - 1):
        opening = window(interval=at, jobs=0)
        seen = replace(cluster(opening, price=prices(*series[at:])), now_s=1000.0 + 900.0 * at)
        _, state = policy.decide(seen, state, {}, table_cache)
    assert table_cache.built == 2
    changed = replace(cluster(window(interval=4), price=prices(0.9, 0.9, 0.9, 0.9)), now_s=1000.0 + 3600.0)
    policy.decide(changed, state, {}, table_cache)
    assert table_cache.built == 3


def test_tables_are_ready_when_the_window_opens() -> None:
    table_cache = MemoryTables()
    policy = find_policy("provisioning", "cost-aware")
    series = [0.5, 0.5, 0.9, 0.8, 0.1, 0.1, 0.2, 0.3, 0.1, 0.1]
    closed = window(interval=0, jobs=0, nodes=0, opens_s=1800.0)
    decision, state = policy.decide(cluster(closed, price=prices(*series)), None, {}, table_cache)
    assert (decision.in_service, decision.windows, table_cache.built) == ((), (), 2)
    opened = replace(cluster(replace(closed, opens_s=0.0), price=prices(*series[2:])), now_s=2800.0)
    decision, _ = policy.decide(opened, state, {}, table_cache)
    assert (len(decision.in_service), table_cache.built) == (1, 2)


@pytest.mark.parametrize("name", BY_TABLE)
def test_without_tables(name: str) -> None:
    """A small window is decided on by the threshold rule at once; a large one keeps its size, or has more."""
    view = window(interval=1, jobs=6)
    given = size(name, cluster(view), table_cache=no_tables)
    assert (given.nodes, given.reason.code.value, given.breach) == (least(view), "no-tables", ())
    many, arrivals = 400, np.zeros((96, 1))
    arrivals[:80] = 100.0
    big = window(nodes=many, intervals=96, arrivals=arrivals, nodes_max=400, rate=np.ones(many))
    assert size(name, cluster(replace(big, nodes=250), nodes=many), table_cache=no_tables).nodes == 250
    assert 56 < size(name, cluster(replace(big, nodes=1), nodes=many), table_cache=no_tables).nodes < 100


def test_probabilities_are_those_of_the_model() -> None:
    view = window(interval=2, jobs=5)
    given = size("threshold", cluster(view))
    problem = posed(view, [1.0] * INTERVALS, 4)
    assert problem is not None
    assert given.breach == pytest.approx(breach(problem.problem, 2, 5).tolist(), rel=1e-6)
    assert given.breach == pytest.approx(BatchDeadline().breach(view, [1, 2, 3, 4], {}), rel=1e-6)


def test_a_promise_out_of_reach_is_said() -> None:
    given = size("cost-aware", cluster(window(jobs=40)))
    assert (given.nodes, given.reason.code.value) == (4, "out-of-reach")
    assert given.breach[-1] > 0.01


def test_nodes_are_shared_by_weight_where_they_are_short() -> None:
    """Given two windows that want more than there is, then the heavier one gets what it wants."""
    views = [window("a", jobs=10, interval=3), window("b", jobs=10, interval=3, weight=100.0)]
    decision = decided("threshold", cluster(*views))
    light, heavy = decision.windows
    assert light.wanted == heavy.wanted
    assert heavy.nodes == heavy.wanted
    assert light.nodes == 4 - heavy.nodes < light.wanted
    assert light.reason.code.value == "out-of-reach"


def test_no_node_for_a_window() -> None:
    given = size("cost-aware", cluster(window(rate=np.zeros(4))))
    assert (given.nodes, given.wanted, given.reason.code.value) == (0, 0, "no-nodes")
    gone = power(available=[False] * 4)
    assert size("cost-aware", cluster(window(), powers=gone)).nodes == 0


def test_numbers_that_cannot_be_used_change_nothing() -> None:
    given = size("cost-aware", cluster(window(nodes=2, service_s=-1.0)))
    assert (given.nodes, given.reason.code.value, given.breach) == (2, "bad-profile", ())
    closed = window(nodes=2, service_s=-1.0, opens_s=60.0)
    assert decided("cost-aware", cluster(closed)).in_service == ()


def test_what_is_shown_reaches_to_the_first_size_that_keeps_the_promise() -> None:
    """Given that 200 of 300 nodes are needed, when three are there, then the probabilities end a little above 200."""
    view = window(nodes=3, nodes_max=300, nodes_min=2)

    def chances(nodes: Sequence[int]) -> tuple[float, ...]:
        return tuple(0.0 if each >= 200 else 0.9 for each in nodes)

    assert shown(view, 3, 300, chances) == range(161, 211)
    assert shown(view, 260, 300, chances) == range(221, 271)
    assert shown(view, 3, 40, chances) == range(2, 41)
    assert shown(view, 3, 0, chances) == range(2, 3)


def test_limits_follow_what_is_there() -> None:
    seen = cluster(window(nodes_min=2, nodes_max=9), powers=power(available=[True, True, False, False]))
    limits = limits_of(seen, seen.windows[0])
    assert (limits.least, limits.most, limits.reachable) == (2, 4, 2)
    shared = window(nodes_min=2, nodes_max=9, taken=[0.75, 0.5, 0.5, 0.0])
    limits = limits_of(cluster(shared), shared)
    assert (limits.least, limits.most, limits.available, limits.reachable) == (2, 4, 4, 2)
    assert size("threshold", replace(seen, windows=(window(jobs=30, nodes_max=9),))).nodes == 2


def test_what_others_hold_needs_no_new_tables() -> None:
    """Given tables that are there, when others take half of the nodes, then the size is told by the same tables, and is
    what is left."""
    asked: list[str] = []

    def table_cache(spec: Any) -> Any:
        asked.append(name_of(spec))
        return TABLE_CACHE(spec)

    sizes = []
    for taken in (0.0, 0.5):
        seen = cluster(window(jobs=30, nodes=2, taken=np.full(4, taken)))
        decision = decided("threshold", seen, table_cache=table_cache)
        sizes.append((decision.windows[0].nodes, len(decision.in_service)))
    assert sizes == [(4, 4), (2, 4)]
    assert len(set(asked)) * 2 == len(asked)


def test_a_fixed_number_of_nodes_is_worth_less_beside_others() -> None:
    for taken, nodes in ((0.0, 4), (0.3, 2), (1.0, 1)):
        assert size("static", cluster(window(taken=np.full(4, taken)))).nodes == nodes


def test_many_nodes_are_decided_on_in_units() -> None:
    view = window(nodes=250, rate=np.ones(250), nodes_max=250, slots=2)
    made = posed(view, [0.5] * INTERVALS, 250)
    assert made is not None
    assert (made.unit, made.batch, made.problem.servers_max, made.problem.slots) == (4, 1.0, 62, 8)
    assert made.problem.price[0] == 2.0


def test_many_jobs_are_decided_on_in_batches() -> None:
    """Given 1,000 nodes of four slots, or jobs of a second each, then tables stay small, and what is to be done is the
    same."""
    for count, slots, service_s in ((1000, 4, 480.0), (60, 1, 1.0), (20, 3, 100.0)):
        view = window(count=count, nodes_max=count, slots=slots, service_s=service_s, jobs=count)
        made = posed(view, [0.5] * INTERVALS, count)
        assert made is not None
        of, work = made.problem, view.arrivals.sum() * service_s / 900.0 / slots
        assert of.arrivals.sum() * of.service / of.slots * made.unit == pytest.approx(work)
        busiest = of.slots * of.servers_max * of.intervals / of.service
        assert busiest <= 8_000.0 or of.service >= 0.5
        assert made.jobs(count) * made.batch >= count - 1e-6
    assert posed(window(jobs=7), [0.5] * INTERVALS, 4).batch == 1.0  # type: ignore[union-attr]


def test_static_tells_the_probability_too() -> None:
    view = window(jobs=5)
    given = decided("static", cluster(view), nodes=2).windows[0]
    assert (given.nodes, given.breach) == (2, size("threshold", cluster(view)).breach)
    asked: list[Any] = []
    decided("static", cluster(view), table_cache=asked.append)
    assert [type(spec) for spec in asked] == [BreachSpec]


@pytest.mark.parametrize(
    ("name", "params", "said"),
    [
        ("threshold", {"guarded": True}, "policy threshold: guarded: there is no such parameter (expected tolerance)"),
        ("cost-aware", {"guarded": 1}, "policy cost-aware: guarded: 1 cannot be used (expected true or false)"),
        ("lp", {"tolerance": -1}, "policy lp: tolerance: -1 cannot be used (expected a number from 0 to 1)"),
        ("static", {"nodes": True}, "policy static: nodes: True cannot be used (expected a whole number, 0 or above)"),
    ],
)
def test_parameters_that_cannot_be_used(name: str, params: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        find_policy("provisioning", name).check_params(params)
    assert str(caught.value) == said


# --- run times that are no exponential -------------------------------------------------------------------------------

LONG = hyperexponential(600.0, 0.1, 3_600.0)


def phased(**changes: Any) -> WindowView:
    """As `window`, whose jobs take 600 s on the mean and one in ten an hour."""
    given: dict[str, Any] = {"phase_rates": np.array(LONG.rates), "phase_goes": np.array(LONG.goes), "confidence": 0.5}
    return window(**(given | changes))


@pytest.mark.parametrize("name", ["threshold", "delayed-threshold", "cost-aware", "optimal"])
def test_an_old_job_is_a_danger_that_nodes_do_not_help_against(name: str) -> None:
    """The longer a job has run the larger is the probability of breach, with every number of nodes."""
    view = phased(interval=5, jobs=1, arrivals=np.zeros((INTERVALS, 1)))
    young, old = (size(name, cluster(replace(view, begun_s=np.array([age])))) for age in (10.0, 7_200.0))
    assert min(old.breach) > max(young.breach) + 0.2
    assert old.breach[0] == pytest.approx(old.breach[-1], abs=1e-3)


@pytest.mark.parametrize("name", BY_TABLE)
def test_no_decision_risks_more_than_the_promise(name: str) -> None:
    """Whatever its table says: what is added to the probability of breach beyond that with all nodes is a quarter of
    what the promise leaves."""
    for jobs in (1, 4, 8):
        seen = cluster(phased(interval=3, jobs=jobs, confidence=0.9, begun_s=np.array([300.0])))
        memory = Memory(None)
        (observed,) = observed_windows(seen, memory)
        assert observed.posed is not None
        found = risks_of(observed.window, observed.posed, TABLE_CACHE)
        assert found is not None
        given = size(name, seen)
        risks = found[1]((given.nodes, 4))
        left = 0.1 - risks[1] if risks[1] < 0.1 else 0.1
        assert risks[0] - risks[1] <= 0.25 * left + 1e-5


@pytest.mark.parametrize("name", BY_TABLE)
@pytest.mark.parametrize("longs", [1, 2])
def test_who_cannot_be_in_time_is_not_the_end_of_the_others(name: str, longs: int) -> None:
    """Given long jobs that are late whatever is done, then the others are risked no more than the promise allows."""
    begun_s = np.full(longs, 40_000.0)
    view = phased(interval=5, jobs=2 + longs, confidence=0.9, arrivals=np.zeros((INTERVALS, 1)), begun_s=begun_s)
    given = size(name, cluster(view))
    (observed,) = observed_windows(cluster(view), Memory(None))
    assert observed.posed is not None
    found = risks_of(view, observed.posed, TABLE_CACHE)
    assert found is not None
    assert min(given.breach) > 0.3
    assert given.nodes > longs
    chosen, least = found.others_until_next((given.nodes, 4))
    assert chosen - least <= 0.25 * 0.1 * (1.0 - least) + 1e-5


def test_what_is_risked_is_remembered() -> None:
    """Decisions of a period share what the promise leaves; where nothing is left all nodes stay."""
    view = phased(interval=3, jobs=4, confidence=0.9, begun_s=np.array([300.0]))
    policy = find_policy("provisioning", "optimal")
    _, state = policy.decide(cluster(view), None, {}, TABLE_CACHE)
    left = state["periods"][0]["risk"]
    assert 0.0 <= left <= 0.1
    state["periods"][0]["risk"] = 0.0
    decision, after = policy.decide(cluster(view), state, {}, TABLE_CACHE)
    assert after["periods"][0]["risk"] == 0.0
    (given,) = decision.windows
    (observed,) = observed_windows(cluster(view), Memory(None))
    assert observed.posed is not None
    risks = risks_of(view, observed.posed, TABLE_CACHE)
    assert risks is not None
    assert risks[1]((given.nodes, 4)) == pytest.approx([risks[1]((4,))[0]] * 2, abs=1e-5)


def test_a_promise_that_no_number_of_nodes_keeps_is_told() -> None:
    """What run times alone miss is the least that is told, with phases and without."""
    for view in (phased(unavoidable=0.7), window(unavoidable=0.7)):
        for name in ("threshold", "optimal", "static"):
            given = size(name, cluster(view))
            assert min(given.breach) == pytest.approx(0.7)
            assert name == "static" or given.reason.code is ReasonCode.OUT_OF_REACH


def test_one_phase_is_decided_on_as_an_exponential() -> None:
    """The fewest nodes that keep the promise, by phases or by the thesis's chain."""
    for interval, jobs in ((1, 0), (3, 4), (5, 9)):
        plain = window(interval=interval, jobs=jobs)
        one = replace(plain, phase_rates=np.array([1.0 / 600.0]))
        assert size("threshold", cluster(one)).breach == pytest.approx(
            size("threshold", cluster(plain)).breach, abs=1e-5
        )


def test_phases_that_cannot_be_used_are_left_out() -> None:
    for rates, goes in (([1.0, math.nan], [0.5]), ([1.0], [0.5]), ([0.0], []), ([1.0, 1.0], [2.0])):
        view = window(phase_rates=np.array(rates), phase_goes=np.array(goes))
        found = posed(view, [0.5] * INTERVALS, 4)
        assert found is not None
        assert found.phased is None


def test_of_too_many_jobs_and_nodes_phases_are_left_out() -> None:
    """A thousand nodes and five thousand jobs are decided on by the mean, and by what run times alone miss."""
    arrivals = np.full((INTERVALS, 1), 600.0)
    view = phased(count=1_000, nodes_max=1_000, jobs=5_000, nodes=500, arrivals=arrivals, unavoidable=0.6)
    found = posed(view, [0.5] * INTERVALS, 1_000)
    assert found is not None
    assert found.phased is None


def test_guarded_unless_told_otherwise() -> None:
    asked: list[Any] = []
    decided("cost-aware", cluster(window()), table_cache=asked.append)
    decided("cost-aware", cluster(window()), table_cache=asked.append, guarded=False)
    assert [spec.guarded for spec in asked if isinstance(spec, TableSpec)] == [True, False]


# --- prices ----------------------------------------------------------------------------------------------------------


def test_averages_of_a_step_function() -> None:
    steps = np.array([1.0, 3.0, 5.0])
    assert averages(steps, 60.0, 0.0, 60.0, 3).tolist() == [1.0, 3.0, 5.0]
    assert averages(steps, 60.0, 30.0, 60.0, 3).tolist() == [2.0, 4.0, 5.0]
    assert averages(steps, 60.0, 0.0, 20.0, 4).tolist() == [1.0, 1.0, 1.0, 3.0]
    assert averages(steps, 60.0, 600.0, 7.0, 2).tolist() == [5.0, 5.0]


def test_the_price_of_a_reference_node() -> None:
    """200 W for a quarter of an hour at 0.40 per kWh are 0.02; a node that is worth two has one half each."""
    seen = cluster(window(interval=0), price=prices(0.4))
    assert period_price(seen, seen.windows[0], None) == pytest.approx([0.02] * INTERVALS)
    double = cluster(window(interval=0, rate=np.full(4, 2.0)), price=prices(0.4))
    assert period_price(double, double.windows[0], None) == pytest.approx([0.01] * INTERVALS)
    added = replace(seen, prices=replace(prices(0.4), added=np.array([0.5])))
    assert period_price(added, seen.windows[0], None) == pytest.approx([0.52] * INTERVALS)


def test_removal_is_charged_until_it_is_over_but_not_past_the_deadline() -> None:
    price = np.array([1.0, 2.0, -4.0])
    assert removal_prices(price, 0.25).tolist() == [0.25, 0.5, -1.0]
    assert removal_prices(price, 1.5).tolist() == [2.0, 0.0, -4.0]


def test_prices_of_a_period_are_kept_while_they_are_about_the_same() -> None:
    view = window(interval=1)
    first = cluster(view, price=prices(0.3, 0.3, 0.3))
    memory = Memory(None)
    kept = memory.price(first, view)
    near = replace(cluster(view, price=prices(0.31, 0.29, 0.3)), now_s=1000.0)
    assert Memory(memory.state()).price(near, view) is kept
    far = cluster(view, price=prices(0.6, 0.6, 0.6))
    assert Memory(memory.state()).price(far, view)[1] == pytest.approx(2 * kept[1])
    other_day = replace(near, now_s=1000.0 + 86_400.0)
    assert Memory(memory.state()).price(other_day, view) is not kept
    assert Memory({"periods": "odd"}).state() == {"periods": []}
    assert Memory([1]).state() == {"periods": []}


def test_times_to_come_and_go_stand_for_a_period() -> None:
    view = window(interval=1, deploy_s=60.0, remove_s=30.0)
    seen = cluster(view, price=prices(0.3, 0.3, 0.3))
    first = Memory(None)
    first.price(seen, view)
    assert first.with_times(view) == view
    again = Memory(first.state())
    learnt = replace(view, deploy_s=90.0, remove_s=7_000.0)
    again.price(seen, learnt)
    found = again.with_times(learnt)
    assert (found.deploy_s, found.remove_s) == (90.0, 30.0)
    later = Memory(again.state())
    later.price(seen, view)
    assert later.with_times(view).deploy_s == 90.0
    odd = Memory(None)
    odd.price(seen, view)
    odd.with_times(replace(view, deploy_s=float("nan")))
    assert odd.with_times(view) == view
    next_day = Memory(again.state())
    tomorrow = replace(seen, now_s=seen.now_s + 86_400.0)
    next_day.price(tomorrow, learnt)
    assert next_day.with_times(learnt) == learnt
