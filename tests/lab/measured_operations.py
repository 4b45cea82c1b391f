"""What the same operation takes by virsh, by the driver `libvirt`, and by Trimtab as a whole, on the same two hosts.

All three do it to the same domain: virsh's is the driver's under another name. One VM lives at a time; the ways take
turns, so that whatever else the machine does meets all of them.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Protocol
from xml.etree import ElementTree

from agents.hypervisors.libvirt.binding import real
from agents.hypervisors.libvirt.build import from_module
from agents.hypervisors.libvirt.driver import LibvirtHypervisor
from daemons.cli.connection import Access, ControllerConnection, OperatorConfig
from shared.base.clock import perf_s
from shared.config import toml
from shared.config.agent import AgentConfig, HypervisorChoice
from shared.ports.effects import Operated
from shared.protocol.operator_messages import CancelJob, HoldJob, MoveVm, Request, SubmitJob
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.jobs import Job, Rules, Stage
from shared.values.vms import VmSpec
from tests.integration.harness import CLOCK
from tests.lab.cluster import IMAGES, MEMORY_MIB, Cluster
from tests.lab.guest_output import units_done
from tests.lab.guests import Kind, domain_xml, serial_file
from tests.lab.hosts import Host
from tests.lab.measured_bus import Heard, Tap

KINDS = (
    *(ActionKind.START, ActionKind.SET_CPU, ActionKind.MIGRATE),
    *(ActionKind.SUSPEND, ActionKind.RESUME, ActionKind.STOP),
)
VIRSH, DRIVER, AGENT, WHOLE = "virsh", "driver", "agent", "whole"
"""`agent`: from an order of the controller's to the agent's answer; `whole`: from an operator's request to it."""
FULL_MHZ, LESS_MHZ = 800.0, 400.0  # of a core of 1,000 MHz
UNITS = 1_000_000
WORK_S, GOAL_S = 60.0, 80.0  # of an urgent job: it needs most of a core
LIMIT_S = 60.0
LOOK_S = 0.01
Took = Mapping[str, float]
"""Seconds, by way."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long one operation took by one way."""

    kind: ActionKind
    way: str
    took_s: float


class OperationRunner(Protocol):
    """Somebody who can do operations. The VM is started on the first host, moved to the second, and stays there."""

    def go(self, kind: ActionKind, vm: str) -> Took:
        """Do it to a VM; how long it took."""
        ...

    def serial(self, vm: str) -> Path:
        """Where its guest prints."""
        ...


def cycle(operations: OperationRunner, vm: str, kinds: Sequence[ActionKind] = KINDS) -> list[Timing]:
    """All operations once, with a guest that works: it has done a unit when it has just come to life."""
    found: list[Timing] = []
    for kind in kinds:
        found += [Timing(kind, way, took_s) for way, took_s in operations.go(kind, vm).items()]
        if kind in (ActionKind.START, ActionKind.RESUME):
            _until_it_works(operations.serial(vm))
    return found


def _until_it_works(serial: Path) -> None:
    before, until_s = len(units_done([serial])), CLOCK.monotonic_s() + LIMIT_S
    while len(units_done([serial])) == before:
        assert CLOCK.monotonic_s() < until_s, f"the guest of {serial} does not work"
        CLOCK.sleep(LOOK_S)


