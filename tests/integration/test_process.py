"""Programs instead of VMs, on real cgroups: CPU by weights, an agent that is killed, what programs get and leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path

import pytest

from agents.hypervisors.process.cgroups import ControlGroup, Hierarchies
from agents.hypervisors.process.driver import ProcessHypervisor
from agents.hypervisors.process.runner import Cpu
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput
from shared.config.agent import Program
from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.vms import VmSpec, VmState
from tests.conformance.process_rig import CORE_MHZ, PERL, Site, need_cgroups, places, site
from tests.integration.debian import go_without

SHELL = "/bin/sh"
LIMIT_S = 15.0
CLOCK = SystemClock()
TELL = 'pwd; id -un; env | sort; for word in "$@"; do echo "<$word>"; done; grep NoNewPrivs /proc/self/status'
PROGRAMS = {
    "burn": Program((PERL, "-e", "1 while 1")),
    "idle": Program(("/bin/sleep", "1000")),
    "tell": Program((SHELL, "-c", TELL, "tell", "{vm} of {job}, number {index} on {node} at {address}", "{arguments}")),
    "fail": Program((SHELL, "-c", "echo so far so good; echo no more paper >&2; exit 3")),
    "deaf": Program((SHELL, "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")),
    "family": Program((SHELL, "-c", "sleep 1000 & sleep 1000 & wait")),
    "parent": Program((SHELL, "-c", "sleep 1000 & exit 0")),
    "hungry": Program((PERL, "-e", "my @a; push @a, 'x' x 1_000_000 while 1")),
    "last": Program((SHELL, "-c", "sleep 0.5; exit 0")),
    "missing": Program(("/nowhere/program",)),
}


class Agent:
    """Gives orders to a driver and keeps what it says."""

    def __init__(self, driver: ProcessHypervisor) -> None:
        self.driver, self.said, self._count = driver, list[Operated | GuestChanged](), 0

    def do(self, kind: ActionKind, vm: str = "job#0", **fields: object) -> Operated:
        self._count += 1
        action = Action(f"a{self._count}", kind, "n1", vm=vm, term=1, boot_id="boot", expires_at_s=1e12, **fields)  # type: ignore[arg-type]
        self.driver.begin(action, 0.0)
        return self.hear(lambda one: isinstance(one, Operated) and one.call_id == action.id)  # type: ignore[return-value]

    def start(self, template: str, vm: str = "job#0", mhz: float = 100.0, mib: int = 50, **fields: object) -> Operated:
        spec = VmSpec(vm, 1, 1, memory_mib=mib, vcpus=1, cpu_mhz=mhz, template=template, **fields)  # type: ignore[arg-type]
        return self.do(ActionKind.START, vm, generation=1, spec=spec)

    def hear(self, wanted: Callable[[Operated | GuestChanged], bool]) -> Operated | GuestChanged:
        limit_s = CLOCK.monotonic_s() + LIMIT_S
        while CLOCK.monotonic_s() < limit_s:
            self.said += self.driver.poll(0.0)
            for one in self.said:
                if wanted(one):
                    return one
            CLOCK.sleep(0.005)
        raise AssertionError(f"not heard: {self.said}")

    def ended(self, vm: str = "job#0") -> GuestChanged:
        return self.hear(lambda one: isinstance(one, GuestChanged) and one.status.vm == vm)  # type: ignore[return-value]

    def states(self) -> dict[str, VmState]:
        return {status.vm: status.state for status in self.driver.vms(0.0)}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path, PROGRAMS) as made:
        yield made


@pytest.fixture
def agent(place: Site) -> Iterator[Agent]:
    driver = place.driver()
    yield Agent(driver)
    driver.close()


def output(place: Site, name: str = "job:230") -> str:
    file = place.folder / "output" / name / "output"  # made by the program's own process, after it counts as started
    return file.read_text("utf-8") if file.exists() else ""


def is_gone(group: ControlGroup) -> None:
    """Wait until nothing is left of a program that is forgotten."""
    until_s = CLOCK.monotonic_s() + LIMIT_S
    while group.exists:
        assert CLOCK.monotonic_s() < until_s
        CLOCK.sleep(0.005)


def is_ready(place: Site) -> None:
    """Wait until the program has said that it heeds no SIGTERM any more."""
    until_s = CLOCK.monotonic_s() + 20.0
    while "ready" not in output(place):
        assert CLOCK.monotonic_s() < until_s
        CLOCK.sleep(0.01)


def test_a_program_is_given_what_it_may_know_and_nothing_else(place: Site, agent: Agent) -> None:
    assert agent.start("tell", "job#7", arguments=("a b", "$(id)", "")).outcome is Outcome.OK
    assert agent.ended("job#7").change is GuestChange.ENDED
    folder = place.folder / "output" / "job:237"
    told = output(place, "job:237").splitlines()
    assert told[:2] == [str(folder), "nobody"]
    assert told[-5:-1] == ["<job#7 of job, number 7 on n1 at 127.0.0.7>", "<a b>", "<$(id)>", "<>"]
    assert told[-1].split() == ["NoNewPrivs:", "1"]
    variables = dict(line.split("=", 1) for line in told[2:-5])
    assert variables.pop("PWD") == str(folder)
    assert variables == {
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "TRIMTAB_ADDRESS": "127.0.0.7",
        "TRIMTAB_ENVIRONMENT": "",
        "TRIMTAB_INDEX": "7",
        "TRIMTAB_JOB": "job",
        "TRIMTAB_NODE": "n1",
        "TRIMTAB_OUTPUT": str(folder),
        "TRIMTAB_VM": "job#7",
    }


@pytest.mark.parametrize(
    ("template", "arguments", "said"),
    [
        ("", (), "a program of this node: burn, "),
        ("../bin/sh", (), "a program of this node"),
        ("burn", ("-x",), "'burn' takes no arguments"),
        ("missing", (), "/nowhere/program cannot be run"),
    ],
)
def test_what_is_not_allowed_is_refused(agent: Agent, template: str, arguments: tuple[str, ...], said: str) -> None:
    answer = agent.start(template, arguments=arguments)
    assert (answer.outcome, answer.status) == (Outcome.REFUSED, None)
    assert said in answer.detail
    assert agent.states() == {}


def test_a_program_that_fails_has_crashed_and_its_output_stays(place: Site, agent: Agent) -> None:
    agent.start("fail")
    ended = agent.ended()
    assert (ended.change, ended.status.state) == (GuestChange.VANISHED, VmState.CRASHED)
    assert ended.detail.endswith("; it said: no more paper")
    assert "exit status" in ended.detail
    agent.driver.forget("job#0", 0.0)
    assert agent.states() == {}
    assert output(place) == "so far so good\nno more paper\n"


def test_a_program_that_does_not_heed_is_killed_after_its_time(place: Site, agent: Agent) -> None:
    agent.start("deaf")
    is_ready(place)
    begun_s = CLOCK.monotonic_s()
    answer = agent.do(ActionKind.STOP, expects=1)
    assert answer.outcome is Outcome.OK, answer.detail
    assert "killed" in answer.detail
    assert 1.0 <= CLOCK.monotonic_s() - begun_s < 3.0


def test_a_stop_that_is_aborted_leaves_it_running(place: Site, agent: Agent) -> None:
    agent.start("deaf")
    is_ready(place)
    agent.driver.begin(
        Action("stop", ActionKind.STOP, "n1", vm="job#0", term=1, boot_id="boot", expires_at_s=1e12, expects=1), 0.0
    )
    agent.driver.abort("job#0", 0.0)
    answer = agent.hear(lambda one: isinstance(one, Operated) and one.call_id == "stop")
    assert isinstance(answer, Operated)
    assert answer.outcome is Outcome.TIMED_OUT
    assert agent.states() == {"job#0": VmState.RUNNING}


@pytest.mark.parametrize("template", ["family", "parent"])
def test_nothing_that_it_has_started_is_left(place: Site, agent: Agent, template: str) -> None:
    agent.start(template)
    group = place.group("job:230")
    if template == "parent":
        agent.ended()
        agent.driver.forget("job#0", 0.0)
    else:
        agent.do(ActionKind.STOP, expects=1)
    is_gone(group)
    assert agent.states() == {}


def test_no_more_memory_than_was_asked_for(agent: Agent) -> None:
    if "memory" not in places():
        go_without("memory is not counted in cgroups here")
    agent.start("hungry", mib=64)
    assert agent.ended().status.state is VmState.CRASHED


def test_the_cpu_is_shared_by_weights_and_confined(tmp_path: Path) -> None:
    """Given three programs of 1, 2 and 4 parts on one CPU's worth, when all burn, then their shares are within 10
    points of that for 5 s, and all together get no more than a CPU."""
    with site(tmp_path, PROGRAMS, cpus="0", confine=True) as place:
        driver = place.driver()
        place.group().set_cpu(Cpu(200_000.0, 1.0), CORE_MHZ)  # whatever else runs on this machine gives way
        agent = Agent(driver)
        for part in (1, 2, 4):
            assert agent.start("burn", f"job#{part}", mhz=part * CORE_MHZ / 7).outcome is Outcome.OK
        CLOCK.sleep(0.5)
        before, begun_s = {status.vm: status.cpu_time_s for status in driver.vms(0.0)}, CLOCK.monotonic_s()
        CLOCK.sleep(5.0)
        used_s = {status.vm: status.cpu_time_s - before[status.vm] for status in driver.vms(0.0)}
        lasted_s = CLOCK.monotonic_s() - begun_s
        driver.close()
    total_s = sum(used_s.values())
    shares = [used_s[f"job#{part}"] / total_s for part in (1, 2, 4)]
    assert shares == pytest.approx([1 / 7, 2 / 7, 4 / 7], abs=0.1)
    assert total_s <= lasted_s * 1.05


def test_cpus_that_are_not_there_are_told_by_their_key(tmp_path: Path) -> None:
    with site(tmp_path, PROGRAMS, cpus="9000") as place, pytest.raises(InvalidInput, match=r"^process\.cpus: '9000'"):
        place.driver()


def test_a_stated_maximum_is_kept_to(agent: Agent) -> None:
    agent.start("burn", cap_mhz=CORE_MHZ / 4)
    CLOCK.sleep(0.3)
    before, begun_s = agent.driver.vms(0.0)[0].cpu_time_s, CLOCK.monotonic_s()
    CLOCK.sleep(1.0)
    used_s = agent.driver.vms(0.0)[0].cpu_time_s - before
    assert used_s <= 0.25 * (CLOCK.monotonic_s() - begun_s) + 0.06


HOLDER = """
import json, sys
from pathlib import Path
from agents.hypervisors.process.build import from_config
from shared.config.toml import load
from shared.config.agent import AgentConfig
from shared.ports.effects import Operated
from shared.values.actions import Action, ActionKind
from shared.values.vms import VmSpec
def answered():
    return [event for event in driver.poll(0.0) if isinstance(event, Operated)]
