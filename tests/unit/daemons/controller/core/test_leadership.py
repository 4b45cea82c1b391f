"""A new leader, what came in before it led (dealt with in order, a few questions a turn, each once), and its probes."""

from __future__ import annotations

from itertools import count

import pytest

from daemons.controller.core.controller import READS_A_TURN, Controller
from daemons.controller.core.leadership import Leadership, Role
from daemons.values.settings import ControllerSettings
from shared.ports import effects as fx
from shared.protocol.messages import Message, Probe, Reply
from shared.protocol.operator_messages import AddNode, CancelJob, Query, RepairNode, SubmitJob
from tests.support.controller_harness import job


class Leader:
    """A controller that is fed by hand. `replies` are its answers, `a_turn` how many came of each input."""

    def __init__(self) -> None:
        self.core = Controller("a", ControllerSettings())
        self.replies: list[Reply] = []
        self.a_turn: list[int] = []
        self.acknowledged: set[int] = set()
        self.deliveries = count(1)
        self.timers: set[str] = set()

    def say(self, message: Message, reply_to: str = "reply.operator.ann") -> None:
        self.feed(fx.Received(next(self.deliveries), "operator.ann", message, reply_to))

    def feed(self, event: fx.Input) -> None:
        before = len(self.replies)
        for effect in self.core.handle(event, 0.0):
            self._carry(effect)
        self.a_turn.append(len(self.replies) - before)

    def turn(self) -> None:
        """Fire what is due once."""
        due, self.timers = self.timers, set()
        for name in sorted(due):
            self.feed(fx.TimerFired(name))

    def _carry(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Publish(message=Reply() as reply):
                self.replies.append(reply)
            case fx.Acknowledge():
                self.acknowledged.add(effect.delivery)
            case fx.StartTimer() if effect.at_s <= 0.0:
                self.timers.add(effect.name)
            case fx.Write():
                self.feed(fx.Written(effect.write_id, True))


def test_what_waited_is_answered_a_few_a_turn_and_each_once() -> None:
    """Given 150 requests for 50 views that came before the lead was taken, all of them sent three times, when it is
    taken, then that turn answers none of them, each later one a few, each view once, and every delivery is
    acknowledged."""
    leader = Leader()
    for _ in range(3):
        for number in range(50):
            leader.say(Query(f"q{number}", "status"))
    assert not leader.replies

    leader.feed(fx.LeadTaken(1, ()))
    assert not leader.replies
    while leader.timers:
        leader.turn()

    assert sorted(reply.request for reply in leader.replies) == sorted(f"q{number}" for number in range(50))
    assert all(reply.done for reply in leader.replies)
    assert max(leader.a_turn) == READS_A_TURN
    assert leader.acknowledged == set(range(1, 151))


def test_what_comes_while_others_wait_stays_behind_them() -> None:
    """Given a job that is submitted and cancelled among many questions, when another question comes in the middle, then
    everything happens in the order in which it was asked for."""
    leader = Leader()
    leader.say(SubmitJob("submit", job("j")))
    for number in range(3 * READS_A_TURN):
        leader.say(Query(f"q{number}", "status"))
    leader.say(CancelJob("cancel", "j"))
    leader.feed(fx.LeadTaken(1, ()))
    leader.turn()
    leader.say(Query("last", "job", "j"))
    while leader.timers:
        leader.turn()

    order = [reply.request for reply in leader.replies]
    assert order.index("submit") < order.index("cancel")
    assert leader.replies[-1].request == "last" or order.index("last") > order.index(f"q{3 * READS_A_TURN - 1}")
    assert next(reply for reply in leader.replies if reply.request == "last").data["job"]["phase"] == "cancelled"


def test_of_the_same_request_the_newest_delivery_counts_and_others_of_its_id_are_others() -> None:
    """Given a request that was delivered again after a lost connection, then it is the later delivery that waits, in
    the place of the first; another request, or another asker, with the same id is told by itself."""
    leader = Leader()
    leader.say(AddNode("r", "n1"))
    leader.say(AddNode("r", "n1"))
    assert leader.acknowledged == {1}
    leader.say(RepairNode("r", "n1"))
    leader.say(AddNode("r", "n1"), reply_to="reply.operator.ann.2")
    leader.feed(fx.LeadTaken(1, ()))
    while leader.timers:
        leader.turn()

    assert sorted(reply.code for reply in leader.replies) == ["", "", "not-failed"]
    assert leader.acknowledged == {1, 2, 3, 4}


# --- probes ----------------------------------------------------------------------------------------------------------


def leading() -> Leadership:
    """One that leads since 0 s and has heard its probe at 2 s; its period is 2 s."""
    lead = Leadership("a", 2.0)
    lead.probe(0.0)
    assert lead.taken(fx.LeadTaken(1), 0.0)
    lead.probe(2.0)
    hear(lead, 2.0)
    return lead


def hear(lead: Leadership, at_s: float) -> None:
    lead.returned(fx.Received(None, "controller.a", Probe("a", 1)), Probe("a", 1), at_s)


def ends(lead: Leadership, at_s: float) -> bool:
    return any(isinstance(effect, fx.Exit) for effect in lead.probe(at_s))


def test_a_leader_that_had_no_turn_reads_before_it_judges() -> None:
    """Given a leader whose timer comes a minute late, then it goes on, and by the probe that it reads then."""
    lead = leading()
    assert not ends(lead, 62.0)
    hear(lead, 62.5)

    assert not any(ends(lead, at_s) for at_s in (64.0, 66.0, 68.0))
    assert lead.role is Role.LEADING


@pytest.mark.parametrize("late_s", [0.0, 1.9, 60.0])
def test_a_leader_whose_probes_stay_away_ends_however_late_its_timers_are(late_s: float) -> None:
    """Given that none comes back any more, then it ends after some periods in which it had a turn."""
    lead = leading()

    assert any(ends(lead, 2.0 + turn * (2.0 + late_s)) for turn in (1, 2, 3, 4))
