"""What a size risks where service has phases: tables against the chain itself, and promises kept by a budget."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daemons.models.deadline.breaches import without_prices
from daemons.models.deadline.capacity import breach
from daemons.models.deadline.phase_chain import PhaseChain
from daemons.models.deadline.phase_sizes import PhaseSizeTable, can_be_sized
from daemons.models.deadline.phases import Phases, counts_by_phase, fitted
from daemons.models.deadline.problem import DeadlineProblem, Floats
from daemons.models.deadline.risks import RiskSpec, RiskTable, can_be_built, jobs_max_of, some_sizes
from daemons.models.deadline.rules import TableSpec
from daemons.models.deadline.tables import build
from shared.base.errors import InvalidValue

INTERVALS = 8


def problem(phases: Phases | None, most: int = 3, mean: float = 0.6, **others: object) -> DeadlineProblem:
    arrivals = np.zeros((INTERVALS, 1))
    arrivals[:4, 0] = 2.0
    price = np.array([3.0, 3.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0])
    given: dict[str, object] = {"confidence": 0.9, "price": price, "removal_price": 0.2 * price, "phases": phases}
    return DeadlineProblem(arrivals, mean, 1, servers_max=most, **(given | others))  # type: ignore[arg-type]


LONG = fitted(0.6, 2.5)


def table(made: DeadlineProblem) -> RiskTable:
    return RiskSpec(without_prices(made)).build()


def nobody(phases: Phases, most: int) -> Floats:
    return counts_by_phase(phases, [], most)


@pytest.mark.parametrize("interval", [0, 3, 6])
@pytest.mark.parametrize("jobs", [0, 2, 9])
def test_one_phase_risks_what_the_exponential_does(interval: int, jobs: int) -> None:
    """The thesis's probability of breach, of a size that is never changed."""
    sizes = [1, 2, 3]
    found = table(problem(Phases((1.0 / 0.6,)))).breach(interval, jobs, np.array(1.0), sizes)
    assert found == pytest.approx(breach(problem(None), interval, jobs, np.array(sizes)), abs=1e-6)


@pytest.mark.parametrize("deploy", [0.0, 0.3])
def test_the_table_is_what_the_chain_says(deploy: float) -> None:
    """Carried back step by step, for a state with one job in its second phase."""
    made = problem(LONG, deploy=deploy)
    found, chain = RiskSpec(made).build(), PhaseChain(made, jobs_max_of(made))
    late = (chain.jobs > 0.0).astype(np.float64)[None]
    stay, best, two, three = late, late, np.array([2]), np.array([3])
    for interval in range(INTERVALS - 1, 2, -1):
        stay = chain.backward(interval, stay, two)
    for interval in range(INTERVALS - 1, 4, -1):
        best = chain.backward(interval, best, three)
    served = chain.backward(4, best, three, deploy, 1.0)
    once = chain.backward(3, chain.backward(4, served, two, 0.0, deploy) if deploy > 0.0 else served, two)
    begun = np.array([0.0, 1.0, 0.0, 0.0])
    place = chain.jobs_max + 1 + 5
    assert found.breach(3, 5, begun, [2])[0] == pytest.approx(stay[0, place], abs=1e-6)
    assert found.risk(3, 5, begun, [2])[0] == pytest.approx(once[0, place], abs=1e-6)
    assert once[0, place] < stay[0, place]


@pytest.mark.parametrize("begin", [1, 5])
def test_a_table_that_begins_later_is_the_rest_of_the_whole(begin: int) -> None:
    made = problem(LONG, deploy=0.3)
    whole, rest = RiskSpec(made).build(), RiskSpec(made, begin).build()
    assert (rest.stay[begin:] == whole.stay[begin:]).all()
    assert (rest.once[begin:] == whole.once[begin:]).all()
    sizes, later = build(TableSpec("cost-aware", made)).sizes, build(TableSpec("cost-aware", made, begin=begin)).sizes
    assert (later[begin:] == sizes[begin:]).all()


def test_nodes_that_come_later_risk_more() -> None:
    begun = nobody(LONG, 3)
    at_once, late = (RiskSpec(problem(LONG, deploy=each)).build() for each in (0.0, 0.8))
    assert late.risk(4, 8, begun, [1])[0] > at_once.risk(4, 8, begun, [1])[0]
    assert late.risk(4, 8, begun, [3])[0] == pytest.approx(at_once.risk(4, 8, begun, [3])[0], abs=1e-5)


