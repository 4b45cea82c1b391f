"""Implements `shared.ports.agent.Hypervisor` with libvirt."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from agents.hypervisors.answers import Answer
from agents.hypervisors.libvirt import capacity, in_progress, local_disks, order, saved_images
from agents.hypervisors.libvirt.capacity import Card
from agents.hypervisors.libvirt.changes import ENDS, Changes, ComparedDomains
from agents.hypervisors.libvirt.checks import NodeHeadroom, check, fits
from agents.hypervisors.libvirt.dirty_rate import DirtyRates
from agents.hypervisors.libvirt.errors import Unavailable, outcome_of, transient
from agents.hypervisors.libvirt.host_features import THIS_MACHINE, default_page_kib, pool_sources
from agents.hypervisors.libvirt.in_progress import FORGETTING, UnderWay
from agents.hypervisors.libvirt.libvirt_jobs import jobs_on, outdated
from agents.hypervisors.libvirt.machine import Machine
from agents.hypervisors.libvirt.migration import Migration
from agents.hypervisors.libvirt.migration_needs import Surroundings
from agents.hypervisors.libvirt.network_disks import ConfiguredStorage
from agents.hypervisors.libvirt.operations import (
    NO_META,
    Label,
    Pause,
    SetCpu,
    Start,
    StartAdopted,
    Stop,
    Undefine,
    Work,
    released,
)
from agents.hypervisors.libvirt.site import Answered, GivenUp, Site, Task, status_of
from agents.hypervisors.libvirt.start_defined import StartDefined
from agents.hypervisors.libvirt.statistics import ObservedDomain
from agents.hypervisors.workers import Workers
from shared.base.clock import SystemClock
from shared.base.errors import InvalidValue, TransientError, TrimtabError
from shared.ports.effects import GuestChanged, Operated
from shared.runtime import logs
from shared.values import migration
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.migration_terms import MigrationFigures
from shared.values.nodes import Node
from shared.values.vms import VmState, VmStatus

OPERATIONS_MAX = 16  # under way at once; more wait
ABORTS_MAX = 4
CLOSE_S = 5.0
LOOK_S = 30.0  # a change is heard of at once; this finds what was not
MISSING_LOOK_S = 0.5
DIRTY_RATE_SOON_S = 2.0  # between looks while a VM has not been measured
JOBS_S = 20.0  # between two looks for what no event tells: backups, block jobs, autostart, edited definitions
STORAGE_S = 60.0  # between two looks whether configured servers of network disks answer
ASK_AGAIN_S = 600.0  # pools and networks may have come and gone
AGAIN_S = 0.5
TRIES_MAX = 3
JUDGE_AGAIN_S = 0.1
Nothing = Callable[[], None]


class LibvirtHypervisor:
    """The libvirt driver; see `shared.ports.agent.Hypervisor`. What libvirt reports, with the metadata kept with each
    domain, is the only record of the node's VMs: a restarted agent finds all of it. `wake` is called when `poll` has
    something."""

    def __init__(
        self, site: Site, wake: Nothing, core_mhz_factor: float = 1.0, machine: Machine = THIS_MACHINE
    ) -> None:
        self._site, self._wake, self._core_mhz_factor = site, wake, core_mhz_factor
        self._machine = machine
        self._clock = SystemClock()
        self._log = logs.get_logger("libvirt")
        self._lock = threading.RLock()
        self._looking = threading.Lock()
        self._taking = threading.Lock()
        self._meeting = threading.Lock()
        self._under: dict[str, UnderWay] = {}
        self._settled: set[str] = set()
        self._small: dict[str, threading.Event] = {}
        self._told: list[Operated | GuestChanged] = []
        self._pending: dict[str, ObservedDomain | None] = {}
        self._changes = Changes(site.node)
        self._node: Node | None = None
        self._failure: BaseException | None = None
        self._closed = False
        self._look_now = threading.Event()
        self._fresh, self._ask_again_s = True, 0.0
        self._looked_s = self._jobs_s = self._dirty_s = self._clock.monotonic_s()  # when the watcher last began each
        self._dirty_rates = DirtyRates(site.errors)
        self._measuring = self._trying = False
        self._storage, self._storage_s = ConfiguredStorage(site.keys.reachable_storage, machine), -math.inf
        self._checker = Workers("libvirt-check", 1)
        self._workers = Workers("libvirt-operation", OPERATIONS_MAX)
        self._aborts = Workers("libvirt-abort", ABORTS_MAX)
        self._watcher = threading.Thread(target=self._guarded, args=(self._watch,), name="libvirt-watch", daemon=True)

    def start(self) -> None:
        """Connect, and look after the node from now on."""
        self._site.link.start()
        self._watcher.start()

    # --- the port ---------------------------------------------------------------------------------------------------

    def inventory(self) -> Node:
        """Return the machine as libvirt or the configuration describes it. Raises TransientError until libvirt was
        queried once."""
        if self._node is None:
            transient(self._meet)
        assert self._node is not None
        return self._node

    def vms(self, now_s: float) -> tuple[VmStatus, ...]:  # noqa: ARG002  the port has it for virtual time
        """Return every domain and every saved image; a change becomes visible once `poll` has reported it."""
        with self._lock:
            forgotten = {vm for vm, one in self._under.items() if one.busy == FORGETTING}
        found = transient(self._look)
        with self._lock:
            under = {vm: one for vm, one in self._under.items() if one.busy != FORGETTING}
            forgotten |= {vm for vm, one in self._under.items() if one.busy == FORGETTING}
            shown = found | self._changes.missing
            shown |= {vm: kept for vm, kept in self._pending.items() if kept is not None}
        rows = [in_progress.status_while(seen, under.get(vm)) for vm, seen in shown.items() if vm not in forgotten]
        rows += [
            row
            for vm, one in under.items()
            if in_progress.comes(one, shown.get(vm)) and (row := in_progress.coming(one.action))
        ]
        return tuple(rows)

    def begin(self, action: Action, now_s: float) -> None:  # noqa: ARG002
        """Begin an action: its checks wait for those of actions begun before it, and for nothing else."""
        with self._lock:
            if action.vm in self._under:
                known = self._changes.known(action.vm)
                under = self._under[action.vm]
                status = in_progress.coming(under.action) if known is None else in_progress.status_while(known, under)
                self._tell(Operated(action.id, Outcome.BUSY, status, None, "another operation on it is in progress"))
                return
            one = UnderWay(action, action.kind.value)
            self._under[action.vm] = one
        self._checker.do(lambda: self._guarded(lambda: self._check(action, one)))

    def abort(self, vm: str, now_s: float) -> None:  # noqa: ARG002
        """Abort the operation in progress on a VM."""
        with self._lock:
            one = self._under.get(vm)
            if one is None or one.action is None:
                return
            one.task.given_up.set()
        self._aborts.do(lambda: self._guarded(lambda: self._cancel(one.task)))

    def forget(self, vm: str, now_s: float) -> None:  # noqa: ARG002
        """Remove the definition and the disk of a VM that ended or crashed."""
        with self._lock:
            if vm in self._under:
                return
            known = self._changes.known(vm)
            over = known is not None and known.managed and known.state in ENDS
            one = self._under[vm] = UnderWay(None, FORGETTING if over else "")
        self._workers.do(lambda: self._guarded(lambda: self._forget(vm, one)))

    def poll(self, now_s: float) -> tuple[Operated | GuestChanged, ...]:  # noqa: ARG002
        """Return the events that were not returned before. Raises the error that ended one of the driver's threads."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            told, self._told = self._told, []
            self._pending.clear()
        return tuple(told)

    def next_due_s(self) -> float | None:
        """Return None, since the time is unknown: `wake` is called."""
        return None

    def close(self) -> None:
        """Close the driver; VMs run on, and requests that wait for libvirt are not answered. Takes at most `CLOSE_S`: a
        call that libvirt never answers may keep a thread."""
        self._closed = True
        self._look_now.set()
        if self._watcher.is_alive():
            self._watcher.join(CLOSE_S)
        self._site.link.close()
        for workers in (self._checker, self._workers, self._aborts):
            workers.close()

    # --- what libvirt tells: in its threads, where it must not be called --------------------------------------------

    def happened(self, vm: str, uuid: str, event: int, detail: int) -> None:
        """See `connection.Listener`."""
        with self._lock:
            self._changes.happened(vm, event, detail)
        self._site.reader.forget(uuid)
        self._look_now.set()

    def edited(self, uuid: str) -> None:
        """See `connection.Listener`."""
        self._site.reader.forget(uuid)

    def connected(self) -> None:
        """See `connection.Listener`."""
        self._site.reader.forget_all()
        self._fresh = True
        self._look_now.set()

    def failed(self, error: BaseException) -> None:
        """See `connection.Listener`; from any thread: `poll` raises it."""
        self._failure = error
        self._wake()

    # --- operations -------------------------------------------------------------------------------------------------

    def _check(self, action: Action, one: UnderWay) -> None:
        """Check an action in the thread for checks, one after the other: each check sees what the previous ones have
        taken."""
        try:
            self._wait_for_small(action.vm)
            one.task.stop()
            with self._taking:
                found, room = self._room(action.vm)
                here = found.get(action.vm)
                answer = check(action, here, room)
                if answer is None:
                    work = self._work(action, one, here)
                    one.task.held_mib = in_progress.wanted_mib(action, here, room.here)
                    one.checked = True
            if answer is not None:
                self._answer(action, *answer)
                return
        except GivenUp:
            self._answer(action, Outcome.TIMED_OUT, "aborted")
            return
        except InvalidValue as problem:
            self._answer(action, Outcome.REFUSED, str(problem))
            return
        except TrimtabError as error:
            self._answer(action, outcome_of(error, begun=False), str(error))
            return
        self._workers.do(lambda: self._guarded(lambda: self._carry_out(action, one.task, work)))

    def _room(self, vm: str) -> tuple[dict[str, ObservedDomain], NodeHeadroom]:
        """Return the domains found and the headroom for a VM; `_taking` is held until it is taken. Operations in
        progress are read first: one that ends before libvirt has answered would otherwise be in neither."""
        node = self.inventory()
        with self._lock:
            taken = {name: one.task.held_mib for name, one in self._under.items() if name != vm}
        found = self._look()
        features, core_mhz = self._site.features, self._site.cpu.core_mhz
        free_mib = max(0, node.memory_mib - node.hugepages_mib) - in_progress.held_mib(found, taken)
        able = (features.save, features.migrate, features.failover)
        return found, NodeHeadroom(node.name, free_mib, core_mhz, *able, node.migration_has, self._site.reader.here)

    def _work(self, action: Action, one: UnderWay, here: ObservedDomain | None) -> Work:
        kind = action.kind
        if kind is ActionKind.START and action.expects:
            return StartAdopted(self._site, one.task, action, here)
        if kind is ActionKind.START and action.spec is not None and action.spec.definition:
            return StartDefined(self._site, one.task, action, here)
        if kind is ActionKind.RESUME and action.from_node not in ("", self._site.node):
            take = partial(self._take, action, one.task)
            return saved_images.ResumeFrom(self._site, one.task, action, here, take)
        return _WORKS[kind](self._site, one.task, action, here)

    def _take(self, action: Action, task: Task, image: ObservedDomain) -> Answer | None:
        """Room for an image of another node: taken, or answered."""
        facts, spec = image.facts, action.spec
        allotted_mhz = image.status().cpu_mhz if spec is None else spec.cpu_mhz
        with self._taking:
            answer = fits(facts.ordinary_mib, allotted_mhz, facts.vcpus, self._room(action.vm)[1])
            if answer is None:
                task.held_mib = facts.ordinary_mib
        return answer

    def _carry_out(self, action: Action, task: Task, work: Work) -> None:
        outcome, detail = Outcome.OK, ""
        tries = 0
        while True:
            try:
                work.do()
                task.cancel = None
            except Answered as answer:
                self._answer(action, answer.outcome, answer.detail)
                return
            except (TrimtabError, GivenUp) as error:
                tries += 1
                broken = isinstance(error, Unavailable) and error.broken
                if work.again and broken and tries < TRIES_MAX and self._wait_for_libvirt():
                    continue
                outcome, detail = self._judged(action, task, work, error)
            break
        if outcome is Outcome.OK:
            self._tried("tidy up after", action.vm, work.tidy)
        final = work.final() if outcome is Outcome.OK else None
        self._answer(action, outcome, detail, final, work.migrated())

    def _judged(self, action: Action, task: Task, work: Work, error: TrimtabError | GivenUp) -> tuple[Outcome, str]:
        """Return how an operation ended that did not report it, judged by the current state; undo it if the state is
        not as required."""
        task.cancel = None
        given_up = task.given_up.is_set()
        detail = "aborted" if given_up else str(error)
        if not isinstance(error, GivenUp) and self._known_to(lambda: work.holds(self._site.see(action.vm))):
            return Outcome.OK, f"not heard to end: {detail}"
        undone = self._known_to(partial(_undone, work))
        if not undone and self._known_to(lambda: work.holds(self._site.see(action.vm))):
            return Outcome.OK, f"could not be taken back: {detail}"
        if given_up or isinstance(error, GivenUp):
            return Outcome.TIMED_OUT, detail
        return outcome_of(error, begun=not (undone or isinstance(error, InvalidValue))), detail

    def _known_to(self, ask: Callable[[], bool]) -> bool:
        """Ask when libvirt can be asked, however long that takes; false for what it does not allow, nor when it is
        asked again."""
        tries = 0
        while not self._closed:
            try:
                return ask()
            except TrimtabError as error:
                if isinstance(error, Unavailable) and error.broken and not self._site.link.wait(0.0):
                    self._wait_for_libvirt()
                    continue
                tries += 1
                if tries >= TRIES_MAX:
                    self._log.warning("an operation cannot be judged or taken back", error=str(error))
                    return False
                self._clock.sleep(JUDGE_AGAIN_S)
        return False

    def _wait_for_libvirt(self) -> bool:
        while not self._closed:
            if self._site.link.wait(AGAIN_S):
                return True
        return False

    def _answer(
        self,
        action: Action,
        outcome: Outcome,
        detail: str = "",
        final: VmStatus | None = None,
        migrated: MigrationFigures | None = None,
    ) -> None:
        """Queue the answer with the VM's status. Without libvirt there is no status, and the answer waits."""
        now: ObservedDomain | None = None
        while not self._closed:
            try:
                now = self._site.see(action.vm)
                break
            except TrimtabError as error:
                self._log.warning("an answer waits for libvirt", vm=action.vm, error=str(error))
                self._clock.sleep(AGAIN_S)
                self._wait_for_libvirt()
        definition = self._definition(action, now) if outcome is Outcome.OK else ""
        with self._lock:
            if outcome is Outcome.OK:
                left = in_progress.as_left_by(action, self._changes.known(action.vm), now)
                self._changes.settle(action.vm, left)
            self._under.pop(action.vm, None)
            self._settled.add(action.vm)
            self._tell(Operated(action.id, outcome, status_of(now), final, detail, definition, migrated))
        self._look_now.set()

    def _definition(self, action: Action, now: ObservedDomain | None) -> str:
        """Return the definition to keep of an adopted VM in case its node is lost; "" if it cannot be read now."""
        if action.kind is not ActionKind.ADOPT or now is None or not now.adopted:
            return ""
        try:
            return self._site.definition(action.vm)
        except (TrimtabError, ValueError) as error:
            self._log.warning("a definition cannot be read", vm=action.vm, error=str(error))
            return ""

    def _cancel(self, task: Task) -> None:
        """Again and again, until it is over: libvirt does not abort what it has only just begun."""
        while (cancel := task.cancel) is not None and not self._closed:
            with suppress(TrimtabError):  # it has just ended by itself
                cancel()
            self._clock.sleep(AGAIN_S)

    def _forget(self, vm: str, one: UnderWay) -> None:
        def gone() -> None:
            self._wait_for_small(vm)
            now = self._site.see(vm)
            if now is None or not now.managed or now.state not in ENDS or now.adopted:
                return
            if (now.meta is not None and now.meta.kept) or now.why in order.SAVED_BY_HAND:
                self._site.set_meta(vm, released(now.meta or NO_META))
            else:
                self._site.remove(now)
                self._site.remove_volumes(now.meta)
            with self._lock:
                self._changes.settle(vm, None)
                self._settled.add(vm)

        self._tried("forget", vm, gone)
        with self._lock:
            if self._under.get(vm) is one:
                del self._under[vm]

    # --- readings ---------------------------------------------------------------------------------------------------

    def _look(self) -> dict[str, ObservedDomain]:
        """Read all domains, and report changes that no operation caused. Raises Unavailable."""
        with self._looking:
            with self._lock:
                busy = set(self._under)
                self._settled.clear()
            with self._site.link.use("read the domains") as conn:
                found = self._site.reader.read(conn)
            late = [vm for vm, seen in found.items() if order.may_be_saved_late(seen, self._changes.known(vm))]
            for vm in late:  # `_alone` leaves those that are busy
                while not self._alone(found[vm], partial(order.note_late_save, self._site)):
                    if not self._wait_for_small(vm):  # which waited for the save, too
                        break
                found[vm] = self._site.see(vm) or found[vm]
            with self._lock:
                self._site.last = {**{vm: s for vm, s in self._site.last.items() if vm in busy}, **found}
                moved = busy | set(self._under) | self._settled  # it was read before, or after, we know not which
                result = self._changes.compare(found, moved, self._clock.monotonic_s())
                for change, before in result.tell:
                    self._pending[change.status.vm] = before
                    self._tell(change)
                    self._log.info("a guest has changed", vm=change.status.vm, change=change.change, how=change.detail)
        for vm in result.asked:
            self._aborts.do(lambda vm=vm: self._guarded(lambda: self._find(vm)))  # type: ignore[misc]
        if result.ended or result.left or result.moved_in or result.came:
            self._workers.do(lambda: self._guarded(lambda: self._note(result)))
        return {vm: seen for vm, seen in found.items() if seen.state is not None}

    def _note(self, found: ComparedDomains) -> None:
        """Write down with the domains what libvirtd would forget."""
        for seen in found.ended:
            state, why = seen.state or VmState.CRASHED, seen.why
            self._alone(seen, partial(order.note_end, self._site, state=state, why=why))
        for seen in found.moved_in:
            self._alone(seen, partial(order.note_here, self._site))
        for seen in found.left:
            self._alone(seen, partial(order.remove_left, self._site))
        for seen in found.came:
            self._alone(seen, partial(order.put_in_order, self._site))

    def _alone(self, seen: ObservedDomain, do: Callable[[ObservedDomain], None]) -> bool:
        """Do something small to a domain as it is now, unless it is busy; operations that begin meanwhile wait. Whether
        it was not."""
        vm = seen.facts.name
        over = threading.Event()
        with self._lock:
            if vm in self._under or vm in self._small:
                return False
            self._small[vm] = over

        def done() -> None:
            now = self._site.see(vm)
            if now is not None and now.facts.uuid == seen.facts.uuid:
                do(now)

        try:
            self._tried("put in order", vm, done)
        finally:
            with self._lock:
                del self._small[vm]
            over.set()
        return True

    def _wait_for_small(self, vm: str) -> bool:
        """Wait for a small operation on the VM; return whether there was one."""
        with self._lock:
            over = self._small.get(vm)
        if over is not None:
            over.wait()
        return over is not None

    def _watch(self) -> None:
        """Run the thread that watches the domains: each of its tasks when it is due, or at once when one is heard
        of."""
        while not self._closed:
            due_s = min(self._look_at_s, self._jobs_s + JOBS_S, self._dirty_at_s, self._storage_at_s)
            asked = self._look_now.wait(max(0.0, due_s - self._clock.monotonic_s()))
            self._look_now.clear()
            try:
                self._watch_once(asked, self._clock.monotonic_s())
            except TransientError as error:
                self._log.debug("the node cannot be read", error=str(error))
            except TrimtabError as error:
                self._log.warning("the node cannot be read", error=str(error))

    def _watch_once(self, asked: bool, now_s: float) -> None:
        """Do what is due. That it was begun is noted first: what fails is not tried again at once."""
        if asked or now_s >= self._look_at_s:
            self._looked_s = now_s
            if now_s >= self._ask_again_s:
                self._fresh = True
            self._meet()
            self._look()
        if now_s >= self._jobs_s + JOBS_S:
            self._jobs_s = now_s
            self._look_for_jobs()
        if now_s >= self._dirty_at_s:
            self._dirty_s = now_s
            self._measure_dirty_rate()
        if now_s >= self._storage_at_s:
            self._storage_s = now_s
            self._try_storage()

    @property
    def _look_at_s(self) -> float:
        """When all domains are read again, if nothing is heard before."""
        with self._lock:
            return self._looked_s + (MISSING_LOOK_S if self._changes.missing else LOOK_S)

    @property
    def _dirty_at_s(self) -> float:
        """When the next step is taken to measure dirty rates."""
        every_s = self._site.dirty_rate_every_s
        if every_s <= 0.0:
            return math.inf
        return self._dirty_s + (min(every_s, DIRTY_RATE_SOON_S) if self._dirty_rates.is_behind else every_s)

    @property
    def _storage_at_s(self) -> float:
        """When the servers of network disks are tried next."""
        return self._storage_s + STORAGE_S if self._storage.is_tried else math.inf

    def _try_storage(self) -> None:
        """Have the configured servers of network disks tried, in another thread: they may take seconds."""
        if self._trying:
            return
        self._trying = True

        def step() -> None:
            try:
                if self._storage.look():
                    self._fresh = True
                    self._look_now.set()
            finally:
                self._trying = False

        self._workers.do(lambda: self._guarded(step))

    def _look_for_jobs(self) -> None:
        """Look for jobs of libvirt that keep VMs from being migrated, and for what else no event tells of VMs."""
        with self._lock:
            busy = set(self._under)
            seen = [one for vm, one in self._site.last.items() if vm not in busy]
        running = [one for one in seen if one.managed and one.state is VmState.RUNNING]
        with self._site.link.use("look for jobs") as conn:
            self._site.reader.jobs = jobs_on(conn, self._site.errors, running)
            changed = outdated(conn, self._site.errors, [one for one in seen if one.adopted])
        for uuid in changed:
            self._site.reader.forget(uuid)

    def _measure_dirty_rate(self) -> None:
        """Have the next dirty rate measured, in another thread: libvirt waits for a domain that is busy."""
        with self._lock:
            seen = [one for vm, one in self._site.last.items() if vm not in self._under]
            there = {one.facts.uuid for one in self._site.last.values()}
            if self._measuring:
                return
            self._measuring = True
        self._dirty_rates.forget_but(there)

        def step() -> None:
            try:
                with self._site.link.use("measure a dirty rate") as conn:
                    self._dirty_rates.step(conn, seen, self._clock.monotonic_s())
                self._site.reader.dirty = self._dirty_rates.known
            except TrimtabError as error:
                self._log.debug("no dirty rate can be measured", error=str(error))
            finally:
                self._measuring = False

        self._workers.do(lambda: self._guarded(step))

    def _meet(self) -> None:
        """Read this libvirt's features after a connection, write this node's card, and put in order what an earlier
        agent left unfinished."""
        with self._meeting:
            if self._fresh:
                self._ask_anew()

    def _ask_anew(self) -> None:
        site, errors = self._site, self._site.errors
        with site.link.use("ask for the capacity") as conn:
            site.features = capacity.features_of(conn, errors, site.keys.save_pool)
            keys = replace(site.keys, reachable_storage=self._storage.there)
            node = capacity.node_of(conn, errors, site.node, keys, site.features, self._machine)
            node = replace(node, core_mhz=self._node.core_mhz) if self._node is not None else node  # clocks vary
            if site.features.save and site.features.migrate:
                own = (node.core_mhz * self._core_mhz_factor, site.cpu.core_frac, site.cpu.cgroup, site.keys.partition)
                ordinary_mib = max(0, node.memory_mib - node.hugepages_mib)
                capacity.write_card(conn, errors, site.keys.save_pool, Card(site.node, ordinary_mib, *own))
            site.reader.here = Surroundings(
                cpu=migration.of_kind(node.migration_has, "cpu"),
                has=frozenset(node.migration_has),
                page_kib=default_page_kib(node.hugepages),
                is_local=local_disks.is_local(site),
                is_local_pool=partial(local_disks.is_local_pool, site),
                pool_sources=pool_sources(conn) if site.features.migrate else {},
            )
            site.reader.forget_all()  # what was read with other surroundings
            found = site.reader.read(conn)
        has_images = any(seen.state is VmState.SUSPENDED for seen in found.values())
        self._node = replace(node, abilities=capacity.abilities_of(site.features, has_images))
        core_mhz = node.core_mhz * self._core_mhz_factor
        site.cpu = site.reader.cpu = replace(site.cpu, core_mhz=core_mhz)
        if not site.features.save:
            self._log.warning("there is no pool for saved images: nothing can be suspended", pool=site.keys.save_pool)
        self._fresh, self._ask_again_s = False, self._clock.monotonic_s() + ASK_AGAIN_S
        if keys.reachable_storage != self._storage.there:
            self._fresh = True  # a server has answered meanwhile, or has ceased to
        for seen in found.values():
            if order.needs_order(seen):
                self._alone(seen, partial(order.put_in_order, site))

    def _find(self, vm: str) -> None:
        node = order.whereabouts(self._site, vm)
        with self._lock:
            self._changes.found_at(vm, node)
        self._look_now.set()

    # --- small things -----------------------------------------------------------------------------------------------

    def _tell(self, event: Operated | GuestChanged) -> None:
        with self._lock:
            self._told.append(event)
        self._wake()

    def _guarded(self, task: Nothing) -> None:
        """Run a task in a thread of the driver; an unexpected error is not lost with the thread."""
        try:
            task()
        except BaseException as error:  # noqa: BLE001  handed on: `poll` raises it
            self.failed(error)

    def _tried(self, what: str, vm: str, task: Nothing) -> bool:
        """Do what can be done again later; false when it failed."""
        try:
            task()
        except TrimtabError as error:
            self._log.warning(f"could not {what} a VM", vm=vm, error=str(error))
            return False
        return True


_WORKS: dict[ActionKind, Callable[[Site, Task, Action, ObservedDomain | None], Work]] = {
    ActionKind.START: Start,
    ActionKind.STOP: Stop,
    ActionKind.PAUSE: Pause,
    ActionKind.UNPAUSE: Pause,
    ActionKind.SUSPEND: saved_images.Suspend,
    ActionKind.RESUME: saved_images.Resume,
    ActionKind.MIGRATE: Migration,
    ActionKind.SET_CPU: SetCpu,
    ActionKind.DISCARD_IMAGE: saved_images.Discard,
    ActionKind.ADOPT: Label,
    ActionKind.RELEASE: Label,
    ActionKind.UNDEFINE: Undefine,
}


def _undone(work: Work) -> bool:
    work.undo()
    return True
