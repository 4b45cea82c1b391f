"""Every fault of the in-process bus does what its rule says, when it says so, and is repeated from its seed."""

from __future__ import annotations

import pytest

from shared.base.errors import BusUnavailable, InvalidValue
from shared.ports.bus import BusEvent, Confirm, Delivery, Lost
from shared.protocol.topology import (
    ACTIONS,
    CONTROLLER,
    CONTROLLER_QUEUE,
    REPORTS,
    RESULTS,
    agent_queue,
    report_key,
    report_queue,
)
from sim_backend.bus.faults import BusFaults, FaultKind, FaultRule, Partition
from sim_backend.bus.memory import MemoryBroker, MemoryConnection

QUEUE = agent_queue("n1")


class Run:
    """A controller that publishes actions and an agent that acknowledges them; `log` has what happened and when."""

    def __init__(self, plan: BusFaults) -> None:
        self.broker = MemoryBroker(faults=plan)
        self.controller = self.broker.connect("controller.a")
        self.controller.declare(QUEUE)
        self.agent = self.broker.connect("agent.n1")
        self.agent.consume(QUEUE.name, 100)
        self.log: list[tuple[float, str]] = []

    def send(self, *bodies: str, confirmed: bool = False) -> None:
        """Publish; a confirmed one has its number as id."""
        for body in bodies:
            self.controller.publish(ACTIONS, "n1", body.encode(), int(body) if confirmed else None)

    def until(self, end_s: float) -> list[tuple[float, str]]:
        """Hand out everything up to `end_s`; returns what is new in the log."""
        start = len(self.log)
        while (due_s := self.broker.next_due_s()) is not None and due_s <= end_s:
            handed = self.broker.step(due_s)
            if handed is not None:
                self._note(*handed)
        self.broker.advance(end_s)
        return self.log[start:]

    def _note(self, connection: MemoryConnection, event: BusEvent) -> None:
        match event:
            case Delivery():
                connection.acknowledge(event.tag)
                what = event.body.decode()
            case Confirm():
                what = f"{event.publish_id} {'taken' if event.ok else 'refused'}"
            case Lost():
                what = f"{connection.user} lost"
        self.log.append((round(self.broker.now_s, 6), what))


def rules(*wanted: FaultRule, seed: int = 1, confirm_timeout_s: float = 5.0) -> BusFaults:
    """A plan of rules alone."""
    return BusFaults(seed=seed, rules=wanted, confirm_timeout_s=confirm_timeout_s)


def test_drop_vanishes_without_an_id() -> None:
    """Nobody hears of it."""
    run = Run(rules(FaultRule(FaultKind.DROP, count=1)))
    run.send("1", "2")
    assert run.until(60.0) == [(0.0, "2")]
    assert run.broker.fault_counts == {FaultKind.DROP: 1}


def test_drop_is_never_confirmed() -> None:
    """The publisher hears no after its time limit, once."""
    run = Run(rules(FaultRule(FaultKind.DROP, count=1), confirm_timeout_s=3.0))
    run.send("1", "2", confirmed=True)
    assert sorted(run.until(2.9)) == [(0.0, "2"), (0.0, "2 taken")]
    assert run.until(60.0) == [(3.0, "1 refused")]


def test_lost_confirm_leaves_the_message() -> None:
    """The message is there and its publisher thinks that it is not."""
    run = Run(rules(FaultRule(FaultKind.LOSE_CONFIRM, count=1)))
    run.send("1", confirmed=True)
    assert run.until(60.0) == [(0.0, "1"), (5.0, "1 refused")]
    assert run.broker.fault_counts == {FaultKind.LOSE_CONFIRM: 1}


def test_delay_holds_what_follows() -> None:
    """A delayed message keeps its place; the confirm comes when the message is there."""
    run = Run(rules(FaultRule(FaultKind.DELAY, count=1, delay_s=(2.0, 2.0))))
    run.send("1", confirmed=True)
    run.send("2")
    assert run.until(1.9) == []
    assert run.broker.next_due_s() == 2.0
    assert [what for _, what in run.until(60.0)] in (
        ["1", "1 taken", "2"],
        ["1 taken", "1", "2"],
        ["1", "2", "1 taken"],
    )
    assert {at_s for at_s, _ in run.log} == {2.0}


