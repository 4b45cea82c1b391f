"""The driver `process` above a runner that is slow, silent or broken: the agent goes on, or ends and says why."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.hypervisors.process.driver import ProcessHypervisor, Setting
from agents.hypervisors.process.programs import Here
from agents.hypervisors.process.record import Usage
from agents.hypervisors.process.runner import Cpu, Exit, Launch
from shared.base.errors import TransientError
from shared.config.agent import Program
from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.nodes import Node
from shared.values.vms import VmSpec, VmState

VM, NAME = "j#0", "j:230"
LIMIT_S = 5.0


class OddRunner:
    """Runs nothing. `usage_s`: what each has used, or why that is not known; `broken`: what a change raises; `removal`:
    set, unless removing takes time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._there: dict[str, Exit | None] = {}
        self._ended: list[str] = []
        self._news = threading.Event()
        self.usage_s: float | TransientError = 0.0
        self.broken: Exception | None = None
        self.removal = threading.Event()
        self.removal.set()

    def names(self) -> frozenset[str]:
        return frozenset(self._there)

    def output(self, name: str) -> str:
        return str(self._folder / name)

    def start(self, name: str, wanted: Launch) -> None:
        del wanted
        self._there[name] = None

    def end(self, name: str) -> None:
        """Let a program end."""
        self._there[name] = Exit(0)
        self._ended.append(name)
        self._news.set()

    def ended(self, name: str) -> Exit | None:
        return self._there.get(name)

    def terminate(self, name: str) -> None:
        self.end(name)

    def freeze(self, name: str, frozen: bool) -> None:
        del name, frozen

    def set_cpu(self, name: str, cpu: Cpu) -> None:
        del name, cpu
        if self.broken is not None:
            raise self.broken

    def usage(self, name: str) -> Usage:
        del name
        if isinstance(self.usage_s, TransientError):
            raise self.usage_s
        return Usage(self.usage_s)

    def remove(self, name: str) -> None:
        assert self.removal.wait(LIMIT_S)
        self._there.pop(name, None)

    def wait(self, timeout_s: float) -> frozenset[str]:
        self._news.wait(timeout_s)
        self._news.clear()
        ended, self._ended = self._ended, []
        return frozenset(ended)

    def wake(self) -> None:
        self._news.set()


class Bench:
    """The driver on it, with one program started."""

    def __init__(self, folder: Path) -> None:
        self.runner = OddRunner(folder / "output")
        self._woken = threading.Event()
        setting = Setting(
            Node("n1", 4, 1000.0, memory_mib=4000),
            1000.0,
            "boot-1",
            folder / "state",
            Here("n1", ""),
            {"t": Program(("/bin/true",))},
            1.0,
        )
        self.driver = ProcessHypervisor(setting, self.runner, self._woken.set)
        started = self.order(
            ActionKind.START, spec=VmSpec(VM, 1, 1, memory_mib=100, vcpus=1, cpu_mhz=500.0, template="t"), generation=1
        )
        assert isinstance(started, Operated)
        assert started.outcome is Outcome.OK

    def order(self, kind: ActionKind, **fields: object) -> Operated | GuestChanged:
        """Begin an action on the program; what is heard next."""
        self.driver.begin(Action("a1", kind, "n1", vm=VM, term=1, boot_id="boot-1", expires_at_s=1e9, **fields), 0.0)  # type: ignore[arg-type]
        return self.heard()

    def heard(self) -> Operated | GuestChanged:
        """What the driver tells next. Raises what it raises."""
        while not (told := self.driver.poll(0.0)):
            assert self._woken.wait(LIMIT_S)
            self._woken.clear()
        (event,) = told
        return event


def test_what_is_no_folder_of_a_program_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "stray").touch()

    Bench(tmp_path).driver.close()

    assert (tmp_path / "state" / "stray").exists()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.runner.removal.set()
    made.driver.close()


def test_counters_stay_where_they_are_while_they_cannot_be_read(bench: Bench) -> None:
    bench.runner.usage_s = 5.0
    assert bench.driver.vms(0.0)[0].cpu_time_s == 5.0

    bench.runner.usage_s = TransientError("systemd does not answer")

    assert bench.driver.vms(0.0)[0].cpu_time_s == 5.0


def test_what_a_thread_of_the_driver_ends_by_ends_the_agent(bench: Bench) -> None:
    bench.runner.broken = OSError(30, "Read-only file system")

    with pytest.raises(OSError, match="Read-only file system"):
        bench.order(ActionKind.SET_CPU, expects=1, cpu_mhz=100.0)


def test_forgetting_what_does_not_die_keeps_nobody_waiting(bench: Bench) -> None:
    bench.runner.end(NAME)
    assert isinstance(bench.heard(), GuestChanged)
    bench.runner.removal.clear()

    bench.driver.forget(VM, 0.0)  # returns

    assert bench.driver.vms(0.0) == ()
    again = bench.order(
        ActionKind.START, spec=VmSpec(VM, 2, 2, memory_mib=100, vcpus=1, cpu_mhz=500.0, template="t"), generation=2
    )
    assert isinstance(again, Operated)
    assert again.outcome is Outcome.BUSY
    assert again.status is None or again.status.state is VmState.ENDED
