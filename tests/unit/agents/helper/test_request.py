"""The root helper: what it hears, from whom, and what it refuses; installing itself is tried on a machine."""

from __future__ import annotations

import ast
import json
import os
import pwd
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from agents.helper import policy, request
from agents.helper.__main__ import answer
from agents.helper.apt import WOULD
from agents.helper.errors import Refusal
from agents.helper.policy import Policy
from agents.helper.request import PackageRequest, Request
from shared.values.host_setup import Package
from tests.architecture.sources import ROOT
from tests.integration.debian import need_root

DIGEST = "0123456789abcdef" * 4
GOOD: dict[str, Any] = {"install": [{"name": "shop", "version": "1.0", "sha256": DIGEST}], "limit_s": 60}
ME = pwd.getpwuid(os.getuid()).pw_name


def line(**changed: Any) -> bytes:
    """A request, changed."""
    return json.dumps(GOOD | changed).encode() + b"\n"


def package(**changed: Any) -> bytes:
    """A request for a package, changed."""
    return line(install=[GOOD["install"][0] | changed])


def test_a_request_is_understood() -> None:
    assert request.parsed(line()) == Request((PackageRequest("shop", "1.0", DIGEST),), 60)
    assert request.parsed(line(limit_s=1e9)).limit_s == request.LIMIT_S_MAX


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\n",
        b"[]\n",
        b"\xff\n",
        b"[" * 60_000 + b"\n",
        line(install=[]),
        line(install="shop"),
        line(install=[GOOD["install"][0]] * 2),
        line(install=[GOOD["install"][0] | {"name": f"shop{at}"} for at in range(101)]),
        line(install=["shop"]),
        line(limit_s=0),
        line(limit_s="1"),
        line(limit_s=True),
        line(limit_s=float("nan")),
        line(limit_s=None),
        line(remove=["shop"]),
        package(name="shop;reboot"),
        package(name="-oDir::Etc=/tmp"),
        package(name="./shop.deb"),
        package(name="Shop"),
        package(name="shop/sid"),
        package(name="shop\n"),
        package(name=["shop"]),
        package(version="1.0 reboot"),
        package(version=1),
        package(version="-y/../"),
        package(sha256=DIGEST.upper()),
        package(sha256=""),
        package(path="/tmp/x.deb"),
    ],
)
def test_anything_else_is_refused(sent: bytes) -> None:
    with pytest.raises(Refusal):
        request.parsed(sent)


def test_the_agreements_packages_are_what_the_helper_hears() -> None:
    """Whatever an agreement may name, the helper understands."""
    for wanted in (Package("libstdc++6", DIGEST), Package("a" * 128, DIGEST, "1:2.0~rc1+dfsg-3")):
        entry = {"name": wanted.name, "version": wanted.version, "sha256": wanted.sha256}
        assert request.parsed(line(install=[entry])).install[0].name == wanted.name


def test_a_request_that_does_not_end_is_refused() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(b"x" * 1000)
        here.shutdown(socket.SHUT_WR)
        with pytest.raises(Refusal, match="not ended by a line feed"):
            request.received(there)


def test_a_request_that_is_too_long_is_refused() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        here.sendall(b"x" * (request.REQUEST_BYTES_MAX + 1))
        with pytest.raises(Refusal, match="more than 65536 bytes"):
            request.received(there)


def test_a_request_that_drips_is_refused_in_time(tmp_path: Path) -> None:
    need_root("a list that is root's")
    (tmp_path / "helper.toml").write_text(f'user = "{ME}"\n')
    here, there = socket.socketpair()
    enough = threading.Event()

    def drip() -> None:
        for _ in range(50):
            if enough.wait(0.1):
                return
            here.sendall(b"x")
        here.shutdown(socket.SHUT_WR)

    with here, there:
        dripping = threading.Thread(target=drip)
        dripping.start()
        said = answer(there, str(tmp_path / "helper.toml"), str(tmp_path / "folder"), 0.3)
        enough.set()
        dripping.join()
    assert said == {"ok": False, "refused": True, "reason": "no request within 0.3 s"}


# --- what is allowed ------------------------------------------------------------------------------------------------


