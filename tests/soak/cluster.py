"""The cluster of a soak: twelve agents, a controller in a hurry, a portal, and everybody who asks something of them."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from shared.bus.broker_setup import Account, definitions
from shared.protocol.operator_messages import SubmitJob
from shared.runtime.shell import BEGIN_ANEW
from shared.values.jobs import Job, Stage
from tests.browser.town import JANE, PEOPLE_PASSWORD, PORTAL_USER, Town
from tests.integration.harness import CLOCK, OPERATOR, PAUSE_S, Process, merged, user_url
from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import PASSWORD, TRIMTAB, scene
from tests.integration.test_bad_input import mounted
from tests.ports import free_ports
from tests.soak import hurried_agent, hurried_controller
from tests.soak.asking import Asker, Times, Worker
from tests.soak.load import (
    JOB_MIB,
    MHZ,
    WEB_USER,
    Commands,
    Ledger,
    Meddler,
    Pages,
    Place,
    StatusWatcher,
    Stream,
    Submitter,
    WebLoad,
    text_of,
)
from tests.soak.watching import Watch

NODES, NODE = 12, "2x1000:1600"  # small, so that VMs are on most of them
COSTS = "0.2,0.0005,0.0005,0.002"
REPORT_S = 1.0
ADJUST_S = 2.0  # CPU may be shared anew so often, each time as a decision
DECIDE_S = 0.6  # 3,000 in half an hour, a month of one in a quarter of an hour
STORE_MIB = 160
DAY_S = 86_400.0
LOOK_S = 1.0
CROWD, CROWD_S = 12, 60.0
MORTAL = "n2"  # the host that dies: nobody drains it, or lets its VMs go
CONTROLLER: Mapping[str, Any] = {
    "periods": {"report_s": REPORT_S, "reconcile_s": 1.0, "web_adjust_s": ADJUST_S, "decide_s": 5.0, "probe_s": 2.0},
    "timeouts": {
        "unreachable_after_s": 6.0,
        "fence_after_s": 12.0,
        "gang_timeout_s": 60.0,
        "decide_limit_s": 4.0,
        "external_change_pause_s": 60.0,
    },
    "automation": {"level": "auto", "hold_starts": False},
    "prices": {"shape": "uniform", "per_kwh": 0.30, "currency": "EUR"},
    "notify": {"channels": {"pager": {"kind": "command", "argv": ["/bin/true"]}}},
}
T = TypeVar("T")


def retention(keep_s: float) -> dict[str, float]:
    """The section [store.retention] with which everything is gone after so long."""
    kinds = ("events", "actions", "decisions", "jobs", "samples", "costs", "snapshots", "audit", "notifications")
    return {"fine_samples_days": 0.5 * keep_s / DAY_S, **{f"{kind}_days": keep_s / DAY_S for kind in kinds}}


class Soak(Town):
    """Such a cluster. Its processes are the main thread's: `pause` and `until` tend them, and look at everything once a
    second; workers only ask."""

    keep_s = 120.0
    store_folder: Path
    controller_metrics = 0

    def prepare(self) -> None:
        """As of a town; the controller decides and prunes often, and what it measures is shown. Agents keep outcomes no
        longer than the controller its history: for an hour of so many orders, memory would only fill."""
        super().prepare()
        people = (*self.lab.users, PORTAL_USER, WEB_USER)
        self.api.apply(definitions(self.vhost, [Account(each, PASSWORD) for each in people]))
        script = str(Path(hurried_controller.__file__))
        for process in self.lab.controllers.values():
            file = process.command[-1]
            hurry = [str(DECIDE_S), str(self.keep_s / 4), str(self.threads_file)]
            process.command = [sys.executable, "-P", script, *hurry, "--config", file]
        script = str(Path(hurried_agent.__file__))
        for process in self.lab.agents.values():
            file = process.command[-1]
            process.command = [sys.executable, "-P", script, str(self.keep_s), "--config", file]

    @property
    def threads_file(self) -> Path:
        """What the threads of the controller were at when they were asked."""
        return self.lab.folder / "threads.txt"

    def dump_threads(self) -> None:
        """Have the controller add to that."""
        for process in self.lab.controllers.values():
            os.kill(process.pid, signal.SIGUSR2)

    def _write_config(self, port: int) -> None:
        super()._write_config(port)
        (self.portal_metrics,) = free_ports(1)
        text = self.portal_file.read_text()
        text = text.replace(f"sqlite:///{self.history}", f"sqlite:///{self.store_folder}/controller.db")
        self.portal_file.write_text(text.replace('listen = ""', f'listen = "127.0.0.1:{self.portal_metrics}"'))

    # --- the load ---------------------------------------------------------------------------------------------------

    def load(self, seed: int) -> None:
        """Begin to look, and start everybody who asks."""
        assert self.portal is not None
        self.times, self.ledger = Times(), Ledger()
        self.watched = Watch((*self.lab.agents.values(), *self.lab.controllers.values(), self.portal))
        self.lab.tenders.append(self._tend_portal)
        self.asker, self._probes = Asker(user_url(self.lab.broker, OPERATOR), "probes", self.times), 0
        self._look_s, self.most_live = 0.0, 0
        place = Place(
            self.lab.broker,
            self.lab.socket,
            self.operator_file,
            folder=self.lab.folder,
            program=TRIMTAB,
            portal_port=int(self.url.rpartition(":")[2]),
            metrics=(self.controller_metrics, self.portal_metrics),
            nodes=tuple(node for node in self.lab.nodes if node != MORTAL),
            password=PEOPLE_PASSWORD,
            account=JANE,
        )
        self.place = place
        self.status = StatusWatcher(place, self.times, seed)
        web = WebLoad(place, self.times, seed)
        web.submit()
        self.pages, self.stream = Pages(place, self.times, seed), Stream(place, seed)
        self.commands, self.submitter = (
            Commands(place, self.times, seed),
            Submitter(place, self.ledger, self.times, seed),
        )
        self.meddler = Meddler(place, self.ledger, self.times, seed)
        self.workers: tuple[Worker, ...] = (
            self.status,
            web,
            self.pages,
            self.stream,
            self.commands,
            self.submitter,
            self.meddler,
        )
        for worker in self.workers:
            worker.start()

    def fill_pools(self) -> None:
        """Have many look at every page again and again at the same time: the portal's threads begin when they are
        needed, and stay; and so does the memory that so many pages at a time take."""
        crowd = [Pages(self.place, Times(), number, hurried=True) for number in range(CROWD)]
        for each in crowd:
            each.start()
        self.pause(CROWD_S)
        self.end_load(*crowd)
        errors = [each.error for each in crowd if each.error is not None]
        assert not errors, f"a crowd of readers: {errors[0]!r}"

    def end_load(self, *workers: Worker) -> None:
        """Let workers finish what they are at."""
        for worker in workers:
            worker.stopping.set()
        self.until(lambda: not any(worker.is_alive() for worker in workers), 300.0, "the end of the load")

    # --- time passes ------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Tend processes, and once a second look at everything."""
        self.lab.tend()
        for worker in self.workers:
            if worker.error is not None:
                raise AssertionError(f"{worker.name}: {worker.error!r}") from worker.error
        now_s = CLOCK.monotonic_s()
        if now_s >= self._look_s:
            self._look_s = now_s + LOOK_S
            self.watched.look(now_s)
            self.most_live = max(self.most_live, len(self.homes()))

    def pause(self, seconds: float) -> None:
        """Let so much time pass."""
        until_s = CLOCK.monotonic_s() + seconds
        while CLOCK.monotonic_s() < until_s:
            self.tick()
            CLOCK.sleep(PAUSE_S)

    def until(self, ready: Callable[[], T], limit_s: float, what: str) -> T:
        """Look until something is there, and return it."""
        until_s = CLOCK.monotonic_s() + limit_s
        while True:
            self.tick()
            found = ready()
            if found:
                return found
            if CLOCK.monotonic_s() >= until_s:
                status = text_of(self.status.latest[1])
                raise AssertionError(f"{what} did not come about within {limit_s:g} s: {status}\n{self.logs()}")
            CLOCK.sleep(PAUSE_S)

    def answered(self, since_s: float) -> bool:
        """Whether a question that was asked since then has been answered."""
        return self.status.latest[0] >= since_s

    def normal(self, since_s: float) -> bool:
        """Whether such an answer says that all nodes are up, and that there is no alarm."""
        asked_s, status = self.status.latest
        return asked_s >= since_s and status["nodes"]["condition"]["up"] == NODES and not status["alarms"]

    def new_job(self, limit_s: float) -> None:
        """Submit a short job and see it done."""
        self._probes += 1
        name = f"probe-{self._probes}"
        job = Job(name, (Stage(0.5 * MHZ, MHZ, memory_mib=JOB_MIB),), template=f"fake:work={0.5 * MHZ:g};max={MHZ:g}")
        request = SubmitJob(self.asker.new_id(), job)

        def told() -> bool:
            self.asker.asked += 1
            reply = self.asker.ask(request, 1.0)
            return reply is not None and reply.done

        self.until(told, limit_s, f"the submission of {name}")
        self.until(lambda: self.completions().get(name), limit_s, f"the end of {name}")

    @property
    def requests(self) -> int:
        """How often a controller has been asked by those who note it."""
        askers = (self.submitter._asker, self.meddler._asker, self.asker)
        return self.status.asked + sum(asker.asked for asker in askers) + self.commands.count + 1

    def close(self) -> None:
        """End everything."""
        for worker in getattr(self, "workers", ()):
            worker.stopping.set()
        super().close()

    def _tend_portal(self) -> None:
        if self.portal is not None and self.portal.lives and self.portal.exit_status == BEGIN_ANEW:
            self.portal.start()


