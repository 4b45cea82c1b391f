"""The outlook that every policy is measured by, against the judge that shares no code with it, and against what the
policy that predicts foretells."""

from __future__ import annotations

import math

import pytest

from daemons.models.outlook import outlook_of
from shared.policy_api.decision import Outlook, PlacementDecision
from shared.policy_api.snapshot import Snapshot
from shared.ports.plugins import find_policy
from tests.extent import first
from tests.simulation.place_instances import mixed_instance, small_instance
from tests.simulation.place_judge import Places, best_utility, counts, current, predict

NEAR = 1e-6
SEEDS = range(60)


def made(seen: Snapshot, decision: PlacementDecision) -> dict[int, Places]:
    """The placement that the decision makes, by the rules or not."""
    placement = current(seen)
    for change in decision.changes:
        row = seen.workloads.names.index(change.workload)
        placement.pop(row, None)
        if change.allotments:
            placement[row] = tuple((seen.nodes.names.index(each.node), each.cpu_mhz) for each in change.allotments)
    return placement


def near(said: float, judged: float) -> bool:
    return said == judged or abs(said - judged) <= NEAR * max(1.0, abs(judged))


def differences(seen: Snapshot, policy: str) -> list[str]:
    """Where the outlook of the policy's decision is not the judge's."""
    decision, _ = find_policy("placement", policy).decide(seen, None, {})
    outlook = outlook_of(seen, decision.changes)
    before, then = predict(seen, current(seen)), predict(seen, made(seen, decision))
    rows = zip(outlook.names, outlook.now, outlook.predicted, strict=True)
    said = {name: (now, predicted) for name, now, predicted in rows}
    found = [] if set(said) == set(then.utilities) else [f"names {sorted(set(said) ^ set(then.utilities))}"]
    for name, (now, predicted) in said.items():
        found += [] if near(now, before.utilities[name]) else [f"{name}: now {now}, judged {before.utilities[name]}"]
        found += (
            [] if near(predicted, then.utilities[name]) else [f"{name}: {predicted}, judged {then.utilities[name]}"]
        )
    best = dict(zip(outlook.names, outlook.best, strict=True))
    for row, name in enumerate(seen.workloads.names):
        if counts(seen, row) and not near(best[name], best_utility(seen, row)):
            found.append(f"{name}: best {best[name]}, judged {best_utility(seen, row)}")
    if (outlook.level is None) != (then.level is None) or not near(outlook.level or 0.0, then.level or 0.0):
        found.append(f"level {outlook.level}, judged {then.level}")
    return found


@pytest.mark.parametrize("policy", ["edf", "first-fit", "apc"])
@pytest.mark.parametrize("seed", first(SEEDS, 6))
def test_as_the_judge_says(policy: str, seed: int) -> None:
    """Gangs, stages, suspended jobs, importance, web applications, costs; what is fixed, what has no goal."""
    for seen in (mixed_instance(seed, constrained=policy == "apc"), small_instance(seed, "paper")):
        assert differences(seen, policy) == []


@pytest.mark.full
def test_as_the_policy_foretells() -> None:
    """The policy computes its prediction by another way, step by step while it searches."""
    apart = []
    for seed in SEEDS:
        seen = mixed_instance(seed)
        decision, _ = find_policy("placement", "apc").decide(seen, None, {})
        assert decision.outlook is not None
        ours, its = (told(each) for each in (outlook_of(seen, decision.changes), decision.outlook))
        apart += [(seed, name) for name in ours if name in its and not near(ours[name], its[name])]
    assert apart == []


def told(outlook: Outlook) -> dict[str, float]:
    return dict(zip(outlook.names, outlook.predicted, strict=True))


def test_costs_matter() -> None:
    """Given decisions that suspend and resume, the instances are not all alike with and without costs."""
    with_costs = [least(small_instance(seed, "paper")) for seed in range(20)]
    without = [least(small_instance(seed, "none")) for seed in range(20)]
    assert any(not math.isclose(one, other, abs_tol=1e-4) for one, other in zip(with_costs, without, strict=True))


def least(seen: Snapshot) -> float:
    decision, _ = find_policy("placement", "edf").decide(seen, None, {})
    return min(outlook_of(seen, decision.changes).predicted)
