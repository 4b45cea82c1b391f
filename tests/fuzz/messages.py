"""Every message of the bus: its body changed, read by the codec, and what is read delivered to real cores."""

from __future__ import annotations

import random
from typing import Any
from warnings import catch_warnings, simplefilter

import msgpack  # type: ignore[import-untyped]
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider
from hypothesis.internal.constants_ast import Constants

from shared.protocol.codec import decode, decode_strictly, encode
from shared.protocol.messages import Message
from tests.fuzz.mutations import HEADS, damaged, plain_changed
from tests.fuzz.scene import said_of
from tests.property.decoded import fate, outcome
from tests.property.message_values import values

POOL = 8  # whole messages that are changed, then others
CASES_OF_A_POOL = 400
SENDERS = (
    "operator.anna",
    "owner.bea",
    "user.carl",
    "portal.p",
    "agent.n1",
    "agent.n2",
    "web.shop",
    "controller.a",
    "controller.b",
)
DELIVERED_S = 8.0  # in which reports, decisions and answers go to and fro


class _OwnConstants(HypothesisProvider):
    """Draws no constants from our sources: reading those takes seconds, and cases would change with them."""

    @property
    def _local_constants(self) -> Constants:
        return Constants()


AVAILABLE_PROVIDERS["own-constants"] = _OwnConstants


def pool(cls: type[Message], number: int) -> tuple[Message, ...]:
    """Valid messages of a class; others with another number."""
    key = (cls.KIND, number)
    if key not in _POOLS:
        _POOLS[key] = _found(cls, number)
    return _POOLS[key]


_POOLS: dict[tuple[str, int], tuple[Message, ...]] = {}


def _found(cls: type[Message], number: int) -> tuple[Message, ...]:
    found: list[Message] = []

    @seed(number)
    @settings(
        max_examples=POOL,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
        backend="own-constants",
    )
    @given(message=values(cls))
    def find(message: Message) -> None:
        found.append(message)

    with catch_warnings():
        simplefilter("ignore")  # Hypothesis warns that this is no test
        find()
    return tuple(found)


def body_of(cls: type[Message], number: int, rng: random.Random) -> bytes:
    """A body that is a message's but for something."""
    whole = encode(rng.choice(pool(cls, number // CASES_OF_A_POOL)))
    kind = rng.random()
    if kind < 0.25:
        return damaged(whole, rng, HEADS)
    if kind < 0.3:
        return whole[: rng.randrange(len(whole))]
    if kind < 0.33:
        return whole + rng.randbytes(rng.randrange(1, 4))
    envelope = msgpack.unpackb(whole, strict_map_key=False)
    if kind < 0.36:
        return _packed(plain_changed(envelope, rng))
    if kind < 0.4:
        return _deep(envelope, rng)
    envelope["b"] = plain_changed(envelope["b"], rng)
    return _packed(envelope)


def _packed(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, unicode_errors="surrogatepass")
    return packed


def _deep(envelope: dict[str, Any], rng: random.Random) -> bytes:
    """Containers in containers, and lengths that are not there."""
    rest = rng.choice(
        (b"\x91" * 50_000, b"\x81\xa1a" * 20_000, b"\xdd\xff\xff\xff\xff" * 500, b"\xdc\xff\xff" * 20_000)
    )
    head = _packed({**envelope, "b": None})[:-1]
    return head + rest + rng.choice((b"", b"\xc0"))


def read(cls: type[Message], number: int, rng: random.Random) -> str:
    """One case of the codec: what is wrong ("": nothing)."""
    body = body_of(cls, number, rng)
    try:
        outcome(body)
        assert fate(decode, body) == fate(decode_strictly, body), "the fast and the strict way differ"
    except Exception as error:  # noqa: BLE001  # whatever comes out is what is looked for
        return f"{said_of(error)}; body {body[:200].hex()}"
    return ""


def deliver(cls: type[Message], number: int, rng: random.Random) -> str:
    """One case of controller and agents: a message that is valid, or nearly, comes to each of them from somebody."""
    from tests.fuzz.wire import Wire

    wire = Wire(nodes=2)
    try:
        wire.run(rng.choice((0.0, 3.0)))
        for _ in range(rng.choice((1, 3))):
            if rng.random() < 0.5:
                body = body_of(cls, number, rng)
            else:
                body = encode(rng.choice(pool(cls, number // CASES_OF_A_POOL)))
            _put(wire, body, rng)
        wire.run(DELIVERED_S)
    except Exception as error:  # noqa: BLE001  # whatever comes out is what is looked for
        return said_of(error)
    return ""


def _put(wire: Any, body: bytes, rng: random.Random) -> None:
    """Into a queue, past what the broker permits: whoever reads it has to look who sent it."""
    from sim_backend.bus.memory import Message as Queued

    queues = [queue for queue in wire.loop.broker._queues.values() if not queue.spec.name.startswith("reply.")]
    queue, sender = rng.choice(queues), rng.choice(SENDERS)
    answers = rng.choice(("", f"reply.{sender}", f"reply.{sender}.a", "controller", "agent.n1", "\x1b", "x" * 255))
    queue.arrive(Queued(sender, rng.choice(("controller", "report.n1", "web.shop", "n1", "")), body, answers))
