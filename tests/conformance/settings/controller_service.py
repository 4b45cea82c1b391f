"""Keys of the controller's file about what it learns, promises, tells and keeps: interference, assurance,
notifications, balancers, the store; and how it is told of instances."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from daemons.config.controller import ControllerConfig
from daemons.decision.recording import SnapshotEntry
from daemons.drivers.load_balancers import make_balancer
from daemons.drivers.load_balancers.haproxy_config import wanted_of
from daemons.drivers.notifiers import make_channels
from daemons.drivers.power import make_driver
from daemons.service.main import open_store
from daemons.store import ActionEntry, Batch, NodeUse, Retention
from daemons.store.engine import parse_url
from daemons.store.retention import DAY_S, counted
from daemons.values.records.cluster import CostRecord
from daemons.values.records.notifications import NotificationRecord
from shared.base import secrets
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput, TransientError
from shared.ports import effects as fx
from shared.ports.audit import Audited
from shared.ports.notices import Notice, Notified, Notify
from shared.protocol.messages import Happened
from shared.protocol.operator_messages import CreateEnvironment, Query, SubmitJob, SubmitWeb
from shared.values.agreement import AssuranceTerms
from shared.values.health import Probe, ProbeKind
from shared.values.jobs import JobPhase
from shared.values.load_vector import IO, Loading
from shared.values.nodes import NodeSample, PowerOperation
from shared.values.reservation import ServiceClass, Share, SlotDemand
from shared.values.web_app import Limits, Serving, WebApp
from tests.conformance.settings.core import Recorded, led, made
from tests.conformance.settings.row import Given, Row, shown_by, shown_together
from tests.support import parts
from tests.support.controller_harness import ControllerHarness, job
from tests.support.environment_cases import agreement
from tests.support.interference_harness import InterferenceHarness
from tests.support.store_samples import decision_record, job_record, made_url

NODES = ("n1", "n2")
HANGS_S = 2.0
ACTS: dict[str, Any] = {"policies.placement": "first-fit", "automation.level": "auto"}

# --- what it learns and promises ------------------------------------------------------------------------------------


class Sharing(InterferenceHarness):
    """Jobs that share disks, under a controller made from a file."""

    def __init__(self, _nodes: object, **settings: Any) -> None:
        super().__init__(None, **settings)


def learnt(given: Given) -> object:
    """Jobs of a class load the disk for a while, the second less than the first: what is known then, and counted."""
    harness = made(given, Sharing)
    harness.lead()
    found = []
    for number, io in enumerate((0.6, 0.2, 0.5, 0.55)):
        harness.run(f"j{number}", "n1", (0.3, io), "render")
        harness.work(400.0)
        harness.finish(f"j{number}")
        rows = harness.view("render")["profiles"]
        found.append([(row["class"], row["status"], row["loading"], row["observations"]) for row in rows])
    harness.run("next", "n2", (0.3, 0.5), "render")
    loading = harness.controller.deciding.builder.build(harness.now_s).loading
    return found, None if loading is None else loading.parts.tolist()


def networked(given: Given) -> object:
    """A job sends much: what part of its time it is at the network."""
    harness = made(given, Sharing)
    harness.lead()
    harness.run("j", "n1", (0.3, 0.1), "render")
    for _ in range(40):
        harness.now_s += 10.0
        status = harness.vms["n1"]["j#0"]
        harness.change("n1", "j#0", cpu_time_s=status.cpu_time_s + 3.0, net_tx_bytes=status.net_tx_bytes + 300_000_000)
        harness.report("n1", sample=NodeSample())
    harness.settle()
    harness.finish("j")
    return [row["loading"] for row in harness.view("render")["profiles"]]


def slowed(given: Given) -> object:
    """Jobs that declare to load disks share a node: how much each is expected to be slowed."""
    harness = led(given)
    for index in range(4):
        loading = Loading(((IO, 0.3 + 0.1 * index),))
        harness.ask(SubmitJob(f"s{index}", replace(job(f"j{index}", memory_mib=500), resource_profile=loading)))
    harness.obey()
    number = harness.controller.deciding.decisions
    decision = harness.ask(Query("q", "plan", f"{number}")).data["decision"]
    return [row["text"] for row in decision["slowed"]]


def promised(given: Given) -> object:
    """An environment asks for more units than it has announced, in some hours: what it is given by right, and what
    else. Another one, without a reservation, is in some hour of the day."""
    harness = led(given, ("n1", "n2", "n3", "n4"))
    demand = tuple(SlotDemand((0.0, 0.7, 0.2, 0.05, 0.05) if slot % 2 else (0.0, 0.9, 0.1)) for slot in range(24))
    terms = AssuranceTerms((Share(ServiceClass.PREDICTABLE, 6, 0.9),), demand)
    for name, wanted in (("one", terms), ("two", None)):
        asked = agreement(name, owner="kim", lower=0, model="flb-nub", assurance=wanted)
        harness.say(CreateEnvironment(f"c-{name}", asked), "owner.kim")
    one, two = (harness.controller.cluster.environments[name] for name in ("one", "two"))
    assurance = parts.admission(harness.controller).assurance
    entry = assurance.entry_of(one)
    judged: list[Any] = []
    for hour in (0, 1, 2, 3, 4, 5, 6, 7, 30):
        judged += [assurance.policing.judge(entry, units, 0, 3_600.0 * hour) for units in (1, 2, 3, 4)]
    details = harness.ask(Query("q", "assurance", "one")).data
    policed = json.dumps(details, default=str).count("entitlement") and "null" not in json.dumps(
        [row.get("entitlement") for row in _rows_of(details)]
    )
    return judged, policed, assurance.entry_of(two).slot_at(10 * 3_600.0)


def _rows_of(details: Any) -> list[dict[str, Any]]:
    """Every table in an answer that speaks of an entitlement."""
    if isinstance(details, dict):
        here = [details] if "entitlement" in details else []
        return here + [row for each in details.values() for row in _rows_of(each)]
    return [row for each in details for row in _rows_of(each)] if isinstance(details, list | tuple) else []


# --- what it tells --------------------------------------------------------------------------------------------------


class Telling(ControllerHarness):
    """A controller whose channels answer at once: `sent` is what went out and when. `fails`: they take nothing."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.sent: list[tuple[float, str, str, list[tuple[str, str]]]] = []
        self.fails = False
        super().__init__(*arguments, **settings)

    def carry(self, effects: list[fx.Effect]) -> None:
        super().carry(effects)
        for effect in effects:
            if isinstance(effect, Notify):
                told = [(notice.what, notice.subject) for notice in effect.notices]
                self.sent.append((self.now_s, effect.channel, effect.cluster, told))
                answer = Notified(effect.channel, effect.message, not self.fails, False, "no route")
                super().carry(self.controller.handle(answer, self.now_s))


