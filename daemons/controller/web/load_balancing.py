"""Which instances of web applications the load balancer serves: desired state, sent again until it agrees. An instance
is not stopped before it is drained, or has had the time for it."""

from __future__ import annotations

import math
from binascii import crc32
from collections.abc import Iterable
from dataclasses import dataclass, field

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.web.balancer_table import note_address, place_of, table_of
from daemons.models import overload
from daemons.values.settings import BalancerSettings
from shared.ports.effects import Backend, Balance, Balanced
from shared.values.jobs import JobPhase
from shared.values.web_app import Limits

LOST_S = 120.0  # an answer that has not come by then will not
WORDS_S = 10.0  # so long a new leader waits for a node to say where instances are reached of which it does not know
RETELL_SLOTS = 20  # applications are told again in so many groups, one after the other
EARLY_FRAC = 0.01  # of a period: a timer that was rounded is not early


@dataclass(slots=True, eq=False)
class BackendState:
    """The balancer's knowledge of one application. `served`: by its last answer (None: none since this controller
    became leader). `asked`: the last table sent and not answered, since `asked_s`. `leaving`: instances that are not
    wanted any more, and since when; of those `drained` have no request left, and `freed` may be stopped. `failures`:
    failed updates in a row. `ending_s`: since when only the balancer still knows it. `limits`: those that were sent
    last."""

    served: Balance | None = None
    asked: Balance | None = None
    asked_s: float = 0.0
    limits: Limits = overload.UNKNOWN
    due_s: float = math.inf
    leaving: dict[str, float] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()
    freed: set[str] = field(default_factory=set)
    failures: int = 0
    ending_s: float = math.inf

    def knows(self, vm: str) -> bool:
        """Return whether the balancer serves the application by this instance, or may do so."""
        tables = (self.served, self.asked)
        return self.served is None or any(
            backend.vm == vm for table in tables if table is not None for backend in table.backends
        )


