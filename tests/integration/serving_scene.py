"""A web application on real parts: programs under the driver `process` on nodes of loopback addresses of their own,
behind a real HAProxy that a real controller tells of them, and a load generator.

Many nodes have room on one machine, since each of their cores is but a part of one of the machine's. An instance is a
program in Python that burns so much CPU time for each request, and writes one byte to its output for each that it has
answered. A job is one that burns so much CPU time.
"""

from __future__ import annotations

import csv
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from agents.hypervisors.process import names
from agents.hypervisors.process.cgroups import Hierarchies
from shared.values.jobs import workload_of
from tests.conformance.process_rig import need_cgroups, places
from tests.integration import haproxy_scene
from tests.integration.debian import need_programs
from tests.integration.environment_scene import LEE, PROVIDER, Estate
from tests.integration.haproxy_scene import Clients, Generator, Load, need_haproxy
from tests.integration.harness import Lab, Process, Section, merged, toml
from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import PASSWORD, SOON_S
from tests.ports import free_port
from tests.support.process_names import unescaped

PYTHON = "/usr/bin/python3"  # programs run as an account that may look into no other
APP, ENVIRONMENT = "shop", "front"
CORE_MHZ = 1_000.0
MEMORY_MIB = 400
SHARES = 100_000  # of the nodes together: they get what their cores are, whatever else the machine does
SCRAPE_S = 1.0
KINDS = ("offered", "served", "rejected")
_NUMBERS = count(1)

# Burns CPU for a request: `site.py ADDRESS PORT SECONDS FOLDER VM`. GET /up is answered at once, with 500 while there
# is a file ill-VM in the folder.
SITE = r"""
import os, socket, sys, time
from _thread import start_new_thread
address, port, burn_s, folder, vm = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4], sys.argv[5]
counted = open("served", "ab", buffering=0)
def burn():
    until_s = time.thread_time() + burn_s
    while time.thread_time() < until_s:
        pass
def serve(client):
    try:
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                more = client.recv(65536)
                if not more:
                    return
                data += more
            head, _, data = data.partition(b"\r\n\r\n")
            status = b"200 OK"
            if head.split(b" ", 2)[1] == b"/up":
                if os.path.exists(folder + "/ill-" + vm):
                    status = b"500 Ill"
            else:
                burn()
                counted.write(b".")
            client.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\nok")
    except OSError:
        pass
    finally:
        client.close()
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((address, port))
listener.listen(1000)
while True:
    client, _ = listener.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    start_new_thread(serve, (client,))
"""

# Burns CPU: `burn.py SECONDS`.
BURN = r"""
import sys, time
until_s = float(sys.argv[1])
while time.process_time() < until_s:
    pass
"""

CONTROLLER: Mapping[str, Any] = {
    "periods": {"web_adjust_s": 0.5, "scrape_s": SCRAPE_S, "decide_s": 5.0},
    "timeouts": {"decide_limit_s": 4.0},
    "setup": {"attempts": 1},
}
AGREEMENT: Mapping[str, Any] = {
    "name": ENVIRONMENT,
    "owner": "lee",
    "workload": "web",
    "model": "flb-nub",
    "lease_s": 8.0,
    "web": {"over_s": 2.0},
}
PROBE: Mapping[str, Any] = {
    "kind": "http",
    "path": "/up",
    "period_s": 0.5,
    "limit_s": 2.0,
    "fall": 3,
    "rise": 1,
    "grace_s": 10.0,
    "replace_max": 6,
}


@dataclass(frozen=True, slots=True)
class Scale:
    """nodes: how many there are, each of one core, `core_frac` of one of the machine's. burn_s: CPU time of the
    machine's for a request. report_s: between reports of an agent. shared_cpu: all run on the last of the machine's
    CPUs and are held to their cores, so that what a node's programs have follows their weights."""

    nodes: int = 4
    core_frac: float = 0.1
    burn_s: float = 0.004
    report_s: float = 0.5
    shared_cpu: bool = False

    @property
    def full_per_s(self) -> float:
        """Requests that one instance can answer a second, but for what it does besides."""
        return self.core_frac / self.burn_s


@dataclass(frozen=True, slots=True)
class Counted:
    """Requests that arrived, that were answered well, and that were answered with a status of 500 or above."""

    sent: int
    good: int
    refused: int

    def since(self, before: Counted) -> Counted:
        """What has come since an earlier reading."""
        return Counted(self.sent - before.sent, self.good - before.good, self.refused - before.refused)