def test_delay_holds_only_its_own_line() -> None:
    """Another publisher's messages and other queues are not held."""
    run = Run(rules(FaultRule(FaultKind.DELAY, user="controller.a", routing_key="n1", delay_s=(2.0, 2.0))))
    other = run.broker.connect("controller.b")
    run.send("1")
    other.publish(ACTIONS, "n1", b"2")
    assert run.until(60.0) == [(0.0, "2"), (2.0, "1")]


def test_reorder_lets_others_pass() -> None:
    """A held message comes after those sent later."""
    run = Run(rules(FaultRule(FaultKind.REORDER, count=1, delay_s=(2.0, 2.0))))
    run.send("1", "2", "3")
    assert run.until(60.0) == [(0.0, "2"), (0.0, "3"), (2.0, "1")]


@pytest.mark.parametrize(("delay_s", "log"), [(0.0, ["1", "1", "2"]), (2.0, ["1", "2", "1"])])
def test_duplicate_comes_twice(delay_s: float, log: list[str]) -> None:
    """The copy comes right behind or later, not marked redelivered, and there is one confirm."""
    run = Run(rules(FaultRule(FaultKind.DUPLICATE, count=1, delay_s=(delay_s, delay_s))))
    run.send("1", "2")
    assert [what for _, what in run.until(60.0)] == log
    assert run.log[-1][0] == delay_s


def test_copies_of_one_message_are_dealt_with_apart() -> None:
    """Giving one copy back does not mark the other."""
    run = Run(rules(FaultRule(FaultKind.DUPLICATE, count=1)))
    run.send("1")
    handed = run.broker.step(0.0)
    assert handed is not None
    run.agent.kill()
    heir = run.broker.connect("agent.n1")
    heir.consume(QUEUE.name, 10)
    assert [event.redelivered for event in heir.poll() if isinstance(event, Delivery)] == [True, False]


@pytest.mark.parametrize(
    ("rule", "arrived"),
    [
        (FaultRule(FaultKind.DROP, exchange=RESULTS), "1234"),
        (FaultRule(FaultKind.DROP, exchange=ACTIONS), ""),
        (FaultRule(FaultKind.DROP, routing_key="n2"), "1234"),
        (FaultRule(FaultKind.DROP, user="agent.*"), "1234"),
        (FaultRule(FaultKind.DROP, user="controller.*"), ""),
        (FaultRule(FaultKind.DROP, count=3), "4"),
        (FaultRule(FaultKind.DROP, from_s=1.0, until_s=3.0), "14"),
        (FaultRule(FaultKind.DROP, probability=0.0), "1234"),
    ],
)
def test_a_rule_hits_only_what_it_names(rule: FaultRule, arrived: str) -> None:
    """Messages 1 to 4 are sent at 0 to 3 s."""
    run = Run(rules(rule))
    for second in range(4):
        run.send(str(second + 1))
        run.until(float(second + 1))
    assert "".join(what for _, what in run.log) == arrived


def test_probability_is_about_right() -> None:
    """A rule of 30 % hits about 30 % of 2000."""
    run = Run(rules(FaultRule(FaultKind.DROP, probability=0.3)))
    run.send(*map(str, range(2000)))
    assert len(run.until(1.0)) == 2000 - run.broker.fault_counts[FaultKind.DROP]
    assert 500 < run.broker.fault_counts[FaultKind.DROP] < 700


@pytest.mark.parametrize("latency_s", [(0.5, 0.5), (0.0, 3.0)])
def test_latency_keeps_the_order(latency_s: tuple[float, float]) -> None:
    """However long each takes, one publisher's messages stay in line and within the bounds."""
    run = Run(BusFaults(seed=3, latency_s=latency_s))
    bodies = [str(i) for i in range(50)]
    run.send(*bodies)
    assert [what for _, what in run.until(10.0)] == bodies
    assert all(latency_s[0] <= at_s <= latency_s[1] for at_s, _ in run.log)


