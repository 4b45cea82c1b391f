"""Tables fit the width: full where there is room, else fewer and shorter columns; no value is wrapped, or cut without a
sign. So do all lists and shows of the command."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from daemons.cli.connection import Access
from daemons.cli.main import main
from daemons.cli.tables import GAP, NARROW_GAP, Fitted, fit, stacked, table
from shared.base.clock import ManualClock
from shared.ports.bus import BusEvent, Delivery
from shared.protocol.codec import decode, encode
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import Query
from shared.protocol.topology import QueueSpec
from tests.support.operator_harness import URL, Rig
from tests.support.paths import ROOT
from tests.unit.daemons.controller.views.test_nodes_operator import WEB, submit

LONG_NAME = "a-name-as-long-as-they-are-in-a-large-cluster-0001"
ROWS = [("n1", "up", "a sentence that is longer than a column should be", "1"), ("node-2", "off", "short", "12")]
HEADS = ("name", "state", "detail", "vms")


def printed(what: object, width: int) -> list[str]:
    console = Console(width=width, markup=False)
    with console.capture() as captured:
        console.print(what)
    return [line.rstrip() for line in captured.get().splitlines()]


# --- one table ------------------------------------------------------------------------------------------------------


def test_where_there_is_room_nothing_is_missing() -> None:
    assert printed(Fitted("nodes", HEADS, ROWS, right=("vms",)), 100) == [
        "nodes",
        "name     state   detail                                              vms",
        "─" * 72,
        "n1       up      a sentence that is longer than a column should be     1",
        "node-2   off     short                                                12",
    ]


def test_long_values_are_cut_before_columns_are_dropped() -> None:
    assert printed(Fitted("nodes", HEADS, ROWS), 50) == [
        "nodes",
        "name    state  detail                          vms",
        "─" * 50,
        "n1      up     a sentence that is longer tha…  1",
        "node-2  off    short                           12",
    ]


def test_the_least_important_columns_are_dropped_and_named() -> None:
    assert printed(Fitted("", HEADS, ROWS, ("state",)), 40) == [
        "name    detail                       vms",
        "─" * 40,
        "n1      a sentence that is longer …  1",
        "node-2  short                        12",
        "not shown at this width: state",
    ]


def test_columns_without_values_go_first() -> None:
    rows = [("n1", "-", "up"), ("n2", "", "off")]
    assert printed(Fitted("", ("name", "environment", "state"), rows, ("state",)), 12)[0] == "name  state"


def test_of_the_others_the_last_goes_first_and_the_first_never() -> None:
    rows = [("aaaa", "bbbb", "cccc")]
    assert printed(Fitted("", ("a", "b", "c"), rows), 10)[0] == "a     b"
    assert printed(Fitted("", ("a", "b", "c"), rows), 3)[:3] == ["a", "───", "aa…"]


def test_a_column_that_fits_again_once_a_wide_one_is_gone_stays() -> None:
    rows = [("n1", "1", "x" * 20, "2")]
    assert printed(Fitted("", ("name", "vms", "labels", "cpu"), rows, ("vms", "labels")), 24)[0] == "name  vms  cpu"


def test_a_table_without_rows_says_so() -> None:
    assert printed(table("nodes", HEADS, []), 80) == ["nodes: none"]


def test_parts_are_set_off_but_for_lines_of_text() -> None:
    parts = stacked(table("a", ("x",), [("1",)]), Text("one"), Text("two"), table("b", ("y",), [("2",)]))
    assert printed(parts, 80) == ["a", "x", "─", "1", "", "one", "two", "", "b", "y", "─", "2"]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(20, 200), st.data())
def test_a_fit_is_within_the_width_and_as_good_as_can_be(natural: list[int], width: int, data: st.DataObject) -> None:
    """All columns where they fit; else no more than the width, none wider than its values, no room left that one could
    use."""
    floors = [min(each, 10) for each in natural]
    drops = data.draw(st.permutations(range(1, len(natural))))

    found = fit(natural, floors, drops, width)

    used = sum(found.widths) + found.gap * (len(found.columns) - 1)
    assert found.columns[0] == 0
    assert list(found.columns) == sorted(set(found.columns))
    assert used <= width
    assert all(0 < each <= natural[at] for at, each in zip(found.columns, found.widths, strict=True))
    if sum(natural) + GAP * (len(natural) - 1) <= width:
        assert found.widths == tuple(natural)
    else:
        assert found.gap == NARROW_GAP
        assert used == width or all(each == natural[at] for at, each in zip(found.columns, found.widths, strict=True))


# --- all views --------------------------------------------------------------------------------------------------------


def misfits(narrow: str, wide: str) -> list[str]:
    """Lines of a narrow output that are too long, and words in it that are no words of the wide one, or beginnings of
    one with a sign that they are cut."""
    words = set(wide.split())
    found = [line for line in narrow.splitlines() if len(line) > 80]
    told = re.sub(r"^not shown at this width: (.*\n)(?:(?![^\n]*─)\S.*\n)?", "", narrow, flags=re.MULTILINE)
    for word in told.split():
        cut = word.removesuffix("…")
        if word not in words and not (word.endswith("…") and any(each.startswith(cut) for each in words)):
            found += [] if set(word) <= {"─"} else [word]
    return found


def test_misfits_are_found() -> None:
    assert misfits("name  value\nab…  cdef\n", "name value abcd cdef") == []
    assert misfits("ab\ncd\n", "abcd") == ["ab", "cd"]
    assert misfits("x " * 50, "x") == ["x " * 50]


class Answering:
    """A bus with a controller behind it that has one answer for each view."""

    user = "operator.ann"

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers
        self._replies: list[Reply] = []

    def declare(self, queue: QueueSpec) -> None:
        assert queue.name

    def consume(self, queue: str, prefetch: int, acknowledged: bool = True) -> None:
        del queue, prefetch, acknowledged

    def publish(
        self, exchange: str, routing_key: str, body: bytes, publish_id: int | None = None, reply_to: str = ""
    ) -> None:
        del exchange, routing_key, publish_id, reply_to
        query = decode(body)
        assert isinstance(query, Query)
        self._replies.append(Reply(query.request, True, data=self._answers[query.what]))

    def poll(self, timeout_s: float = 0.0) -> Sequence[BusEvent]:
        del timeout_s
        found, self._replies = self._replies, []
        return [Delivery(0, "reply", "", sender="controller.a", body=encode(reply)) for reply in found]

    def acknowledge(self, tag: int) -> None:
        raise AssertionError(tag)

    def dead_letter(self, tag: int, reason: str) -> None:
        raise AssertionError((tag, reason))

    def now_s(self) -> float:
        return 0.0

    def charge(self, sender: str, busy_s: float) -> None:
        raise AssertionError((sender, busy_s))

    def close(self) -> None:
        """Nothing to close."""


def asked(answers: dict[str, Any]) -> Callable[..., str]:
    """What a command prints at a width."""
    access = Access(lambda *_: Answering(answers), ManualClock(100.0), lambda: "r1")

    def run(width: int, *words: str) -> str:
        env = {"TRIMTAB_URL": URL, "HOME": "/none", "COLUMNS": str(width)}
        outcome = CliRunner().invoke(main, words, obj=access, env=env)
        assert outcome.exit_code == 0, (outcome.output, outcome.exception)
        return outcome.stdout

    return run


SENTENCE = "nodes have failed and the lower bound of this environment, 12 units, needs 3 more of them than there are"
AT_S = 1.79e9
ENVIRONMENT = {
    "name": LONG_NAME,
    "owner": "anna-with-a-long-surname",
    "workload": "batch",
    "type": "batch",
    "model": "flb-nub",
    "state": "running",
    "wanted": "deactivated",
    "granularity": "node",
    "lower": 12,
    "upper": None,
    "size": 12,
    "owned": 9,
    "idle": 0,
    "partner": "front-of-the-house",
    "jobs": 1_234,
    "instances": 0,
    "detail": SENTENCE,
}
NODE = {"name": LONG_NAME, "handover": "settled", "environment": LONG_NAME, "given": LONG_NAME}
SHARE = {
    "class": "guaranteed",
    "first": 1,
    "units": 12,
    "promised": 0.99999,
    "measured": 0.98765,
    "recently": 0.97531,
    "observations": 123_456,
    "missed_since_s": AT_S,
}
ASSURANCE = {
    "environments": [
        {
            "name": LONG_NAME,
            "state": "running",
            "reserved": "12 nodes",
            "holds": 9,
            "asked": 12,
            "entitled": 12,
            "served": 9,
            "served_frac": 0.75,
            "days": 365,
            "missed": SENTENCE,
            "shares": [SHARE, SHARE],
            "slots": [{"slot": 23, "declared": {"mean": 1.234, "peak": 12}, "served": [{"mean": 0.9, "count": 123}]}],
            "requests": [{"at_s": AT_S, "requested": 12, "entitled": 9, "rejected": 3, "text": SENTENCE}],
            "entitlement": {},
        }
    ],
    "forecast": [
        {
            "slot": 23,
            "units": 120,
            "needed": 119,
            "best_effort": 1,
            "classes": [{"service_class": "guaranteed", "theta": 0.999, "needed": 12, "left": 9, "reached": 0.98765}]
            * 3,
        }
    ],
    "policy": "statistical",
}
NOTIFICATIONS = {
    "channels": [
        {
            "name": LONG_NAME,
            "kind": "webhook",
            "waiting": 12,
            "dead": 3,
            "dropped": 1,
            "arrived_at_s": AT_S,
            "error": SENTENCE,
        }
    ],
    "notifications": [
        {
            "id": "0f3c2a1b-1",
            "at_s": AT_S,
            "channel": LONG_NAME,
            "what": "alarm:cpu-changed-externally",
            "subject": LONG_NAME,
            "detail": SENTENCE,
            "state": "dead",
            "tries": 12,
            "next_at_s": AT_S,
            "error": SENTENCE,
        }
    ],
}
COSTS = {
    "days": [
        {
            "day": "2026-11-01",
            "kwh": 1_234.567,
            "cost": 123.456,
            "static_cost": 234.567,
            "saved": 111.111,
            "saved_frac": 0.47,
            "node_starts": 1_234,
            "mean_in_service": 123.4,
            "mean_nodes": 234.5,
            "misses": 3,
            "penalty": 12.5,
            "currency": "EUR",
        }
    ],
    "sums": [{"kwh": 12_345.678, "cost": 1_234.567, "saved": 1_111.111, "saved_frac": 0.47, "currency": "EUR"}],
    "now": {"watts": 12_345.6, "per_kwh": 0.1234, "currency": "EUR", "trouble": SENTENCE},
}
PROFILES = {
    "profiles": [
        {
            "class": LONG_NAME,
            "node_type": "a-type-with-a-long-name",
            "status": "measured",
            "loading": {"cpu": 0.123, "io": 0.456, "net": 0.789},
            "half_width": {"cpu": 0.012, "io": 0.034},
            "source": "calibration",
            "observations": 12_345,
            "age_s": 86_400.0,
            "converted_from": "another-type",
            "drifted_at_s": AT_S,
        }
    ],
    "node_types": [
        {"node_type": "a", "units_per_s": {"cpu": 1.2}, "servers": {"cpu": 4}, "runs": {"cpu": 3}, "age_s": 1.0}
    ],
    "runs": [
        {
            "node": LONG_NAME,
            "standard": "memory-bandwidth",
            "copies": 4,
            "run_s": 20.0,
            "job": LONG_NAME,
            "ended_at_s": AT_S,
            "ok": False,
            "detail": SENTENCE,
        }
    ],
}
FORECAST = {
    "windows": [
        {
            "name": LONG_NAME,
            "jobs": 12_345,
            "confidence": 0.99,
            "arrivals": {"per_day": 1_234.5, "slots": []},
            "period": {"begin_local": "2026-11-01 22:00 Europe/Berlin", "deadline_local": "2026-11-02 07:00"},
            "breach": [{"nodes": each, "breach": 0.123456} for each in range(30)],
            "note": SENTENCE,
        }
    ],
    "prices": [{"from_at_s": AT_S, "per_kwh": 0.12345, "added": 0.01, "known": True, "currency": "EUR"}],
}
DECISIONS = {
    "decisions": [
        {
            "number": 123_456,
            "decided_at_s": AT_S,
            "policy": "apc",
            "kinds": {"start": 12, "migrate": 34, "suspend": 5, "resize": 678},
            "provisioning": {"policy": "static", "in_service": 12, "reason": "keep"},
            "counts": {"changes": 12, "held": 3, "refusals": 456, "dropped": 7, "steps": 89},
            "named": [
                {
                    "workload": LONG_NAME,
                    "became": "changed",
                    "kind": "migrate",
                    "nodes": ["n1", "n2"],
                    "reason": {"text": "higher-utility before=0.123 after=0.456 gain=0.333"},
                }
            ],
        }
    ],
    "scores": [
        {
            "workload": LONG_NAME,
            "policy": "apc",
            "cycles": 12,
            "error": 0.345,
            "over": 3,
            "cause": "response model",
            "trusted": False,
        }
    ],
}
STATUS = {
    "at_s": AT_S,
    "leader": "controller-with-a-name",
    "alarms": [
        {"what": "cpu-changed-externally", "subject": f"{LONG_NAME}#12", "since_s": AT_S, "detail": SENTENCE},
        {"what": "node-off", "subject": "n1", "since_s": None, "detail": ""},
    ],
}
ANSWERS = {
    "environments": {"environments": [ENVIRONMENT, ENVIRONMENT | {"name": "b", "detail": "", "wanted": "running"}]},
    "environment": {
        "environment": ENVIRONMENT | {"agreement": {"name": LONG_NAME, "workload": "batch"}, "nodes": [NODE, NODE]}
    },
    "assurance": ASSURANCE,
    "notifications": NOTIFICATIONS,
    "costs": COSTS,
    "profiles": PROFILES,
    "forecast": FORECAST,
    "plan-history": DECISIONS,
    "status": STATUS,
}


@pytest.mark.parametrize(
    "words",
    [
        ("env", "list"),
        ("env", "show", "a"),
        ("env", "types"),
        ("assurance", "show"),
        ("assurance", "show", "a"),
        ("notifications", "list"),
        ("costs",),
        ("profile", "show"),
        ("forecast",),
        ("plan", "history"),
        ("plan", "history", "--workload", "a"),
        ("status",),
        ("doctor",),
        ("explain", "over-quota"),
    ],
    ids=" ".join,
)
def test_a_view_of_sample_rows_fits_80_columns(words: tuple[str, ...]) -> None:
    run = asked(ANSWERS)

    narrow, wide = run(80, *words), run(500, *words)

    assert misfits(narrow, wide) == []
    assert "not shown at this width" not in wide


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """Two nodes, one of which is drained, long names, jobs that wait, an application."""
    folder = tmp_path_factory.mktemp("rig")
    made = Rig()
    made.run(30.0)
    for name in (LONG_NAME, "two", "three"):
        submit(made, folder, name, memory_mib=3_500)
    (folder / "web.toml").write_text(WEB)
    made.asked("web", "submit", folder / "web.toml")
    made.run(60.0)
    made.asked("nodes", "drain", "n1")
    made.run(30.0)
    return made


@pytest.mark.parametrize(
    "words",
    [
        ("nodes", "list"),
        ("nodes", "show", "n1"),
        ("jobs", "list"),
        ("jobs", "show", LONG_NAME),
        ("vms", "list"),
        ("web", "list"),
        ("web", "show", "shop"),
        ("plan", "show"),
        ("plan", "history"),
        ("profile", "operations"),
        ("status",),
        ("decide",),
        ("nodes", "drain", "n2", "--dry-run"),
    ],
    ids=" ".join,
)
def test_a_view_of_a_cluster_fits_80_columns(rig: Rig, words: tuple[str, ...]) -> None:
    narrow, wide = (rig.trimtab(*words, env={"COLUMNS": width}).stdout for width in ("80", "500"))

    assert narrow
    assert misfits(narrow, wide) == []
    assert "not shown at this width" not in wide


def test_without_a_terminal_nothing_is_cut_and_no_line_ends_in_blanks(rig: Rig) -> None:
    shown = rig.trimtab("nodes", "list", env={"COLUMNS": None}).stdout

    assert "labels" in shown
    assert [line for line in shown.splitlines() if line != line.rstrip()] == []


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("place", "snapshot.json"),
        ("dilation", "dilation.json"),
        ("assure", "assure-demand.csv"),
        ("provision --policies static", "provision-day-ahead.toml"),
    ],
)
def test_a_simulation_fits_80_columns(command: str, file: str) -> None:
    words = ["sim", *command.split(), str(ROOT / "examples" / file)]
    narrow, wide = (CliRunner().invoke(main, words, env={"COLUMNS": width}).stdout for width in ("80", "500"))

    assert narrow
    assert [line for line in narrow.splitlines() if len(line) > 80] == []
    assert "not shown at this width" not in wide