@dataclass(frozen=True, slots=True)
class Shown:
    """What `trimtab web show` says of all requests of the last minute at most, as numbers of them."""

    sent: int
    served: int
    rejected: int
    queued: int
    mean_s: float


class ServingLab(Lab):
    """Agents with programs instead of VMs; there is no fake server."""

    root: str
    scale: Scale

    def __init__(self, folder: Path, broker: str, scale: Scale, controller: Mapping[str, Section]) -> None:
        self.scale, self.root = scale, f"/trimtab-serving-{os.getpid()}-{next(_NUMBERS)}"
        self.place = folder / "programs"  # of the account that they run as, which sees no more of the folder
        self.place.mkdir(mode=0o755)
        (self.place / "site.py").write_text(SITE)
        (self.place / "burn.py").write_text(BURN)
        self.port = free_port()
        nodes = ",".join(f"n{index + 1}" for index in range(scale.nodes))
        super().__init__(folder, broker, nodes, controller=controller)

    def _agent(self, node: str, changes: Mapping[str, Section]) -> Process:
        address = f"127.0.1.{node.removeprefix('n')}"
        python = [PYTHON, "-I", "-S"]
        words = [*python, str(self.place / "site.py"), "{address}", str(self.port), f"{self.scale.burn_s:g}"]
        held = {"cpus": str(max(os.sched_getaffinity(0))), "confine": True} if self.scale.shared_cpu else {}
        own: Mapping[str, Any] = {
            "node": {"address": address},
            "periods": {"report_s": self.scale.report_s},
            "hypervisor": {"driver": "process", "uri": ""},
            "process": {
                "runner": "cgroup",
                "user": "nobody",
                "state": str(self.place / f"state-{node}"),
                "output": str(self.output(node)),
                "cgroup": f"{self.root}/{node}",
                "cores": 1,
                "core_mhz": CORE_MHZ,
                "core_frac": self.scale.core_frac,
                "memory_mib": 1_000,
                "stop_limit_s": 2.0,
                "programs": {
                    "site": {"run": [*words, str(self.place), "{vm}"]},
                    "burn": {"run": [*python, str(self.place / "burn.py"), "{arguments}"]},
                },
                **held,
            },
        }
        return super()._agent(node, merged(own, changes))

    def output(self, node: str) -> Path:
        """Where programs of a node write."""
        return self.place / f"output-{node}"

    def homes(self) -> dict[str, list[str]]:
        """Where each program runs, by the groups that hold processes."""
        found: dict[str, list[str]] = {}
        hierarchies = Hierarchies(self.root, places())
        root = hierarchies.places["freezer"].folder / hierarchies.root
        for folder in root.glob("n*/p-*"):
            node, name = folder.parent.name, folder.name.removeprefix("p-")
            if hierarchies.group(node, folder.name).pids():
                found.setdefault(unescaped(name), []).append(node)
        return found

    def cpu_time_s(self) -> float:
        """CPU time that all programs have used, those that have ended too, as the kernel counts it."""
        hierarchies = Hierarchies(self.root, places())
        return sum(hierarchies.group(node).usage().cpu_time_s for node in self.nodes)

    def used_mcycles(self, node: str, vm: str) -> float:
        """What a program has used, as the kernel counts it, in Mcycles of the node's core."""
        group = Hierarchies(self.root, places()).group(node, f"p-{names.escaped(vm)}")
        return group.usage().cpu_time_s / self.scale.core_frac * CORE_MHZ

    def weights_mhz(self) -> dict[str, float]:
        """What each program is entitled to while those beside it want as much, by the weights that the kernel has."""
        place = Hierarchies(self.root, places()).places["cpu"]
        found: dict[str, float] = {}
        for node in self.nodes:
            groups = (place.folder / self.root.strip("/") / node).glob("p-*")
            file = "cpu.weight" if place.unified else "cpu.shares"
            weights = {unescaped(one.name.removeprefix("p-")): float((one / file).read_text()) for one in groups}
            found |= {vm: CORE_MHZ * weight / sum(weights.values()) for vm, weight in weights.items()}
        return found

    def make_groups(self) -> None:
        """The group that has those of all nodes, which comes before others."""
        hierarchies = Hierarchies(self.root, places())
        hierarchies.make_root()
        folder, unified = hierarchies.places["cpu"].folder / hierarchies.root, hierarchies.places["cpu"].unified
        (folder / ("cpu.weight" if unified else "cpu.shares")).write_text("10000" if unified else str(SHARES))

    def remove_groups(self) -> None:
        """End every program with its supervisor, and remove all groups."""
        hierarchies = Hierarchies(self.root, places())
        roots = {place.folder / hierarchies.root for place in hierarchies.places.values()}
        found = {folder.relative_to(root) for root in roots for folder in root.rglob("*") if folder.is_dir()}
        for path in sorted(found, key=lambda path: -len(path.parts)):
            group = hierarchies.group(*path.parts)
            group.kill()
            group.remove()
        hierarchies.group().remove()


