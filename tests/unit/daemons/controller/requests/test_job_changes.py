"""Goal, importance, rules and terms of what is there are changed, or refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from daemons.controller.state.vm_terms import moves_left, pause_left_s
from daemons.values.settings import Automation, PolicyChoice
from shared.base.errors import InvalidValue
from shared.protocol.operator_messages import (
    AdoptVm,
    CancelJob,
    DrainNode,
    MoveVm,
    ReleaseVm,
    SetJob,
    SetWeb,
    SubmitJob,
    SubmitWeb,
)
from shared.values.actions import Action, ActionKind
from shared.values.jobs import JobPhase, Rules
from shared.values.migration import page_need
from shared.values.migration_terms import MigrationFigures, MigrationMethod
from shared.values.vm_terms import OnShutdown, TermChanges, VmAutomation, VmTerms
from shared.values.vms import VmState, VmStatus
from shared.values.web_app import Flow
from tests.support.controller_harness import ControllerHarness, job
from tests.unit.daemons.controller.web.test_apps import shop

PET = VmStatus("pet", VmState.RUNNING, memory_mib=500, vcpus=2, cpu_mhz=700.0, managed=False)


def harness_of(*, pet: bool = False, **settings: object) -> ControllerHarness:
    harness = ControllerHarness(**settings).lead()  # type: ignore[arg-type]
    harness.ask(SubmitJob("j", job(goal_s=1e6)))
    harness.obey()
    if pet:
        harness.vms["n1"]["pet"] = PET
        harness.report("n1")
        harness.ask(AdoptVm("a", "n1", "pet", job="pet"))
        harness.obey()
        harness.report("n1")
    return harness


def test_a_job_is_changed_while_it_runs_and_the_change_is_stored() -> None:
    harness = harness_of()
    entry = harness.controller.cluster.jobs["j"]
    before = entry.revision
    rules = Rules(node_anti_affinity=("n2",))
    assert harness.ask(SetJob("s", "j", importance=4.0, goal_s=2e6, rules=rules)).done
    assert (entry.job.importance, entry.job.goal_s, entry.job.rules) == (4.0, 2e6, rules)
    assert entry.revision > before
    assert harness.store.get(("job", "j")).job == entry.job
    assert harness.orders == []
    assert [event.subject for event in harness.happenings("job-changed")] == ["j"]
    assert harness.ask(SetJob("b", "j", best_effort=True)).done
    assert (entry.job.goal_s, entry.job.importance) == (None, 4.0)


def test_what_is_the_same_changes_nothing() -> None:
    harness = harness_of()
    entry = harness.controller.cluster.jobs["j"]
    before = entry.revision
    assert harness.ask(SetJob("s", "j", importance=1.0)).done
    assert (entry.revision, harness.happenings("job-changed")) == (before, [])


@pytest.mark.parametrize(
    ("request_", "code", "word"),
    [
        (SetJob("1", "nobody", importance=1.0), "unknown-job", "nobody"),
        (SetJob("2", "j", importance=-1.0), "invalid-value", "importance"),
        (SetJob("3", "j", goal_s=1.0, best_effort=True), "invalid-value", "one of them"),
        (SetJob("4", "j", terms=TermChanges()), "not-a-vm", "'j'"),
        (SetJob("5", "j", rules=Rules(node_affinity=("n7",))), "unknown-node", "n7"),
        (SetJob("6", "pet", goal_s=1e9), "invalid-value", "goal"),
        (SetJob("7", "j", goal_s=-1.0), "invalid-value", "has passed"),
        (SetJob("8", "j", importance=1e7), "invalid-value", "from 0.001 to 1e+06"),
        (SetJob("9", "j", rules=Rules(node_anti_affinity=("n1", "n2"))), "fits-no-node", "none of 2 nodes"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(request_: SetJob, code: str, word: str) -> None:
    harness = harness_of(pet=True)
    before = {name: entry.record() for name, entry in harness.controller.cluster.jobs.items()}
    reply = harness.ask(request_)
    assert (reply.code, word in reply.detail) == (code, True)
    assert {name: entry.record() for name, entry in harness.controller.cluster.jobs.items()} == before


def test_what_is_over_is_not_changed() -> None:
    harness = harness_of()
    harness.ask(CancelJob("c", "j"))
    assert harness.ask(SetJob("s", "j", importance=2.0)).code == "job-over"


def test_terms_of_a_vm_are_changed_and_whether_it_should_run_is_not() -> None:
    harness = harness_of(pet=True)
    entry = harness.controller.cluster.jobs["pet"]
    terms = VmTerms(running=False, on_shutdown=OnShutdown.RESTART, moves_per_day=2)
    assert harness.ask(SetJob("s", "pet", terms=TermChanges.of(terms))).done
    assert entry.terms == replace(terms, running=True)
    assert harness.orders == []


def test_the_agent_is_told_when_a_guest_is_to_stay_off() -> None:
    harness = harness_of(pet=True)
    for on_shutdown, stays_off in (
        (OnShutdown.LEAVE_OFF, True),
        (OnShutdown.RESTART, False),
        (OnShutdown.DOMAIN, False),
    ):
        assert harness.ask(SetJob(on_shutdown, "pet", terms=TermChanges(on_shutdown=on_shutdown))).done
        told = [(one.kind, one.spec is not None and one.spec.stays_off) for one in harness.obey()]
        assert told == [(ActionKind.ADOPT, stays_off)] * (on_shutdown is not OnShutdown.DOMAIN)
        harness.report("n1")
        assert harness.orders == []


def test_what_two_operators_change_at_once_is_all_kept() -> None:
    """Given changes of some terms each, then neither takes back the other's."""
    harness = harness_of(pet=True)
    entry = harness.controller.cluster.jobs["pet"]
    assert harness.ask(SetJob("1", "pet", terms=TermChanges(failover=True, moves_per_day=3))).done
    assert harness.ask(SetJob("2", "pet", terms=TermChanges(automation=VmAutomation.OFF))).done
    assert entry.terms == VmTerms(failover=True, moves_per_day=3, automation=VmAutomation.OFF)
    assert harness.ask(SetJob("3", "pet", terms=TermChanges(clear=("moves_per_day", "automation")))).done
    assert entry.terms == VmTerms(failover=True)


