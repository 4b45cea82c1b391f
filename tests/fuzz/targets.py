"""What is tried, and how often: a case is a target and a number, and always the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial

from shared.protocol.messages import MESSAGES, Message
from tests.fuzz import messages, options, readers
from tests.fuzz.scene import Scene

GROUPS = {"messages": 0.755, "cores": 0.007, "readers": 0.14, "options": 0.098}
"""The share of each group in all cases."""
PREFIXES = {"message": "messages", "core": "cores", "read": "readers", "option": "options"}
"""Of the names of targets, and the group that they are of."""
Case = Callable[[Scene, int, random.Random], str]


@dataclass(frozen=True, slots=True)
class Target:
    """`run` is one case, and says what is wrong ("": nothing). `is_long`: it may be interrupted after a while."""

    name: str
    group: str
    share: float
    run: Case
    is_long: bool = False


@cache
def of_group(group: str) -> dict[str, Target]:
    """The targets of a group, by name."""
    return {target.name: target for target in _MAKERS[group]()}


def named(name: str) -> Target:
    """The target of a name; KeyError where there is none."""
    return of_group(PREFIXES[name.partition(":")[0]])[name]


def targets() -> dict[str, Target]:
    """All of them, by name."""
    return {name: target for group in GROUPS for name, target in of_group(group).items()}


def _messages() -> Iterator[Target]:
    for cls in MESSAGES:
        yield Target(f"message:{cls.KIND}", "messages", 1.0, partial(_message, messages.read, cls))


def _cores() -> Iterator[Target]:
    for cls in MESSAGES:
        yield Target(f"core:{cls.KIND}", "cores", 1.0, partial(_message, messages.deliver, cls))


def _readers() -> Iterator[Target]:
    for reader in readers.READERS:
        yield Target(f"read:{reader.name}", "readers", reader.share, partial(_read, reader), reader.is_long)


def _options() -> Iterator[Target]:
    for command in options.commands():
        is_long, parsed = command.path.startswith(options.LONG), command.path.startswith(options.PARSED_ALONE)
        share = 0.3 if is_long and not parsed else 1.0
        name = f"option:{command.path.replace(' ', '.')}"
        yield Target(name, "options", share, partial(_option, command), is_long)
    for program in options.daemons():
        yield Target(f"option:{program}", "options", 1.0, partial(_daemon, program))


_MAKERS: dict[str, Callable[[], Iterator[Target]]] = {
    "messages": _messages,
    "cores": _cores,
    "readers": _readers,
    "options": _options,
}


def _message(
    run: Callable[[type[Message], int, random.Random], str],
    cls: type[Message],
    _: Scene,
    number: int,
    rng: random.Random,
) -> str:
    return run(cls, number, rng)


def _read(reader: readers.Reader, scene: Scene, _: int, rng: random.Random) -> str:
    return reader.run(scene, rng)


def _option(command: options.Command, scene: Scene, _: int, rng: random.Random) -> str:
    return options.run(command, scene, rng)


def _daemon(program: str, scene: Scene, _: int, rng: random.Random) -> str:
    return options.run_daemon(program, scene, rng)


def counts(cases: int, groups: Iterable[str] = GROUPS) -> dict[str, int]:
    """How many cases each target of some groups has of so many over all groups, at least one."""
    found: dict[str, int] = {}
    for group in groups:
        members = of_group(group).values()
        shares = sum(target.share for target in members)
        for target in members:
            found[target.name] = max(1, round(cases * GROUPS[group] * target.share / shares))
    return found