def told(given: Given) -> object:
    """Nodes fall silent, one after the other, and jobs come and go for some hours: what is told of it."""
    return _told(given, False)


def told_in_vain(given: Given) -> object:
    """The same, and nobody can be told."""
    return _told(given, True)


def _told(given: Given, fails: bool) -> object:
    harness = made(given, Telling)
    harness.fails = fails
    harness.lead()
    for index in range(8):
        harness.ask(SubmitJob(f"s{index}", job(f"j{index}", memory_mib=100)))
    harness.obey()
    for _ in range(4):
        harness.wait(100.0, ("n2",))
        harness.wait(60.0, NODES)
    rows = harness.ask(Query("n", "notifications", "")).data["notifications"]
    return harness.sent, [(row["state"], row["tries"]) for row in rows]


def channel(given: Given) -> object:
    """A message goes over the channel `ops`, whose program writes it down."""
    text = given.text.replace("/FOLDER", str(given.folder))
    config = Given(text, given.folder).read(ControllerConfig)
    notices = (Notice("a.0", 0.0, "node-down", "n1", "it is unreachable"),)
    for made_channel in make_channels(config.notify).values():
        made_channel.send(Notify("ops", "a", config.notify.cluster, notices))
    return sorted((path.name, path.read_text()) for path in given.folder.iterdir())


