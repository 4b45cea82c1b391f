"""A controller's shell keeps what its decisions were computed from, and they are computed again from the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from daemons.cli.commands.snapshot_replay import compare_all
from daemons.decision.overrides import Alteration
from daemons.service.table_server import TableServer
from daemons.store import SqlStore
from daemons.store.reading import reading
from shared.protocol.operator_messages import AddNode, SubmitJob
from tests.support.shell_harness import FAST, InlineDecider, RealRig, wait_for
from tests.support.store_samples import sqlite_url
from tests.unit.daemons.service.test_main_history import JOB


class ServerDecider(InlineDecider):
    """Answers what a worker is asked, in the thread that asks."""

    def __init__(self, folder: Path) -> None:
        self.server = TableServer(folder)

    def compute(self, request: Any, limit_s: float) -> tuple[Any, str]:
        """The answer."""
        assert limit_s > 0
        return self.server(request), ""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[RealRig]:
    made = RealRig(tmp_path)
    yield made
    made.end()


def test_decisions_of_a_running_controller_are_computed_again_exactly(rig: RealRig, tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "store.db")
    with closing(SqlStore(url)) as kept:
        store: Any = kept
        rig.store = store
        rig.controller(decider=ServerDecider(tmp_path / "tables"), settings=replace(FAST, record_snapshots=True))
        for node in rig.nodes:
            rig.agent(node.name)
            assert rig.ask(AddNode(f"add-{node.name}", node.name)).done
        with rig.lock:
            rig.world.add_task("j1", [(100.0, 1000.0)], 1, 0.0)
        assert rig.ask(SubmitJob("submit-j1", JOB)).done
        wait_for(lambda: [line for line in rig.lines("happened") if line["what"] == "job-completed"])
        rig.end()
    with reading(url) as reader:
        found = compare_all(reader, 0.0, 1e12, Alteration(), lambda _: None)
    assert found.equal == found.replayed >= 1
    assert len(found.missing) <= 1  # one that was taken at the very end
    assert {"start"} <= {kind for _, _, before, _ in found.rows for kind in before.changes}