def chaos(seed: int) -> Run:
    """Every kind of fault at once, on 100 confirmed publishes."""
    kinds = (FaultKind.DROP, FaultKind.DELAY, FaultKind.DUPLICATE, FaultKind.REORDER, FaultKind.LOSE_CONFIRM)
    each = tuple(FaultRule(kind, probability=0.2, delay_s=(0.0, 4.0)) for kind in kinds)
    run = Run(BusFaults(seed, each, (Partition(("agent.*",), 30.0, 60.0),), (0.01, 0.1)))
    for i in range(100):
        run.send(str(i), confirmed=True)
        run.until(i * 0.5)
    run.until(1000.0)
    return run


def test_same_seed_same_run() -> None:
    """A run is its seed; another seed is another run; each kind of fault is counted."""
    first, again = chaos(11), chaos(11)
    assert (first.log, first.broker.fault_counts) == (again.log, again.broker.fault_counts)
    assert chaos(12).log != first.log
    assert set(first.broker.fault_counts) == set(FaultKind)


def test_confirms_are_honest_under_every_fault() -> None:
    """Each publish is answered once; what was taken has been delivered or waits; what was dropped was refused."""
    run = chaos(5)
    answers = dict(what.split() for _, what in run.log if what.endswith(("taken", "refused")))
    assert sorted(map(int, answers)) == list(range(100))
    heir = run.broker.connect("agent.n1")
    heir.consume(QUEUE.name, 1000)
    arrived = {what for _, what in run.log} | {event.body.decode() for event in heir.poll() if type(event) is Delivery}
    counts = run.broker.fault_counts
    assert {body for body, answer in answers.items() if answer == "taken"} <= arrived
    assert sum(body not in arrived for body in answers) == counts[FaultKind.DROP]


def partition(users: str, from_s: float, until_s: float, heartbeat_s: float = 20.0) -> BusFaults:
    """A plan with one partition."""
    return BusFaults(partitions=(Partition((users,), from_s, until_s),), heartbeat_s=heartbeat_s)


def test_partition_refuses_the_publisher() -> None:
    """What it sends is not taken: refused after its time limit when asked, else gone."""
    run = Run(partition("controller.*", 10.0, 20.0))
    run.until(10.0)
    run.send("1", confirmed=True)
    run.send("2")
    assert run.until(19.9) == [(15.0, "1 refused")]
    run.send("3", confirmed=True)
    assert run.until(60.0) == [(20.0, "3 refused"), (20.0, "controller.a lost")]
    assert run.broker.fault_counts == {FaultKind.PARTITION: 4}


def test_partition_keeps_deliveries_in_the_queue() -> None:
    """What is meant for the one cut off waits until it is back, unmarked, for it was never delivered."""
    run = Run(partition("agent.n1", 10.0, 100.0))
    run.until(10.0)
    run.send("1", confirmed=True)
    assert run.until(99.0) == [(10.0, "1 taken"), (30.0, "agent.n1 lost")]
    with pytest.raises(BusUnavailable):
        run.broker.connect("agent.n1")
    with pytest.raises(BusUnavailable):
        run.agent.publish(RESULTS, CONTROLLER_QUEUE, b"")
    run.until(100.0)
    back = run.broker.connect("agent.n1")
    back.consume(QUEUE.name, 10)
    (delivery,) = back.poll()
    assert isinstance(delivery, Delivery)
    assert (delivery.body, delivery.redelivered) == (b"1", False)


def test_partition_loses_acknowledgements() -> None:
    """What was delivered before and acknowledged during a partition comes again, marked."""
    run = Run(partition("agent.n1", 10.0, 12.0))
    run.send("1")
    handed = run.broker.step(1.0)
    assert handed is not None
    assert isinstance(handed[1], Delivery)
    run.until(11.0)
    run.agent.acknowledge(handed[1].tag)
    run.agent.dead_letter(handed[1].tag, "lost too")
    with pytest.raises(BusUnavailable):
        run.agent.declare(QUEUE)
    assert run.until(20.0) == [(12.0, "agent.n1 lost")]
    assert run.broker.depth(QUEUE.name) == 1
    assert run.broker.dead_letters() == ()
    back = run.broker.connect("agent.n1")
    back.consume(QUEUE.name, 10)
    (delivery,) = back.poll()
    assert isinstance(delivery, Delivery)
    assert (delivery.body, delivery.redelivered) == (b"1", True)