def daemons(made: Soak) -> tuple[Process, ...]:
    """All that is watched."""
    return made.watched.daemons


@contextmanager
def soak(broker: PrivateBroker, keep_s: float) -> Iterator[tuple[Soak, str]]:
    """A cluster that works, and why its store has no small disk for itself ("": it has). History is kept so long."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="soak-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        no_disk = ""
        try:
            stack.enter_context(mounted(folder, STORE_MIB))
        except pytest.skip.Exception as reason:
            no_disk = str(reason)
        (port,) = free_ports(1)
        url = f"sqlite:///{folder}/controller.db"
        own: Mapping[str, Any] = {
            "metrics": {"listen": f"127.0.0.1:{port}"},
            "store": {"url": url, "retention": retention(keep_s)},
        }
        nodes = ",".join(f"n{number + 1}:{NODE}" for number in range(NODES))
        kind = type("Soak", (Soak,), {"keep_s": keep_s, "store_folder": folder, "controller_metrics": port})
        made = stack.enter_context(
            scene(
                broker,
                begin=False,
                kind=kind,
                nodes=nodes,
                costs=COSTS,
                controller=merged(CONTROLLER, own),
                agent={"periods": {"report_s": REPORT_S}},
                store=url,
            )
        )
        assert isinstance(made, Soak)
        made.add_account(JANE, "provider")
        made.begin_with_known_nodes()
        made.open_portal()
        yield made, no_disk
