"""Missing tables are computed beside the decisions, one request at a time, and bring a new decision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daemons.controller.contract.computations import Computations
from daemons.controller.decide.table_requests import AGAIN_S, KEPT, LIMIT_S, TableRequests
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.decision.pipeline import Prepared, Spec
from daemons.models.deadline.breaches import BreachSpec
from daemons.models.deadline.problem import DeadlineProblem
from daemons.models.deadline.rules import TableSpec
from shared.ports.effects import Compute, Computed, Publish
from shared.protocol.messages import Happened

PROBLEM = DeadlineProblem(
    np.zeros((3, 1)), 0.5, 1, servers_max=2, confidence=0.9, price=np.ones(3), removal_price=np.ones(3)
)
A, B = TableSpec("threshold", PROBLEM), BreachSpec(PROBLEM)


class Rig:
    """Keeps what was asked for."""

    def __init__(self) -> None:
        self.unit_of_work = UnitOfWork()
        self.computations = Computations(self.unit_of_work)
        self.preparing = TableRequests(self.unit_of_work, self.computations)

    @property
    def asked(self) -> list[tuple[tuple[Spec, ...], float]]:
        computes = [effect for effect in self.unit_of_work.effects if isinstance(effect, Compute)]
        return [(effect.request.specs, effect.limit_s) for effect in computes]

    def answer(self, answer: Prepared | None, now_s: float, error: str = "") -> None:
        """Answer the last request."""
        self.computations.answer(Computed(len(self.asked), answer, error), now_s)

    @property
    def events(self) -> list[str]:
        messages = [effect.message for effect in self.unit_of_work.effects if isinstance(effect, Publish)]
        return [message.what for message in messages if isinstance(message, Happened)]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_what_was_missing_is_asked_for_and_then_decided_on(rig: Rig) -> None:
    rig.preparing.lacked((A, B, A), 10.0)
    assert rig.asked == [((A, B), LIMIT_S)]
    assert rig.preparing.in_progress
    rig.computations.answer(Computed(55, Prepared(2)), 20.0)
    assert rig.preparing.in_progress
    rig.answer(Prepared(2), 20.0)
    assert (rig.unit_of_work.place, rig.unit_of_work.cycle) == (True, True)
    assert rig.events == ["tables-missing", "tables-ready"]


def test_one_request_at_a_time(rig: Rig) -> None:
    rig.preparing.lacked((A,), 10.0)
    rig.preparing.lacked((B,), 11.0)
    assert len(rig.asked) == 1
    rig.answer(Prepared(1), 20.0)
    rig.preparing.lacked((B,), 21.0)
    assert [specs for specs, _ in rig.asked] == [(A,), (B,)]


def test_nothing_missing_is_nothing_asked(rig: Rig) -> None:
    rig.preparing.lacked((), 10.0)
    assert (rig.asked, rig.events) == ([], [])


@pytest.mark.parametrize("answer", [None, Prepared(0, ("too large",))])
def test_what_cannot_be_computed_is_tried_again_an_hour_later(rig: Rig, answer: Prepared | None) -> None:
    """Given a worker that fails, then there is an event, no decision for it, and no second attempt at once."""
    rig.preparing.lacked((A,), 10.0)
    rig.answer(answer, 20.0, "out of time")
    assert rig.events == ["tables-missing", "tables-failed"]
    assert not rig.unit_of_work.cycle
    rig.preparing.lacked((A,), 30.0)
    assert len(rig.asked) == 1
    rig.preparing.lacked((A, B), 40.0)
    assert rig.asked[1][0] == (B,)
    rig.answer(Prepared(1), 50.0)
    rig.preparing.lacked((A,), 10.0 + AGAIN_S)
    assert rig.asked[2][0] == (A,)


def test_a_clock_that_goes_back_does_not_stop_it(rig: Rig) -> None:
    rig.preparing.lacked((A,), 1e6)
    rig.answer(Prepared(0, ("no",)), 1e6)
    rig.preparing.lacked((A,), 10.0)
    assert len(rig.asked) == 2


def test_what_was_asked_for_is_not_remembered_for_ever(rig: Rig) -> None:
    for at in range(KEPT + 50):
        rig.preparing.lacked((TableSpec("threshold", replace(PROBLEM, penalty=float(at))),), 1.0)
        rig.answer(Prepared(1), 1.0)
    assert len(rig.asked) == KEPT + 50
    rig.preparing.lacked((TableSpec("threshold", replace(PROBLEM, penalty=0.0)),), 2.0)
    assert len(rig.asked) == KEPT + 51
