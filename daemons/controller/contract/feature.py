"""The contract between the core and a domain: what a domain hears, restores, does at the end of an instant, and shows.

The core knows its spine (measure, decide, reconcile, commit) and one tuple of features. It asks every feature in the
order of that tuple, so that the order of what happens within an instant is one visible list
(`daemons/controller/core/wiring.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.decision.pipeline import DecideOutcome
from daemons.values.view_format import Row
from shared.metrics.values import Metric, Scrape
from shared.ports.effects import Received
from shared.protocol.messages import Report
from shared.protocol.operator_messages import Query, Request

Refused = tuple[str, str]
"""A code and a text: why something is not done; without a code it was, and the text says what else there is to know."""
DONE: Refused = ("", "")
Alarm = tuple[str, str, float | None, str]
"""A code, what it is about, since when (None: not known), and words."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks for something, and why they say they do."""

    sender: str
    why: str = ""


RequestHandler = Callable[[Any, Caller, float], Refused]
Handler = Callable[[Any, float], None]
View = Callable[[Query, Cluster, float], Row | Refused]
"""A view of the cluster as somebody sees it, as plain data; or why there is none of that subject."""


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """A feature's part of a `Snapshot`. columns: by field of the snapshot; tuples of several features are joined.
    fixed: jobs that decisions must leave as they are; queued: jobs whose nodes another component chooses."""

    columns: Mapping[str, Any] = field(default_factory=dict)
    fixed: Collection[str] = ()
    queued: Collection[str] = ()


NOTHING: Mapping[Any, Any] = MappingProxyType({})
NO_PART = SnapshotPart()


class Feature:
    """One domain. Each member has a default that does nothing: a domain says what it takes part in and no more.

    What a domain hears is looked up by type:

    * `requests`: carries out what somebody asks for, who may; checks all of it before anything changes.
    * `after`: what follows here when a request was carried out, be it another domain's.
    * `messages`: what agents (a message with `node`) and load balancers say, whose sender was checked.
    * `answers`: what became of an effect (`PowerDone`, `Scraped`, ...).
    * `records`: takes over a record of an earlier leader.
    * `timers`: by name, what is done when a timer of `UnitOfWork` fires.

    Who has something to settle although no row has changed calls `UnitOfWork.settle_soon`.

    What it shows: `views` by name, `metrics` with `read_metrics`, and alarms.
    """

    requests: Mapping[type[Any], RequestHandler] = NOTHING
    after: Mapping[type[Any], Handler] = NOTHING
    messages: Mapping[type[Any], Handler] = NOTHING
    answers: Mapping[type[Any], Handler] = NOTHING
    records: Mapping[type[Any], Handler] = NOTHING
    timers: Mapping[str, Callable[[float], None]] = NOTHING
    views: Mapping[str, View] = NOTHING
    metrics: tuple[Metric, ...] = ()

    # --- a new leader -----------------------------------------------------------------------------------------------

    def restore(self, now_s: float) -> None:
        """Continue the operations in progress. Every record and job has been read."""

    def lead(self, now_s: float) -> None:
        """Begin to act as the leader; every feature is restored."""

    def forget(self, jobs: Collection[str], environments: Collection[str]) -> None:
        """Forget what retention has deleted."""

    # --- requests ---------------------------------------------------------------------------------------------------

    def holds(self, received: Received, now_s: float) -> bool:
        """Return whether a request waits here to be carried out later, or has been answered already."""
        return False

    def refuse(self, request: Request, caller: Caller, now_s: float) -> Refused:
        """Return why another domain must not carry out a request; asked before anything changes."""
        return DONE

    def accepted(self, job: JobEntry) -> None:
        """Add what is known here to a job that was just accepted and is not in the cluster yet."""

    # --- nodes and VMs ------------------------------------------------------------------------------------------------

    def measured(self, node: NodeEntry, before: Report, last: Report, now_s: float) -> None:
        """Take in what a node's VMs did between two of its reports, half a minute apart or more."""

    def watched(self, node: NodeEntry, report: Report, now_s: float) -> None:
        """Take in a report with the health of instances, or of an agent that goes by another list than it was sent."""

    def may_stop(self, job: JobEntry, now_s: float) -> bool:
        """Return whether a VM that is not wanted may be stopped now."""
        return True

    # --- the end of an instant ----------------------------------------------------------------------------------------

    def prepare(self, now_s: float) -> None:
        """Change what is wanted, before orders are drawn up for it."""

    def settle(self, now_s: float) -> None:
        """Draw the consequences of this instant, after orders were drawn up; what changes rows does so here."""

    def commit(self, now_s: float) -> None:
        """Take note of what is about to be stored (`UnitOfWork.dirty_*`), and change no row any more."""

    def next_due_s(self) -> float:
        """Return when to call `settle` although nothing happens (inf: never)."""
        return math.inf

    # --- decisions ----------------------------------------------------------------------------------------------------

    def next_cycle_s(self, now_s: float) -> float:
        """Return when a cycle must run that would otherwise run later (inf: none must)."""
        return math.inf

    def cycle(self, now_s: float) -> None:
        """Handle the end of a cycle, with or without a decision request."""

    def before_decision(self, now_s: float) -> None:
        """Bring up to date what a cycle's decision goes by."""

    def columns(
        self, nodes: Sequence[NodeEntry], jobs: Sequence[JobEntry], now_s: float, at_cycle: bool
    ) -> SnapshotPart:
        """Return its part of a snapshot of these nodes, whose facts are known, and jobs, in their order."""
        return NO_PART

    def decided(self, outcome: DecideOutcome, now_s: float) -> None:
        """Take note of a decision that was just applied or held back."""

    # --- views --------------------------------------------------------------------------------------------------------

    def alarms(self, now_s: float) -> Iterable[Alarm]:
        """Return what is not as it should be now."""
        return ()

    def status(self, now_s: float) -> Row:
        """Return its part of the view `status`."""
        return {}

    def of_node(self, node: NodeEntry) -> Row:
        """Return its part of the view `node`."""
        return {}

    def facts(self) -> Row:
        """Return its part of the view `doctor`."""
        return {}

    def read_metrics(self, scrape: Scrape, now_s: float) -> None:
        """Take the readings of `metrics`."""