# --- balancers ------------------------------------------------------------------------------------------------------

SERVING = Serving(8080, 8500)


def balanced(given: Given) -> object:
    """An application with two instances runs, and shrinks: what its balancer is told, and when an instance is
    stopped."""
    harness = led(given)
    app = WebApp("shop", (), 500, max_mhz=1000.0, min_instances=2, max_instances=2, serving=SERVING)
    harness.ask(SubmitWeb("s", app))
    harness.obey()
    for step in range(24):
        if step == 6:
            harness.ask(SubmitWeb("t", replace(app, min_instances=1, max_instances=1)))
        harness.wait(5.0, NODES)
        if harness.balances:
            harness.feed(fx.Balanced("shop", True))
        harness.obey()
    return [(at_s, seen) for at_s, seen in harness.seen if seen.startswith("Balance")], harness.ordered


def _order(probe: Probe | None = None) -> fx.Balance:
    backends = (fx.Backend("shop#0", "n1", False, "192.0.2.7", 1.0),)
    return fx.Balance("shop", backends, SERVING, Limits(), probe)


def haproxy_form(given: Given) -> object:
    """The configuration of an application that says nothing more."""
    keys = given.read(ControllerConfig).balancer.haproxy
    wanted = wanted_of(_order(), SERVING, keys)
    return wanted.text


@contextmanager
def _unix_server(path: Path, heard: list[str], answer: str | None) -> Iterator[None]:
    """Listens there; answers each connection with the text (None: with nothing, late)."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen()
    ended = threading.Event()

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                written = sorted(each.parent.name for each in path.parent.rglob("*.cfg*"))
                heard.append(f"{path.name}: {connection.recv(4096).decode()[:20]} {written}")
                if answer is None:
                    ended.wait(5.0)
                else:
                    connection.sendall(answer.encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5.0)


MASTER = "# programs\n1 master 0 [failed: 0] 0d\n# workers\n2 worker 1 0 0d\n# old workers\n"


def haproxy(given: Given) -> object:
    """HAProxy is told of an application, and does not reload."""
    return _haproxy(given, "Pid: 2\nCan't find backend.\n")


def haproxy_hangs(given: Given) -> object:
    """HAProxy does not answer."""
    return _haproxy(given, None)


def _haproxy(given: Given, answer: str | None) -> object:
    folder = Path("/tmp") / f"h{os.getpid()}-{given.folder.name}"  # names of sockets are short
    folder.mkdir(exist_ok=True)
    for name in ("conf1", "conf2"):
        (folder / name).mkdir(exist_ok=True)
    text = given.text.replace("/FOLDER", str(folder)).replace("LOOPBACK", given.loopback())
    config = Given(text, folder).read(ControllerConfig)
    heard: list[str] = []
    clock = SystemClock()
    begun_s = clock.monotonic_s()
    try:
        with ExitStack() as stack:
            for name in ("one", "two", "m1", "m2"):
                says = MASTER if name.startswith("m") else answer
                stack.enter_context(_unix_server(folder / f"{name}.sock", heard, says))
            try:
                said = make_balancer(config.balancer).set_backends(_order()).detail
            except TransientError as error:
                said = str(error)
            took_s = clock.monotonic_s() - begun_s
    finally:
        for path in sorted(folder.rglob("*"), reverse=True):
            path.unlink() if not path.is_dir() else path.rmdir()
        folder.rmdir()
    return [*dict.fromkeys(heard)], said.replace(str(folder), "/FOLDER"), answer is None and took_s > HANGS_S


def program(given: Given) -> object:
    """The program of the driver `exec` is told of an application."""
    balancer = make_balancer(given.read(ControllerConfig).balancer)
    answer = balancer.set_backends(_order())
    return answer.ok, answer.detail


# --- instances, power, the store ------------------------------------------------------------------------------------


def watched(given: Given) -> object:
    """A node goes on reporting by an old list of what to watch: when it is told again."""
    harness = led(given, ("n1",))
    probe = Probe(ProbeKind.TCP, 80)
    harness.ask(SubmitWeb("s", WebApp("shop", (), 500, max_mhz=1000.0, probe=probe)))
    harness.obey()
    harness.wait(120.0, ("n1",))
    return [(at_s, seen[:80]) for at_s, seen in harness.seen if "Watch(" in seen]


def unanswered(given: Given) -> object:
    """An order is never answered: when that is an alarm."""
    harness = led(given)
    harness.ask(SubmitJob("s", job()))
    found = []
    for _ in range(10):
        harness.wait(100.0, ("n2",))
        rows = harness.ask(Query("q", "status")).data["alarms"]
        found.append([row["what"] for row in rows])
    return found


def woken(given: Given) -> object:
    """Where packets go that wake a node."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as two,
    ):
        words = {}
        for name, each in (("PORT1", one), ("PORT2", two)):
            each.bind(("127.0.0.1", 0))
            each.settimeout(0.2)
            words[name] = f"{each.getsockname()[1]}"
        text = given.text
        for name, port in words.items():
            text = text.replace(name, port)
        driver = make_driver(Given(text, given.folder).read(ControllerConfig).power)
        driver.operate(PowerOperation.WAKE, "n1", ("52:54:00:00:00:01",))
        return [_received(each) for each in (one, two)]


