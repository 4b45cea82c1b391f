"""All features of a controller as one: what the core asks every domain it asks of this."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from daemons.controller.contract.feature import DONE, Alarm, Caller, Feature, Refused, SnapshotPart
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.decision.pipeline import DecideOutcome
from daemons.values.view_format import Row
from shared.metrics.values import Scrape
from shared.ports.effects import Received
from shared.protocol.messages import Report
from shared.protocol.operator_messages import Request


class FeatureSet:
    """Features in the order in which they are asked. They are added once, when all that they are made of is there. A
    feature that leaves a member of the contract at its default is not asked for it."""

    def __init__(self) -> None:
        self._features: tuple[Feature, ...] = ()
        self._with: dict[str, tuple[Feature, ...]] = {}

    def add(self, *features: Feature) -> None:
        """Put features behind those that are there."""
        self._features += features
        self._with = {name: self._having(name) for name in vars(Feature) if not name.startswith("_")}

    def _having(self, member: str) -> tuple[Feature, ...]:
        default = getattr(Feature, member)
        return tuple(feature for feature in self._features if getattr(type(feature), member) is not default)

    def __iter__(self) -> Iterator[Feature]:
        return iter(self._features)

    def _asked(self, member: str) -> tuple[Feature, ...]:
        return self._with.get(member, ())

    def handlers(self, kind: str) -> dict[Any, Any]:
        """Return all handlers of a kind (`requests`, `messages`, `answers`, `records`, `timers`, `views`) by what they
        are for. Raises `ValueError` where two features have one for the same."""
        found: dict[Any, Any] = {}
        for feature in self._features:
            own: Mapping[Any, Any] = getattr(feature, kind)
            if twice := found.keys() & own.keys():
                raise ValueError(f"two features have {kind} for {sorted(map(str, twice))}")
            found |= own
        return found

    # --- a new leader -----------------------------------------------------------------------------------------------

    def restore(self, now_s: float) -> None:
        """Have every feature continue its operations in progress."""
        for feature in self._asked("restore"):
            feature.restore(now_s)

    def lead(self, now_s: float) -> None:
        """Have every feature begin."""
        for feature in self._asked("lead"):
            feature.lead(now_s)

    def forget(self, jobs: Collection[str], environments: Collection[str]) -> None:
        """Have every feature forget what retention has deleted."""
        for feature in self._asked("forget"):
            feature.forget(jobs, environments)

    # --- requests ---------------------------------------------------------------------------------------------------

    def holds(self, received: Received, now_s: float) -> bool:
        """Return whether a feature has a request wait, or has answered it."""
        return any(feature.holds(received, now_s) for feature in self._asked("holds"))

    def refuse(self, request: Request, caller: Caller, now_s: float) -> Refused:
        """Return why a request must not be carried out, by the first feature that has something against it."""
        for feature in self._asked("refuse"):
            refused = feature.refuse(request, caller, now_s)
            if refused != DONE:
                return refused
        return DONE

    def accepted(self, job: JobEntry) -> None:
        """Have every feature add what it knows to a job that was just accepted."""
        for feature in self._asked("accepted"):
            feature.accepted(job)

    def after(self, request: Request, now_s: float) -> None:
        """Have every feature do what follows there from a request that was carried out."""
        for feature in self._features:
            follow = feature.after.get(type(request))
            if follow is not None:
                follow(request, now_s)

    # --- nodes and VMs ----------------------------------------------------------------------------------------------

    def measured(self, node: NodeEntry, before: Report, last: Report, now_s: float) -> None:
        """Have every feature take in what a node's VMs did between two reports."""
        for feature in self._asked("measured"):
            feature.measured(node, before, last, now_s)

    def watched(self, node: NodeEntry, report: Report, now_s: float) -> None:
        """Have every feature take in a report with the health of instances."""
        for feature in self._asked("watched"):
            feature.watched(node, report, now_s)

    def may_stop(self, job: JobEntry, now_s: float) -> bool:
        """Return whether no feature has something against stopping a VM now."""
        return all(feature.may_stop(job, now_s) for feature in self._asked("may_stop"))

    # --- the end of an instant --------------------------------------------------------------------------------------

    def prepare(self, now_s: float) -> None:
        """Have every feature change what is wanted, before orders are drawn up."""
        for feature in self._asked("prepare"):
            feature.prepare(now_s)

    def settle(self, now_s: float) -> None:
        """Have every feature draw the consequences of this instant."""
        for feature in self._asked("settle"):
            feature.settle(now_s)

    def commit(self, now_s: float) -> None:
        """Have every feature take note of what is about to be stored."""
        for feature in self._asked("commit"):
            feature.commit(now_s)

    def next_due_s(self) -> float:
        """Return when to settle although nothing happens (inf: never)."""
        return min((feature.next_due_s() for feature in self._asked("next_due_s")), default=math.inf)

    # --- decisions --------------------------------------------------------------------------------------------------

    def next_cycle_s(self, now_s: float) -> float:
        """Return when the first cycle must run that would otherwise run later (inf: none must)."""
        return min((feature.next_cycle_s(now_s) for feature in self._asked("next_cycle_s")), default=math.inf)

    def cycle(self, now_s: float) -> None:
        """Notify every feature that a cycle has ended."""
        for feature in self._asked("cycle"):
            feature.cycle(now_s)

    def before_decision(self, now_s: float) -> None:
        """Bring up to date what a cycle's decision goes by."""
        for feature in self._asked("before_decision"):
            feature.before_decision(now_s)

    def columns(
        self, nodes: Sequence[NodeEntry], jobs: Sequence[JobEntry], now_s: float, at_cycle: bool
    ) -> SnapshotPart:
        """Return the parts of all features as one. Raises `ValueError` where two have the same columns."""
        columns: dict[str, Any] = {}
        fixed: set[str] = set()
        queued: set[str] = set()
        for feature in self._asked("columns"):
            part = feature.columns(nodes, jobs, now_s, at_cycle)
            for name, value in part.columns.items():
                if name not in columns:
                    columns[name] = value
                elif isinstance(value, tuple) and isinstance(columns[name], tuple):
                    columns[name] += value
                else:
                    raise ValueError(f"two features have the columns {name!r}")
            fixed.update(part.fixed)
            queued.update(part.queued)
        return SnapshotPart(columns, fixed, queued)

    def decided(self, outcome: DecideOutcome, now_s: float) -> None:
        """Have every feature take note of a decision."""
        for feature in self._asked("decided"):
            feature.decided(outcome, now_s)

    # --- views ------------------------------------------------------------------------------------------------------

    def alarms(self, now_s: float) -> Iterable[Alarm]:
        """Return what is not as it should be, in the order of the features."""
        for feature in self._asked("alarms"):
            yield from feature.alarms(now_s)

    def status(self, now_s: float) -> Row:
        """Return the features' part of the view `status`."""
        return {key: value for feature in self._features for key, value in feature.status(now_s).items()}

    def of_node(self, node: NodeEntry) -> Row:
        """Return the features' part of the view `node`."""
        return {key: value for feature in self._features for key, value in feature.of_node(node).items()}

    def facts(self) -> Row:
        """Return the features' part of the view `doctor`."""
        return {key: value for feature in self._features for key, value in feature.facts().items()}

    def read_metrics(self, scrape: Scrape, now_s: float) -> None:
        """Take the readings of every feature."""
        for feature in self._asked("read_metrics"):
            feature.read_metrics(scrape, now_s)
