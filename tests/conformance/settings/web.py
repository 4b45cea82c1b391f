"""Keys of web application files: what a controller, a balancer and an agent do with the application."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

from agents.core.health_monitor import TIMER
from agents.probes.probes import Monitor
from daemons.config.controller import BalancerHaproxy
from daemons.drivers.load_balancers.haproxy_config import wanted_of
from daemons.manifests.web_app import WebFile, checked
from daemons.values.settings import BalancerSettings, PolicyChoice
from shared.config.agent import HealthCheckKeys, MonitorCommand
from shared.ports import effects as fx
from shared.protocol import topology
from shared.protocol.messages import Watch, WebReport
from shared.protocol.operator_messages import CreateEnvironment, DrainNode, Query, SubmitJob, SubmitWeb
from shared.values.health import Health
from shared.values.jobs import Job, Preference, PreferenceKind, Rules, Stage
from shared.values.web_app import FlowSample, WebApp
from tests.conformance.settings.core import Recorded
from tests.conformance.settings.jobs import APC, FIRST_FIT, NODES, recorded
from tests.conformance.settings.row import OMITTED, Given, Row, shown_by, shown_together
from tests.support.agent_harness import SETTINGS, Rig, only, report, vm
from tests.support.controller_harness import job
from tests.support.environment_cases import agreement
from tests.support.tcp_server import server

APP: dict[str, Any] = {"name": "shop", "memory_mib": 500, "max_mhz": 1_000}
FLOW: dict[str, Any] = APP | {"flows[].name": "browse", "flows[].mean_s": 0.2, "flows[].work_mcycles": 10}
BUSY = FLOW | {"max_mhz": 4_000, "vcpus": 4, "max_instances": 3, "flows[].t_min_s": 0.01}
FITTED = BUSY | {"flows[].model": "shifted-hyperbola", "flows[].c_mhz_s": 10}
SERVED = FLOW | {"serving.port": 8080, "serving.listen": 8000, "serving.instance_max": 10, "serving.queue_max": 50}
PROBED = FLOW | {"probe.kind": "http", "probe.port": 80}


def read(given: Given) -> WebApp:
    """The application."""
    return checked(given.read(WebFile), "web.toml")


def submitted(given: Given, placement: PolicyChoice = FIRST_FIT, **settings: Any) -> Recorded:
    """A leader that was asked for it, and jobs of two groups that run on n1 and n2."""
    harness = recorded(placement, **settings)
    harness.say(CreateEnvironment("env2", agreement("web", "web", owner="kim", lower=1)), "owner.kim")
    other = job("other", rules=Rules(node_affinity=("n2",), affinity="g"))
    apart = job("apart", rules=Rules(node_affinity=("n1",), anti_affinity="h"))
    for each in (other, apart):
        harness.ask(SubmitJob(f"s-{each.name}", each))
    harness.obey()
    harness.ask(SubmitWeb("s", read(given)))
    return harness


def begun(given: Given) -> object:
    """What is ordered for it, and whether it moves away from a node that is drained."""
    harness = submitted(given, APC)
    code = harness.replies[-1].code
    specs = [order.spec for order in harness.orders]
    harness.obey()
    harness.wait(20.0, NODES)
    scrapes = [seen for _, seen in harness.seen if seen.startswith("Scrape")]
    harness.ask(DrainNode("d", "n1", True))
    harness.wait(1_000.0, NODES)
    harness.obey()
    return code, specs, harness.ordered, scrapes[:1]


def weighed(given: Given) -> object:
    """A job runs on n2, and would rather not share a node with it: where it starts."""
    harness = recorded(APC)
    averse = (Preference(PreferenceKind.ANTI_AFFINITY, "shop", weight=50),)
    harness.ask(SubmitJob("averse", job("averse", rules=Rules(node_affinity=("n2",), preferred=averse))))
    harness.obey()
    harness.ask(SubmitWeb("s", read(given)))
    return [order.node for order in harness.orders]


def asked(harness: Recorded, seq: int, per_s: int, mean_s: float = 0.1) -> None:
    """Somebody measures a minute with so many requests a second."""
    sample = FlowSample("browse", 60.0, offered=60 * per_s, served=60 * per_s, mean_s=mean_s, percentile_s=3 * mean_s)
    report = WebReport("shop", seq, harness.now_s, (sample,))
    harness.feed(fx.Received(None, topology.web_user("shop"), report))


def busy(given: Given) -> object:
    """Ever more is asked of it, beside a job with a goal, and answered as any model says: the CPU that both have, its
    instances, how well it does."""
    harness = Recorded(("n1", "n2"), placement=APC)
    harness.lead()
    stages = (Stage(2e7, 4000.0, memory_mib=500),)
    harness.ask(SubmitJob("j", Job("late", stages, 0.0, goal_s=9_000.0, vcpus=4)))
    harness.obey()
    harness.ask(SubmitWeb("s", read(given)))
    harness.obey()
    found: list[Any] = []
    for at, per_s in enumerate((20, 60, 120, 250, 400)):
        asked(harness, at + 1, per_s, 0.012)
        harness.wait(910.0, ("n1", "n2"))
        harness.obey()
        active = harness.controller.cluster.active
        given_mhz = {name: [round(each.cpu_mhz, 6) for each in entry.allotments] for name, entry in active.items()}
        row = harness.ask(Query(f"q{at}", "web-app", "shop")).data["app"]
        found.append((given_mhz, row["utility"]))
    return found


def served(given: Given) -> object:
    """What HAProxy is to do for it while it is used."""
    harness = recorded(FIRST_FIT, balancer=BalancerSettings(driver="haproxy"))
    app = read(given)
    harness.ask(SubmitWeb("s", app))
    harness.obey()
    asked(harness, 1, 20)
    for name in harness.nodes:
        for each in list(harness.vms[name]):
            harness.change(name, each, address="192.0.2.7")
    for _ in range(4):
        harness.wait(10.0, NODES)
        for order in harness.balances[-1:]:
            harness.feed(fx.Balanced(order.app, True))
    order = harness.balances[-1]
    assert order.serving is not None
    wanted = wanted_of(order, order.serving, BalancerHaproxy())
    return wanted.text, wanted.listen


def watched(given: Given) -> object:
    """An agent watches an instance that is ill for a while: when it is asked, and what reports say of it."""
    return _watched(given, 130.0)


def begins_ill(given: Given) -> object:
    """The same with one that is ill from the beginning."""
    return _watched(given, 0.0)


def _watched(given: Given, from_s: float) -> object:
    harness = recorded(FIRST_FIT)
    harness.ask(SubmitWeb("s", read(given)))
    harness.obey()
    targets = harness.watches[-1][1].targets
    rig = Rig(settings=replace(SETTINGS, address="192.0.2.1"))
    timer_s: list[float] = []
    times: list[float] = []
    said: list[Health] = []

    def take(effects: list[Any]) -> None:
        timer_s.extend(each.at_s for each in only(effects, fx.StartTimer) if each.name == TIMER)
        for each in only(effects, fx.ProbeInstance):
            times.append(rig.now_s)
            ok = not from_s < rig.now_s < 200.0
            take(rig.handle(fx.Probed(each.target.vm, each.target.generation, ok, "" if ok else "refused")))

    take(rig.observed(vm("shop#0")))
    take(rig.send(Watch(1, 1, targets)))
    for _ in range(200):
        rig.now_s += 1.0
        if timer_s and timer_s[-1] <= rig.now_s:
            timer_s.clear()
            take(rig.handle(fx.TimerFired(TIMER)))
        if rig.now_s % 5.0 == 0.0:
            rig.handle(fx.TimerFired("report"))
            said += report(rig.observed(vm("shop#0"))).health
    return times, [(row.healthy, row.detail) for row in said]


def probed(given: Given) -> object:
    """What an agent asks of an instance, and what it makes of an answer that takes a moment."""
    heard: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        heard.append(connection.recv(4096).split(b"\r\n")[0])
        connection.settimeout(0.2)
        try:
            connection.recv(1)
        except TimeoutError:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

    with server(answer) as one, server(answer) as two:
        placed = Given(given.text.replace("1111", f"{one}").replace("2222", f"{two}"), given.folder)
        harness = recorded(FIRST_FIT)
        harness.ask(SubmitWeb("s", read(placed)))
        harness.obey()
        (target,) = harness.watches[-1][1].targets
        commands = {"yes": MonitorCommand(("/bin/true",)), "no": MonitorCommand(("/bin/false",))}
        found = Monitor(HealthCheckKeys(commands)).probe(target, "127.0.0.1")
        asked_of = {one: "one", two: "two"}.get(target.probe.port, "nobody")
    return found.ok, found.detail, asked_of, heard


def replaced(given: Given) -> object:
    """Its instance is found unhealthy again and again: how often it is replaced."""
    harness = recorded(FIRST_FIT)
    harness.ask(SubmitWeb("s", read(given)))
    harness.obey()
    for _ in range(30):
        for name in NODES:
            sent = [watch for node, watch in harness.watches if node == name]
            rows = [
                Health(each.vm, each.generation, False, harness.now_s, "refused", 5)
                for each in (sent[-1].targets if sent else ())
                if each.vm in harness.vms[name]
            ]
            harness.report(name, health=tuple(rows), watch=sent[-1].number if sent else 0)
        harness.settle()
        harness.wait(30.0)
        harness.obey()
    return len([each for each in harness.ordered if each[1] == "stop"])


TABLE: tuple[Row, ...] = (
    *shown_together(
        begun,
        {
            "name": ("shop", "store"),
            "memory_mib": (500, 600),
            "max_mhz": (1_000, 800),
            "vcpus": (1, 2),
            "min_instances": (1, 2),
            "required_labels": ([], ["ssd"]),
            "template": ("", "guest"),
            "metrics_url": ("", "http://192.0.2.1/metrics"),
            "environment": ("", "web"),
            "arguments": ([], ["--fast"]),
            "rules.node_affinity": ([], ["n3"]),
            "rules.node_anti_affinity": ([], ["n1"]),
            "rules.affinity": ("", "g"),
            "rules.anti_affinity": ("", "h"),
            "rules.no_migration": (False, True),
            "rules.label_affinity": ([], ["ssd"]),
            "rules.label_anti_affinity": ([], ["old"]),
            "rules.vm_affinity": ([], ["other"]),
            "rules.vm_anti_affinity": ([], ["apart"]),
        },
        FLOW | {"max_instances": 3},
    ),
    *shown_by(begun, {"rules.affinity_scope": ("node", "rack")}, FLOW | {"rules.vm_affinity": ["other"]}),
    *shown_by(begun, {"rules.anti_affinity_scope": ("node", "rack")}, FLOW | {"rules.vm_anti_affinity": ["apart"]}),
    *shown_by(
        begun,
        {
            "rules.preferred[].node_affinity": ("n2", "n3"),
            "rules.preferred[].node_anti_affinity": ("n1", "n2"),
            "rules.preferred[].label_affinity": ("ssd", "old"),
            "rules.preferred[].label_anti_affinity": ("rack=a", "ssd"),
            "rules.preferred[].affinity": ("other", "apart"),
            "rules.preferred[].anti_affinity": ("apart", "other"),
        },
        FLOW,
    ),
    *shown_by(
        begun, {"rules.preferred[].scope": ("node", "rack")}, FLOW | {"rules.preferred[].anti_affinity": "apart"}
    ),
    *shown_by(weighed, {"rules.preferred[].weight": (1, 100)}, FLOW | {"rules.preferred[].affinity": "averse"}),
    *shown_together(
        busy,
        {
            "max_instances": (3, 1),
            "importance": (1, 4),
            "flows[].name": ("browse", "buy"),
            "flows[].mean_s": (0.2, 0.05),
            "flows[].work_mcycles": (10, 20),
            "flows[].t_min_s": (0.01, 0.1),
            "flows[].model": ("processor-sharing", "multi-server"),
        },
        BUSY,
    ),
    *shown_by(busy, {"flows[].c_mhz_s": (10, 60), "flows[].load_mhz": (OMITTED, 100)}, FITTED),
    *shown_by(
        busy,
        {"flows[].percentile": (0.9, 0.99), "flows[].percentile_s": (0.2, 0.05)},
        BUSY | {"flows[].mean_s": OMITTED, "flows[].percentile": 0.9, "flows[].percentile_s": 0.2},
    ),
    *shown_by(busy, {"flows[].throughput_per_s": (20, 300)}, BUSY | {"flows[].mean_s": OMITTED}),
    *shown_by(
        served,
        {
            "serving.port": (8080, 8081),
            "serving.listen": (8000, 8001),
            "serving.distribution": ("least-connections", "round-robin"),
            "serving.instance_max": (10, 20),
            "serving.queue_max": (50, 60),
            "serving.queue_limit_s": (10, 20),
        },
        SERVED,
    ),
    *shown_by(
        watched,
        {"probe.period_s": (5, 7), "probe.fall": (3, 5), "probe.rise": (2, 4)},
        PROBED | {"probe.grace_s": 0},
    ),
    *shown_by(begins_ill, {"probe.grace_s": (0, 60)}, PROBED),
    *shown_by(
        probed,
        {
            "probe.kind": ("http", "tcp"),
            "probe.port": (1111, 2222),
            "probe.path": ("/", "/health"),
            "probe.limit_s": (2, 0.05),
        },
        PROBED | {"probe.port": 1111},
    ),
    *shown_by(probed, {"probe.command": ("yes", "no")}, FLOW | {"probe.kind": "command"}),
    *shown_by(replaced, {"probe.replace_max": (2, 5)}, PROBED | {"max_instances": 3}),
)
