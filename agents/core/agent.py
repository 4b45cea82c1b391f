"""The agent of one node: reports what is there, carries out what the controller orders, never twice.

A state machine without I/O. What must survive it is in its journal before anything follows from it: an order is
acknowledged and begun after its acceptance was written, a guest's definition is removed after its end was noted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agents.core.guest_events import Guests
from agents.core.health_monitor import TIMER as PROBE_TIMER
from agents.core.health_monitor import Watching
from agents.core.host_setup import SettingUp
from agents.core.host_sleep import Sleeping
from agents.core.journal import (
    SEQ_NO_WORD,
    Accepted,
    AgentStarted,
    Finished,
    JournalRecord,
    JournalState,
    Reported,
    TermSeen,
    VmSeen,
    left_a_domain,
)
from agents.core.outbox import TIMER as PUBLISH_TIMER
from agents.core.outbox import Outbox
from agents.core.recovery import judge
from agents.core.settings import AgentSettings
from agents.core.standard_jobs import StandardJobs
from shared.base.errors import ContractViolation
from shared.ports.effects import (
    Abort,
    Acknowledge,
    DeadLetter,
    Effect,
    Forget,
    GuestChanged,
    HostSetUp,
    Input,
    Observe,
    Observed,
    Operate,
    Operated,
    Probed,
    Publish,
    Published,
    Received,
    Reconnected,
    SleepEnded,
    StandardRan,
    StartTimer,
    StopTimer,
    TimerFired,
    Unobserved,
    WriteJournal,
)
from shared.protocol import topology
from shared.protocol.messages import (
    AbortAction,
    AgentBound,
    GoToSleep,
    Hello,
    NoReading,
    Order,
    Report,
    Result,
    RunStandardJob,
    SetUpNode,
    UnderWay,
    Watch,
)
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.migration_terms import MigrationFigures
from shared.values.nodes import Node
from shared.values.scalars import TEXT_LENGTH_MAX
from shared.values.vms import LIVE_STATES, VmState, VmStatus

DEFINITION_LENGTH_MAX = 1 << 16
REPORT_TIMER = "report"
LIMIT_TIMER = "limit:"
OBSERVES_MAX = 4  # readings asked for and not answered; beyond it the oldest is taken as lost
TERMS_SKIPPED_MAX = 1 << 32  # a term is kept for good: one that leaves no newer ones is nobody's
FIRST_TERM_MAX = 1 << 48  # a new agent joins a cluster whose store may have been restored often


@dataclass(frozen=True, slots=True)
class _Asked:
    """A reading that was asked for. Its report carries this seq: what was said later may rest on later news."""

    seq: int
    term: int
    full: bool


class Agent:
    """Implements `shared.ports.core.Core` for one node and one boot of its host.

    `records` is the journal as the last process left it. `start` must be the first call.
    """

    def __init__(self, node: str, boot_id: str, records: Sequence[JournalRecord], settings: AgentSettings) -> None:
        self.node, self.boot_id, self.settings = node, boot_id, settings
        self._state = JournalState(records)
        self._seq = 0
        self.outbox = Outbox(settings.publish_retry_s)
        self._asked: deque[_Asked] = deque(maxlen=OBSERVES_MAX)
        self._news: dict[str, tuple[int, UnderWay | None]] = {}
        self._doubtful: dict[str, bool] = dict.fromkeys(self._state.accepted, False)
        self._inventory: Node | None = None
        self._last: Mapping[str, VmStatus] = {}
        own = (node, boot_id, self._state, self.outbox)
        self._guests = Guests(*own, self._next_seq, self._write)
        self._watching = Watching(settings.address, lambda vm: vm in self._state.busy)
        self._sleeping = Sleeping(
            *own, settings.outcome_keep_s, self._next_seq, self._write, lambda: self._setup.running
        )
        self._setup = SettingUp(*own, self._next_seq, self._write, lambda: self._sleeping.decided)
        self._standard = StandardJobs(*own, self._next_seq, self._host_changes)

    # --- inputs ---------------------------------------------------------------------------------------------------

    def start(self, now_s: float) -> list[Effect]:
        """Begin: publish what may not have arrived, look, and report every `report_s` from now on."""
        effects: list[Effect] = []
        self._write(AgentStarted(self._state.starts + 1, self.boot_id), effects)
        self._seq = self._state.starts << 32
        for action in self._state.unreported:
            self.outbox.send(action, self._state.finished[action].result, now_s, effects)
        for event in self._state.events.values():
            self.outbox.send(event.event, event, now_s, effects)
        effects.append(self._observe(full=True))
        effects.append(StartTimer(REPORT_TIMER, now_s + self.settings.report_s))
        for action in self._state.accepted:
            effects.append(StartTimer(LIMIT_TIMER + action, now_s + self.settings.operation_timeout_s))
        self._setup.start(now_s, effects)
        return effects

    def handle(self, event: Input, now_s: float) -> list[Effect]:
        """Take one input; see `shared.ports.core.Core`. Raises ContractViolation for inputs that are not for agents."""
        if isinstance(event, Received):
            return self._received(event, now_s)
        if isinstance(event, Operated):
            return self._operated(event, now_s)
        if isinstance(event, Published):
            return self._published(event, now_s)
        if isinstance(event, TimerFired):
            return self._timer(event.name, now_s)
        if isinstance(event, Observed):
            return self._observed(event, now_s)
        if isinstance(event, Unobserved):
            said = NoReading(self.node, event.detail[:TEXT_LENGTH_MAX], self.boot_id, now_s)
            return [Publish(topology.REPORTS, topology.report_key(self.node), said)]
        if isinstance(event, GuestChanged):
            return self._guest_changed(event, now_s)
        if isinstance(event, Reconnected):
            return self.outbox.resend(now_s)
        if isinstance(event, SleepEnded):
            return self._sleep_ended(event, now_s)
        if isinstance(event, HostSetUp):
            return self._setup.done(event, now_s)
        if isinstance(event, StandardRan):
            return self._standard.ran(event, now_s)
        if isinstance(event, Probed):
            return self._watching.probed(event, now_s)
        raise ContractViolation(f"{type(event).__name__} is not an input of agents")

    def _received(self, received: Received, now_s: float) -> list[Effect]:
        message = received.message
        if not received.sender.startswith(topology.CONTROLLER_USER_PREFIX):
            return _dead(received, f"{received.sender} may not order agents about")
        if not isinstance(message, AgentBound):
            return _dead(received, f"a {message.KIND} is not for agents")
        node = _addressee(message)
        if node not in ("", self.node):
            return _dead(received, f"the order is for node {node}, this is {self.node}")
        effects: list[Effect] = []
        term = message.action.term if isinstance(message, Order) else message.term
        if term > (self._state.term + TERMS_SKIPPED_MAX if self._state.term else FIRST_TERM_MAX):
            return _dead(received, f"term {term} cannot have come about: {self._state.term} has been seen")
        if term > self._state.term:
            self._write(TermSeen(term), effects)
        if isinstance(message, GoToSleep | SetUpNode | RunStandardJob):
            _acknowledge(received.delivery, effects)
            self._asked_of_host(message, now_s, effects)
            return effects
        if isinstance(message, AbortAction):
            _acknowledge(received.delivery, effects)
            self._abort(message, effects)
            return effects
        if isinstance(message, Watch):
            _acknowledge(received.delivery, effects)
            if not self._is_older(term):
                self._watching.follow(message, now_s, effects)
            return effects
        self._guests.stored(message.events_seen, now_s, effects)
        if isinstance(message, Order):
            self._order(message.action, received.delivery, now_s, effects)
            return effects
        _acknowledge(received.delivery, effects)
        if isinstance(message, Hello):
            # One of an older term gets a report too: it tells its sender of the newer one.
            effects.append(self._observe(full=not self._is_older(term)))
        return effects

    def _asked_of_host(
        self, request: GoToSleep | SetUpNode | RunStandardJob, now_s: float, effects: list[Effect]
    ) -> None:
        """Handle a request to sleep or to be set up. A new reading decides it, unless it can be answered at once."""
        if isinstance(request, RunStandardJob):
            self._standard.asked(request, now_s, effects)
        elif isinstance(request, GoToSleep):
            if self._sleeping.asked(request, now_s, effects):
                effects.append(self._observe(full=False))
                self._sleeping.look(self._seq)
        elif self._setup.asked(request, now_s, effects):
            effects.append(self._observe(full=False))
            self._setup.look(self._seq)

    def _abort(self, message: AbortAction, effects: list[Effect]) -> None:
        """Abort a migration in progress; its answer follows as for any other."""
        action = self._state.accepted.get(message.action)
        if action is None or self._is_older(message.term) or message.boot_id != self.boot_id:
            return
        if action.kind is ActionKind.MIGRATE:
            effects.append(Abort(action.vm))

    def _published(self, published: Published, now_s: float) -> list[Effect]:
        effects: list[Effect] = []
        key = self.outbox.confirm(published.publish_id, published.ok)
        if isinstance(key, str) and key in self._state.unreported:
            self._write(Reported(key), effects)
        self._sleeping.published(key, now_s, effects)
        return effects

    def _timer(self, name: str, now_s: float) -> list[Effect]:
        if name == REPORT_TIMER:
            return [self._observe(full=False), StartTimer(REPORT_TIMER, now_s + self.settings.report_s)]
        if name == PUBLISH_TIMER:
            return self.outbox.fire(now_s)
        if name == PROBE_TIMER:
            effects: list[Effect] = []
            self._watching.due(now_s, effects)
            return effects
        action = self._state.accepted.get(name.removeprefix(LIMIT_TIMER))
        if action is None:
            return []
        # A hypervisor that has lost the operation cannot answer the abort: then the next readings tell.
        self._doubtful[action.id] = True
        self._touch(action.vm, None)
        return [Abort(action.vm), StartTimer(name, now_s + self.settings.operation_timeout_s)]

    # --- orders ---------------------------------------------------------------------------------------------------

    def _order(self, action: Action, delivery: int | None, now_s: float, effects: list[Effect]) -> None:
        known = self._state.finished.get(action.id)
        if known is not None:
            # Its seq stays: what it says of the VM was so then and may be so no more.
            self.outbox.send(action.id, known.result, now_s, effects)
            _acknowledge(delivery, effects)
            return
        if action.id in self._state.accepted:
            _acknowledge(delivery, effects)
            return
        refusal = self._refusal(action, now_s)
        if refusal is not None:
            self._refuse(action, *refusal, delivery, now_s, effects)
            return
        self._write(Accepted(action), effects)
        _acknowledge(delivery, effects)
        effects.append(Operate(action))
        effects.append(StartTimer(LIMIT_TIMER + action.id, now_s + self.settings.operation_timeout_s))

    def _refusal(self, action: Action, now_s: float) -> tuple[Outcome, str] | None:
        """Return why the action must not begin, as far as an agent can know; the hypervisor checks the rest."""
        if self._is_older(action.term):
            return Outcome.OLDER_TERM, f"term {self._state.term} has been seen"
        if action.boot_id != self.boot_id:
            return Outcome.OTHER_BOOT, f"this is boot {self.boot_id}"
        if now_s > action.expires_at_s:
            return Outcome.EXPIRED, f"{now_s - action.expires_at_s:.1f} s ago"
        if action.expires_at_s > now_s + self.settings.outcome_keep_s:
            return Outcome.REFUSED, f"expires more than {self.settings.outcome_keep_s:g} s from now"
        doing = self._state.busy.get(action.vm)
        if doing is not None:
            return Outcome.BUSY, f"{doing} is in progress"
        changes = self._host_changes()
        if changes and (self._sleeping.decided or action.kind is not ActionKind.DISCARD_IMAGE):
            return Outcome.REFUSED, changes
        return None

    def _host_changes(self) -> str:
        """Return why nothing may begin on the host now; empty when it may."""
        if self._sleeping.decided:
            return "the host is going to sleep"
        return "the host is being set up" if self._setup.running else ""

    def _is_older(self, term: int) -> bool:
        return term < self._state.term

    def _refuse(
        self,
        action: Action,
        outcome: Outcome,
        detail: str,
        delivery: int | None,
        now_s: float,
        effects: list[Effect],
    ) -> None:
        # The agent has not looked at the VM: without a seq the empty status cannot be read as "not here".
        result = self._result(action, SEQ_NO_WORD, outcome, now_s, detail=detail)
        self._write(Finished(result, action.expires_at_s + self.settings.outcome_keep_s), effects)
        _acknowledge(delivery, effects)
        self.outbox.send(action.id, result, now_s, effects)

    def _operated(self, operated: Operated, now_s: float) -> list[Effect]:
        action = self._state.accepted.get(operated.call_id)
        if action is None:
            return []  # settled from a reading, or of a process before
        effects: list[Effect] = []
        here = operated.status is not None and operated.status.managed
        self._touch(action.vm, _in_progress(action) if here else None)
        self._finish(
            action,
            operated.outcome,
            operated.status,
            now_s,
            effects,
            final=operated.final,
            detail=operated.detail,
            definition=operated.definition,
            migrated=operated.migrated,
        )
        return effects

    def _finish(
        self,
        action: Action,
        outcome: Outcome,
        status: VmStatus | None,
        now_s: float,
        effects: list[Effect],
        final: VmStatus | None = None,
        detail: str = "",
        definition: str = "",
        migrated: MigrationFigures | None = None,
    ) -> None:
        if status is not None and not status.managed:
            status = None  # a VM of that name is here, but it is not ours (any more)
        result = self._result(action, self._next_seq(), outcome, now_s, status, final, detail, definition)
        result = replace(result, migrated=migrated) if migrated is not None else result
        self._write(Finished(result, action.expires_at_s + self.settings.outcome_keep_s), effects)
        self._doubtful.pop(action.id, None)
        self.outbox.send(action.id, result, now_s, effects)
        effects.append(StopTimer(LIMIT_TIMER + action.id))

    def _result(
        self,
        action: Action,
        seq: int,
        outcome: Outcome,
        now_s: float,
        status: VmStatus | None = None,
        final: VmStatus | None = None,
        detail: str = "",
        definition: str = "",
    ) -> Result:
        return Result(
            self.node,
            self.boot_id,
            seq,
            clock_s=now_s,
            term=self._state.term,
            action=action.id,
            kind=action.kind,
            vm=action.vm,
            outcome=outcome,
            status=status,
            final=final,
            detail=detail[:TEXT_LENGTH_MAX],
            definition=_pieces(definition),
        )

    def _sleep_ended(self, ended: SleepEnded, now_s: float) -> list[Effect]:
        """Handle the end of a sleep or of a failed attempt: in both cases report at once what is on the host."""
        effects: list[Effect] = []
        self._sleeping.ended(ended, now_s, effects)
        effects.append(self._observe(full=ended.ok))
        effects.append(StartTimer(REPORT_TIMER, now_s + self.settings.report_s))
        return effects

    # --- guest events ---------------------------------------------------------------------------------------------

    def _guest_changed(self, changed: GuestChanged, now_s: float) -> list[Effect]:
        effects: list[Effect] = []
        if changed.status.managed:
            self._guests.changed(changed, now_s, effects)
            self._touch(changed.status.vm, None)
        return effects

    # --- readings and reports ---------------------------------------------------------------------------------------

    def _observe(self, full: bool) -> Observe:
        self._asked.append(_Asked(self._next_seq(), self._state.term, full))
        return Observe()

    def _touch(self, vm: str, done: UnderWay | None) -> None:
        """Something is known of a VM that readings asked for earlier need not show; `done` has just brought it."""
        self._watching.unsure(vm)
        if self._asked:
            self._news[vm] = (self._seq + 1, done)

    def _observed(self, reading: Observed, now_s: float) -> list[Effect]:
        if not self._asked:
            return []
        asked = self._asked.popleft()
        effects: list[Effect] = []
        domains = {s.vm: s for s in reading.vms if s.managed and s.state is not VmState.SUSPENDED}
        images = {s.vm: s for s in reading.vms if s.managed and s.state is VmState.SUSPENDED}
        fresh = {vm: done for vm, (seq, done) in self._news.items() if seq > asked.seq}
        if self._doubtful:
            self._settle(domains, images, fresh, now_s, effects)
        for status in domains.values():
            self._look_at(status, fresh, now_s, effects)
        for vm in [vm for vm in self._state.live if vm not in domains]:
            if vm not in fresh and vm not in self._state.busy:
                self._miss(vm, images.get(vm), now_s, effects)
        late = tuple(done for vm, done in fresh.items() if done and vm not in domains and vm not in images)
        self._watching.seen(domains, fresh, now_s, effects)
        effects.append(self._report(asked, reading, late, now_s))
        self._sleeping.seen(asked.seq, reading, bool(fresh), now_s, effects)
        self._setup.seen(asked.seq, reading, bool(fresh), now_s, effects)
        if not self._asked:
            self._news.clear()
        self._last = domains
        return effects

    def _settle(
        self,
        domains: Mapping[str, VmStatus],
        images: Mapping[str, VmStatus],
        fresh: Mapping[str, UnderWay | None],
        now_s: float,
        effects: list[Effect],
    ) -> None:
        """End the actions whose answer will not come, once no operation is in progress on their VM."""
        for action_id, aborted in list(self._doubtful.items()):
            action = self._state.accepted[action_id]
            domain, image = domains.get(action.vm), images.get(action.vm)
            here = domain or image
            if action.vm in fresh or (here is not None and here.busy):
                continue
            outcome, detail = judge(action, domain, image, action.boot_id == self.boot_id)
            if aborted and outcome is not Outcome.OK:
                outcome, detail = Outcome.TIMED_OUT, "the hypervisor did not answer"
            self._finish(action, outcome, here, now_s, effects, detail=detail)

    def _look_at(
        self, status: VmStatus, fresh: Mapping[str, UnderWay | None], now_s: float, effects: list[Effect]
    ) -> None:
        """Note what a domain shows that no event, action or record has reported: that it ended, or that it is here at
        all."""
        vm = status.vm
        if vm in fresh or vm in self._state.busy:
            return
        if left_a_domain(status):
            if self._state.over.get(vm) == status.generation:
                if not status.adopted:
                    effects.append(Forget(vm))
            else:
                change = GuestChange.ENDED if status.state is VmState.ENDED else GuestChange.VANISHED
                self._guests.note(change, status, now_s, effects)
        elif status.state in LIVE_STATES:
            known = self._state.live.get(vm)
            if known is None or known.generation != status.generation:
                self._write(VmSeen(status), effects)

    def _miss(self, vm: str, image: VmStatus | None, now_s: float, effects: list[Effect]) -> None:
        """Note that a VM that should be live here is missing."""
        known = self._state.live[vm]
        if image is not None and image.generation == known.generation:
            self._write(VmSeen(image), effects)
            return
        last = self._last.get(vm)
        best = last if last is not None and last.generation == known.generation else known
        self._guests.note(GuestChange.VANISHED, best, now_s, effects)

    def _report(self, asked: _Asked, reading: Observed, late: tuple[UnderWay, ...], now_s: float) -> Publish:
        inventory = reading.inventory if asked.full or reading.inventory != self._inventory else None
        self._inventory = reading.inventory
        in_progress = (*(_in_progress(action) for action in self._state.accepted.values()), *late)
        report = Report(
            self.node,
            self.boot_id,
            asked.seq,
            clock_s=now_s,
            term=asked.term,
            sample=reading.sample,
            vms=reading.vms,
            in_progress=in_progress,
            events=tuple(self._state.events.values()),
            inventory=inventory,
            health=self._watching.rows(),
            watch=self._watching.number(self._state.term),
            leases=reading.leases,
        )
        return Publish(topology.REPORTS, topology.report_key(self.node), report)

    # --- small things -----------------------------------------------------------------------------------------------

    def _write(self, record: JournalRecord, effects: list[Effect]) -> None:
        self._state.apply(record)
        effects.append(WriteJournal(record))

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq


def _acknowledge(delivery: int | None, effects: list[Effect]) -> None:
    if delivery is not None:
        effects.append(Acknowledge(delivery))


def _dead(received: Received, reason: str) -> list[Effect]:
    return [] if received.delivery is None else [DeadLetter(received.delivery, reason)]


def _addressee(message: AgentBound) -> str:
    """Return the node that an order or a request names; empty for a broadcast."""
    if isinstance(message, Order):
        return message.action.node
    return message.node if isinstance(message, GoToSleep | SetUpNode | RunStandardJob | AbortAction) else ""


def _pieces(text: str) -> tuple[str, ...]:
    """Cut a long text to what a message may have of one; none of what is too long altogether."""
    if len(text) > DEFINITION_LENGTH_MAX:
        return ()
    return tuple(text[at : at + TEXT_LENGTH_MAX] for at in range(0, len(text), TEXT_LENGTH_MAX))


def _in_progress(action: Action) -> UnderWay:
    return UnderWay(action.id, action.kind, action.vm, action.to_node)