class Virsh:
    """Plain virsh: a process for each operation. `xml` is that of a domain `model` with a volume named after it."""

    def __init__(self, made: Cluster, xml: str, model: str, volume: str) -> None:
        self._first, self._second = made.hosts.hosts
        self._folder, self._places = made.lab.folder, made.lab.places
        self._xml, self._model, self._volume = xml, model, volume

    def serial(self, vm: str) -> Path:
        """See `OperationRunner`."""
        return serial_file(self._places, vm)

    def go(self, kind: ActionKind, vm: str) -> Took:
        """See `OperationRunner`."""
        file = self._folder / f"{vm}.xml"
        file.write_text(self._domain(vm))
        begun_s = perf_s()
        self._do(kind, vm, file)
        return {VIRSH: perf_s() - begun_s}

    def nothing_s(self) -> float:
        """What virsh takes to ask its libvirtd for next to nothing."""
        begun_s = perf_s()
        run(self._first, "uri")
        return perf_s() - begun_s

    def _domain(self, vm: str) -> str:
        """The model's, as somebody else's VM."""
        root = ElementTree.fromstring(self._xml.replace(self._volume, f"{vm}.disk").replace(self._model, vm))
        for tag in ("uuid", "metadata"):
            for element in root.findall(tag):
                root.remove(element)
        return ElementTree.tostring(root, encoding="unicode")

    def _do(self, kind: ActionKind, vm: str, file: Path) -> None:
        saved = self._folder / f"{vm}.saved"
        if kind is ActionKind.START:
            base = f"--format qcow2 --backing-vol {IMAGES[Kind.BURNER]} --backing-vol-format raw"
            run(self._first, f"vol-create-as shared {vm}.disk 64K {base}; define {file}; start {vm}")
        elif kind is ActionKind.SET_CPU:
            quota = f"--set cpu_shares={round(LESS_MHZ)} --set vcpu_quota={round(LESS_MHZ * 100)}"
            run(self._first, f"schedinfo {vm} --live {quota}; schedinfo {vm} --config {quota}")
        elif kind is ActionKind.MIGRATE:
            how = "--live --p2p --unsafe --persistent --undefinesource"
            run(self._first, f"migrate {how} {vm} qemu+tcp://{self._second.address}/system")
        elif kind is ActionKind.SUSPEND:
            run(self._second, f"save {vm} {saved}")
        elif kind is ActionKind.RESUME:
            run(self._second, f"restore {saved}")
            saved.unlink()
        else:
            run(self._second, f"shutdown {vm}")
            while run(self._second, f"domstate {vm}") != "shut off":
                CLOCK.sleep(LOOK_S)
            run(self._second, f"undefine {vm}; pool-refresh shared; vol-delete {vm}.disk shared")


