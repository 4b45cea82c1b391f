"""What a cluster under soak has to do: jobs, a web application, an operator's hands, commands, readers of pages."""

from __future__ import annotations

import http.client
import json
import math
import re
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from shared.base.errors import BusUnavailable, Infeasible
from shared.ports.bus import Bus
from shared.protocol import topology
from shared.protocol.codec import encode
from shared.protocol.messages import WebReport
from shared.protocol.operator_messages import (
    AdoptVm,
    CancelJob,
    DrainNode,
    HoldJob,
    Query,
    ReleaseVm,
    SubmitJob,
    SubmitWeb,
)
from shared.runtime import startup
from shared.values.jobs import Job, Stage
from shared.values.web_app import Flow, FlowSample, WebApp
from sim_backend.fake_server.control import FakeControl
from tests.integration.harness import CLOCK, OPERATOR, user_url
from tests.security.server import unverified
from tests.soak.asking import Asker, Times, Worker

APP, FLOW = "shop", "browse"
WEB_USER = topology.web_user(APP)
WAVE_S = 120.0
JOB_MIB = 500
MHZ = 1_000.0
IDLE_WORK = 1e9  # more than anybody waits for
KEPT_S = 4.0
REPORTS = "/reports"  # of seven days: made once in ten minutes
PAGES = (
    "/",
    "/workloads",
    "/nodes",
    "/nodes/n1",
    "/vms",
    "/decision",
    "/environments",
    "/notifications",
    "/audit",
    REPORTS,
    "/forecast",
)
COMMANDS = (
    ("status",),
    ("nodes", "list"),
    ("jobs", "list", "--limit", "20"),
    ("vms", "list"),
    ("plan", "history", "--limit", "20"),
    ("web", "list"),
    ("costs",),
    ("doctor",),
)
HOURS = 60  # spans of which a crowd has reports made
ANSWER_S = 20.0
LET_GO_S = 120.0
LATER = (429, 503)  # too many at a time: come again


@dataclass(slots=True)
class Entry:
    """A job of the load. `over`: it was cancelled or let go, so that it need not be completed."""

    name: str
    instances: int
    accepted: bool = False
    over: bool = False


class Ledger:
    """The jobs of the load, for all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self.done: dict[str, int] = {}

    def add(self, entry: Entry) -> None:
        """A job is about to be submitted."""
        with self._lock:
            self._entries[entry.name] = entry

    def all(self) -> list[Entry]:
        """Every job so far."""
        with self._lock:
            return list(self._entries.values())

    def did(self, what: str) -> None:
        """Count something that was done."""
        with self._lock:
            self.done[what] = self.done.get(what, 0) + 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where the load finds the cluster. nodes: those that may be drained, and whose VMs may be let go."""

    broker: str
    socket: Path
    operator_file: Path
    folder: Path
    program: str
    portal_port: int
    metrics: tuple[int, ...]
    nodes: tuple[str, ...]
    password: str
    account: str


class Submitter(Worker):
    """Submits jobs of one to three VMs, every third with a goal."""

    def __init__(self, place: Place, ledger: Ledger, times: Times, seed: int) -> None:
        super().__init__("submitter", seed)
        self._asker = Asker(user_url(place.broker, OPERATOR), self.name, times)
        self._ledger, self._number = ledger, 0

    def turn(self) -> float:
        """Submit one."""
        self._number += 1
        entry = Entry(f"job-{self._number:06}", self.rng.choice((1, 1, 2, 3)))
        work = self.rng.uniform(1.0, 8.0) * MHZ
        goal_s = CLOCK.now_s() + self.rng.uniform(20.0, 60.0) if self._number % 3 == 0 else None
        job = Job(
            entry.name,
            (Stage(work, MHZ, memory_mib=JOB_MIB),),
            goal_s=goal_s,
            instances=entry.instances,
            template=f"fake:work={work:g};max={MHZ:g};instances={entry.instances}",
        )
        self._ledger.add(entry)
        reply = self._asker.answer(lambda word: SubmitJob(word, job), lambda: True)  # else nobody knew whether it is
        assert reply is not None
        assert reply.done, f"{entry.name} was refused: {reply}"
        entry.accepted = True
        return self.rng.uniform(0.8, 2.2)

    def close(self) -> None:
        """Leave the broker."""
        self._asker.close()


