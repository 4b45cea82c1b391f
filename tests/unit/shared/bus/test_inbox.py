"""What waits of a connection: in turn by sender, within each one's share, bounded in bytes."""

from __future__ import annotations

import threading
from collections import Counter

from shared.base.clock import ManualClock
from shared.bus.inbox import BYTES_MAX, TAKE_BYTES_MAX, TAKE_MAX, Inbox, unfit
from shared.ports.bus import BusEvent, Confirm, Delivery, Discarded, Lost
from shared.protocol.dead_letter import BURIED_PER_MINUTE_MAX, Burials
from shared.protocol.shares import AGENT, BURST_S, OVER_MAX, USER, share_of
from shared.protocol.topology import BODY_BYTES_MAX

TOM = "user.tom"


class Harness:
    """An inbox on a clock of its own, and what it refused."""

    def __init__(self) -> None:
        self.clock = ManualClock(100.0)
        self.refused: list[Delivery] = []
        self.inbox = Inbox(self.clock.now_s, self.refused.append)
        self._tag = 0

    def send(self, sender: str, count: int = 1, body: bytes = b"", loose: bool = False) -> None:
        for _ in range(count):
            self._tag += 1
            self.inbox.put_delivery(delivery(self._tag, body, sender), loose)

    def take_all(self) -> list[BusEvent]:
        found: list[BusEvent] = []
        while events := self.inbox.take():
            found += events
        return found

    def served(self) -> Counter[str]:
        return Counter(event.sender for event in self.take_all() if isinstance(event, Delivery))


def delivery(tag: int, body: bytes = b"", sender: str = "agent.n1") -> Delivery:
    return Delivery(tag, "queue", "key", sender=sender, body=body)


def test_what_is_not_fit_to_be_handed_out() -> None:
    """Too large for its sender's role, or from nobody; this is said without reading it."""
    assert unfit(delivery(1)) == ""
    assert unfit(delivery(1, sender="")) == "no user id"
    assert unfit(delivery(1, bytes(BODY_BYTES_MAX), "controller.a")) == ""
    for sender in ("controller.a", "agent.n1", TOM, "owner.kim", "web.shop", "nobody", "operator"):
        most = share_of(sender).body_bytes_max
        assert unfit(delivery(1, bytes(most), sender)) == ""
        assert unfit(delivery(1, bytes(most + 1), sender)).startswith(f"{most + 1} bytes, expected at most {most}")


def test_each_sender_has_its_turn_and_controllers_come_first() -> None:
    harness = Harness()
    harness.send("agent.n1", 50)
    harness.send("agent.n2", 2)
    harness.send("controller.a")

    taken = [event.sender for event in harness.inbox.take() if isinstance(event, Delivery)]

    assert taken[:5] == ["controller.a", "agent.n1", "agent.n2", "agent.n1", "agent.n2"]
    assert len(taken) == 53


def test_no_more_than_a_batch_is_taken_at_once_in_count_and_in_bytes() -> None:
    harness = Harness()
    harness.send("agent.n1", TAKE_MAX + 1)
    assert len(harness.inbox.take()) == TAKE_MAX
    assert len(harness.inbox.take()) == 1
    harness.send("agent.n1", 3, bytes(TAKE_BYTES_MAX))
    assert [len(harness.inbox.take()) for _ in range(4)] == [1, 1, 1, 0]


def test_reports_of_many_are_handed_out_in_batches_as_they_came() -> None:
    """One of each sender at a time; nobody waits for a second one of another."""
    harness = Harness()
    agents = [f"agent.n{number}" for number in range(3 * TAKE_MAX)]
    for agent in agents:
        harness.send(agent, loose=True)
    batches = [harness.inbox.take() for _ in range(4)]
    assert [len(batch) for batch in batches] == [TAKE_MAX, TAKE_MAX, TAKE_MAX, 0]
    assert [event.sender for batch in batches for event in batch if isinstance(event, Delivery)] == agents
    harness.send(TOM, 3, loose=True)
    harness.send("agent.n1", loose=True)
    senders = [event.sender for event in harness.inbox.take() if isinstance(event, Delivery)]
    assert senders == [TOM, "agent.n1", TOM, TOM]


def test_a_controller_does_not_wait_for_reports_that_came_before() -> None:
    harness = Harness()
    for number in range(5 * TAKE_MAX):
        harness.send(f"agent.n{number}", loose=True)
    harness.inbox.take()
    harness.send("controller.b")
    assert isinstance(first := harness.inbox.take()[0], Delivery)
    assert first.sender == "controller.b"
    assert sum(harness.served().values()) == 4 * TAKE_MAX - TAKE_MAX + 1


