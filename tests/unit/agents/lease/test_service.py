"""The keeper's process in this one: storage that works, hangs and fails, and a device that writes down what it gets."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from agents.lease import keeper as kp
from agents.lease.folder import FolderUnusable
from agents.lease.service import LeaseShell, boot_time_s, main, terms_of
from shared.base.errors import InvalidInput, PermanentError
from shared.config import toml
from shared.config.agent import AgentConfig
from shared.runtime import logs, startup
from shared.runtime.systemd_notify import Notifier
from shared.values.lease import Lease
from tests.support.shell_harness import wait_for

TERMS = kp.Terms("n1", "boot-1", renew_s=0.2, expires_s=30.0)


class Storage:
    """Takes every lease, unless it is `held` or has an `error`."""

    def __init__(self, found: Lease | None = None) -> None:
        self.found, self.error = found, ""
        self.leases: list[Lease] = []
        self.free = threading.Event()
        self.free.set()

    def look(self) -> Lease | None:
        return self.found

    def write(self, lease: Lease) -> None:
        self.free.wait(20.0)
        if self.error:
            raise FolderUnusable(self.error)
        self.leases.append(lease)


class Device:
    """What it got, with how many leases had been written then."""

    def __init__(self, storage: Storage, why: str = "") -> None:
        self.is_real, self.refuses, self.why = True, False, why
        self._storage = storage
        self.got: list[tuple[str, int]] = []

    def arm(self, expires_s: float, renew_s: float) -> float:
        del renew_s
        if self.why:
            raise PermanentError(self.why)
        self._get("arm")
        return expires_s

    def pet(self) -> None:
        self._get("pet")

    def fire(self) -> None:
        self._get("fire")
        if self.refuses:
            raise OSError("no shorter timeout")

    def disarm(self) -> None:
        self._get("disarm")

    def _get(self, what: str) -> None:
        self.got.append((what, len(self._storage.leases)))

    @property
    def pets(self) -> int:
        return sum(what == "pet" for what, _ in self.got)


class Rig:
    """A keeper in a thread."""

    def __init__(self, folder: Path, storage: Storage | None = None, why: str = "") -> None:
        self.log = io.StringIO()
        logs.configure(stream=self.log)
        self.storage = storage or Storage()
        self.device = Device(self.storage, why)
        self.systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.systemd.bind(str(folder / "notify"))
        notifier = Notifier({"NOTIFY_SOCKET": str(folder / "notify")})
        self.slept_s = 0.0
        self.shell = LeaseShell(TERMS, self.storage, self.device, notifier, lambda: boot_time_s() + self.slept_s)
        self.status: int | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Rig:
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            self.status = self.shell.run()
        except PermanentError as error:
            self.error = error

    def join(self) -> int | None:
        self._thread.join(20.0)
        assert not self._thread.is_alive()
        return self.status

    def notices(self) -> list[str]:
        """What systemd was told."""
        self.systemd.setblocking(False)
        found = []
        try:
            while True:
                found.append(self.systemd.recv(4096).decode())
        except BlockingIOError:
            return found

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]

    def end(self) -> None:
        self.storage.free.set()
        self.storage.error = ""
        self.shell.stop()
        if self._thread.is_alive():
            self._thread.join(20.0)
        self.systemd.close()
        structlog.reset_defaults()


@pytest.fixture
def rigs() -> Iterator[list[Rig]]:
    made: list[Rig] = []
    yield made
    for rig in made:
        rig.end()


@pytest.fixture
def rig(rigs: list[Rig], tmp_path: Path) -> Rig:
    rigs.append(Rig(tmp_path).start())
    wait_for(lambda: rigs[0].device.pets >= 3)
    return rigs[0]


def test_it_arms_after_a_first_write_and_pets_after_each_renewal(rig: Rig) -> None:
    assert rig.device.got[0] == ("arm", 1)
    written = [leases for _, leases in rig.device.got]
    assert written == sorted(set(written))  # at least one renewal before each pet
    assert [lease.released for lease in rig.storage.leases[:3]] == [True, False, False]
    numbers = [lease.number for lease in rig.storage.leases]
    assert numbers == sorted(set(numbers))
    assert abs(numbers[-1] / 1e3 - boot_time_s()) < 20.0
    assert "READY=1" in rig.notices()


def test_a_write_that_hangs_is_followed_by_no_pet(rig: Rig) -> None:
    rig.storage.free.clear()
    wait_for(lambda: any("does not answer" in line["event"] for line in rig.lines()))
    pets = rig.device.pets
    rig.storage.free.set()
    wait_for(lambda: rig.device.pets > pets)  # the late one is followed by a fresh one
    assert "STATUS=the storage does not answer" in rig.notices()


def test_storage_that_fails_is_followed_by_no_pet(rig: Rig) -> None:
    rig.storage.error = "/leases: Stale file handle"
    wait_for(lambda: rig.lines()[-1].get("reason") == rig.storage.error)
    pets, leases = rig.device.pets, len(rig.storage.leases)
    assert rig.device.got[-1] == ("pet", leases)
    rig.storage.error = ""
    wait_for(lambda: rig.device.pets > pets)
    assert [line["event"] for line in rig.lines()][-1] == "the lease is renewed again"


def test_a_stop_releases_then_disarms(rig: Rig) -> None:
    rig.shell.stop()
    assert rig.join() == kp.DONE
    assert rig.storage.leases[-1].released
    assert rig.device.got[-1] == ("disarm", len(rig.storage.leases))
    assert "STOPPING=1" in rig.notices()


def test_a_stop_without_storage_leaves_the_watchdog_armed_and_says_so(rig: Rig) -> None:
    rig.storage.error = "/leases: Input/output error"
    wait_for(lambda: rig.lines()[-1].get("reason") == rig.storage.error)
    rig.storage.error = "/leases: gone"
    rig.shell.stop()
    wait_for(lambda: any("cannot be released" in line["event"] for line in rig.lines()))
    assert rig.status is None
    assert rig.device.got[-1][0] == "pet"


@pytest.mark.parametrize("refuses", [False, True])
def test_a_host_that_wakes_with_an_expired_lease_is_reset_at_once(rig: Rig, refuses: bool) -> None:
    rig.device.refuses = refuses
    rig.slept_s = 100.0
    wait_for(lambda: any("has expired" in line["event"] for line in rig.lines()))
    assert rig.device.got[-1][0] == "fire"
    assert any("fires when its timeout is over" in line["event"] for line in rig.lines()) is refuses
    written = len(rig.storage.leases)
    rig.shell.stop()
    assert rig.join() == kp.REFUSED
    assert (len(rig.storage.leases), rig.device.got[-1][0]) == (written, "fire")


def test_a_watchdog_that_cannot_be_used_leaves_a_lease_that_is_no_proof(rigs: list[Rig], tmp_path: Path) -> None:
    rigs.append(Rig(tmp_path, why="another program has it").start())
    rigs[0].join()
    assert "another program" in str(rigs[0].error)
    assert [lease.released for lease in rigs[0].storage.leases] == [True]


def test_an_expired_lease_of_this_boot_ends_it(rigs: list[Rig], tmp_path: Path) -> None:
    rigs.append(Rig(tmp_path, Storage(Lease("n1", "boot-1", 0, 1e-3))).start())
    assert rigs[0].join() == kp.REFUSED
    assert (rigs[0].storage.leases, rigs[0].device.got) == ([], [])


def test_a_device_that_is_no_watchdog_is_noted(rigs: list[Rig], tmp_path: Path) -> None:
    rigs.append(Rig(tmp_path))
    rigs[0].device.is_real = False
    rigs[0].start()
    wait_for(lambda: rigs[0].device.pets)
    assert any("no watchdog" in line["event"] for line in rigs[0].lines())


def test_whose_lease_it_is(tmp_path: Path) -> None:
    config = toml.parse(f'[lease]\nfolder = "{tmp_path}"\nrenew_s = 2\nexpires_s = 9\n', AgentConfig)
    assert terms_of(config) == kp.Terms(startup.host_name(), startup.boot_id(), 2.0, 9.0)
    named = toml.parse(f'[node]\nname = "n7"\n[lease]\nfolder = "{tmp_path}"\n', AgentConfig)
    assert terms_of(named).node == "n7"
    with pytest.raises(InvalidInput, match=r"lease\.folder: is empty"):
        terms_of(AgentConfig())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[lease]\nfolder = "leases"\n', "lease.folder: is 'leases' (expected an absolute path, or nothing)"),
        (
            "[lease]\nrenew_s = 6\nexpires_s = 17\n",
            "lease.expires_s: is 17.0 (expected at least 3 x lease.renew_s = 18)",
        ),
        ("[lease]\nrenew_s = 61\n", "lease.renew_s: is 61"),
        ("", "lease.folder: is empty"),
        ('[lease]\nfolder = "/nowhere"\nwatchdog = "/none"\n', "lease.folder: /nowhere: No such file or directory"),
        ('[lease]\nfolder = "/nowhere"\nwatchdog = "/none"\n', "lease.watchdog: /none is not there"),
    ],
)
def test_check_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text)
    assert main(["--check", "--config", str(file)]) == 2
    assert said in capsys.readouterr().err


def test_check_needs_none_of_the_agents_secrets(tmp_path: Path) -> None:
    (tmp_path / "trimtab-leases").touch()
    (tmp_path / "device").touch()
    file = tmp_path / "agent.toml"
    text = '[bus]\nurl = "amqps://agent.n1@broker/"\npassword_file = "credential:none"\n'
    file.write_text(f'{text}[lease]\nfolder = "{tmp_path}"\nwatchdog = "{tmp_path}/device"\n')
    assert main(["--check", "--config", str(file)]) == 0