def read(tmp_path: Path, text: str, mode: int = 0o640) -> Policy:
    """The policy in a file of this user's."""
    path = tmp_path / "helper.toml"
    path.write_text(text)
    path.chmod(mode)
    return policy.read(str(path), os.getuid())


def test_nothing_is_allowed_by_default(tmp_path: Path) -> None:
    assert read(tmp_path, "") == Policy("trimtab", (), (), True)
    with pytest.raises(Refusal, match="not in the helper's packages: shop"):
        Policy().check(request.parsed(line()))


def test_only_what_is_listed_is_allowed(tmp_path: Path) -> None:
    found = read(tmp_path, 'user = "kim"\npackages = ["shop", "lib*-perl"]\ndependencies = ["perl"]\nupdate = false\n')
    assert found == Policy("kim", ("shop", "lib*-perl"), ("perl",), False)

    found.check(request.parsed(line()))
    found.check(request.parsed(package(name="libxml-perl")))
    asked = line(install=[GOOD["install"][0] | {"name": name} for name in ("perl", "shop", "shop-data")])
    with pytest.raises(Refusal, match="not in the helper's packages: perl, shop-data"):
        found.check(request.parsed(asked))
    found.check_others({"perl", "shop"})
    with pytest.raises(Refusal, match="dependencies: sudo"):
        found.check_others({"perl", "sudo"})


@pytest.mark.parametrize(
    "text",
    ["packages = 1", 'packages = ["a b"]', "packages = [1]", "user = 1", 'update = "no"', "package = []", "x", "\0"],
)
def test_a_policy_that_cannot_be_used_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(Refusal, match=r"helper\.toml"):
        read(tmp_path, text)


def test_a_policy_that_others_may_write_is_refused(tmp_path: Path) -> None:
    for mode in (0o660, 0o642):
        with pytest.raises(Refusal, match="may be written by others"):
            read(tmp_path, "", mode)
    with pytest.raises(Refusal, match="may be written by others"):
        policy.read(str(tmp_path / "helper.toml"), os.getuid() + 1)
    (tmp_path / "link.toml").symlink_to("helper.toml")
    with pytest.raises(OSError, match="symbolic links"):
        policy.read(str(tmp_path / "link.toml"), os.getuid())


def test_who_asks_is_known_from_the_kernel() -> None:
    here, there = socket.socketpair()
    with here, there:
        policy.check_peer(there, ME)
        other = next(entry.pw_name for entry in pwd.getpwall() if entry.pw_uid != os.getuid())
        with pytest.raises(Refusal, match=f"user id {os.getuid()} may ask for nothing: only {other} may"):
            policy.check_peer(there, other)
        with pytest.raises(Refusal, match="there is no user nobody-here"):
            policy.check_peer(there, "nobody-here")


def test_a_helper_without_a_policy_does_nothing(tmp_path: Path) -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(line())
        said = answer(there, str(tmp_path / "none.toml"), str(tmp_path / "folder"))

    assert said == {"ok": False, "refused": False, "reason": f"{tmp_path}/none.toml: No such file or directory"}
    assert not (tmp_path / "folder").exists()


# --- what root runs -------------------------------------------------------------------------------------------------


def test_what_apt_would_do_is_read() -> None:
    said = "Reading...\nRemv old [1.0]\nInst shop (1.0 local [all])\nInst libc6:amd64 [2] (3 Debian)\nConf shop (1.0)\n"

    assert WOULD.findall(said) == [("Remv", "old"), ("Inst", "shop"), ("Inst", "libc6:amd64")]


def test_the_helper_imports_the_standard_library_alone() -> None:
    """What root runs is what is in its folder, and Python's own."""
    files = sorted((ROOT / "agents/helper").glob("*.py"))
    names = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module or "")

    ours = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}
    assert {name for name in ours if not name.startswith("agents.helper")} == set()
    assert len(files) == 6
    assert (ROOT / "agents/__init__.py").read_text("utf-8").count("import") == 0


def test_the_helper_is_small() -> None:
    """It can be read in one sitting."""
    lines = sum(len(file.read_text("utf-8").splitlines()) for file in (ROOT / "agents/helper").glob("*.py"))

    assert lines < 600
