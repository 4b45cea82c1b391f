"""A real agent's shell reports the leases of others; a folder that hangs holds up no report."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agents.lease.folder import MARK, Found, LeaseFile
from agents.lease.reader import LeaseReader
from agents.service.main import AgentShell, build, link_of, main
from shared.base.clock import ManualClock
from shared.base.errors import BusUnavailable
from shared.config import toml
from shared.config.agent import AgentConfig
from shared.ports import effects as fx
from shared.ports.bus import Bus
from shared.protocol import topology
from shared.values.lease import Lease, SeenLease
from sim_backend.fakes.hypervisor import FakeHypervisor
from tests.support.shell_harness import RealRig, Running, StillSampler, wait_for

RENEW_S = 5.0


class Looking:
    """A core that reads the node all the time."""

    def __init__(self) -> None:
        self.seen: list[tuple[SeenLease, ...]] = []

    def start(self, now_s: float) -> list[fx.Effect]:
        return [fx.StartTimer("look", now_s)]

    def handle(self, event: fx.Input, now_s: float) -> Sequence[fx.Effect]:
        if isinstance(event, fx.TimerFired):
            return [fx.Observe(), fx.StartTimer("look", now_s + 0.02)]
        if isinstance(event, fx.Observed):
            self.seen.append(event.leases)
        return []


class Storage:
    """Other nodes' leases, read at once or never; each look takes a renewal of its own clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.free = threading.Event()
        self.free.set()
        self.found = Found({"n2": Lease("n2", "boot-2", 7, 75.0)})

    def read(self, _folder: str) -> Found:
        self.free.wait(20.0)
        self.clock.advance(RENEW_S)
        return self.found


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[RealRig]:
    made = RealRig(tmp_path, nodes=1)
    yield made
    made.end()


def start(rig: RealRig, reader: LeaseReader | None) -> Looking:
    """An agent with that reader."""
    name, core = rig.nodes[0].name, Looking()
    shell = AgentShell(
        name,
        core,  # type: ignore[arg-type]  # it has what a shell needs of a core
        link_of(name, lambda: rig.bus.connect(topology.agent_user(name))),
        rig.hypervisors[name],
        StillSampler(),
        None,  # type: ignore[arg-type]  # nothing is written
        seed=1,
        leases=reader,
        clock=rig.clock,
    )
    rig.running.append(Running(shell))
    return core


def test_leases_that_are_not_renewed_are_part_of_a_reading(rig: RealRig) -> None:
    clock = ManualClock(rig.clock.monotonic_s())
    core = start(rig, LeaseReader("/leases", "n1", RENEW_S, clock, lambda: 0.0, Storage(clock).read))
    wait_for(lambda: core.seen and core.seen[-1])
    (seen,) = core.seen[-1]
    assert (seen.node, seen.boot_id, seen.number, seen.proof_s) == ("n2", "boot-2", 7, 75.0)
    assert seen.unchanged_s > 45.0


def test_a_folder_that_hangs_holds_up_no_reading(rig: RealRig) -> None:
    clock = ManualClock(rig.clock.monotonic_s())
    storage = Storage(clock)
    storage.free.clear()
    core = start(rig, LeaseReader("/leases", "n1", RENEW_S, clock, lambda: 0.0, storage.read))
    wait_for(lambda: len(core.seen) >= 5)
    assert set(core.seen) == {()}
    storage.free.set()


def test_without_a_folder_nothing_is_reported(rig: RealRig) -> None:
    core = start(rig, None)
    wait_for(lambda: len(core.seen) >= 2)
    assert set(core.seen) == {()}


@pytest.mark.parametrize("has_folder", [True, False])
def test_an_agent_reads_the_folder_of_its_file(tmp_path: Path, has_folder: bool) -> None:
    (tmp_path / MARK).touch()
    LeaseFile(str(tmp_path), "n2").write(Lease("n2", "boot-2", 7, 0.001))
    folder = str(tmp_path) if has_folder else ""
    text = f'[node]\nname = "n1"\n[journal]\npath = "{tmp_path}/journal"\n[lease]\nfolder = "{folder}"\nrenew_s = 0.1\n'

    def nowhere() -> Bus:
        raise BusUnavailable("there is no broker")

    rig = RealRig(tmp_path, nodes=1)
    make = lambda _config, _wake: FakeHypervisor(rig.nodes[0])  # noqa: E731
    shell = build(toml.parse(text, AgentConfig), nowhere, make, 1)
    try:
        reader = shell._leases
        assert (reader is not None) is has_folder
        if reader is not None:
            wait_for(lambda: reader.read(rig.clock.monotonic_s()))
    finally:
        shell._close()
        rig.end()


def checked(folder: Path, keys: str) -> int:
    file = folder / "agent.toml"
    file.write_text(f'[hypervisor]\ndriver = "process"\n[process]\ncore_mhz = 1000\n[lease]\n{keys}')
    return main(["--check", "--config", str(file)])


def test_check_names_what_a_lease_lacks_on_this_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = f'folder = "{tmp_path}"\nwatchdog = "{tmp_path}/watchdog"\n'
    assert checked(tmp_path, keys) == 2
    told = capsys.readouterr().err
    assert f"lease.folder: {tmp_path} has no file {MARK}" in told
    assert f"lease.watchdog: {tmp_path}/watchdog is not there" in told
    (tmp_path / MARK).touch()
    (tmp_path / "watchdog").touch()
    assert checked(tmp_path, keys) == 0
    assert checked(tmp_path, "") == 0
