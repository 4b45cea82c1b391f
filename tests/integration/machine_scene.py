"""A cluster of one node that is a machine of its own: the packaged agent runs on it as its unit says, with the driver
`process` on units of systemd; the broker and the controller are on this host."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agents.hypervisors.process import names
from tests.integration.environment_scene import PROVIDER, Estate
from tests.integration.harness import Lab, Process, Section, merged, toml
from tests.integration.machine import Machine
from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import LIMIT_S, PASSWORD, SOON_S
from tests.integration.wire_cutter import WireCutter

NODE = "m1"
AGENT_UNIT = "trimtab-agent.service"
AGENT_FILE = "/etc/trimtab/agent.toml"
OUTPUT = "/var/lib/trimtab-job"
PROGRAM_FILE = "/srv/job.py"
PYTHON = "/usr/bin/python3"
CORE_MHZ, MEMORY_MIB, JOB_MIB = 1_000.0, 2_000, 100
NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_NUMBERS = count(1)

# `job.py WHAT ...`: notes what it does in a file of its own folder; those of one job see each other's.
PROGRAM = r"""
import os, sys, time
what, more = sys.argv[1], sys.argv[2:]
def note(text):
    with open("notes", "a") as file:
        file.write(text + "\n")
def burn(cpu_s):
    until_s = time.process_time() + cpu_s
    while time.process_time() < until_s:
        pass
def others():
    return ["../%s:23%d/notes" % (os.environ["TRIMTAB_JOB"], index) for index in range(int(more[0]))]
me = os.getpid()
note("begin %d" % me)
print("begun as", os.getuid(), flush=True)
if what == "burn":
    burn(float(more[0]))
elif what == "meet":
    while not all(map(os.path.exists, others())):
        time.sleep(0.02)
    note("met %d" % me)
elif what == "spy":
    for path in more:
        try:
            print(path, "read", len(open(path, "rb").read()))
        except OSError as error:
            print(path, error.strerror)
note("end %d" % me)
"""
CONTROLLER: Mapping[str, Any] = {
    "periods": {"decide_s": 5.0},
    "timeouts": {"decide_limit_s": 4.0, "unreachable_after_s": 8.0, "fence_after_s": 20.0},
    "setup": {"attempts": 1},
}


class MachineLab(Lab):
    """A controller of this host, and the file of the machine's agent, which reaches the broker at `port` there."""

    def __init__(
        self, folder: Path, broker: str, port: int, programs: Mapping[str, Section], setup: Mapping[str, Any]
    ) -> None:
        self._port, self._programs = port, programs
        super().__init__(folder, broker, NODE, agent={"setup": setup}, controller=CONTROLLER)

    def _agent(self, node: str, changes: Mapping[str, Section]) -> Process:
        words = [PYTHON, "-I", "-S", PROGRAM_FILE]
        programs = {what: {"run": [*words, what, "{arguments}"]} for what in ("burn", "meet", "spy")}
        size = {"cores": 4, "core_mhz": CORE_MHZ, "memory_mib": MEMORY_MIB}
        own: Mapping[str, Any] = {
            "hypervisor": {"driver": "process", "uri": ""},
            "journal": {"path": "/var/lib/trimtab/agent.journal"},
            "process": {**size, "stop_limit_s": 2.0, "programs": {**programs, **self._programs}},
        }
        made = super()._agent(node, merged(own, changes))
        file = self.folder / f"agent-{node}.toml"
        file.write_text(file.read_text().replace(f":{urlsplit(self.broker).port}/", f":{self._port}/"))
        return made

    def homes(self) -> dict[str, list[str]]:
        """There is but one node: nothing can be on two."""
        return {}


