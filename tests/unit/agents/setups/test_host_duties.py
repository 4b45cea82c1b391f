"""All that an agreement brings to a node: in its order, by the allow-lists, again after a crash."""

from __future__ import annotations

import hashlib
import json
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agents.setups.host import OwnSetups
from agents.setups.packages import Packages
from agents.setups.units import run_unit
from shared.base.deadline import Deadline
from shared.base.errors import InvalidInput, InvalidValue, PermanentError, TransientError
from shared.config import toml
from shared.config.agent import AgentConfig, SetupCommand, SetupKeys
from shared.ports.effects import HostSetUp
from shared.values.host_setup import Image, Package, RemoteFile, Setup, SetupPolicy
from shared.values.nodes import SetupStep

DIGEST = hashlib.sha256(b"scene").hexdigest()
SERVICES = ("trimtab-service-a.service", "trimtab-service-b.service")


class FakeSystemd:
    """Notes what it is asked; fails for the units in `failing`."""

    def __init__(self, done: list[str]) -> None:
        self.done = done
        self.failing: dict[str, Exception] = {}

    def start(self, unit: str, limit_s: float | None = None) -> None:
        """Note it."""
        self.done.append(f"start {unit}")
        assert limit_s is not None
        if unit in self.failing:
            raise self.failing[unit]

    def stop(self, unit: str, limit_s: float | None = None) -> None:
        """Note it."""
        del limit_s
        self.done.append(f"stop {unit}")


class FakeHelper:
    """Listens where the root helper does, and answers with the lines that it is given; "" hangs up."""

    def __init__(self, path: Path, done: list[str], lines: Sequence[str]) -> None:
        self.requests: list[Any] = []
        self._done, self._lines = done, list(lines)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def end(self) -> None:
        """Wait until every line is said."""
        self._thread.join(10.0)
        self._socket.close()

    def _serve(self) -> None:
        for line in self._lines:
            channel, _ = self._socket.accept()
            with channel, channel.makefile("rb") as read:
                self.requests.append(json.loads(read.readline()))
                self._done.append("packages")
                if line:
                    channel.sendall(line.encode() + b"\n")


