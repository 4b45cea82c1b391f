"""The number of web instances follows the use of their CPU between cycles, and so does the need of units."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.web.autoscaling import units_wanted
from daemons.decision.pipeline import DecideOutcome
from daemons.values.settings import Automation, PolicyChoice
from shared.policy_api.decision import (
    Change,
    ChangeKind,
    Outlook,
    PlacementDecision,
    ProvisioningDecision,
    Reason,
    ReasonCode,
)
from shared.protocol.operator_messages import RemoveWeb, SetDeciding, SubmitWeb
from shared.values.actions import ActionKind, GuestChange
from shared.values.agreement import Agreement, EnvironmentState, Granularity, VmTemplate, WebTerms, WorkloadType
from shared.values.jobs import Allotment, JobPhase
from shared.values.vms import VmState
from shared.values.web_app import Flow, WebApp
from tests.support import parts
from tests.support.controller_harness import ControllerHarness
from tests.support.environment_cases import environment_record
from tests.support.installed_types import installed
from tests.support.planted_types import PLANTED

NODES = ("n1", "n2", "n3", "n4")
STEP_S = 20.0


def shop(name: str = "shop", least: int = 1, most: int = 4, **fields: Any) -> WebApp:
    """An application without a goal whose instances can use 1,000 MHz and have 1,000 MiB."""
    given: dict[str, Any] = {"flows": (), "memory_mib": 1000, "max_mhz": 1000.0} | fields
    return WebApp(name, min_instances=least, max_instances=most, **given)


def led(nodes: Iterable[str] = NODES, policy: str = "first-fit", **settings: Any) -> ControllerHarness:
    return ControllerHarness(nodes, placement=PolicyChoice(policy), **settings).lead()


def submitted(harness: ControllerHarness, app: WebApp) -> ControllerHarness:
    assert harness.ask(SubmitWeb(f"s-{app.name}-{harness.now_s:g}", app)).done
    harness.obey()
    return harness


def works(
    harness: ControllerHarness, load: float, seconds: float, silent: frozenset[str] = frozenset(), obeys: bool = True
) -> None:
    """Let so much time pass under a load of so many instances' worth of CPU, shared by those that run; nodes report
    every 5 s and obey orders."""
    for _ in range(round(seconds / 5.0)):
        vms = [(node, vm) for node, here in harness.vms.items() for vm in here if vm.startswith("shop")]
        for node, vm in vms:
            status = harness.vms[node][vm]
            if status.state is VmState.RUNNING:
                harness.change(node, vm, cpu_time_s=status.cpu_time_s + 5.0 * min(1.0, load / len(vms)))
        harness.wait(5.0, [node for node in harness.nodes if node not in silent])
        if obeys:
            harness.obey()


def again(harness: ControllerHarness, **settings: Any) -> ControllerHarness:
    """Another leader after the one of `harness`, on the same nodes."""
    after = ControllerHarness(NODES, harness.store, placement=PolicyChoice("first-fit"), **settings)
    after.now_s, after.vms, after.seqs = harness.now_s, harness.vms, harness.seqs
    return after.lead()


def running(harness: ControllerHarness, app: str = "shop") -> list[str]:
    return [
        replica.job.name for _, replica in sorted(harness.controller.cluster.replicas[app].items()) if replica.released
    ]


def counts(harness: ControllerHarness, load: float, seconds: float) -> list[int]:
    """How many run at the end of every 20 s."""
    found = []
    for _ in range(round(seconds / STEP_S)):
        works(harness, load, STEP_S)
        found.append(len(running(harness)))
    return found


# --- without a goal --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["first-fit", "edf", "apc"])
def test_instances_come_and_go_with_the_load(policy: str) -> None:
    """Given a load of 2.2 instances, then three run and stay, one more at a step; and one when it has gone."""
    harness = submitted(led(policy=policy, decide_s=60.0), shop())
    up = counts(harness, 2.2, 200.0)
    assert max(b - a for a, b in pairwise(up)) == 1
    assert up[-4:] == [3, 3, 3, 3]
    down = counts(harness, 0.1, 200.0)
    assert down[-1] == 1
    assert min(b - a for a, b in pairwise(down)) == -1
    stopped = [event.detail for event in harness.happenings("web-instance-stopped")]
    assert len(stopped) == 2
    assert all(detail.startswith(ReasonCode.ADJUSTMENT.value) for detail in stopped)
    assert [event.subject for event in harness.happenings("web-instance-added")] == ["shop", "shop"]
    assert harness.happenings("web-instance-removed")[0].detail.startswith("3 to 2, shop#")


def test_never_fewer_nor_more_than_the_application_says() -> None:
    harness = submitted(led(), shop(least=2, most=3))
    assert counts(harness, 5.0, 200.0)[-1] == 3
    assert counts(harness, 0.0, 200.0)[-1] == 2


def test_a_lower_limit_holds_at_once_and_nothing_is_asked_of_a_removed_one() -> None:
    harness = submitted(led(), shop())
    works(harness, 5.0, 200.0)
    submitted(harness, shop(most=2))
    works(harness, 5.0, 100.0)
    assert len(running(harness)) == 2
    harness.ask(RemoveWeb("r", "shop"))
    harness.obey()
    works(harness, 0.0, 40.0)
    assert "shop" not in harness.controller.cluster.web
    assert "adjust" not in harness.timers


def test_a_step_waits_for_a_whole_window_of_all_instances() -> None:
    """Given one of two instances whose node is not heard of, nothing is done however busy the other is; and a whole
    window after it has come back there is a third."""
    harness = submitted(led(unreachable_after_s=1_000.0), shop(least=2))
    works(harness, 0.0, STEP_S)
    works(harness, 5.0, 100.0, silent=frozenset({"n2"}))
    assert len(running(harness)) == 2
    works(harness, 5.0, 15.0)
    assert len(running(harness)) == 2
    works(harness, 5.0, 45.0)
    assert len(running(harness)) > 2


def test_an_instance_that_is_being_started_delays_the_next_step() -> None:
    harness = submitted(led(), shop())
    works(harness, 5.0, 40.0, obeys=False)
    assert [order.kind for order in harness.orders] == [ActionKind.START]
    works(harness, 5.0, 60.0, obeys=False)
    assert len(running(harness)) == 1
    assert harness.controller.cluster.web["shop"].wanted_instances == 2
    works(harness, 5.0, 45.0)
    assert harness.controller.cluster.web["shop"].wanted_instances == 3


def test_a_request_without_room_is_given_up_when_the_load_has_gone() -> None:
    """Given one node, then a second instance has no place: it is wanted as long as the load asks for it, no longer."""
    harness = submitted(led(("n1",)), shop())
    works(harness, 2.0, 100.0)
    web = harness.controller.cluster.web["shop"]
    assert (len(running(harness)), web.wanted_instances) == (1, 2)
    works(harness, 0.5, 60.0)
    assert (len(running(harness)), web.wanted_instances) == (1, 1)


def test_the_instance_on_the_emptiest_node_goes() -> None:
    """Given an instance of another application beside two of three, then the third node is emptied."""
    harness = submitted(led(("n1", "n2", "n3")), shop(least=1, most=3))
    submitted(harness, WebApp("other", (), 1000, max_mhz=100.0, min_instances=2, max_instances=2))
    works(harness, 2.2, 200.0)
    assert running(harness) == ["shop#0", "shop#1", "shop#2"]
    works(harness, 1.0, 60.0)
    nodes = {
        replica.allotments[0].node
        for replica in harness.controller.cluster.replicas["shop"].values()
        if replica.released
    }
    assert nodes == {"n1", "n2"}


def test_a_new_leader_goes_on_with_the_number_wanted() -> None:
    harness = submitted(led(), shop())
    works(harness, 2.2, 200.0)
    assert len(running(harness)) == 3
    after = again(harness)
    assert after.controller.cluster.web["shop"].wanted_instances == 3
    assert counts(after, 2.2, 100.0) == [3] * 5


def test_an_instance_that_was_lost_is_started_again() -> None:
    harness = submitted(led(), shop())
    works(harness, 2.2, 200.0)
    harness.guest("n1", "shop#0", GuestChange.ENDED)
    works(harness, 2.2, 100.0)
    assert len(running(harness)) == 3


@pytest.mark.parametrize(
    ("level", "hold_starts", "more", "fewer"),
    [(Automation.ADVISE, False, 3, 3), (Automation.CONFIRM, True, 1, 1), (Automation.AUTO, True, 3, 1)],
)
def test_the_automation_level_holds_it_back(level: Automation, hold_starts: bool, more: int, fewer: int) -> None:
    harness = again(submitted(led(), shop()), automation=level, hold_starts=hold_starts)
    assert counts(harness, 2.2, 200.0)[-1] == more
    assert counts(harness, 0.1, 200.0)[-1] == fewer


def test_nothing_is_done_while_decisions_are_paused() -> None:
    harness = submitted(led(), shop())
    harness.ask(SetDeciding("p", False))
    assert counts(harness, 2.2, 100.0)[-1] == 1


# --- with a goal -----------------------------------------------------------------------------------------------------


def environment(harness: ControllerHarness, state: EnvironmentState = EnvironmentState.RUNNING, **fields: Any) -> None:
    """There is a web environment `site` of at most nine units."""
    agreed = Agreement("site", "anna", WorkloadType.WEB, lower=0, upper=9, model="flb-nub", **fields)
    record = environment_record("site", agreement=agreed, state=state, wanted=state)
    harness.controller.cluster.environments["site"] = EnvironmentEntry.of(record)


def test_terms_are_those_of_the_agreement() -> None:
    """Given 50 % over 60 s, then the first instance comes after a whole window, not after 20 s."""
    harness = led()
    environment(harness, web=WebTerms(0.5, 0.4, 60.0))
    for node in harness.controller.cluster.nodes.values():
        node.environment = node.given = "site"
    submitted(harness, shop(environment="site"))
    web = harness.controller.cluster.web["shop"]
    works(harness, 0.6, 60.0)
    assert web.wanted_instances == 1
    works(harness, 0.6, 40.0)
    assert web.wanted_instances == 2


def of_type(harness: ControllerHarness) -> None:
    """The application runs in an environment of the planted type `site`, on all nodes."""
    environment(harness, type="site", web=WebTerms(over_s=STEP_S))
    for node in harness.controller.cluster.nodes.values():
        node.environment = node.given = "site"
    submitted(harness, shop(environment="site"))


def test_instances_come_and_go_as_a_type_of_another_package_says(tmp_path: Path) -> None:
    """Given one that adds while it is idle, then there are more, up to the most; one that fails changes nothing and is
    told once, until it answers again."""
    with installed(tmp_path, {"site": "tests.support.planted_types:Site"}):
        PLANTED.update(step=1, spare=0)
        harness = led()
        of_type(harness)
        web = harness.controller.cluster.web["shop"]
        works(harness, 0.0, 60.0)
        assert (web.wanted_instances or 0) > 1
        (first, *_) = harness.happenings("web-instance-added")
        assert first.detail == "1 to 2: mean CPU use 0.000"
        PLANTED["step"] = 2
        before = web.wanted_instances
        works(harness, 5.0, 100.0)
        (event,) = harness.happenings("coordination-failed")
        assert (event.subject, event.detail.startswith("shop: type site: ")) == ("site", True)
        assert web.wanted_instances == before


def cycle(harness: ControllerHarness, *stopped: str, predicts: bool = True) -> None:
    """A cycle's decision that has changed nothing but to stop these."""
    reason = Reason(ReasonCode.LOAD)
    changes = tuple(Change(vm, 1, ChangeKind.STOP, (), reason) for vm in stopped)
    outlook = Outlook(("shop",), (0.5,), (0.5,), (1.0,)) if predicts else None
    placed = PlacementDecision(changes, outlook=outlook)
    outcome = DecideOutcome(placed, None, ProvisioningDecision((), Reason(ReasonCode.SPARE)), provisioning_state=None)
    parts.autoscaler(harness.controller).decided(outcome)


