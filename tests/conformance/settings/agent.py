"""Keys of the agents' file: what a node says of itself, what it runs VMs by, what may be done to it."""

from __future__ import annotations

import hashlib
import math
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from agents.core.agent import Agent
from agents.hypervisors.libvirt.build import from_module
from agents.hypervisors.libvirt.errors import Unavailable
from agents.hypervisors.process import launch, programs
from agents.hypervisors.process.build import _runner
from agents.hypervisors.process.cgroup_runner import account
from agents.hypervisors.process.cgroups import Hierarchies, mounted
from agents.hypervisors.process.driver import ProcessHypervisor, Setting
from agents.hypervisors.process.machine import node_of
from agents.hypervisors.process.record import Usage
from agents.hypervisors.process.runner import Cpu, Exit, Launch
from agents.hypervisors.process.systemd_runner import SystemdRunner
from agents.lease import service as lease_service
from agents.lease.folder import MARK, read_all
from agents.probes.probes import Monitor
from agents.service.main import AgentShell, build, find_hypervisor, own_name, shape_of
from agents.setups.host import OwnSetups
from agents.standard_jobs.running import OwnStandardJobs
from shared.base.clock import SystemClock
from shared.base.errors import BusUnavailable, InvalidInput
from shared.config.agent import AgentConfig
from shared.ports import effects as fx
from shared.ports.bus import Bus
from shared.protocol import topology
from shared.protocol.messages import Hello, Order, Watch
from shared.values.actions import Action, ActionKind
from shared.values.health import Probe, ProbeKind, Target
from shared.values.host_setup import Image, Package, RemoteFile, Setup, SetupPolicy
from shared.values.load_vector import StandardJob, StandardRun
from shared.values.nodes import Node, NodeSample, SetupStep
from shared.values.vms import VmSpec, VmState, VmStatus
from sim_backend.fake_libvirt.cluster import Cluster
from sim_backend.fake_libvirt.codes import libvirtError
from sim_backend.fake_libvirt.connection import add_pool
from sim_backend.fake_libvirt.faults import Fault
from sim_backend.fakes.hypervisor import FakeHypervisor
from tests.conformance.settings.row import NAME, OMITTED, Given, Row, shown_by

DIGEST = "0b5d2a0b4fae3a9bd1fd6b4d2b8f6a5f0a30ab1d3a5ff9dcd0c9b5b4d8d7c6e5"
INVENTORY = Node("x", 4, 2000.0, memory_mib=16_000, labels=("kvm",))
SPEC = VmSpec("j#3", 1, 1, memory_mib=100, vcpus=1, cpu_mhz=500.0, template=NAME, arguments=("a b",))
LIMIT_S = 10.0


def placed(given: Given) -> Given:
    """The folder is named in the text."""
    return Given(given.text.replace("/FOLDER", str(given.folder)), given.folder)


def without(given: Given, found: object) -> object:
    """What was observed, without the name of the folder."""
    return repr(found).replace(str(given.folder), "/FOLDER")


def until(ready: Callable[[], object], limit_s: float = LIMIT_S) -> bool:
    """Wait for something; whether it came."""
    clock = SystemClock()
    end_s = clock.monotonic_s() + limit_s
    while not ready():
        if clock.monotonic_s() > end_s:
            return False
        clock.sleep(0.002)
    return True


# --- what it says of itself -----------------------------------------------------------------------------------------


def node(given: Given) -> object:
    """The node that is reported."""
    config = given.read(AgentConfig)
    return shape_of(config, own_name(config))(INVENTORY)


