"""Keys of the controller's file that its core shows: periods, limits, automation, policies, web planning, costs."""

from __future__ import annotations

from typing import Any

from daemons.values.settings import Automation
from shared.ports import effects as fx
from shared.protocol import topology
from shared.protocol.messages import WebReport
from shared.protocol.operator_messages import (
    ApprovePlan,
    CheckReservation,
    CreateEnvironment,
    DrainNode,
    HoldJob,
    MoveVm,
    Query,
    SubmitJob,
    SubmitWeb,
)
from shared.values.agreement import AssuranceTerms
from shared.values.jobs import Job, Stage
from shared.values.reservation import ServiceClass, Share, SlotDemand
from shared.values.vms import VmState
from shared.values.web_app import Flow, FlowSample, WebApp
from tests.conformance.settings.core import Recorded, led
from tests.conformance.settings.row import Given, Row, shown_by, shown_together
from tests.support.controller_harness import job
from tests.support.environment_cases import agreement

NODES = ("n1", "n2")
KIM = "owner.kim"
ACTS: dict[str, Any] = {"policies.placement": "first-fit", "automation.level": "auto"}
FENCES = ACTS | {"power.driver": "exec", "power.exec.fence": ["/bin/true", "{node}"]}
SHARES: dict[str, Any] = {"automation.level": "auto"}
BROWSE = Flow("browse", mean_s=0.2, work_mcycles=10.0, t_min_s=0.01)


def shop(**fields: Any) -> WebApp:
    """An application of one to three instances that can use 1,000 MHz each."""
    given: dict[str, Any] = {"flows": (BROWSE,), "memory_mib": 1000, "max_mhz": 1000.0} | fields
    return WebApp("shop", min_instances=1, max_instances=3, **given)


def submit(harness: Recorded, *jobs: Job) -> None:
    """Submit jobs in one instant."""
    for each in jobs:
        assert harness.ask(SubmitJob(f"submit-{each.name}", each)).done, harness.replies[-1]


def quiet_minutes(given: Given) -> object:
    """A job, and an application whose counters are read, run for two minutes: all that is sent, and when."""
    harness = led(given)
    submit(harness, job())
    assert harness.ask(SubmitWeb("web", shop(metrics_url="http://192.0.2.1/metrics"))).done
    harness.obey()
    harness.wait(120.0, NODES)
    return harness.seen, harness.hellos


def probes(given: Given) -> object:
    """When a leader looks whether it is still reached, and when it gives up."""
    harness = led(given)
    found = []
    for _ in range(8):
        harness.now_s += 1.0
        effects = harness.controller.handle(fx.TimerFired("probe"), harness.now_s)
        found.append([type(each).__name__ for each in effects])
    return harness.timers.get("probe"), found


def silence(given: Given) -> object:
    """One of two nodes falls silent with a job on it."""
    harness = led(given)
    submit(harness, job())
    harness.obey()
    harness.wait(120.0, ("n2",))
    return harness.happened, harness.powers, harness.ask(Query("q", "status")).data


def skew(given: Given) -> object:
    """A node whose clock is 5 s off, and a job for it."""
    harness = led(given, ("n1",))
    for _ in range(9):
        harness.report("n1", clock_s=harness.now_s + 5.0)
    submit(harness, job())
    return harness.orders, [event.what for event in harness.events]


def gang(given: Given) -> object:
    """Two instances that belong together, of which one has to wait for its node."""
    harness = led(given)
    submit(harness, job("slow", memory_mib=100), job(instances=2, memory_mib=3000))
    slow, first = harness.take_orders()
    assert (slow.vm, first.node) == ("slow#0", "n2")
    harness.result(first)
    harness.wait(200.0, NODES)
    return harness.ordered


def one_order(given: Given) -> object:
    """The order to start a job."""
    harness = led(given)
    submit(harness, job())
    return harness.orders


def stall(given: Given) -> object:
    """A job that gets nowhere."""
    harness = led(given)
    submit(harness, job())
    harness.obey()
    harness.wait(1_500.0, NODES)
    return [each for each in harness.happened if each[1] == "job-stalled"]


def computed(given: Given) -> object:
    """How long a decision may take."""
    harness = led(given)
    submit(harness, job())
    return [effect.limit_s for effect in harness.computations]


def reconciliation_paused(given: Given) -> object:
    """Somebody pauses a VM of ours: when something is done to it again."""
    harness = led(given)
    submit(harness, job())
    harness.obey()
    harness.wait(30.0, NODES)
    harness.change("n1", "j#0", state=VmState.PAUSED)
    done = []
    for _ in range(60):
        harness.wait(30.0, NODES)
        done += [(harness.now_s, order.kind) for order in harness.take_orders()]
    return done


def crowd(given: Given) -> object:
    """Four small jobs on two nodes, then one of those nodes is drained: the orders of each instant."""
    harness = led(given)
    submit(harness, *(job(f"j{index}", memory_mib=300) for index in range(4)))
    begun = [(order.kind, order.node) for order in harness.orders]
    harness.obey()
    harness.ask(DrainNode("d", "n1", True))
    return begun, [(order.kind, order.node) for order in harness.orders]