def test_what_the_policy_chooses_at_a_cycle_is_what_is_wanted() -> None:
    """Given three wanted of which one has no place yet, then it stays wanted over a cycle, until the policy stops
    others; and a policy that predicts nothing has no say."""
    harness = led(("n1", "n2"))
    environment(harness)
    flow = Flow("browse", mean_s=0.2, work_mcycles=10.0)
    submitted(harness, shop(flows=(flow,), environment="site"))
    web, cluster = harness.controller.cluster.web["shop"], harness.controller.cluster
    for index, node in ((0, "n1"), (1, "n2")):
        replica = cluster.replicas["shop"][index]
        replica.phase, replica.allotments = JobPhase.RUNNING, (Allotment(node, 1000.0),)
    web.wanted_instances = 3
    cycle(harness, predicts=False)
    assert (web.wanted_instances, web.modelled, web.chosen) == (3, False, None)
    assert web.sizes(True) == web.sizes(False) == (3, 4)
    cycle(harness)
    assert (web.wanted_instances, web.modelled, web.chosen) == (3, True, 2)
    assert (web.sizes(True), web.sizes(False)) == ((1, 4), (3, 4))
    cluster.replicas["shop"][1].phase = JobPhase.WAITING
    cycle(harness, "shop#1")
    assert (web.wanted_instances, web.chosen) == (1, 1)
    for index in range(4):
        cluster.replicas["shop"][index].phase = JobPhase.RUNNING
    cycle(harness)
    assert (web.wanted_instances, web.chosen) == (4, 4)


