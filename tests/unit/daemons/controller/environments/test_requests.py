"""The life of environments: every step once, twice, and over the death of a controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from daemons.values.event_codes import EVENTS
from daemons.values.settings import Automation
from shared.protocol.operator_messages import ConfirmOff, CreateEnvironment, Query, SetDeciding, SubmitJob, SubmitWeb
from shared.values.actions import ActionKind
from shared.values.agreement import EnvironmentState, Granularity, VmTemplate
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.jobs import JobPhase
from tests.support.controller_harness import job
from tests.support.environment_cases import agreement, environment_record
from tests.support.environment_harness import CREATED, DEACTIVATED, DESTROYED, RUNNING, EnvironmentHarness, app

WIPE = Setup(SetupPolicy.WIPE)
Step = Callable[[EnvironmentHarness], object]


def harness(count: int = 4, **settings: Any) -> EnvironmentHarness:
    made = EnvironmentHarness(count, **settings)
    made.lead()
    return made


# --- creation --------------------------------------------------------------------------------------------------------


def test_an_environment_is_uninitialised_until_it_is_stored_and_created_then() -> None:
    made = harness()
    made.store_fails = (False, "disk full")
    made.create()
    assert (made.states(), made.exits) == ({"hpc": "uninitialised"}, ["store: disk full"])
    made = harness()
    assert made.create().done
    assert (made.entry().state, made.held_by()) == (CREATED, [])
    assert made.whats() == ["environment-uninitialised", "environment-created"]
    assert made.store.get(("environment", "hpc")).state is CREATED


def test_the_same_creation_twice_is_one() -> None:
    made = harness()
    made.create()
    request = made.entry().request
    assert made.ask(CreateEnvironment(request, made.entry().agreement)).done
    assert made.whats().count("environment-uninitialised") == 1


def test_what_was_stored_and_not_configured_yet_is_configured_by_the_next_leader() -> None:
    made = harness()
    state = EnvironmentState.UNINITIALISED
    record = environment_record("hpc", state=state, wanted=CREATED, agreement=agreement("hpc"))
    made.store.write(made.store.term, (record,))
    assert made.successor().states() == {"hpc": "created"}


# --- activation ------------------------------------------------------------------------------------------------------


def test_it_runs_once_its_lower_bound_is_set_up_and_says_what_it_waits_for() -> None:
    made = harness()
    made.create(lower=2, setup=WIPE)
    made.activate()
    assert made.activate().done  # it is on its way
    assert (made.entry().state, made.entry().wanted) == (CREATED, RUNNING)
    assert made.entry().detail == "0 of 2 nodes are being prepared; on their way n1 (acquiring), n2 (acquiring)"
    made.set_up(1)
    assert made.entry().detail == "1 of 2 nodes are being prepared; on their way n2 (acquiring)"
    made.set_up(1)
    assert (made.entry().state, made.entry().detail) == (RUNNING, "")
    assert made.activate().done
    assert made.whats().count("environment-activating") == made.whats().count("environment-running") == 1


@pytest.mark.parametrize("answered", [0, 1, 2])
def test_an_activation_goes_on_over_the_death_of_a_controller(answered: int) -> None:
    made = harness()
    made.create(lower=2, setup=WIPE)
    made.activate()
    made.set_up(answered)
    later = made.successor()
    later.finish()
    assert (later.states(), later.held_by()) == ({"hpc": "running"}, ["n1", "n2"])
    assert later.entry().setups == 2


def test_jobs_wait_until_their_environment_runs() -> None:
    made = harness()
    made.create(lower=1, setup=WIPE)
    made.ask(SubmitJob("j", job("j", environment="hpc")))
    made.activate()
    assert made.take_orders() == []
    made.set_up()
    assert [(order.kind, order.node) for order in made.take_orders()] == [(ActionKind.START, "n1")]


def test_a_setup_that_fails_for_good_is_said_and_another_node_takes_the_place() -> None:
    made = harness(setup_tries=1)
    made.create(lower=1, setup=WIPE)
    made.activate()
    made.set_up(1, ok=False)
    made.wait(130.0, made.nodes)
    made.finish()
    assert made.states() == {"hpc": "running"}
    assert made.shown("environment", "hpc")["environment"]["owned"] == 1


def test_an_environment_of_vms_has_a_quota_and_no_nodes() -> None:
    made = harness(2)
    template = VmTemplate("small", 1, 2_000, 1_000.0)
    made.open(lower=3, granularity=Granularity.VM, template=template)
    assert (made.entry().size, made.held_by()) == (3, [])
    made.ask(SubmitJob("j", job("j", environment="hpc", instances=2)))
    assert {order.kind for order in made.obey()} == {ActionKind.START, ActionKind.UNPAUSE}


# --- deactivation ----------------------------------------------------------------------------------------------------


def working(lower: int = 2) -> EnvironmentHarness:
    """An environment with wiped nodes in which one job runs and one waits for a node that is not there."""
    made = harness()
    made.open(lower=lower, setup=WIPE)
    made.ask(SubmitJob("j", job("j", environment="hpc", memory_mib=3_000)))
    for number in range(lower):
        made.ask(SubmitJob(f"w{number}", job(f"w{number}", environment="hpc", memory_mib=3_000)))
    made.finish()
    return made


def test_deactivation_suspends_jobs_gives_nodes_back_and_keeps_the_work() -> None:
    made = working()
    assert made.deactivate().done
    assert made.entry().state is RUNNING
    assert made.entry().detail.startswith("waits for workloads j, w0; nodes n1 (emptying), n2 (emptying)")
    assert made.deactivate().done
    assert {order.kind for order in made.obey()} == {ActionKind.SUSPEND}
    assert made.entry().detail == "waits for nodes n1 (releasing), n2 (releasing)"
    made.set_up()
    assert (made.entry().state, made.entry().detail, made.held_by(), made.entry().size) == (DEACTIVATED, "", [], 0)
    jobs = made.controller.cluster.jobs
    assert [jobs[name].phase for name in ("j", "w0", "w1")] == [JobPhase.SUSPENDED] * 2 + [JobPhase.WAITING]
    assert made.deactivate().done
    made.activate()
    made.finish()
    assert [jobs[name].attempt for name in ("j", "w0")] == [1, 1]
    assert jobs["j"].phase is jobs["w0"].phase is JobPhase.RUNNING


def succeeded(made: EnvironmentHarness, until: int) -> EnvironmentHarness:
    """The next controller, once all has come to rest: the one before died after so many steps."""
    steps: list[Step] = [
        EnvironmentHarness.hear,
        EnvironmentHarness.obey,
        lambda one: one.set_up(1),
        EnvironmentHarness.finish,
    ]
    for step in steps[: until + 1]:
        step(made)
    later = made.successor()
    later.wait(70.0, later.nodes)
    later.finish()
    return later


@pytest.mark.parametrize("until", [0, 1, 2, 3])
def test_a_deactivation_goes_on_over_the_death_of_a_controller(until: int) -> None:
    made = working()
    made.deactivate()
    later = succeeded(made, until)
    assert (later.states(), later.held_by()) == ({"hpc": "deactivated"}, [])
    assert later.controller.cluster.jobs["j"].phase is JobPhase.SUSPENDED
    assert not later.entry().begun


@pytest.mark.parametrize("level", list(Automation))
@pytest.mark.parametrize("hold_starts", [False, True])
def test_jobs_that_gave_way_go_on_where_starts_are_not_held(level: Automation, hold_starts: bool) -> None:
    made = harness(automation=level)
    made.open("hpc")
    made.ask(SubmitJob("j", job("j", environment="hpc")))
    made.finish()
    made.deactivate()
    made.finish()
    assert made.controller.cluster.jobs["j"].phase is JobPhase.SUSPENDED
    later = made.successor(automation=level, hold_starts=hold_starts)
    later.activate()
    later.finish()
    later.hear()
    later.finish()
    held = hold_starts and level is not Automation.AUTO
    assert later.controller.cluster.jobs["j"].phase is (JobPhase.SUSPENDED if held else JobPhase.RUNNING)


def test_nothing_of_a_decision_in_the_making_comes_to_a_deactivated_environment() -> None:
    made = harness()
    made.open(lower=1)
    made.compute = False
    made.ask(SubmitJob("j", job("j", environment="hpc")))
    pending = made.computations[-1]
    made.deactivate()
    made.answer(pending)
    made.settle()
    assert (made.take_orders(), made.controller.cluster.jobs["j"].phase) == ([], JobPhase.WAITING)
    assert [event.subject for event in made.happenings("change-stale")] == ["j"]


def test_web_instances_are_stopped_and_come_back() -> None:
    made = harness()
    made.open("web", "web", lower=2)
    assert made.ask(SubmitWeb("s", app())).done
    made.finish()
    assert made.shown("environment", "web")["environment"]["instances"] == 1
    made.deactivate("web")
    assert [order.kind for order in made.obey()] == [ActionKind.STOP]
    made.hear()
    assert made.states() == {"web": "deactivated"}
    assert made.shown("status")["alarms"] == []  # it is not missed
    made.activate("web")
    assert ActionKind.START in {order.kind for order in made.obey()}


# --- destruction -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", [0, 1, 2, 3])
def test_a_destruction_goes_on_over_the_death_of_a_controller(until: int) -> None:
    made = working()
    made.destroy()
    later = succeeded(made, until)
    assert (later.states(), later.held_by()) == ({"hpc": "destroyed"}, [])
    assert {entry.phase for entry in later.controller.cluster.jobs.values()} == {JobPhase.CANCELLED}
    assert not later.controller.cluster.active
    assert later.destroy().done


def test_a_destroyed_environment_leaves_its_record_and_its_name_may_be_used_again() -> None:
    made = harness()
    made.open("web", "web", lower=1)
    made.ask(SubmitWeb("s", app()))
    made.finish()
    made.wait(50.0, made.nodes)
    made.destroy("web")
    made.finish()
    assert (made.states(), made.controller.cluster.web) == ({"web": "destroyed"}, {})
    assert made.store.get(("environment", "web")).ended_s == 50.0
    assert made.activate("web").code == "environment-destroyed"
    assert made.ask(SubmitWeb("t", app("other"))).code == "unknown-environment"
    assert made.create("web", "batch", lower=1).done
    assert made.states() == {"web": "created"}


@pytest.mark.parametrize("how_far", ["created", "activating", "deactivated"])
def test_destruction_from_every_state(how_far: str) -> None:
    made = harness()
    made.create(lower=1, setup=WIPE)
    if how_far != "created":
        made.activate()
    if how_far == "deactivated":
        made.finish()
        made.deactivate()
        made.finish()
    assert made.destroy().done
    made.finish()
    assert (made.entry().state, made.held_by()) == (DESTROYED, [])


def test_a_node_whose_release_has_failed_keeps_the_environment_until_it_is_repaired() -> None:
    made = harness(setup_tries=1)
    made.open(lower=1, setup=WIPE)
    made.destroy()
    made.obey()
    made.set_up(1, ok=False)
    assert made.entry().state is RUNNING
    assert "n1 (its setup has failed: release of hpc: wipe, try 1 of 1: no room)" in made.entry().detail


# --- what is told ----------------------------------------------------------------------------------------------------


def test_every_state_of_their_lives_has_an_event() -> None:
    assert {f"environment-{state.value}" for state in EnvironmentState} <= {*EVENTS}


def test_what_happens_to_an_environment_is_told_in_order() -> None:
    made = harness()
    made.open(lower=1)
    made.deactivate()
    made.finish()
    made.destroy()
    made.finish()
    steps = "uninitialised created activating running deactivating deactivated destroying destroyed"
    assert [what for what in made.whats() if what != "environment-sized"] == [f"environment-{s}" for s in steps.split()]


def test_while_the_controller_only_observes_nothing_is_allotted_and_all_goes_on_afterwards() -> None:
    made = harness()
    made.create(lower=1)
    made.controller.unit_of_work.acting = False
    made.activate()
    made.finish()
    assert (made.states(), made.held_by()) == ({"hpc": "created"}, [])
    assert made.entry().detail == "waits for its units to be allotted"
    made.ask(SetDeciding("on", True))
    made.finish()
    assert (made.states(), made.held_by()) == ({"hpc": "running"}, ["n1"])


def test_an_environment_waits_for_a_silent_node_and_says_so() -> None:
    made = harness()
    made.open(lower=1, setup=WIPE)
    made.ask(SubmitJob("j", job("j", environment="hpc")))
    made.finish()
    made.wait(30.0, ["n2", "n3", "n4"])
    made.deactivate()
    made.wait(30.0, ["n2", "n3", "n4"])
    assert made.entry().detail == "waits for workloads j; nodes n1 (it is unreachable)"
    made.ask(ConfirmOff("off", "n1"))
    made.wait(30.0, ["n2", "n3", "n4"])
    assert made.entry().detail == "waits for nodes n1 (it is off)"  # what it left there is there still
    made.boots["n1"], made.vms["n1"] = "boot-2", {}
    made.wait(60.0, made.nodes)
    made.finish()
    assert (made.states(), made.held_by()) == ({"hpc": "deactivated"}, [])


def test_an_owner_is_told_nothing_of_who_had_its_nodes_before() -> None:
    made = harness(1, setup_tries=1)
    made.open("secret", lower=1, owner="eve", setup=WIPE)
    made.destroy("secret")
    assert made.create("hpc", lower=1, setup=WIPE).done
    made.activate()
    made.obey()
    made.set_up(1, ok=False)
    for sender, had in (("owner.anna", ""), ("operator.test", "secret")):
        made.say(Query("q", "environment", "hpc"), sender)
        row = made.replies[-1].data["environment"]
        assert [(node["environment"], node["detail"]) for node in row["nodes"]] == [(had, "")]
        assert "secret" not in row["detail"]
