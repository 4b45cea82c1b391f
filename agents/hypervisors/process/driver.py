"""Implements `shared.ports.agent.Hypervisor` with programs of this host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from agents.hypervisors.process import names, programs, record
from agents.hypervisors.process.checks import HOLDING, Capacity, check
from agents.hypervisors.process.programs import Here
from agents.hypervisors.process.record import Record, Usage
from agents.hypervisors.process.runner import Cpu, Exit, Launch, Runner
from agents.hypervisors.workers import Workers
from shared.base.errors import InvalidValue, TransientError
from shared.config.agent import Program
from shared.ports.effects import GuestChanged, Operated
from shared.runtime import logs
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.nodes import Node
from shared.values.vms import LIVE_STATES, VmState, VmStatus

OPERATIONS_MAX = 16  # under way at once; more wait
LOOK_S = 30.0  # an end is heard of at once; this finds what was not
POLL_S = 0.05
FORGETTING = "forget"  # the operation on a program that is listed no more
FROZEN_STATES = frozenset({VmState.PAUSED, VmState.SUSPENDED})
Nothing = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """What the driver works with. core_mhz: a core's worth by which allotments are measured."""

    node: Node
    core_mhz: float
    boot_id: str
    state: Path
    here: Here
    programs: Mapping[str, Program]
    stop_limit_s: float


@dataclass(slots=True)
class _Entry:
    """A program and the operation in progress on it."""

    name: str
    record: Record
    busy: str = ""
    given_up: threading.Event = field(default_factory=threading.Event)
    seen: Usage = field(default_factory=Usage)  # the last reading


class _GivenUp(Exception):
    """The operation was aborted."""