driver = from_config(load(sys.argv[1], AgentConfig), lambda: None)
orders = json.loads(sys.argv[2])
for number, (vm, template, paused) in enumerate(orders):
    spec = VmSpec(vm, 3, 2, 50, 1, 100.0, template=template)
    driver.begin(Action(str(number), ActionKind.START, "n1", vm, 1, "b", 1e12, 0, 3, spec, paused=paused), 0.0)
answers = []
while len(answers) < len(orders):
    answers += answered()
print("answered", *[answer.outcome for answer in answers], flush=True)
driver.begin(Action("s", ActionKind.SUSPEND, "n1", "frozen#0", 1, "b", 1e12, 3), 0.0)
driver.begin(Action("d", ActionKind.STOP, "n1", "deaf#0", 1, "b", 1e12, 3), 0.0)
while not answered():
    pass
print("ready", flush=True)
sys.stdin.read()
"""


def _toml(place: Site) -> str:
    keys = asdict(place.keys)
    programs = keys.pop("programs")
    lines = ["[node]", 'name = "n1"', 'address = "127.0.0.7"', "[process]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items() if value is not None]
    for name, program in programs.items():
        lines += [f"[process.programs.{name}]", f"run = {json.dumps(program['run'])}"]
    return "\n".join(lines) + "\n"


def test_an_agent_that_is_killed_finds_its_programs_again(place: Site) -> None:
    """Given programs that run, wait, are frozen, are being stopped, and one that ends meanwhile, when the process that
    holds the driver is killed and another one comes, then it knows all of them, and tells the one end once."""
    file = place.folder / "agent.toml"
    file.write_text(_toml(place))
    orders = [("run#0", "burn", False), ("wait#0", "idle", True), ("frozen#0", "idle", False)]
    orders += [("deaf#0", "deaf", False), ("last#0", "last", False)]
    command = [sys.executable, "-c", HOLDER, str(file), json.dumps(orders)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    said = [line.split() for line in takewhile(lambda line: line != "ready\n", holder.stdout)]  # and what it logs
    assert [line for line in said if line[0] == "answered"] == [["answered", *["ok"] * 5]]
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    CLOCK.sleep(0.6)

    driver = place.driver()
    agent = Agent(driver)
    ended = agent.ended("last#0")
    assert (ended.change, ended.status.generation, ended.status.attempt) == (GuestChange.ENDED, 3, 2)
    states = agent.states()
    assert states.pop("last#0") is VmState.ENDED
    running, paused, frozen = VmState.RUNNING, VmState.PAUSED, VmState.SUSPENDED
    assert states == {"run#0": running, "wait#0": paused, "frozen#0": frozen, "deaf#0": running}
    assert {(status.generation, status.attempt) for status in driver.vms(0.0)} == {(3, 2)}
    (burner,) = [status for status in driver.vms(0.0) if status.vm == "run#0"]
    assert burner.cpu_time_s > 0.01
    CLOCK.sleep(0.2)
    assert next(status.cpu_time_s for status in driver.vms(0.0) if status.vm == "run#0") > burner.cpu_time_s
    assert agent.do(ActionKind.RESUME, "frozen#0", expects=3, generation=4).outcome is Outcome.OK
    assert agent.do(ActionKind.UNPAUSE, "wait#0", expects=3, generation=3).outcome is Outcome.OK
    driver.close()

    third = Agent(place.driver())
    assert third.states()["frozen#0"] is VmState.RUNNING
    assert [one for one in third.driver.poll(0.0) if isinstance(one, GuestChanged)] == []
    third.driver.close()


def test_a_supervisor_that_is_killed_takes_its_program_with_it(place: Site, agent: Agent) -> None:
    agent.start("idle")
    run = json.loads((place.folder / "state" / "job:230" / "run.json").read_text())
    os.kill(run["pid"], signal.SIGKILL)
    assert agent.ended().status.state is VmState.CRASHED
    agent.driver.forget("job#0", 0.0)
    is_gone(place.group("job:230"))


def test_what_is_left_of_an_earlier_boot_is_gone(place: Site) -> None:
    first = Agent(place.driver())
    first.start("idle")
    first.driver.close()
    record = place.folder / "state" / "job:230" / "record.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "boot_id": "an earlier one"}))
    second = Agent(place.driver())
    assert second.states() == {}
    assert not place.group("job:230").exists
    second.driver.close()


def test_groups_of_version_2_freeze_and_kill() -> None:
    """The hierarchy of version 2, whatever of the CPU it offers here."""
    unified = places().get("unified")
    if unified is None:
        go_without("there is no hierarchy of version 2 here")
    found = {name: place for name, place in places().items() if name in ("cpu", "unified")}
    need_cgroups(found)
    hierarchies = Hierarchies(f"/trimtab-test-{os.getpid()}-v2", found)
    hierarchies.make_root()
    group = hierarchies.group("p-one")
    group.make()
    try:
        child = subprocess.Popen([PERL, "-e", "1 while 1"])
        for entrance in group.entrances:
            Path(entrance).write_text(str(child.pid))
        assert group.pids() == (child.pid,)
        group.freeze(True)
        before = group.usage()
        CLOCK.sleep(0.2)
        assert group.usage() == before
        group.freeze(False)
        CLOCK.sleep(0.2)
        assert group.usage().cpu_time_s > before.cpu_time_s
        group.freeze(True)
        group.kill()
        assert child.wait(LIMIT_S) == -signal.SIGKILL
    finally:
        group.remove()
        hierarchies.group().remove()
