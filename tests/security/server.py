"""A real `trimtab-portal` to attack: with TLS or behind a real proxy, without a broker (the login needs none)."""

from __future__ import annotations

import http.client
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daemons.portal.auth.account_command import account_command
from shared.base.clock import SystemClock
from tests.integration.debian import need_programs
from tests.integration.harness import Process, toml
from tests.integration.private_broker import CURVE, answers, openssl
from tests.ports import free_ports

CLOCK = SystemClock()
PASSWORD = "correct horse staple"
START_S = 30.0
ANSWER_S = 20.0
NEVER = float("inf")
ATTACKER, VISITOR = "127.0.0.66", "127.0.0.7"


class Attacked:
    """The portal at `port`, and how it is reached: `tls` by itself, or in plain by a proxy."""

    def __init__(self, folder: Path, port: int, process: Process, tls: bool) -> None:
        self.folder, self.port, self.process, self.tls = folder, port, process, tls
        self.host = f"localhost:{port}"

    def connect(self, source: str, port: int = 0) -> http.client.HTTPConnection:
        """A connection from an address of this machine, to the portal unless to a proxy's `port`."""
        where: dict[str, Any] = {"timeout": ANSWER_S, "source_address": (source, 0)}
        if self.tls and not port:
            return http.client.HTTPSConnection("127.0.0.1", self.port, context=unverified(), **where)
        return http.client.HTTPConnection("127.0.0.1", port or self.port, **where)

    def get_s(self, source: str = VISITOR) -> float:
        """How long the page of the login takes somebody who comes anew, seconds; infinite where it does not come."""
        begun_s = CLOCK.monotonic_s()
        connection = self.connect(source)
        try:
            connection.request("GET", "/login", headers={"Host": self.host})
            answer = connection.getresponse()
            good = answer.status == 200 and b"password" in answer.read()
        except OSError:
            good = False
        finally:
            connection.close()
        return CLOCK.monotonic_s() - begun_s if good else NEVER

    def pages_s(self, times: int, pause_s: float = 0.1) -> list[float]:
        """`get_s`, again and again."""
        took_s = []
        for _ in range(times):
            took_s.append(self.get_s())
            CLOCK.sleep(pause_s)
        return took_s

    def add_account(self, name: str, role: str = "user") -> None:
        """Make an account with `PASSWORD`."""
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o600)
        config = str(self.folder / "portal.toml")
        words = ["add", name, "--role", role, "--password-file", str(secret), "--config", config]
        assert account_command(words) == 0


def unverified() -> ssl.SSLContext:
    """For a certificate that nobody knows."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@contextmanager
def attacked(
    folder: Path, *, tls: bool = True, more: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[Attacked]:
    """A portal that runs for the length of the block; `more`: sections of its configuration."""
    need_programs(("openssl",), ("openssl",))
    port, nobody = free_ports(2)
    sections: dict[str, Any] = {
        "public_url": f"https://localhost:{port}",
        "server": {"port": port},
        "store": {"url": f"sqlite:///{folder}/portal.db"},
        "bus": {"url": f"amqp://portal.p:x@127.0.0.1:{nobody}/"},
        "metrics": {"listen": ""},
    }
    for name, section in (more or {}).items():
        sections[name] = sections.get(name, {}) | dict(section)
    if tls:
        openssl(
            folder, "req", "-x509", *CURVE, "-days", "2", "-subj", "/CN=localhost", "-keyout", "key", "-out", "cert"
        )
        (folder / "key").chmod(0o600)
        sections["tls"] = {"cert_file": f"{folder}/cert", "key_file": f"{folder}/key"}
    file = folder / "portal.toml"
    file.write_text(toml(sections))
    file.chmod(0o600)
    process = Process("portal", [sys.executable, "-P", "-m", "daemons.portal.main", "--config", str(file)], folder)
    process.start()
    try:
        made = Attacked(folder, port, process, tls)
        until_s = CLOCK.monotonic_s() + START_S
        while not answers(port):
            assert CLOCK.monotonic_s() < until_s, process.tail()
            CLOCK.sleep(0.1)
        yield made
    finally:
        process.end()


@contextmanager
def attacking(script: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """A program that attacks in a process of its own for the length of the block; it has said that it has begun."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            yield child
        finally:
            child.kill()
