"""A cluster of real programs: a controller, agents with the driver `process` on cgroups of this machine, and programs
that write down themselves what they have done.

Many nodes have room on one machine, since each of their cores is but a part of one of the machine's.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from agents.hypervisors.process import names
from agents.hypervisors.process.cgroups import ControlGroup, Hierarchies
from tests.conformance.process_rig import need_cgroups, places
from tests.integration.debian import need_programs
from tests.integration.environment_scene import PROVIDER, Estate
from tests.integration.harness import Lab, Process, Section, merged, toml
from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import PASSWORD, SOON_S
from tests.support.process_names import unescaped

PYTHON = "/usr/bin/python3"  # programs run as an account that may look into no other
CORE_MHZ = 1_000.0
CORE_FRAC = 0.2
NODE_MIB = 1_000
JOB_MIB = 200
STOP_LIMIT_S = 1.0
LEASE_S = 3.0
SHARES = 100_000  # of the nodes together: they get what their cores are, whatever else the machine does
_NUMBERS = count(1)

# `job.py FOLDER VM JOB WHAT ...`: notes `begin PID` and `end PID CPU_S` in the file of its VM.
PROGRAM = r"""
import os, signal, sys, time
folder, vm, job, what = sys.argv[1:5]
more = sys.argv[5:]
def note(text):
    with open(folder + "/" + vm, "a") as file:
        file.write(text + "\n")
def burn(cpu_s):
    until_s = time.process_time() + cpu_s
    while time.process_time() < until_s:
        pass
def there(name):
    return os.path.exists(folder + "/" + name)
me = os.getpid()
note("begin %d" % me)
print("begun", vm, flush=True)
if what == "burn":
    burn(float(more[0]))
elif what == "meet":
    open(folder + "/at-gate-" + vm, "w").close()
    while not all(there("at-gate-%s#%d" % (job, index)) for index in range(int(more[0]))):
        time.sleep(0.02)
    note("met %d" % me)
    burn(float(more[1]))
elif what == "fail" and open(folder + "/" + vm).read().count("begin") <= int(more[0]):
    burn(0.1)
    print("no more paper", file=sys.stderr)
    sys.exit(3)
elif what == "deaf":
    signal.signal(signal.SIGTERM, lambda *_: note("asked %d" % me))
    note("deaf %d" % me)
    while True:
        time.sleep(0.05)
elif what == "serve":
    while True:
        if there("busy"):
            burn(0.05)
        else:
            time.sleep(0.05)
