"""How long operations take here: from their orders and answers, against the memory of the VMs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from daemons.models.operation_times import Measured, OperationLine, line_of, with_measured
from daemons.values.records.cluster import OperationRecord
from daemons.values.settings import ControllerSettings
from shared.protocol.messages import Result
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.operation_costs import COSTLY, OperationCosts

SENT_MAX = 20_000  # orders that nobody answers go, the oldest first


@dataclass(frozen=True, slots=True)
class _Sent:
    kind: ActionKind
    memory_mib: float
    at_s: float


class OperationTimes:
    """What was measured, by kind of operation. A resume with an image of another node is left out: it takes a transfer
    besides, which counts as a migration does."""

    def __init__(self) -> None:
        self._measured: dict[ActionKind, tuple[Measured, ...]] = {}
        self._sent: dict[str, _Sent] = {}
        self._costs: tuple[OperationCosts, OperationCosts] | None = None

    def load(self, record: OperationRecord) -> None:
        """Take over what an earlier controller has measured."""
        self._measured[record.kind], self._costs = record.measured, None

    def sent(self, action: Action, memory_mib: float, now_s: float) -> None:
        """Note that an order was sent, possibly for the second time."""
        if action.kind not in COSTLY or (
            action.kind is ActionKind.RESUME and action.from_node not in ("", action.node)
        ):
            return
        self._sent.setdefault(action.id, _Sent(action.kind, memory_mib, now_s))
        if len(self._sent) > SENT_MAX:
            del self._sent[next(iter(self._sent))]

    def answered(self, result: Result, now_s: float) -> tuple[OperationRecord, ...]:
        """Handle the answer to an order; return the records to store."""
        sent = self._sent.pop(result.action, None)
        if sent is None or result.outcome is not Outcome.OK:
            return ()
        before = self._measured.get(sent.kind, ())
        self._measured[sent.kind] = measured = with_measured(before, sent.memory_mib, now_s - sent.at_s)
        self._costs = None
        return () if measured == before else (OperationRecord(sent.kind, measured),)

    def costs(self, prior: OperationCosts) -> OperationCosts:
        """Return what decisions are to count with."""
        if self._costs is None or self._costs[0] != prior:
            found: dict[str, float] = {}
            for kind in COSTLY:
                line = line_of(self._measured.get(kind, ()), OperationLine(*prior.line(kind)))
                found |= {f"{kind.value}_s": line.fixed_s, f"{kind.value}_s_per_mib": line.s_per_mib}
            self._costs = prior, OperationCosts(**found)
        return self._costs[1]

    def costs_now(self, settings: ControllerSettings) -> OperationCosts:
        """Return what decisions count with under these settings: as configured, corrected by what was measured unless
        that is not wanted."""
        return self.costs(settings.operation_costs) if settings.learn_costs else settings.operation_costs

    def medians(self) -> Iterator[tuple[ActionKind, int, float | None, float | None]]:
        """Yield of each kind how many were measured, and the medians of their memory in MiB and of their seconds."""
        for kind in COSTLY:
            found = self._measured.get(kind, ())
            yield (
                kind,
                len(found),
                median(one.memory_mib for one in found) if found else None,
                median(one.seconds for one in found) if found else None,
            )
