"""What decisions were computed from, kept beside them, so that any of them can be computed again exactly.

The core says which decision was computed from what (`shared.ports.effects.Record`); the worker that decides makes the
bytes of it, after its answer, and they go to the store with the history. They are a file of `trimtab snapshot save`
whose header also has the decision's `number`, the nodes that it wanted in service (`in_service`, null: it was not
asked) and the names of the tables that it did not have (`missing`): they may be there when it is computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daemons.decision.pipeline import DecideOutcome, DecideRequest, name_of
from daemons.values.records.cluster import DecisionRecord
from shared.ports import effects as fx


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """What a decision was computed from, as it goes to the store."""

    number: int
    at_s: float
    term: int
    body: bytes


def record_of(
    decided: Sequence[DecisionRecord], request: DecideRequest | None, outcome: DecideOutcome
) -> list[fx.Record]:
    """Return the effect that stores the input of the decision; none if nothing was decided."""
    provisioning = outcome.provisioning
    notes = {
        "in_service": None if provisioning is None else list(provisioning.in_service),
        "missing": sorted(name_of(spec) for spec in outcome.missing),
    }
    return [fx.Record(each.number, each.at_s, each.term, request, notes) for each in decided]
