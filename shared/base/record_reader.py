"""Compiles the reading of a record: a function that turns a map into a frozen value, field by field.

Every report goes through these functions, so what a scalar nearly always is is tested where it stands; all else is left
to the field's own reader, which alone says what is right. Only names of our own classes go into the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

Reader = Callable[[Any, Any], Any]

# When a value is surely not plain: then the field's reader decides. {v} is the value; NaN and infinity fail v - v == 0.
_DOUBTS: Mapping[Any, str] = {
    bool: "{v} is not True and {v} is not False",
    int: "type({v}) is not int or not {int_min} <= {v} <= {int_max}",
    float: "type({v}) is not float or {v} - {v} != 0.0",
    str: "type({v}) is not str or len({v}) > {text_max} or not {v}.isascii() or not {v}.isprintable()",
}


def compile_reader(
    cls: type,
    hints: Mapping[str, Any],
    readers: Mapping[str, Reader],
    bounds: Mapping[str, int],
    wrong: Callable[[str], Exception],
) -> Reader:
    """A function (plain, type) -> value of the dataclass `cls`.

    `hints` and `readers` are the type and the reader of each field, `bounds` the int_min, int_max and text_max of
    scalars. The function raises `wrong(what is expected)` for what is no map or has keys that are no field,
    KeyError where a field is missing, and whatever readers and `cls` raise.
    """
    parts = fields(cls)
    space: dict[str, Any] = {"cls": cls, "wrong": wrong, "ABSENT": object()}
    for at, part in enumerate(parts):
        space |= {f"r{at}": readers[part.name], f"h{at}": hints[part.name]}
        space |= {f"d{at}": part.default if part.default_factory is MISSING else part.default_factory}
    source = "\n".join(
        [
            "def read(value, _):",
            "    if type(value) is not dict: raise wrong('a map')",
            f"    get, expected = value.get, {len(parts)}",
            *(f"    {line}" for at, part in enumerate(parts) for line in _lines(at, part, hints[part.name], bounds)),
            "    if len(value) != expected: raise wrong('no other fields')",
            f"    return cls({', '.join(f'v{at}' for at in range(len(parts)))})",
        ]
    )
    exec(compile(source, f"<reader of {cls.__name__}>", "exec"), space)
    made: Reader = space["read"]
    return made


def _lines(at: int, part: Field[Any], hint: Any, bounds: Mapping[str, int]) -> Iterator[str]:
    """The lines that read field number `at` into v<at>."""
    doubt = _DOUBTS.get(hint) if isinstance(hint, type) else None  # a text whose form is declared is always looked at
    check = f"v{at} = r{at}(v{at}, h{at})"
    if doubt is not None:
        check = f"if {doubt.format(v=f'v{at}', **bounds)}: {check}"
    if part.default is MISSING and part.default_factory is MISSING:
        yield f"v{at} = value[{part.name!r}]"
        yield check
        return
    call = "" if part.default_factory is MISSING else "()"
    yield f"v{at} = get({part.name!r}, ABSENT)"
    yield f"if v{at} is ABSENT:"
    yield f"    v{at} = d{at}{call}"
    yield "    expected -= 1"
    yield "else:"
    yield f"    {check}"
