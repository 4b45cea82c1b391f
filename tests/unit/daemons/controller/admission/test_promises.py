"""Requests for units beside what was reserved, what is measured of demand, and whether promises are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from daemons.controller.admission.demand_history import demand_from, made_days, slot_of, with_demand
from daemons.controller.admission.promises import AssuranceEntry, by_right, holds, layers_of
from daemons.models.assurance.calendar import slot_of_instance
from daemons.store.bodies import from_body, to_body
from daemons.values.records.assurance import AssuranceRecord
from daemons.values.settings import AssuranceSettings, PolicyChoice
from shared.policy_api.admission import SurplusUse
from shared.protocol.operator_messages import Query
from shared.values.agreement import AssuranceTerms
from shared.values.reservation import Calendar, ServiceClass, Share, SlotDemand
from tests.support import parts
from tests.support.coordination_harness import CoordinationHarness

HOUR_S, DAY_S = 3_600.0, 86_400.0
GUARANTEED, PREDICTABLE, BEST = ServiceClass.GUARANTEED, ServiceClass.PREDICTABLE, ServiceClass.BEST_EFFORT
STATISTICAL = PolicyChoice("statistical")


def terms(*units: int, theta: float = 0.9, **fields: Any) -> AssuranceTerms:
    """The same demand in every slot: each of these units has the same chance; all of them predictable."""
    chances = [units.count(each) / len(units) for each in range(max(units) + 1)]
    share = Share(PREDICTABLE, None, theta) if theta < 1.0 else Share(GUARANTEED)
    return AssuranceTerms((share,), (SlotDemand(tuple(chances)),) * 24, **fields)


def harness(nodes: int = 6, **settings: Any) -> CoordinationHarness:
    return CoordinationHarness(nodes, **({"admission": STATISTICAL} | settings)).begin()


def shop(made: CoordinationHarness, name: str, assurance: AssuranceTerms | None, **fields: Any) -> None:
    made.environment(name, "web", 0, model="flb-nub", assurance=assurance, **fields)
    made.look()
    made.app(f"{name}-site", 0, environment=name)


def assurance_of(made: CoordinationHarness, name: str) -> dict[str, Any]:
    (row,) = made.ask(Query("q", "assurance", name)).data["environments"]
    return dict(row)


# --- policing -------------------------------------------------------------------------------------------------------


def test_within_what_was_announced_everything_is_by_right() -> None:
    made = harness()
    shop(made, "a", terms(1, 3))
    made.demand("a-site", 3)
    row = assurance_of(made, "a")
    assert (row["asked"], row["entitled"], row["served"]) == (3, 3, 3)
    assert row["requests"][0]["reason"] == "within"
    assert not made.happenings("request-policed")


def test_beyond_the_peak_is_best_effort_and_gives_way_to_who_has_a_right() -> None:
    """Given six nodes, of which one takes five though it has announced two, then another who is entitled to four gets
    them: notice is given, and at the next timer they are taken back."""
    made = harness()
    shop(made, "bad", terms(1, 2))
    shop(made, "good", terms(2, 4))
    made.demand("bad-site", 5)
    assert made.sizes()["bad"] == 5
    verdict = assurance_of(made, "bad")["requests"][0]
    assert (verdict["requested"], verdict["entitled"], verdict["surplus"]) == (5, 2, 3)
    assert verdict["reason"] == "beyond-peak"
    assert "5 units asked for, 2 by right" in made.happenings("request-policed")[-1].detail

    made.demand("good-site", 4)
    assert made.sizes()["good"] == 1
    assert "3 units" in made.happenings("units-reclaimed")[-1].detail
    made.pass_reporting(700.0)
    assert made.sizes() == {"bad": 2, "good": 4}


def test_without_policing_whoever_came_first_keeps_what_it_has() -> None:
    made = harness(assurance=AssuranceSettings(police=False))
    shop(made, "bad", terms(1, 2))
    shop(made, "good", terms(2, 4))
    made.demand("bad-site", 5)
    made.demand("good-site", 4)
    made.pass_reporting(700.0)
    assert made.sizes() == {"bad": 5, "good": 1}
    assert assurance_of(made, "bad")["requests"] == []


def test_surplus_may_be_rejected() -> None:
    made = harness(assurance=AssuranceSettings(surplus=SurplusUse.REJECTED))
    shop(made, "a", terms(1, 2))
    made.demand("a-site", 5)
    assert made.sizes()["a"] == 2
    assert assurance_of(made, "a")["requests"][0]["rejected"] == 3


def test_the_peak_all_day_is_more_than_the_slots_together_may_use() -> None:
    """Given a demand of four on one day in ten, then asking for it every day is entitled to it on a few."""
    made = harness(8)
    shop(made, "a", terms(*(0,) * 9, 4))
    entitled = []
    for day in range(6):
        made.now_s = day * DAY_S + 60.0
        made.look()
        made.demand("a-site", 4)
        entitled.append(assurance_of(made, "a")["requests"][0]["entitled"])
        made.demand("a-site", 0)
    assert entitled[0] == 4
    assert entitled[-1] < 4
    assert assurance_of(made, "a")["requests"][1]["reason"] in ("vertical", "horizontal")


def test_outside_its_time_a_reservation_entitles_to_nothing() -> None:
    made = harness()
    shop(made, "a", terms(2, 2, start_s=5_000.0, end_s=6_000.0))
    made.demand("a-site", 2)
    assert (assurance_of(made, "a")["entitled"], made.sizes()["a"]) == (0, 2)
    assert [holds(terms(1, start_s=5.0, end_s=6.0), at_s) for at_s in (4.9, 5.0, 6.0)] == [False, True, False]


def test_guaranteed_units_come_before_predictable_ones() -> None:
    """Given two that are short of nodes, then the later one, which was guaranteed its units, has all of them."""
    made = harness(4)
    shop(made, "soft", terms(3, 3, theta=0.5))
    shop(made, "hard", terms(3, 3, theta=1.0))
    made.demand("soft-site", 3)
    made.demand("hard-site", 3)
    made.pass_reporting(700.0)
    assert made.sizes() == {"soft": 1, "hard": 3}


def test_verdicts_and_windows_outlive_a_leader() -> None:
    made = harness()
    shop(made, "a", terms(1, 2))
    made.demand("a-site", 5)
    before = parts.admission(made.controller).assurance.entries["a"]
    after = successor(made)
    found = parts.admission(after.controller).assurance.entries["a"]
    assert (found.policed, found.ledger) == (before.policed, before.ledger)
    assert len(found.policed) > 0


def successor(made: CoordinationHarness) -> CoordinationHarness:
    other = CoordinationHarness(len(made.nodes), made.store, admission=STATISTICAL)
    other.now_s, other.nodes, other.boots = made.now_s, made.nodes, made.boots
    other.seqs, other.vms, other.muted = made.seqs, made.vms, made.muted
    other.carry(other.controller.start(other.now_s))
    other.look()
    other.look()
    return other


# --- what is measured -----------------------------------------------------------------------------------------------


def test_the_largest_demand_of_each_slot_is_kept() -> None:
    made = harness()
    shop(made, "a", terms(0, 3))
    made.demand("a-site", 3)
    made.now_s = 1_800.0
    made.demand("a-site", 1)
    made.now_s = HOUR_S
    made.settle()
    made.demand("a-site", 2)
    made.now_s = 2 * HOUR_S
    made.settle()
    (day,) = parts.admission(made.controller).assurance.entries["a"].days
    assert day.asked[:3] == (3, 2, -1)
    row = assurance_of(made, "a")
    assert row["slots"][0]["asked"] == {"mean": 3.0, "peak": 3, "instances": 1}
    assert row["days"] == 1


def test_what_was_measured_outlives_a_leader_and_makes_a_profile() -> None:
    made = harness()
    shop(made, "a", terms(0, 3))
    made.demand("a-site", 2)
    for hour in range(1, 25):
        made.now_s = hour * HOUR_S
        made.settle()
    after = successor(made)
    found = parts.admission(after.controller).assurance.entries["a"]
    assert found.days[0].asked == (2,) * 24
    profile = demand_from(found.days, terms(1))
    assert {(slot.probabilities, slot.observations) for slot in profile} == {((0.0, 0.0, 1.0), 1)}


def test_an_environment_without_a_reservation_is_measured_too() -> None:
    made = harness()
    shop(made, "a", None, upper=2)
    made.demand("a-site", 3)
    row = assurance_of(made, "a")
    assert (row["reserved"], row["asked"], row["entitled"]) == (False, 3, 2)
    assert [(share["class"], share["units"]) for share in row["shares"]] == [("guaranteed", 2)]


def test_how_demands_vary_together_is_measured_as_slots_end() -> None:
    """Given two that are high on the same days and one that is high on the others."""
    made = harness(12)
    for name in ("a", "b", "c"):
        shop(made, name, terms(0, 3))
    entries = parts.admission(made.controller).assurance.entries
    for day in range(10):
        for name, units in (("a", 3 * (day % 2)), ("b", 3 * (day % 2)), ("c", 3 * (1 - day % 2))):
            entries[name].days = with_demand(entries[name].days, day * 24 + 5, 24, units)
    parts.admission(made.controller).assurance._couple("UTC", HOUR_S, 5)
    assert entries["a"].coupled[5] == 10
    assert entries["a"].couplings[5] == pytest.approx(0.0)
    assert entries["c"].couplings[5] == 0.0
    del entries["c"]
    parts.admission(made.controller).assurance._couple("UTC", HOUR_S, 5)
    assert entries["a"].couplings[5] == pytest.approx(1.0)


# --- promises -------------------------------------------------------------------------------------------------------


def test_a_promise_that_is_missed_is_an_alarm_until_it_is_kept_again() -> None:
    """Given one node for a demand of two that is promised 0.9, for some hours, and then three."""
    made = harness(1)
    shop(made, "a", terms(2, 2))
    made.demand("a-site", 2)
    alarms = []
    for hour in range(1, 40):
        made.now_s = hour * HOUR_S
        if hour == 10:
            made.add_nodes(2, looking=False)
        made.look()
        found = made.ask(Query("q", "status")).data["alarms"]
        alarms.append([each["what"] for each in found if each["subject"] == "a" and "assurance" in each["what"]])
    first = alarms.index(["assurance-missed"])
    assert first <= 9
    assert alarms[-1] == []
    assert "0.5000 served" in made.happenings("assurance-missed")[0].detail
    assert len(made.happenings("assurance-missed")) == len(made.happenings("assurance-kept")) == 1
    share = assurance_of(made, "a")["shares"][0]
    assert (share["promised"], share["observations"]) == (0.9, 39)
    assert share["recently"] > 0.895


def test_little_is_not_enough_to_say_that_a_promise_is_missed() -> None:
    made = harness(1)
    shop(made, "a", terms(2, 2, theta=0.6))
    made.demand("a-site", 2)
    made.now_s = HOUR_S
    made.look()
    assert assurance_of(made, "a")["shares"][0]["measured"] == pytest.approx(0.5, abs=0.01)
    assert not made.happenings("assurance-missed")


def test_layers_are_served_from_the_first_unit_on() -> None:
    entry = AssuranceEntry("a", AssuranceTerms((Share(GUARANTEED, 2), Share(PREDICTABLE, 2, 0.9), Share(BEST))))
    layers = layers_of(entry.terms.shares, 6)
    assert (layers, by_right(entry.terms.shares, 6)) == ([(0, 2), (2, 4), (4, 6)], 4)
    entry.begin(0.0)
    entry.units = (6, 4, 3)
    entry.pass_to(HOUR_S, layers)
    noted = entry.close(HOUR_S)
    assert [noted[layer].mean for layer in range(4)] == [0.5, 1.0, 0.5, 1.0]
    assert entry.days[0].asked[0] == 6


def test_half_of_a_slot_must_be_seen_to_tell_how_it_was_served() -> None:
    entry = AssuranceEntry("a", AssuranceTerms((Share(GUARANTEED, 2),)))
    entry.begin(2_000.0)
    entry.units = (2, 2, 0)
    entry.pass_to(HOUR_S, [(0, 2)])
    assert entry.close(HOUR_S) == {}
    assert entry.days[0].asked[0] == 2


def test_older_instances_count_less_and_less() -> None:
    entry = AssuranceEntry("a", AssuranceTerms((Share(GUARANTEED, 2),)))
    for _ in range(200):
        entry._learn(1, 0, 0.0, 35.0)
    for _ in range(35):
        entry._learn(1, 0, 1.0, 35.0)
    row = entry.served[1, 0]
    assert row.weight == pytest.approx(35.0, rel=0.01)
    assert row.mean == pytest.approx(1.0 - (1.0 - 1.0 / 35.0) ** 35, abs=0.01)


def test_an_hour_that_comes_twice_is_one_slot_and_one_that_is_left_out_none() -> None:
    """Given the days on which Berlin's clocks change: 2026-10-25 (back at 3:00) and 2026-03-29 (ahead at 2:00)."""
    autumn, spring = 1_792_879_200.0, 1_774_738_800.0  # their midnights
    entry = AssuranceEntry("a", AssuranceTerms((Share(GUARANTEED, 2),), timezone="Europe/Berlin"))
    assert [entry.slot_at(autumn + hour * HOUR_S) for hour in (1.0, 2.0, 3.0, 4.0)] == [1, 2, 2, 3]
    assert [entry.slot_at(spring + hour * HOUR_S) for hour in (1.0, 2.0, 3.0)] == [1, 3, 4]


