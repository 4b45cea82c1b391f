"""Keys of the controller's file about nodes and energy: deadline windows, prices, power, setups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from daemons.config.controller import ControllerConfig
from daemons.decision.tables.memory import MemoryTables
from daemons.drivers.fencing import with_fencing
from daemons.drivers.power import make_driver
from daemons.drivers.price_feed import feed_of
from daemons.service.main import check
from daemons.values.records.cluster import ServedJob
from shared.base.errors import InvalidInput
from shared.ports import effects as fx
from shared.ports.controller import PowerDriver
from shared.ports.plugins import find_policy
from shared.protocol import topology
from shared.protocol.messages import GoToSleep, Message, SetUpAnswer, SetUpNode, SleepAnswer, WebReport
from shared.protocol.operator_messages import (
    ActivateEnvironment,
    CreateEnvironment,
    Query,
    SubmitJob,
    SubmitWeb,
)
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.nodes import NodeSample, PowerOperation
from shared.values.web_app import Flow, FlowSample, WebApp
from tests.conformance.settings.core import Recorded, made
from tests.conformance.settings.row import OMITTED, Given, Row, shown_by, shown_together
from tests.support import parts
from tests.support.controller_harness import job
from tests.support.environment_cases import agreement
from tests.support.fence_agent import FakeAgent

NODES = ("n1", "n2", "n3")
HOUR_S = 3600.0
WINDOW: dict[str, Any] = {
    "policies.placement": "first-fit",
    "policies.provisioning": "threshold",
    "automation.level": "auto",
    "windows.*.submit_from": "00:00",
    "windows.*.submit_until": "06:00",
    "windows.*.deadline": "07:00",
    "windows.*.timezone": "UTC",
    "windows.*.arrivals_per_day": 120,
    "windows.*.service_s": 600,
    "windows.*.nodes_max": 3,
    "windows.*.confidence": 0.999,
    "power.driver": "exec",
    "power.exec.wake": ["/bin/true", "{node}"],
}
COSTLY = WINDOW | {
    "policies.provisioning": "cost-aware",
    "prices.shape": "increasing",
    "prices.per_kwh": 3.0,
    "windows.*.confidence": 0.9,
    "windows.*.arrivals_per_day": 24,
    "windows.*.service_s": 1_200,
}
HOSTS: dict[str, Any] = {
    "policies.placement": "first-fit",
    "automation.level": "auto",
    "periods.decide_s": 80_000,
    "power.driver": "exec",
    "power.exec.wake": ["/bin/true", "{node}"],
    "power.standby_s": 60,
    "power.wake_limit_s": 300,
    "power.drain_limit_s": 600,
    "power.wake_test_days": 0,
}
ECHOED = ("name", "queue", "timezone", "confidence")  # what the forecast repeats of the file


class Hosts(Recorded):
    """Nodes that agents put to sleep at once; the hosts that are `up` report."""

    def __init__(self, nodes: Iterable[str], **settings: Any) -> None:
        super().__init__(nodes, **settings)
        self.up = list(self.nodes)

    def _publish(self, effect: fx.Publish) -> None:
        super()._publish(effect)
        if isinstance(asked := effect.message, GoToSleep):
            answer = (asked.node, self.boots[asked.node], self.next_seq(asked.node), self.now_s, asked.request, True)
            self.up.remove(asked.node)
            self.say(SleepAnswer(*answer), topology.agent_user(asked.node))

    def report(self, node: str, **fields: Any) -> None:
        """A node with a VM is half busy."""
        super().report(node, sample=NodeSample(cpu_frac=0.5 if self.vms[node] else 0.0), **fields)

    def want(self, *names: str) -> None:
        """Carry out a decision that these and no others are to be in service."""
        lifecycle = parts.lifecycle(self.controller)
        lifecycle.apply(lifecycle.change_to(names, lifecycle.seen(self.now_s), self.now_s), self.now_s)
        self.feed(fx.TimerFired("deploy"))

    def go(self, seconds: float) -> None:
        """Let time pass; nodes that are up report, orders are carried out."""
        self.obey()
        self.wait(seconds, self.up)

    def services(self) -> dict[str, str]:
        """Where each node is."""
        return {name: node.service.value for name, node in self.controller.cluster.nodes.items()}


def hosts(given: Given, nodes: Iterable[str] = NODES) -> Hosts:
    harness = made(given, Hosts, nodes)
    harness.lead()
    return harness


def problems(given: Given) -> object:
    """What a controller says that it could not start with."""
    try:
        check(given.read(ControllerConfig))
    except InvalidInput as error:
        return [str(problem) for problem in error.problems]
    return []


# --- windows and prices ---------------------------------------------------------------------------------------------


def forecast(given: Given) -> object:
    """A night with a deadline: jobs come in, nodes are wanted for them; what the forecast says at some hours."""
    harness = hosts(given)
    replies, found = [], []
    for hour in range(6):
        for index in range(4):
            wanted = job(f"j{hour}-{index}", queue="night", work=600_000.0)
            replies.append(harness.ask(SubmitJob(f"s-{hour}-{index}", wanted)).code)
        harness.go(HOUR_S / 4.0)
        harness.now_s += HOUR_S * 0.75
        harness.go(20.0)
        data = harness.ask(Query(f"q{hour}", "forecast")).data
        windows = [{key: each for key, each in row.items() if key not in ECHOED} for row in data["windows"]]
        found.append((windows, harness.services()))
    return replies, found


def varying(given: Given) -> object:
    """Forty jobs of a window are done, one in ten of which took far longer: what run times are taken for then."""
    harness = hosts(given)
    (entry,) = parts.windows(harness.controller).entries.values()
    work = [6e6 if index % 10 == 0 else 2e5 for index in range(40)]
    entry.change(served=tuple(ServedJob(harness.now_s, each, "", "") for each in work))
    harness.go(1_000.0)
    data = harness.ask(Query("q", "forecast")).data
    return [row["service"]["phases"] for row in data["windows"]]


def emptied(given: Given) -> object:
    """The node of a running job of the window is to leave service: what becomes of the job, and when."""
    harness = hosts(given, ("n1", "n2"))
    assert harness.ask(SubmitJob("s", job("j", queue="night"))).done
    harness.go(950.0)
    harness.obey()
    node = next(name for name, vms in harness.vms.items() if vms)
    harness.compute = False
    harness.want(*(name for name in harness.nodes if name != node))
    found = []
    for _ in range(20):
        harness.wait(60.0, harness.up)
        found += [(harness.now_s, order.kind) for order in harness.obey()]
    return found, harness.services()


def shared(given: Given) -> object:
    """Two nights whose jobs need more nodes than there are: which one is given how many."""
    harness = hosts(given)
    for index in range(20):
        for queue in ("night", "other"):
            harness.ask(SubmitJob(f"s-{queue}-{index}", job(f"{queue}-{index}", queue=queue, work=2e6, memory_mib=900)))
    harness.go(1_000.0)
    data = harness.ask(Query("q", "forecast")).data
    return [(row["name"], row["nodes_given"]) for row in data["windows"]]


def costs(given: Given) -> object:
    """What nodes cost in a day, asleep or with a job on them, and what the next hours will."""
    harness = hosts(given)
    harness.nodes = {name: replace(node, node_type="night") for name, node in harness.nodes.items()}
    harness.go(10.0)
    assert harness.ask(SubmitJob("s", job())).done
    harness.want("n1", "n2")
    read = feed_of(given.read(ControllerConfig).prices)
    for _ in range(4):
        if read is not None:
            harness.feed(read.read())
        harness.go(1_000.0)
    harness.now_s += 22 * HOUR_S
    harness.go(100.0)
    prices = harness.ask(Query("p", "forecast")).data["prices"]
    asked = [round(at_s, 3) for at_s, seen in harness.seen if seen.startswith("ReadPrices")]
    return harness.ask(Query("q", "costs")).data, prices[:40], asked


def series(given: Given) -> object:
    """The same with files of prices."""
    rows = ["at,price,tariff"]
    rows += [f"1970-01-{day:02}T{hour:02}:00,{hour / 10:g},{hour}" for day in (1, 2, 3) for hour in range(24)]
    for name, factor in (("one.csv", 1), ("two.csv", 2)):
        lines = [
            rows[0],
            *(f"{r.split(',')[0]},{float(r.split(',')[1]) * factor:g},{r.split(',')[2]}" for r in rows[1:]),
        ]
        (given.folder / name).write_text("\n".join(lines) + "\n")
    return costs(Given(given.text.replace("/FOLDER", str(given.folder)), given.folder))


def worth(given: Given) -> object:
    """What taking a node costs an application whose load needs all nodes."""
    harness = hosts(given)
    flow = Flow("browse", mean_s=0.2, work_mcycles=10.0, t_min_s=0.01)
    assert harness.ask(SubmitWeb("w", WebApp("shop", (flow,), 1000, max_mhz=4000.0, max_instances=3, vcpus=4))).done
    harness.obey()
    for at in range(20):
        sample = FlowSample("browse", 60.0, offered=60_000, served=60_000, mean_s=0.1)
        report = WebReport("shop", at + 1, harness.now_s, (sample,))
        harness.feed(fx.Received(None, topology.web_user("shop"), report))
        harness.go(60.0)
    return [row["added"] for row in harness.ask(Query("p", "forecast")).data["prices"]]


# --- power ----------------------------------------------------------------------------------------------------------


def night_of_a_host(given: Given) -> object:
    """Nodes leave service, sleep, are wanted again, and are not heard of: all that happens, and when."""
    harness = hosts(given)
    harness.want("n1")
    harness.go(400.0)
    harness.want("n1", "n2")
    harness.go(700.0)
    return harness.seen, harness.powers, harness.services()


def full_host(given: Given) -> object:
    """A node leaves service with a job on it that nobody moves."""
    harness = hosts(given)
    assert harness.ask(SubmitJob("s", job())).done
    harness.obey()
    harness.compute = False
    harness.controller.cluster.jobs["j"].held = True
    harness.want("n2", "n3")
    harness.wait(295.0, harness.up)
    harness.take_orders()
    harness.wait(1_500.0, harness.up)
    return harness.happened


def many_hosts(given: Given) -> object:
    """Seven of eight nodes go to sleep and are wanted again: how many at a time."""
    harness = hosts(given, [f"n{index}" for index in range(8)])
    harness.want("n0")
    harness.go(1_000.0)
    harness.want(*harness.nodes)
    harness.go(400.0)
    return [(at_s, seen[:60]) for at_s, seen in harness.seen if "GoToSleep" in seen or seen.startswith("Power(")]


def tested(given: Given) -> object:
    """A node sleeps for days: when it is woken to see that it can be."""
    harness = hosts(given)
    harness.want("n1")
    harness.go(200.0)
    for _ in range(20):
        harness.now_s += HOUR_S
        harness.go(10.0)
    return [(at_s, seen[:60]) for at_s, seen in harness.seen if seen.startswith("Power(")]


def idle(given: Given) -> object:
    """A night for which fewer nodes are enough: which of them stay in service."""
    harness = hosts(given)
    harness.go(2_000.0)
    return harness.services()


def idle_cost(given: Given) -> object:
    """What the nodes of a night are expected to cost, with what is missed."""
    harness = hosts(given)
    view = harness.controller.deciding.builder.build(harness.now_s)
    decision, _ = find_policy("provisioning", "cost-aware").decide(view, None, {}, MemoryTables())
    return decision.predicted_cost


def expected(given: Given) -> object:
    """How long a night's nodes are taken to need to come and go before that was measured, for decisions."""
    harness = hosts(given)
    harness.want("n1")
    harness.go(200.0)
    view = harness.controller.deciding.builder.build(harness.now_s)
    return [(each.deploy_s, each.remove_s) for each in view.windows]


