"""libvirt, real or not, as an agent has it that dies at one of its calls."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

When = Literal["before", "during", "after"]
OPERATIONS = "libvirt-operation"  # the threads of a driver in which they are carried out
CHANGING = frozenset(
    {
        *("createWithFlags", "shutdownFlags", "destroyFlags", "suspend", "resume", "save", "restoreFlags"),
        *("defineXML", "undefineFlags", "setMetadata", "setAutostart", "setSchedulerParametersFlags"),
        *("migrateToURI3", "abortJob", "createXML", "createXMLFrom", "upload", "send", "finish", "delete"),
    }
)
LONG = frozenset({"createWithFlags", "save", "restoreFlags", "migrateToURI3"})


@dataclass(frozen=True, slots=True)
class Point:
    """Where an agent dies: at the call of this name after `number` others of it."""

    call: str
    number: int
    when: When


def points_of(trace: list[str]) -> list[Point]:
    """Every point of an operation that made these calls. What only reads leaves all as it was: to die there is to die
    before the next change."""
    counted: Counter[str] = Counter()
    found = []
    for call in trace:
        whens: tuple[When, ...] = ("before", "during", "after") if call in LONG else ("before", "after")
        found += [Point(call, counted[call], when) for when in whens]
        counted[call] += 1
    return found


class MortalModule:
    """Takes the place of `module`. `trace`: the changing calls of operations, in order. At the point `die` is called in
    the thread of the call, or, in the middle of one, `die_soon` before it. Once `dead`, every call raises that."""

    def __init__(
        self, module: Any, point: Point | None, die: Callable[[], None], die_soon: Callable[[], None] | None = None
    ) -> None:
        self._module, self.libvirtError = module, module.libvirtError
        self._point, self._die, self._die_soon = point, die, die_soon or die
        self._counted: Counter[str] = Counter()
        self.trace: list[str] = []
        self.dead: Exception | None = None

    def open(self, name: str | None = None) -> Any:
        """Connect, as the module does."""
        return _Mortal(self.do("open", partial(self._module.open, name)), self)

    def do(self, call: str, carry_out: Callable[[], Any]) -> Any:
        """Carry out a call, or die."""
        if self.dead is not None:
            raise self.dead
        when = ""
        if call in CHANGING and threading.current_thread().name.startswith(OPERATIONS):
            number = self._counted[call]
            self._counted[call] += 1
            self.trace.append(call)
            if self._point is not None and (self._point.call, self._point.number) == (call, number):
                when = self._point.when
        if when == "before":
            self._die()
        elif when == "during":
            self._die_soon()
        if self.dead is not None:
            raise self.dead
        answer = carry_out()
        if when == "after":
            self._die()
        if self.dead is not None:
            raise self.dead
        return answer


class _Mortal:
    """An object of the library."""

    def __init__(self, raw: Any, module: MortalModule) -> None:
        self.raw, self._module = raw, module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.raw, name)
        if not callable(found):
            return found

        def called(*args: Any, **kwargs: Any) -> Any:
            plain = [_bare(arg) for arg in args]
            return self._wrapped(self._module.do(name, partial(found, *plain, **kwargs)))

        return called

    def _wrapped(self, answer: Any) -> Any:
        if isinstance(answer, list):
            return [self._wrapped(each) for each in answer]
        if isinstance(answer, tuple):
            return tuple(self._wrapped(each) for each in answer)
        return _Mortal(answer, self._module) if type(answer).__name__.startswith("vir") else answer


def _bare(value: Any) -> Any:
    if isinstance(value, list):
        return [_bare(each) for each in value]
    return value.raw if isinstance(value, _Mortal) else value