def test_a_vm_is_meant_by_its_own_name_too() -> None:
    harness = harness_of()
    harness.vms["n1"]["www.example.org"] = replaced("www.example.org")
    harness.report("n1")
    assert harness.ask(AdoptVm("a", "n1", "www.example.org", job="www")).done
    harness.obey()
    assert harness.ask(SetJob("s", "www.example.org", importance=3.0)).done
    assert harness.controller.cluster.jobs["www"].job.importance == 3.0
    assert harness.ask(ReleaseVm("r", "www.example.org")).done


def replaced(vm: str) -> VmStatus:
    return structs.replace(PET, vm=vm)


def test_a_released_vm_is_adopted_again_under_its_name() -> None:
    harness = harness_of(pet=True)
    assert harness.ask(ReleaseVm("r", "pet")).done
    assert harness.ask(AdoptVm("b", "n1", "pet", job="pet")).code == "vm-busy"
    harness.obey()
    harness.vms["n1"]["pet"] = PET
    harness.report("n1")
    assert harness.ask(AdoptVm("c", "n1", "pet", job="pet", importance=2.0)).done
    harness.obey()
    entry = harness.controller.cluster.jobs["pet"]
    assert (entry.phase, entry.job.importance, entry.released) == (JobPhase.RUNNING, 2.0, True)
    assert harness.store.get(("job", "pet")).phase is JobPhase.RUNNING


def test_whether_a_vm_could_be_adopted_is_asked_without_a_change() -> None:
    harness = harness_of()
    harness.vms["n1"]["pet"] = PET
    harness.report("n1")
    assert harness.ask(AdoptVm("1", "n1", "pet", job="pet", check=True)).done
    assert harness.ask(AdoptVm("2", "n1", "pet", job="j", check=True)).code == "duplicate-name"
    assert harness.ask(AdoptVm("3", "n1", "pet", job="no name", check=True)).code == "invalid-value"
    for number, (rules, code) in enumerate(
        (
            (Rules(node_affinity=("n9",)), "unknown-node"),
            (Rules(label_affinity=("gpu",)), "fits-no-node"),
            (Rules(vm_affinity=("j",), vm_anti_affinity=("j",), affinity_scope="zone"), ""),
        )
    ):
        reply = harness.ask(AdoptVm(f"4{number}", "n1", "pet", job="pet", rules=rules, check=True))
        assert reply.code == code, reply
    assert (set(harness.controller.cluster.jobs), harness.orders) == ({"j"}, [])