def test_more_nodes_never_risk_more_and_old_jobs_do() -> None:
    found = table(problem(LONG))
    fresh, old = nobody(LONG, 3), counts_by_phase(LONG, [3.0], 3)
    for interval in range(INTERVALS):
        falls = found.risk(interval, 6, fresh, [1, 2, 3])
        assert (np.diff(falls) <= 1e-7).all()
        assert found.breach(interval, 6, fresh, [2])[0] >= found.risk(interval, 6, fresh, [2])[0] - 1e-6
    assert found.risk(6, 1, old, [3])[0] > found.risk(6, 1, fresh, [3])[0] + 0.1


def test_long_jobs_keep_a_slot_and_the_others_are_as_without_them() -> None:
    """By hand: of five jobs one or two are long, so that three or four others have the slots that those leave."""
    found, fresh = table(problem(LONG)), nobody(LONG, 3)
    begun = np.array([0.0, 0.25, 0.75, 0.0])

    for of, of_others in ((found.breach, found.breach_of_others), (found.risk, found.risk_of_others)):
        one, two = of(6, 4, fresh, [1, 2]), of(6, 3, fresh, [1])
        given = of_others(6, 5, begun, [1, 2, 3], 1)
        assert given == pytest.approx([1.0, 0.25 * one[0] + 0.75, 0.25 * one[1] + 0.75 * two[0]], abs=1e-9)
        assert of_others(3, 6, fresh, [1, 2, 3], 1) == pytest.approx(of(3, 6, fresh, [1, 2, 3]))
    only_long = found.breach_of_others(6, 2, np.array([0.0, 0.0, 1.0, 0.0]), [2, 3], 1)
    assert only_long == pytest.approx([0.0, 0.0], abs=1e-6)


def test_between_sizes_and_beyond_jobs_nothing_is_promised_too_much() -> None:
    """Sizes that the table leaves out lie above the truth; numbers of jobs beyond all are as good as missed."""
    made = problem(LONG, most=12)
    found, exact = table(made), some_sizes(made)
    assert exact.size < 12
    assert found.breach(2, 10**9, nobody(LONG, 12), [12])[0] == pytest.approx(1.0, abs=1e-5)
    left_out = next(size for size in range(1, 13) if size not in exact.tolist())
    chain = PhaseChain(made, jobs_max_of(made))
    late = (chain.jobs > 0.0).astype(np.float64)[None]
    for interval in range(INTERVALS - 1, 4, -1):
        late = chain.backward(interval, late, np.array([left_out]))
    truth = late[0, 12]
    assert found.breach(5, 12, nobody(LONG, 12), [left_out])[0] >= truth - 1e-6


def naive_miss(made: DeadlineProblem, budget: float, spent: float, draws: int, seed: int) -> tuple[float, float]:
    """Share of periods missed where an adversary always takes the fewest servers that the budget allows, with phases
    that nobody sees but by ages; and the least, with all servers. By drawing every event."""
    found = table(made)
    assert made.phases is not None
    rng = np.random.default_rng(seed)
    missed = 0
    for _ in range(draws):
        jobs, left = _State(made, rng), budget
        for interval in range(INTERVALS):
            begun = counts_by_phase(made.phases, jobs.ages(), made.servers_max)
            risks = found.risk(interval, len(jobs), begun, range(1, made.servers_max + 1))
            added = np.maximum(risks - risks[-1], 0.0)
            size = int(np.argmax(added <= spent * left + 1e-9))
            left -= float(added[size])
            jobs.play(float(made.arrivals[interval, 0]), size + 1)
        missed += len(jobs) > 0
    least = float(found.risk(0, 0, nobody(made.phases, made.servers_max), [made.servers_max])[0])
    return missed / draws, least


class _State:
    """Jobs with what is left of each and what it has had; those longest begun are served first."""

    def __init__(self, made: DeadlineProblem, rng: np.random.Generator) -> None:
        self.made, self.rng = made, rng
        self.left: list[float] = []
        self.had: list[float] = []

    def __len__(self) -> int:
        return len(self.left)

    def ages(self) -> list[float]:
        return [each for each in self.had if each > 0.0]

    def _drawn(self) -> float:
        phases, total = self.made.phases, 0.0
        assert phases is not None
        for place, rate in enumerate(phases.rates):
            total += self.rng.exponential(1.0 / rate)
            if place == len(phases.goes) or self.rng.random() >= phases.goes[place]:
                break
        return total

    def play(self, coming: float, servers: int) -> None:
        moments = [*sorted(self.rng.random(self.rng.poisson(coming))), 1.0]
        now = 0.0
        for moment in moments:
            while now < moment and self.left:
                order = sorted(range(len(self.left)), key=lambda job: -self.had[job])[:servers]
                step = min(moment - now, *(self.left[job] for job in order))
                for job in order:
                    self.left[job] -= step
                    self.had[job] += step
                now += step
                keep = [job for job in range(len(self.left)) if self.left[job] > 1e-12]
                self.left, self.had = [self.left[job] for job in keep], [self.had[job] for job in keep]
            now = moment
            if moment < 1.0:
                self.left.append(self._drawn())
                self.had.append(0.0)


