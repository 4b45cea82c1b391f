"""Reasons as people and programs read them."""

from __future__ import annotations

import json

import pytest

from daemons.values.view_format import in_words, reason_view
from shared.policy_api.decision import UNBOUNDED, Reason, ReasonCode


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("from_s", 1_795_330_000.7, "2026-11-22T06:46:40Z"),
        ("seconds_left", 1_795_330_000.0, "1.79533e+09"),
        ("goal_s", 5000.0, "5000"),
        ("rate_per_s", 2e9, "2e+09"),
        ("until_s", UNBOUNDED, "none"),
        ("before", -UNBOUNDED, "none"),
        ("until_s", 1e299, "1e+299"),
    ],
)
def test_people_read_times_and_what_there_is_not(name: str, value: float, text: str) -> None:
    assert str(Reason(ReasonCode.NOT_YET, ((name, value),))) == f"not-yet {name}={text}"


def test_programs_read_seconds_and_null() -> None:
    reason = Reason(ReasonCode.IDLE_CAPACITY, (("before", -UNBOUNDED), ("gain", UNBOUNDED), ("from_s", 1.79533e9)))
    view = json.loads(json.dumps(reason_view(reason), allow_nan=False))
    assert view["numbers"] == {"before": None, "gain": None, "from_s": 1.79533e9}
    assert view["text"] == "idle-capacity before=none gain=none from_s=2026-11-22T06:46:40Z"


NUMBERS = (("needed_mib", 864.0), ("largest_free_mib", 992.0), ("needed_mhz", 1_000.0), ("largest_free_mhz", 0.0))


@pytest.mark.parametrize(
    ("code", "numbers", "words"),
    [
        (ReasonCode.NO_CPU, (*NUMBERS, ("tolerance", 0.01)), "CPU: needs 1,000 MHz, most free 0"),
        (ReasonCode.NO_CPU, (("needed_mhz", 500.0), ("free_mhz", 20.0)), "CPU: needs 500 MHz, free 20"),
        (ReasonCode.NO_MEMORY, NUMBERS, "memory: needs 864 MiB, most free 992"),
        (ReasonCode.TOO_FEW_NODES, (("needed_nodes", 3.0), ("nodes", 2.0)), "nodes: needs 3, can be had 2"),
        (
            ReasonCode.FITS_NO_NODE,
            (("needed_mib", 9_000.0), ("largest_mib", 4_000.0), ("needed_mhz", 1.0), ("largest_mhz", 2.0)),
            "memory: needs 9,000 MiB, the largest node has 4,000",
        ),
        (ReasonCode.FITS_NO_NODE, (("needed_mib", UNBOUNDED),), "fits no node"),
        (ReasonCode.RECONCILIATION_PAUSED, (), "reconciliation paused"),
        (ReasonCode.PREEMPTED, (), "its place, or its CPU, serves more urgent workloads"),
    ],
)
def test_people_read_few_words(code: ReasonCode, numbers: tuple[tuple[str, float], ...], words: str) -> None:
    assert in_words(Reason(code, numbers)) == words
    assert reason_view(Reason(code, numbers))["words"] == words