class ProcessHypervisor:
    """See `shared.ports.agent.Hypervisor`. Programs that an earlier agent of this boot has started are found again;
    what is left of an earlier boot is dropped. `wake` is called when `poll` has something."""

    def __init__(self, setting: Setting, runner: Runner, wake: Nothing) -> None:
        self._set, self._runner, self._wake = setting, runner, wake
        self._log = logs.get_logger("process")
        self._lock = threading.RLock()
        self._entries: dict[str, _Entry] = {}
        self._told: list[Operated | GuestChanged] = []
        self._closed = False
        self._failure: BaseException | None = None
        self._workers = Workers("process-operation", OPERATIONS_MAX)
        self._find()
        self._watcher = threading.Thread(target=self._guarded, args=(self._watch,), name="process-watch", daemon=True)
        self._watcher.start()

    # --- the port ---------------------------------------------------------------------------------------------------

    def inventory(self) -> Node:
        """Return the machine, with the values that the configuration sets."""
        return self._set.node

    def vms(self, now_s: float) -> tuple[VmStatus, ...]:  # noqa: ARG002  the port has it for virtual time
        """Return every program, including frozen and ended ones."""
        with self._lock:
            entries = [entry for entry in self._entries.values() if entry.busy != FORGETTING]
        return tuple(self._status(entry) for entry in entries)  # reading takes time: nobody waits for it

    def begin(self, action: Action, now_s: float) -> None:  # noqa: ARG002
        """Begin an action; what is refused is answered at once."""
        with self._lock:
            entry = self._entries.get(action.vm)
            if entry is not None and entry.busy:
                self._answer(action, Outcome.BUSY, "another operation on it is in progress")
                return
            answer = check(action, entry.record if entry else None, self._capacity())
            if answer is not None:
                self._answer(action, *answer)
                return
            task = self._start(action, entry) if action.kind is ActionKind.START else self._change(action, entry)
        if task is not None:
            self._have_done(task)

    def abort(self, vm: str, now_s: float) -> None:  # noqa: ARG002
        """Abort the operation in progress on a program."""
        with self._lock:
            entry = self._entries.get(vm)
            if entry is not None and entry.busy:
                entry.given_up.set()

    def forget(self, vm: str, now_s: float) -> None:  # noqa: ARG002
        """Forget a program that has ended; its output stays."""
        with self._lock:
            entry = self._entries.get(vm)
            if entry is None or entry.busy or entry.record.state in HOLDING:
                return
            entry.busy = FORGETTING
        self._have_done(lambda: self._remove(entry))

    def poll(self, now_s: float) -> tuple[Operated | GuestChanged, ...]:  # noqa: ARG002
        """Return the events that were not returned before. Raises the error that ended one of the driver's threads."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            told, self._told = self._told, []
        return tuple(told)

    def next_due_s(self) -> float | None:
        """Return None, since the time is unknown: `wake` is called."""
        return None

    def close(self) -> None:
        """Look after programs no more; they run on."""
        self._closed = True
        self._runner.wake()
        self._watcher.join()

    # --- operations, in threads of their own ------------------------------------------------------------------------

    def _start(self, action: Action, old: _Entry | None) -> Nothing | None:
        spec, setting = action.spec, self._set
        assert spec is not None
        try:
            name = names.escaped(spec.vm)
            words = programs.words_of(spec, setting.programs, setting.here)
        except InvalidValue as problem:
            self._answer(action, Outcome.REFUSED, str(problem))
            return None
        state = VmState.PAUSED if action.paused else VmState.RUNNING
        entry = _Entry(name, Record.of(spec, setting.boot_id, state, action.generation), action.kind.value)
        self._entries[spec.vm] = entry
        environment = programs.environment_of(spec, setting.here, self._runner.output(name))
        launch = Launch(words, environment, self._cpu(entry.record), spec.memory_mib, action.paused)

        def started() -> None:
            self._runner.remove(name)  # what an earlier attempt, or an earlier boot, has left
            self._keep(entry, entry.record)
            self._runner.start(name, launch)
            if entry.given_up.is_set():
                raise _GivenUp
            self._keep(entry, replace(entry.record, begun=True))

        def undone() -> None:
            self._runner.remove(name)
            self._drop(entry)

        del old  # frozen in an earlier attempt: it gives way
        return lambda: self._do(action, entry, started, undone)

    def _change(self, action: Action, entry: _Entry | None) -> Nothing:
        assert entry is not None
        entry.busy, entry.given_up = action.kind.value, threading.Event()
        if action.kind in (ActionKind.STOP, ActionKind.DISCARD_IMAGE):
            return lambda: self._stop(action, entry)
        before = entry.record
        after = _changed(before, action, self._usage(entry))
        frozen = after.state in FROZEN_STATES
        freezes = frozen != (before.state in FROZEN_STATES)
        weighs = self._cpu(after) != self._cpu(before)
        final = self._status(entry, "") if action.kind is ActionKind.SUSPEND else None

        def done() -> None:
            if freezes and frozen:
                self._runner.freeze(entry.name, True)
            if weighs:
                self._runner.set_cpu(entry.name, self._cpu(after))
            if entry.given_up.is_set():
                raise _GivenUp
            self._keep(entry, after)  # an agent that dies now leaves it to the next one to thaw it
            if freezes and not frozen:
                self._runner.freeze(entry.name, False)

        def undone() -> None:
            self._keep(entry, before)
            if weighs:
                self._runner.set_cpu(entry.name, self._cpu(before))
            if freezes:
                self._runner.freeze(entry.name, not frozen)

        return lambda: self._do(action, entry, done, undone, final)

    def _do(self, action: Action, entry: _Entry, do: Nothing, undo: Nothing, final: VmStatus | None = None) -> None:
        outcome, detail = Outcome.OK, ""
        try:
            do()
        except (TransientError, _GivenUp) as error:
            given_up = entry.given_up.is_set()
            outcome = Outcome.TIMED_OUT if given_up else Outcome.FAILED
            detail = "aborted" if given_up else f"{error}{self._ending(entry)}"
            self._tried("undo", undo)
        with self._lock:
            entry.busy = ""
            self._answer(action, outcome, detail, final if outcome is Outcome.OK else None)
        self._look(entry.name)

    def _stop(self, action: Action, entry: _Entry) -> None:
        before = entry.record
        detail = ""
        try:
            if before.state in LIVE_STATES and action.kind is ActionKind.STOP:
                detail = self._terminate(entry)
            final = self._status(entry, "")
            self._runner.remove(entry.name)
        except (TransientError, _GivenUp) as error:
            if before.state is VmState.PAUSED:
                self._tried("undo", lambda: self._runner.freeze(entry.name, True))
            with self._lock:
                entry.busy = ""
                aborted = isinstance(error, _GivenUp)
                outcome = Outcome.TIMED_OUT if aborted else Outcome.FAILED
                self._answer(action, outcome, "aborted" if aborted else str(error))
            self._look(entry.name)
            return
        with self._lock:
            self._drop(entry)
            self._answer(action, Outcome.OK, detail, final)

    def _terminate(self, entry: _Entry) -> str:
        """Ask it to end and wait until it has, or the limit is over; how it ended."""
        name = entry.name
        self._runner.terminate(name)
        if entry.record.state in FROZEN_STATES:
            self._runner.freeze(name, False)
        waited_s = 0.0
        while (ended := self._runner.ended(name)) is None:
            if waited_s >= self._set.stop_limit_s:
                return f"killed: it had not ended within {self._set.stop_limit_s:g} s"
            if entry.given_up.wait(POLL_S):
                raise _GivenUp
            waited_s += POLL_S
        return ended.detail

    def _remove(self, entry: _Entry) -> None:
        gone = self._tried("forget", lambda: self._runner.remove(entry.name))
        with self._lock:
            entry.busy = ""
            if gone:
                self._drop(entry)

    # --- what happens by itself ---------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Run the thread that waits for the ends of programs."""
        while not self._closed:
            ended: frozenset[str] = frozenset()
            try:
                ended = self._runner.wait(LOOK_S)
            except TransientError as error:
                self._log.warning("ends of programs are not heard of", error=str(error))
                threading.Event().wait(1.0)
            with self._lock:
                known = [entry.name for entry in self._entries.values()]
            for name in ended or known:
                self._look(name)

    def _look(self, name: str) -> None:
        """Note the end of a program, unless an operation on it is in progress: the operation checks afterwards."""
        with self._lock:
            found = [entry for entry in self._entries.values() if entry.name == name]
            if not found or found[0].busy or found[0].record.state not in HOLDING:
                return
            entry = found[0]
        try:
            ended = self._runner.ended(name)
            usage = self._runner.usage(name)
        except TransientError as error:
            self._log.warning("a program cannot be looked at", vm=entry.record.vm, error=str(error))
            return
        with self._lock:
            if ended is not None and not entry.busy and entry.record.state in HOLDING:
                self._end(entry, ended, usage)

    def _end(self, entry: _Entry, ended: Exit, usage: Usage) -> None:
        """Record the end of a program, then report it. Its remaining processes are ended too, before it is
        forgotten."""
        before = entry.record
        well = ended.status == 0 and before.state is not VmState.SUSPENDED
        now = replace(before, state=VmState.ENDED if well else VmState.CRASHED, used=usage)
        if not self._tried("note the end of", lambda: self._keep(entry, now)):
            entry.record = now
        how = f"{ended.detail}{self._ending(entry)}"
        level = self._log.info if well else self._log.warning
        level("a program has ended", vm=before.vm, how=how)
        if not before.managed:  # nobody would ever forget it
            entry.busy = FORGETTING
            self._have_done(lambda: self._remove(entry))
            return
        change = GuestChange.ENDED if well else GuestChange.VANISHED
        self._tell(GuestChanged(change, self._status(entry), how))

    def _find(self) -> None:
        """Find the programs that an earlier agent has left."""
        running = self._runner.names()
        for folder in sorted(self._set.state.glob("*/")):
            found = record.read(folder)
            name = folder.name
            if found is None or found.boot_id != self._set.boot_id or not (found.begun or name in running):
                self._tried("drop", lambda name=name, folder=folder: self._clear(name, folder))  # type: ignore[misc]
                continue
            entry = _Entry(name, replace(found, begun=True))
            self._entries[found.vm] = entry
            if found.state in HOLDING and self._runner.ended(name) is None:
                frozen = found.state in FROZEN_STATES
                self._tried("find", lambda name=name, frozen=frozen: self._runner.freeze(name, frozen))  # type: ignore[misc]
                self._tried("find", lambda entry=entry: self._runner.set_cpu(entry.name, self._cpu(entry.record)))  # type: ignore[misc]
            self._look(name)
        known = {entry.name for entry in self._entries.values()}
        for name in running - known:
            self._tried("drop", lambda name=name: self._runner.remove(name))  # type: ignore[misc]

    # --- small things -------------------------------------------------------------------------------------------------

    def _capacity(self) -> Capacity:
        node = self._set.node
        held_mib = sum(entry.record.memory_mib for entry in self._entries.values() if entry.record.state in HOLDING)
        return Capacity(node.name, node.memory_mib - held_mib, self._set.core_mhz)

    def _cpu(self, of: Record) -> Cpu:
        """Return the program's CPU limit: vcpus x core_mhz, or less if a maximum is set."""
        cores = float(min(of.vcpus, self._set.node.cores))
        return Cpu(of.cpu_mhz, cores if of.cap_mhz is None else min(cores, of.cap_mhz / self._set.core_mhz))

    def _status(self, entry: _Entry, busy: str | None = None) -> VmStatus:
        kept = entry.record
        usage = kept.used if kept.state not in HOLDING else self._usage(entry)
        return kept.status(usage, entry.busy if busy is None else busy, self._set.here.address)

    def _usage(self, entry: _Entry) -> Usage:
        """Return the program's usage; the last reading if it cannot be read now, since counters never decrease."""
        try:
            entry.seen = self._runner.usage(entry.name)
        except TransientError as error:
            self._log.warning("a program cannot be read", name=entry.name, error=str(error))
        return entry.seen

    def _ending(self, entry: _Entry) -> str:
        said = programs.last_line(f"{self._runner.output(entry.name)}/output")
        return f"; it said: {said}" if said else ""

    def _keep(self, entry: _Entry, kept: Record) -> None:
        """Store a record, on disk first. Raises TransientError."""
        record.write(self._set.state / entry.name, kept)
        with self._lock:
            entry.record = kept

    def _drop(self, entry: _Entry) -> None:
        with self._lock:
            if self._entries.get(entry.record.vm) is entry:
                del self._entries[entry.record.vm]
        _unlink(self._set.state / entry.name)

    def _clear(self, name: str, folder: Path) -> None:
        self._runner.remove(name)
        _unlink(folder)

    def _answer(self, action: Action, outcome: Outcome, detail: str = "", final: VmStatus | None = None) -> None:
        entry = self._entries.get(action.vm)
        status = None if entry is None else self._status(entry)
        self._tell(Operated(action.id, outcome, status, final, detail))

    def _tell(self, event: Operated | GuestChanged) -> None:
        with self._lock:
            self._told.append(event)
        self._wake()

    def _have_done(self, task: Nothing) -> None:
        self._workers.do(lambda: self._guarded(task))

    def _guarded(self, task: Nothing) -> None:
        """Run a task in a thread of the driver; an unexpected error is not lost with the thread."""
        try:
            task()
        except BaseException as error:  # noqa: BLE001  handed on: `poll` raises it
            self._failure = error
            self._wake()

    def _tried(self, what: str, task: Nothing) -> bool:
        """Do what can be done again later; false when it failed."""
        try:
            task()
        except TransientError as error:
            self._log.warning(f"could not {what} a program", error=str(error))
            return False
        return True