def moved(given: Given) -> object:
    """A VM is migrated whose guest changes much memory: how the agent is to do it."""
    harness = led(given)
    submit(harness, job("j"))
    harness.obey()
    home = harness.controller.cluster.jobs["j"].allotments[0].node
    busy = {"dirty_mib_per_s": 500.0, "resident_mib": 9_000, "working_set_mib": 9_000}
    harness.change(home, "j#0", **busy)
    harness.report(home)
    harness.ask(MoveVm("m", "j#0", next(name for name in NODES if name != home)))
    return [order.migration for order in harness.orders if order.migration is not None]


def four_nodes(given: Given) -> object:
    """Eight jobs start on four nodes, of which two are drained at once: the orders, and when."""
    harness = led(given, ("n1", "n2", "n3", "n4"))
    submit(harness, *(job(f"j{index}", memory_mib=1900) for index in range(4)))
    harness.wait(5.0, ("n1", "n2", "n3", "n4"))
    harness.obey()
    for name in ("n1", "n2"):
        harness.ask(DrainNode(f"d-{name}", name, True))
    harness.wait(5.0, ("n1", "n2", "n3", "n4"))
    return harness.ordered


def quotas(given: Given) -> object:
    """An owner asks for three environments, jobs and applications."""
    harness = led(given, ("n1", "n2", "n3", "n4"))
    for name, kind in (("one", "batch"), ("two", "web"), ("three", "batch")):
        harness.say(CreateEnvironment(f"c-{name}", agreement(name, kind, owner="kim", lower=1)), KIM)
    for index in range(3):
        harness.say(SubmitJob(f"j{index}", job(f"j{index}", environment="one")), KIM)
        app = WebApp(f"w{index}", (BROWSE,), 100, max_mhz=100.0, environment="two")
        harness.say(SubmitWeb(f"w{index}", app), KIM)
    return [(reply.request, reply.code) for reply in harness.replies]


def drained(given: Given) -> object:
    """A job starts, then its node is to be emptied, and one account approves what waits."""
    harness = led(given)
    submit(harness, job())
    started = [order.kind for order in harness.obey()]
    harness.ask(DrainNode("d", "n1", True))
    moved = [order.kind for order in harness.take_orders()]
    pending = harness.controller.deciding.pending
    if pending is not None:
        harness.ask(ApprovePlan("a", pending.number))
    return started, moved, [order.kind for order in harness.take_orders()]


def scarce(given: Given) -> object:
    """Two jobs, of which the later one is more urgent, on a node with room for one: what becomes of them."""
    harness = led(given, ("n1",))
    submit(harness, job("late", memory_mib=3930, work=4e6, goal_s=9e5))
    harness.obey()
    submit(harness, job("soon", memory_mib=3930, work=4e6, goal_s=8e3))
    harness.wait(1_800.0, ("n1",))
    done = [(order.kind, order.vm) for order in harness.obey()]
    return done, _predictions(harness)


def moving(given: Given) -> object:
    """Jobs with goals that would be moved, suspended or resumed: what the policy expects of them."""
    harness = led(given)
    submit(harness, *(job(f"j{index}", memory_mib=1500, work=5e6, goal_s=9_000.0 + index) for index in range(4)))
    harness.obey()
    submit(harness, *(job(f"u{index}", memory_mib=3900, work=4e6, goal_s=6_500.0) for index in range(2)))
    harness.wait(1_000.0, NODES)
    harness.obey()
    harness.ask(HoldJob("h", "j0", True))
    harness.obey()
    harness.ask(HoldJob("h2", "j0", False))
    harness.wait(2_000.0, NODES)
    harness.obey()
    harness.ask(DrainNode("d", "n1", True))
    harness.wait(2_000.0, NODES)
    return [(order.kind, order.vm) for order in harness.obey()], _predictions(harness)


def _predictions(harness: Recorded) -> list[Any]:
    """What each decision expected of its changes."""
    found = []
    for number in range(1, harness.controller.deciding.decisions + 1):
        data = harness.ask(Query(f"p{number}", "plan", f"{number}")).data["decision"]
        found.append({key: data[key] for key in data if key not in ("wall_s", "compute_s")})
    return found


def learnt(given: Given) -> object:
    """Jobs whose starts take 20 s, again and again: how long a start is taken to be."""
    harness = led(given)
    for number in range(12):
        submit(harness, job(f"j{number}", memory_mib=100))
        harness.wait(20.0, NODES)
        harness.obey()
    return harness.ask(Query("q", "operations")).data["operations"]


