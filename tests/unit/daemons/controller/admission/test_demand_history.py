"""Owners who mean ill, and what changes while promises stand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from daemons.controller.admission.admission import QUESTIONS_OF_ONE_MAX
from daemons.controller.admission.demand_history import with_demand
from daemons.controller.admission.promises import AssuranceEntry
from daemons.controller.environments.allocation import Allocation
from daemons.values.settings import AssuranceSettings, PolicyChoice
from shared.base.errors import InvalidValue
from shared.protocol.operator_messages import (
    CheckReservation,
    CreateEnvironment,
    Query,
    ReserveEnvironment,
    ResizeEnvironment,
)
from shared.values.agreement import AssuranceTerms
from shared.values.reservation import ServiceClass, Share, SlotDemand
from tests.support import parts
from tests.support.environment_cases import agreement
from tests.unit.daemons.controller.admission import test_admission as admission_cases
from tests.unit.daemons.controller.admission import test_promises as unit_cases

HOUR_S = 3_600.0
GUARANTEED, PREDICTABLE = ServiceClass.GUARANTEED, ServiceClass.PREDICTABLE
STATISTICAL = PolicyChoice("statistical")
NOTHING = AssuranceTerms((Share(GUARANTEED),), (SlotDemand((1.0,)),) * 24)


# --- admission ------------------------------------------------------------------------------------------------------


def test_a_lower_bound_is_needed_whatever_demand_is_announced() -> None:
    """Given an announced demand of nothing and a lower bound of three, which nobody else may have, then three count."""
    made = admission_cases.harness(4)
    reply = admission_cases.create(made, "a", NOTHING, lower=3)
    assert [slot["classes"][0]["needed"] for slot in reply.data["figures"]] == [3] * 24
    assert admission_cases.create(made, "b", admission_cases.terms(2)).code == "share-offered"


def test_a_lower_bound_rises_only_where_it_is_admitted() -> None:
    made = admission_cases.harness(4)
    assert admission_cases.create(made, "a", NOTHING).done
    assert admission_cases.create(made, "b", admission_cases.terms(3)).done
    assert made.ask(ResizeEnvironment("more", "a", 2, 4)).code == "share-offered"
    assert made.ask(ResizeEnvironment("one", "a", 1, 4)).done
    assert made.controller.cluster.environments["a"].agreement.lower == 1


def test_what_was_measured_of_another_owner_is_nobody_elses() -> None:
    made = admission_cases.harness(4)
    admission_cases.create(made, "a", admission_cases.terms(2))
    environment = made.controller.cluster.environments["a"]
    entry = parts.admission(made.controller).assurance.entry_of(environment)
    entry.days = with_demand((), 5, 24, 3)
    history = AssuranceTerms((Share(GUARANTEED),))
    own = made.ask(CheckReservation("own", replace(environment.agreement, assurance=history)))
    assert own.data["outcome"] == "admitted"
    other = made.ask(CheckReservation("spy", agreement("a", owner="lee", lower=0, model="flb-nub", assurance=history)))
    assert (other.done, other.code) == (False, "not-admissible")
    environment.agreement = replace(environment.agreement, owner="lee")  # destroyed, and another's of that name
    assert parts.admission(made.controller).assurance.entry_of(environment).days == ()


def test_who_asks_without_end_keeps_nobody_waiting() -> None:
    """Given a worker that does not answer, then so many questions of one sender wait and no more, and another's too."""
    made = admission_cases.harness(4)
    made.compute = False
    asked = agreement("new", lower=0, model="flb-nub", assurance=admission_cases.terms(1))
    for number in range(QUESTIONS_OF_ONE_MAX + 1):  # one of them is being answered
        made.ask(CheckReservation(f"q{number}", asked))
    assert made.replies == [] or made.replies[-1].code != "busy"
    reply = made.ask(CheckReservation("more", asked))
    assert (reply.done, reply.code) == (False, "busy")
    reply = made.ask(CreateEnvironment("create", asked))
    assert reply.code == "busy"
    assert admission_cases.names(made) == []


@pytest.mark.parametrize("zone", ["Mars/X", "../../etc/passwd", "a\0b"])
@pytest.mark.parametrize("policy", [STATISTICAL, None])
def test_a_time_zone_that_is_not_known_here_is_refused(zone: str, policy: PolicyChoice | None) -> None:
    made = admission_cases.harness(4, admission=policy)
    strange = admission_cases.terms(1, timezone=zone)
    assert admission_cases.create(made, "a", strange).code == "invalid-value"
    assert admission_cases.create(made, "a", admission_cases.terms(1)).done
    assert made.ask(ReserveEnvironment("other", "a", strange)).code == "invalid-value"
    asked = agreement("b", lower=0, model="flb-nub", assurance=strange)
    assert made.ask(CheckReservation("q", asked)).code == ("invalid-value" if policy else "no-admission")


def test_slots_without_number_are_refused_before_they_are_made() -> None:
    with pytest.raises(InvalidValue, match="at most 2016"):
        AssuranceTerms((Share(GUARANTEED),), slot_s=86_400.0 / 2**40)


