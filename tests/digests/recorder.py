"""A digest of all that cores ask for, in order: what tells whether a change of the code changes what it does."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, get_args

import msgspec
import numpy as np

from shared.ports import effects as fx
from sim_backend.loop.closed_loop import ClosedLoop

PART_S = 1_800.0  # of virtual time: a digest for each says where two runs part
EFFECTS: Mapping[type, int] = {kind: number for number, kind in enumerate(get_args(fx.Effect))}


def canonical(value: Any) -> Iterator[bytes]:
    """Give a value as bytes without any name of a class, field or module, so that renaming changes nothing.

    Floats have six digits: another processor's last bit is no other decision. TypeError for what has no such form.
    """
    if value is None or (isinstance(value, bool | int | str | bytes) and not isinstance(value, Enum)):
        yield f"{value!r},".encode()
    elif isinstance(value, Enum):
        yield from canonical(value.value)
    elif isinstance(value, float | np.floating):
        yield f"{float(value):.6g},".encode()
    elif isinstance(value, np.bool_ | np.integer):
        yield f"{value.item()!r},".encode()
    elif isinstance(value, msgspec.Struct) or (is_dataclass(value) and not isinstance(value, type)):
        yield f"({getattr(type(value), 'KIND', '')}:".encode()
        for name in _fields(value):
            yield from canonical(getattr(value, name))
        yield b")"
    elif isinstance(value, np.ndarray):
        yield from canonical(value.shape)
        yield from canonical(value.tolist())
    elif isinstance(value, Mapping):
        yield b"{"
        for key, inside in value.items():
            yield from canonical(key)
            yield from canonical(inside)
        yield b"}"
    elif isinstance(value, set | frozenset):
        yield b"<"
        yield from sorted(b"".join(canonical(inside)) for inside in value)
        yield b">"
    elif isinstance(value, list | tuple):
        yield b"["
        for inside in value:
            yield from canonical(inside)
        yield b"]"
    else:
        raise TypeError(f"{type(value).__name__} has no canonical form")


def _fields(value: Any) -> Iterable[str]:
    return value.__struct_fields__ if isinstance(value, msgspec.Struct) else (field.name for field in fields(value))


@dataclass(frozen=True, slots=True)
class Digest:
    """What a run did. `parts`: the digest up to the end of each part of the run, the first digits of it."""

    effects: int
    sha256: str
    parts: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for the file of digests."""
        return {"effects": self.effects, "sha256": self.sha256, "parts": list(self.parts)}


class Recorder:
    """Listens to every shell of a loop, beside whoever listens already."""

    def __init__(self, loop: ClosedLoop) -> None:
        self._loop = loop
        self._hash = hashlib.sha256()
        self._effects = 0
        self._parts: list[str] = []
        for shell in (*loop.controllers.values(), *loop.agents.values()):
            shell.on_effect = self._hearing(shell.on_effect)

    def _hearing(self, before: Callable[[Any, Any], None] | None) -> Callable[[Any, Any], None]:
        def hear(shell: Any, effect: Any) -> None:
            self._take(shell.user, effect)
            if before is not None:
                before(shell, effect)

        return hear

    def _take(self, user: str, effect: Any) -> None:
        now_s = self._loop.engine.now_s
        while now_s >= (len(self._parts) + 1) * PART_S:
            self._parts.append(self._hash.hexdigest()[:8])
        self._effects += 1
        self._hash.update(f"{user}|{now_s:.6g}|{EFFECTS[type(effect)]}|".encode())
        for part in canonical(effect):
            self._hash.update(part)

    def digest(self) -> Digest:
        """Return the digest of what was heard so far."""
        return Digest(self._effects, self._hash.hexdigest(), tuple(self._parts))


def digest_of(value: Any) -> Digest:
    """Return the digest of one value."""
    return Digest(1, hashlib.sha256(b"".join(canonical(value))).hexdigest(), ())