class Meddler(Worker):
    """An operator who holds, cancels, drains, and takes VMs out of Trimtab's hands and into them again."""

    def __init__(self, place: Place, ledger: Ledger, times: Times, seed: int) -> None:
        super().__init__("meddler", seed)
        self._asker = Asker(user_url(place.broker, OPERATOR), self.name, times)
        self._fake = FakeControl(place.socket)
        self._place, self._ledger, self._number = place, ledger, 0

    def turn(self) -> float:
        """One thing, to its end: nothing stays held or drained."""
        acts: tuple[Callable[[], None], ...] = (self._hold, self._cancel, self._drain, self._adopt)
        self.rng.choice(acts)()
        return self.rng.uniform(1.0, 4.0)

    def close(self) -> None:
        """Leave the broker."""
        self._asker.close()
        self._fake.close()

    def _ask(self, make: Callable[[str], Any]) -> Any:
        reply = self._asker.answer(make, lambda: True)
        assert reply is not None
        return reply

    def _running(self) -> list[str]:
        reply = self._ask(lambda word: Query(word, "jobs", "running", 200))
        return [row["name"] for row in reply.data["jobs"] if row["name"].startswith("job-")] if reply.done else []

    def _pick(self) -> Entry | None:
        known = {entry.name: entry for entry in self._ledger.all()}
        names = [name for name in self._running() if name in known]
        return known[self.rng.choice(names)] if names else None

    def _hold(self) -> None:
        entry = self._pick()
        if entry is not None and self._ask(lambda word: HoldJob(word, entry.name, True)).done:
            self._ledger.did("holds")
            CLOCK.sleep(KEPT_S)
            self._ask(lambda word: HoldJob(word, entry.name, False))

    def _cancel(self) -> None:
        entry = self._pick()
        if entry is not None:
            entry.over = True
            self._ask(lambda word: CancelJob(word, entry.name))
            self._ledger.did("cancels")

    def _drain(self) -> None:
        node = self.rng.choice(self._place.nodes)
        self._ask(lambda word: DrainNode(word, node, True))
        self._ledger.did("drains")
        CLOCK.sleep(2 * KEPT_S)
        self._ask(lambda word: DrainNode(word, node, False))

    def _adopt(self) -> None:
        """Let a VM go, take it in again under another name, let it go again; then its owner removes it."""
        self._number += 1
        kept, adopted = Entry(f"keep-{self._number:04}", 1, over=True), f"adopted-{self._number:04}"
        self._ledger.add(kept)
        job = Job(
            kept.name, (Stage(IDLE_WORK, MHZ, memory_mib=JOB_MIB),), template=f"fake:work={IDLE_WORK:g};max={MHZ:g}"
        )
        kept.accepted = self._ask(lambda word: SubmitJob(word, job)).done
        vm = f"{kept.name}#0"
        home = self._home(vm)
        if home in self._place.nodes and self._ask(lambda word: ReleaseVm(word, kept.name)).done:
            CLOCK.sleep(KEPT_S / 2)
            if self._ask(lambda word: AdoptVm(word, home, vm, job=adopted)).done:
                self._ledger.did("adoptions")
                CLOCK.sleep(KEPT_S)
                self._forget(adopted)
            with suppress(Infeasible):
                self._fake.lose_vm(home, vm)
        else:
            self._ask(lambda word: CancelJob(word, kept.name))

    def _forget(self, job: str) -> None:
        """Let an adopted VM go, once that is not refused any more: a frozen leader may keep its adoption open."""
        until_s = CLOCK.monotonic_s() + LET_GO_S
        while True:
            reply = self._ask(lambda word: ReleaseVm(word, job))
            if reply.done or reply.code in ("unknown-job", "job-over"):
                return
            assert CLOCK.monotonic_s() < until_s, f"{job} is not let go: {reply}"
            CLOCK.sleep(KEPT_S / 2)

    def _home(self, vm: str) -> str:
        """Where a VM runs, "" when it does not within a while."""
        until_s = CLOCK.monotonic_s() + ANSWER_S
        while CLOCK.monotonic_s() < until_s:
            for node in self._fake.state()["nodes"]:
                if any(one["vm"] == vm and one["state"] == "running" for one in node["domains"]):
                    return str(node["node"])
            CLOCK.sleep(0.5)
        return ""


