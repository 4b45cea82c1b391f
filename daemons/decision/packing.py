"""Packs what decisions were computed from: in the process that decides, for the shell that stores it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any

from daemons.decision.pipeline import DecideRequest
from daemons.decision.recording import SnapshotEntry
from daemons.decision.request_codec import header_bytes, to_bytes
from shared.ports import effects as fx

DISTRIBUTION = "trimtab"


@dataclass(frozen=True, slots=True)
class EncodeRequest:
    """Have a request made into bytes, in the process that decides. The answer are the bytes."""

    request: DecideRequest
    header: dict[str, Any]


def encode(task: EncodeRequest) -> bytes:
    """Return the bytes of a request. Raises `InvalidValue` for a policy's state or parameters that are not plain
    data."""
    return header_bytes({"program": _program(), **task.header}) + to_bytes(task.request)


@cache
def _program() -> str:
    return metadata.version(DISTRIBUTION)


def snapshot_of(effect: fx.Record) -> SnapshotEntry:
    """Return the snapshot entry that an effect requests, built synchronously. Raises as `encode` does."""
    return SnapshotEntry(effect.number, effect.at_s, effect.term, encode(task_of(effect)))


def task_of(effect: fx.Record) -> EncodeRequest:
    """Return what the worker is asked for."""
    header = {"number": effect.number, "term": effect.term, "at_s": effect.at_s, **effect.notes}
    return EncodeRequest(effect.request, header)
