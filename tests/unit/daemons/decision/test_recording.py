"""What decisions were computed from, on its way into the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from daemons.decision.overrides import Alteration, alteration, altered
from daemons.decision.packing import EncodeRequest
from daemons.decision.pipeline import DecideRequest
from daemons.decision.recording import SnapshotEntry
from daemons.decision.request_codec import from_bytes
from daemons.service.recorder import Recorder
from daemons.service.table_server import TableServer
from daemons.store.history import SNAPSHOTS_MAX, History
from daemons.values.settings import PolicyChoice
from shared.base.errors import InvalidInput
from shared.ports import effects as fx
from sim_backend.conformance.clusters import snapshot

REQUEST = DecideRequest(
    snapshot([], []), PolicyChoice("apc", {"tolerance": 0.05}), {"seen": 1}, PolicyChoice("static"), {"kept": 2}
)
EFFECT = fx.Record(7, 1_000.5, 3, REQUEST, {"in_service": ["n1"], "missing": []})


class Answering:
    """A worker that answers with what it was given."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer

    def compute(self, request: Any, limit_s: float) -> tuple[Any, str]:
        """The answer."""
        assert limit_s > 0
        made = self.answer(request)
        return made, "" if made is not None else "out of time"


def carried_out(worker: Answering, is_over: bool = False) -> list[SnapshotEntry]:
    kept: list[SnapshotEntry] = []
    Recorder(worker, lambda task: task(), lambda call: call(), kept.append, lambda: is_over)(EFFECT)
    return kept


def test_the_worker_packs_the_request_and_what_came_of_it() -> None:
    (entry,) = carried_out(Answering(TableServer()))
    assert (entry.number, entry.at_s, entry.term) == (7, 1_000.5, 3)
    saved = from_bytes(entry.body, "snapshot 7")
    assert saved.request.placement == REQUEST.placement
    assert (saved.request.placement_state, saved.request.provisioning_state) == ({"seen": 1}, {"kept": 2})
    told = {name: saved.header[name] for name in ("number", "term", "at_s", "in_service", "missing")}
    assert told == {"number": 7, "term": 3, "at_s": 1_000.5, "in_service": ["n1"], "missing": []}


def test_a_worker_that_fails_loses_the_snapshot_and_nothing_else() -> None:
    assert carried_out(Answering(lambda request: None if isinstance(request, EncodeRequest) else 1)) == []


def test_a_worker_is_not_begun_anew_for_it_at_the_end() -> None:
    assert carried_out(Answering(lambda _: pytest.fail("was asked")), is_over=True) == []


def test_snapshots_that_wait_for_a_store_are_bounded() -> None:
    history = History()
    for number in range(SNAPSHOTS_MAX + 5):
        history.snapshot(SnapshotEntry(number, 0.0, 1, b""))
    batch = history.take(0.0)
    assert (len(batch.snapshots), batch.snapshots[0].number, history.dropped) == (SNAPSHOTS_MAX, 5, 5)
    history.give_back(batch)
    assert history.take(0.0).snapshots == batch.snapshots


def test_another_policy_begins_without_the_state_of_the_recorded_one() -> None:
    again = altered(REQUEST, alteration("edf", None, ("operation_costs.start_s=30", "provisioning.nodes=2")))
    assert (again.placement, again.placement_state) == (PolicyChoice("edf"), None)
    assert (again.provisioning, again.provisioning_state) == (PolicyChoice("static", {"nodes": 2}), {"kept": 2})
    assert again.snapshot.costs.start_s == 30.0
    assert altered(REQUEST, Alteration()) == REQUEST


@pytest.mark.parametrize(
    "given",
    ["x", "=1", "placement=1", "placement.", "operation_costs.start_s=-1", "operation_costs.start_s=true", "a.b=1"],
)
def test_what_cannot_be_set_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput):
        altered(REQUEST, alteration(None, None, (given,)))