def core(given: Given) -> object:
    """What an agent does that is greeted, given an order and something to watch: as `build` makes it."""
    given = placed(given)
    config = given.read(AgentConfig)

    def nowhere() -> Bus:
        raise BusUnavailable("there is no broker")

    def hypervisor(_config: AgentConfig, _wake: Callable[[], None]) -> FakeHypervisor:
        return FakeHypervisor(replace(INVENTORY, name="x"))

    shell: AgentShell = build(config, nowhere, hypervisor, 1)
    agent, now_s = shell.core, 100.0
    assert isinstance(agent, Agent)
    status = VmStatus("j#3", VmState.RUNNING, 1, attempt=1, memory_mib=100, vcpus=1)
    leader = topology.CONTROLLER_USER_PREFIX + "a"
    node_name = own_name(config)
    boot = agent.boot_id
    probe = Probe(ProbeKind.TCP, 80, period_s=2.0, grace_s=0.0)
    action = Action(
        "a1",
        ActionKind.SUSPEND,
        node_name,
        vm="j#3",
        term=1,
        boot_id=boot,
        expires_at_s=160.0,
        expects=1,
        generation=1,
    )
    said = [
        agent.start(now_s),
        agent.handle(fx.Observed(NodeSample(), (status,), INVENTORY), now_s),
        agent.handle(fx.Received(1, leader, Hello(1)), now_s),
        agent.handle(fx.Received(2, leader, Watch(1, 1, (Target("j#3", 1, probe),))), now_s),
        agent.handle(fx.TimerFired("report"), now_s),
        agent.handle(fx.Observed(NodeSample(), (status,), INVENTORY), now_s),
        agent.handle(fx.TimerFired("probe"), now_s + 3.0),
        agent.handle(fx.Received(3, leader, Order(action)), now_s),
    ]
    kinds = (fx.StartTimer, fx.ProbeInstance, fx.Operate)
    files = sorted(path.name for path in given.folder.rglob("*.journal*"))
    shell._close()
    return [
        [repr(effect).replace(boot, "BOOT") for effect in effects if isinstance(effect, kinds)] for effects in said
    ], files


# --- drivers --------------------------------------------------------------------------------------------------------


def driver(given: Given) -> object:
    """What makes the driver."""
    try:
        return find_hypervisor(given.read(AgentConfig).hypervisor.driver).__module__
    except InvalidInput as error:
        return [problem.what for problem in error.problems]


def machine(given: Given) -> object:
    """The node that runs programs, as its driver describes it."""
    return node_of("n1", given.read(AgentConfig).process)


def processes(given: Given) -> object:
    """What runs programs, or why nothing can."""
    config = placed(given).read(AgentConfig)
    try:
        return type(_runner(config, INVENTORY, 1000.0)).__name__
    except InvalidInput as error:
        return [problem.where for problem in error.problems]


