"""The store in memory and the store in SQLite do what every store must; tests/integration has PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sim_backend.conformance.store_checks import CHECKS
from sim_backend.conformance.store_harness import StoreHarness
from tests.support.store_samples import MemoryStoreHarness, SqlStoreHarness, sqlite_url

Check = Callable[[StoreHarness], None]
every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))


@every_check
def test_memory_store(check: Check) -> None:
    """Every check holds."""
    check(MemoryStoreHarness())


@every_check
def test_sqlite_store(check: Check, tmp_path: Path) -> None:
    """Every check holds; the store does not answer while its file is away."""
    path, away = tmp_path / "store.db", tmp_path / "away"
    harness = SqlStoreHarness(url=sqlite_url(path))

    def stop() -> None:
        for store in harness.stores:
            store.close()
        path.rename(away)
        path.mkdir()

    def start() -> None:
        path.rmdir()
        away.rename(path)

    harness.stopper, harness.starter = stop, start
    with closing(harness):
        check(harness)
