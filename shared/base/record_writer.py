"""Compiles the writing of a record: a function that turns a frozen value into a map, without what is at its default.

Every order and every record of the store goes through these functions. Only names of our own classes go into the
source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

Writer = Callable[[Any], Any]


def compile_writer(cls: type, writers: Mapping[str, Writer], wrong: Callable[[str], Exception]) -> Writer:
    """Return a function (value) -> map of a value of exactly the dataclass `cls`.

    `writers` is the writer of each field. The function raises `wrong(what is expected)` for a value of another class,
    and whatever writers raise.
    """
    space: dict[str, Any] = {"cls": cls, "wrong": wrong}
    whole, rest = list[str](), list[str]()
    for at, part in enumerate(fields(cls)):
        space[f"w{at}"] = writers[part.name]
        if part.default is MISSING and part.default_factory is MISSING:
            whole.append(f"{part.name!r}: w{at}(value.{part.name})")
            continue
        space[f"d{at}"] = part.default_factory() if part.default_factory is not MISSING else part.default
        rest += [
            f"    v = value.{part.name}",
            f"    if v is not d{at} and v != d{at}: made[{part.name!r}] = w{at}(v)",
        ]
    source = "\n".join(
        [
            "def write(value):",
            f"    if type(value) is not cls: raise wrong('a {cls.__name__}')",
            f"    made = {{{', '.join(whole)}}}",
            *rest,
            "    return made",
        ]
    )
    exec(compile(source, f"<writer of {cls.__name__}>", "exec"), space)
    made: Writer = space["write"]
    return made