class FakeBus:
    """A system bus that does what it is told, and writes it down."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments, **named: self.heard.append((name, arguments, named))


def unit(given: Given) -> object:
    """What is said and where when a program is started as a unit."""
    given = placed(given)
    bus = FakeBus()
    runner = SystemdRunner(given.read(AgentConfig).process, bus, 4000.0)  # type: ignore[arg-type]
    for name in ("state", "other"):
        (given.folder / name / "p").mkdir(parents=True)
    runner.start("p", Launch(("/bin/true",), {}, Cpu(500.0, 1.0), 100, False))
    return without(given, (sorted(given.folder.rglob(launch.FILE)), runner.output("p"), bus.heard))


def words(given: Given) -> object:
    """The command line of a VM."""
    config = given.read(AgentConfig)
    return programs.words_of(SPEC, config.process.programs, programs.Here("n1", config.node.address))


def group(given: Given) -> object:
    """Where the groups of programs are."""
    root = given.folder / "cgroup"
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpu memory\n")
    (root / "cgroup.subtree_control").write_text("")
    hierarchies = Hierarchies(given.read(AgentConfig).process.cgroup, mounted(f"cgroup2 {root} cgroup2 rw 0 0\n"))
    return hierarchies.root, [str(place.folder) != "" for place in hierarchies.places.values()]


def account_of(given: Given) -> object:
    """The account that programs run as."""
    return account(given.read(AgentConfig).process).pw_uid


class Stubborn:
    """Runs programs that heed no signal."""

    def __init__(self) -> None:
        self._there: dict[str, None] = {}
        self._news = threading.Event()

    def names(self) -> frozenset[str]:
        return frozenset(self._there)

    def output(self, name: str) -> str:
        return f"/output/{name}"

    def start(self, name: str, _wanted: Launch) -> None:
        self._there[name] = None

    def ended(self, name: str) -> Exit | None:
        return None if name in self._there else Exit(0)

    def terminate(self, name: str) -> None:
        assert name in self._there

    def freeze(self, name: str, frozen: bool) -> None:
        raise AssertionError(name, frozen)

    def set_cpu(self, name: str, cpu: Cpu) -> None:
        raise AssertionError(name, cpu)

    def usage(self, _name: str) -> Usage:
        return Usage(0.0)

    def remove(self, name: str) -> None:
        self._there.pop(name, None)

    def wait(self, timeout_s: float) -> frozenset[str]:
        self._news.wait(timeout_s)
        self._news.clear()
        return frozenset()

    def wake(self) -> None:
        self._news.set()


def patience(given: Given) -> object:
    """A program that does not heed SIGTERM is stopped: whether it is gone after 4 s."""
    keys = given.read(AgentConfig).process
    here = programs.Here("n1", "")
    setting = Setting(INVENTORY, 2000.0, "boot", given.folder, here, keys.programs, keys.stop_limit_s)
    runner = Stubborn()
    made = ProcessHypervisor(setting, runner, lambda: None)
    made.begin(replace(_action(0, ActionKind.START), spec=replace(SPEC, arguments=())), 0.0)
    until(lambda: made.poll(0.0))
    made.begin(_action(1, ActionKind.STOP), 0.0)
    gone = until(lambda: made.poll(0.0), 4.0)
    for name in runner.names():
        runner.remove(name)
    made.close()
    return gone


class Heard:
    """Stands between a driver and the stand-in for libvirt, and writes down what is called."""

    def __init__(self, inner: Any, calls: list[tuple[str, str]]) -> None:
        self._inner, self._calls = inner, calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or isinstance(found, type):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            if name in _NOTED:
                self._calls.append((name, repr([each for each in arguments if not callable(each)])))
            answer = found(*(_bare(each) for each in arguments), **named)
            return Heard(answer, self._calls) if type(answer).__name__.startswith("vir") else answer

        return call


def _bare(value: Any) -> Any:
    return value._inner if isinstance(value, Heard) else value


_NOTED: tuple[str, ...] = (
    "open",
    "setKeepAlive",
    "defineXML",
    "defineXMLFlags",
    "createXML",
    "createXMLFrom",
    "save",
    "saveFlags",
)
_NOTED += ("migrateToURI3", "migrateSetMaxDowntime", "destroyFlags", "setSchedulerParametersFlags")
TEMPLATE = """
<domain type="qemu"><name>x</name><memory unit="MiB">{memory_mib}</memory><vcpu>{vcpus}</vcpu>
<os><type arch="x86_64" machine="pc">hvm</type></os><devices>DISK</devices></domain>
"""
DISK = """<disk type="file" device="disk"><driver name="qemu" type="qcow2"/><source file="{volume}"/>
<target dev="vda"/></disk>"""


def libvirt(*kinds: ActionKind, limit_s: float = LIMIT_S, stuck: bool = False) -> Callable[[Given], object]:
    """Hosts h1 and h2, of which h1 has the file's driver: what it asks of libvirt for some actions, one by one, and
    what it answers within `limit_s`. `stuck`: guests do not shut down, and migrations do not end."""

    def shown(given: Given) -> object:
        calls: list[tuple[str, str]] = []
        for name, disk in (("with", DISK), ("without", ""), ("other", "<console/>")):
            path = given.folder / f"{name}.xml"
            path.write_text(TEMPLATE.replace("DISK", disk))
            path.chmod(0o644)
        cluster = Cluster(0, {"migrate": 1.0}, ("/shared",))
        if stuck:
            cluster.guests["j#3"] = (math.inf, False)
            cluster.fail(Fault("migrateToURI3", "hang", host="h1"))
        for name, address in (("h1", "192.0.2.1"), ("h2", "192.0.2.2")):
            host = cluster.add_host(name, address, cores=2, mhz=1_000, memory_mib=1_200)
            for pool, folder in _POOLS.items():
                add_pool(host, pool, folder)
            for pool in ("default", "shared", "other"):
                made = cluster.module(name).open().storagePoolLookupByName(pool)
                for volume in ("base", "base2"):
                    if volume not in [each.name() for each in made.listAllVolumes()]:
                        made.createXML(f"<volume><name>{volume}</name><capacity>4096</capacity></volume>")

        def reach(uri: str) -> None:
            with cluster.lock:
                try:
                    cluster.reach("h1", uri.split("://")[1].split("/")[0])
                except libvirtError as problem:
                    raise Unavailable(str(problem), broken=True) from None

        def answer() -> list[Any]:
            answers: list[Any] = []

            def look() -> bool:
                if cluster.waiting and not stuck:
                    cluster.advance(0.1)
                answers.extend(made_driver.poll(0.0))
                return bool(answers)

            until(look, limit_s)
            return [(type(each).__name__, getattr(each, "outcome", "")) for each in answers[:1]]

        woken = threading.Event()
        module: Any = Heard(cluster.module("h1"), calls)
        made_driver = from_module(placed(given).read(AgentConfig), woken.set, module, reach, 0.02)
        try:
            found: list[Any] = [made_driver.inventory()]
            for number, kind in enumerate(kinds):
                action = _action(number, kind)
                made_driver.begin(action, 0.0)
                found.append(answer())
            found.append([(each.vm, each.state, each.address) for each in made_driver.vms(0.0)])
        finally:
            made_driver.close()
            cluster.close()
        return without(given, (found, calls))

    return shown


_POOLS = {
    "default": "/pool",
    "other": "/other",
    "shared": "/shared/volumes",
    "trimtab-saved": "/saved",
    "s2": "/saved2",
}


def _action(number: int, kind: ActionKind) -> Action:
    spec = VmSpec("j#3", 1, 1, memory_mib=100, vcpus=1, cpu_mhz=500.0, template=NAME)
    starts = kind is ActionKind.START
    to_node = "h2" if kind is ActionKind.MIGRATE else ""
    expects = 0 if starts else 1
    return Action(
        f"a{number}",
        kind,
        "h1",
        vm="j#3",
        term=1,
        boot_id="",
        expires_at_s=1e9,
        expects=expects,
        generation=1,
        spec=spec if starts else None,
        to_node=to_node,
    )


# --- what may be done to the host -----------------------------------------------------------------------------------


class FakeSystemd:
    """Units that start and stop at once."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def start(self, name: str, limit_s: float | None = None) -> None:
        assert limit_s is not None
        self.done.append(f"start {name} within {limit_s:.0f} s")

    def stop(self, name: str, limit_s: float | None = None) -> None:
        del limit_s
        self.done.append(f"stop {name}")


