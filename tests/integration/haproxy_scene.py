"""A real HAProxy on loopback with its master, real HTTP servers as instances, and a load generator."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.request import urlopen

from daemons.config.controller import BalancerHaproxy, BalancerKeys
from daemons.drivers.load_balancers.haproxy import Haproxy
from daemons.drivers.load_balancers.haproxy_runtime import Master, Runtime
from shared.base.clock import SystemClock
from shared.base.errors import TransientError
from shared.ports.effects import Backend, Balance, Balanced
from shared.values.web_app import Serving
from tests.integration.debian import need_programs
from tests.ports import free_port

START_S = 20.0
LIMIT_S = 5.0
CLOCK = SystemClock()

MAIN = """
global
    stats socket {folder}/runtime.sock level admin expose-fd listeners
    stats socket {folder}/beside.sock level admin
    maxconn 2000
"""

# Answers on an address and port, each request after so many seconds; /count says how many it has answered.
SITE = r"""
import asyncio, sys
address, port, delay_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
answered = 0
async def serve(reader, writer):
    global answered
    try:
        while line := await reader.readline():
            while (await reader.readline()).strip():
                pass
            path = line.split()[1]
            body = b"ok"
            if path == b"/count":
                body = str(answered).encode()
            elif path != b"/healthy":
                await asyncio.sleep(delay_s)
                answered += 1
            status = b"500 Oops" if path == b"/error" else b"200 OK"
            writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()
async def main():
    server = await asyncio.start_server(serve, address, port, backlog=1000)
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""

# Asks at random times (a Poisson process): `clients.py PORT SEED RATE:SECONDS ...`; prints for each request when it was
# sent and how long it took by a monotonic clock, and the status (0: no answer within 10 s).
CLIENTS = r"""
import asyncio, random, sys, time
port, chance = int(sys.argv[1]), random.Random(int(sys.argv[2]))
phases = [tuple(map(float, each.split(":"))) for each in sys.argv[3:]]
async def answer():
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n")
        return int((await reader.read()).split(b" ", 2)[1])
    finally:
        writer.close()
async def ask():
    sent_s = time.monotonic()
    try:
        status = await asyncio.wait_for(answer(), 10.0)
    except (OSError, ValueError, IndexError, asyncio.TimeoutError):
        status = 0
    print(f"{sent_s:.6f} {time.monotonic() - sent_s:.6f} {status}", flush=True)
async def main():
    asked, next_s = [], time.monotonic()
    for rate, seconds in phases:
        until_s = next_s + seconds
        while True:
            at_s = next_s + chance.expovariate(rate)
            if at_s >= until_s:
                break
            next_s = at_s
            await asyncio.sleep(next_s - time.monotonic())
            asked.append(asyncio.create_task(ask()))
        next_s = until_s
    await asyncio.gather(*asked)
asyncio.run(main())
"""


def need_haproxy() -> None:
    """Skip the test, or fail it when CI=true, without HAProxy and a load generator."""
    need_programs(("haproxy", "httperf"), ("haproxy", "httperf"))


def wait_until(what: str, holds: object, limit_s: float = START_S) -> None:
    """Look every 20 ms whether `holds()`."""
    assert callable(holds)
    until_s = CLOCK.monotonic_s() + limit_s
    while not holds():
        assert CLOCK.monotonic_s() < until_s, f"not within {limit_s:g} s: {what}"
        CLOCK.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Load:
    """What a load generator has counted; `mean_s`: of the time to the begin of an answer."""

    sent: int
    replies: int
    good: int
    refused: int
    errors: int
    mean_s: float


