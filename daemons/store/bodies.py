"""Records to bytes and back: the codec's bodies, in frames where one would be too large, compressed where it pays.

A body is a byte (0 plain, 1 zlib) and frames, each of four bytes of length and the packed value. The first frame is the
record. A record with long parts (a decision on thousands of jobs, a job of thousands of instances) has them empty there
and stretches of them in the frames that follow, so that every frame stays within the bounds of the codec.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from daemons.values.records.cluster import DecisionRecord, Gain, InstanceRecord, JobRecord
from shared.base.errors import CodecError
from shared.policy_api.decision import Change, Plan, Refusal, Slowed, Step
from shared.protocol.codec import pack, unpack
from shared.values.jobs import Allotment

T = TypeVar("T")

PLAIN, ZLIB = 0, 1
COMPRESSED_BYTES_MIN = 512  # below this nothing is gained
COMPRESSION_LEVEL = 3
LENGTH_BYTES = 4
STRETCH_WEIGHT_MAX = 2000  # items of one frame, those inside them counted


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one frame carries of a record's long parts."""

    changes: tuple[Change, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    dropped: tuple[Refusal, ...] = ()
    held: tuple[Change, ...] = ()
    steps: tuple[Step, ...] = ()
    blocked: tuple[Refusal, ...] = ()
    allotments: tuple[Allotment, ...] = ()
    instances: tuple[InstanceRecord, ...] = ()
    gains: tuple[Gain, ...] = ()
    slowed: tuple[Slowed, ...] = ()


def to_body(record: Any) -> bytes:
    """Return the bytes of a record. Raises `CodecError` for a value that the codec refuses (NaN, for example)."""
    long = _long_parts(record)
    if sum(_weight(item) for items in long.values() for item in items) <= STRETCH_WEIGHT_MAX:
        frames = [pack(record, type(record))]
    else:
        frames = [pack(_with_parts(record, dict.fromkeys(long, ())), type(record))]
        frames += [pack(stretch, Stretch) for stretch in _stretches(long)]
    joined = b"".join(len(frame).to_bytes(LENGTH_BYTES, "big") + frame for frame in frames)
    if len(joined) < COMPRESSED_BYTES_MIN:
        return bytes((PLAIN,)) + joined
    return bytes((ZLIB,)) + zlib.compress(joined, COMPRESSION_LEVEL)


def from_body(body: bytes, cls: type[T]) -> T:
    """Return the record of class `cls` that `to_body` made `body` from. Raises `CodecError` for anything else."""
    first, *rest = _frames(body)
    record = unpack(first, cls)
    if not rest:
        return record
    stretches = [unpack(frame, Stretch) for frame in rest]
    parts = {name: _joined(stretches, name) for name in _long_parts(record)}
    whole: T = _with_parts(record, parts)
    return whole


def _joined(stretches: Sequence[Stretch], name: str) -> tuple[Any, ...]:
    return tuple(item for stretch in stretches for item in getattr(stretch, name))


def _frames(body: bytes) -> list[bytes]:
    try:
        joined = zlib.decompress(body[1:]) if body[:1] == bytes((ZLIB,)) else body[1:]
    except zlib.error as problem:
        raise CodecError("a stored record is damaged: it cannot be decompressed") from problem
    frames = []
    at = 0
    while at < len(joined):
        length = int.from_bytes(joined[at : at + LENGTH_BYTES], "big")
        at += LENGTH_BYTES + length
        frames.append(joined[at - length : at])
    if not frames or at != len(joined) or body[0] not in (PLAIN, ZLIB):
        raise CodecError("a stored record is damaged: its frames do not fill it")
    return frames


def _long_parts(record: Any) -> dict[str, tuple[Any, ...]]:
    """Return the parts that may be long, by their name in a `Stretch`."""
    if isinstance(record, DecisionRecord):
        return {
            "changes": record.changes,
            "refusals": record.refusals,
            "dropped": record.dropped,
            "held": record.held,
            "steps": record.plan.steps,
            "blocked": record.plan.blocked,
            "gains": tuple(record.gains),
            "slowed": tuple(record.slowed),
        }
    if isinstance(record, JobRecord):
        return {"allotments": record.allotments, "instances": record.instances}
    return {}


def _with_parts(record: Any, parts: dict[str, tuple[Any, ...]]) -> Any:
    own = {field.name for field in fields(record)}
    given: dict[str, Any] = {name: items for name, items in parts.items() if name in own}
    if isinstance(record, DecisionRecord):
        given["plan"] = Plan(parts["steps"], parts["blocked"])
    return replace(record, **given)


def _weight(item: Any) -> int:
    return 1 + (len(item.allotments) if isinstance(item, Change) else 0)


def _stretches(long: dict[str, tuple[Any, ...]]) -> Iterator[Stretch]:
    for name, items in long.items():
        stretch: list[Any] = []
        weight = 0
        for item in items:
            if stretch and weight + _weight(item) > STRETCH_WEIGHT_MAX:
                yield Stretch(**{name: tuple(stretch)})
                stretch, weight = [], 0
            stretch.append(item)
            weight += _weight(item)
        if stretch:
            yield Stretch(**{name: tuple(stretch)})
