"""The real `trimtab-lease`: its lease on a real folder, and a FIFO or a terminal in place of the watchdog."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.lease.folder import MARK, read_all
from agents.lease.reader import LeaseReader
from shared.base.clock import ManualClock, SystemClock
from shared.runtime.startup import boot_id
from shared.values.lease import Lease

ROOT = Path(__file__).resolve().parents[2]
CLOCK = SystemClock()
SOON_S = 30.0
RENEW_S = 0.5


def wait_for(what: Callable[[], object]) -> None:
    until_s = CLOCK.monotonic_s() + SOON_S
    while not what():
        assert CLOCK.monotonic_s() < until_s, "not in time"
        CLOCK.sleep(0.01)


class Host:
    """A host with a folder, a device, and at times a keeper."""

    def __init__(self, folder: Path, device: str, mine: int) -> None:
        self.folder, self.device, self._mine = folder / "leases", device, mine
        self.file, self._log = folder / "agent.toml", folder / "log"
        self.got = b""
        self.process: subprocess.Popen[bytes] | None = None
        os.set_blocking(mine, False)
        self.mount()

    def mount(self) -> None:
        self.folder.mkdir()
        (self.folder / MARK).touch()

    def start(self) -> subprocess.Popen[bytes]:
        keys = f'folder = "{self.folder}"\nrenew_s = {RENEW_S}\nexpires_s = 20\nwatchdog = "{self.device}"\n'
        self.file.write_text(f'[node]\nname = "n1"\n[lease]\n{keys}')
        command = [sys.executable, "-m", "agents.lease", "--config", str(self.file)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stderr=log, stdin=subprocess.DEVNULL)
        return self.process

    def hear(self) -> bytes:
        """All that the device has got."""
        try:
            while more := os.read(self._mine, 4096):
                self.got += more
        except BlockingIOError:
            pass
        return self.got

    def pets(self) -> int:
        return self.hear().count(b"\0")

    def petted(self, more: int = 2) -> None:
        """Wait for so many pets from now on."""
        before = self.pets()
        wait_for(lambda: self.pets() >= before + more)

    def lease(self) -> Lease:
        return read_all(str(self.folder)).leases["n1"]

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def noted(self, words: str) -> bool:
        return any(words in line["event"] for line in self.lines())

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(SOON_S)
        os.close(self._mine)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    os.mkfifo(tmp_path / "watchdog")
    # Written to as well, so that the device stays when no keeper has it open.
    made = Host(tmp_path, str(tmp_path / "watchdog"), os.open(tmp_path / "watchdog", os.O_RDWR))
    yield made
    made.end()


def test_a_keeper_renews_and_pets_and_is_stopped(host: Host) -> None:
    process = host.start()
    host.petted(3)
    first = host.lease()
    assert (first.node, first.boot_id, first.proof_s, first.released) == ("n1", boot_id(), 46.0, False)
    wait_for(lambda: host.lease().number > first.number)
    assert b"V" not in host.hear()

    process.send_signal(signal.SIGTERM)

    assert process.wait(SOON_S) == 0
    assert host.lease().released
    assert host.hear().endswith(b"V")
    assert host.got.count(b"V") == 1
    assert host.noted("this host has a lease")
    assert host.noted("the lease is released")
    assert host.noted("no watchdog")  # it is a FIFO


def test_a_killed_keeper_leaves_its_lease_to_expire_and_the_watchdog_armed(host: Host) -> None:
    process = host.start()
    host.petted()
    process.kill()
    process.wait(SOON_S)
    left = host.lease()
    assert not left.released
    assert b"V" not in host.hear()

    clock = ManualClock()
    reader = LeaseReader(str(host.folder), "n2", 5.0, clock, lambda: 0.0)
    proven = []
    for _ in range(12):
        reader.look()
        proven += [seen for seen in reader.read(clock.monotonic_s()) if seen.is_proof]
        clock.advance(5.0)
    assert [(seen.node, seen.boot_id, seen.number, seen.unchanged_s) for seen in proven] == [
        ("n1", left.boot_id, left.number, at) for at in (50.0, 55.0)
    ]

    host.start()
    host.petted()
    assert host.lease().number > left.number


def test_without_the_storage_nothing_pets_until_it_is_back(host: Host) -> None:
    host.start()
    host.petted()
    host.folder.rename(host.folder.with_name("away"))
    host.folder.mkdir()  # the mount point
    wait_for(lambda: host.noted("cannot be renewed"))
    pets = host.pets()
    CLOCK.sleep(4 * RENEW_S)
    assert host.pets() == pets
    assert [*host.folder.iterdir()] == []
    host.folder.rmdir()
    host.folder.with_name("away").rename(host.folder)
    host.petted()
    assert host.noted("the lease is renewed again")


def test_a_stop_without_the_storage_leaves_the_watchdog_armed_and_says_so(host: Host) -> None:
    process = host.start()
    host.petted()
    host.folder.rename(host.folder.with_name("away"))
    process.send_signal(signal.SIGTERM)
    wait_for(lambda: host.noted("cannot be released: unless that succeeds soon, the watchdog resets this host"))
    assert process.poll() is None
    assert b"V" not in host.hear()

    host.folder.with_name("away").rename(host.folder)

    assert process.wait(SOON_S) == 0
    assert host.lease().released
    assert host.hear().endswith(b"V")


def test_a_folder_without_its_mark_is_refused(host: Host) -> None:
    (host.folder / MARK).unlink()
    assert host.start().wait(SOON_S) == 1
    (line,) = host.lines()
    assert f"touch {host.folder}/{MARK}" in line["reason"]
    assert [*host.folder.iterdir()] == []
    assert host.hear() == b""


def test_a_device_that_cannot_be_opened_leaves_no_lease_that_could_be_proof(host: Host) -> None:
    Path(host.device).unlink()
    assert host.start().wait(SOON_S) == 1
    assert host.lease().released
    assert "no such device" in host.lines()[-1]["error"]


def test_a_terminal_takes_the_place_of_the_watchdog(tmp_path: Path) -> None:
    mine, other = pty.openpty()
    tty.setraw(other)
    host = Host(tmp_path, os.ttyname(other), mine)
    try:
        process = host.start()
        host.petted()
        process.send_signal(signal.SIGTERM)
        assert process.wait(SOON_S) == 0
        assert host.hear().endswith(b"V")
    finally:
        host.end()
        os.close(other)