def setups(setup: Callable[[Path], Setup]) -> Callable[[Given], object]:
    """A node comes to environment `hpc`: what is done there, and what is said."""

    def shown(given: Given) -> object:
        given = placed(given)
        for name in ("source", "library", "library2"):
            (given.folder / name).mkdir()
            (given.folder / name / "a").write_bytes(b"x" * 1_500_000)
        systemd = FakeSystemd()
        config = given.read(AgentConfig)
        own = OwnSetups("n1", config.setup, given.folder / "lock", systemd)
        done = own.set_up("u1", "hpc", SetupStep.ACQUIRE, setup(given.folder))
        there = sorted(
            str(path.relative_to(given.folder)) for path in given.folder.rglob("*") if "lock" not in path.name
        )
        return without(given, (done.ok, done.output, systemd.done, there))

    return shown


def _digest() -> str:
    return hashlib.sha256(b"x" * 1_500_000).hexdigest()


def probed(given: Given) -> object:
    """What a command says of an instance."""
    monitor = Monitor(given.read(AgentConfig).health_checks)
    probe = Probe(ProbeKind.COMMAND, command=NAME, limit_s=30.0)
    return monitor.probe(Target("shop#0", 1, probe), "127.0.0.1")


ECHO = "import sys, json; print(json.dumps({'error': ' '.join(sys.argv[1:])}))"