def test_partition_hides_a_confirm_on_its_way() -> None:
    """A confirm that comes during the partition is never heard."""
    plan = BusFaults(latency_s=(2.0, 2.0), partitions=(Partition(("controller.a",), 1.0, 50.0),))
    run = Run(plan)
    run.send("1", confirmed=True)
    assert run.until(60.0) == [(2.0, "1"), (21.0, "controller.a lost")]


def test_partition_hands_the_lead_over() -> None:
    """The next consumer of a single-active queue takes over when the first is given up, with what it held."""
    broker = MemoryBroker(faults=partition("controller.a", 10.0, 100.0, heartbeat_s=20.0))
    first, second = broker.connect("controller.a"), broker.connect("controller.b")
    for controller in (first, second):
        controller.declare(CONTROLLER)
        controller.consume(CONTROLLER_QUEUE, 10)
    agent = broker.connect("agent.n1")
    agent.publish(RESULTS, CONTROLLER_QUEUE, b"held")
    assert len(first.poll()) == 1
    broker.advance(15.0)
    agent.publish(RESULTS, CONTROLLER_QUEUE, b"waiting")
    assert (first.poll(), second.poll()) == ([], [])
    broker.advance(30.0)
    got = [(event.body, event.redelivered) for event in second.poll() if isinstance(event, Delivery)]
    assert got == [(b"held", True), (b"waiting", False)]
    assert [type(event) for event in first.poll()] == [Lost]


def test_partition_lets_reports_expire() -> None:
    """Reports for a controller that is cut off grow old in its queue and are dropped."""
    broker = MemoryBroker(faults=partition("controller.a", 10.0, 100.0, heartbeat_s=60.0))
    controller = broker.connect("controller.a")
    controller.declare(report_queue("a"))
    controller.consume(report_queue("a").name, 1, acknowledged=False)
    broker.advance(10.0)
    broker.connect("agent.n1").publish(REPORTS, report_key("n1"), b"report")
    assert broker.depth(report_queue("a").name) == 1
    broker.advance(25.0)
    assert broker.depth(report_queue("a").name) == 0
    assert broker.dropped(report_queue("a").name) == 1
    assert controller.poll() == []


def test_a_partition_in_progress_at_the_start_counts() -> None:
    """The first instant is part of the partition, its last is not."""
    broker = MemoryBroker(start_s=5.0, faults=partition("agent.#", 5.0, 6.0))
    with pytest.raises(BusUnavailable):
        broker.connect("agent.n1")
    assert broker.connect("controller.a").user == "controller.a"
    broker.advance(6.0)
    assert broker.connect("agent.n1").user == "agent.n1"


def test_restart_loses_what_is_on_its_way() -> None:
    """A message in flight is lost and its publish is never confirmed."""
    run = Run(BusFaults(latency_s=(1.0, 1.0)))
    run.send("1", confirmed=True)
    run.broker.restart()
    assert sorted(run.until(60.0)) == [(0.0, "agent.n1 lost"), (0.0, "controller.a lost")]
    assert run.broker.depth(QUEUE.name) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: FaultRule(FaultKind.PARTITION),
        lambda: FaultRule(FaultKind.DROP, probability=1.5),
        lambda: FaultRule(FaultKind.DELAY, delay_s=(2.0, 1.0)),
        lambda: FaultRule(FaultKind.DELAY, delay_s=(float("nan"), 1.0)),
        lambda: Partition(("#",), 5.0, 5.0),
        lambda: BusFaults(latency_s=(-1.0, 0.0)),
        lambda: BusFaults(confirm_timeout_s=-1.0),
        lambda: BusFaults(heartbeat_s=float("nan")),
    ],
)
def test_impossible_plans_are_refused(make: object) -> None:
    """A plan says what it cannot mean."""
    assert callable(make)
    with pytest.raises(InvalidValue):
        make()
