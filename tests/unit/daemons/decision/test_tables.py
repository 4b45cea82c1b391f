"""Shelves: what lies on them is what was computed, and what is damaged is computed again."""

from __future__ import annotations

import io
import json
import os
import pickle
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daemons.decision.pipeline import DecideOutcome, DecideRequest, Prepared, PrepareRequest, Spec, no_tables
from daemons.decision.pipeline import run as decide
from daemons.decision.tables.making import made, name_of, size_bytes
from daemons.decision.tables.memory import MemoryTables
from daemons.models.deadline.breaches import BreachSpec, BreachTable
from daemons.models.deadline.phase_sizes import PhaseSizeTable
from daemons.models.deadline.phases import fitted
from daemons.models.deadline.problem import DeadlineProblem
from daemons.models.deadline.risks import RiskSpec, RiskTable
from daemons.models.deadline.rules import SizeTable, TableSpec
from daemons.service.table_files import TableFiles, packed, unpacked
from daemons.service.table_server import TableServer
from daemons.values.settings import PolicyChoice
from shared.runtime import logs
from tests.support.provisioning_cases import cluster, window


def problem(most: int = 3, **changes: object) -> DeadlineProblem:
    arrivals = np.zeros((6, 1))
    arrivals[:3] = 1.5
    price = np.linspace(1.0, 2.0, 6)
    made = DeadlineProblem(arrivals, 0.7, 1, servers_max=most, confidence=0.99, price=price, removal_price=price / 20)
    return replace(made, **changes)  # type: ignore[arg-type]


SIZES = TableSpec("cost-aware", problem())
PHASED = problem(phases=fitted(0.7, 2.0))
SPECS: tuple[Spec, ...] = (
    SIZES,
    TableSpec("delayed-threshold", problem()),
    BreachSpec(problem()),
    RiskSpec(PHASED),
    TableSpec("optimal", PHASED),
)


@pytest.fixture
def log() -> io.StringIO:
    stream = io.StringIO()
    logs.configure("debug", stream=stream)
    return stream


@pytest.fixture
def folder(tmp_path: Path, log: io.StringIO) -> Path:
    del log
    return tmp_path / "tables"


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*"))


def same(one: object, other: object) -> None:
    assert type(one) is type(other)
    if isinstance(one, SizeTable) and isinstance(other, SizeTable):
        assert (one.sizes == other.sizes).all()
        assert (one.servers_min, one.delayed, one.value_at_0) == (other.servers_min, other.delayed, other.value_at_0)
    elif isinstance(one, BreachTable) and isinstance(other, BreachTable):
        assert all((getattr(one, name) == getattr(other, name)).all() for name in ("servers", "jobs", "breach"))
    elif isinstance(one, RiskTable) and isinstance(other, RiskTable):
        assert all((getattr(one, name) == getattr(other, name)).all() for name in ("servers", "jobs", "stay", "once"))
    elif isinstance(one, PhaseSizeTable) and isinstance(other, PhaseSizeTable):
        assert all((getattr(one, name) == getattr(other, name)).all() for name in ("servers", "sizes"))
        assert one.value_at_0 == other.value_at_0
    else:
        raise AssertionError(one)


@pytest.mark.parametrize("spec", SPECS)
def test_what_is_written_is_what_is_read(spec: Spec, folder: Path) -> None:
    table_cache = TableFiles(folder)
    assert table_cache(spec) is None
    table_cache.prepare(spec)
    same(TableFiles(folder)(spec), made(spec))
    array = unpacked(packed(made(spec)))
    assert not any(value.flags.writeable for value in vars_of(array))


def vars_of(table: object) -> list[np.ndarray]:
    names = ("sizes", "servers", "jobs", "breach")
    return [getattr(table, name) for name in names if isinstance(getattr(table, name, None), np.ndarray)]


def test_names_differ_where_tables_do() -> None:
    specs = [
        *SPECS,
        replace(SIZES, guarded=True),
        replace(SIZES, method="cost-aware-fast"),
        TableSpec("cost-aware", problem(4)),
        TableSpec("cost-aware", problem(confidence=0.999)),
        BreachSpec(problem(slots=2)),
    ]
    assert len({name_of(spec) for spec in specs}) == len(specs)
    assert name_of(TableSpec("cost-aware", problem())) == name_of(SIZES)