def _changed(before: Record, action: Action, used: Usage) -> Record:
    """Return the record of a program after an action; its counters restart when it comes to life again."""
    kind, spec = action.kind, action.spec
    if kind is ActionKind.RESUME:
        state = VmState.PAUSED if action.paused else VmState.RUNNING
        now = replace(before, state=state, generation=action.generation, before=used)
        return now if spec is None else replace(now, cpu_mhz=spec.cpu_mhz, cap_mhz=spec.cap_mhz)
    if kind is ActionKind.SET_CPU:
        return replace(before, cpu_mhz=action.cpu_mhz, cap_mhz=action.cap_mhz)
    if kind is ActionKind.RELEASE:
        return replace(before, managed=False, generation=0, attempt=0)
    if kind is ActionKind.ADOPT:
        assert spec is not None
        return replace(before, managed=True, generation=action.generation, attempt=spec.attempt)
    states = {
        ActionKind.PAUSE: VmState.PAUSED,
        ActionKind.UNPAUSE: VmState.RUNNING,
        ActionKind.SUSPEND: VmState.SUSPENDED,
    }
    return replace(before, state=states[kind])


def _unlink(folder: Path) -> None:
    """Remove a record and its folder, once nothing else is in it."""
    (folder / record.FILE).unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError:
        return