def driven(given: Given) -> object:
    """What the driver does when it is asked; its programs write down how they were called."""
    log = given.folder / "called"
    program = given.folder / "program"
    program.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    program.chmod(0o755)
    config = Given(given.text.replace("/PROGRAM", str(program)), given.folder).read(ControllerConfig)
    driver: PowerDriver = make_driver(config.power)
    answers = {}
    for operation in PowerOperation:
        if operation in driver.does:
            answer = driver.operate(operation, "n1", ("52:54:00:00:00:01",))
            answers[operation.value] = (answer.ok, answer.detail)
    return answers, log.read_text().split("\n") if log.exists() else []


def slow_program(given: Given) -> object:
    """A program of the driver that takes three seconds."""
    config = given.read(ControllerConfig)
    return make_driver(config.power).operate(PowerOperation.FENCE, "n1", ())


# --- fencing --------------------------------------------------------------------------------------------------------


def fenced(given: Given) -> object:
    """How a node is fenced by two agents, of which the first fails: the answer, and how the agents were run."""
    agents = {name: FakeAgent.make(given.folder / name) for name in ("FIRST", "SECOND", "SLOW")}
    agents["FIRST"].script(always={"off": 1, "cuts": False, "prints": "no answer"})
    agents["SLOW"].script(always={"off_s": 3.0})
    text = given.text
    for name, agent in agents.items():
        text = text.replace(f"/{name}", str(agent.program))
    for name in ("one", "two"):
        secret = given.folder / f"secret-{name}"
        secret.write_text(name)
        secret.chmod(0o600)
        text = text.replace(f"/SECRET-{name}", str(secret))
    config = Given(text, given.folder).read(ControllerConfig)
    answer = with_fencing(make_driver(config.power), config.fencing).operate(PowerOperation.FENCE, "n1", ())
    return answer, [[run["options"] for run in agent.runs()] for agent in agents.values()]


