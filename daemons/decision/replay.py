"""A recorded decision against the same computed again: every difference, and both side by side. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from daemons.decision.gains import columns_of, gains_of
from daemons.decision.pipeline import DecideOutcome, DecideRequest, name_of
from daemons.decision.replay_words import both
from daemons.models.outlook import outlook_of
from daemons.values.records.cluster import DecisionRecord, Gain
from shared.base.errors import InvalidValue
from shared.policy_api.decision import Outlook, PlacementDecision, ProvisioningDecision, ReasonCode
from shared.policy_api.policies import TableCache


@dataclass(frozen=True, slots=True)
class Difference:
    """`part` of a decision, and of which `subject` ("": of the whole), that is not as recorded; both in words."""

    part: str
    subject: str
    recorded: str
    replayed: str

    def to_json(self) -> dict[str, str]:
        """Plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Side:
    """A decision in figures. changes, refusals: how many by kind and by reason. in_service: nodes wanted (None: not
    asked). utilities: what was predicted for the end of the cycle; level: the jobs' common one (None: not predicted).
    cost: predicted, in the currency of the prices."""

    policy: str
    changes: Mapping[str, int]
    refusals: Mapping[str, int]
    in_service: int | None
    mean_utility: float | None
    min_utility: float | None
    level: float | None
    cost: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


class RecordedTables:
    """A table cache without the tables that were missing when the decision was taken."""

    def __init__(self, table_cache: TableCache, header: Mapping[str, Any]) -> None:
        self._table_cache, self._missing = table_cache, frozenset(header.get("missing", ()))

    def __call__(self, spec: Any, /) -> Any:
        """Return the table, None for one that was missing or does not exist."""
        return None if self._missing and name_of(spec) in self._missing else self._table_cache(spec)


# --- differences -----------------------------------------------------------------------------------------------------


def differences(
    record: DecisionRecord, header: Mapping[str, Any], request: DecideRequest, outcome: DecideOutcome
) -> tuple[Difference, ...]:
    """Return the differences between the record and a decision computed again from `request`; `header` was recorded
    with it. Later changes of the controller to a decision, and later measurements, do not count."""
    if outcome.skipped:
        return (Difference("decision", "", f"decision {record.number}", f"none: {outcome.skipped}"),)
    return (
        *_of_request(record, header, request),
        *_of_placement(record, request, outcome),
        *_of_nodes(record, header, request, outcome),
    )


def _of_request(record: DecisionRecord, header: Mapping[str, Any], request: DecideRequest) -> Iterator[Difference]:
    told = {"number": record.number, "at_s": record.at_s, "term": record.term}
    for name, value in told.items():
        if header.get(name) != value:
            yield Difference(name, "", f"{value}", f"{header.get(name)}")
    if record.policy != request.placement.name:
        yield Difference("policy", "", record.policy, request.placement.name)


def _of_placement(record: DecisionRecord, request: DecideRequest, outcome: DecideOutcome) -> Iterator[Difference]:
    placed = outcome.placement
    yield from _of_items("change", record.changes, placed.changes, _change_key)
    # who is left alone after what somebody else did to it is refused by the controller, not by the policy
    alone = {one.workload for one in record.refusals if one.reason.code is ReasonCode.RECONCILIATION_PAUSED}
    yield from _of_items(
        "refusal",
        [one for one in record.refusals if one.workload not in alone],
        [one for one in placed.refusals if one.workload not in alone],
        _workload,
    )
    yield from _of_items("slowed", record.slowed, placed.slowed, _slowed_key)
    if request.snapshot.at_cycle:
        again = gains_of(placed.outlook)
        yield from _of_items(
            "prediction",
            [_predicted(each) for each in columns_of(record.gains)],
            [_predicted(each) for each in again],
            _first,
        )
        level = _finite(placed.outlook.level) if placed.outlook is not None else None
        if level != record.level:
            yield Difference("level", "", f"{record.level}", f"{level}")


def _of_nodes(
    record: DecisionRecord, header: Mapping[str, Any], request: DecideRequest, outcome: DecideOutcome
) -> Iterator[Difference]:
    before, after = record.provisioning, outcome.provisioning
    if before is None or after is None:
        if (before is None) is not (after is None):
            yield Difference("provisioning", "", _asked(before), _asked(after))
        return
    if request.provisioning is not None and before.policy not in ("", request.provisioning.name):
        yield Difference("nodes-policy", "", before.policy, request.provisioning.name)
    then, now = header.get("in_service"), list(after.in_service)
    if then != now:
        odd = sorted({*(then or ())} ^ {*now})
        for name in odd or [""]:
            yield Difference(
                "in-service", name, "yes" if name in (then or ()) else "no", "yes" if name in now else "no"
            )
    wanted = frozenset(now)
    for name in (
        *(name for name in before.added if name not in wanted),
        *(name for name in before.removed if name in wanted),
    ):
        yield Difference("in-service", name, "added" if name in before.added else "removed", "the other way")
    pairs: dict[str, tuple[Any, Any]] = {
        "nodes": (before.in_service, len(now)),
        "nodes-reason": (before.reason, after.reason),
        "nodes-refused": (before.refused, after.refused),
        "nodes-cost": (before.predicted_cost, after.predicted_cost),
    }
    for part, (was, computed) in pairs.items():
        if was != computed:
            yield Difference(part, "", f"{was}", f"{computed}")
    yield from _of_items("window", before.windows, after.windows, _window)