def _received(sock: socket.socket) -> bytes:
    try:
        return sock.recv(200)
    except TimeoutError:
        return b""


NOW_S = 500 * DAY_S


def kept(given: Given) -> object:
    """What is left of a history of two years when it is pruned, as `daemons.service.main.build` has it done."""
    url = made_url(given.folder / "store.db")
    config = given.read(ControllerConfig)
    keep = Retention(**asdict(config.store.retention))
    days = (450, 95, 35, 20, 2)
    with closing(open_store(url, keep)) as store:
        store.take_lead("a")
        for number, age in enumerate(days):
            at_s = NOW_S - age * DAY_S
            done = job_record(f"j{age}", phase=JobPhase.COMPLETED, finished_s=at_s)
            cost = CostRecord(at_s, 900.0, "EUR", kwh=1.0)
            notice = NotificationRecord(
                f"m{age}.0",
                at_s,
                "ops",
                what="node-down",
                subject="n1",
                detail="",
                state="delivered",
                tries=1,
                next_s=None,
                error="",
            )
            store.write(1, (done, decision_record(number + 1, at_s), cost, notice))
            use = NodeUse("n1", at_s, 300.0, 60, 0.5, 0.5, 0.0, 1.0, 10.0, 10.0, 0.0, 5.0, 2.0, 1, 2, 3, 4)
            batch = Batch(
                (Happened(at_s, "leading", "a"),),
                (ActionEntry(f"{age}", at_s, "start", "x#0", "n1", 1),),
                (use, replace(use, from_s=at_s + 300.0)),
                (SnapshotEntry(number, at_s, 1, bytes(1 << 20)),),
                (
                    Audited(
                        at_s,
                        "operator.jane",
                        "operator.jane",
                        request=f"r{age}",
                        kind="k",
                        subject="s",
                        why="",
                        done=True,
                    ),
                ),
            )
            store.append(batch)
        return counted(store.prune_steps(keep, NOW_S)), counted(store.bound_steps(keep))


def recorded(given: Given) -> object:
    """Whether what a decision was computed from is to be kept."""
    harness = made(given, Recording)
    harness.lead()
    harness.ask(SubmitJob("s", job()))
    return harness.records > 0