def test_an_environment_that_does_not_run_is_left_alone() -> None:
    harness = led()
    environment(harness, EnvironmentState.CREATED)
    submitted(harness, shop(environment="site"))
    works(harness, 2.0, 60.0)
    assert harness.controller.cluster.web["shop"].wanted_instances == 1


# --- units -----------------------------------------------------------------------------------------------------------


def wants(harness: ControllerHarness, **counts_by_app: int) -> None:
    for name, count in counts_by_app.items():
        harness.controller.cluster.web[name].wanted_instances = count


def hosted(*apps: WebApp, **fields: Any) -> ControllerHarness:
    """A leader with an environment and its applications, nodes of 4 x 1,000 MHz and 4,000 MiB."""
    harness = led()
    environment(harness, **fields)
    for app in apps:
        harness.ask(SubmitWeb(f"s-{app.name}", app))
    return harness


def site(name: str, most: int = 9, **fields: Any) -> WebApp:
    return shop(name, most=most, environment="site", **fields)


def test_no_two_of_one_application_share_a_unit() -> None:
    harness = hosted(site("a"), site("b"), site("c"))
    wants(harness, a=3, b=2, c=1)
    assert units_wanted("site", harness.controller.cluster) == 3


@pytest.mark.parametrize(
    ("fields", "units"), [({"memory_mib": 3_000}, 5), ({"max_mhz": 4_000.0, "vcpus": 4}, 5), ({"max_mhz": 4_000.0}, 3)]
)
def test_memory_and_cpu_count(fields: dict[str, Any], units: int) -> None:
    """Given three and two that fill a node each, then five; a VM of one vCPU cannot use more than one core."""
    harness = hosted(site("a", **fields), site("b", **fields))
    wants(harness, a=3, b=2)
    assert units_wanted("site", harness.controller.cluster) == units


