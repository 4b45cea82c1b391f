"""The real commands against a real controller, agents and bus in virtual time: waiting for an answer moves the loop."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from click.testing import CliRunner, Result

from daemons.cli.connection import Access, OperatorBus
from daemons.cli.main import main
from daemons.values.settings import ControllerSettings
from shared.base.errors import BusUnavailable
from shared.ports.bus import Bus, BusEvent, Lost
from shared.protocol.topology import QueueSpec
from shared.values.nodes import Node
from sim_backend.bus.memory import MemoryConnection
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings

USER = "operator.anna"
URL = "amqp://operator.anna:secret@test/"


class LoopBus:
    """A connection to the loop's broker whose `poll` lets virtual time pass until something comes."""

    def __init__(self, rig: Rig, user: str) -> None:
        self._rig = rig
        self._connection: MemoryConnection = rig.loop.broker.connect(user)
        self._inbox: deque[BusEvent] = deque()

    @property
    def user(self) -> str:
        return self._connection.user

    def declare(self, queue: QueueSpec) -> None:
        self._connection.declare(queue)

    def publish(
        self, exchange: str, routing_key: str, body: bytes, publish_id: int | None = None, reply_to: str = ""
    ) -> None:
        if self._rig.cut_publishes > 0:
            self._rig.cut_publishes -= 1
            raise BusUnavailable("cut")
        self._rig.published += 1
        if self._rig.lose_publishes > 0:
            self._rig.lose_publishes -= 1
            return
        self._connection.publish(exchange, routing_key, body, publish_id, reply_to)

    def consume(self, queue: str, prefetch: int, acknowledged: bool = True) -> None:
        self._connection.consume(queue, prefetch, acknowledged)

    def acknowledge(self, tag: int) -> None:
        self._connection.acknowledge(tag)

    def dead_letter(self, tag: int, reason: str) -> None:
        self._connection.dead_letter(tag, reason)

    def poll(self, timeout_s: float = 0.0) -> Sequence[BusEvent]:
        if self._rig.lose_connection:
            self._rig.lose_connection = False
            self._connection.close()
            return [Lost("pulled the plug")]
        engine = self._rig.loop.engine
        engine.run_until(engine.now_s + timeout_s, stop=lambda: bool(self._inbox))
        events = list(self._inbox)
        self._inbox.clear()
        return events

    def now_s(self) -> float:
        return self._connection.now_s()

    def charge(self, sender: str, busy_s: float) -> None:
        self._connection.charge(sender, busy_s)

    def close(self) -> None:
        self._connection.close()

    def handle_bus(self, connection: MemoryConnection, event: BusEvent) -> None:
        """What the loop delivers to this user."""
        if connection is self._connection:
            self._inbox.append(event)


class Rig:
    """A loop with nodes n1, n2, ... of 4 x 1,000 MHz and 4,000 MiB, and what an operator's commands need.

    The next `lose_publishes` messages get lost, the next `cut_publishes` raise; `lose_connection`: at the next poll.
    """

    def __init__(self, nodes: int = 2, user: str = USER, **settings: Any) -> None:
        names = [f"n{number}" for number in range(1, nodes + 1)]
        built = LoopSettings(ControllerSettings(**settings))
        self.loop = ClosedLoop([Node(name, 4, 1_000.0, memory_mib=4_000) for name in names], built)
        self.user = user
        self.published = self.lose_publishes = self.cut_publishes = self.connections = 0
        self.lose_connection = False
        self.unreachable = ""
        ids = count(1)
        self.access = Access(self.connect, self, lambda: f"id-{next(ids)}")

    def connect(self, bus: OperatorBus, _limit_s: float) -> Bus:
        """The connection of the operator."""
        assert bus.url == URL
        if self.unreachable:
            raise BusUnavailable(self.unreachable)
        made = LoopBus(self, self.user)
        self.connections += 1
        self.loop._actors[self.user] = made  # type: ignore[assignment]  # whoever is on the bus is an actor
        return made

    # --- the operator's clock ---------------------------------------------------------------------------------------

    def now_s(self) -> float:
        return self.loop.engine.now_s

    def monotonic_s(self) -> float:
        return self.loop.engine.now_s

    def sleep(self, seconds: float) -> None:
        self.run(seconds)

    # --- commands ---------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.run_until(self.loop.engine.now_s + seconds)

    def trimtab(self, *words: object, **options: Any) -> Result:
        """Run a command as the operator would."""
        arguments = [str(word) for word in words]
        env = {"TRIMTAB_URL": URL, "HOME": "/none"} | options.pop("env", {})
        return CliRunner().invoke(main, arguments, obj=self.access, env=env, **options)

    def asked(self, *words: object) -> dict[str, Any]:
        """The JSON of a command that is carried out."""
        outcome = self.trimtab(*words, "--output", "json")
        assert outcome.exit_code == 0, (outcome.output, outcome.exception)
        return dict(json.loads(outcome.stdout))

    def refused(self, *words: object, status: int = 1) -> dict[str, Any]:
        """The error of a command that is not, from standard output; the same must be on standard error."""
        outcome = self.trimtab(*words, "--output", "json")
        assert isinstance(outcome.exception, SystemExit), outcome.exception
        assert outcome.exit_code == status, outcome.output
        error = dict(json.loads(outcome.stdout)["error"])
        assert error["message"].splitlines()[0] in outcome.stderr
        return error


def lines(outcome: Result) -> Iterator[dict[str, Any]]:
    """One object per line of standard output."""
    return (dict(json.loads(line)) for line in outcome.stdout.splitlines())