def test_the_end_is_told_after_all_that_came_before() -> None:
    harness = Harness()
    for number in range(2 * TAKE_MAX):
        harness.send(f"agent.n{number}", loose=True)
    harness.inbox.put(Lost("cut"))
    assert [type(event) for event in harness.take_all()] == [Delivery] * 2 * TAKE_MAX + [Lost]


def test_the_newest_reports_of_a_sender_stay_and_no_others_are_lost_for_them() -> None:
    harness = Harness()
    harness.send("agent.n2", loose=True)
    harness.send("agent.n1", AGENT.waiting_max + 7, loose=True)
    harness.inbox.put(Confirm(1, True))
    harness.inbox.put(Lost("gone"))

    events = harness.take_all()

    tags = [event.tag for event in events if isinstance(event, Delivery) and event.sender == "agent.n1"]
    assert tags == list(range(9, AGENT.waiting_max + 9))
    assert [event.tag for event in events if isinstance(event, Delivery) and event.sender == "agent.n2"] == [1]
    assert Confirm(1, True) in events
    assert events[-1] == Lost("gone")
    assert len(harness.refused) == 7


def test_who_sends_too_much_is_served_at_its_own_pace_and_named() -> None:
    """Given 5,000 questions at once, when a second passes again and again, then what its share allows is served, the
    rest is refused and told of once a second, and another's question waits for none of it."""
    harness = Harness()
    burst = int(BURST_S * USER.per_s)
    discarded: list[Discarded] = []
    served = 0
    for _ in range(20):
        harness.send(TOM, 5_000)
        harness.send("operator.ann")
        events = harness.take_all()
        assert "operator.ann" in [event.sender for event in events if isinstance(event, Delivery)][:3]
        served += sum(isinstance(event, Delivery) and event.sender == TOM for event in events)
        discarded += [event for event in events if isinstance(event, Discarded)]
        harness.clock.advance(1.0)
    assert burst <= served <= burst + 21 * USER.per_s + 1
    assert {event.sender for event in discarded} == {TOM}
    assert len(discarded) <= 20
    assert sum(event.count for event in discarded) > 90_000
    assert len(harness.refused) >= 100_000 - served - OVER_MAX - USER.waiting_max


def test_work_counts_towards_a_share() -> None:
    """Who sends what takes long to read is served less often."""
    harness = Harness()
    harness.send("agent.n1", 3)
    harness.send("agent.n2", 3)
    harness.inbox.charge("agent.n1", 2.0)
    assert harness.served() == {"agent.n2": 3}
    harness.clock.advance(2.0 / AGENT.busy_frac)
    assert harness.served() == {"agent.n1": 3}


def test_all_that_waits_is_bounded_in_bytes_and_each_may_have_something() -> None:
    harness = Harness()
    for node in range(200):
        harness.send(f"agent.n{node}", 2, bytes(1 << 20))
    held = 200 + (BYTES_MAX >> 20) // 2
    assert sum(harness.served().values()) <= held
    assert len(harness.refused) >= 400 - held
    harness.send("agent.n1", 20, bytes(1 << 20))
    assert sum(harness.served().values()) <= 5


def test_what_was_just_taken_can_be_found_again() -> None:
    harness = Harness()
    harness.send("agent.n1", 2, loose=True)
    harness.inbox.take()
    assert harness.inbox.find_passed(2) == delivery(2)
    assert harness.inbox.find_passed(3) is None
    harness.inbox.take()
    assert harness.inbox.find_passed(2) is None


def test_a_wait_ends_with_what_comes() -> None:
    """Also when it comes from another thread, and when a share is there again; it does not begin when there is
    something."""
    inbox = Harness().inbox
    later = threading.Timer(0.05, inbox.put, (Confirm(1, True),))
    later.start()
    inbox.wait(30.0)
    assert inbox.take() == [Confirm(1, True)]
    inbox.put(Confirm(2, True))
    inbox.wait(30.0)
    assert inbox.take() == [Confirm(2, True)]
    later.join()


def test_the_dead_letters_of_one_sender_are_so_many_a_minute() -> None:
    burials = Burials()
    kept = [burials.allow("agent.n1", second / 10.0) for second in range(300)]
    assert kept.count(True) == BURIED_PER_MINUTE_MAX
    assert burials.allow("agent.n2", 30.0)
    assert burials.allow("agent.n1", 61.0)
