"""What the handling of inputs leaves to do: effects to send at once, effects that wait for the store, and changes.

One unit_of_work lives as long as its controller leads; the controller empties it after every input.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.web_app import WebEntry
from daemons.values.rate_limit import PerMinute
from daemons.values.records.cluster import Record
from shared.ports.effects import Effect, Publish, StartTimer
from shared.protocol import topology
from shared.protocol.messages import Happened

SAID_MAX = 1_000  # things a minute that happen by the word of one agent: a node's VMs may all crash at once


class UnitOfWork:
    """Collects the consequences of inputs.

    `term` is the controller's; while not `acting` no order may be issued. `effects` go out at once. `stored` go out
    when everything dirty now is in the store: orders, replies and acknowledgements. `queued` jobs need reconciliation;
    the entries of the `dirty_*` fields must be stored. `scrape`: measure web applications from now on. `deploy`: nodes
    may be able to take another step into service, out of it, or between environments. `records` are stored as they are.
    `coordinate`: environments whose need of units may have changed. `adjust`: review the number of instances of web
    applications from now on. `readdressed`: web applications with an instance whose address has changed. `overloaded`:
    one misses its goal. `settling`: draw consequences although no row has changed. `timers`: when each pending timer
    fires. `speaker`: the node whose agent sent the current message ("": none); it causes at most SAID_MAX events a
    minute. `unsaid`: how many were suppressed by that limit.
    """

    def __init__(self) -> None:
        self.term = 0
        self.acting = True
        self.effects: list[Effect] = []
        self.stored: list[Effect] = []
        self.queued: dict[str, JobEntry] = {}
        self.dirty_jobs: dict[str, JobEntry] = {}
        self.dirty_nodes: dict[str, NodeEntry] = {}
        self.removed_nodes: list[str] = []
        self.dirty_web: dict[str, WebEntry] = {}
        self.removed_web: list[str] = []
        self.dirty_environments: dict[str, EnvironmentEntry] = {}
        self.scrape = False
        self.deploy = False
        self.records: list[Record] = []
        self.dirty_control = False
        self.place = False
        self.cycle = False
        self.coordinate: set[str] = set()
        self.adjust = False
        self.overloaded = False
        self.readdressed: set[str] = set()
        self.timers: dict[str, float] = {}
        self.settling = False
        self.speaker = ""
        self.unsaid = 0
        self._said = PerMinute(SAID_MAX)
        self._listeners: list[Callable[[Happened], None]] = []

    def timer(self, name: str, at_s: float) -> Effect:
        """Return what has a timer fire at that time, in the place of what it was set to."""
        self.timers[name] = at_s
        return StartTimer(name, at_s)

    def start_timer(self, name: str, at_s: float) -> None:
        """Have a timer fire at that time, in the place of what it was set to."""
        self.effects.append(self.timer(name, at_s))

    def wake(self, name: str, due_s: float) -> None:
        """Have a timer fire at that time (inf: it is not needed), unless it is set to that."""
        if due_s < math.inf and due_s != self.timers.get(name):
            self.start_timer(name, due_s)

    def subscribe(self, listener: Callable[[Happened], None]) -> None:
        """Register a listener for all events."""
        self._listeners.append(listener)

    def settle_soon(self) -> None:
        """Have consequences drawn at the end of this instant, whether or not a row changes."""
        self.settling = True

    @property
    def changed(self) -> bool:
        """Return whether anything must be stored."""
        return bool(
            self.dirty_jobs
            or self.dirty_nodes
            or self.dirty_control
            or self.removed_nodes
            or self.dirty_web
            or self.removed_web
            or self.dirty_environments
            or self.records
        )

    @property
    def unsettled(self) -> bool:
        """Return whether consequences must be drawn at the end of this instant."""
        if self.queued or self.stored or self.place or self.deploy or self.settling:
            return True
        if self.scrape or self.adjust or self.overloaded:
            return True
        return self.changed or (self.acting and bool(self.coordinate))

    def enqueue(self, entry: JobEntry) -> None:
        """Reconcile the job at the end of this instant."""
        self.queued[entry.job.name] = entry

    def change(self, entry: JobEntry) -> None:
        """Store the job and reconcile it."""
        self.dirty_jobs[entry.job.name] = entry
        self.queued[entry.job.name] = entry

    def change_node(self, node: NodeEntry) -> None:
        """Store the node."""
        self.dirty_nodes[node.name] = node

    def change_environment(self, entry: EnvironmentEntry) -> None:
        """Store the environment."""
        self.dirty_environments[entry.name] = entry

    def emit(self, now_s: float, what: str, subject: str, detail: str = "") -> None:
        """Publish an event and notify all listeners. Events from one agent about its node and VMs are limited to what
        an honest agent can send."""
        if self.speaker and not self._said.passes(self.speaker, now_s):
            self.unsaid += 1
            return
        message = Happened(now_s, what, subject, self.term, detail)
        self.effects.append(Publish(topology.EVENTS, what, message))
        for listener in self._listeners:
            listener(message)