class Serving(Estate):
    """Lee's environment with one application, as its owner and the provider see it, and clients that ask for it."""

    lab: ServingLab
    proxy: haproxy_scene.Scene

    @property
    def listen(self) -> int:
        """Where clients ask."""
        return self.proxy.serving.listen

    def prepare(self) -> None:
        """Make users, exchanges and accounts."""
        self.set_passwords(PASSWORD)
        self.make_accounts()
        self.lab.make_groups()

    def open_shop(self, instances: tuple[int, int], lower: int = 1, **keys: Any) -> None:
        """An environment of `lower` nodes or more, with an application of at least and at most so many instances.
        Returns when requests go to the least."""
        self.open(AGREEMENT, lower=lower, upper=self.lab.scale.nodes)
        self.change_shop(instances, **keys)
        self.until_serving(instances[0])

    def change_shop(self, instances: tuple[int, int], flow: Mapping[str, Any] | None = None, **keys: Any) -> None:
        """Submit the application, or change it; `flow`: its only kind of request, where it has one with a goal."""
        self.done_by(LEE, "web", "submit", self._shop_file(instances, flow, keys), "--env", ENVIRONMENT)

    def open_pool_shop(self, instances: tuple[int, int], flow: Mapping[str, Any], **keys: Any) -> None:
        """Submit it as the provider's own, in no environment. Returns when requests go to the least instances."""
        said = self.here(PROVIDER, "web", "submit", self._shop_file(instances, flow, keys))
        assert said.status == 0, f"{said}\n{self.logs()}"
        self.until_serving(instances[0])

    def _shop_file(self, instances: tuple[int, int], flow: Mapping[str, Any] | None, keys: Mapping[str, Any]) -> str:
        serving = {"port": self.lab.port, "listen": self.listen, "instance_max": 8, "queue_max": 400}
        own: Mapping[str, Any] = {
            "memory_mib": MEMORY_MIB,
            "max_mhz": CORE_MHZ,
            "min_instances": instances[0],
            "max_instances": instances[1],
            "template": "site",
            "serving": serving,
            "probe": {**PROBE, "port": self.lab.port},
        }
        file = self.lab.folder / f"{APP}.web.toml"
        flows = f"[[flows]]\n{toml(flow)}" if flow is not None else ""
        file.write_text(toml(merged({"name": APP}, own, keys)) + flows)
        return str(file)

    def burn(self, job: str, work_mcycles: float, within_s: float) -> None:
        """Submit a job of one program that burns so much, which is to end within so long; beside it and an instance a
        node has no memory for another."""
        cpu_s = work_mcycles / CORE_MHZ * self.lab.scale.core_frac
        file = self.lab.folder / f"{job}.job.toml"
        known = {"name": job, "template": "burn", "arguments": [f"{cpu_s:g}"], "goal": {"within_s": within_s}}
        stage = {"work_mcycles": work_mcycles, "max_mhz": CORE_MHZ, "memory_mib": MEMORY_MIB}
        file.write_text(toml(known) + "[[stages]]\n" + toml(stage))
        said = self.here(PROVIDER, "jobs", "submit", str(file))
        assert said.status == 0, f"{said}\n{self.logs()}"

    def shop(self) -> dict[str, Any]:
        """What `trimtab web show` says."""
        return dict(self.look("web", "show", APP)["app"])

    def seen(self) -> Shown:
        """What was measured in the last minute, or since the controller began; nothing where nothing was."""
        traffic = self.shop()["traffic"]
        if traffic is None:
            return Shown(0, 0, 0, 0, 0.0)
        sent, served, rejected = (round(traffic[f"{key}_per_s"] * traffic["window_s"]) for key in KINDS)
        return Shown(sent, served, rejected, traffic["queued"], traffic["mean_s"] or 0.0)

    def in_rotation(self) -> frozenset[str]:
        """The instances that HAProxy finds healthy and sends requests to."""
        rows = [line.split() for line in self.proxy.beside().ask([f"show servers state trimtab-{APP}"]).splitlines()]
        return frozenset(row[3].replace(".", "#") for row in rows if len(row) > 18 and row[5:7] == ["2", "0"])

    def until_serving(self, instances: int, timeout_s: float = SOON_S) -> frozenset[str]:
        """Wait until just so many instances run, and HAProxy serves by all of them."""

        def look() -> bool:
            running = {vm for vm in self.homes() if workload_of(vm)[0] == APP}
            serving = self.in_rotation()
            return len(running) == instances and running == serving

        self.wait_for(look, timeout_s, f"{instances} instances that serve")
        return self.in_rotation()

    def load(self, rate: float, seconds: float, method: str = "GET") -> Generator:
        """Requests of clients at a rate for so long, from now on."""
        return self.proxy.load(rate, round(rate * seconds), method=method)

    def crowd(self, phases: Sequence[tuple[float, float]], seed: int) -> Clients:
        """Requests of clients who come by chance, from now on: (requests a second, seconds) one after the other."""
        return self.proxy.crowd(phases, seed)

    def answered(self) -> int:
        """How many requests all instances that there ever were have answered, as they count it themselves."""
        return sum(file.stat().st_size for file in self.lab.place.glob("output-*/*/served"))

    def counted(self) -> Counted:
        """What HAProxy has counted since its worker began."""
        rows = self.proxy.beside().ask([f"show stat trimtab-{APP} 3 -1"]).splitlines()
        front, back = (
            next(row for row in csv.DictReader([rows[0][2:], *rows[1:]]) if row["svname"] == name)
            for name in ("FRONTEND", "BACKEND")
        )
        good = int(back["hrsp_2xx"])
        return Counted(int(front["req_tot"]), good, int(front["hrsp_5xx"]))

    def until_counted(self, before: Counted, wanted: Counted) -> None:
        """Wait until HAProxy has counted so much since a reading: a client has its answer a moment before."""
        self.wait_for(lambda: self.counted().since(before) == wanted, what=f"{wanted} to be counted")

    def program(self, vm: str) -> int:
        """The process of an instance."""
        node = self.homes()[vm]
        (pid,) = Hierarchies(self.lab.root, places()).group(node, f"p-{names.escaped(vm)}").pids()
        return pid

    def kill_program(self, vm: str) -> None:
        """kill -9, by somebody else than its agent."""
        os.kill(self.program(vm), signal.SIGKILL)

    def fall_ill(self, vm: str, ill: bool = True) -> None:
        """Let an instance answer /up with 500, or 200 again."""
        file = self.lab.place / f"ill-{vm}"
        if ill:
            file.touch()
        else:
            file.unlink(missing_ok=True)

    def close(self) -> None:
        """End everything, programs too."""
        try:
            super().close()
        finally:
            self.lab.remove_groups()


