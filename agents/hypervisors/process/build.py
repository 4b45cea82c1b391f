"""Makes the driver from the agent's configuration."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from agents.drivers.systemd import SystemdBus
from agents.hypervisors.process import programs
from agents.hypervisors.process.cgroup_runner import CgroupRunner
from agents.hypervisors.process.cgroups import Hierarchies, mounted
from agents.hypervisors.process.driver import ProcessHypervisor, Setting
from agents.hypervisors.process.machine import node_of
from agents.hypervisors.process.runner import Runner
from agents.hypervisors.process.systemd_runner import SystemdRunner
from shared.base.errors import InvalidInput, Problem
from shared.config.agent import AgentConfig, RunnerName
from shared.runtime import startup
from shared.values.nodes import Node

MOUNTS = "/proc/self/mounts"


def check_config(config: AgentConfig) -> None:
    """Raise InvalidInput with all programs that cannot be run as they are written, and where the clock must be said."""
    problems: list[Problem] = []
    looks = (partial(programs.check, config.process.programs), partial(node_of, "here", config.process))
    for look in looks:
        try:
            look()
        except InvalidInput as error:
            problems += error.problems
    if problems:
        raise InvalidInput(*problems)


def from_config(config: AgentConfig, wake: Callable[[], None]) -> ProcessHypervisor:
    """Build the driver for the programs of this node. Raises InvalidInput with everything that cannot be used."""
    keys = config.process
    programs.check(keys.programs)
    name = config.node.name or startup.host_name()
    node = node_of(name, keys)
    core_mhz = node.core_mhz * config.core_mhz_factor
    here = programs.Here(name, config.node.address)
    setting = Setting(node, core_mhz, startup.boot_id(), Path(keys.state), here, keys.programs, keys.stop_limit_s)
    return ProcessHypervisor(setting, _runner(config, node, core_mhz), wake)


def _runner(config: AgentConfig, node: Node, core_mhz: float) -> Runner:
    if config.process.runner is RunnerName.SYSTEMD:
        return SystemdRunner(config.process, SystemdBus(), node.cores * core_mhz)
    hierarchies = Hierarchies(config.process.cgroup, mounted(Path(MOUNTS).read_text("utf-8")))
    return CgroupRunner(config.process, hierarchies, node.cores, node.memory_mib, node.cores * core_mhz)