class WebLoad(Worker):
    """A web application: its load goes up and down, and its balancer pushes what it measures."""

    def __init__(self, place: Place, times: Times, seed: int) -> None:
        super().__init__("web", seed)
        self._asker = Asker(user_url(place.broker, OPERATOR), self.name, times)
        self._connect = startup.broker(user_url(place.broker, WEB_USER))
        self._fake = FakeControl(place.socket)
        self._bus: Bus | None = None
        self._seq = 0

    def submit(self) -> None:
        """Submit the application."""
        app = WebApp(
            APP, (Flow(FLOW, mean_s=1.0, work_mcycles=20.0),), JOB_MIB, max_mhz=MHZ, min_instances=1, max_instances=4
        )
        reply = self._asker.answer(lambda word: SubmitWeb(word, app), lambda: True)
        assert reply is not None
        assert reply.done, reply

    def turn(self) -> float:
        """Load its guests, and report."""
        self._seq += 1
        rate = 60.0 * (1.0 + math.sin(2.0 * math.pi * CLOCK.monotonic_s() / WAVE_S))
        self._fake.load(APP, rate * 20.0)
        served = round(rate)
        sample = FlowSample(FLOW, 1.0, served, served=served, mean_s=0.05)
        report = WebReport(APP, self._seq, CLOCK.now_s(), (sample,))
        try:
            self._bus = self._bus or self._connect()
            self._bus.publish(topology.REPORTS, topology.web_key(APP), encode(report), None)
            self._bus.poll(0.0)
        except BusUnavailable:
            self._bus = None
        return 1.0

    def close(self) -> None:
        """Leave the broker."""
        if self._bus is not None:
            self._bus.close()
        self._asker.close()
        self._fake.close()