note("end %d %.3f" % (me, time.process_time()))
"""
CONTROLLER: Mapping[str, Any] = {
    "periods": {"web_adjust_s": 0.5, "decide_s": 5.0},
    "timeouts": {"decide_limit_s": 4.0},
    "setup": {"attempts": 1},
}


@dataclass(frozen=True, slots=True)
class Notes:
    """What a program has written down over all its lives. begun, ended: the process ids; cpu_s: of the last end."""

    begun: tuple[int, ...]
    ended: tuple[int, ...]
    words: tuple[str, ...]
    cpu_s: float

    @property
    def once(self) -> bool:
        """Whether one process did all of it."""
        return len(self.begun) == 1 and self.begun == self.ended


class ProcessLab(Lab):
    """Agents with programs instead of VMs; there is no fake server."""

    def __init__(
        self, folder: Path, broker: str, nodes: int, whole: str = "", controller: Mapping[str, Section] | None = None
    ) -> None:
        self._whole = whole
        self.hierarchies = Hierarchies(f"/trimtab-jobs-{os.getpid()}-{next(_NUMBERS)}", places())
        self.place = folder / "programs"  # programs see no more of the folder
        self.notes_folder = self.place / "notes"
        self.place.mkdir(mode=0o755)
        self.notes_folder.mkdir()
        self.notes_folder.chmod(0o1777)
        (self.place / "job.py").write_text(PROGRAM)
        super().__init__(folder, broker, ",".join(f"n{at + 1}" for at in range(nodes)), controller=controller)

    def _agent(self, node: str, changes: Mapping[str, Section]) -> Process:
        cpus = sorted(os.sched_getaffinity(0))
        words = [PYTHON, "-I", "-S", str(self.place / "job.py"), str(self.notes_folder), "{vm}", "{job}"]
        programs = {what: {"run": [*words, what, "{arguments}"]} for what in ("burn", "meet", "fail", "deaf", "serve")}
        own: Mapping[str, Any] = {
            "node": {"address": f"127.0.2.{node.removeprefix('n')}"},
            "hypervisor": {"driver": "process", "uri": ""},
            "standard_jobs": {"enabled": True, "folder": str(self.folder / f"standard-{node}"), "file_mib": 16},
            "process": {
                "runner": "cgroup",
                "user": "nobody",
                "state": str(self.place / f"state-{node}"),
                "output": str(self.place / f"output-{node}"),
                "cgroup": f"/{self.hierarchies.root}/{node}",
                "cores": 1,
                "cpus": str(cpus[int(node.removeprefix("n")) % len(cpus)]),  # weights count among those of a CPU
                "core_mhz": CORE_MHZ,
                "core_frac": 1.0 if node == self._whole else CORE_FRAC,
                "memory_mib": NODE_MIB,
                "confine": True,
                "stop_limit_s": STOP_LIMIT_S,
                "programs": programs,
            },
        }
        return super()._agent(node, merged(own, changes))

    def output(self, node: str, vm: str) -> str:
        """What a program has printed on a node."""
        return (self.place / f"output-{node}" / names.escaped(vm) / "output").read_text("utf-8")

    def group(self, node: str, vm: str) -> ControlGroup:
        """The cgroup of a program."""
        return self.hierarchies.group(node, f"p-{names.escaped(vm)}")

    def homes(self) -> dict[str, list[str]]:
        """Where each program is, by the groups that hold processes."""
        found: dict[str, list[str]] = {}
        for folder in (self.hierarchies.places["freezer"].folder / self.hierarchies.root).glob("n*/p-*"):
            node, vm = folder.parent.name, unescaped(folder.name.removeprefix("p-"))
            if self.group(node, vm).pids():
                found.setdefault(vm, []).append(node)
        return found

    def make_groups(self) -> None:
        """The group that has those of all nodes, which comes before others."""
        self.hierarchies.make_root()
        place = self.hierarchies.places["cpu"]
        file, value = ("cpu.weight", 10_000) if place.unified else ("cpu.shares", SHARES)
        (place.folder / self.hierarchies.root / file).write_text(str(value))

    def remove_groups(self) -> None:
        """End every program with its supervisor, and remove all groups."""
        roots = {place.folder / self.hierarchies.root for place in self.hierarchies.places.values()}
        found = {folder.relative_to(root) for root in roots for folder in root.rglob("*") if folder.is_dir()}
        for path in sorted(found, key=lambda path: -len(path.parts)):
            group = self.hierarchies.group(*path.parts)
            group.kill()
            group.remove()
        self.hierarchies.group().remove()


class Mill(Estate):
    """Such a cluster as its provider sees it, with what its programs have noted."""

    lab: ProcessLab

    def prepare(self) -> None:
        """Make users and exchanges."""
        self.set_passwords(PASSWORD)
        self.lab.make_groups()

    def order(self, *words: str) -> None:
        """A command of the provider's that must succeed."""
        said = self.here(PROVIDER, *words)
        assert said.status == 0, f"{words}: {said}\n{self.logs()}"

    def found(self, name: str, workload: str, lower: int, **keys: Any) -> None:
        """Create and activate an environment."""
        whole = {"name": name, "owner": "lee", "workload": workload, "lower": lower, "lease_s": LEASE_S, **keys}
        self.order("env", "create", self.agreement(whole))
        self.order("env", "activate", name, "--wait", "30")

    def put(self, name: str, what: str, *arguments: object, cpu_s: float = 1.0, **keys: Any) -> None:
        """Submit a job: a program, and what it is told. cpu_s: of the machine's, for its profile. It may use a node."""
        known = {"name": name, "template": what, "arguments": [str(one) for one in arguments]}
        work = {"work_mcycles": cpu_s / CORE_FRAC * CORE_MHZ, "max_mhz": CORE_MHZ, "memory_mib": JOB_MIB}
        stage = merged(work, keys.pop("stage", {}))
        file = self.lab.folder / f"{name}.job.toml"
        file.write_text(toml(merged(known, keys)) + "[[stages]]\n" + toml(stage))
        self.order("jobs", "submit", str(file))

    def job(self, name: str) -> dict[str, Any]:
        """What `trimtab jobs show` says."""
        return dict(self.look("jobs", "show", name)["job"])

    def open_shop(self, instances: int, environment: str) -> None:
        """Submit the application `shop`, of one to so many instances that each fill a node while they are busy."""
        app = {"name": "shop", "memory_mib": JOB_MIB, "max_mhz": CORE_MHZ, "min_instances": 1}
        file = self.lab.folder / "shop.web.toml"
        file.write_text(toml({**app, "max_instances": instances, "template": "serve"}))
        self.order("web", "submit", str(file), "--env", environment)

    def busy(self, much: bool) -> None:
        """Let instances of `shop` burn all that they get, or next to nothing."""
        file = self.lab.notes_folder / "busy"
        if much:
            file.touch()
        else:
            file.unlink(missing_ok=True)

    def completed(self, *jobs: str, timeout_s: float = SOON_S) -> None:
        """Wait until these jobs are."""
        self.wait_for(lambda: all(self.heard("job-completed", job) for job in jobs), timeout_s, f"the end of {jobs}")

    def notes(self, vm: str) -> Notes:
        """What a program has written down."""
        file = self.lab.notes_folder / vm
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        pids = {word: tuple(int(line[1]) for line in lines if line[0] == word) for word in ("begin", "end")}
        cpu_s = [float(line[2]) for line in lines if line[0] == "end"]
        return Notes(pids["begin"], pids["end"], tuple(line[0] for line in lines), cpu_s[-1] if cpu_s else 0.0)

    def program(self, vm: str) -> int:
        """The process of a VM that runs."""
        (pid,) = self.lab.group(self.homes()[vm], vm).pids()
        return pid

    def kill_program(self, vm: str) -> None:
        """kill -9, by somebody else than its agent."""
        os.kill(self.program(vm), signal.SIGKILL)

    def cpu_time_s(self, vm: str) -> float:
        """What a program that is there has used, as its group counts it, in time of the machine's."""
        return self.lab.group(self.homes()[vm], vm).usage().cpu_time_s

    def close(self) -> None:
        """End everything, programs too."""
        try:
            super().close()
        finally:
            self.lab.remove_groups()


@contextmanager
def mill(broker: PrivateBroker, nodes: int, whole: str = "") -> Iterator[Mill]:
    """Nodes and a controller that leads; nothing is left of it afterwards. `whole`: the node whose core is one of the
    machine's."""
    need_programs((PYTHON,), ("python3",))
    need_cgroups(places())
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="jobs-", dir="/var/tmp"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o711)
        vhost = f"jobs-{os.getpid()}-{next(_NUMBERS)}"
        lab = ProcessLab(folder, broker.url("any", PASSWORD, vhost), nodes, whole, CONTROLLER)
        made = Mill(lab, broker, vhost)
        stack.callback(made.close)
        made.prepare()
        made.begin_with_known_nodes()
        yield made
