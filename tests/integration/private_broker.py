"""A RabbitMQ of its own for a test session: own node name, ports, folders and epmd; gone at the end.

A broker that is missing is installed where that can be done (root on Debian); else the tests that need it are skipped,
and with CI=true fail.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sim_backend.conformance.rabbit_harness import BrokerUnderTest
from tests.integration.debian import go_without, missing
from tests.ports import free_ports

PROGRAMS = Path("/usr/lib/rabbitmq/bin")  # the programs themselves: Debian's wrappers change user and folders
PACKAGES = ("rabbitmq-server", "openssl")
HOST = "localhost"
LOOPBACK = "127.0.0.1"
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
START_S = 90.0
STOP_S = 20.0

# One scheduler that never spins: a test machine has better things to do.
QUIET_ERLANG = "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none"
CONFIGURATION = """
listeners.tcp.local = 127.0.0.1:{amqp}
listeners.ssl.local = {address}:{amqps}
management.tcp.ip = 127.0.0.1
management.tcp.port = {management}
management.disable_stats = true
management_agent.disable_metrics_collector = true
default_user = admin
default_pass = admin
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 2GB
log.file.level = info
"""
# A client that asks for the host EXPIRED is shown a certificate whose time is over.
EXPIRED = "expired.test"
TLS_CONFIGURATION = """
[{{rabbit, [{{ssl_options, [
  {{cacertfile, "{folder}/ca.pem"}}, {{certfile, "{folder}/server.pem"}}, {{keyfile, "{folder}/server.key"}},
  {{verify, verify_none}},
  {{sni_hosts, [{{"{expired}", [{{certfile, "{folder}/expired.pem"}}, {{keyfile, "{folder}/expired.key"}}]}}]}}
]}}]}}].
"""


class PrivateBroker:
    """A running broker on this machine. `amqp`, `amqps`, `management` are its ports; with TLS it listens on `address`,
    else on loopback alone. `ca_file` signs its certificate, which is for `localhost` and `address`. The user admin
    (password admin) may do everything, also over HTTP."""

    user = password = "admin"

    def __init__(self, folder: Path, address: str = LOOPBACK) -> None:
        self.folder = folder
        self.address = address
        self.amqp, self.amqps, self.management, self._distribution, self._epmd = free_ports(5)
        self.ca_file = folder / "ca.pem"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")},
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(self._epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"trimtab{self.amqp}@{HOST}",
            "RABBITMQ_NODE_PORT": str(self.amqp),
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": QUIET_ERLANG,
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def management_url(self) -> str:
        """Where the HTTP interface is."""
        return f"http://127.0.0.1:{self.management}"

    @property
    def server_pid(self) -> int:
        """The process group of the broker itself."""
        return self._processes[-1].pid

    def url(self, user: str, password: str, vhost: str = "/") -> str:
        """What a user connects to."""
        return f"amqp://{user}:{password}@127.0.0.1:{self.amqp}/{vhost.replace('/', '%2F')}"

    def tls_url(self, user: str, password: str, vhost: str = "/") -> str:
        """What a user connects to with TLS, from wherever `address` is reached."""
        return f"amqps://{user}:{password}@{self.address}:{self.amqps}/{vhost.replace('/', '%2F')}"

    def start(self) -> None:
        """Start and wait until it answers. Raises RuntimeError with the end of its log when it does not."""
        if not self.ca_file.exists():  # one that is started again has those that its clients know
            write_certificates(self.folder, self.address)
        ports = {"amqp": self.amqp, "management": self.management}
        text = CONFIGURATION.format(address=self.address, amqps=self.amqps, **ports)
        (self.folder / "rabbitmq.conf").write_text(text)
        (self.folder / "advanced.config").write_text(TLS_CONFIGURATION.format(folder=self.folder, expired=EXPIRED))
        (self.folder / "plugins").write_text("[rabbitmq_management].\n")
        self._make_cookie()
        self._run("epmd", "-port", str(self._epmd))
        server = self._run(str(PROGRAMS / "rabbitmq-server"))
        self._dismiss_guard()
        self._guard = guard(self.folder, [process.pid for process in self._processes])
        wait_until(lambda: server.poll() is not None or self._answers(), START_S)
        if server.poll() is not None or not self._answers():
            said = (self.folder / "output").read_text(errors="replace")[-2000:]
            self.stop()
            raise RuntimeError(f"the private broker did not start:\n{said}")

    def _make_cookie(self) -> None:
        """Two runtimes begin at once: one that makes the cookie lets the other see it before it has its rights."""
        cookie = self.folder / ".erlang.cookie"
        if not cookie.exists():
            cookie.touch(mode=0o600)
            cookie.write_text(secrets.token_hex(16))

    def _answers(self) -> bool:
        return answers(self.amqp) and answers(self.management) and answers(self.amqps, self.address)

    def stop(self) -> None:
        """Stop it and everything it started."""
        for process in reversed(self._processes):
            end_group(process)
        self._processes.clear()
        if self._guard is not None:
            self._guard.communicate()
            self._guard = None

    def _dismiss_guard(self) -> None:
        """One of a broker that was killed and is started again: it must not remove the folder."""
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None

    def restart(self) -> None:
        """Stop the broker's application within its runtime, and start it again."""
        self.ctl("stop_app")
        self.ctl("start_app")
        wait_until(self._answers, START_S)

    def ctl(self, *arguments: str) -> str:
        """Run rabbitmqctl; its output. Raises CalledProcessError."""
        command = [str(PROGRAMS / "rabbitmqctl"), "--quiet", *arguments]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=START_S, check=True
        )
        return done.stdout

    def _run(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / "output").open("ab") as output:
            process = subprocess.Popen(
                command,
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._processes.append(process)
        return process


def answers(port: int, address: str = LOOPBACK) -> bool:
    """Whether something listens."""
    try:
        socket.create_connection((address, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def wait_until(condition: object, limit_s: float) -> None:
    """Look every 0.1 s until it holds, at most so long."""
    assert callable(condition)
    end_s = time.monotonic() + limit_s
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.1)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group, without a farewell: nothing of theirs is kept."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_S)


def guard(folder: Path, groups: list[int]) -> subprocess.Popen[bytes]:
    """A process that outlives this one, however it dies, to end the groups and remove the folder."""
    script = 'read -r line; kill -s KILL -- "$@" 2>/dev/null; rm -rf "$0"'
    command = ["sh", "-c", script, str(folder), *(f"-{group}" for group in groups)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def write_certificates(folder: Path, address: str = LOOPBACK) -> None:
    """An authority `ca.pem`, by it certificates `server` for localhost and `address` and `expired` for EXPIRED, whose
    time is over, and an authority `other.pem` that signs nothing."""
    for name in ("ca", "other"):
        named = ["-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"]
        openssl(folder, "req", "-x509", *CURVE, "-days", "2", *named)
    _sign(folder, "server", f"DNS:localhost, IP:127.0.0.1, IP:{address}", 2)
    _sign(folder, "expired", f"DNS:{EXPIRED}", -1)


def _sign(folder: Path, name: str, names: str, days: int) -> None:
    openssl(folder, "req", *CURVE, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
    (folder / f"{name}.names").write_text(f"subjectAltName = {names}\n")
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", str(days), "-extfile", f"{name}.names"]
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")


def openssl(folder: Path, *arguments: str) -> None:
    """Run openssl in a folder."""
    subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, timeout=60.0, check=True)


def present() -> bool:
    """Whether the programs are here."""
    return all(
        shutil.which(str(name)) for name in (PROGRAMS / "rabbitmq-server", PROGRAMS / "rabbitmqctl", "epmd", "openssl")
    )


@contextmanager
def private_broker(address: str = LOOPBACK) -> Iterator[PrivateBroker]:
    """A broker for the length of the block, with TLS on an address of this machine; skips the test when there can be
    none, or fails it when CI=true."""
    reason = missing(present, PACKAGES)
    if reason:
        go_without(reason)
    folder = Path(tempfile.mkdtemp(prefix="trimtab-broker-"))
    broker = PrivateBroker(folder, address)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def under_test(broker: PrivateBroker) -> BrokerUnderTest:
    """What the conformance harness needs to know of it."""
    return BrokerUnderTest(
        "127.0.0.1", broker.amqp, broker.management_url, broker.user, broker.password, broker.restart
    )