class Commands(Worker):
    """Somebody at a terminal."""

    def __init__(self, place: Place, times: Times, seed: int) -> None:
        super().__init__("commands", seed)
        self._place, self._times, self.count = place, times, 0

    def turn(self) -> float:
        """Run one command."""
        words = COMMANDS[self.count % len(COMMANDS)]
        self.count += 1
        command = [self._place.program, *words, "--output", "json", "--config", str(self._place.operator_file)]
        begun_s = CLOCK.monotonic_s()
        done = subprocess.run(command, cwd=self._place.folder, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode == 0:
            self._times.add("a command", CLOCK.monotonic_s() - begun_s)
        assert done.returncode in (0, 1), f"{words}: {done}"  # 1: nobody has answered in time, or has told a trouble
        return self.rng.uniform(6.0, 10.0)


class Visitor:
    """Somebody at the portal with one connection, who logs in when he has to."""

    def __init__(self, place: Place) -> None:
        self._place, self._cookies = place, dict[str, str]()
        self._connection: http.client.HTTPSConnection | None = None

    def get(self, path: str) -> http.client.HTTPResponse:
        """The answer to a request, logged in. Raises OSError or HTTPException while there is no portal."""
        answer = self._send("GET", path)
        if answer.status == 303:
            to = answer.headers["location"]
            answer.read()
            if to.startswith("/login"):
                self._log_in()
                to = path
            answer = self._send("GET", to)
        return answer

    def close(self) -> None:
        """Go."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _log_in(self) -> None:
        text = self._send("GET", "/login").read().decode()
        found = re.search(r'name="csrf" value="([^"]*)"', text)
        assert found is not None, text[:2000]
        fields = {"csrf": found[1], "name": self._place.account, "password": self._place.password}
        answer = self._send("POST", "/login", urlencode(fields))
        answer.read()
        assert answer.status in (303, *LATER), f"a login: {answer.status}"

    def _send(self, method: str, path: str, body: str = "") -> http.client.HTTPResponse:
        host = f"localhost:{self._place.portal_port}"
        headers = {
            "Host": host,
            "Origin": f"https://{host}",
            "Sec-Fetch-Site": "same-origin",
            "Cookie": "; ".join(f"{name}={value}" for name, value in self._cookies.items()),
        }
        if body:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        if self._connection is None:
            self._connection = http.client.HTTPSConnection(
                "127.0.0.1", self._place.portal_port, context=unverified(), timeout=ANSWER_S
            )
        try:
            self._connection.request(method, path, body or None, headers)
            answer = self._connection.getresponse()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        for cookie in answer.headers.get_all("set-cookie", []):
            name, _, value = cookie.partition(";")[0].partition("=")
            self._cookies[name] = value
        return answer


class Pages(Worker):
    """Somebody who looks at one page of the portal after the other, and metrics are collected. `hurried`: without a
    pause, and each report is one that has to be made."""

    def __init__(self, place: Place, times: Times, seed: int, hurried: bool = False) -> None:
        super().__init__("pages", seed)
        self._hurried = hurried
        self._place, self._times = place, times
        self._visitor, self.count, self.missed = Visitor(place), 0, 0

    def turn(self) -> float:
        """One page, and the metrics of one daemon."""
        path = PAGES[self.count % len(PAGES)]
        if self._hurried and path == REPORTS:
            path += f"?from={1 + self.count % HOURS}h"
        begun_s = CLOCK.monotonic_s()
        self.count += 1
        try:
            answer = self._visitor.get(path)
            body = answer.read()
        except (OSError, http.client.HTTPException):
            self.missed += 1
            return 2.0
        if answer.status == 200:
            self._times.add("a page", CLOCK.monotonic_s() - begun_s)
        assert answer.status in (200, 303, *LATER), f"{path}: {answer.status} {body[:500]!r}"
        self._collect(self._place.metrics[self.count % len(self._place.metrics)])
        return 0.0 if self._hurried else self.rng.uniform(1.5, 3.0)

    def _collect(self, port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/metrics")
            connection.getresponse().read()
        connection.close()

    def close(self) -> None:
        """Go."""
        self._visitor.close()


class Stream(Worker):
    """A page that is open and hears of changes. `lines`: how much it has heard; `cuts`: how often the portal had gone.
    A browser connects again, too."""

    def __init__(self, place: Place, seed: int) -> None:
        super().__init__("stream", seed)
        self._visitor, self.lines, self.cuts = Visitor(place), 0, 0

    def turn(self) -> float:
        """Listen until the line ends."""
        try:
            answer = self._visitor.get("/live?views=status,nodes,jobs,web-apps,plan")
            while self.goes_on() and answer.readline():
                self.lines += 1
        except (OSError, http.client.HTTPException):
            self.cuts += 1
        self._visitor.close()
        return 2.0


class StatusWatcher(Worker):
    """Asks for the status again and again. `latest`: when it was asked for, and what it was."""

    def __init__(self, place: Place, times: Times, seed: int) -> None:
        super().__init__("status", seed)
        self._asker = Asker(user_url(place.broker, OPERATOR), self.name, times)
        self._times = times
        self.latest: tuple[float, dict[str, Any]] = (-math.inf, {})

    def turn(self) -> float:
        """Ask once."""
        begun_s = CLOCK.monotonic_s()
        reply = self._asker.ask(Query(self._asker.new_id(), "status"), 2.0)
        self._asker.asked += 1
        if reply is not None and reply.done:
            self.latest = (begun_s, dict(reply.data))
            self._times.add("status", CLOCK.monotonic_s() - begun_s)
        return 0.5

    @property
    def asked(self) -> int:
        """How often it has asked."""
        return self._asker.asked

    def close(self) -> None:
        """Leave the broker."""
        self._asker.close()


def text_of(status: dict[str, Any]) -> str:
    """What is not as it should be, on one line."""
    alarms = [f"{one['what']} {one['subject']}" for one in status.get("alarms", [])]
    return f"nodes {json.dumps(status.get('nodes', {}).get('condition', {}))}, alarms {alarms}"
