"""Trimtab at work in a lab: an agent on every host, a controller and RabbitMQ with TLS on this machine, an operator.

    with cluster(3) as made:
        made.submit_burner("sort", units=40)
        made.until_done("sort")

Accounts are made by `trimtab broker setup`, each with a password of its own; everything is gone when the `with` ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from click.testing import CliRunner

from daemons.cli.main import main
from tests.integration import haproxy_scene
from tests.integration.debian import need_programs
from tests.integration.environment_scene import ADMIN
from tests.integration.harness import CLOCK, CONTROLLER, STOP_S, Lab, Process, Section, merged, toml
from tests.integration.private_broker import PrivateBroker, private_broker
from tests.integration.scene import LIMIT_S, REQUEST_S, Scene
from tests.lab import guests
from tests.lab.guests import Kind, Places
from tests.lab.hosts import Host, HostSpec, lab_hosts
from tests.lab.hosts import Lab as Hosts
from tests.lab.namespaces import children, inside
from tests.lab.needs import need_lab

UNIT_S = 0.5  # CPU time of the machine's for one unit of a burner
MEMORY_MIB = 64  # of a burner's VM
WEB_MEMORY_MIB = 96
HOMES_S = 0.5  # between two looks at where VMs run
GUESTS_FROM = 100  # the first address that guests may have in the lab's network
BALLAST_MIB = 16  # of memory that has to be sent when a laden guest moves
IMAGES = {Kind.BURNER: "burner.img", Kind.LADEN: "burner.img", Kind.READER: "reader.img"}
SETTINGS: Mapping[str, Section] = {
    "periods": {"report_s": 1.0, "reconcile_s": 1.0, "decide_s": 10.0, "probe_s": 1.0},
    "timeouts": {
        "unreachable_after_s": 8.0,
        "fence_after_s": 20.0,
        "gang_timeout_s": 60.0,
        "action_ttl_s": 30.0,
        "operation_timeout_s": 120.0,
        "stall_after_s": 300.0,
        "decide_limit_s": 9.0,
    },
    "memory": {"vm_overhead_mib": 0},
}
AGENT: Mapping[str, Section] = {"periods": {"report_s": 1.0}, "timeouts": {"operation_timeout_s": 120.0}}
MIGRATION: Mapping[str, Any] = {"peer": "qemu+tcp://{host}/system", "data": "tcp://{host}", "tls": False}

T = TypeVar("T")
_numbers = count(1)


class HostDaemon(Process):
    """A daemon on a host of the lab, in whatever boot that is."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, host: Host) -> None:
        super().__init__(name, command, folder)
        self._host, self._words = host, list(command)

    def start(self) -> None:
        """As `Process`. Raises LabError when the host has no power."""
        self.command = inside(self._host.first_pid, self._words, self._folder)
        super().start()

    def kill(self) -> None:
        """kill -9 of the daemon itself; what entered the host for it ends with it."""
        self._signal(signal.SIGKILL)
        self.wait(STOP_S)

    def stop(self) -> int:
        """SIGTERM to the daemon itself; returns the exit status."""
        self._signal(signal.SIGTERM)
        return self.wait(STOP_S)

    def freeze(self) -> None:
        """SIGSTOP to it and all that it has started. What entered the host for it sees that, and stops too."""
        super().freeze()
        os.kill(self.pid, signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in children(self.pid):
            os.kill(pid, number)


class ClusterLab(Lab):
    """The processes of a cluster whose nodes are the hosts of a lab, but for the last ones where controllers have hosts
    of their own (`seats`). `controller`, `agent`: sections laid over those of this module; `accounts`: where `trimtab
    broker setup` has put the files of the accounts."""

    def __init__(
        self,
        folder: Path,
        hosts: Hosts,
        accounts: Path,
        *,
        broker: PrivateBroker,
        places: Places,
        controllers: Sequence[str],
        controller: Mapping[str, Section],
        agent: Mapping[str, Section],
        store: str,
        replicas: bool = False,
    ) -> None:
        nodes = hosts.hosts[: len(hosts.hosts) - len(controllers)] if replicas else hosts.hosts
        self.replicas = dict(zip(controllers, hosts.hosts[len(nodes) :], strict=False))
        self.hosts, self.accounts, self.places = {host.name: host for host in nodes}, accounts, places
        self._broker, self._lab = broker, hosts
        files = guests.templates(folder, places)
        self._templates = {kind.value: {"file": str(file), "clone": "none"} for kind, file in files.items()}
        for kind, image in IMAGES.items():
            self._templates[kind] |= {"volume": image, "clone": "overlay"}
        if Kind.WEB in self._templates:
            self._templates[Kind.WEB]["first_address"] = f"10.99.{hosts.number}.{GUESTS_FROM}"
        super().__init__(
            folder,
            self._url("operator.lab"),
            ",".join(self.hosts),
            controllers=controllers,
            controller=controller,
            agent=agent,
            store=store,
        )

    def _boot_files(self) -> tuple[Path, ...]:
        """What web guests are booted from: every host has it at the same place."""
        web = self.places.web
        return () if web is None else (web.kernel, web.initrd)

    def _url(self, account: str) -> str:
        return str(tomllib.loads((self.accounts / f"{account}.toml").read_text())["bus"]["url"])

    def _bus(self, account: str) -> dict[str, Section]:
        return {"bus": {"url": self._url(account), "tls": {"ca_file": str(self._broker.ca_file)}}}

    def _agent(self, node: str, changes: Mapping[str, Section]) -> Process:
        host, spec = self.hosts[node], self.hosts[node].spec
        own: Mapping[str, Any] = {
            "node": {"name": node, "reserve_mib": 0, "address": host.address},
            "hypervisor": {"driver": "libvirt", "uri": "qemu:///system"},
            "journal": {"path": f"{self.folder}/{node}.journal"},
            "libvirt": {
                "pool": "shared",
                "shared_pools": ["shared", "trimtab-saved"],
                "reachable_storage": sorted(
                    {str(self.places.serial), *(str(file.parent) for file in self._boot_files())}
                ),
                "partition": host.partition,
                "cores": spec.cores,
                "core_mhz": spec.core_mhz,
                "core_frac": spec.core_frac,
                "memory_mib": spec.memory_mib,
                "stop_limit_s": 5.0,
                "templates": self._templates,
                "migration": MIGRATION,
                "hosts": {name: one.address for name, one in self.hosts.items()},
            },
        }
        made = self._daemon(
            f"agent-{node}", "agents.service.main", merged(AGENT, own, self._bus(f"agent.{node}"), changes)
        )
        return HostDaemon(made.name, made.command, self.folder, host)

    def _controller(self, name: str, store: str, changes: Mapping[str, Section]) -> Process:
        power: dict[str, Section] = {
            "power": {"driver": "exec", "exec": {"fence": list(self._lab.power_command("fence"))}}
        }
        own: Mapping[str, Any] = {"name": name, "store": {"url": store}, **power}
        bus = self._bus(f"controller.{name}")
        made = self._daemon(
            f"controller-{name}", "daemons.service.main", merged(CONTROLLER, SETTINGS, own, bus, changes)
        )
        replica = self.replicas.get(name)
        return made if replica is None else HostDaemon(made.name, made.command, self.folder, replica)

    def start_server(self) -> None:
        """There is none: the hosts' libvirtds run already."""

    @property
    def processes(self) -> tuple[Process, ...]:
        """All of them, started or not."""
        return (*self.agents.values(), *self.controllers.values())

    def homes(self) -> dict[str, list[str]]:
        """The hosts on which each VM executes, by their libvirtds' word; one that does not answer has none."""
        found: dict[str, list[str]] = {}
        for name in self.hosts:
            for vm in self._executes_on(name):
                found.setdefault(vm, []).append(name)
        # Between the looks at two hosts it may have moved from one to the other: then it is not on the first any more.
        for vm, names in found.items():
            *before, last = names
            found[vm] = [*(name for name in before if vm in self._executes_on(name)), last]
        return found

    def _executes_on(self, name: str) -> list[str]:
        host = self.hosts[name]
        if not (host.has_power and host.socket.exists()):
            return []
        return host.virsh("list", "--name", "--state-running", check=False).split()

    def power_off(self, node: str) -> None:
        """The host dies, and with it its agent."""
        self.hosts[node].power_off()

    def power_on(self, node: str) -> None:
        """The host is back, and its agent begins."""
        self.hosts[node].power_on()
        self.agents[node].start()


class Cluster(Scene):
    """A cluster in a lab that an operator works on with the command; every look at it checks that no VM runs twice."""

    lab: ClusterLab
    hosts: Hosts
    proxy: haproxy_scene.Scene | None

    def __init__(self, made: ClusterLab, broker: PrivateBroker, vhost: str) -> None:
        super().__init__(made, broker, vhost)
        self._looked_s, self._homes = 0.0, dict[str, str]()
        account = tomllib.loads((made.accounts / "operator.lab.toml").read_text())
        file = merged(account, {"timeout_s": REQUEST_S, "bus": {"tls": {"ca_file": str(broker.ca_file)}}})
        self.operator_file.write_text(toml(file))

    def homes(self) -> dict[str, str]:
        """The host of each VM that runs, seen within the last half second. AssertionError when one runs on two."""
        now_s = CLOCK.monotonic_s()
        if now_s - self._looked_s >= HOMES_S:
            self._looked_s, self._homes = now_s, super().homes()
        return self._homes

    def job_file(self, name: str, work_s: float, instances: int = 1, separate: bool = False) -> Path:
        """The file of a job of burners, each with `work_s` seconds of work on a host's whole core."""
        return self.burner_file(name, round(work_s * self._spec.core_frac / UNIT_S), instances, spread=separate)

    def burner_file(self, name: str, units: int, instances: int = 1, min_mhz: float = 0.0, **keys: Any) -> Path:
        """The file of a job whose guests do so many units of work each; `keys` go to its head."""
        work_mcycles = units * UNIT_S / self._spec.core_frac * self._spec.core_mhz
        head = {"name": name, "instances": instances, "template": "burner", "arguments": [str(units)], **keys}
        speed = {"max_mhz": self._spec.core_mhz, "min_mhz": min_mhz}
        stage = {"work_mcycles": work_mcycles, **speed, "memory_mib": MEMORY_MIB}
        file = self.lab.folder / f"{name}.job.toml"
        file.write_text(toml(head) + "[[stages]]\n" + toml(stage))
        return file

    def submit_burner(self, name: str, units: int, instances: int = 1, **keys: Any) -> None:
        """Submit such a job."""
        self.do("jobs", "submit", str(self.burner_file(name, units, instances, **keys)))

    def printed(self, vm: str) -> guests.Output:
        """What the guest of a VM has printed, wherever it ran."""
        return guests.output(guests.serial_file(self.lab.places, vm))

    def done_once(self, units: Mapping[str, int]) -> None:
        """Each of these VMs has done its units once, in order, and has come to its end."""
        faults = {vm: fault for vm, wanted in units.items() if (fault := self.printed(vm).fault(wanted))}
        assert not faults, f"{faults}\n{self.logs()}"

    def job(self, name: str) -> dict[str, Any]:
        """What `trimtab jobs show` says."""
        return dict(self.do("jobs", "show", name, "--output", "json").data["job"])

    def until_done(self, *jobs: str, timeout_s: float = LIMIT_S) -> None:
        """Wait until the controller holds these complete."""
        self.wait_for(lambda: all(self.heard("job-completed", job) for job in jobs), timeout_s, f"the end of {jobs}")

    @property
    def _spec(self) -> HostSpec:
        return next(iter(self.lab.hosts.values())).spec


@contextmanager
def cluster(
    nodes: int = 3,
    spec: HostSpec | None = None,
    *,
    controllers: Sequence[str] = ("c1",),
    controller: Mapping[str, Section] | None = None,
    agent: Mapping[str, Section] | None = None,
    store: Callable[[Path, str], str] = lambda folder, _: f"sqlite:///{folder}/controller.db",
    replicas: bool = False,
    web: bool = False,
    balancer: bool = False,
    cpus: str = "",
    begin: bool = True,
) -> Iterator[Cluster]:
    """A cluster of so many hosts, at work unless `begin` is false; with `web` it has the files of web guests, with
    `balancer` an HAProxy on the lab's address that the controllers tell of instances. `cpus`: the machine's CPUs that
    guests run on, before others ("": all of them, as others). `store` makes the URL of the controllers' store from the
    cluster's folder and the machine's address in the lab. With `replicas` each controller has a further host of its
    own, which is no node. Skips the test, or fails it when CI=true, where there can be none."""
    need_lab()
    need_programs(("as", "ld"), ("binutils",))
    with ExitStack() as stack:
        hosts = stack.enter_context(lab_hosts(nodes + len(controllers) * replicas, spec))
        broker = stack.enter_context(private_broker(hosts.machine_address))
        folder = Path(tempfile.mkdtemp(prefix="cluster-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if cpus:
            hosts.partitions.favour(f"/{hosts.name}")
        for host in hosts.hosts:
            host.make_pools(shared_saves=True)
        places = _places(hosts, web, cpus)
        proxy = stack.enter_context(haproxy_scene.haproxy_scene(address=hosts.machine_address)) if balancer else None
        vhost = f"lab-{os.getpid()}-{next(_numbers)}"
        accounts = folder / "accounts"
        _make_accounts(broker, vhost, accounts, [host.name for host in hosts.hosts[:nodes]], controllers)
        made = ClusterLab(
            folder,
            hosts,
            accounts,
            broker=broker,
            places=places,
            controllers=controllers,
            controller=merged(_balancer(proxy) if proxy else {}, controller or {}),
            agent=agent or {},
            store=store(folder, hosts.machine_address),
            replicas=replicas,
        )
        whole = Cluster(made, broker, vhost)
        whole.hosts, whole.proxy = hosts, proxy
        stack.callback(whole.close)
        if begin:
            whole.begin()
        yield whole


def _balancer(proxy: haproxy_scene.Scene) -> dict[str, Section]:
    """The section that has a controller tell it."""
    keys = proxy.keys
    told = {"folder": keys.folder, "socket": keys.socket, "master_socket": keys.master_socket}
    where = {"address": keys.address, "ports": list(keys.ports)}
    return {"balancer": {"driver": "haproxy", "drain_limit_s": 20.0, "haproxy": {**told, **where}}}


def _places(hosts: Hosts, web: bool, cpus: str) -> Places:
    """The guests' files, and the base volumes in the pool that all hosts share."""
    serial = hosts.shared / "serial"
    serial.mkdir(exist_ok=True)
    volumes = hosts.shared / "volumes"
    turns = round(UNIT_S * guests.turns_per_cpu_s())
    guests.burner(1, volumes, unit_turns=turns, name="burner.img")
    guests.reader(1, volumes, name="reader.img")
    ballast = hosts.shared / "ballast"
    ballast.write_bytes(Random(1).randbytes(BALLAST_MIB << 20))
    for host in hosts.hosts:
        host.virsh("pool-refresh", "shared")
    files = guests.web_guest() if web else None
    return Places(serial, "qcow2", ballast=ballast, web=files, gateway=hosts.machine_address, cpus=cpus)


def _make_accounts(
    broker: PrivateBroker, vhost: str, folder: Path, nodes: Sequence[str], controllers: Sequence[str]
) -> None:
    """By the operator's command, as docs/how-to/broker.md says it."""
    words = ("broker", "setup", "--nodes", ",".join(nodes), "--controllers", ",".join(controllers))
    place = ("--operators", "lab", "--vhost", vhost, "--management", broker.management_url)
    host = ("--host", f"{broker.address}:{broker.amqps}", "--folder", str(folder))
    done = CliRunner(env=ADMIN).invoke(main, [*words, *place, *host])
    assert done.exit_code == 0, done.output