# --- units ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("police", [True, False])
def test_what_does_not_hold_yet_or_any_more_is_neither_kept_nor_missed(police: bool) -> None:
    """Given one node for a demand of two, guaranteed from ten hours on for ten hours."""
    made = unit_cases.harness(1, assurance=AssuranceSettings(police=police))
    then: dict[str, Any] = {"start_s": 10 * HOUR_S, "end_s": 20 * HOUR_S}
    unit_cases.shop(made, "a", unit_cases.terms(2, 2, theta=1.0, **then))
    made.demand("a-site", 2)
    entry = parts.admission(made.controller).assurance.entries["a"]
    counts = []
    for hour in range(1, 31):
        made.now_s = hour * HOUR_S
        made.look()
        counts.append(entry.over_slots(1)[1])
    assert counts == [*[0] * 10, *range(1, 11), *[10] * 10]
    assert entry.over_slots(1)[0] == pytest.approx(0.5, abs=0.02)
    assert all(10 * HOUR_S < event.at_s <= 20 * HOUR_S for event in made.happenings("assurance-missed"))


def test_what_is_reserved_is_had_as_soon_as_it_begins() -> None:
    """Given a reservation that begins within a slot, then its owner has a right to its units from then on."""
    made = unit_cases.harness(4)
    unit_cases.shop(made, "a", unit_cases.terms(2, 2, start_s=1_000.0, end_s=2_000.0))
    made.demand("a-site", 2)
    found = []
    for at_s in (999.0, 1_000.0, 1_999.0, 2_000.0):
        made.now_s = at_s
        made.settle()
        found.append(unit_cases.assurance_of(made, "a")["entitled"])
    assert found == [0, 2, 2, 0]


def test_a_lower_bound_is_nobodys_before_its_reservation_begins() -> None:
    made = unit_cases.harness(4)
    made.environment("a", "web", 3, model="flb-nub", assurance=unit_cases.terms(3, theta=1.0, start_s=50_000.0))
    made.look()
    (group,) = parts.coordination(made.controller).groups
    assert (group.first, group.firm) == (0, 0)
    made.now_s = 50_000.0
    made.settle()
    assert (group.first, group.firm) == (3, 3)


def test_an_alarm_of_shares_that_are_no_more_is_no_more() -> None:
    """Given a second share that is missed, and a reservation without it, then a new leader tells of no alarm."""
    made = unit_cases.harness(1)
    shares = (Share(PREDICTABLE, 1, 0.9), Share(PREDICTABLE, None, 0.8))
    two = AssuranceTerms(shares, (SlotDemand((0.0, 0.0, 1.0)),) * 24)
    unit_cases.shop(made, "a", two)
    made.demand("a-site", 2)
    for hour in range(1, 12):
        made.now_s = hour * HOUR_S
        made.look()
    entry = parts.admission(made.controller).assurance.entries["a"]
    assert set(entry.missed) == {2}
    assert made.ask(ReserveEnvironment("less", "a", replace(two, shares=shares[:1]))).done
    after = unit_cases.successor(made)
    assert after.ask(Query("q", "status")).done
    assert parts.admission(after.controller).assurance.entries["a"].served == {}


def test_an_alarm_that_is_left_over_in_the_store_does_no_harm() -> None:
    two = AssuranceTerms((Share(PREDICTABLE, 1, 0.9), Share(PREDICTABLE, None, 0.8)), (SlotDemand((1.0,)),) * 24)
    entry = AssuranceEntry("a", two)
    entry._learn(2, 0, 0.0, 35.0)
    record = entry.record()
    found = AssuranceEntry.of(record, replace(two, shares=two.shares[:1]))
    assert (found.served, found.missed) == ({}, {})


# --- how demands vary together --------------------------------------------------------------------------------------


def test_one_that_is_no_more_does_not_stop_the_others_from_being_measured() -> None:
    """Given an environment that has days of its own alone and serves no more."""
    made = unit_cases.harness(12)
    for name in ("a", "b", "gone"):
        unit_cases.shop(made, name, unit_cases.terms(0, 3))
    assurance = parts.admission(made.controller).assurance
    for day in range(10):
        for name, at in (("a", day), ("b", day), ("gone", day - 50)):
            entry = assurance.entries[name]
            entry.days = with_demand(entry.days, at * 24 + 5, 24, 3 * (day % 2))
    assurance.entries["gone"].end()
    assurance._couple("UTC", HOUR_S, 5)
    assert assurance.entries["a"].coupled[5] == 10
    assert assurance.entries["gone"].coupled == []


def test_one_that_is_new_does_not_make_the_others_unknown() -> None:
    """Given two of forty days and one of eight, then the two are known by forty instances and the new one by eight."""
    made = unit_cases.harness(12)
    assurance = parts.admission(made.controller).assurance
    for name, first in (("a", 0), ("b", 0), ("new", 32)):
        unit_cases.shop(made, name, unit_cases.terms(0, 3))
        for day in range(first, 40):
            entry = assurance.entries[name]
            entry.days = with_demand(entry.days, day * 24 + 5, 24, 3 * (day % 2))
    assurance._couple("UTC", HOUR_S, 5)
    assert [assurance.entries[name].coupled[5] for name in ("a", "b", "new")] == [40, 40, 8]


# --- many at once ---------------------------------------------------------------------------------------------------


class CountedSharing:
    """Passes on what it is asked, and counts how often units are shared."""

    def __init__(self, sharing: Allocation) -> None:
        self.count, self._sharing = 0, sharing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sharing, name)

    def share(self, *given: Any) -> bool:
        self.count += 1
        return self._sharing.share(*given)


def test_units_are_shared_once_when_the_slots_of_many_end_together() -> None:
    made = unit_cases.harness(6)
    for name in ("a", "b", "c", "d"):
        unit_cases.shop(made, name, unit_cases.terms(1, 2), lease_s=1e6)
    coordinating: Any = parts.coordination(made.controller)
    coordinating.allocation = counted = CountedSharing(coordinating.allocation)
    made.now_s = HOUR_S
    made.settle()
    assert counted.count == 1
