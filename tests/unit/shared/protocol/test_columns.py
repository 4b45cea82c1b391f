"""Lists of records as columns: they come back as they were, and what is no table is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from shared.base.errors import CodecError
from shared.protocol.codec import decode, encode
from shared.protocol.columns import IN_COLUMNS, RECORDS_MIN, folded, unfolded
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import QUERIES, Query, SubmitJob
from tests.support.controller_harness import ControllerHarness, job


def records(count: int = RECORDS_MIN) -> list[dict[str, Any]]:
    return [
        {"name": f"n{at}", "cpu": {"used_mhz": at / 7, "free_mhz": None}, "labels": ["a"] * (at % 3), "up": at % 2 == 0}
        for at in range(count)
    ]


def test_a_long_list_of_records_goes_as_columns_and_comes_back() -> None:
    data = {"at_s": 1.5, "total": RECORDS_MIN, "nodes": records()}
    found = folded(data)
    assert found.keys() == {"at_s", "total", IN_COLUMNS}
    table = found[IN_COLUMNS]["nodes"]
    assert table["names"] == ["name", "cpu", "labels", "up"]
    assert table["columns"][0] == [f"n{at}" for at in range(RECORDS_MIN)]
    assert table["columns"][1]["names"] == ["used_mhz", "free_mhz"]
    assert unfolded(found) == data
    assert unfolded(decode(encode(Reply("one", True, data=found))).data) == data  # type: ignore[union-attr]


LEFT = {
    "short": records(RECORDS_MIN - 1),
    "of other keys": [*records(), {"name": "n", "cpu": {}, "labels": [], "other": True}],
    "of fewer keys": [*records(), {"name": "n"}],
    "of values": list(range(100)),
    "not all records": [*records(), "n"],
    "of nothing": [{}] * 100,
}


@pytest.mark.parametrize("rows", LEFT.values(), ids=LEFT.keys())
def test_what_is_no_table_stays_as_it_is(rows: list[Any]) -> None:
    data = {"rows": rows}
    assert folded(data) == data
    assert unfolded(data) == data


def test_records_in_records_that_differ_stay_as_they_are() -> None:
    rows = [*records(), {"name": "m", "cpu": {"used_mhz": 1.0}, "labels": [], "up": False}]
    table = folded({"nodes": rows})[IN_COLUMNS]["nodes"]
    assert table["columns"][1] == [row["cpu"] for row in rows]
    assert unfolded(folded({"nodes": rows})) == {"nodes": rows}


@pytest.mark.parametrize(
    "tables",
    [
        [],
        {"nodes": []},
        {"nodes": {"names": ["a"]}},
        {"nodes": {"names": ["a"], "columns": [[1], [2]]}},
        {"nodes": {"names": ["a", "b"], "columns": [[1], [2, 3]]}},
        {"nodes": {"names": ["a"], "columns": [7]}},
        {"nodes": {"names": [["a"]], "columns": [[1]]}},
    ],
)
def test_tables_that_are_none_are_refused(tables: Any) -> None:
    with pytest.raises(CodecError, match="columns"):
        unfolded({IN_COLUMNS: tables})


def test_every_view_says_the_same_in_columns() -> None:
    harness = ControllerHarness([f"n{number:02}" for number in range(20)]).lead()
    for number in range(40):
        harness.ask(SubmitJob(f"submit-{number}", job(f"job-{number}")))
    as_columns = set()
    for what in QUERIES:
        plain, folds = harness.ask(Query(f"p-{what}", what)), harness.ask(Query(f"c-{what}", what, columns=True))
        assert (folds.done, folds.code) == (plain.done, plain.code)
        if plain.done and what != "snapshot":  # each is a snapshot of its own
            assert unfolded(decode(encode(folds)).data) == decode(encode(plain)).data, what  # type: ignore[union-attr]
            as_columns |= {what} if IN_COLUMNS in folds.data else set()
    assert {"nodes", "jobs"} <= as_columns
