"""What a replay tells of differences: in words that people read, and that differ where the things do."""

from __future__ import annotations

from typing import Any

import pytest

from daemons.decision.replay_words import both, in_words
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode, Refusal, Slowed, WindowSize
from shared.values.jobs import Allotment

WHY = Reason(ReasonCode.ARRIVAL_ORDER, (("place", 3.0),))


def change(kind: ChangeKind, *places: tuple[str, float], revision: int = 1) -> Change:
    return Change("sim-3", revision, kind, tuple(Allotment(node, mhz) for node, mhz in places), WHY)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (change(ChangeKind.START, ("node-0", 15600.0)), "start on node-0 with 15,600 MHz: arrival-order place=3"),
        (change(ChangeKind.SUSPEND), "suspend: arrival-order place=3"),
        (change(ChangeKind.MIGRATE, ("b", 0.1)), "migrate to b with 0.1 MHz: arrival-order place=3"),
        (
            change(ChangeKind.RESIZE, ("a", 1.0), ("a", 1.0), ("b", 2.0)),
            "resize on a to 1 MHz for each of 2, on b to 2 MHz: arrival-order place=3",
        ),
        (
            change(ChangeKind.START, *((f"n{at}", 1.0) for at in range(8))),
            "start" + ",".join(f" on n{at} with 1 MHz" for at in range(6)) + " and 2 more: arrival-order place=3",
        ),
        (Refusal("sim-3", WHY), "arrival-order place=3"),
        (Slowed("w", "n", 1.25, "disk", ("a", "b")), "1.25 times as slow, most by disk of a, b"),
        (
            WindowSize("w", 7, 2, 3, (), WHY, 1234.5),
            "2 nodes of 3 wanted for 7 jobs, predicted to cost 1,234.5: arrival-order place=3",
        ),
        (("w", 0.5, -0.25, 1.0), "utility 0.5 as it is, -0.25 predicted, 1 at best"),
        (None, "none"),
    ],
)
def test_in_words(item: Any, words: str) -> None:
    assert in_words(item) == words


def test_what_differs_only_in_what_words_leave_out_is_told_exactly() -> None:
    before, after = both(change(ChangeKind.START, ("n", 0.1 + 0.2)), change(ChangeKind.START, ("n", 0.3), revision=2))
    assert before.endswith("(revision 1, allotments n 0.30000000000000004 MHz)")
    assert after.endswith("(revision 2, allotments n 0.3 MHz)")
    assert both(None, change(ChangeKind.SUSPEND)) == ("none", "suspend: arrival-order place=3")
