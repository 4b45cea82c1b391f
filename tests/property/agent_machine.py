"""An agent with its host, its journal, its broker and its controllers, all of them a few lines: one step at a time, and
what must hold is looked at with every effect. For `tests/property/test_agent.py`."""

from __future__ import annotations

from collections import Counter, deque

from msgspec import structs

from agents.core.agent import Agent
from agents.core.journal import Accepted, Finished, GuestNoted, JournalRecord, SleepAgreed, TermSeen
from agents.core.settings import AgentSettings
from shared.ports.effects import (
    Abort,
    Acknowledge,
    Effect,
    Forget,
    GuestChanged,
    Input,
    Observe,
    Observed,
    Operate,
    Operated,
    Publish,
    Published,
    Received,
    Reconnected,
    SleepEnded,
    SleepHost,
    StartTimer,
    StopTimer,
    TimerFired,
    WriteJournal,
)
from shared.protocol.messages import EventsSeen, GoToSleep, GuestEvent, Hello, Order, Report, Result, SleepAnswer
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.nodes import Node, NodeSample, SleepMode
from shared.values.vms import VmSpec, VmState, VmStatus

NODE = Node("n1", 4, 2000.0, memory_mib=16_000)
VMS = ("a#0", "b#0", "c#0")
KINDS = (
    ActionKind.START,
    ActionKind.STOP,
    ActionKind.PAUSE,
    ActionKind.UNPAUSE,
    ActionKind.SUSPEND,
    ActionKind.RESUME,
    ActionKind.MIGRATE,
    ActionKind.DISCARD_IMAGE,
)
BRINGS = (ActionKind.START, ActionKind.RESUME)
OVER = (VmState.ENDED, VmState.CRASHED)
LIVE = (VmState.RUNNING, VmState.PAUSED)


class Host:
    """A hypervisor of one VM state per name. Operations end when told to; what happened waits in `said`."""

    def __init__(self) -> None:
        self.vms: dict[str, VmStatus] = {}
        self.doing: dict[str, Action] = {}
        self.said: deque[Operated | GuestChanged] = deque()
        self.ends: Counter[tuple[str, int]] = Counter()  # lives that a guest event may tell of
        self.lingering: set[tuple[str, int]] = set()  # of those, the ones that left a domain for the agent to forget

    def statuses(self) -> tuple[VmStatus, ...]:
        busy = {vm: action.kind.value for vm, action in self.doing.items()}
        found = [structs.replace(status, busy=busy.get(vm, "")) for vm, status in self.vms.items()]
        coming = [a for vm, a in self.doing.items() if vm not in self.vms and a.kind in BRINGS]
        return (*found, *(VmStatus(a.vm, VmState.INCOMING, busy=a.kind.value) for a in coming))

    def begin(self, action: Action) -> None:
        refused = self._refused(action)
        if refused is None:
            self.doing[action.vm] = action
        else:
            self.said.append(Operated(action.id, refused, self.vms.get(action.vm)))

    def _refused(self, action: Action) -> Outcome | None:
        there = self.vms.get(action.vm)
        if action.vm in self.doing:
            return Outcome.BUSY
        if action.kind is ActionKind.START:
            return None if there is None else Outcome.ALREADY_THERE
        if there is None:
            return Outcome.NO_SUCH_VM
        if there.generation != action.expects:
            return Outcome.WRONG_GENERATION
        of_image = action.kind in (ActionKind.RESUME, ActionKind.DISCARD_IMAGE)
        if of_image != (there.state is VmState.SUSPENDED):
            return Outcome.NO_SUCH_VM
        return Outcome.REFUSED if there.state in OVER and action.kind is not ActionKind.STOP else None

    def end(self, vm: str, well: bool) -> None:
        action = self.doing.pop(vm, None)
        if action is None:
            return
        there = self.vms.get(vm)
        if not well or (there is not None and there.state in OVER and action.kind is not ActionKind.STOP):
            self.said.append(Operated(action.id, Outcome.FAILED, there))
            return
        states = {ActionKind.PAUSE: VmState.PAUSED, ActionKind.SUSPEND: VmState.SUSPENDED}
        if action.kind in (ActionKind.STOP, ActionKind.MIGRATE, ActionKind.DISCARD_IMAGE):
            gone = self.vms.pop(vm, None)
            if gone is not None:
                self.lingering.discard((vm, gone.generation))
        else:
            generation = action.generation if action.kind in BRINGS else action.expects
            self.vms[vm] = VmStatus(vm, states.get(action.kind, VmState.RUNNING), generation)
        self.said.append(Operated(action.id, Outcome.OK, self.vms.get(vm)))

    def guest(self, vm: str, state: VmState | None) -> None:
        """The guest ends, crashes or (None) vanishes."""
        there = self.vms.get(vm)
        if there is None or there.state not in LIVE or vm in self.doing:
            return
        life = (vm, there.generation)
        self.ends[life] += 1
        change = GuestChange.ENDED if state is VmState.ENDED else GuestChange.VANISHED
        if state is None:
            del self.vms[vm]
        else:
            self.vms[vm] = structs.replace(there, state=state)
            self.lingering.add(life)
        self.said.append(GuestChanged(change, self.vms.get(vm, there)))

    def reboot(self) -> None:
        for vm, status in list(self.vms.items()):
            if status.state is not VmState.SUSPENDED:
                self.ends[vm, status.generation] += 1
                self.lingering.discard((vm, status.generation))
                del self.vms[vm]
        self.doing.clear()
        self.said.clear()