class Generator:
    """httperf at work: it opens connections at a rate, whatever comes back, with so many calls one after the other."""

    def __init__(self, port: int, rate: float, connections: int, path: str, method: str, calls: int) -> None:
        asks = ("--server", "127.0.0.1", "--port", str(port), "--uri", path, "--method", method)
        pace = ("--rate", f"{rate:g}", "--num-conns", str(connections), "--num-calls", str(calls), "--timeout", "10")
        self._process = subprocess.Popen(
            ["httperf", "--hog", *asks, *pace], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def end(self) -> None:
        """Whatever it does."""
        self._process.kill()
        self._process.communicate()

    def wait(self) -> Load:
        """What it has counted in the end."""
        printed, _ = self._process.communicate(timeout=120.0)

        def number(pattern: str) -> float:
            found = re.search(pattern, printed)
            assert found is not None, printed
            return float(found[1])

        return Load(
            int(number(r"requests (\d+)")),
            int(number(r"replies (\d+)")),
            int(number(r"2xx=(\d+)")),
            int(number(r"5xx=(\d+)")),
            int(number(r"Errors: total (\d+)")),
            number(r"response ([\d.]+)") / 1000.0,
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as its client saw it, by the monotonic clock; status 0: there was no answer."""

    sent_s: float
    took_s: float
    status: int


class Clients:
    """Clients who come by chance, and note when each has asked and how long that took."""

    def __init__(self, port: int, phases: Sequence[tuple[float, float]], seed: int, file: Path) -> None:
        self._file, self._limit_s = file, sum(seconds for _, seconds in phases) + 30.0
        steps = [f"{rate:g}:{seconds:g}" for rate, seconds in phases]
        with file.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", CLIENTS, str(port), str(seed), *steps], stdout=out
            )

    def end(self) -> None:
        """Whatever they do."""
        self._process.kill()
        self._process.communicate()

    def wait(self) -> tuple[Asked, ...]:
        """Every request, in order of its end."""
        assert self._process.wait(self._limit_s) == 0
        lines = [line.split() for line in self._file.read_text("ascii").splitlines()]
        return tuple(Asked(float(sent), float(took), int(status)) for sent, took, status in lines)


@dataclass(eq=False)
class Scene:
    """HAProxy in a folder of its own, a driver that tells it, and what shows of it by a socket beside the driver's."""

    folder: Path
    keys: BalancerHaproxy
    driver: Haproxy
    sites: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    loads: list[Generator | Clients] = field(default_factory=list)
    haproxy: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """On which every instance answers."""
        return self.serving.port

    serving: Serving = field(default_factory=lambda: Serving(free_port(), free_port()))
    other_listen: int = field(default_factory=free_port)

    def start(self) -> None:
        """HAProxy with its master; returns when it answers."""
        arguments = ["-W", "-S", str(self.folder / "master.sock"), "-f", str(self.folder / "main.cfg")]
        with (self.folder / "haproxy.log").open("ab") as log:
            self.haproxy = subprocess.Popen(
                ["haproxy", *arguments, "-f", self.keys.folder], stdout=log, stderr=subprocess.STDOUT
            )
        wait_until("HAProxy answers", self._answers)

    def _answers(self) -> bool:
        try:
            return self.master().processes().worker > 0 and "Pid:" in self.beside().ask(["show info"])
        except TransientError:
            return False

    def stop(self) -> None:
        """End HAProxy at once, with all that it serves."""
        if self.haproxy is not None:
            workers = Path(f"/proc/{self.haproxy.pid}/task/{self.haproxy.pid}/children").read_text().split()
            self.haproxy.kill()
            self.haproxy.wait()
            for process in workers:
                subprocess.run(["kill", "-9", process], check=False, stderr=subprocess.DEVNULL)
            self.haproxy = None

    def reload(self) -> None:
        """As an operator does it."""
        before = self.master().processes().worker
        assert self.haproxy is not None
        self.haproxy.send_signal(12)  # SIGUSR2
        wait_until("HAProxy has reloaded", lambda: self._answers() and self.master().processes().worker != before)

    def master(self) -> Master:
        """HAProxy's master process."""
        return Master(str(self.folder / "master.sock"), LIMIT_S, 20.0)

    def beside(self) -> Runtime:
        """The worker, by a socket that the driver does not use."""
        return Runtime(str(self.folder / "beside.sock"), LIMIT_S)

    def counted(self) -> dict[str, str]:
        """What HAProxy counts of the application's backend."""
        rows = self.beside().ask(["show stat trimtab-shop 2 -1"]).splitlines()
        (whole,) = csv.DictReader([rows[0][2:], *rows[1:2]])
        return whole

    def serving_now(self, app: str) -> frozenset[str]:
        """The instances that get new requests as far as HAProxy is told."""
        rows = [line.split() for line in self.beside().ask([f"show servers state trimtab-{app}"]).splitlines()]
        return frozenset(row[3].replace(".", "#") for row in rows if len(row) > 18 and row[6] == "0" and row[0] != "#")

    def healthy_now(self, app: str) -> int:
        """How many instances checks have found healthy."""
        rows = [line.split() for line in self.beside().ask([f"show servers state trimtab-{app}"]).splitlines()]
        return sum(len(row) > 18 and row[5:7] == ["2", "0"] for row in rows)

    def site(self, address: str, delay_s: float = 0.0) -> None:
        """An instance that answers on an address ("": on all) after so long."""
        command = [sys.executable, "-I", "-c", SITE, address or "0.0.0.0", str(self.port), f"{delay_s:g}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        self.sites[address] = process

    def answered(self, address: str) -> int:
        """How many requests the instance there has answered."""
        with urlopen(f"http://{address}:{self.port}/count", timeout=LIMIT_S) as page:
            return int(page.read())

    def tell(self, *backends: Backend, app: str = "shop", serving: Serving | None = None) -> Balanced:
        """Have the driver set the instances of an application."""
        return self.driver.set_backends(Balance(app, backends, serving or self.serving))

    def serve(self, *backends: Backend, app: str = "shop", serving: Serving | None = None) -> None:
        """Have these serve; returns when HAProxy has found each of them healthy."""
        assert self.tell(*backends, app=app, serving=serving).ok
        wait_until("all are found healthy", lambda: self.healthy_now(app) == len(backends))

    def load(self, rate: float, connections: int, path: str = "/", method: str = "GET", calls: int = 1) -> Generator:
        """Requests of clients, from now on."""
        made = Generator(self.serving.listen, rate, connections, path, method, calls)
        self.loads.append(made)
        return made

    def crowd(self, phases: Sequence[tuple[float, float]], seed: int) -> Clients:
        """Requests of clients who come by chance, from now on: (requests a second, seconds) one after the other."""
        made = Clients(self.serving.listen, phases, seed, self.folder / f"clients-{len(self.loads)}")
        self.loads.append(made)
        return made

    def dressed(self, order: Balance) -> Balance:
        """An order of the conformance suite with what HAProxy needs: node n1 is 127.0.0.1."""
        backends = tuple(replace(one, address=f"127.0.0.{one.node.removeprefix('n')}") for one in order.backends)
        listen = self.serving.listen if order.app == "shop" else self.other_listen
        return replace(order, backends=backends, serving=replace(self.serving, listen=listen))


def backend(index: int, drain: bool = False, weight: float = 1.0) -> Backend:
    """Instance 0 of `shop` is on 127.0.0.1, and so on."""
    return Backend(f"shop#{index}", f"n{index}", drain, f"127.0.0.{index + 1}", weight)


@contextmanager
def haproxy_scene(**keys: object) -> Iterator[Scene]:
    """HAProxy without an application; everything ends with the scene."""
    need_haproxy()
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="trimtab-haproxy-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        (folder / "apps").mkdir()
        (folder / "main.cfg").write_text(MAIN.format(folder=folder))
        settings = BalancerHaproxy(
            folder=str(folder / "apps"),
            socket=str(folder / "runtime.sock"),
            master_socket=str(folder / "master.sock"),
            address="127.0.0.1",
            ports=(1024, 65_535),
        )
        settings = replace(settings, **{"check_s": 0.5, "check_limit_s": 0.5, **keys})  # type: ignore[arg-type]
        scene = Scene(folder, settings, Haproxy(BalancerKeys("haproxy", haproxy=settings)))
        stack.callback(_end, scene)
        scene.start()
        yield scene


def _end(scene: Scene) -> None:
    for load in scene.loads:
        load.end()
    for site in scene.sites.values():
        site.kill()
        site.communicate()
    scene.stop()
