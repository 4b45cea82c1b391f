"""Assurance in the closed loop: environments that announce their demand by a calendar, one of which asks for its peak
all the time. Held to what it has announced it takes nothing that others were promised; without that it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from daemons.values.settings import AssuranceSettings, PolicyChoice
from shared.ports.effects import Effect, Publish
from shared.protocol.messages import Happened
from shared.values.agreement import Agreement, AssuranceTerms, EnvironmentState, WorkloadType
from shared.values.reservation import ServiceClass, Share, SlotDemand
from sim_backend.faults.invariants.environments import stored
from sim_backend.loop.shells import ControllerShell
from tests.simulation.environment_loop import EnvironmentLoop, agreement

SLOT_S, BEGIN_S = 600.0, 60.0
NODES = 6
TURN = 3  # from this slot on the honest environment has its high demand, and the other one its low one
PROMISED = 0.9


def reserved(first: int, then: int, share: Share) -> AssuranceTerms:
    """So many units in the slots before the turn, and so many from there on."""
    slots = [first] * TURN + [then] * (144 - TURN)
    demand = tuple(SlotDemand((*(0.0,) * units, 1.0)) for units in slots)
    return AssuranceTerms((share,), demand, slot_s=SLOT_S)


def environments() -> list[Agreement]:
    """The misbehaving one is the oldest, and asks first."""
    common: dict[str, Any] = {"model": "flb-nub", "lease_s": SLOT_S}
    soft, hard = Share(ServiceClass.PREDICTABLE, None, PROMISED), Share(ServiceClass.GUARANTEED)
    return [
        agreement("bad", WorkloadType.WEB, 0, assurance=reserved(4, 1, soft), **common),
        agreement("good", WorkloadType.WEB, 0, assurance=reserved(1, 4, soft), **common),
        agreement("calm", WorkloadType.WEB, 0, assurance=reserved(1, 1, hard), **common),
    ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run. theta: by environment the mean over the slots after the turn of what it was served."""

    loop: EnvironmentLoop
    theta: dict[str, float]
    events: dict[str, list[str]]


def run(slots: int, **settings: Any) -> Outcome:
    """A run of so many slots."""
    how = AssuranceSettings(**settings)
    loop = EnvironmentLoop(NODES, environments(), BEGIN_S, SLOT_S, admission=PolicyChoice("statistical"), assurance=how)
    events: dict[str, list[str]] = {}

    (controller,) = loop.controllers.values()
    checks = controller.on_effect
    assert checks is not None

    def on_effect(shell: ControllerShell, effect: Effect) -> None:
        checks(shell, effect)
        if isinstance(effect, Publish) and isinstance(effect.message, Happened):
            events.setdefault(effect.message.what, []).append(effect.message.subject)

    controller.on_effect = on_effect
    loop.load([(0.0, 4)], "bad", "bad-site")
    loop.load([(0.0, 1), (TURN * SLOT_S, 4)], "good", "good-site")
    loop.load([(0.0, 1)], "calm", "calm-site")
    loop.run_until(slots * SLOT_S + 1.0)
    assert loop.checker.violations == []
    kept = stored(loop, "assurance", loop.agreements)
    theta = {name: later(record) for name, record in kept.items()}
    return Outcome(loop, theta, events)


def later(record: Any) -> float:
    """The mean over the slots from the second after the turn on: instances take their time to start."""
    rows = [each.mean for each in record.served if each.layer == 1 and each.slot > TURN + 1]
    return float(sum(rows) / len(rows))


@pytest.fixture(scope="module")
def policed() -> Outcome:
    return run(10)


@pytest.mark.full
def test_all_are_let_in_and_serve(policed: Outcome) -> None:
    found = stored(policed.loop, "environment", policed.loop.agreements)
    assert {record.state for record in found.values()} == {EnvironmentState.RUNNING}


def test_who_keeps_to_what_it_has_announced_keeps_its_assurance(policed: Outcome) -> None:
    assert policed.theta["good"] >= PROMISED
    assert policed.theta["calm"] == pytest.approx(1.0)
    assert "good" not in policed.events.get("assurance-missed", [])
    assert policed.loop.observations[-1].sizes == {"bad": 1, "good": 4, "calm": 1}


def test_who_asks_for_more_is_told_why_it_gets_no_more(policed: Outcome) -> None:
    record = stored(policed.loop, "assurance", policed.loop.agreements)["bad"]
    assert set(policed.events["request-policed"]) == {"bad"}
    assert set(policed.events["units-reclaimed"]) == {"bad"}
    last = record.policed[-1]
    assert (last.requested, last.entitled, last.surplus, last.reason) == (2, 1, 1, "beyond-peak")  # one more each time


@pytest.mark.full
def test_without_policing_others_lose_what_they_were_promised() -> None:
    free = run(16, police=False)
    assert free.theta["good"] < 0.6
    assert "good" in free.events["assurance-missed"]
    assert free.loop.observations[-1].sizes["bad"] == 4


@pytest.mark.full
def test_on_the_next_day_everybody_is_entitled_to_what_was_announced_again() -> None:
    """Given a day and the first slots of the next, then the misbehaving one may have its peak when it is announced, and
    the honest one has been served all day."""
    day = 144
    outcome = run(day + TURN)
    record = stored(outcome.loop, "assurance", outcome.loop.agreements)
    assert outcome.theta["good"] >= PROMISED
    assert outcome.theta["calm"] == pytest.approx(1.0)
    assert outcome.loop.observations[-1].sizes["bad"] == 4
    assert [each.asked[0] >= 1 for each in record["good"].days] == [True, True]
    assert max(record["good"].days[0].asked) == 4
    assert "good" not in outcome.events.get("assurance-missed", [])