def _asked(nodes: object) -> str:
    return "not asked" if nodes is None else "decided"


def _of_items(part: str, before: Sequence[Any], after: Sequence[Any], key: Any) -> Iterator[Difference]:
    """Yield the differences between two sequences of named items, and whether their order differs."""
    then, now = list(before), list(after)
    if then == now:
        return
    by_then, by_now = {key(item): item for item in then}, {key(item): item for item in now}
    count = 0
    for name in dict.fromkeys((*by_then, *by_now)):
        was, is_now = by_then.get(name), by_now.get(name)
        if was != is_now:
            count += 1
            yield Difference(part, name, *both(was, is_now))
    if not count:
        yield Difference(part, "", f"{len(then)} in their order", f"{len(now)} in another order")


def _change_key(change: Any) -> str:
    return f"{change.workload} {change.kind.value}"


def _workload(item: Any) -> str:
    return str(item.workload)


def _slowed_key(item: Any) -> str:
    return f"{item.workload} on {item.node}"


def _window(item: Any) -> str:
    return str(item.window)


def _first(item: Any) -> str:
    return str(item[0])


def _predicted(gain: Gain) -> tuple[str, float, float, float]:
    return gain.workload, gain.now, gain.predicted, gain.best


def _finite(level: float | None) -> float | None:
    return level if level is not None and math.isfinite(level) else None


# --- side by side ----------------------------------------------------------------------------------------------------


def recorded_side(record: DecisionRecord, request: DecideRequest) -> Side:
    """Return the recorded decision. Utilities that its policy did not predict are computed from its input."""
    nodes = record.provisioning
    gains, level = record.gains, record.level
    if request.snapshot.at_cycle and not len(gains):
        with suppress(InvalidValue):  # a snapshot of another decision says nothing of it
            gains, level = _forecast(outlook_of(request.snapshot, record.changes))
    return Side(
        record.policy,
        _counts(change.kind.value for change in record.changes),
        _counts(refusal.reason.code.value for refusal in record.refusals),
        None if nodes is None else nodes.in_service,
        *_utilities(gains),
        level,
        None if nodes is None else nodes.predicted_cost,
    )


def replayed_side(request: DecideRequest, outcome: DecideOutcome) -> Side:
    """Return the decision computed now, in the same terms."""
    placed: PlacementDecision = outcome.placement
    nodes: ProvisioningDecision | None = outcome.provisioning
    gains: Sequence[Gain] = ()
    level = None
    if request.snapshot.at_cycle:
        gains, level = _forecast(placed.outlook or outlook_of(request.snapshot, placed.changes))
    return Side(
        request.placement.name,
        _counts(change.kind.value for change in placed.changes),
        _counts(refusal.reason.code.value for refusal in placed.refusals),
        None if nodes is None else len(nodes.in_service),
        *_utilities(gains),
        level,
        None if nodes is None else nodes.predicted_cost,
    )


def _forecast(outlook: Outlook) -> tuple[Sequence[Gain], float | None]:
    return gains_of(outlook), _finite(outlook.level) if outlook.level is not None else None


def _counts(names: Iterator[str] | Any) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _utilities(gains: Sequence[Gain]) -> tuple[float | None, float | None]:
    figures = columns_of(gains).summary()
    return figures["mean"]["predicted"], figures["min"]["predicted"]


class Totals:
    """Sums of sides: counts added up, figures as means over the decisions that have them."""

    def __init__(self) -> None:
        self.decisions = 0
        self._counts: dict[str, Counter[str]] = {"changes": Counter(), "refusals": Counter()}
        self._sums: dict[str, tuple[float, int]] = {}
        self._least: float | None = None

    def add(self, side: Side) -> None:
        """Take one in."""
        self.decisions += 1
        self._counts["changes"].update(side.changes)
        self._counts["refusals"].update(side.refusals)
        for name in ("in_service", "mean_utility", "level", "cost"):
            value = getattr(side, name)
            if value is not None:
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = (total + value, count + 1)
        if side.min_utility is not None:
            self._least = side.min_utility if self._least is None else min(self._least, side.min_utility)

    def to_json(self) -> dict[str, Any]:
        """Plain values; means None where no decision has the figure."""
        means = {name: self._mean(name) for name in ("in_service", "mean_utility", "level", "cost")}
        counts = {what: dict(sorted(each.items())) for what, each in self._counts.items()}
        return {"decisions": self.decisions, **counts, **means, "min_utility": self._least}

    def _mean(self, name: str) -> float | None:
        total, count = self._sums.get(name, (0.0, 0))
        return total / count if count else None
