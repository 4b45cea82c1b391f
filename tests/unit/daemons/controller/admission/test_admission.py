"""Admission in the controller: who is let in by the policy, what is told of it, and what outlives a leader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from daemons.controller.admission.admission import in_nodes
from daemons.controller.state.environment import EnvironmentEntry
from daemons.decision.admitting import AdmissionTask, AdmissionWorker
from daemons.values.settings import PolicyChoice
from shared.base.errors import InvalidValue
from shared.ports import effects as fx
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import (
    ActivateEnvironment,
    CheckReservation,
    CreateEnvironment,
    DestroyEnvironment,
    DrainNode,
    Query,
    ReserveEnvironment,
    ResizeEnvironment,
)
from shared.values.agreement import AssuranceTerms, Granularity, VmTemplate
from shared.values.reservation import ServiceClass, Share, SlotDemand
from tests.support.environment_cases import agreement
from tests.support.environment_harness import EnvironmentHarness

STATISTICAL = PolicyChoice("statistical")
GUARANTEED, PREDICTABLE = ServiceClass.GUARANTEED, ServiceClass.PREDICTABLE
HALF = SlotDemand((0.5, 0.0, 0.5))  # two units or none


def terms(units: int = 2, theta: float = 0.0, **fields: Any) -> AssuranceTerms:
    """Two units or none in every slot; all guaranteed, or with the assurance theta."""
    share = Share(PREDICTABLE, units, theta) if theta else Share(GUARANTEED, units)
    demand = (SlotDemand((0.5, *(0.0,) * (units - 1), 0.5)),) * 24
    return AssuranceTerms((share,), demand, **fields)


def harness(nodes: int = 4, **settings: Any) -> EnvironmentHarness:
    made = EnvironmentHarness(nodes, **({"admission": STATISTICAL} | settings))
    made.lead()
    made.hear()
    return made


def create(made: EnvironmentHarness, name: str, assurance: AssuranceTerms | None = None, **fields: Any) -> Reply:
    given: dict[str, Any] = {"lower": 0, "model": "flb-nub"} | fields
    return made.create(name, assurance=assurance, **given)


def names(made: EnvironmentHarness) -> list[str]:
    return sorted(made.controller.cluster.environments)


def test_what_fits_is_admitted_and_the_numbers_are_told() -> None:
    made = harness()
    reply = create(made, "a", terms(2))
    assert reply.done
    assert (reply.data["outcome"], len(reply.data["figures"])) == ("admitted", 24)
    assert reply.data["figures"][3]["classes"][0] == {
        "service_class": "guaranteed", "theta": 1.0, "needed": 2, "left": 4, "reached": 1.0,
    }  # fmt: skip


def test_what_does_not_fit_changes_nothing_and_is_offered_what_does() -> None:
    """Given four nodes of which two are guaranteed to another, then two of three are offered."""
    made = harness()
    create(made, "a", terms(2))
    reply = create(made, "b", terms(3))
    assert (reply.done, reply.code) == (False, "share-offered")
    assert "slot 0 needs 5 servers" in reply.detail
    assert "offered: 2 of 3 servers" in reply.detail
    assert reply.data["offer"] == [{"resource": "servers", "offered": [2], "asked": [3]}]
    assert names(made) == ["a"]
    assert made.happenings("environment-refused")


def test_nothing_that_fits_is_refused() -> None:
    made = harness()
    assert create(made, "a", terms(4)).done
    reply = create(made, "b", terms(1, theta=0.9))
    assert (reply.done, reply.code) == (False, "not-admitted")
    assert reply.data["offer"] is None


def test_predictable_shares_overbook_and_best_effort_always_fits() -> None:
    """Given that each asks for all four nodes half of the time, in the worst case all at once, then two are served 0.75
    of what they ask for, three 0.67."""
    made = harness()
    assert create(made, "a", terms(4, theta=0.7)).done
    assert create(made, "b", terms(4, theta=0.7)).done
    assert create(made, "c", terms(4, theta=0.7)).code in ("not-admitted", "share-offered")
    spare = AssuranceTerms((Share(ServiceClass.BEST_EFFORT),), (HALF,) * 24)
    assert create(made, "d", spare).data["reason"] == "needs-nothing"


def test_an_agreement_without_a_reservation_counts_as_guaranteed() -> None:
    """Given an upper bound of three, or a lower one where that is undefined, then so much is taken."""
    made = harness()
    assert create(made, "a", lower=1, upper=3).done
    assert create(made, "b", lower=1).done
    assert create(made, "c", terms(1)).code == "not-admitted"


def test_a_reservation_in_the_future_holds_its_place_and_an_ended_one_frees_it() -> None:
    made = harness()
    assert create(made, "a", terms(4, start_s=10_000.0, end_s=20_000.0)).done
    clash = create(made, "b", terms(2, start_s=15_000.0, end_s=30_000.0))
    assert clash.code == "not-admitted"
    assert clash.data["first_start_s"] == 20_000.0
    assert create(made, "c", terms(2, end_s=10_000.0)).done
    made.now_s = 20_000.0
    made.hear()
    assert create(made, "b", terms(2)).done


def test_what_is_over_cannot_be_activated() -> None:
    made = harness()
    create(made, "a", terms(2, end_s=1_000.0))
    made.now_s = 1_000.0
    made.hear()
    reply = made.ask(ActivateEnvironment("late", "a"))
    assert (reply.done, reply.code) == (False, "reservation-over")


def test_the_end_of_an_environment_frees_its_place() -> None:
    made = harness()
    assert create(made, "a", terms(4)).done
    assert create(made, "b", terms(1)).code == "not-admitted"
    assert made.ask(DestroyEnvironment("end", "a")).done
    assert create(made, "b", terms(1)).done


def test_checking_changes_nothing_and_tells_the_cheapest_split() -> None:
    made = harness()
    before = made.store.records()
    asked = agreement("new", "web", 0, model="flb-nub", assurance=terms(2, theta=0.9))
    reply = made.ask(CheckReservation("q", asked, 0.95))
    assert reply.done
    assert (reply.data["name"], reply.data["outcome"]) == ("new", "admitted")
    (split,) = reply.data["splits"]
    assert split["cost"] <= split["peak_cost"]
    assert split["assured"] >= 0.95 - 1e-9
    assert names(made) == []
    assert made.store.records() == before


def test_checking_an_environment_that_is_there_asks_for_what_would_be_instead() -> None:
    made = harness()
    create(made, "a", terms(3))
    entry = made.controller.cluster.environments["a"]
    assert made.ask(CheckReservation("q", replace(entry.agreement, assurance=terms(4)))).data["outcome"] == "admitted"
    of_another = agreement("a", "batch", 0, owner="lee", model="flb-nub", assurance=terms(4))
    assert made.ask(CheckReservation("q2", of_another)).data["outcome"] == "offered"


def test_without_a_policy_whoever_asks_is_let_in_and_a_check_says_so() -> None:
    made = harness(admission=None)
    for name in ("a", "b"):
        assert create(made, name, terms(4)).done
    reply = made.ask(CheckReservation("q", agreement("c", assurance=terms(2), lower=0, model="flb-nub")))
    assert (reply.done, reply.code) == (False, "no-admission")
    assert made.computations == []


def test_other_bounds_are_admitted_where_nothing_else_is_reserved() -> None:
    made = harness()
    assert create(made, "a", lower=1, upper=2).done
    assert create(made, "b", terms(2)).done
    assert made.ask(ResizeEnvironment("more", "a", 1, 3)).code == "share-offered"
    assert made.controller.cluster.environments["a"].agreement.upper == 2
    assert made.ask(ResizeEnvironment("less", "a", 1, 1)).done


def test_what_is_reserved_can_be_changed_for_what_is_admitted() -> None:
    made = harness()
    assert create(made, "a", terms(2)).done
    assert create(made, "b", terms(1)).done
    assert made.ask(ReserveEnvironment("four", "a", terms(4))).code == "share-offered"
    reply = made.ask(ReserveEnvironment("three", "a", terms(3)))
    assert (reply.done, reply.data["outcome"]) == (True, "admitted")
    assert made.controller.cluster.environments["a"].agreement.assurance == terms(3)
    assert made.happenings("environment-reserved")
    assert made.ask(ReserveEnvironment("none", "a")).done
    assert create(made, "c", terms(3)).done


def test_history_makes_the_demand_and_without_any_there_is_none() -> None:
    made = harness()
    history = AssuranceTerms((Share(GUARANTEED),))
    reply = create(made, "a", history)
    assert (reply.done, reply.code) == (False, "not-admissible")
    assert "nothing was measured" in reply.detail


# --- the worker ----------------------------------------------------------------------------------------------------


def test_questions_are_answered_one_after_the_other() -> None:
    """Given two that fit alone but not together, asked at once, then the second is judged beside the first."""
    made = harness()
    made.compute = False
    made.computations.clear()
    create(made, "a", terms(3))
    create(made, "b", terms(3))
    assert len(made.computations) == 1
    assert names(made) == []
    made.compute = True
    made.answer(made.computations[0])
    made.settle()
    assert [(reply.done, reply.code) for reply in made.replies[-2:]] == [(True, ""), (False, "share-offered")]


def test_a_worker_that_has_lost_everything_is_told_everything() -> None:
    made = harness()
    create(made, "a", terms(3))
    made.compute = False
    create(made, "b", terms(2))
    task = made.computations[-1].request
    assert task.since > 0
    assert [each.reservation.name for each in task.put] == []
    fresh = AdmissionWorker()
    made.compute = True
    made.carry(made.controller.handle(fx.Computed(made.computations[-1].compute_id, fresh.answer(task)), made.now_s))
    made.settle()
    again = next(each.request for each in reversed(made.computations) if each.request.request is not None)
    assert (again.since, [each.reservation.name for each in again.put]) == (0, ["a"])
    assert made.replies[-1].code == "share-offered"


def test_many_reservations_are_sent_in_parts() -> None:
    """Given 120 that stand, which a worker is told of for the first time, then it is asked when it knows them all."""
    made = harness()
    share = AssuranceTerms((Share(ServiceClass.BEST_EFFORT),), (HALF,) * 24)
    entries = made.controller.cluster.environments
    for number in range(120):
        one = agreement(f"e{number}", "batch", 0, model="flb-nub", assurance=share if number else terms(4))
        entries[one.name] = EnvironmentEntry(one, f"r{number}", number, created_s=0.0)
    made.computations.clear()
    assert create(made, "new", terms(1)).code == "not-admitted"
    tasks = [each.request for each in made.computations if each.request.request is not None]
    assert [(len(task.put), task.more) for task in tasks] == [(50, True), (50, True), (20, False)]
    del entries["e0"]
    assert create(made, "new", terms(1)).done


def test_nodes_that_come_and_go_are_counted() -> None:
    made = harness(2)
    before = len(made.computations)
    made.ask(DrainNode("out", "n1", True))
    assert len(made.computations) == before + 1
    assert create(made, "a", terms(2)).code == "share-offered"
    made.ask(DrainNode("in", "n1", False))
    assert create(made, "a", terms(2)).done


def test_a_worker_that_fails_admits_nobody_and_says_why() -> None:
    made = harness()
    made.compute = False
    create(made, "a", terms(1))
    made.carry(made.controller.handle(fx.Computed(made.computations[-1].compute_id, None, "out of time"), made.now_s))
    made.settle()
    assert (made.replies[-1].code, made.replies[-1].detail) == ("not-admissible", "out of time")
    assert names(made) == []


def test_the_same_request_again_is_the_same_creation() -> None:
    made = harness()
    asked = CreateEnvironment("one", agreement("a", "batch", 0, model="flb-nub", assurance=terms(4)))
    assert made.ask(asked).done
    count = len(made.computations)
    assert made.ask(asked).done
    assert len(made.computations) == count


def test_what_stands_is_told_a_new_leader() -> None:
    made = harness()
    create(made, "a", terms(3))
    after = made.successor(admission=STATISTICAL)
    reply = create(after, "b", terms(2))
    assert (reply.code, reply.data["figures"][0]["classes"][0]["needed"]) == ("share-offered", 3)


def test_a_harness_remembers_what_it_was_told_and_says_when_it_was_not() -> None:
    made = AdmissionWorker()
    first = AdmissionTask("a/1", 0, 1, gone=(), put=(), policy="peak", params={}, pools=(), now_s=0.0)
    assert not made.answer(first).behind
    assert not made.answer(replace(first, since=1, revision=2)).behind
    assert made.answer(replace(first, since=1, revision=3)).behind
    assert made.answer(replace(first, token="b/1", since=2, revision=3)).behind
    assert not made.answer(replace(first, token="b/1")).behind


def test_what_promises_leave_is_forecast_and_shown() -> None:
    made = harness()
    create(made, "a", terms(3))
    data = made.ask(Query("q", "assurance")).data
    assert [row["best_effort"] for row in data["forecast"]] == [1] * 24
    assert made.ask(Query("q", "status")).data["best_effort"] == {"least": 1, "most": 1}
    assert data["policy"] == "statistical"


def test_vms_are_counted_by_the_nodes_that_they_fill() -> None:
    """Given three VMs to a node and shares of four and four VMs, then shares of two nodes and one."""
    template = VmTemplate("small", 1, 100, 1_000.0)
    wanted = AssuranceTerms((Share(GUARANTEED, 4), Share(PREDICTABLE, 4, 0.9)), (SlotDemand((0.2,) * 5),) * 24)
    own = agreement("v", granularity=Granularity.VM, template=template, assurance=wanted, lower=0, model="flb-nub")
    found = in_nodes(wanted, wanted.demand, own, 3)
    assert [share.units for share in found.shares] == [2, 1]
    assert found.demands[0].slots[0].probabilities == pytest.approx((0.2, 0.6, 0.2))


def test_an_agreement_sets_no_more_aside_than_it_guarantees() -> None:
    with pytest.raises(InvalidValue, match="at most 2"):
        agreement("a", lower=3, assurance=terms(2))