@pytest.mark.parametrize("calendar", list(Calendar))
def test_slots_are_those_of_the_models(calendar: Calendar) -> None:
    instances = np.arange(-30, 24 * 15)
    expected = slot_of_instance(instances, calendar, HOUR_S).tolist()
    assert [slot_of(int(each), calendar, 24) for each in instances] == expected


def test_days_that_a_declared_demand_stands_for_have_its_frequencies() -> None:
    days = made_days((SlotDemand((0.5, 0.25, 0.0, 0.25), 40), SlotDemand((0.0, 1.0), 40)))
    assert days.shape == (40, 2)
    assert np.bincount(days[:, 0]).tolist() == [20, 10, 0, 10]
    assert set(days[:, 1].tolist()) == {1}
    assert np.abs(np.diff(days[:, 0])).max() == 3  # high and low days in turn


def test_the_oldest_days_are_forgotten() -> None:
    days: tuple[Any, ...] = ()
    for instance in range(0, 24 * 100, 24):
        days = with_demand(days, instance, 24, 1)
    assert (len(days), days[0].day, days[-1].day) == (90, 10, 99)


def test_what_is_known_is_stored_as_it_is() -> None:
    made = harness()
    shop(made, "a", terms(1, 2))
    made.demand("a-site", 5)
    for hour in range(1, 4):
        made.now_s = hour * HOUR_S
        made.settle()
    record = parts.admission(made.controller).assurance.entries["a"].record()
    assert from_body(to_body(record), AssuranceRecord) == record
    assert record.ledger is not None
    assert len(record.served) > 0


def test_many_slots_that_end_at_once_hold_nobody_up() -> None:
    """Given 120 environments whose slot is over, then they are noted in parts, all in that instant."""
    made = harness()
    shop(made, "a", terms(1, 2))
    assurance = parts.admission(made.controller).assurance
    for number in range(120):
        entry = assurance.entries[f"x{number:03}"] = AssuranceEntry(f"x{number:03}", terms(1, 2))
        entry.begin(made.now_s)
        entry.units = (2, 2, 1)
    made.now_s = HOUR_S
    closed = []
    while assurance.next_due_s() <= made.now_s:
        assurance.due(made.now_s)
        closed.append(sum(bool(entry.days) for entry in assurance.entries.values()))
    assert closed == [50, 100, 121]
