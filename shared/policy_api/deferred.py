"""A sequence that is built when it is first read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

T = TypeVar("T")


class Deferred(Sequence[T]):
    """A sequence of known length whose items are built at the first reading. Equal to any sequence of equal items."""

    __slots__ = ("_build", "_items", "_length")

    def __init__(self, length: int, build: Callable[[], Sequence[T]]) -> None:
        self._length, self._build = length, build
        self._items: tuple[T, ...] | None = None

    def _read(self) -> tuple[T, ...]:
        if self._items is None:
            self._items = tuple(self._build())
        return self._items

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return iter(self._read())

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self._read()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._read() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._read())

    def __repr__(self) -> str:
        return repr(self._read())

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self._read(),)