class Bench:
    """A node with everything that agreements may bring, and what is done there in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: list[str] = []
        self.systemd = FakeSystemd(self.done)
        (folder / "source").mkdir()
        (folder / "source/scene").write_bytes(b"scene")
        (folder / "library").mkdir()
        (folder / "library/a.raw").write_bytes(b"scene")
        log = f"open({str(folder / 'log')!r}, 'a').write"
        self.keys = SetupKeys(
            wipe=((sys.executable, "-c", f"{log}('wiped ')"),),
            wipe_units=("trimtab-setup@wipe-{environment}.service",),
            commands={"prepare": SetupCommand(unit="trimtab-setup@{environment}-{step}.service")},
            packages=("shop*",),
            helper=str(folder / "helper.sock"),
            urls=(f"file://{folder}/source/",),
            files_folder=str(folder / "environments"),
            services=("trimtab-service-*.service",),
            library=str(folder / "library"),
            images_folder=str(folder / "images"),
        )

    def carry_out(self, setup: Setup, step: SetupStep = SetupStep.ACQUIRE) -> HostSetUp:
        """For environment `night`."""
        return OwnSetups("n1", self.keys, self.folder / "lock", self.systemd).set_up("u1", "night", step, setup)

    def file(self, sha256: str = DIGEST) -> RemoteFile:
        """One that may be fetched."""
        return RemoteFile(f"file://{self.folder}/source/scene", "data/scene", sha256)

    @property
    def fetched(self) -> bool:
        """Whether it is there."""
        return (self.folder / "environments/night/data/scene").exists()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def helper(bench: Bench) -> Iterator[FakeHelper]:
    made = FakeHelper(Path(bench.keys.helper), bench.done, ['{"ok": true, "installed": ["shop=1.0"], "present": []}'])
    yield made
    made.end()


def test_everything_is_brought_in_its_order(bench: Bench, helper: FakeHelper) -> None:
    shop = Package("shop", DIGEST, "1.0")
    setup = Setup(SetupPolicy.WIPE, packages=(shop,), files=(bench.file(),), services=SERVICES, limit_s=60.0)

    done = bench.carry_out(setup)

    assert done == HostSetUp("u1", True, "installed: shop=1.0\nfetched: data/scene")
    assert bench.done == [
        "start trimtab-setup@wipe-night.service",
        "packages",
        "start trimtab-service-a.service",
        "start trimtab-service-b.service",
    ]
    (request,) = helper.requests
    assert request["install"] == [{"name": "shop", "version": "1.0", "sha256": DIGEST}]
    assert 0.0 < request["limit_s"] <= 60.0
    assert (bench.folder / "log").read_text() == "wiped "


def test_everything_goes_in_its_order(bench: Bench) -> None:
    setup = Setup(SetupPolicy.WIPE, files=(bench.file(),), services=SERVICES)
    bench.carry_out(setup)
    bench.done.clear()

    done = bench.carry_out(setup, SetupStep.RELEASE)

    assert done == HostSetUp("u1", True, "files removed")
    assert bench.done == [
        "stop trimtab-service-b.service",
        "stop trimtab-service-a.service",
        "start trimtab-setup@wipe-night.service",
    ]
    assert not bench.fetched
    assert bench.carry_out(setup, SetupStep.RELEASE) == HostSetUp("u1", True, "")


def test_a_policy_that_is_not_for_this_step_is_left_out(bench: Bench) -> None:
    setup = Setup(SetupPolicy.WIPE, acquire=False, files=(bench.file(),))

    assert bench.carry_out(setup).ok
    assert bench.fetched
    assert (bench.done, (bench.folder / "log").exists()) == ([], False)
    assert bench.carry_out(setup, SetupStep.RELEASE).ok
    assert bench.done == ["start trimtab-setup@wipe-night.service"]


def test_what_is_there_is_not_brought_again(bench: Bench) -> None:
    setup = Setup(files=(bench.file(),))
    assert bench.carry_out(setup).output == "fetched: data/scene"

    assert bench.carry_out(setup) == HostSetUp("u1", True, "")


def test_everything_that_is_not_allowed_is_told_before_anything_is_done(bench: Bench) -> None:
    setup = Setup(
        SetupPolicy.WIPE,
        packages=(Package("openssh-server", DIGEST), Package("shop", DIGEST)),
        files=(bench.file(), RemoteFile("https://elsewhere.example/x", "x", DIGEST)),
        services=("trimtab-service-a.service", "ssh.service"),
    )

    done = bench.carry_out(setup)

    assert not done.ok
    assert done.output.split("; ") == [
        "service ssh.service matches none of setup.services: trimtab-service-*.service",
        "package openssh-server matches none of setup.packages: shop*",
        f"https://elsewhere.example/x begins with none of setup.urls: file://{bench.folder}/source/",
    ]
    assert (bench.done, bench.fetched, (bench.folder / "log").exists()) == ([], False, False)


def test_a_service_that_is_not_allowed_keeps_no_node(bench: Bench) -> None:
    """Given an agreement that was refused for a service, when its node is given back, then that service is left alone
    and all else is undone."""
    setup = Setup(files=(bench.file(),), services=("trimtab-service-a.service", "ssh.service"))
    assert not bench.carry_out(setup).ok

    done = bench.carry_out(setup, SetupStep.RELEASE)

    assert done.ok
    assert done.output == "service ssh.service matches none of setup.services: trimtab-service-*.service"
    assert bench.done == ["stop trimtab-service-a.service"]


def test_nothing_is_allowed_by_default(tmp_path: Path) -> None:
    own = OwnSetups("n1", SetupKeys(), tmp_path / "lock", FakeSystemd([]))
    for setup in (
        Setup(packages=(Package("shop", DIGEST),)),
        Setup(files=(RemoteFile("file:///etc/passwd", "x", DIGEST),)),
        Setup(services=("ssh.service",)),
        Setup(SetupPolicy.IMAGE, images=(Image("a", DIGEST),)),
        Setup(SetupPolicy.WIPE),
        Setup(SetupPolicy.EXEC, "prepare"),
    ):
        assert not own.set_up("u1", "night", SetupStep.ACQUIRE, setup).ok
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("environment", ["", "..", "../environments", "night/day", "/srv"])
def test_an_environment_is_a_name_and_no_path(bench: Bench, environment: str) -> None:
    """Given an order for an environment that leads elsewhere, when carried out, then nothing is made or removed."""
    own = OwnSetups("n1", bench.keys, bench.folder / "lock", bench.systemd)
    before = sorted(bench.folder.rglob("*"))

    for step in SetupStep:
        done = own.set_up("u1", environment, step, Setup(files=(bench.file(),), services=SERVICES))
        assert not done.ok
        assert "environment = " in done.output

    assert (sorted(bench.folder.rglob("*")), bench.done) == (before, [])


def test_a_wrong_digest_stops_what_would_follow(bench: Bench) -> None:
    done = bench.carry_out(Setup(files=(bench.file("0" * 64),), services=SERVICES))

    assert not done.ok
    assert f"night/data/scene has the SHA-256 digest {DIGEST}" in done.output
    assert (bench.done, bench.fetched) == ([], False)


def test_images_are_cloned_and_removed(bench: Bench) -> None:
    setup = Setup(SetupPolicy.IMAGE, images=(Image("a.raw", DIGEST),))

    assert bench.carry_out(setup) == HostSetUp("u1", True, "cloned: a.raw")
    assert (bench.folder / "images/night/a.raw").read_bytes() == b"scene"
    assert bench.carry_out(setup, SetupStep.RELEASE) == HostSetUp("u1", True, "images removed")
    assert not (bench.folder / "images/night").exists()


def test_a_service_that_fails_is_an_answer(bench: Bench) -> None:
    bench.systemd.failing["trimtab-service-a.service"] = PermanentError("start of a: failed (exit-code, status 1)")

    done = bench.carry_out(Setup(services=SERVICES))

    assert done == HostSetUp("u1", False, "start of a: failed (exit-code, status 1)")
    assert bench.done == ["start trimtab-service-a.service"]


def test_a_command_may_be_a_unit(bench: Bench) -> None:
    assert bench.carry_out(Setup(SetupPolicy.EXEC, "prepare"), SetupStep.RELEASE).ok
    assert bench.done == ["start trimtab-setup@night-release.service"]


def test_a_unit_that_takes_too_long_is_stopped(bench: Bench) -> None:
    bench.systemd.failing["x.service"] = TransientError("start of x.service is still in progress after 1 s")

    why = run_unit(bench.systemd, "x.service", Deadline(1.0))

    assert why == "start of x.service is still in progress after 1 s; it is being stopped"
    assert bench.done == ["start x.service", "stop x.service"]


def test_a_full_disk_is_an_answer(bench: Bench) -> None:
    (bench.folder / "environments").write_text("no folder")

    done = bench.carry_out(Setup(files=(bench.file(),)))

    assert not done.ok
    assert "File exists" in done.output


def test_a_command_is_a_program_or_a_unit(tmp_path: Path) -> None:
    keys = SetupKeys(commands={"p": SetupCommand(("true",), unit="p.service")})

    with pytest.raises(InvalidInput, match=r"setup\.commands\.p\.unit: is 'p\.service' \(expected nothing beside"):
        OwnSetups("n1", keys, tmp_path / "lock")


def test_the_allow_lists_come_from_the_agents_file() -> None:
    text = """
    [setup]
    wipe_units = ["trimtab-setup@wipe.service"]
    packages = ["shop*"]
    urls = ["https://files.example.org/shop/", "file:///srv/files/"]
    services = ["trimtab-service-*.service"]
    library = "/srv/images"
    """
    keys = toml.parse(text, AgentConfig).setup

    assert keys.urls == ("https://files.example.org/shop/", "file:///srv/files/")
    assert keys.files_folder == "/var/lib/trimtab/environments"
    for wrong in (
        'urls = ["https://files.example.org"]',
        'urls = ["https://files.example.org/shop"]',
        'urls = ["https://kim@files.example.org/"]',
        'urls = ["ftp://files.example.org/"]',
        'services = ["shop"]',
        'services = ["../x.service"]',
        'packages = ["Shop"]',
        'library = "images"',
    ):
        with pytest.raises(InvalidInput, match=rf"setup\.{wrong.split(' ')[0]}"):
            toml.parse(f"[setup]\n{wrong}\n", AgentConfig)


# --- the helper's other end -----------------------------------------------------------------------------------------


def install(tmp_path: Path, *lines: str) -> list[str]:
    """What comes of asking a helper that answers so."""
    path = tmp_path / "helper.sock"
    helper = FakeHelper(path, [], lines)
    try:
        return Packages(("*",), str(path)).install([Package("shop", DIGEST)], Deadline(5.0))
    finally:
        helper.end()


def test_the_helpers_reason_is_told(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="packages: not in the helper's packages: shop"):
        install(tmp_path, '{"ok": false, "refused": true, "reason": "not in the helper\'s packages: shop"}')


def test_a_helper_that_is_busy_is_asked_again(tmp_path: Path) -> None:
    assert install(tmp_path, "", "", '{"ok": true, "installed": ["shop=1"], "present": []}') == ["shop=1"]


@pytest.mark.parametrize("line", ["gibberish", "[]"])
def test_an_answer_that_cannot_be_read_is_told(tmp_path: Path, line: str) -> None:
    with pytest.raises(TransientError, match="cannot be read"):
        install(tmp_path, line)


def test_no_helper_is_told(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match=r"the helper \(.*/none\): No such file"):
        Packages(("*",), str(tmp_path / "none")).install([Package("shop", DIGEST)], Deadline(5.0))


def test_no_setup_lasts_longer_than_a_host_can_wait() -> None:
    """A socket raises OverflowError for such a limit: an agent that was sent one would end."""
    with pytest.raises(InvalidValue, match="limit_s"):
        Setup(limit_s=1e300, services=SERVICES)