class Recording(Recorded):
    """Counts what is to be recorded."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.records = 0
        super().__init__(*arguments, **settings)

    def carry(self, effects: list[fx.Effect]) -> None:
        self.records += sum(isinstance(effect, fx.Record) for effect in effects)
        super().carry(effects)


def stored(given: Given) -> object:
    """Where a new store is made."""
    text = given.text.replace("/FOLDER", str(given.folder))
    config = Given(text, given.folder).read(ControllerConfig)
    with closing(open_store(config.store.url, Retention())) as store:
        store.upgrade()
    return sorted(path.name for path in given.folder.iterdir() if path.suffix == ".db")


def password(given: Given) -> object:
    """With which password the store would be opened, or why it cannot be."""
    for name in ("one", "two"):
        (given.folder / name).write_text(f"word-{name}\n")
        (given.folder / name).chmod(0o600)
    text = given.text.replace("/FOLDER", str(given.folder))
    placed = Given(text, given.folder)
    path = placed.file()
    path.chmod(0o600)
    try:
        config = secrets.completed(placed.read(ControllerConfig), path)
        return parse_url(config.store.url).password
    except InvalidInput as error:
        return [problem.what for problem in error.problems]


LEARNS = ACTS | {"interference.observations_min": 2, "interference.half_width_max": 1.0}
PROMISES = ACTS | {"policies.admission": "statistical"}
SAID = {"kind": "command", "argv": ["/bin/sh", "-c", "cat > /FOLDER/one"]}
TELLS = ACTS | {
    "notify.channels": {"ops": SAID, "pager": SAID},
    "notify.rules[].events": ["node-*", "job-*", "alarm:*"],
    "notify.rules[].channels": ["ops"],
}
HAPROXY: dict[str, Any] = {
    "balancer.driver": "haproxy",
    "balancer.haproxy.address": "LOOPBACK",
    "balancer.haproxy.folder": "/FOLDER/conf1",
    "balancer.haproxy.socket": "/FOLDER/one.sock",
    "balancer.haproxy.master_socket": "/FOLDER/m1.sock",
    "balancer.haproxy.reload_limit_s": 1,
}
EXEC = {"balancer.driver": "exec", "balancer.exec.command": ["/bin/echo", "{app}"]}

TABLE: tuple[Row, ...] = (
    *shown_by(
        learnt,
        {
            "interference.learn": (True, False),
            "interference.decisions": (True, False),
            "interference.observations_min": (2, 9),
            "interference.half_width_max": (1.0, 0.001),
        },
        LEARNS,
    ),
    *shown_by(networked, {"interference.network_mbit_per_s": (1_000, 500)}, LEARNS),
    *shown_by(slowed, {"interference.model": ("formula", "product-form")}, ACTS),
    *shown_by(
        promised,
        {
            "assurance.police": (True, False),
            "assurance.surplus": ("best-effort", "rejected"),
            "assurance.headroom": (2.25, 0.0),
            "assurance.windows": ([4], [2]),
            "assurance.timezone": ("UTC", "Asia/Tokyo"),
        },
        PROMISES,
    ),
    *shown_together(
        told,
        {
            "notify.rules[].events": (["node-*", "alarm:*"], ["job-*"]),
            "notify.rules[].channels": (["ops"], ["pager"]),
            "notify.rules[].subjects": ([], ["n1"]),
            "notify.rules[].at_least_every_s": (0, 20),
            "notify.rules[].digest_s": (0, 120),
            "notify.rules[].deduplicate_s": (300, 0),
            "notify.cluster": ("trimtab", "other"),
        },
        TELLS,
    ),
    *shown_by(
        told,
        {
            "notify.rules[].quiet_from": ("00:00", "00:04"),
            "notify.rules[].quiet_until": ("00:10", "00:01"),
            "notify.rules[].timezone": ("UTC", "Asia/Tokyo"),
        },
        TELLS | {"notify.rules[].quiet_from": "00:00", "notify.rules[].quiet_until": "00:10"},
    ),
    *shown_by(
        told_in_vain,
        {"notify.attempts_max": (100, 2), "notify.give_up_s": (86_400, 60), "notify.waiting_max": (1_000, 10)},
        TELLS,
    ),
    *shown_by(
        channel,
        {"notify.channels": ({"ops": SAID}, {"ops": SAID | {"argv": ["/bin/sh", "-c", "cat > /FOLDER/two"]}})},
    ),
    *shown_by(
        balanced,
        {"balancer.driver": ("none", "exec"), "balancer.drain_limit_s": (60, 10), "balancer.resend_s": (5, 20)},
        ACTS | EXEC,
    ),
    *shown_by(
        haproxy_form,
        {
            "balancer.haproxy.address": ("*", "192.0.2.1"),
            "balancer.haproxy.instance_max": (100, 50),
            "balancer.haproxy.queue_max": (1_000, 50),
            "balancer.haproxy.check_s": (2, 5),
            "balancer.haproxy.check_limit_s": (2, 5),
            "balancer.haproxy.check_fall": (3, 5),
            "balancer.haproxy.check_rise": (2, 5),
            "balancer.haproxy.connect_limit_s": (2, 5),
            "balancer.haproxy.response_limit_s": (60, 5),
            "balancer.haproxy.idle_limit_s": (60, 5),
        },
    ),
    *shown_by(
        haproxy,
        {
            "balancer.haproxy.folder": ("/FOLDER/conf1", "/FOLDER/conf2"),
            "balancer.haproxy.socket": ("/FOLDER/one.sock", "/FOLDER/two.sock"),
            "balancer.haproxy.master_socket": ("/FOLDER/m1.sock", "/FOLDER/m2.sock"),
            "balancer.haproxy.ports": ([8000, 8999], [8000, 8100]),
            "balancer.haproxy.reload_limit_s": (1, 2),
        },
        HAPROXY,
        waits=True,
    ),
    *shown_by(haproxy_hangs, {"balancer.haproxy.limit_s": (0.1, 4.0)}, HAPROXY, waits=True),
    *shown_by(program, {"balancer.exec.command": (["/bin/true"], ["/bin/false"])}, EXEC),
    *shown_by(
        program, {"balancer.exec.limit_s": (1, 20)}, EXEC | {"balancer.exec.command": ["/bin/sleep", "3"]}, waits=True
    ),
    *shown_by(unanswered, {"timeouts.operation_timeout_s": (600, 300)}, ACTS),
    *shown_by(watched, {"periods.report_s": (5, 10)}, ACTS),
    *shown_by(woken, {"power.broadcast": ("127.0.0.1:PORT1", "127.0.0.1:PORT2")}, {"power.driver": "wake-on-lan"}),
    *shown_together(
        kept,
        {
            "store.retention.events_days": (30, 60),
            "store.retention.actions_days": (30, 60),
            "store.retention.decisions_days": (90, 10),
            "store.retention.jobs_days": (30, 60),
            "store.retention.fine_samples_days": (7, 30),
            "store.retention.samples_days": (400, 60),
            "store.retention.costs_days": (400, 60),
            "store.retention.snapshots_days": (30, 60),
            "store.retention.snapshots_mib": (20_480, 1),
            "store.retention.audit_days": (400, 60),
            "store.retention.notifications_days": (30, 60),
        },
    ),
    *shown_by(recorded, {"store.record_snapshots": (True, False)}, ACTS),
    *shown_by(stored, {"store.url": ("sqlite:////FOLDER/one.db", "sqlite:////FOLDER/two.db")}),
    *shown_by(
        password,
        {"store.password_file": ("/FOLDER/one", "/FOLDER/two")},
        {"store.url": "postgresql://kim@localhost/db"},
    ),
)