Sent = Order | Hello | EventsSeen | GoToSleep


def _name(message: object) -> str:
    """Of what is published until it is confirmed."""
    if isinstance(message, Result):
        return message.action
    if isinstance(message, SleepAnswer):
        return f"sleep {message.request}" if message.ok else f"no sleep {message.request}"
    assert isinstance(message, GuestEvent)
    return f"event {message.event}"


class Shell:
    """Carries out effects in order and dies after `dies_in` more of them. Checks each as it is carried out."""

    def __init__(self) -> None:
        self.host = Host()
        self.journal: list[JournalRecord] = []
        self.history: list[JournalRecord] = []
        self.now_s, self.boot, self.term = 0.0, 1, 1
        self.lives: Counter[str] = Counter()
        self.orders: list[Order] = []
        self.queue: dict[int, Sent] = {}
        self.requests: list[GoToSleep] = []
        self.slept: Counter[str] = Counter()  # by request
        self.tag = 0
        self.operated: Counter[str] = Counter()
        self.outcomes: dict[str, Result] = {}
        self.confirmed: set[str] = set()
        self.report_seq = self.word_seq = 0
        self.dies_in = -1
        self.restart()

    # --- the process ----------------------------------------------------------------------------------------------

    def restart(self) -> None:
        self.alive, self.dies_in = True, -1
        self.agreed = ""  # the request that this process has agreed to
        self.going = False  # the host has been told to sleep
        self.timers: dict[str, float] = {}
        self.readings: deque[Observed] = deque()
        self.unanswered: dict[int, Publish] = {}
        self.host.said.clear()
        settings = AgentSettings(5.0, 60.0, 5.0, 600.0)
        self.agent = Agent("n1", f"boot-{self.boot}", tuple(self.journal), settings)
        self.carry_out(self.agent.start(self.now_s))

    def feed(self, event: Input) -> None:
        if self.alive:
            self.carry_out(self.agent.handle(event, self.now_s))

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if self.dies_in == 0:
                self.alive = False
                return
            self.dies_in -= 1
            self.perform(effect)

    def perform(self, effect: Effect) -> None:
        if isinstance(effect, WriteJournal):
            self.write(effect.record)
        elif isinstance(effect, Operate):
            self.operate(effect.action)
        elif isinstance(effect, Publish):
            self.publish(effect)
        elif isinstance(effect, Acknowledge):
            self.acknowledge(effect.delivery)
        elif isinstance(effect, Forget):
            self.forget(effect.vm)
        elif isinstance(effect, Observe):
            self.readings.append(Observed(NodeSample(), self.host.statuses(), NODE))
        elif isinstance(effect, StartTimer):
            self.timers[effect.name] = effect.at_s
        elif isinstance(effect, StopTimer):
            self.timers.pop(effect.name, None)
        elif isinstance(effect, SleepHost):
            self.sleep(effect)
        else:
            assert isinstance(effect, Abort)
            action = self.host.doing.pop(effect.vm, None)
            if action is not None:
                self.host.said.append(Operated(action.id, Outcome.TIMED_OUT, self.host.vms.get(effect.vm)))

    # --- what must hold at each effect ------------------------------------------------------------------------------

    def write(self, record: JournalRecord) -> None:
        if isinstance(record, Finished):
            said = [r for r in self.history if isinstance(r, Finished) and r.result.action == record.result.action]
            assert not said, "an action has one outcome"
        if isinstance(record, GuestNoted):
            noted = sum(isinstance(r, GuestNoted) for r in self.history)
            assert record.event.event == noted + 1, "events are numbered without gaps"
        if isinstance(record, SleepAgreed):
            self.agree(record.request)
        self.journal.append(record)
        self.history.append(record)

    def operate(self, action: Action) -> None:
        assert Accepted(action) in self.history, "what is begun is in the journal"
        self.operated[action.id] += 1
        assert self.operated[action.id] == 1, "an action is begun once"
        seen = max((r.term for r in self.history if isinstance(r, TermSeen)), default=0)
        assert action.term >= seen, "nothing of an older term is begun"
        assert action.boot_id == f"boot-{self.boot}"
        assert not self.agreed, "nothing is begun once the host is to sleep"
        self.host.begin(action)

    def agree(self, request_id: str) -> None:
        request = next(request for request in self.requests if request.request == request_id)
        seen = max((r.term for r in self.history if isinstance(r, TermSeen)), default=0)
        assert request.term >= seen, "nothing of an older term is agreed to"
        self.agreed = request_id

    def sleep(self, effect: SleepHost) -> None:
        request = next(request for request in self.requests if request.request == self.agreed)
        assert SleepAgreed(request.request) in self.history, "what is followed is in the journal"
        assert f"sleep {request.request}" in self.confirmed, "and the broker has the answer"
        assert effect.mode is request.mode
        assert request.boot_id == f"boot-{self.boot}"
        assert self.now_s <= request.expires_at_s
        assert not self.live(), "no host sleeps with a VM alive on it"
        assert not self.host.doing, "or with an operation under way"
        self.slept[request.request] += 1
        assert self.slept[request.request] == 1, "a request is followed once"
        self.going = True

    def publish(self, effect: Publish) -> None:
        message = effect.message
        if isinstance(message, Report):
            assert effect.publish_id is None
            assert message.seq > self.report_seq, "reports' sequence numbers grow"
            self.report_seq = message.seq
            shown = {status.vm for status in message.vms} | {doing.vm for doing in message.in_progress}
            assert self.live() <= shown, "no live VM is missing in a report"
            return
        assert isinstance(message, Result | GuestEvent | SleepAnswer)
        assert effect.publish_id is not None
        assert effect.publish_id not in self.unanswered
        self.unanswered[effect.publish_id] = effect
        if isinstance(message, Result):
            if message.action not in self.outcomes and message.seq and message.status is None:
                assert message.vm not in self.live(), "no live VM is said to be gone"
            assert self.outcomes.setdefault(message.action, message) == message, "an outcome never changes"
            assert any(isinstance(r, Finished) and r.result == message for r in self.history)
        elif isinstance(message, SleepAnswer):
            assert message.ok <= (SleepAgreed(message.request) in self.history), "what is agreed to is in the journal"
            if not message.ok and message.request == self.agreed:
                self.agreed = ""
        else:
            assert GuestNoted(message) in self.history, "what is told is in the journal"

    def acknowledge(self, tag: int) -> None:
        message = self.queue.pop(tag)
        if isinstance(message, Order):
            known = {r.action.id for r in self.history if isinstance(r, Accepted)}
            known |= {r.result.action for r in self.history if isinstance(r, Finished)}
            assert message.action.id in known, "what is acknowledged is in the journal"

    def forget(self, vm: str) -> None:
        there = self.host.vms.get(vm)
        if there is None or there.state not in OVER or vm in self.host.doing:
            return
        life = (vm, there.generation)
        assert life in self.told(), "a domain goes only after its end was noted"
        self.host.lingering.discard(life)
        del self.host.vms[vm]

    def live(self) -> set[str]:
        return {vm for vm, status in self.host.vms.items() if status.state in LIVE}

    def told(self) -> Counter[tuple[str, int]]:
        events = [r.event for r in self.history if isinstance(r, GuestNoted)]
        return Counter((event.status.vm, event.status.generation) for event in events)

    # --- what can happen --------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Everything on the host ends, and the controllers know."""
        for vm in VMS:
            self.host.end(vm, well=True)
            self.host.guest(vm, VmState.ENDED)
        while self.host.said and self.alive:
            self.tell()
        while self.unanswered and self.alive:
            self.confirm(ok=True)
        self.feed(Received(None, "controller.a", EventsSeen(self.term, self.events_seen())))

    def make_order(self, kind: ActionKind, vm: str, flaw: str) -> None:
        there = self.host.vms.get(vm)
        expects = 0 if kind is ActionKind.START or there is None else there.generation
        self.lives[vm] += kind in BRINGS
        generation = self.lives[vm] if kind in BRINGS else expects
        action = Action(
            id=f"{len(self.orders)}",
            kind=kind,
            node="n1",
            vm=vm,
            term=self.term - (flaw == "term"),
            boot_id=f"boot-{self.boot - (flaw == 'boot')}",
            expires_at_s=self.now_s + (-1.0 if flaw == "late" else 60.0),
            expects=expects,
            generation=generation,
            spec=VmSpec(vm, generation, 1, memory_mib=100, vcpus=1, cpu_mhz=1000.0) if kind in BRINGS else None,
            to_node="n2" if kind is ActionKind.MIGRATE else "",
        )
        self.orders.append(Order(action, self.events_seen()))
        self.enqueue(self.orders[-1])

    def run(self, vm: str) -> None:
        """A VM is started and nothing goes wrong, so that there is something for the rest to happen to."""
        self.make_order(ActionKind.START, vm, "")
        self.deliver(len(self.queue) - 1)
        self.host.end(vm, well=True)
        while self.host.said and self.alive:
            self.tell()

    def ask(self, mode: SleepMode, flaw: str) -> None:
        """A controller wants the host to sleep."""
        request = GoToSleep(
            request=f"{len(self.requests)}",
            node="n1",
            term=self.term - (flaw == "term"),
            boot_id=f"boot-{self.boot - (flaw == 'boot')}",
            expires_at_s=self.now_s + (-1.0 if flaw == "late" else 60.0),
            mode=mode,
        )
        self.requests.append(request)
        self.enqueue(request)

    def put_to_sleep(self, mode: SleepMode, ordered: bool = False) -> None:
        """As `ask`, and nothing goes wrong; `ordered`: but that an order comes while the agent looks."""
        self.ask(mode, "")
        self.deliver(len(self.queue) - 1)
        if ordered:
            self.make_order(ActionKind.START, VMS[0], "")
            self.deliver(len(self.queue) - 1)
        while self.readings and self.alive:
            self.read()
        while self.unanswered and self.alive:
            self.confirm(ok=True)

    def end_sleep(self, how: int) -> None:
        """The host stays awake, has been suspended, or was switched off and is booted again."""
        if not self.going or not self.alive:
            return
        self.going, self.agreed = False, ""
        if how == 2:
            self.reboot()
        else:
            self.now_s += 30.0 * how
            self.feed(SleepEnded(how == 1))

    def reboot(self) -> None:
        self.boot += 1
        self.host.reboot()
        self.restart()

    def enqueue(self, message: Sent) -> None:
        self.tag += 1
        self.queue[self.tag] = message

    def events_seen(self) -> int:
        """Up to which event the broker has all: a controller may have stored those."""
        noted = [r.event.event for r in self.history if isinstance(r, GuestNoted)]
        return max((n for n in noted if f"event {n}" in self.confirmed), default=0) if noted else 0

    def deliver(self, index: int) -> None:
        if self.queue and self.alive:
            tag = sorted(self.queue)[index % len(self.queue)]
            self.feed(Received(tag, "controller.a", self.queue[tag]))

    def confirm(self, ok: bool) -> None:
        if self.unanswered and self.alive:
            number = next(iter(self.unanswered))
            message = self.unanswered.pop(number).message
            if ok:
                self.confirmed.add(_name(message))
            self.feed(Published(number, ok))

    def next_timer(self) -> None:
        if self.timers and self.alive:
            name = min(self.timers, key=lambda n: (self.timers[n], n))
            self.now_s = max(self.now_s, self.timers.pop(name))
            self.feed(TimerFired(name))

    def tell(self) -> None:
        if self.host.said and self.alive:
            self.feed(self.host.said.popleft())

    def read(self) -> None:
        if self.readings and self.alive:
            self.feed(self.readings.popleft())

    def calm_down(self) -> None:
        """No more faults: everything under way comes to its end."""
        if not self.alive or self.dies_in >= 0:
            self.restart()
        for _ in range(4):
            while self.queue or self.host.doing or self.host.said or self.readings or self.unanswered:
                self.deliver(0)
                for vm in VMS:
                    self.host.end(vm, well=True)
                self.tell()
                self.read()
                self.confirm(ok=True)
                self.end_sleep(1)
            self.feed(TimerFired("report"))
            self.feed(Reconnected())
