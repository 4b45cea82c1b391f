"""A cluster in a vhost of its own, the `trimtab` command at work on it, and what must never be seen of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from shared.bus.broker_setup import Account, ManagementApi, definitions
from tests.integration.harness import CLOCK, OPERATOR, Lab, Process, lab, need_driver, toml, user_url
from tests.integration.private_broker import PrivateBroker, answers, wait_until

PASSWORD = "secret"
TRIMTAB = str(Path(sys.executable).with_name("trimtab"))
NODES = "n1:4x1000:8000,n2:4x1000:8000,n3:4x1000:8000"
COSTS = "0.2,0.001,0.001,0.003"  # a VM of 1,000 MiB starts in 0.2 s and moves in 3 s
TEND_S = 0.5
COMMAND_S = 40.0
LIMIT_S = 60.0
SOON_S = 30.0
REQUEST_S = 25.0  # `--timeout` of each command: a loaded machine is slow, and a controller may be starting
MEMORY_MIB = 1_000

T = TypeVar("T")
_NUMBERS = count(1)


@dataclass(frozen=True, slots=True)
class Said:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Its one JSON object."""
        return json.loads(self.out)


class Scene:
    """A `Lab` that an operator works on with the command; every look at it checks that no VM is live twice."""

    def __init__(self, made: Lab, broker: PrivateBroker, vhost: str) -> None:
        self.lab, self.broker, self.vhost = made, broker, vhost
        self.api = ManagementApi(broker.management_url, broker.user, broker.password)
        self.operator_file = made.folder / "operator.toml"
        self.operator_file.write_text(toml({"timeout_s": REQUEST_S, "bus": {"url": user_url(made.broker, OPERATOR)}}))
        self.operator_file.chmod(0o600)
        self.follower = Process("events", [*self._command("events", "--follow", "--output", "json")], made.folder)

    # --- the command ----------------------------------------------------------------------------------------------

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> Said:
        """Run `trimtab` to its end, with the operator's file unless `env` is given in its place."""
        command = [TRIMTAB, *words] if env is not None else self._command(*words)
        with subprocess.Popen(
            command,
            cwd=self.lab.folder,
            env={**os.environ, "COLUMNS": "400", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            return self._said(child)

    def _said(self, child: subprocess.Popen[str]) -> Said:
        """What a command says, while who asks for it is started again: it may be who is to answer."""
        until_s = CLOCK.monotonic_s() + COMMAND_S
        while True:
            self.lab.tend()
            try:
                out, err = child.communicate(timeout=TEND_S)
            except subprocess.TimeoutExpired:
                if CLOCK.monotonic_s() >= until_s:
                    child.kill()
                    raise
            else:
                return Said(child.returncode, out, err)

    def do(self, *words: str) -> Said:
        """Run a command that must succeed."""
        said = self.run(*words)
        assert said.status == 0, f"{words}: {said}\n{self.logs()}"
        return said

    def submit(self, name: str, work_s: float, instances: int = 1, spread: bool = False) -> None:
        """Submit a job whose instances have `work_s` seconds of work at 1,000 MHz."""
        self.do("jobs", "submit", str(self.job_file(name, work_s, instances, spread)))

    def job_file(self, name: str, work_s: float, instances: int = 1, spread: bool = False) -> Path:
        """The file of such a job, with what its guests truly do."""
        work = work_s * 1_000.0
        file = self.lab.folder / f"{name}.job.toml"
        head: dict[str, Any] = {
            "name": name,
            "instances": instances,
            "spread": spread,
            "template": f"fake:work={work:g};max=1000;instances={instances}",
        }
        stage = {"work_mcycles": work, "max_mhz": 1000, "memory_mib": MEMORY_MIB}
        file.write_text(toml(head) + "[[stages]]\n" + toml(stage))
        return file

    def _command(self, *words: str) -> list[str]:
        """With the operator's file, which goes after the names of group and command."""
        return [TRIMTAB, *words, "--config", str(self.operator_file)]

    # --- watching ---------------------------------------------------------------------------------------------------

    def happened(self) -> list[dict[str, Any]]:
        """What `trimtab events --follow` has printed so far."""
        lines = self.follower.log.read_text().splitlines() if self.follower.log.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{")]

    def heard(self, what: str, subject: str = "") -> list[dict[str, Any]]:
        """Events of a kind, about one thing if it is named."""
        return [one for one in self.happened() if one["what"] == what and subject in ("", one["subject"])]

    def homes(self) -> dict[str, str]:
        """The node of each live VM. AssertionError when one is live on two."""
        found = self.lab.homes()
        assert all(len(nodes) == 1 for nodes in found.values()), f"live twice: {found}\n{self.logs()}"
        return {vm: nodes[0] for vm, nodes in found.items()}

    def wait_for(self, ready: Callable[[], T], timeout_s: float = SOON_S, what: str = "what was waited for") -> T:
        """As `Lab.wait_for`; looks at the homes of all VMs each time."""

        def look() -> T:
            self.homes()
            return ready()

        return self.lab.wait_for(look, timeout_s, what)

    def watch(self, seconds: float, holds: Callable[[], bool], what: str) -> None:
        """See that something holds all the time for so long."""
        until_s = CLOCK.monotonic_s() + seconds

        def look() -> bool:
            assert holds(), f"{what} no longer holds\n{self.logs()}"
            return CLOCK.monotonic_s() >= until_s

        self.wait_for(look, seconds + SOON_S, f"{seconds} s of {what}")

    def running(self, *vms: str) -> dict[str, str]:
        """Wait until all of these are live; their nodes."""
        self.wait_for(lambda: set(vms) <= set(self.homes()), SOON_S, f"the start of {vms}")
        return self.homes()

    def completions(self) -> dict[str, list[int]]:
        """The attempts in which each job was truly completed."""
        return {task["job"]: [one["attempt"] for one in task["completions"]] for task in self.lab.fake.state()["tasks"]}

    def all_done_once(self, *jobs: str, timeout_s: float = LIMIT_S) -> None:
        """Wait until these are complete and their VMs are gone; each was completed once, and no VM was doubled."""
        self.wait_for(lambda: all(self.completions().get(job) for job in jobs), timeout_s, f"the end of {jobs}")
        self.wait_for(lambda: not self.domains(), SOON_S, "the removal of their VMs")
        assert {job: len(self.completions()[job]) for job in jobs} == dict.fromkeys(jobs, 1)
        self.nothing_doubled()

    def domains(self) -> list[tuple[str, str]]:
        """Every VM and saved image of every node: (node, VM)."""
        return [
            (node["node"], vm["vm"])
            for node in self.lab.fake.state()["nodes"]
            for vm in (*node["domains"], *node["images"])
        ]

    def nothing_doubled(self) -> None:
        """No disk lock ever had to keep a VM from coming to life a second time."""
        assert self.lab.fake.state()["doubles"] == [], self.logs()

    def operations(self, kind: str) -> list[tuple[str, dict[str, Any]]]:
        """What hypervisors have under way: (node, operation)."""
        return [
            (node["node"], operation)
            for node in self.lab.fake.state()["nodes"]
            for operation in node["operations"]
            if operation["kind"] == kind
        ]

    def begun(self, node: str, kind: str) -> list[str]:
        """The VMs of the operations of a kind that a node's agent has begun, in order."""
        lines = log_lines(self.lab.agents[node])
        return [line["vm"] for line in lines if line["event"] == "operation begun" and line["kind"] == kind]

    def orders(self, vm: str) -> list[dict[str, Any]]:
        """The orders on a VM that controllers have sent."""
        lines = [line for controller in self.lab.controllers.values() for line in log_lines(controller)]
        return [line for line in lines if line["event"] == "order sent" and line["vm"] == vm]

    def told(self, what: str) -> set[str]:
        """Whom the controllers' logs name in events of a kind; events reach no follower while the broker is away."""
        lines = [line for controller in self.lab.controllers.values() for line in log_lines(controller)]
        return {line["subject"] for line in lines if line["event"] == "happened" and line["what"] == what}

    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"=== {one.name}\n{one.tail()}" for one in (*self.lab.processes, self.follower) if one.lives)

    # --- life -------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make users and exchanges, and start the fake server."""
        self.set_passwords(PASSWORD)
        self.lab.start_server()

    def set_passwords(self, password: str) -> None:
        """Give every user of the cluster this password; connections that are open stay so."""
        self.api.apply(definitions(self.vhost, [Account(user, password) for user in self.lab.users]))

    def follow(self) -> None:
        """Follow events from now on."""
        self.follower.start()
        self.wait_for(lambda: self.queues("events."), LIMIT_S, "the follower of events")

    def begin(self) -> None:
        """Follow events, start everything and let the nodes take part. The first of several controllers leads."""
        self.follow()
        for agent in self.lab.agents.values():
            agent.start()
        for controller in self.lab.controllers.values():
            controller.start()
            self.wait_for(lambda: self.heard("leading"), LIMIT_S, "a leader")
        self.join()

    def join(self) -> None:
        """Let the nodes take part, and wait until all do."""
        self.do("nodes", "add", *self.lab.nodes)
        self.wait_for(lambda: all(self.heard("node-up", node) for node in self.lab.nodes), LIMIT_S, "all nodes")

    def queues(self, prefix: str) -> list[dict[str, Any]]:
        """The broker's queues whose names begin like that."""
        found: list[dict[str, Any]] = self.api.call("GET", f"queues/{quote(self.vhost, safe='')}")
        return [queue for queue in found if queue["name"].startswith(prefix)]

    def kill_broker(self) -> None:
        """kill -9; `broker.start` starts it again."""
        os.killpg(self.broker.server_pid, signal.SIGKILL)
        wait_until(lambda: not answers(self.broker.amqp), SOON_S)

    def close(self) -> None:
        """End everything and remove the vhost."""
        self.follower.end()
        self.lab.close()
        self.api.call("DELETE", f"vhosts/{quote(self.vhost, safe='')}")


def log_lines(process: Process) -> list[dict[str, Any]]:
    """The events in a daemon's log."""
    return [json.loads(line) for line in process.log.read_text().splitlines() if line.startswith("{")]


def says(process: Process, text: str) -> bool:
    """Whether its log has a text."""
    return text in process.log.read_text()


@contextmanager
def scene(
    broker: PrivateBroker,
    via: Mapping[str, int] | None = None,
    begin: bool = True,
    kind: type[Scene] = Scene,
    **options: Any,
) -> Iterator[Scene]:
    """A cluster of three nodes; `options` as of `Lab`. `via`: other ports by which agents reach the broker.

    With `begin` false only the fake server runs.
    """
    need_driver()
    vhost = f"scene-{os.getpid()}-{next(_NUMBERS)}"
    url = broker.url("any", PASSWORD, vhost)
    with lab(url, options.pop("nodes", NODES), **{"costs": COSTS, **options}) as made:
        whole = kind(made, broker, vhost)
        for node, port in (via or {}).items():
            file = made.folder / f"agent-{node}.toml"
            file.write_text(file.read_text().replace(f":{broker.amqp}/", f":{port}/"))
        try:
            whole.prepare()
            if begin:
                whole.begin()
            yield whole
        finally:
            whole.close()