class Host(Estate):
    """The machine's provider at work; what its programs have noted."""

    lab: MachineLab
    machine: Machine

    def prepare(self) -> None:
        """Make users and exchanges, and put the agent's files in place."""
        self.set_passwords(PASSWORD)
        self.machine.run(["groupadd", "-rf", "libvirt"])
        self.machine.run(["rm", "-rf", f"/etc/systemd/system/{AGENT_UNIT}.d"])  # what other tests have laid over it
        self.machine.run(["systemctl", "daemon-reload"])
        self.machine.put(PROGRAM_FILE, PROGRAM)
        self.machine.put(AGENT_FILE, (self.lab.folder / f"agent-{NODE}.toml").read_text(), 0o640)
        self.machine.run(["chgrp", "trimtab", AGENT_FILE])

    def begin(self) -> None:
        """Start the controller, then the agent's unit."""
        self.follow()
        for controller in self.lab.controllers.values():
            controller.start()
        self.wait_for(lambda: self.heard("leading"), LIMIT_S, "a leader")
        self.do("nodes", "add", NODE)
        self.machine.run(["systemctl", "start", AGENT_UNIT])
        self.wait_for(lambda: self.heard("node-up", NODE), LIMIT_S, "the node")
        self.wait_for(lambda: self.node(NODE)["memory_mib"], LIMIT_S, "its size")

    def order(self, *words: str) -> None:
        """A command of the provider's that must succeed."""
        said = self.here(PROVIDER, *words)
        assert said.status == 0, f"{words}: {said}\n{self.logs()}"

    def put(self, name: str, what: str, *arguments: object, instances: int = 1, environment: str = "") -> None:
        """Submit a job of a program and what it is told; each instance may use a core."""
        head = {"name": name, "template": what, "arguments": [str(one) for one in arguments], "instances": instances}
        stage = {"work_mcycles": 100.0, "max_mhz": CORE_MHZ, "memory_mib": JOB_MIB}
        file = self.lab.folder / f"{name}.job.toml"
        file.write_text(toml({**head, "environment": environment}) + "[[stages]]\n" + toml(stage))
        self.order("jobs", "submit", str(file))

    def job(self, name: str) -> dict[str, Any]:
        """What `trimtab jobs show` says."""
        return dict(self.look("jobs", "show", name)["job"])

    def completed(self, *jobs: str) -> None:
        """Wait until these jobs are."""
        self.wait_for(lambda: all(self.heard("job-completed", job) for job in jobs), SOON_S, f"the end of {jobs}")

    def notes(self, vm: str, file: str = "notes") -> list[str]:
        """The lines of a file of a program's."""
        path = self.machine.root / f"{OUTPUT}/{names.escaped(vm)}/{file}".lstrip("/")
        return path.read_text().splitlines() if path.exists() else []

    def words(self, vm: str) -> list[str]:
        """What a program has noted, without the process ids."""
        return [line.split()[0] for line in self.notes(vm)]

    def shown(self, vm: str, name: str) -> str:
        """What systemd says of a program's unit."""
        return self.machine.run(["systemctl", "show", "-P", name, unit(vm)]).stdout.strip()

    def agent_pid(self) -> int:
        """The agent's process, 0 when there is none."""
        return int(self.machine.run(["systemctl", "show", "-P", "MainPID", AGENT_UNIT]).stdout)

    def logs(self) -> str:
        """With the agent's."""
        return f"{super().logs()}\n=== {AGENT_UNIT}\n{self.machine.journal(AGENT_UNIT)[-3_000:]}"

    def close(self) -> None:
        """End everything, programs too; nothing of the agent stays on the machine."""
        self.machine.run(["systemctl", "stop", AGENT_UNIT, "trimtab-job@*.service"], check=False)
        self.machine.run(["sh", "-c", f"rm -rf {AGENT_FILE} /var/lib/trimtab/* /run/trimtab/jobs/* {OUTPUT}/*"])
        super().close()


def unit(vm: str) -> str:
    """The unit of a program."""
    return f"trimtab-job@{names.escaped(vm)}.service"


def listener_on(machine: Machine) -> socket.socket:
    """A socket of this process that listens on the machine's loopback."""

    def listen() -> socket.socket:
        # In a thread that ends with it: a thread enters a network for itself.
        with open(f"/proc/{machine.pid}/ns/net", "rb") as network:
            if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), NEW_NETWORK):
                raise OSError(ctypes.get_errno(), "the machine's network cannot be entered")
        return socket.create_server(("127.0.0.1", 0))

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(listen).result()


@contextmanager
def host(
    broker: PrivateBroker, machine: Machine, programs: Mapping[str, Section], setup: Mapping[str, Any]
) -> Iterator[Host]:
    """The machine as the one node of a cluster. `programs`: more of them; `setup`: that section of its agent's file."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="machine-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        way = WireCutter(broker.amqp, listener_on(machine))
        stack.callback(way.close)
        vhost = f"machine-{os.getpid()}-{next(_NUMBERS)}"
        lab = MachineLab(folder, broker.url("any", PASSWORD, vhost), way.port, programs, setup)
        made = Host(lab, broker, vhost)
        made.machine = machine
        stack.callback(made.close)
        made.prepare()
        made.begin()
        yield made