@pytest.mark.parametrize(
    ("mine", "theirs", "word"),
    [
        (Rules(vm_affinity=("j",)), Rules(vm_anti_affinity=("pet",)), "vm_anti_affinity of 'j' names 'pet'"),
        (Rules(vm_anti_affinity=("j",)), Rules(vm_affinity=("pet",)), "vm_affinity of 'j' names 'pet'"),
        (
            Rules(vm_affinity=("j",), anti_affinity="g"),
            Rules(anti_affinity="g"),
            "anti_affinity of both 'pet' and 'j' is 'g'",
        ),
        (Rules(vm_anti_affinity=("j",), affinity="g"), Rules(affinity="g"), "affinity of both 'j' and 'pet' is 'g'"),
        (Rules(affinity="g"), Rules(affinity="g", vm_anti_affinity=("pet",)), "vm_anti_affinity of 'j' names 'pet'"),
        (Rules(node_affinity=("n2",)), Rules(vm_affinity=("pet",), node_affinity=("n1",)), "no node suits all of them"),
        (Rules(label_affinity=("gpu",)), Rules(), "labels ['gpu']"),
        (Rules(vm_affinity=("j",), affinity_scope="rack"), Rules(vm_anti_affinity=("pet",)), ""),
        (Rules(vm_affinity=("j", "nobody")), Rules(), ""),
    ],
)
def test_rules_that_contradict_those_of_another_are_refused(mine: Rules, theirs: Rules, word: str) -> None:
    harness = harness_of(pet=True)
    assert harness.ask(SetJob("1", "j", rules=theirs)).done
    before = harness.controller.cluster.jobs["pet"].record()
    reply = harness.ask(SetJob("2", "pet", rules=mine))
    assert reply.done is not bool(word)
    assert word in reply.detail
    assert (harness.controller.cluster.jobs["pet"].record() == before) is bool(word)


def test_rules_go_by_what_a_vm_is_on_and_by_its_ordinary_memory() -> None:
    """Given an adopted VM that is larger than any node lets workloads be, then rules that allow its node are good, and
    those that leave it a node that could never hold it are not; what is in hugepages takes no ordinary memory."""
    for needs, elsewhere in (((), "fits-no-node"), ((page_need(2048, 8_000),), "")):
        harness = harness_of()
        harness.vms["n1"]["pet"] = structs.replace(PET, memory_mib=8_000, migration_needs=needs)
        harness.report("n1")
        reply = harness.ask(AdoptVm("e", "n1", "pet", job="pet", rules=Rules(node_affinity=("n2",)), check=True))
        assert reply.code == elsewhere, reply
        assert harness.ask(AdoptVm("a", "n1", "pet", job="pet", rules=Rules(anti_affinity="g"))).done
        harness.obey()
        harness.report("n1")
        assert harness.ask(SetJob("s", "pet", rules=Rules(anti_affinity="h"))).done
        assert harness.ask(SetJob("t", "pet", rules=Rules(node_affinity=("n2",)))).code == elsewhere


@pytest.mark.parametrize(("key", "value"), [("moves_per_day", 0), ("moves_per_day", -1), ("pause_s_per_day", 0.0)])
def test_a_budget_of_nothing_is_no_budget(key: str, value: float) -> None:
    with pytest.raises(InvalidValue, match=key):
        VmTerms(**{key: value})  # type: ignore[arg-type]


# --- automation and budget --------------------------------------------------------------------------------------------


def moves_of(harness: ControllerHarness) -> list[str]:
    return [one.vm for one in harness.obey() if one.kind is ActionKind.MIGRATE and one.vm == "pet"]


def drained(terms: TermChanges, **settings: object) -> ControllerHarness:
    """The VM's node is drained: decisions want to move the VM."""
    settings.setdefault("placement", PolicyChoice("apc"))
    harness = harness_of(pet=True, **settings)
    harness.ask(SetJob("s", "pet", terms=terms))
    harness.ask(DrainNode("d", "n1", True))
    harness.wait(20.0, reporting=["n1", "n2"])
    return harness


def test_its_own_automation_level_counts_for_more_than_the_clusters() -> None:
    assert moves_of(drained(TermChanges(automation=VmAutomation.AUTO), automation=Automation.ADVISE)) == ["pet"]
    assert moves_of(drained(TermChanges(automation=VmAutomation.ADVISE), automation=Automation.AUTO)) == []
    assert moves_of(drained(TermChanges(automation=VmAutomation.OFF), automation=Automation.AUTO)) == []


def test_one_that_asks_for_confirmation_waits_in_a_cluster_that_does_not() -> None:
    harness = drained(TermChanges(automation=VmAutomation.CONFIRM), automation=Automation.AUTO)
    assert moves_of(harness) == []
    pending = harness.controller.deciding.pending
    assert pending is not None
    assert [change.workload for change in pending.held] == ["pet"]