def test_vms_are_counted_one_by_one() -> None:
    template = VmTemplate("small", 1, 1000, 1000.0)
    harness = hosted(site("a"), site("b"), granularity=Granularity.VM, template=template)
    wants(harness, a=3, b=2)
    assert units_wanted("site", harness.controller.cluster) == 5


def test_nothing_is_needed_for_nothing() -> None:
    harness = hosted(site("a"))
    assert units_wanted("elsewhere", harness.controller.cluster) == 0
    assert units_wanted("site", harness.controller.cluster) == 1
    wants(harness, a=0)
    assert units_wanted("site", harness.controller.cluster) == 0
    harness.ask(RemoveWeb("r", "a"))
    assert units_wanted("site", harness.controller.cluster) == 0


def test_a_change_of_need_is_told() -> None:
    harness = led()
    environment(harness)
    told: list[frozenset[str]] = []
    coordinate = harness.controller.unit_of_work.coordinate
    coordinate.clear()
    harness.ask(SubmitWeb("s", site("a")))
    told.append(frozenset(coordinate))
    coordinate.clear()
    assert told in ([frozenset({"site"})], [frozenset()])  # whoever coordinates has taken it


def test_an_instance_of_no_goal_is_no_riddle_for_the_policy() -> None:
    """Given an application without a goal beside one with a goal, then APC gives both what they can use, and nothing
    that it says is not a number."""
    harness = led(("n1", "n2"), "apc", decide_s=60.0)
    flow = Flow("browse", mean_s=0.2, work_mcycles=10.0)
    submitted(harness, shop(least=2, most=2))
    submitted(harness, WebApp("asked", (flow,), 1000, max_mhz=1000.0, min_instances=1, max_instances=2))
    works(harness, 1.0, 130.0)
    replicas = [replica for app in ("shop", "asked") for replica in harness.controller.cluster.replicas[app].values()]
    given = {
        replica.job.name: replica.allotments[0].cpu_mhz for replica in replicas if replica.phase is JobPhase.RUNNING
    }
    assert given["shop#0"] == given["shop#1"] == pytest.approx(1000.0)
    assert all(math.isfinite(mhz) for mhz in given.values())
    record = harness.controller.deciding.history
    assert all(math.isfinite(gain.predicted) for one in record for gain in one.gains)
