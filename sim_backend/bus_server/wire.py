"""The frames between a bus server and its clients: 4 bytes of length, big-endian, and a msgpack body.

The first frame of a client is `Hello`. `Declare` and `Consume` are answered by `Answered` with their number; everything
else has no answer.
"""

from __future__ import annotations

import struct
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from shared.base.errors import CodecError
from shared.protocol.dead_letter import DeadMessage
from shared.protocol.topology import BODY_BYTES_MAX, QueueSpec

FRAME_BYTES_MAX = BODY_BYTES_MAX + (64 << 10)  # a body, and the names beside it
HEAD = struct.Struct(">I")
T = TypeVar("T")


class Hello(Struct, frozen=True, tag=True):
    """Names the account of the connection."""

    user: str


class Declare(Struct, frozen=True, tag=True):
    """`Bus.declare`."""

    call: int
    queue: QueueSpec


class Consume(Struct, frozen=True, tag=True):
    """`Bus.consume`."""

    call: int
    queue: str
    prefetch: int
    acknowledged: bool


class Publish(Struct, frozen=True, tag=True):
    """`Bus.publish`."""

    exchange: str
    routing_key: str
    body: bytes
    publish_id: int | None
    reply_to: str


class Acknowledge(Struct, frozen=True, tag=True):
    """`Bus.acknowledge`."""

    tag: int


class Bury(Struct, frozen=True, tag=True):
    """Keep a message in the dead queue, then acknowledge the delivery `tag` (None: it needs none). `dead` None:
    only acknowledge it."""

    dead: DeadMessage | None
    tag: int | None


class Answered(Struct, frozen=True, tag=True):
    """The answer to call number `call` (0: to `Hello`). `error`: why it was refused ("": it is done)."""

    call: int
    error: str = ""


class Delivered(Struct, frozen=True, tag=True):
    """A delivery; `loose`: it needs no acknowledgement."""

    tag: int
    queue: str
    routing_key: str
    sender: str
    body: bytes
    redelivered: bool
    reply_to: str
    loose: bool


class Confirmed(Struct, frozen=True, tag=True):
    """`Confirm`."""

    publish_id: int
    ok: bool


class Ended(Struct, frozen=True, tag=True):
    """The last frame of a connection that the server ends."""

    reason: str


FromClient = Hello | Declare | Consume | Publish | Acknowledge | Bury
FromServer = Answered | Delivered | Confirmed | Ended
_ENCODER = msgspec.msgpack.Encoder()
CLIENT_DECODER: msgspec.msgpack.Decoder[FromClient] = msgspec.msgpack.Decoder(FromClient)
SERVER_DECODER: msgspec.msgpack.Decoder[FromServer] = msgspec.msgpack.Decoder(FromServer)


def to_frame(value: FromClient | FromServer) -> bytes:
    """Return the bytes of one frame. Raises CodecError for a value of more than FRAME_BYTES_MAX."""
    body = _ENCODER.encode(value)
    if len(body) > FRAME_BYTES_MAX:
        raise CodecError(f"a frame of {len(body)} bytes, expected at most {FRAME_BYTES_MAX}")
    return HEAD.pack(len(body)) + body


def length_of(head: bytes) -> int:
    """Return how many bytes follow a head. Raises CodecError above FRAME_BYTES_MAX."""
    (length,) = HEAD.unpack(head)
    if length > FRAME_BYTES_MAX:
        raise CodecError(f"a frame of {length} bytes, expected at most {FRAME_BYTES_MAX}")
    return int(length)


def decoded(decoder: msgspec.msgpack.Decoder[T], body: bytes) -> T:
    """Return the value of a frame's body. Raises CodecError for anything else."""
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise CodecError(f"undecodable frame: {error}") from error


class Frames(Generic[T]):
    """Cuts a stream of bytes into values."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[T]) -> None:
        self._decoder = decoder
        self._held = bytearray()

    def feed(self, data: bytes) -> list[T]:
        """Return the values that are complete with this data. Raises CodecError, after which the stream is unusable."""
        held = self._held
        held += data
        values: list[T] = []
        at = 0
        while len(held) - at >= HEAD.size:
            end = at + HEAD.size + length_of(bytes(held[at : at + HEAD.size]))
            if len(held) < end:
                break
            values.append(decoded(self._decoder, bytes(held[at + HEAD.size : end])))
            at = end
        del held[:at]
        return values