def test_an_operators_drain_counts_for_more_than_the_budget() -> None:
    harness = harness_of(pet=True, placement=PolicyChoice("apc"), automation=Automation.AUTO)
    entry = harness.controller.cluster.jobs["pet"]
    harness.ask(SetJob("s", "pet", terms=TermChanges(moves_per_day=1)))
    entry.moves_s = (harness.now_s,)
    snapshot = harness.controller.deciding.builder.build(harness.now_s)
    assert [one.members for one in snapshot.constraints] == [("pet",)]
    harness.ask(DrainNode("d", "n1", True))
    harness.wait(20.0, reporting=["n1", "n2"])
    assert moves_of(harness) == ["pet"]
    assert len(entry.moves_s) == 2


def migrate(harness: ControllerHarness) -> None:
    """Have all orders done, among them a migration of the VM that pauses it for 1.5 s."""
    figures = MigrationFigures(MigrationMethod.PRE_COPY, duration_s=9.0, downtime_s=1.5)
    done: list[Action] = []
    while orders := harness.take_orders():
        for order in orders:
            fields: dict[str, Any] = {"migrated": figures} if order.kind is ActionKind.MIGRATE else {}
            harness.result(order, **fields)
        done += orders
    assert "pet" in [one.vm for one in done if one.kind is ActionKind.MIGRATE]


def test_pauses_by_migrations_of_decisions_use_up_the_budget() -> None:
    """Given one that a decision orders and one that an operator does, then the second costs nothing."""
    harness = drained(TermChanges(pause_s_per_day=2.0, moves_per_day=5), automation=Automation.AUTO)
    entry = harness.controller.cluster.jobs["pet"]
    migrate(harness)
    assert pause_left_s(entry, harness.now_s) == 0.5
    assert moves_left(entry, harness.now_s) == 4
    harness.ask(DrainNode("u", "n1", False))
    harness.report("n1")
    harness.report("n2")
    assert harness.ask(MoveVm("m", "pet", "n1")).done
    migrate(harness)
    assert (pause_left_s(entry, harness.now_s), moves_left(entry, harness.now_s)) == (0.5, 4)
    assert pause_left_s(entry, harness.now_s + 86_401.0) == 2.0


def test_a_vm_whose_pauses_are_used_up_is_kept() -> None:
    harness = drained(TermChanges(pause_s_per_day=1.0), automation=Automation.AUTO)
    migrate(harness)
    harness.ask(DrainNode("u", "n1", False))
    assert ("pet",) in [one.members for one in harness.controller.deciding.builder.build(harness.now_s).constraints]


# --- web applications -------------------------------------------------------------------------------------------------


def test_a_web_application_is_changed() -> None:
    harness = harness_of()
    harness.ask(SubmitWeb("w", shop("shop", flows=(Flow("buy", mean_s=0.5, work_mcycles=10.0),))))
    assert harness.ask(SetWeb("s", "shop", importance=3.0, goals=(("buy", 0.2),))).done
    app = harness.controller.cluster.web["shop"].app
    assert (app.importance, app.flows[0].mean_s) == (3.0, 0.2)
    assert harness.ask(SetWeb("t", "shop", goals=(("sell", 0.2),))).code == "invalid-value"
    assert harness.ask(SetWeb("u", "shop", goals=(("buy", -1.0),))).code == "invalid-value"
    assert harness.ask(SetWeb("v", "shap", importance=1.0)).code == "unknown-web-app"
    assert harness.controller.cluster.web["shop"].app == app


def test_an_application_whose_rules_name_a_node_that_is_gone_is_changed_otherwise() -> None:
    harness = harness_of()
    app = shop("shop", rules=Rules(node_anti_affinity=("gone",)))
    assert harness.ask(SubmitWeb("w", app)).done
    assert harness.ask(SetWeb("s", "shop", importance=2.0)).done
    assert harness.ask(SetWeb("t", "shop", rules=Rules(node_affinity=("gone",)))).code == "unknown-node"


def test_an_adopted_vm_gets_its_terms_at_once() -> None:
    harness = harness_of()
    harness.vms["n2"]["pet"] = structs.replace(PET)
    harness.report("n2")
    terms = VmTerms(automation=VmAutomation.CONFIRM)
    rules = Rules(anti_affinity="pets")
    assert harness.ask(AdoptVm("a", "n2", "pet", job="pet", importance=7.0, rules=rules, terms=terms)).done
    entry = harness.controller.cluster.jobs["pet"]
    assert (entry.job.importance, entry.job.rules, entry.terms) == (7.0, rules, terms)
    assert harness.ask(AdoptVm("b", "n2", "other", job="o", rules=Rules(node_affinity=("n9",)))).code == "unknown-vm"
