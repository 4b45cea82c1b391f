"""What becomes of a body: the message that it is, or a refusal in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Any

import msgspec

from shared.base.errors import CodecError
from shared.protocol.codec import decode, encode
from shared.protocol.messages import Message
from tests.property.message_values import declared

REFUSAL_LENGTH_MAX = 400


def outcome(body: bytes) -> Message | None:
    """What `decode` made of a body; None when it was refused as it should be."""
    try:
        message = decode(body)
    except CodecError as refused:
        said = str(refused)
        if len(said) > REFUSAL_LENGTH_MAX:
            raise AssertionError(f"an error of {len(said)} characters") from refused
        return None
    assert decode(encode(message)) == message
    return message


def fate(decoder: Callable[[bytes], Message], body: bytes) -> tuple[Any, ...]:
    """What became of a body: a value with the types and exact texts of all that is in it, or the refusal."""
    try:
        message = decoder(body)
    except CodecError as refused:
        return (str(refused),)
    return (message, [(type(leaf), repr(leaf)) for leaf in leaves(message)])


def leaves(value: Any) -> Iterator[Any]:
    """Everything in a message that holds nothing else."""
    if is_dataclass(value) or isinstance(value, msgspec.Struct):
        for name, _ in declared(type(value)):
            yield from leaves(getattr(value, name))
    elif isinstance(value, tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value
