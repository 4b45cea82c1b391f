"""What all operations share: this node's libvirt, its configuration, and the small things that are done to domains."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from agents.hypervisors.libvirt import connection, domain_xml, metadata, storage
from agents.hypervisors.libvirt.binding import Connection, Domain
from agents.hypervisors.libvirt.capacity import Cpu, Features
from agents.hypervisors.libvirt.codes import (
    ENDING_ACTIONS,
    METADATA_ELEMENT,
    UNDEFINE_CHECKPOINTS,
    UNDEFINE_KEEP_NVRAM,
    UNDEFINE_KEEP_TPM,
    UNDEFINE_MANAGED_SAVE,
    UNDEFINE_NVRAM,
    UNDEFINE_SNAPSHOTS,
    Affect,
    DomainState,
    LifecycleAction,
    LifecycleEvent,
    XmlFlag,
)
from agents.hypervisors.libvirt.connection import LibvirtConnection
from agents.hypervisors.libvirt.errors import NotThere
from agents.hypervisors.libvirt.metadata import Meta
from agents.hypervisors.libvirt.migration_needs import is_nvram_local
from agents.hypervisors.libvirt.statistics import ObservedDomain, Reader, has_checkpoints
from agents.hypervisors.libvirt.templates import Template
from shared.base.errors import TrimtabError
from shared.config.agent import LibvirtKeys
from shared.values.actions import Outcome
from shared.values.vms import VmState, VmStatus


class GivenUp(Exception):
    """The operation was aborted."""


class Answered(Exception):
    """The operation is answered thus, and has changed nothing."""

    def __init__(self, outcome: Outcome, detail: str = "") -> None:
        super().__init__(detail)
        self.outcome, self.detail = outcome, detail


@dataclass(slots=True)
class Task:
    """An operation in progress, from the view of the code that carries it out. `held_mib`: memory that it will take and
    that is not visible yet."""

    given_up: threading.Event = field(default_factory=threading.Event)
    cancel: Callable[[], None] | None = None
    held_mib: int = 0

    def stop(self) -> None:
        """Raise GivenUp when the operation was aborted."""
        if self.given_up.is_set():
            raise GivenUp


WATCH_S = 0.5
DIRTY_RATE_EVERY_S = 30.0


@dataclass(slots=True)
class Site:
    """A node. `features` are what its libvirt can do, known after the first connection. `watch_s`: how often a
    migration is looked at; `dirty_rate_every_s`: how often the dirty rate of one VM is measured (0: never)."""

    node: str
    link: LibvirtConnection
    reader: Reader
    keys: LibvirtKeys
    cpu: Cpu
    templates: Mapping[str, Template]
    reach: Callable[[str], None] = connection.reach
    features: Features = field(default_factory=Features)
    last: dict[str, ObservedDomain] = field(default_factory=dict)
    watch_s: float = WATCH_S
    dirty_rate_every_s: float = DIRTY_RATE_EVERY_S

    @property
    def errors(self) -> type[Exception]:
        """What libvirt's calls raise."""
        return self.link.module.libvirtError

    def peer_uri(self, node: str) -> str:
        """Return the URI of another node's libvirt."""
        return self.keys.migration.peer.format_map(_Host(self.keys.hosts.get(node, node)))

    def data_uri(self, node: str) -> str:
        """Return the URI that memory is sent to ("": chosen by libvirt)."""
        return self.keys.migration.data.format_map(_Host(self.keys.hosts.get(node, node)))

    @contextmanager
    def peer(self, node: str) -> Iterator[Connection]:
        """Another node's libvirt. Raises Unavailable where it cannot be reached."""
        with connection.peer(self.link.module, self.peer_uri(node), self.reach) as raw:
            yield raw

    def see(self, vm: str) -> ObservedDomain | None:
        """Return a domain of this node in its current state. Raises TrimtabError."""
        with self.link.use(f"look for {vm}") as conn:
            seen = self.reader.read_one(conn, vm)
        if seen is not None:
            self.last[vm] = seen
        return seen

    def latest(self, vm: str, fallback: ObservedDomain) -> ObservedDomain:
        """Return the last reading of a domain that may be gone by now."""
        found = self.last.get(vm)
        return found if found is not None and found.generation == fallback.generation else fallback

    @contextmanager
    def domain(self, vm: str, doing: str) -> Iterator[tuple[Connection, Domain]]:
        """Yield a domain for some calls, and map their errors to TrimtabError."""
        with self.link.use(f"{doing} {vm}") as conn:
            domain = conn.lookupByName(vm)
            try:
                yield conn, domain
            finally:
                self.reader.forget(domain.UUIDString())

    def set_meta(self, vm: str, meta: Meta, config_only: bool = False) -> None:
        """Write our metadata onto a domain: as it runs, and as it is defined."""
        with self.domain(vm, "note what is known of") as (_conn, domain):
            flags = affects(domain) & (Affect.CONFIG if config_only else Affect.LIVE | Affect.CONFIG)
            if config_only and not flags:
                return  # nothing defines it
            domain.setMetadata(METADATA_ELEMENT, metadata.text_of(meta), metadata.PREFIX, metadata.URI, flags)

    def clear_meta(self, vm: str) -> None:
        """Remove our metadata from a domain that was adopted, and leave no trace of them: as it runs, and as it is
        defined."""
        with self.domain(vm, "release") as (conn, domain):
            flags = affects(domain) & (Affect.LIVE | Affect.CONFIG)
            domain.setMetadata(METADATA_ELEMENT, None, metadata.PREFIX, metadata.URI, flags)
            if domain.isPersistent():
                text = domain.XMLDesc(XmlFlag.INACTIVE | XmlFlag.SECURE)
                if domain_xml.has_empty_metadata(text):  # libvirt keeps the element that it made for ours
                    conn.defineXML(domain_xml.without_meta(text))

    def set_cpu(self, vm: str, vcpus: int, meta: Meta) -> None:
        """Set weight and quota of a domain to what its metadata say, as it runs and as it is defined. Of one that was
        adopted it is the weight alone, as it runs, once an order has changed that: quota and period are its owner's.
        """
        if meta.owners_cpu:
            return
        with self.domain(vm, "set the CPU of") as (_conn, domain):
            shares = self.cpu.shares(meta.cpu_mhz)
            if not self.features.paused:
                domain.setSchedulerParameters({"weight": shares})
                return
            wanted = {"cpu_shares": shares}
            if not meta.adopted:
                tuning = self.cpu.tuning(meta.cpu_mhz, meta.cap_mhz, vcpus)
                wanted |= {"vcpu_period": tuning.period_us, "vcpu_quota": tuning.quota_us}
            flags = (Affect.LIVE,) if meta.adopted else (Affect.CONFIG, Affect.LIVE)
            for flag in flags:  # the binding cannot do both in one call
                if affects(domain) & flag:
                    domain.setSchedulerParametersFlags(wanted, flag)

    def autostarts(self, vm: str) -> bool:
        """Return whether a domain starts with its host."""
        with self.domain(vm, "ask for the autostart of") as (_conn, domain):
            return bool(domain.isPersistent() and domain.autostart())

    def set_autostart(self, vm: str, on: bool) -> None:
        """Have a domain start with its host, or not; one that nothing defines cannot."""
        with self.domain(vm, "set the autostart of") as (_conn, domain):
            if domain.isPersistent():
                domain.setAutostart(int(on))

    def hasten(self, vm: str, meta: Meta) -> None:
        """Give a domain that executes the weight with which an operation on it gets through, unless its weight is its
        owner's; `set_cpu` ends that."""
        if meta.owners_cpu:
            return
        with self.domain(vm, "hasten") as (_conn, domain):
            if self.features.paused and affects(domain) & Affect.LIVE:
                domain.setSchedulerParametersFlags({"cpu_shares": self.cpu.hasty_shares(meta.cpu_mhz)}, Affect.LIVE)

    def set_state(self, vm: str, running: bool) -> None:
        """Let a domain run, or pause it; one that does so already is left alone."""
        with self.domain(vm, "resume" if running else "pause") as (_conn, domain):
            paused = _is_paused(domain)
            if running and paused:
                domain.resume()
            elif not running and not paused:
                domain.suspend()

    def destroy(self, vm: str) -> None:
        """Cut a domain off; one that does not run is fine."""
        with self.domain(vm, "end") as (_conn, domain):
            if domain.isActive():
                domain.destroyFlags(0)

    def reset_cpu(self, vm: str) -> None:
        """Give a domain that runs the weight of its definition again."""
        with self.domain(vm, "reset the CPU of") as (_conn, domain):
            if not (self.features.paused and affects(domain) & Affect.LIVE):
                return
            plain = self.cpu.plain_shares
            kept = domain_xml.shares_of(domain.XMLDesc(XmlFlag.INACTIVE)) or plain
            if (domain_xml.shares_of(domain.XMLDesc(0)) or plain) != kept:
                domain.setSchedulerParametersFlags({"cpu_shares": kept}, Affect.LIVE)

    def set_stays_off(self, vm: str, on: bool) -> None:
        """Have libvirt leave a domain off when its guest shuts down or crashes (`on`), or do what its definition says:
        as it runs, never as it is defined."""
        with self.domain(vm, "say what follows the end of") as (_conn, domain):
            for event, action in self._end_actions(domain, on).items():
                domain.setLifecycleAction(event, action.number, Affect.LIVE)

    def stays_off(self, vm: str) -> bool:
        """Return whether nothing is left to do of `set_stays_off`."""
        with self.domain(vm, "ask what follows the end of") as (_conn, domain):
            return not self._end_actions(domain, on=True)

    def _end_actions(self, domain: Domain, on: bool) -> dict[LifecycleEvent, LifecycleAction]:
        """Return the actions of a domain as it runs that are to be others."""
        if not (self.features.paused and affects(domain) & Affect.LIVE):
            return {}
        try:
            now = domain_xml.end_actions_of(domain.XMLDesc(0))
            if on:
                wanted = {event: ENDING_ACTIONS.get(action, action) for event, action in now.items()}
            else:
                wanted = domain_xml.end_actions_of(domain.XMLDesc(XmlFlag.INACTIVE))
        except ValueError as error:
            raise TrimtabError(f"{domain.name()}: {error}") from error
        return {event: action for event, action in wanted.items() if action is not now[event]}

    def remove(self, seen: ObservedDomain, moved: bool = False, over: bool = False) -> None:
        """Remove the definition of a domain that does not run; one that is gone is fine. Its volumes are left. A
        definition that we did not make stays, unless the VM lives on elsewhere (`moved`). `over`: the VM has lived here
        until now, so that no other node uses its firmware variables, see `undefine`. The state of its TPM stays where
        the VM may live on: nobody says whether libvirt's folder of it is shared."""
        if seen.adopted and not moved:
            self._rest(seen)
            return
        try:
            with self.domain(seen.facts.name, "remove the definition of") as (_conn, domain):
                if domain.UUIDString() == seen.facts.uuid:
                    keep_nvram = not over and self.shares_nvram(seen)
                    undefine(domain, self.errors, seen, keep_nvram, keep_tpm=moved or may_live_on(seen))
        except NotThere:
            return

    def shares_nvram(self, seen: ObservedDomain) -> bool:
        """Return whether a domain's firmware variables may lie where other nodes see them, too. What is no file counts
        as such."""
        facts = seen.facts
        return facts.uses_nvram and not (facts.nvram and is_nvram_local(facts.nvram, self.reader.here))

    def _rest(self, seen: ObservedDomain) -> None:
        try:
            now = self.see(seen.facts.name)
            if now is not None and now.meta is not None and now.facts.uuid == seen.facts.uuid:
                self.set_meta(
                    seen.facts.name, replace(now.meta, saved="", done="", stamps="", lent="", copied="", begun=True)
                )
        except NotThere:
            return

    def remove_volumes(self, meta: Meta | None) -> None:
        """Remove what was made for a VM: its own disk, unless another node goes on with it, and its saved image."""
        if meta is None:
            return
        with self.link.use("remove volumes") as conn:
            remove_volumes(conn, self.errors, self.keys, meta)

    def inactive_xml(self, vm: str) -> str:
        """Return the definition of a domain, secrets included."""
        with self.domain(vm, "read the definition of") as (_conn, domain):
            return domain.XMLDesc(XmlFlag.INACTIVE | XmlFlag.SECURE)

    def definition(self, vm: str) -> str:
        """Return the definition of a domain without our metadata and without secrets. Raises ValueError where it cannot
        be parsed, and our errors."""
        with self.domain(vm, "read the definition of") as (_conn, domain):
            return domain_xml.without_meta(domain.XMLDesc(XmlFlag.INACTIVE))

    def make_persistent(self, vm: str) -> None:
        """Keep the definition of a domain that somebody has started without one."""
        with self.domain(vm, "keep the definition of") as (conn, domain):
            if not domain.isPersistent():
                conn.defineXML(domain.XMLDesc(XmlFlag.INACTIVE | XmlFlag.SECURE))