class LoadBalancing:
    """Keeps the balancer's table up to date; the driver `none` has no balancer to update."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, settings: BalancerSettings) -> None:
        self.cluster, self.unit_of_work, self.settings = cluster, unit_of_work, settings
        self.states: dict[str, BackendState] = {}
        self._changed: set[str] = set()
        self._words_until_s = -math.inf

    def loaded(self, now_s: float) -> None:
        """Start after a new leader has read all records: the balancer's state is unknown, and everything is sent
        once."""
        self._words_until_s = now_s + WORDS_S
        if self.settings.tells:
            self._changed = {*self.cluster.web, *self.cluster.replicas}
            self.unit_of_work.settle_soon()

    def note(self, entries: Iterable[JobEntry]) -> None:
        """Instances among these may have come, moved or gone."""
        if self.settings.tells:
            self._changed.update(entry.job.app for entry in entries if entry.job.app)

    def note_apps(self, apps: Iterable[str]) -> None:
        """Note applications that may have been changed, measured or removed, or have instances under other
        addresses."""
        if self.settings.tells:
            self._changed.update(apps)

    def may_stop(self, entry: JobEntry, now_s: float) -> bool:
        """Return whether an instance that is not wanted may be stopped now; it is drained first where that can be
        determined."""
        if not (self.settings.tells and entry.job.app) or entry.phase is JobPhase.RUNNING:
            return True
        state = self.states.setdefault(entry.job.app, BackendState())
        vm = entry.instances[0].vm
        if not state.knows(vm) or vm in state.drained:
            return True
        if vm not in state.leaving:
            state.leaving[vm] = now_s
            self._changed.add(entry.job.app)
        return now_s >= state.leaving[vm] + self.settings.drain_limit_s

    def may_forget(self, app: str, now_s: float) -> bool:
        """Return whether an application of which nothing is left may be deleted: the balancer has taken it out, or has
        had the time for it."""
        if not self.settings.tells:
            return True
        state = self.states.setdefault(app, BackendState())
        state.ending_s = min(state.ending_s, now_s)
        self._changed.add(app)
        return state.served == Balance(app, ()) or now_s >= state.ending_s + LOST_S

    # --- telling ----------------------------------------------------------------------------------------------------

    def run(self, now_s: float) -> None:
        """Send the pending updates: at most one call for each application is in progress."""
        if not self.unit_of_work.acting:
            return
        self.wake(now_s)
        changed, self._changed = self._changed, set()
        for app in sorted(changed):
            self._tell(app, now_s)

    def wake(self, now_s: float) -> None:
        """Look again at what is due."""
        self._changed.update(app for app, state in self.states.items() if state.due_s <= now_s)
        if self._changed:
            self.unit_of_work.settle_soon()

    def next_due_s(self) -> float:
        """Return when `run` has something to do although nothing changes (inf: never)."""
        return min((state.due_s for state in self.states.values()), default=math.inf)

    def _tell(self, app: str, now_s: float) -> None:
        state = self.states.setdefault(app, BackendState())
        wanted = self._wanted(app, state, now_s)
        if wanted.serving is not None or wanted.backends:
            state.ending_s = math.inf
        waits = min(self._free(app, state, now_s), state.ending_s + LOST_S)
        state.due_s = waits = waits if waits > now_s else math.inf
        if state.asked is not None and now_s < state.asked_s + LOST_S:
            state.due_s = min(waits, state.asked_s + LOST_S)
            return
        if now_s < self._words_until_s and any(map(self._is_to_be_said, wanted.backends)):
            state.due_s = min(waits, self._words_until_s)
            return
        if state.failures and now_s < (again_s := self._again_s(state)):
            state.due_s = min(waits, again_s)
            return
        undrained = any(backend.drain and backend.vm not in state.drained for backend in wanted.backends)
        again_s = self._next_s(app, state, undrained)
        if wanted == state.served and now_s < again_s:
            if wanted.backends or app in self.cluster.web or self.cluster.replicas.get(app):
                state.due_s = min(waits, again_s)
            else:
                del self.states[app]
            return
        state.asked, state.asked_s = wanted, now_s
        state.due_s = min(waits, now_s + LOST_S, self._next_s(app, state, undrained))
        self.unit_of_work.effects.append(wanted)

    def _next_s(self, app: str, state: BackendState, undrained: bool) -> float:
        """Return when the table is sent again although nothing has changed; sooner while an instance has requests
        left."""
        resend_s = self._resend_s(app, state)
        return min(resend_s, state.asked_s + self.settings.poll_s) if undrained else resend_s

    def _resend_s(self, app: str, state: BackendState) -> float:
        """Return when the table is sent again although nothing has changed: a restarted balancer may know nothing. Each
        application has its own slot within the period, which spreads the updates."""
        period_s = self.settings.resend_s
        if period_s <= 0.0:
            return math.inf
        turn_s = period_s * (crc32(app.encode()) % RETELL_SLOTS) / RETELL_SLOTS
        wait_s = period_s - (state.asked_s - turn_s) % period_s
        return state.asked_s + (wait_s if wait_s > EARLY_FRAC * period_s else wait_s + period_s)

    def _again_s(self, state: BackendState) -> float:
        wait_s = self.settings.retry_s * 2.0 ** min(state.failures - 1, 30)
        return state.asked_s + min(self.settings.retry_max_s, wait_s)

    def _free(self, app: str, state: BackendState, now_s: float) -> float:
        """Have instances that are drained, or have had the time for it, stopped; returns when the next one will have
        had it."""
        due_s = math.inf
        state.freed &= state.leaving.keys()
        for replica in self.cluster.replicas.get(app, {}).values():
            vm = replica.instances[0].vm if replica.instances else ""
            if vm not in state.leaving or vm in state.freed:
                continue
            late_s = state.leaving[vm] + self.settings.drain_limit_s
            if now_s < late_s and vm not in state.drained:
                due_s = min(due_s, late_s)
            else:
                state.freed.add(vm)
                self.unit_of_work.enqueue(replica)
        return due_s

    def _is_to_be_said(self, backend: Backend) -> bool:
        """Return whether its address is missing only because its node has not reported yet; without an address it would
        be taken out until then."""
        return not backend.address and backend.node in self.cluster.nodes_not_reported

    def _wanted(self, app: str, state: BackendState, now_s: float) -> Balance:
        """Return instances that run, and those that still run and must be drained."""
        found: list[tuple[JobEntry, str, bool]] = []
        leaving: dict[str, float] = {}
        for _, replica in sorted(self.cluster.replicas.get(app, {}).items()):
            instance = replica.instances[0] if replica.instances else None
            place = place_of(self.cluster, instance) if instance is not None else ""
            if instance is None or not place:
                continue
            if note_address(self.cluster, instance, place):
                self.unit_of_work.dirty_jobs[replica.job.name] = replica
            if replica.phase is JobPhase.RUNNING:
                if replica.released:
                    found.append((replica, place, False))
            elif state.knows(instance.vm):
                leaving[instance.vm] = state.leaving.get(instance.vm, now_s)
                found.append((replica, place, True))
        state.leaving, state.drained = leaving, state.drained & leaving.keys()
        table = table_of(self.cluster, app, found, state.limits)
        state.limits = table.limits if table.serving is not None else state.limits
        return table

    # --- answers ----------------------------------------------------------------------------------------------------

    def balanced(self, answer: Balanced, now_s: float) -> None:
        """Handle the balancer's answer. Late or unexpected answers are ignored."""
        state = self.states.get(answer.app)
        if state is None or state.asked is None:
            return
        asked, state.asked = state.asked, None
        before = state.served, state.drained, state.failures
        if answer.ok:
            state.served = asked
            state.drained = frozenset(answer.drained) & {backend.vm for backend in asked.backends if backend.drain}
            self._error(answer.app, state, "", now_s)
        else:
            self._error(answer.app, state, answer.detail or "no reason was given", now_s)
        same = (state.served, state.drained, state.failures) == before and bool(asked.backends)
        # One that was told anew and has not changed, as nearly all are, is looked at when that is due again.
        if not same or state.due_s > self._resend_s(answer.app, state):
            self._changed.add(answer.app)
            self.unit_of_work.settle_soon()

    def _error(self, app: str, state: BackendState, error: str, now_s: float) -> None:
        failed, state.failures = state.failures, state.failures + 1 if error else 0
        web = self.cluster.web.get(app)
        if web is not None:
            since_s = web.unreachable[0] if web.unreachable is not None else now_s
            web.unreachable = (since_s, error) if error else None
            web.served = web.served if error else state.served
        if bool(error) != bool(failed):
            self.unit_of_work.emit(now_s, "balancer-unreachable" if error else "balancer-reachable", app, error)
