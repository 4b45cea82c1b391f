"""One host of the cluster: its domains and files, and the events that happen to it from any cause."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Condition
from typing import Any, Protocol
from uuid import UUID

from sim_backend.fake_libvirt.codes import (
    LIFECYCLE,
    METADATA_CHANGE,
    Closed,
    Detail,
    Err,
    From,
    Life,
    Off,
    Paused,
    RunningReason,
    State,
    Stopped,
    error,
    fail,
    libvirtError,
)
from sim_backend.fake_libvirt.definition import Definition, parse
from sim_backend.fake_libvirt.files import Content, Files
from sim_backend.fake_libvirt.hardware import Hardware
from sim_backend.fake_libvirt.refusals import check_start, pages_kib
from sim_backend.fake_libvirt.state import Dom, Guest, Job, PoolState
from sim_backend.fake_libvirt.transfers import Transfer, Transfers

BROKEN = (Err.INTERNAL_ERROR, From.RPC, "client socket is closed")
QEMU_GONE = "qemu unexpectedly closed the monitor: "


class Listener(Protocol):
    """A connection to a host, as the host sees it."""

    @property
    def home(self) -> str:
        """The host that it comes from."""
        ...

    def break_off(self, reason: int) -> None:
        """Break the connection and report the reason to its owner."""
        ...

    def tell(self, event_id: int, dom: Dom, words: tuple[Any, ...]) -> None:
        """Report an event of a domain to the listeners."""
        ...


class Peers(Protocol):
    """The cluster that a host is in, as the host sees it."""

    @property
    def lock(self) -> Condition:
        """What is held while anything happens."""
        ...

    @property
    def common_files(self) -> dict[str, Content]:
        """The files that all hosts share."""
        ...

    @property
    def shared_folders(self) -> tuple[str, ...]:
        """Where those are."""
        ...

    @property
    def transfers(self) -> Transfers:
        """The migrations whose course is followed."""
        ...

    @property
    def changes(self) -> Iterator[int]:
        """The numbers of changes of files."""
        ...

    def now_s(self) -> float:
        """Return the time since the beginning."""
        ...

    def changed(self) -> None:
        """Make all waiting calls check their conditions again."""
        ...

    def new_uuid(self) -> UUID:
        """Return one that is not there yet."""
        ...

    def new_guest(self, name: str) -> Guest:
        """Boot a guest."""
        ...

    def old_guest(self, name: str, token: int, work_s: float) -> Guest:
        """Return a guest that was saved."""
        ...

    def writers(self, path: str, host: Host, dom: Dom) -> bool:
        """Return whether another domain has a file open for writing."""
        ...

    def note_execution(self, dom: Dom) -> None:
        """Note that a domain executes."""
        ...

    def peer_lost(self, host: Host) -> None:
        """Break what others do with a host that nobody reaches any more."""
        ...

    def reach(self, home: str, address: str) -> Host:
        """Return the host at an address; raises libvirtError where `home` does not reach it."""
        ...

    def work(self, host: Host, dom: Dom, kind: str, peer: str = "", transfer: Transfer | None = None) -> Job:
        """Wait for the end of what takes time; raises libvirtError when it was not to be."""
        ...

    def wait_for_job(self, host: Host, dom: Dom) -> None:
        """Wait until no job is on a domain, for as long as libvirt waits."""
        ...


class Host:
    """A machine with a libvirtd. Call everything with the cluster's lock held."""

    def __init__(self, cluster: Peers, name: str, uuid: UUID, cores: int, mhz: int, memory_mib: int) -> None:
        self.cluster, self.name, self.uuid = cluster, name, str(uuid)
        self.cores, self.mhz, self.memory_mib, self.cpu_model = cores, mhz, memory_mib, "EPYC"
        self.hardware = Hardware()
        self.files = Files(cluster.common_files, cluster.shared_folders, cluster.changes)
        self.domains: dict[str, Dom] = {}
        self.pools: dict[str, PoolState] = {}
        self.connections: list[Listener] = []
        self.powered = True
        self.serving = True  # libvirtd
        self._numbers = 0

    # --- domains ----------------------------------------------------------------------------------------------------

    def named(self, name: str) -> Dom | None:
        """Return the domain of that name."""
        return next((dom for dom in self.domains.values() if dom.name == name), None)

    def live(self) -> list[Dom]:
        """Return the active domains."""
        return [dom for dom in self.domains.values() if dom.live is not None]

    def claim(self, wanted: Definition, active: bool) -> Dom | None:
        """Return the domain that this definition belongs to, None when it is new. Refuses a definition that shares only
        name or uuid with a domain and, with `active`, a domain that is active."""
        for dom in self.domains.values():
            if (dom.uuid == wanted.uuid) is not (dom.name == wanted.name):
                how = "already exists" if dom.name == wanted.name else "is already defined"
                fail(Err.OPERATION_FAILED, From.DOMAIN, f"domain '{dom.name}' {how} with uuid {dom.uuid}")
        found = self.domains.get(wanted.uuid)
        if found is not None and active and found.live is not None:
            fail(Err.OPERATION_INVALID, From.DOMAIN, f"domain '{wanted.name}' is already active")
        return found

    def define(self, xml: str) -> Dom:
        """Make or change a persistent domain."""
        wanted = parse(xml, self.cluster.new_uuid())
        dom = self.claim(wanted, active=False)
        known = dom is not None and dom.config is not None
        if dom is None:
            dom = self.domains[wanted.uuid] = Dom(wanted.uuid, wanted.name)
        dom.config = wanted
        self.emit(dom, Life.DEFINED, Detail.UPDATED if known else Detail.ADDED)
        return dom

    def undefine(self, dom: Dom) -> None:
        """Make a domain transient, and remove it if it is not active."""
        dom.config, dom.autostart = None, False
        if dom.live is None:
            self._remove(dom)
        self.emit(dom, Life.UNDEFINED, 0)

    def occupy(self, dom: Dom, definition: Definition, guest: Guest | None) -> None:
        """QEMU starts, with a new guest if none is given; nothing executes yet. Raises libvirtError when it cannot."""
        shares = definition.tune("shares")
        if shares is not None and not 2 <= shares <= 262_144:
            text = "Value of cputune 'shares' must be in range [2, 262144]"
            self._cannot_start(dom, Err.CONFIG_UNSUPPORTED, From.DOMAIN, text)
        for path in definition.disks:
            if self.files.get(path) is None:
                text = f"Cannot access storage file '{path}': No such file or directory"
                self._cannot_start(dom, Err.SYSTEM_ERROR, From.STORAGE, text)
            if guest is None and self.cluster.writers(path, self, dom):
                text = 'process exited while connecting to monitor: Failed to get "write" lock'
                self._cannot_start(dom, Err.INTERNAL_ERROR, From.QEMU, text)
        others = [other for other in self.live() if other is not dom]
        pools = tuple(self.pools.values())
        try:
            check_start(definition, self.cores, self.hardware, self.files, pools, others)
        except libvirtError:
            dom.be(State.SHUTOFF, Off.FAILED)
            if dom.config is None:
                self._remove(dom)
            raise
        used_kib = sum(_ordinary_kib(other.definition) for other in self.live())
        if used_kib + _ordinary_kib(definition) > self.memory_mib - self.hardware.pages_mib << 10:
            text = f"{QEMU_GONE}cannot set up guest memory 'pc.ram': Cannot allocate memory"
            self._cannot_start(dom, Err.INTERNAL_ERROR, From.QEMU, text)
        self._numbers += 1
        dom.live, dom.number, dom.cpu_s, dom.asked_to_end = definition.copy(), self._numbers, 0.0, False
        dom.may_reboot = definition.may_reboot
        dom.guest = guest or self.cluster.new_guest(dom.name)
        dom.be(State.PAUSED, Paused.STARTING_UP)

    def check_started(self, dom: Dom, job: Job) -> None:
        """Raise, with QEMU gone again, when a start or a restore was not to be."""
        if job.error is not None:
            if not job.orphan and dom.live is not None:
                self.halt(dom, Off.FAILED, None)
            raise job.error

    def run(self, dom: Dom, reason: int) -> None:
        """Start executing a domain."""
        dom.be(State.RUNNING, reason)
        self.cluster.note_execution(dom)
        if dom.asked_to_end:
            self.end_guest(dom)

    def halt(self, dom: Dom, reason: int, stopped: int | None) -> None:
        """QEMU is gone, for a reason and with an event."""
        dom.live, dom.guest, dom.number, dom.incoming = None, None, -1, False
        dom.be(State.SHUTOFF, reason)
        if dom.config is None:
            self._remove(dom)
        if stopped is not None:
            self.emit(dom, Life.STOPPED, stopped)
        self.cluster.changed()

    def destroy(self, dom: Dom, reason: int = Off.DESTROYED) -> None:
        """Cut it off."""
        if dom.job is not None:
            text = QEMU_GONE + "terminating on signal 15" if dom.job.incoming else "domain is no longer running"
            code = Err.INTERNAL_ERROR if dom.job.incoming else Err.OPERATION_FAILED
            dom.job.error = error(code, From.QEMU, text)
        if reason == Off.DESTROYED:
            self.emit(dom, Life.SHUTDOWN, Detail.HOST)
        self.halt(dom, reason, Stopped.CRASHED if reason == Off.CRASHED else Stopped.DESTROYED)

    def end_guest(self, dom: Dom) -> None:
        """Shut a domain down as its guest does. With `on_poweroff` as "restart", QEMU stays and boots it again."""
        if dom.job is not None:
            dom.job.error = error(Err.OPERATION_FAILED, From.QEMU, "domain is no longer running")
        self.emit(dom, Life.SHUTDOWN, Detail.GUEST)
        if dom.definition.end_action("poweroff") == "restart":
            self._boot_again(dom, RunningReason.BOOTED)
        else:  # QEMU's driver treats "preserve" like "destroy"
            self.halt(dom, Off.SHUTDOWN, Stopped.SHUTDOWN)

    def panic(self, dom: Dom) -> None:
        """Have a guest with a panic device crash: `on_crash` decides; what is preserved stays where it is."""
        action = dom.definition.end_action("crash")
        if action.endswith("restart"):
            self._boot_again(dom, RunningReason.CRASHED)
        elif action == "preserve":
            dom.be(State.CRASHED, 0)
            self.cluster.changed()
        else:
            self.destroy(dom, Off.CRASHED)

    def _boot_again(self, dom: Dom, reason: int) -> None:
        """Reset a domain whose QEMU goes on: it never counts as off, and no event says that it has started."""
        dom.guest, dom.asked_to_end = self.cluster.new_guest(dom.name), False
        self.resume(dom, reason)

    def pause(self, dom: Dom, reason: int, detail: int = Detail.PAUSED) -> None:
        """Pause a domain."""
        dom.be(State.PAUSED, reason)
        self.emit(dom, Life.SUSPENDED, detail)

    def resume(self, dom: Dom, reason: int, detail: int = Detail.UNPAUSED) -> None:
        """Resume a domain."""
        self.emit(dom, Life.RESUMED, detail)
        self.run(dom, reason)

    def ask_to_end(self, dom: Dom) -> None:
        """Press its power button; a guest that does not execute hears of it later."""
        if dom.guest is not None and dom.guest.obeys:
            if dom.running:
                self.end_guest(dom)
            else:
                dom.asked_to_end = True

    # --- the host itself --------------------------------------------------------------------------------------------

    def libvirtd_dies(self) -> None:
        """Connections break, jobs of other hosts with this one too; domains live on. Why those are off that are, is
        forgotten."""
        self.serving = False
        for dom in self.domains.values():
            if dom.live is None:
                dom.reason = Off.UNKNOWN
        for connection in list(self.connections):
            connection.break_off(Closed.EOF)
        for dom in self.live():
            if dom.job is not None:
                dom.job.error, dom.job.orphan = error(*BROKEN), True
                dom.job = None
        self.cluster.peer_lost(self)
        self.cluster.changed()

    def libvirtd_starts(self) -> None:
        """Start libvirtd, which recovers its domains and cancels their jobs."""
        self.serving = True
        for dom in self.live():
            if dom.incoming:
                self.halt(dom, Off.FAILED, None)  # it was to come here
            elif dom.state == State.PAUSED and dom.reason == Paused.STARTING_UP:
                self.halt(dom, Off.UNKNOWN, None)  # "wasn't fully started yet, killing it"
            elif dom.state == State.PAUSED and dom.reason == Paused.SAVE:
                self.run(dom, RunningReason.SAVE_CANCELED)
        self.cluster.changed()

    def power_off(self) -> None:
        """Switch the host off. All active domains end without an event."""
        self.libvirtd_dies()
        self.powered = False
        for dom in self.live():
            dom.live, dom.guest, dom.number, dom.incoming = None, None, -1, False
            dom.be(State.SHUTOFF, Off.UNKNOWN)
            if dom.config is None:
                self._remove(dom)
        self.cluster.changed()

    def power_on(self) -> None:
        """Switch the host on with libvirtd and the files on its disks."""
        self.powered = True
        self.libvirtd_starts()
        for dom in list(self.domains.values()):
            if dom.autostart and dom.config is not None and dom.live is None:
                self.occupy(dom, dom.config, None)
                self.run(dom, RunningReason.BOOTED)

    # --- telling ----------------------------------------------------------------------------------------------------

    def emit(self, dom: Dom, event: int, detail: int) -> None:
        """Send a lifecycle event to every connection."""
        for connection in self.connections:
            connection.tell(LIFECYCLE, dom, (int(event), int(detail)))

    def emit_metadata(self, dom: Dom, kind: int, uri: str | None) -> None:
        """Metadata has changed."""
        for connection in self.connections:
            connection.tell(METADATA_CHANGE, dom, (kind, uri))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _remove(self, dom: Dom) -> None:
        if self.domains.get(dom.uuid) is dom:
            del self.domains[dom.uuid]

    def _cannot_start(self, dom: Dom, code: int, domain: int, text: str) -> None:
        dom.be(State.SHUTOFF, Off.FAILED)
        if dom.config is None:
            self._remove(dom)
        fail(code, domain, text)


def _ordinary_kib(definition: Definition) -> int:
    """Return the memory of a domain that is not in hugepages, in KiB."""
    return max(0, definition.memory_kib - sum(pages_kib(definition).values()))