# --- setups ---------------------------------------------------------------------------------------------------------


class Refusing(Recorded):
    """Agents whose setups fail."""

    def _publish(self, effect: fx.Publish) -> None:
        super()._publish(effect)
        asked: Message = effect.message
        if isinstance(asked, SetUpNode):
            seq = self.next_seq(asked.node)
            answer = SetUpAnswer(asked.node, self.boots[asked.node], seq, self.now_s, asked.request, False, "no room")
            self.say(answer, topology.agent_user(asked.node))


def setups(given: Given) -> object:
    """A node whose setup fails again and again: what is said of it."""
    harness = made(given, Refusing, ("n1",))
    harness.lead()
    wiped = agreement("hpc", lower=1, setup=Setup(SetupPolicy.WIPE))
    assert harness.ask(CreateEnvironment("c", wiped)).done
    assert harness.ask(ActivateEnvironment("a", "hpc")).done
    harness.wait(3_000.0, ("n1",))
    return harness.happened


SERIES = HOSTS | {"prices.shape": "series", "prices.file": "/FOLDER/one.csv"}
PROGRAM = ["/PROGRAM", "{node}", "{mac}"]
FENCING: dict[str, Any] = {"fencing.methods": ["night", "other"], "fencing.method.*.agent": "/FIRST"}

