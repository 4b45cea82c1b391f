"""What is run on a machine that has booted, by the agent's user, to see the driver `process` on systemd's units."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from agents.hypervisors.process.build import from_config
from agents.hypervisors.process.driver import ProcessHypervisor
from agents.hypervisors.process.names import escaped
from shared.base.clock import SystemClock
from shared.base.errors import TrimtabError
from shared.config.agent import AgentConfig, NodeFacts, ProcessKeys, Program
from shared.values.actions import Action, ActionKind
from shared.values.vms import VmSpec, VmState
from sim_backend.conformance.hypervisor_checks import CHECKS
from tests.conformance.process_rig import PERL, Harness, guest

TASKS = Path("/srv/tasks")  # the agent's to write, the programs' to read


class Units:
    """The node that the driver makes of the machine."""

    folder = TASKS

    def driver(self) -> ProcessHypervisor:
        """With the runner of a configuration that says nothing."""
        return driver()


def driver(wake: Callable[[], None] = lambda: None) -> ProcessHypervisor:
    """One that runs the guest of the checks, and one that burns."""
    programs = {
        **guest(TASKS),
        "burn": Program((PERL, "-e", "1 while 1")),
        "fail": Program(("/bin/sh", "-c", "echo no paper; id -un; touch /etc/x /run/trimtab/jobs/x 2>&1; exit 3")),
    }
    keys = ProcessKeys(programs=programs, stop_limit_s=1.0, cores=1, core_mhz=1_000.0, memory_mib=1_000)
    return from_config(AgentConfig(node=NodeFacts(name="n1"), process=keys), wake)


def check_all() -> None:
    """Every check that applies; prints the names of those that were kept, and what was wrong."""
    for check in CHECKS:
        if "cpu" in check.needs:
            continue
        harness = Harness(Units(), frozenset({"ends"}))
        if check.applies(harness):
            try:
                check(harness)
                print("kept", check.name)
            except TrimtabError as problem:
                print("BROKEN", check.name, problem)
        _clear(harness)


def _clear(harness: Harness) -> None:
    """End everything, and look after it no more."""
    node, number = harness.node, 0
    for _ in range(5):
        for status in node.vms(0.0):
            number += 1
            node.forget(status.vm, 0.0)
            kinds = (ActionKind.STOP, ActionKind.DISCARD_IMAGE) if status.managed else (ActionKind.ADOPT,)
            spec = VmSpec(status.vm, 1, 1, memory_mib=0, vcpus=1, cpu_mhz=0.0)
            for kind in kinds:
                action = Action(
                    f"c{number}",
                    kind,
                    "n1",
                    vm=status.vm,
                    term=1,
                    boot_id="b",
                    expires_at_s=1e12,
                    expects=status.generation,
                    generation=1,
                    spec=spec,
                )
                node.begin(action, 0.0)
                harness.until(lambda vm=status.vm: not any(s.vm == vm and s.busy for s in node.vms(0.0)))  # type: ignore[misc]
    node.close()
    for task in TASKS.iterdir():
        task.unlink() if task.is_file() else None


def hold(template: str, vm: str) -> None:
    """Start a program, and stay until this process is killed."""
    held = driver()
    spec = VmSpec(vm, 3, 2, memory_mib=50, vcpus=1, cpu_mhz=100.0, template=template)
    held.begin(
        Action(
            "1",
            ActionKind.START,
            "n1",
            vm=vm,
            term=1,
            boot_id="b",
            expires_at_s=1e12,
            expects=0,
            generation=3,
            spec=spec,
        ),
        0.0,
    )
    while not (said := held.poll(0.0)):
        continue
    print(said[0], flush=True)
    sys.stdin.read()


def find() -> None:
    """What a driver that comes anew finds and is told; it then forgets what has ended."""
    found = driver()
    for status in found.vms(0.0):
        print(status.vm, status.state.value, status.generation, status.attempt, status.cpu_time_s > 0.0)
    for event in found.poll(0.0):
        print("told", event)
    over = [status.vm for status in found.vms(0.0) if status.state in (VmState.ENDED, VmState.CRASHED)]
    for vm in over:
        found.forget(vm, 0.0)
    clock = SystemClock()
    limit_s = clock.monotonic_s() + Harness.limit_s
    while any((Path(ProcessKeys().state) / escaped(vm)).exists() for vm in over):
        assert clock.monotonic_s() < limit_s
        clock.sleep(Harness.pause_s)