def run(host: Host, commands: str) -> str:
    """What one process of virsh prints that does these to a host."""
    done = subprocess.run(
        ["virsh", "-q", "-c", host.uri, commands], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, f"{commands}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def create(host: Host, template: Path, values: Mapping[str, str], file: Path, cpus: str = "") -> None:
    """Start a transient domain from a template in the host's partition; its XML is written to `file`."""
    root = ElementTree.fromstring(domain_xml(template, values, cpus))
    ElementTree.SubElement(ElementTree.SubElement(root, "resource"), "partition").text = host.partition
    file.write_text(ElementTree.tostring(root, encoding="unicode"))
    run(host, f"create {file}")


class Driver:
    """The driver in this process, with the configuration of the hosts' agents, who must not be at work."""

    def __init__(self, made: Cluster) -> None:
        self._places = made.lab.places
        self._heard = threading.Event()
        self._hosts = {host.name: self._driver(made.lab.folder, host) for host in made.hosts.hosts}
        self._names, self._ids = tuple(self._hosts), count(1)
        self._generation = 0

    def _driver(self, folder: Path, host: Host) -> LibvirtHypervisor:
        config = toml.load(folder / f"agent-{host.name}.toml", AgentConfig)
        config = replace(config, hypervisor=HypervisorChoice("libvirt", host.uri))
        driver = from_module(config, self._heard.set, real())
        driver.vms(0.0)
        return driver

    def serial(self, vm: str) -> Path:
        """See `OperationRunner`."""
        return serial_file(self._places, vm)

    def go(self, kind: ActionKind, vm: str) -> Took:
        """See `OperationRunner`."""
        first, second = self._names
        node = first if kind in (ActionKind.START, ActionKind.SET_CPU, ActionKind.MIGRATE) else second
        spec = VmSpec(
            vm,
            self._generation,
            1,
            memory_mib=MEMORY_MIB,
            vcpus=1,
            cpu_mhz=FULL_MHZ,
            cap_mhz=FULL_MHZ,
            template=Kind.BURNER,
            arguments=(str(UNITS),),
        )
        action = Action(f"a{next(self._ids)}", kind, node, vm=vm, term=1, boot_id="boot", expires_at_s=1e12)
        expects = self._generation
        if kind in (ActionKind.START, ActionKind.RESUME):
            self._generation += 1
            spec = replace(spec, generation=self._generation)
        wanted = {
            ActionKind.START: {"spec": spec, "generation": self._generation},
            ActionKind.RESUME: {"spec": spec, "generation": self._generation, "expects": expects},
            ActionKind.MIGRATE: {"to_node": second, "generation": expects, "expects": expects},
            ActionKind.SUSPEND: {"generation": expects, "expects": expects},
            ActionKind.SET_CPU: {"cpu_mhz": LESS_MHZ, "cap_mhz": LESS_MHZ, "expects": expects, "generation": expects},
        }
        fields = wanted.get(kind, {"expects": expects})
        begun_s = perf_s()
        self._hosts[node].begin(replace(action, **fields), 0.0)  # type: ignore[arg-type]
        self._until_answered(action.id)
        took_s = perf_s() - begun_s
        if kind is ActionKind.STOP:
            self._generation = 0
        return {DRIVER: took_s}

    def model(self, made: Cluster, vm: str) -> Virsh:
        """Plain virsh with the domain of a VM that was started here."""
        xml = made.hosts.hosts[0].virsh("dumpxml", "--inactive", vm)
        return Virsh(made, xml, vm, f"{vm}.g{self._generation}")

    def close(self) -> None:
        """Let go of libvirt."""
        for driver in self._hosts.values():
            driver.close()

    def _until_answered(self, action: str) -> None:
        until_s = CLOCK.monotonic_s() + LIMIT_S
        while CLOCK.monotonic_s() < until_s:
            self._heard.wait(1.0)
            self._heard.clear()
            for driver in self._hosts.values():
                for told in driver.poll(0.0):
                    if isinstance(told, Operated) and told.call_id == action:
                        assert told.outcome is Outcome.OK, told
                        return
        raise AssertionError(f"{action} was not answered")


@contextmanager
def driving(made: Cluster) -> Iterator[Driver]:
    """A driver for each host."""
    driver = Driver(made)
    try:
        yield driver
    finally:
        driver.close()


class Trimtab:
    """An operator's requests, the controller's orders for them and the agents' answers, as they pass the broker."""

    def __init__(self, made: Cluster, tap: Tap, line: ControllerConnection) -> None:
        self._made, self._tap, self._line = made, tap, line

    def serial(self, vm: str) -> Path:
        """See `OperationRunner`."""
        return serial_file(self._made.lab.places, f"{vm}#0")

    def go(self, kind: ActionKind, vm: str) -> Took:
        """See `OperationRunner`; `vm` is its job. It is the policy that sets CPU: another job comes for that, and goes
        again."""
        if kind is ActionKind.SET_CPU:
            return self.weighed(vm)
        return self._asked(self._request(kind, vm), kind, vm)

    def submit(
        self,
        job: str,
        max_mhz: float = FULL_MHZ,
        *,
        kind: Kind = Kind.BURNER,
        goal_s: float | None = None,
        **keys: Any,
    ) -> SubmitJob:
        """The request for a job of guests without an end, a best effort or with `goal_s` from now for a minute of work
        at its full speed; `keys` go to the job."""
        work_mcycles = max_mhz * (WORK_S if goal_s else UNITS)
        stages = (Stage(work_mcycles, max_mhz, memory_mib=MEMORY_MIB),)
        until_s = None if goal_s is None else self._line.now_s + goal_s
        wanted = Job(job, stages, goal_s=until_s, template=kind.value, arguments=(str(UNITS),), **keys)
        return SubmitJob(self._line.new_id(), wanted)

    def ask(self, request: Request) -> None:
        """Have the controller take a request."""
        self._line.ask(request)

    def weighed(self, vm: str) -> Took:
        """The mean of two orders: to give CPU to an urgent job of its node, and to take it back when that is gone."""
        beside, since = f"{vm}-urgent", self._tap.heard
        self.ask(self.submit(beside, goal_s=GOAL_S, rules=Rules(node_affinity=(self.home(vm),))))
        less = self._ordered(ActionKind.SET_CPU, f"{vm}#0", since)
        self._ordered(ActionKind.START, f"{beside}#0", since)
        since = self._tap.heard
        self.ask(CancelJob(self._line.new_id(), beside))
        self._ordered(ActionKind.STOP, f"{beside}#0", since)
        more = self._ordered(ActionKind.SET_CPU, f"{vm}#0", since)
        return {AGENT: sum(one.answered_s - one.ordered_s for one in (less, more)) / 2}

    def home(self, vm: str) -> str:
        """The node of a job's only VM."""
        return self._made.running(f"{vm}#0")[f"{vm}#0"]

    def _request(self, kind: ActionKind, vm: str) -> Request:
        request = self._line.new_id()
        if kind is ActionKind.START:
            return self.submit(vm, rules=Rules(no_migration=True))  # without a goal it moved to where more CPU is left
        if kind is ActionKind.MIGRATE:
            (other,) = {*self._made.lab.nodes} - {self.home(vm)}
            return MoveVm(request, f"{vm}#0", other)
        if kind is ActionKind.STOP:
            return CancelJob(request, vm)
        return HoldJob(request, vm, kind is ActionKind.SUSPEND)

    def _asked(self, request: Request, kind: ActionKind, vm: str) -> Took:
        since, begun_s = self._tap.heard, CLOCK.monotonic_s()
        self.ask(request)
        took = self._ordered(kind, f"{vm}#0", since)
        return {AGENT: took.answered_s - took.ordered_s, WHOLE: took.answered_s - begun_s}

    def _ordered(self, kind: ActionKind, vm: str, since: int) -> Heard:
        found = self._tap.wait_for(kind, vm, since, LIMIT_S)
        assert found is not None, f"no answer to {kind} of {vm}\n{self._made.logs()}"
        assert found.outcome is Outcome.OK, found
        return found


@contextmanager
def operating(made: Cluster, tap: Tap) -> Iterator[Trimtab]:
    """An operator of a cluster that is at work."""
    with ControllerConnection(Access(), toml.load(made.operator_file, OperatorConfig)) as line:
        yield Trimtab(made, tap, line)


def in_turn(ways: Mapping[str, OperationRunner], rounds: int) -> list[Timing]:
    """Every way once a round, the first of one round last in the next."""
    found: list[Timing] = []
    order = list(ways)
    for number in range(rounds):
        for name in order:
            found += cycle(ways[name], f"{name}-{number}")
        order.reverse()
    return found


def lines(timings: Sequence[Timing], ways: Sequence[str]) -> list[dict[str, object]]:
    """A line for each operation: medians, ways in multiples of virsh, spreads."""
    found: list[dict[str, object]] = []
    for kind in KINDS:
        took = {way: [one.took_s for one in timings if (one.kind, one.way) == (kind, way)] for way in (VIRSH, *ways)}
        line: dict[str, object] = {"operation": kind.value}
        for way in ways:
            line[f"{way} / virsh"] = round(median(took[way]) / median(took[VIRSH]), 2) if took[way] else None
        for way, each in took.items():
            line[f"{way} s"] = f"{median(each):.3f} ({min(each):.3f}-{max(each):.3f})" if each else None
        line["runs"] = len(took[VIRSH])
        found.append(line)
    return found