def undefine(domain: Domain, errors: type[Exception], seen: ObservedDomain, keep_nvram: bool, keep_tpm: bool) -> None:
    """Remove a definition with all that libvirt keeps with it. `keep_nvram`, `keep_tpm`: its firmware variables and the
    state of its TPM stay, since the VM may use the same files on another node."""
    flags = UNDEFINE_MANAGED_SAVE | UNDEFINE_SNAPSHOTS
    if has_checkpoints(domain, errors):  # not every driver has this flag
        flags |= UNDEFINE_CHECKPOINTS
    if seen.facts.uses_nvram:  # without either flag libvirt does not remove the definition
        flags |= UNDEFINE_KEEP_NVRAM if keep_nvram else UNDEFINE_NVRAM
    if seen.facts.uses_tpm and keep_tpm:
        flags |= UNDEFINE_KEEP_TPM
    domain.undefineFlags(flags)


def may_live_on(seen: ObservedDomain) -> bool:
    """Return whether the VM of a definition may be on another node: it has moved, or its image may be resumed there."""
    meta = seen.meta or Meta()
    return seen.left or seen.state is VmState.SUSPENDED or bool(meta.lent or meta.saved or meta.done)


def remove_volumes(conn: Connection, errors: type[Exception], keys: LibvirtKeys, meta: Meta) -> None:
    """See `Site.remove_volumes`; on any node."""
    images = [(keys.save_pool, image) for image in (meta.saved, meta.done)]
    for pool, volume in (*images, (meta.pool, "" if meta.lent else meta.volume)):
        if volume:
            try:
                storage.remove(conn, errors, pool, volume)
            except NotThere:
                continue  # the pool is gone


def affects(domain: Domain) -> int:
    """Return the flags for a change: it affects the running domain and the definition, as far as each exists."""
    live = Affect.LIVE if domain.isActive() else Affect.CURRENT
    return live | (Affect.CONFIG if domain.isPersistent() else Affect.CURRENT)


def status_of(seen: ObservedDomain | None) -> VmStatus | None:
    """Return the status; None if there is nothing."""
    return None if seen is None or seen.state is None else seen.status()


def _is_paused(domain: Domain) -> bool:
    return domain.state(0)[0] == DomainState.PAUSED


class _Host(dict[str, Any]):
    """Fills in `{host}` and leaves all else as it is."""

    def __init__(self, host: str) -> None:
        super().__init__(host=host)

    def __missing__(self, key: str) -> str:
        return "{" + key + "}"