def nobody_lost(load: Load) -> bool:
    """Whether every request was answered well."""
    return load.good == load.sent == load.replies and not load.errors


@contextmanager
def serving_scene(
    broker: PrivateBroker, scale: Scale = Scale(), controller: Mapping[str, Any] | None = None
) -> Iterator[Serving]:
    """Nodes, a controller that leads, HAProxy, and accounts; no environment yet. Nothing is left of it afterwards."""
    need_haproxy()
    need_programs((PYTHON,), ("python3",))
    need_cgroups(places())
    with ExitStack() as stack:
        proxy = stack.enter_context(haproxy_scene.haproxy_scene())
        folder = Path(tempfile.mkdtemp(prefix="serving-", dir="/var/tmp"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o711)
        vhost = f"serving-{os.getpid()}-{next(_NUMBERS)}"
        url = broker.url("any", PASSWORD, vhost)
        keys = proxy.keys
        balancer = {
            "driver": "haproxy",
            "drain_limit_s": 20.0,
            "resend_s": 1.0,
            "haproxy": {
                "folder": keys.folder,
                "socket": keys.socket,
                "master_socket": keys.master_socket,
                "address": keys.address,
                "ports": list(keys.ports),
            },
        }
        sections = merged(CONTROLLER, {"balancer": balancer}, controller or {})
        lab = ServingLab(folder, url, scale, sections)
        made = Serving(lab, broker, vhost)
        made.proxy = proxy
        stack.callback(made.close)
        made.prepare()
        made.begin_with_known_nodes()
        yield made