def test_a_table_is_computed_once(folder: Path) -> None:
    table_cache = TableFiles(folder)
    table_cache.prepare(SIZES)
    [file] = files(folder)
    before = file.stat().st_ino
    table_cache.prepare(SIZES)
    TableFiles(folder).prepare(SIZES)
    assert file.stat().st_ino == before


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "other", "header"])
def test_a_damaged_file_is_deleted_and_missing(damage: str, folder: Path, log: io.StringIO) -> None:
    TableFiles(folder).prepare(SIZES)
    [file] = files(folder)
    body = file.read_bytes()
    middle = len(body) // 2
    file.write_bytes(
        {
            "cut": body[:-7],
            "bit": body[:middle] + bytes([body[middle] ^ 4]) + body[middle + 1 :],
            "empty": b"",
            "other": b"x" * 5_000,
            "header": packed(made(SIZES))[:64] + b"{}",
        }[damage]
    )
    table_cache = TableFiles(folder)
    assert table_cache(SIZES) is None
    assert not file.exists()
    told = [json.loads(line) for line in log.getvalue().splitlines()]
    assert any(line["event"] == "a damaged table was deleted" and str(file) in line["file"] for line in told)
    table_cache.prepare(SIZES)
    same(TableFiles(folder)(SIZES), made(SIZES))


def test_what_another_process_has_made_is_found(folder: Path) -> None:
    reader, writer = TableFiles(folder), TableFiles(folder)
    assert reader(SIZES) is None
    writer.prepare(SIZES)
    same(reader(SIZES), made(SIZES))


def test_the_oldest_files_go(folder: Path) -> None:
    specs = [TableSpec("threshold", problem(most)) for most in (2, 3, 4, 5)]
    sizes = [len(packed(made(spec))) for spec in specs]
    table_cache = TableFiles(folder, bytes_max=sum(sizes[:3]) + 10)
    for at, spec in enumerate(specs[:3]):
        table_cache.prepare(spec)
        os.utime(folder / f"{name_of(spec)}.table", (at, at))
    TableFiles(folder)(specs[0])  # used: not the oldest any more
    table_cache.prepare(specs[3])
    left = {file.stem for file in files(folder)}
    assert name_of(specs[3]) in left
    assert name_of(specs[0]) in left
    assert name_of(specs[1]) not in left


def test_a_disk_that_refuses_costs_only_the_file(tmp_path: Path, log: io.StringIO) -> None:
    """Given a folder that cannot be made, when a table is prepared, then it is remembered and the trouble is logged."""
    (tmp_path / "tables").write_text("in the way")
    table_cache = TableFiles(tmp_path / "tables")
    table_cache.prepare(SIZES)
    same(table_cache(SIZES), made(SIZES))
    assert "a table cannot be kept" in log.getvalue()
    assert TableFiles(tmp_path / "tables")(SIZES) is None


def test_writing_at_the_same_time(folder: Path) -> None:
    shelves = [TableFiles(folder) for _ in range(4)]
    threads = [threading.Thread(target=table_cache.prepare, args=(SIZES,)) for table_cache in shelves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same(TableFiles(folder)(SIZES), made(SIZES))
    assert [file.suffix for file in files(folder)] == [".table"]


def test_a_cache_in_memory_builds_once_and_forgets_the_least_used() -> None:
    table_cache = MemoryTables()
    same(table_cache(SIZES), made(SIZES))
    table_cache(SIZES)
    assert (table_cache.built, table_cache("something else")) == (1, None)
    specs = [TableSpec("threshold", problem(most)) for most in (4, 3, 2)]
    small = MemoryTables(sum(size_bytes(made(spec)) for spec in specs[:2]))
    for spec in (specs[0], specs[1], specs[0], specs[2], specs[0]):
        small(spec)
    assert small.built == 3
    small(specs[1])
    assert small.built == 4


# --- what the workers run --------------------------------------------------------------------------------------------


def request() -> DecideRequest:
    return DecideRequest(cluster(window()), PolicyChoice("first-fit"), None, PolicyChoice("cost-aware"), None)


def test_a_decision_names_the_tables_it_lacked_and_finds_them_when_they_are_there(folder: Path) -> None:
    """Given no tables, when what was missing has been prepared, then the decision is that of a cache that has all."""
    server: TableServer = pickle.loads(pickle.dumps(TableServer(folder)))
    first = server(request())
    assert isinstance(first, DecideOutcome)
    assert {type(spec) for spec in first.missing} == {TableSpec, BreachSpec}
    assert first.provisioning is not None
    assert str(first.provisioning.windows[0].reason).startswith("no-tables")
    assert server(PrepareRequest(first.missing)) == Prepared(2)
    then = TableServer(folder)(request())
    assert then.missing == ()
    assert then == decide(request(), MemoryTables())
    assert decide(request(), no_tables).provisioning == first.provisioning


def test_a_table_that_cannot_be_computed_does_not_keep_the_others_from_it(folder: Path) -> None:
    odd = TableSpec("no such method", problem())
    answer = TableServer(folder)(PrepareRequest((odd, SIZES)))
    assert answer.count == 1
    assert "no such method" in answer.failed[0]
    assert TableFiles(folder)(SIZES) is not None