TABLE: tuple[Row, ...] = (
    *shown_together(
        forecast,
        {
            "windows.*.submit_from": ("00:00", "01:00"),
            "windows.*.submit_until": ("06:00", "04:00"),
            "windows.*.deadline": ("07:00", "10:00"),
            "windows.*.timezone": ("UTC", "Europe/Berlin"),
            "windows.*.queue": ("night", "other"),
            "windows.*.days": (["thu", "fri"], ["fri"]),
            "windows.*.confidence": (0.9999, 0.5),
            "windows.*.nodes_min": (1, 3),
            "windows.*.nodes_max": (3, 1),
            "windows.*.jobs_per_node": (0, 1),
            "windows.*.service_s": (600, 6_000),
            "windows.*.arrivals_per_day": (120, 10),
            "policies.provisioning": ("threshold", "static"),
        },
        WINDOW,
    ),
    *shown_by(idle_cost, {"windows.*.penalty": (1, 500)}, COSTLY),
    *shown_by(
        shared,
        {"windows.*.weight": (0.01, 100)},
        WINDOW | {f"windows.other.{key.split('.')[-1]}": value for key, value in WINDOW.items() if "windows" in key},
    ),
    *shown_by(varying, {"windows.*.service": ("auto", "exponential")}, WINDOW),
    *shown_by(emptied, {"windows.*.removal": ("lose", "wait")}, WINDOW),
    *shown_by(
        problems,
        {"windows.*.analyser": ("batch-deadline", "other"), "windows.*.analyser_params": ({}, {"depth": 3})},
        WINDOW,
    ),
    *shown_together(
        costs,
        {
            "prices.shape": ("uniform", "increasing"),
            "prices.per_kwh": (0.3, 0.5),
            "prices.currency": ("EUR", "CHF"),
            "power.draw.*.off_w": (5, 50),
        },
        HOSTS,
    ),
    *shown_by(
        costs,
        {"power.draw.*.idle_w": (100, 150), "power.draw.*.peak_w": (200, 400)},
        HOSTS | {"power.draw.*.off_w": 5},
    ),
    *shown_by(costs, {"power.draw.*.curve_w": ([100, 200], [100, 190, 200])}, HOSTS),
    *shown_by(
        costs,
        {"prices.ratio": (3, 5), "prices.timezone": ("UTC", "Asia/Tokyo")},
        HOSTS | {"prices.shape": "increasing"},
    ),
    *shown_by(
        series,
        {
            "prices.file": ("/FOLDER/one.csv", "/FOLDER/two.csv"),
            "prices.column": ("price", "tariff"),
            "prices.factor": (1, 0.001),
            "prices.read_every_s": (900, 300),
        },
        SERIES,
    ),
    *shown_by(worth, {"prices.per_utility": (0, 5)}, HOSTS),
    *shown_by(
        night_of_a_host,
        {
            "power.driver": ("exec", "none"),
            "power.sleep": ("suspend", "off"),
            "power.standby_s": (60, 200),
            "power.wake_limit_s": (300, 500),
            "power.never_sleep": ([], ["n3"]),
        },
        HOSTS,
    ),
    *shown_by(full_host, {"power.drain_limit_s": (600, 900)}, HOSTS),
    *shown_by(many_hosts, {"power.wakes_per_minute": (2, 5), "power.sleeps_per_minute": (2, 5)}, HOSTS),
    *shown_by(tested, {"power.wake_test_days": (0, 0.5)}, HOSTS),
    *shown_by(idle, {"power.keep_nodes": (1, 3)}, WINDOW | {"windows.*.arrivals_per_day": 1}),
    *shown_by(expected, {"power.deploy_s": (25, 90), "power.remove_s": (30, 90)}, WINDOW),
    *shown_by(
        driven,
        {f"power.exec.{name}": (PROGRAM, OMITTED) for name in ("wake", "sleep", "fence")},
        {"power.driver": "exec"} | {f"power.exec.{name}": PROGRAM for name in ("link", "delink")},
    ),
    *shown_by(
        driven,
        {f"power.exec.{name}": (PROGRAM, [*PROGRAM, "more"]) for name in ("link", "delink")},
        {"power.driver": "exec"} | {f"power.exec.{name}": PROGRAM for name in ("wake", "link", "delink")},
    ),
    *shown_by(
        slow_program,
        {"power.exec.limit_s": (1, 20)},
        {"power.driver": "exec", "power.exec.fence": ["/bin/sleep", "3"]},
        waits=True,
    ),
    *shown_by(
        fenced,
        {"fencing.methods": (["night", "other"], ["other", "night"]), "fencing.attempts": (1, 3)},
        FENCING | {"fencing.method.other.agent": "/SECOND"},
    ),
    *shown_by(
        fenced,
        {
            "fencing.method.*.agent": ("/SECOND", "/FIRST"),
            "fencing.method.*.options": ({"plug": "{node}"}, {"plug": "7"}),
            "fencing.method.*.password_file": ("/SECRET-one", "/SECRET-two"),
            "fencing.method.*.nodes": ({"n1": {"plug": "1"}, "n2": {"plug": "2"}}, {"n2": {"plug": "2"}}),
        },
        {"fencing.methods": ["night"], "fencing.method.*.agent": "/SECOND"},
    ),
    *shown_by(
        fenced,
        {"fencing.method.*.limit_s": (1, 20)},
        {"fencing.methods": ["night"], "fencing.attempts": 1, "fencing.method.*.agent": "/SLOW"},
        waits=True,
    ),
    *shown_by(setups, {"setup.attempts": (1, 3)}, {"automation.level": "auto", "policies.placement": "first-fit"}),
)