def test_a_promise_is_kept_by_a_budget() -> None:
    """Whoever adds no more than the budget misses no more often than that and what all servers miss, though phases are
    only known by ages."""
    budget = 0.1
    missed, least = naive_miss(problem(LONG), budget, 0.25, 1_500, 4)
    error = 3.0 * np.sqrt(missed * (1.0 - missed) / 1_500)
    assert least < missed - error  # the budget is used
    assert missed - error <= least + budget


def rule(method: str, made: DeadlineProblem) -> PhaseSizeTable:
    found = build(TableSpec(method, made))
    assert isinstance(found, PhaseSizeTable)
    return found


@pytest.mark.parametrize("method", ["cost-aware", "optimal"])
def test_sizes_follow_prices_and_danger(method: str) -> None:
    """Work waits for the cheap hours while that risks little, and does not where it risks much."""
    found, fresh = rule(method, problem(LONG, confidence=0.99)), nobody(LONG, 3)
    assert found.size(1, 1, 0, fresh) == 1
    dear, cheap = ([found.size(at, 1, jobs, fresh) for jobs in range(12)] for at in (3, 4))
    assert method != "optimal" or sum(cheap) > sum(dear)
    assert found.size(7, 1, 9, fresh) == 3
    assert found.sizes.min() >= 0
    assert found.sizes.max() <= 2


def carried(made: DeadlineProblem, found: PhaseSizeTable) -> tuple[float, float]:
    """Cost and probability of breach of a rule whose phases are seen, backwards, one state after the other."""
    chain = PhaseChain(made, jobs_max_of(made))
    count = found.servers.size
    cost = np.tile(made.penalty * chain.jobs, (count, 1))
    late = np.tile((chain.jobs > 0.0).astype(np.float64), (count, 1))
    for interval in range(INTERVALS - 1, 0, -1):
        moved_cost = chain.backward(interval, cost, found.servers)
        moved_late = chain.backward(interval, late, found.servers)
        cost, late = np.empty_like(cost), np.empty_like(late)
        for row in range(count):
            places = found.sizes[interval, row].reshape(-1).astype(np.int64)
            states = np.arange(places.size)
            removed = np.maximum(found.servers[row] - found.servers[places], 0)
            cost[row] = moved_cost[places, states] + made.price[interval] * found.servers[places]
            cost[row] += made.removal_price[interval] * removed
            late[row] = moved_late[places, states]
    first = chain.backward(0, np.stack((cost[0], late[0])), found.servers[[0, 0]])[:, 0]
    return float(first[0] + made.price[0] * found.servers[0]), float(first[1])


def test_the_cheapest_rule_keeps_the_promise() -> None:
    """It costs what the table says, less than a rule that looks at one step, and misses no more than is allowed."""
    made = problem(LONG, confidence=0.6)
    best, near = rule("optimal", made), rule("cost-aware", made)
    cost, miss = carried(made, best)
    assert best.value_at_0 == pytest.approx(cost, rel=1e-6)
    assert miss <= 0.4
    all_on = float(made.price.sum()) * 3
    assert cost < 0.8 * all_on
    assert carried(made, near)[0] == pytest.approx(near.value_at_0, rel=1e-6)


def test_where_no_rule_keeps_it_little_more_is_missed() -> None:
    made = problem(LONG, confidence=0.99, mean=0.6)
    least = float(table(made).risk(0, 0, nobody(LONG, 3), [3])[0])
    assert least > 0.01
    assert carried(made, rule("optimal", made))[1] <= least + 0.01 + 0.05


def test_what_is_too_large_is_not_computed() -> None:
    large = replace(problem(LONG), servers_max=1_000, slots=4)
    assert not can_be_built(large)
    assert not can_be_sized(large)
    assert not can_be_built(problem(None))
    assert can_be_built(problem(LONG))


def test_a_rule_without_phases_of_its_own_is_refused() -> None:
    with pytest.raises(InvalidValue):
        build(TableSpec("threshold", problem(LONG)))
