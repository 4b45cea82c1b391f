"""The application monitor's counting, against a plain restatement of what a probe's numbers mean."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agents.core.health_monitor import Verdict
from shared.values.health import Probe, ProbeKind

ANSWERS = st.lists(st.tuples(st.booleans(), st.floats(0.0, 30.0)), max_size=60)


def plain(probe: Probe, answers: list[tuple[bool, float]]) -> list[bool]:
    """Healthy or not after each answer, from all answers so far every time."""
    found = []
    for count in range(1, len(answers) + 1):
        healthy, counted = True, []
        for index, (ok, at_s) in enumerate(answers[:count]):
            early = at_s < probe.grace_s and not any(before for before, _ in answers[: index + 1])
            if early:
                continue
            counted.append(ok)
            needed = probe.fall if healthy else probe.rise
            if len(counted) >= needed and all(one is not healthy for one in counted[-needed:]):
                healthy, counted = not healthy, []
        found.append(healthy)
    return found


@given(st.integers(1, 5), st.integers(1, 5), st.floats(0.0, 100.0), ANSWERS)
def test_counting(fall: int, rise: int, grace_s: float, steps: list[tuple[bool, float]]) -> None:
    probe = Probe(ProbeKind.TCP, 80, fall=fall, rise=rise, grace_s=grace_s)
    verdict = Verdict(probe, 0.0, 0.0)
    now_s, answers, found = 0.0, [], []
    for ok, step_s in steps:
        now_s += step_s
        answers.append((ok, now_s))
        before = verdict.healthy
        verdict.take(ok, "" if ok else "refused", now_s)
        found.append(verdict.healthy)
        assert (verdict.since_s == now_s) is (verdict.healthy is not before) or now_s == verdict.since_s
        assert not (verdict.healthy and ok and verdict.detail)  # what is well and answers has nothing to say
    assert found == plain(probe, answers)
    assert verdict.probes == len(steps)
