"""The world of the stand-in: hosts, time, scripted faults, and whether anything ever ran twice."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Mapping
from math import inf
from typing import TypeVar
from uuid import UUID

from sim_backend.fake_libvirt.codes import Closed, Err, From, error, fail
from sim_backend.fake_libvirt.connection import Module
from sim_backend.fake_libvirt.events import Dispatcher
from sim_backend.fake_libvirt.faults import LATE_S, Fault, Script
from sim_backend.fake_libvirt.files import Content
from sim_backend.fake_libvirt.handles import Connection
from sim_backend.fake_libvirt.host import BROKEN, Host
from sim_backend.fake_libvirt.sharing import shares
from sim_backend.fake_libvirt.state import Dom, Guest, Job
from sim_backend.fake_libvirt.transfers import Transfer, Transfers
from sim_backend.world.migrating import GuestMemory

Answer = TypeVar("Answer")
LOCK_LIMIT_S = 30.0  # how long a call waits for another one's job
STALLED = "cannot acquire state change lock (held by monitor=remoteDispatch)"
JOB_CALLS = frozenset({"save", "saveFlags", "restore", "restoreFlags", "createWithFlags", "create", "migrateToURI3"})


class Cluster:
    """Hosts whose libvirtds can reach each other. Thread-safe. Nothing happens between calls but by `advance`.

    `durations_s`: how long what is named takes ("create", "save", "restore", "migrate"; left out: no time). `memories`:
    how guests, by name, use their memory: the course of their migrations is followed, over the links of `transfers`.
    `doubles`: (time, name, hosts) of each domain that ever ran on two hosts at once; `misuses`: calls made from a
    callback. `calls`: (host, call, domain or volume) of every call.
    """

    def __init__(
        self, seed: int = 0, durations_s: Mapping[str, float] | None = None, shared_folders: tuple[str, ...] = ()
    ) -> None:
        self.lock = threading.Condition(threading.RLock())
        self.durations_s = dict(durations_s or {})
        self.shared_folders = shared_folders
        self.common_files: dict[str, Content] = {}
        self.changes = itertools.count(1)  # of files
        self.hosts: dict[str, Host] = {}
        self.addresses: dict[str, str] = {}  # what URIs call a host -> its name
        self.script = Script()
        self.events = Dispatcher()
        self.calls: list[tuple[str, str, str]] = []
        self.doubles: list[tuple[float, str, tuple[str, ...]]] = []
        self.misuses: list[str] = []
        self.guests: dict[str, tuple[float, bool]] = {}  # name -> CPU time after which it ends, whether it obeys
        self.memories: dict[str, GuestMemory] = {}
        self.transfers = Transfers()
        self.waiting = 0  # calls that do not go on by themselves
        self._cut: set[str] = set()
        self._now_s = 0.0
        self._random = random.Random(seed)
        self._tokens = 0
        self._closing = False
        self._released = 0
        self._release_code: int | None = None
        self._threads: dict[int, Fault] = {}  # faults of the calls that take time, by thread

    # --- making it --------------------------------------------------------------------------------------------------

    def add_host(self, name: str, address: str = "", cores: int = 2, mhz: int = 1_000, memory_mib: int = 4_096) -> Host:
        """Add a host with a running libvirtd and return it. URIs refer to it by `name` or `address`."""
        with self.lock:
            host = Host(self, name, self.new_uuid(), cores, mhz, memory_mib)
            self.hosts[name] = host
            self.addresses.update({name: name, address or name: name})
            return host

    def module(self, host: str) -> Module:
        """Return the result of `import libvirt` on a host."""
        return Module(self, self.hosts[host])

    def close(self) -> None:
        """Close the cluster: every call that hangs or takes time fails, and the thread ends."""
        with self.lock:
            self._closing = True
            for host in self.hosts.values():
                for connection in list(host.connections):
                    connection.break_off(Closed.ERROR)
            self.lock.notify_all()
        self.events.close()

    # --- time -------------------------------------------------------------------------------------------------------

    def now_s(self) -> float:
        """Return the seconds since the start."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let time pass: guests burn CPU and end, what takes time comes to its end."""
        with self.lock:
            left_s = seconds
            while left_s > 0.0:
                rates = self._rates()
                step_s = min([left_s, *(_until_end_s(dom, rate) for _, dom, rate in rates)])
                for host, dom, rate in rates:
                    self._burn(host, dom, rate * step_s)
                self._now_s += step_s
                left_s -= step_s
            self.lock.notify_all()

    def changed(self) -> None:
        """Make all waiting calls check their conditions again."""
        self.lock.notify_all()

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Let others go on until it is so, or the world ends: then the connection is broken."""
        self.waiting += 1
        try:
            while not ready():
                if self._closing:
                    fail(*BROKEN)
                self.lock.wait(1.0)
        finally:
            self.waiting -= 1

    # --- scripts ----------------------------------------------------------------------------------------------------

    def fail(self, fault: Fault) -> None:
        """Let calls fail."""
        with self.lock:
            self.script.add(fault)

    def release(self, code: int | None = None) -> None:
        """Release everything that hangs: it continues normally, or fails with `code`."""
        with self.lock:
            self._released += 1
            self._release_code = code
            for host in self.hosts.values():
                for dom in host.domains.values():
                    if dom.job is not None and dom.job.due_s == inf:
                        dom.job.due_s = self._now_s
                        if code is not None:
                            dom.job.error = error(code, From.QEMU, STALLED)
            self.lock.notify_all()

    def cut(self, name: str) -> None:
        """Cut a host's network. Connections between it and other hosts break; its own local connections stay."""
        with self.lock:
            self._cut.add(name)
            for host in self.hosts.values():
                for connection in list(host.connections):
                    if connection.home != host.name and name in (connection.home, host.name):
                        connection.break_off(Closed.KEEPALIVE)
            self.peer_lost(self.hosts[name])
            self.lock.notify_all()

    def mend(self, name: str) -> None:
        """Restore a host's network."""
        with self.lock:
            self._cut.discard(name)

    def reach(self, home: str, address: str) -> Host:
        """Return the host whose libvirtd an address names, seen from the host `home`. Raises libvirtError."""
        host = self.hosts.get(self.addresses.get(address, ""))
        if host is None:
            fail(Err.SYSTEM_ERROR, From.RPC, f"Unable to resolve address '{address}' service '16514'")
        if host.name != home and {home, host.name} & self._cut:
            fail(Err.SYSTEM_ERROR, From.RPC, f"unable to connect to server at '{address}:16514': Connection timed out")
        if not (host.powered and host.serving):
            fail(Err.SYSTEM_ERROR, From.RPC, f"unable to connect to server at '{address}:16514': Connection refused")
        return host

    # --- calls ------------------------------------------------------------------------------------------------------

    def perform(self, connection: Connection, call: str, subject: str, do: Callable[[], Answer]) -> Answer:
        """Carry out a call with what the script has for it."""
        with self.lock:
            if self.events.is_current():
                self.misuses.append(call)
            connection.check()
            self.calls.append((connection.host.name, call, subject))
            fault = self.script.take(call, connection.host.name, subject)
            if fault is not None:
                self._before(fault, connection, call)
            try:
                answer = do()
            finally:
                self._threads.pop(threading.get_ident(), None)
            if fault is not None and fault.how == "lose-answer":
                connection.break_off(Closed.EOF)
            elif fault is not None and fault.how == "answer-late":
                due_s = self._now_s + LATE_S
                self.wait_until(lambda: self._now_s >= due_s or not connection.open_)
            elif fault is not None and fault.how == "die-after":
                connection.host.libvirtd_dies()
            connection.check()
            return answer

    def work(self, host: Host, dom: Dom, kind: str, peer: str = "", transfer: Transfer | None = None) -> Job:
        """Wait for the end of what takes time. Raises libvirtError when it was not to be. `transfer`: its course,
        unless the script has another end for it."""
        fault = self._threads.pop(threading.get_ident(), None)
        takes_s = self.durations_s.get(kind, 0.0)
        job = dom.job = Job(kind, self._now_s, self._now_s + takes_s, peer=peer)
        if fault is not None:
            job.due_s = inf if fault.how == "hang" else self._now_s + takes_s / 2
            job.breaks = fault.how == "break"
        elif transfer is not None:
            job.transfer = transfer
            self.transfers.begin(transfer, self._now_s)
        self.wait_until(lambda: job.over(self._now_s))
        if fault is not None and fault.how == "die" and job.error is None:
            host.libvirtd_dies()
        if dom.job is job:
            dom.job = None
        if transfer is not None:
            self.transfers.end(transfer, self._now_s)
        self.changed()
        if job.breaks and job.error is None:
            job.error = error(fault.code if fault else Err.OPERATION_FAILED, From.QEMU, f"{kind} failed half-way")
        return job

    def wait_for_job(self, host: Host, dom: Dom) -> None:
        """Wait until no job runs on a domain, for at most libvirt's own time limit. Every change of a domain waits for
        this."""
        until_s = self._now_s + LOCK_LIMIT_S
        self.wait_until(lambda: dom.job is None or self._now_s >= until_s or not host.serving)
        if not host.serving:
            fail(*BROKEN)
        if dom.job is not None:
            fail(Err.OPERATION_TIMEOUT, From.QEMU, f"cannot acquire state change lock (held by {dom.job.kind})")
        if host.domains.get(dom.uuid) is not dom:
            fail(Err.NO_DOMAIN, From.NONE, f"no domain with matching uuid '{dom.uuid}' ({dom.name})")

    # --- what hosts ask -----------------------------------------------------------------------------------------------

    def new_uuid(self) -> UUID:
        """Return a new UUID; the sequence is the same for the same seed."""
        return UUID(int=self._random.getrandbits(128), version=4)

    def new_guest(self, name: str) -> Guest:
        """Return a guest that has just booted."""
        self._tokens += 1
        ends_at_s, obeys = self.guests.get(name, (inf, True))
        return Guest(self._tokens, 0.0, ends_at_s, obeys, self.memories.get(name))

    def old_guest(self, name: str, token: int, work_s: float) -> Guest:
        """Return a guest that was saved."""
        ends_at_s, obeys = self.guests.get(name, (inf, True))
        return Guest(token, work_s, ends_at_s, obeys, self.memories.get(name))

    def writers(self, path: str, host: Host, dom: Dom) -> bool:
        """Return whether another domain has a file open for writing."""
        sees = self.hosts.values() if host.files.is_shared(path) else (host,)
        return any(path in other.definition.disks for at in sees for other in at.live() if other.uuid != dom.uuid)

    def note_execution(self, dom: Dom) -> None:
        """Record that a domain executes. If it executes on several hosts, add it to `doubles`."""
        places = tuple(at.name for at in self.hosts.values() for other in at.live() if _same(other, dom))
        if len(places) > 1:
            self.doubles.append((self._now_s, dom.name, places))
        self.changed()

    def peer_lost(self, host: Host) -> None:
        """Migrations from and to a host that nobody reaches any more fail."""
        for at in self.hosts.values():
            for dom in at.live():
                job = dom.job
                if job is not None and job.peer and host.name in (job.peer, at.name):
                    job.error = job.error or error(*BROKEN)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _before(self, fault: Fault, connection: Connection, call: str) -> None:
        takes_time = call in JOB_CALLS
        if fault.how == "raise":
            raise error(fault.code, fault.domain, "by the script")
        if takes_time and fault.how in ("hang", "break", "die"):
            self._threads[threading.get_ident()] = fault
        elif fault.how == "hang":
            released = self._released
            self.wait_until(lambda: self._released > released or not connection.open_)
            connection.check()
            if self._release_code is not None:
                raise error(self._release_code, From.QEMU, STALLED)
        elif fault.how == "break":
            raise error(fault.code, fault.domain, "by the script")
        elif fault.how == "die":
            connection.host.libvirtd_dies()
            connection.check()

    def _rates(self) -> list[tuple[Host, Dom, float]]:
        rates: list[tuple[Host, Dom, float]] = []
        for host in self.hosts.values():
            doms = [dom for dom in host.live() if dom.running]
            got = shares(float(host.cores), [(dom.weight(), dom.most_cores()) for dom in doms])
            rates.extend((host, dom, rate) for dom, rate in zip(doms, got, strict=True))
        return rates

    def _burn(self, host: Host, dom: Dom, cpu_s: float) -> None:
        guest = dom.guest
        if guest is None:
            return
        dom.cpu_s += cpu_s
        guest.work_s += cpu_s
        if guest.work_s >= guest.ends_at_s - 1e-9:
            host.end_guest(dom)


def _until_end_s(dom: Dom, rate: float) -> float:
    if dom.guest is None or rate <= 0.0:
        return inf
    return max(0.0, (dom.guest.ends_at_s - dom.guest.work_s) / rate)


def _same(one: Dom, other: Dom) -> bool:
    return one.running and one.name == other.name