def standard(given: Given) -> object:
    """What becomes of a standard job of 2 s and two copies; its program says how it was called."""
    given = placed(given)
    own = OwnStandardJobs(given.read(AgentConfig).standard_jobs, (sys.executable, "-c", ECHO))
    found = own.run(fx.RunStandard("r", StandardRun(StandardJob.IO, 2.0, 2)))
    return without(given, found)


def lease(given: Given) -> object:
    """A keeper that is stopped after its first pet: its lease and where that is, and what each device got."""
    given = placed(given)
    heard = {}
    for name in ("one", "two"):
        (given.folder / name).mkdir()
        (given.folder / name / MARK).touch()
        os.mkfifo(given.folder / f"watchdog-{name}")
        heard[name] = os.open(given.folder / f"watchdog-{name}", os.O_RDONLY | os.O_NONBLOCK)
    shell = lease_service.build(given.read(AgentConfig))
    keeping = threading.Thread(target=shell.run)
    keeping.start()
    got = dict.fromkeys(heard, b"")

    def listen() -> bytes:
        for name, device in heard.items():
            with suppress(BlockingIOError):
                got[name] += os.read(device, 100)
        return got["one"] + got["two"]

    assert until(listen)
    shell.stop()
    keeping.join()
    listen()
    for device in heard.values():
        os.close(device)
    leases = [found for name in heard for found in read_all(str(given.folder / name)).leases.values()]
    return [(name, got[name], len(read_all(str(given.folder / name)).leases)) for name in heard], [
        (each.released, each.proof_s) for each in leases
    ]


WIPES = Setup(SetupPolicy.WIPE)
EXECS = Setup(SetupPolicy.EXEC, NAME)
SAYS = [["/bin/echo", "{environment}"]]
RUNS = {"hypervisor.driver": "process", "process.programs.*.run": ["/bin/true", "{vm}", "{arguments}"]}
UNITS = {"process.runner": "systemd", "process.state": "/FOLDER/state", "process.core_mhz": 1000}
GUEST: dict[str, Any] = {
    "node.name": "h1",
    "libvirt.core_mhz": 1_000,
    "libvirt.memory_mib": 1_000,
    "libvirt.pool": "shared",
    "libvirt.shared_pools": ["shared"],
    "libvirt.templates.*.file": "/FOLDER/with.xml",
    "libvirt.templates.*.volume": "base",
    "libvirt.migration.tls": False,
    "libvirt.migration.peer": "qemu+tls://{host}/system",
}
MOVES = libvirt(ActionKind.START, ActionKind.MIGRATE)
STARTS = libvirt(ActionKind.START)
SAVES = libvirt(ActionKind.START, ActionKind.SUSPEND)

