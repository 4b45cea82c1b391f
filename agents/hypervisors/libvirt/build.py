"""Makes the driver from the agent's configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

from agents.collectors.clock import base_clock_mhz
from agents.hypervisors.libvirt import binding, capacity, connection, templates
from agents.hypervisors.libvirt.binding import Module, check_installed
from agents.hypervisors.libvirt.capacity import Cpu
from agents.hypervisors.libvirt.connection import LibvirtConnection
from agents.hypervisors.libvirt.driver import LibvirtHypervisor
from agents.hypervisors.libvirt.machine import LocalMachine, Machine, NoMachine
from agents.hypervisors.libvirt.site import Site
from agents.hypervisors.libvirt.statistics import Reader
from agents.hypervisors.libvirt.templates import Template
from shared.base.errors import InvalidInput, Problem
from shared.config.agent import AgentConfig, CopyStorage, LibvirtKeys
from shared.runtime import startup

MHZ_UNKNOWN = 1_000.0


def check_config(config: AgentConfig) -> None:
    """Raise InvalidInput with all that is wrong with the driver's keys and its templates, or without the library;
    libvirt is not asked."""
    problems: list[Problem] = []
    for check in (check_installed, partial(_checked, config.libvirt)):
        try:
            check()
        except InvalidInput as error:
            problems += error.problems
    if problems:
        raise InvalidInput(*problems)


def from_config(config: AgentConfig, wake: Callable[[], None]) -> LibvirtHypervisor:
    """Build the hypervisor driver of this node. Raises InvalidInput with everything that cannot be used."""
    machine = NoMachine() if urlsplit(config.hypervisor.uri).netloc else LocalMachine()
    return from_module(with_clock(config, base_clock_mhz), wake, binding.real(), machine=machine)


def with_clock(config: AgentConfig, clock_mhz: Callable[[], float | None]) -> AgentConfig:
    """Fill in this machine's base clock where none is configured, since libvirt reports the momentary clock. Change
    nothing if libvirt runs on another machine or is its test driver."""
    address = urlsplit(config.hypervisor.uri)
    if config.libvirt.core_mhz is not None or address.netloc or address.scheme.startswith("test"):
        return config
    return replace(config, libvirt=replace(config.libvirt, core_mhz=clock_mhz()))


def from_module(
    config: AgentConfig,
    wake: Callable[[], None],
    module: Module,
    reach: Callable[[str], None] = connection.reach,
    retry_s: float = connection.RETRY_S,
    machine: Machine | None = None,
) -> LibvirtHypervisor:
    """Build the same with another module in place of libvirt. `reach` raises Unavailable for URIs where nobody answers;
    `retry_s` is the wait before it connects again; `machine`: where libvirt runs (None: it cannot be looked at)."""
    keys = config.libvirt
    found = _checked(keys)
    name = config.node.name or startup.host_name()
    core_mhz = (keys.core_mhz or 0.0) * config.core_mhz_factor
    cpu = Cpu(core_mhz or MHZ_UNKNOWN, keys.core_frac, capacity.cgroup_version())
    relay = _Relay()
    link = LibvirtConnection(module, config.hypervisor.uri, keys.keepalive_s, relay, retry_s)
    site = Site(name, link, Reader(module.libvirtError, cpu), keys=keys, cpu=cpu, templates=found, reach=reach)
    driver = LibvirtHypervisor(site, wake, core_mhz_factor=config.core_mhz_factor, machine=machine or NoMachine())
    relay.target = driver
    driver.start()
    return driver


def _checked(keys: LibvirtKeys) -> dict[str, Template]:
    """Return the templates. Raises InvalidInput with every problem found."""
    problems = _wrong(keys)
    try:
        found = templates.read_all(keys.templates)
    except InvalidInput as error:
        raise InvalidInput(*problems, *error.problems) from error
    if problems:
        raise InvalidInput(*problems)
    return found


def _wrong(keys: LibvirtKeys) -> list[Problem]:
    """Return the problems of keys that conflict. Saved images are not disks: their pool may be shared in any case."""
    shared = [pool for pool in keys.shared_pools if pool != keys.save_pool or pool == keys.pool]
    if keys.migration.copy_storage is not CopyStorage.ALWAYS or not shared:
        return []
    what = f"is 'always': a disk in {', '.join(shared)}, which all nodes share, would be copied onto itself"
    return [Problem("libvirt.migration.copy_storage", what, "auto, or no such pool in libvirt.shared_pools")]


class _Relay:
    """Passes libvirt's notifications on to the driver, which is created after the link."""

    def __init__(self) -> None:
        self.target: LibvirtHypervisor | None = None

    def happened(self, vm: str, uuid: str, event: int, detail: int) -> None:
        """See `connection.Listener`."""
        if self.target is not None:
            self.target.happened(vm, uuid, event, detail)

    def edited(self, uuid: str) -> None:
        """See `connection.Listener`."""
        if self.target is not None:
            self.target.edited(uuid)

    def connected(self) -> None:
        """See `connection.Listener`."""
        if self.target is not None:
            self.target.connected()

    def failed(self, error: BaseException) -> None:
        """See `connection.Listener`."""
        if self.target is not None:
            self.target.failed(error)
