"""What holds of the in-process bus whatever is done to it, and topic patterns against a naive reading of them."""

from __future__ import annotations

import re
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shared.ports.bus import Delivery
from shared.protocol.topology import ACTIONS, agent_queue
from sim_backend.bus.memory import MemoryBroker, MemoryConnection
from sim_backend.bus.routing import topic_matches
from tests.extent import examples

QUEUE = agent_queue("n1")
WORDS = st.sampled_from(["a", "b", "c"])


@given(
    st.lists(st.one_of(WORDS, st.sampled_from("*#")), min_size=1, max_size=5), st.lists(WORDS, min_size=1, max_size=5)
)
def test_topic_patterns(pattern: list[str], key: list[str]) -> None:
    """A pattern matches as the regular expression that spells it out."""
    spelled = {"*": "[^.]+\\.", "#": "([^.]+\\.)*"}
    expression = "".join(spelled.get(word, re.escape(word) + "\\.") for word in pattern)
    wanted = re.fullmatch(expression, ".".join(key) + ".") is not None
    assert topic_matches(".".join(pattern), ".".join(key)) is wanted


class DurableQueue(RuleBasedStateMachine):
    """One durable queue, two consumers that come, go and die: nothing is lost, nothing acknowledged comes again, and
    what is delivered for the first time comes in order."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = MemoryBroker()
        self.broker.connect("controller.a").declare(QUEUE)
        self.sent = 0
        self.done: set[int] = set()
        self.seen: set[int] = set()
        self.held: dict[MemoryConnection, dict[int, int]] = {}

    @rule(count=st.integers(1, 5))
    def publish(self, count: int) -> None:
        """Send numbered messages."""
        publisher = self.broker.connect("controller.a")
        for _ in range(count):
            publisher.publish(ACTIONS, "n1", b"%d" % self.sent)
            self.sent += 1
        publisher.close()

    @precondition(lambda self: len(self.held) < 2)
    @rule(prefetch=st.integers(1, 4))
    def connect(self, prefetch: int) -> None:
        """A consumer comes."""
        agent = self.broker.connect("agent.n1")
        agent.consume(QUEUE.name, prefetch)
        self.held[agent] = {}

    @rule(which=st.integers(0, 1), count=st.integers(1, 4))
    def take(self, which: int, count: int) -> None:
        """Step, or poll one consumer."""
        if which and self.held:
            agent = next(iter(self.held))
            for event in agent.poll():
                assert isinstance(event, Delivery)
                self._note(agent, event)
        for _ in range(count):
            handed = self.broker.step(self.broker.now_s)
            if handed is not None and isinstance(handed[1], Delivery):
                self._note(handed[0], handed[1])

    @rule(pick=st.randoms(use_true_random=False))
    def acknowledge(self, pick: Random) -> None:
        """Some consumer is done with one of its deliveries."""
        for agent, tags in self.held.items():
            if tags:
                tag = pick.choice(sorted(tags))
                agent.acknowledge(tag)
                self.done.add(tags.pop(tag))

    @precondition(lambda self: self.held)
    @rule(last=st.booleans())
    def die(self, last: bool) -> None:
        """A consumer dies; the other has room for what it held."""
        agent = list(self.held)[-1 if last else 0]
        del self.held[agent]
        agent.kill()

    @rule()
    def restart(self) -> None:
        """The broker restarts."""
        self.broker.restart()
        self.held.clear()

    @invariant()
    def nothing_is_lost(self) -> None:
        """Each message waits, is held by one consumer or is done."""
        held = [number for tags in self.held.values() for number in tags.values()]
        assert len(held) == len(set(held))
        assert self.broker.depth(QUEUE.name) + len(held) + len(self.done) == self.sent

    def teardown(self) -> None:
        """A last consumer gets, in order, all that is not done."""
        self.broker.restart()
        agent = self.broker.connect("agent.n1")
        agent.consume(QUEUE.name, self.sent + 1)
        got = [(int(event.body), event.redelivered) for event in agent.poll() if isinstance(event, Delivery)]
        assert got == [(number, number in self.seen) for number in range(self.sent) if number not in self.done]

    def _note(self, agent: MemoryConnection, delivery: Delivery) -> None:
        number = int(delivery.body)
        assert number not in self.done
        assert delivery.redelivered is (number in self.seen)
        if not delivery.redelivered:
            assert number == len(self.seen)
        self.seen.add(number)
        self.held[agent][delivery.tag] = number


TestDurableQueue = DurableQueue.TestCase
TestDurableQueue.settings = settings(max_examples=examples(60), stateful_step_count=40)