TABLE: tuple[Row, ...] = (
    *shown_by(
        node,
        {
            "node.name": ("n1", "n2"),
            "node.type": (NAME, OMITTED),
            "node.reserve_mib": (OMITTED, 100),
            "node.labels": ([], ["ssd"]),
            "node_types.*.core_mhz_factor": (1, 0.5),
            "node_types.*.reserve_mib": (512, 1024),
        },
        {"node.type": NAME, "node_types.*.reserve_mib": 512},
    ),
    *shown_by(
        core,
        {
            "node.address": ("192.0.2.1", "192.0.2.2"),
            "periods.report_s": (5, 7),
            "timeouts.operation_timeout_s": (600, 300),
            "journal.path": ("/FOLDER/one.journal", "/FOLDER/two.journal"),
        },
        {"node.name": "x", "node.address": "192.0.2.1", "journal.path": "/FOLDER/one.journal"},
    ),
    *shown_by(driver, {"hypervisor.driver": ("libvirt", "process")}),
    *shown_by(STARTS, {"hypervisor.uri": ("qemu:///system", "qemu+unix:///system")}, GUEST),
    *shown_by(
        processes,
        {"process.runner": ("systemd", "cgroup")},
        RUNS | UNITS | {"process.user": "no-such-account"},
    ),
    *shown_by(
        processes,
        {"process.confine": (False, True), "process.core_frac": (1, 0.5)},
        RUNS | UNITS,
    ),
    *shown_by(
        machine,
        {
            "process.cores": (2, 3),
            "process.core_mhz": (1000, 2000),
            "process.memory_mib": (1000, 2000),
        },
        {"process.core_mhz": 1000},
    ),
    *shown_by(machine, {"process.cpus": ("0", "0-2")}, {"process.core_mhz": 1000}),
    *shown_by(words, {"process.programs.*.run": (["/bin/true", "{arguments}"], ["/bin/true", "{vm}", "{arguments}"])}),
    *shown_by(
        unit,
        {"process.state": ("/FOLDER/state", "/FOLDER/other"), "process.output": ("/FOLDER/one", "/FOLDER/two")},
        UNITS,
    ),
    *shown_by(account_of, {"process.user": ("nobody", "daemon")}),
    *shown_by(patience, {"process.stop_limit_s": (1, 20)}, {"process.programs.*.run": ["/bin/true"]}, waits=True),
    *shown_by(group, {"process.cgroup": ("/one", "/two")}),
    *shown_by(
        STARTS,
        {
            "libvirt.pool": ("shared", "other"),
            "libvirt.partition": ("", "/trimtab"),
            "libvirt.cores": (OMITTED, 1),
            "libvirt.core_mhz": (1_000, 2_000),
            "libvirt.core_frac": (1, 0.5),
            "libvirt.memory_mib": (1_000, 900),
            "libvirt.reachable_storage": ([], ["rbd:vms"]),
            "libvirt.keepalive_s": (5, 9),
            "libvirt.templates.*.volume": ("base", "base2"),
            "libvirt.templates.*.clone": ("overlay", "copy"),
            "libvirt.templates.*.first_address": ("192.0.2.10", "192.0.2.20"),
        },
        GUEST,
    ),
    *shown_by(
        STARTS,
        {"libvirt.templates.*.file": ("/FOLDER/without.xml", "/FOLDER/other.xml")},
        GUEST | {"libvirt.templates.*.volume": OMITTED},
    ),
    *shown_by(SAVES, {"libvirt.save_pool": ("trimtab-saved", "s2")}, GUEST),
    *shown_by(
        MOVES,
        {
            "libvirt.shared_pools": (["shared"], ["shared", "other"]),
            "libvirt.migration.copy_storage": ("auto", "never"),
        },
        GUEST | {"libvirt.pool": "other"},
    ),
    *shown_by(
        MOVES,
        {
            "libvirt.migration.peer": ("qemu+tls://{host}/system", "qemu+tcp://{host}/system"),
            "libvirt.migration.data": ("", "tcp://{host}:1"),
            "libvirt.migration.bandwidth_mib_per_s": (0, 100),
            "libvirt.migration.downtime_ms": (300, 500),
            "libvirt.migration.tls": (False, True),
            "libvirt.hosts": ({}, {"h2": "192.0.2.2"}),
        },
        GUEST,
    ),
    *shown_by(
        libvirt(ActionKind.START, ActionKind.STOP, limit_s=4.0, stuck=True),
        {"libvirt.stop_limit_s": (1, 30)},
        GUEST,
        waits=True,
    ),
    *shown_by(
        libvirt(ActionKind.START, ActionKind.MIGRATE, limit_s=4.0, stuck=True),
        {"libvirt.migration.limit_s": (1, 30)},
        GUEST,
        waits=True,
    ),
    *shown_by(
        setups(lambda _: WIPES),
        {
            "setup.wipe": ([["/bin/echo", "one"]], [["/bin/echo", "two"]]),
            "setup.wipe_units": ([], ["wipe-{environment}.service"]),
        },
        {"setup.wipe": SAYS},
    ),
    *shown_by(setups(lambda _: WIPES), {"setup.wipe_limit_s": (60, 300)}, {"setup.wipe_units": ["wipe.service"]}),
    *shown_by(
        setups(lambda _: EXECS),
        {"setup.commands.*.run": (["/bin/echo", "one"], ["/bin/echo", "{step}"])},
    ),
    *shown_by(
        setups(lambda _: EXECS),
        {"setup.commands.*.unit": ("one.service", "two.service"), "setup.commands.*.limit_s": (60, 300)},
        {"setup.commands.*.unit": "one.service"},
    ),
    *shown_by(
        setups(lambda _: Setup(packages=(Package("shop", DIGEST),))),
        {"setup.packages": (["a*"], ["shop"]), "setup.helper": ("/FOLDER/one.sock", "/FOLDER/two.sock")},
        {"setup.packages": ["shop"], "setup.helper": "/FOLDER/one.sock"},
    ),
    *shown_by(
        setups(lambda folder: Setup(files=(RemoteFile(f"file://{folder}/source/a", "a", _digest()),))),
        {
            "setup.urls": (["file:///FOLDER/source/"], []),
            "setup.file_mib_max": (2, 1),
            "setup.files_folder": ("/FOLDER/files", "/FOLDER/more"),
        },
        {"setup.urls": ["file:///FOLDER/source/"], "setup.files_folder": "/FOLDER/files"},
    ),
    *shown_by(
        setups(lambda _: Setup(services=("shop.service",))), {"setup.services": (["shop.service"], ["other.service"])}
    ),
    *shown_by(
        setups(lambda _: Setup(SetupPolicy.IMAGE, images=(Image("a", _digest()),))),
        {
            "setup.library": ("/FOLDER/library", ""),
            "setup.images_folder": ("/FOLDER/images", "/FOLDER/more"),
        },
        {"setup.library": "/FOLDER/library", "setup.images_folder": "/FOLDER/images"},
    ),
    *shown_by(probed, {"health_checks.commands.*.run": (["/bin/true"], ["/bin/false"])}),
    *shown_by(
        probed,
        {"health_checks.commands.*.limit_s": (20, 1)},
        {"health_checks.commands.*.run": ["/bin/sleep", "3"]},
        waits=True,
    ),
    *shown_by(
        standard,
        {
            "standard_jobs.enabled": (True, False),
            "standard_jobs.folder": ("/FOLDER/one", "/FOLDER/two"),
            "standard_jobs.file_mib": (16, 32),
            "standard_jobs.run_s_max": (60, 1),
            "standard_jobs.copies_max": (8, 1),
        },
        {"standard_jobs.enabled": True, "standard_jobs.folder": "/FOLDER/one", "standard_jobs.file_mib": 16},
    ),
    *shown_by(
        lease,
        {
            "lease.folder": ("/FOLDER/one", "/FOLDER/two"),
            "lease.renew_s": (5, 6),
            "lease.expires_s": (30, 40),
            "lease.watchdog": ("/FOLDER/watchdog-one", "/FOLDER/watchdog-two"),
        },
        {"lease.folder": "/FOLDER/one", "lease.watchdog": "/FOLDER/watchdog-one"},
    ),
)