def busy_shop(given: Given) -> object:
    """A job with a goal beside an application of which ever more is asked: what CPU both are to have."""
    harness = led(given, ("n1",))
    stages = (Stage(4e6, 4000.0, memory_mib=500),)
    submit(harness, Job("late", stages, harness.now_s, desired_start_s=harness.now_s, goal_s=3_600.0, vcpus=4))
    harness.obey()
    app = WebApp("shop", (BROWSE,), 500, max_mhz=4000.0, vcpus=4)
    assert harness.ask(SubmitWeb("s", app)).done
    harness.obey()
    found = []
    for at, (per_s, queued) in enumerate([(20, 0), (30, 0), (90, 50), (40, 0), (120, 900)] * 3):
        sample = FlowSample("browse", 60.0, offered=60 * per_s, served=55 * per_s, queued=queued, mean_s=0.1)
        report = WebReport("shop", at + 1, harness.now_s, (sample,))
        harness.feed(fx.Received(None, topology.web_user("shop"), report))
        harness.wait(60.0, ("n1",))
        harness.obey()
        active = harness.controller.cluster.active
        found.append([active[name].allotments[0].cpu_mhz for name in ("shop#0", "late") if active[name].allotments])
    return found


def named(given: Given) -> object:
    """Under which name a controller speaks."""
    from daemons.config.controller import ControllerConfig
    from daemons.service.main import name_of

    return name_of(given.read(ControllerConfig))


def admitted(given: Given) -> object:
    """An environment asks whether it would be let in that wants all that there is, now and then."""
    harness = led(given)
    demand = (SlotDemand((0.5, 0.0, 0.0, 0.5)),) * 24
    terms = AssuranceTerms((Share(ServiceClass.PREDICTABLE, 3, 0.6),), demand)
    reply = harness.ask(CheckReservation("c", agreement("one", lower=0, model="flb-nub", assurance=terms)))
    return reply.code, reply.data


TABLE: tuple[Row, ...] = (
    *shown_by(named, {"name": ("a", "b")}),
    *shown_by(
        quiet_minutes,
        {
            "periods.reconcile_s": (5, 30),
            "periods.web_adjust_s": (20, 35),
            "periods.decide_s": (100, 70),
            "periods.scrape_s": (5, 7),
        },
        ACTS,
    ),
    *shown_by(probes, {"periods.probe_s": (2, 9)}),
    *shown_by(silence, {"timeouts.unreachable_after_s": (15, 45), "timeouts.fence_after_s": (60, 90)}, FENCES),
    *shown_by(skew, {"timeouts.max_skew_s": (2, 9)}, ACTS),
    *shown_by(
        gang,
        {"timeouts.gang_timeout_s": (60, 150)},
        ACTS | {"timeouts.action_ttl_s": 600, "limits.actions_per_node": 1},
    ),
    *shown_by(one_order, {"timeouts.action_ttl_s": (60, 90)}, ACTS),
    *shown_by(stall, {"timeouts.stall_after_s": (900, 1200)}, ACTS),
    *shown_by(computed, {"timeouts.decide_limit_s": (60, 30)}, ACTS),
    *shown_by(reconciliation_paused, {"timeouts.external_change_pause_s": (300, 900)}, ACTS),
    *shown_by(crowd, {"limits.actions_per_node": (8, 2), "limits.migrations_per_node": (1, 2)}, ACTS),
    *shown_by(
        four_nodes,
        {"limits.actions_total": (64, 3)},
        ACTS | {"limits.actions_per_node": 3, "limits.migrations_total": 1},
    ),
    *shown_by(four_nodes, {"limits.migrations_total": (1, 2)}, ACTS),
    *shown_by(
        quotas,
        {
            "limits.jobs_per_account": (1, 2),
            "limits.apps_per_environment": (1, 2),
            "limits.environments_per_owner": (2, 3),
        },
        ACTS,
    ),
    *shown_by(drained, {"automation.level": ("confirm", "auto")}, {"policies.placement": "first-fit"}),
    *shown_by(
        drained,
        {"automation.hold_starts": (False, True), "automation.approvals": (1, 2)},
        ACTS | {"automation.level": Automation.CONFIRM.value},
    ),
    *shown_by(scarce, {"policies.placement": ("first-fit", "edf")}, SHARES),
    *shown_by(scarce, {"policies.params": ({"apc": {"tolerance": 0.01}}, {"apc": {"tolerance": 2.0}})}, SHARES),
    *shown_by(admitted, {"policies.admission": ("none", "peak")}, ACTS),
    *shown_together(
        busy_shop,
        {
            "web.headroom_quantile": (0.9, 0.6),
            "web.horizon_s": (60, 600),
            "web.work_off_s": (10, 100),
            "web.usable_frac": (0.98, 0.7),
        },
        SHARES,
    ),
    *shown_by(crowd, {"memory.vm_overhead_mib": (0, 3000)}, ACTS),
    *shown_together(
        moving,
        {
            "operation_costs.start_s": (3, 90),
            "operation_costs.suspend_s_per_mib": (0.035, 0.9),
            "operation_costs.resume_s_per_mib": (0.04, 0.9),
            "operation_costs.migrate_s_per_mib": (0.015, 0.9),
        },
        SHARES,
    ),
    *shown_by(learnt, {"operation_costs.learn": (True, False)}, SHARES),
    *shown_by(
        moved,
        {
            "migration.link_mib_per_s": (0, 5_000),
            "migration.streams": (1, 4),
            "migration.post_copy": (False, True),
        },
        ACTS,
    ),
    *shown_by(
        moved,
        {"migration.stream_mib_per_s": (100, 2_000)},
        ACTS | {"migration.link_mib_per_s": 5_000, "migration.streams": 4},
    ),
)
