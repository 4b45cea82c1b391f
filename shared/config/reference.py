"""The reference of a file: every key of a dataclass that `shared.config.records` reads, with what it means.

The meaning of a key is the text after its field in the source, that of a table the docstring of its class. A text may
end with an example, in TOML, which a generated file shows for a key that has no default: ``Example: `"n1"`.``

Keys are dotted. `*` stands for a name of the user's choice, `[]` for an item of an array of tables.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from shared.base.type_hints import field_hints
from shared.config.records import Form, Items, Limit, OneOf, Range

UNITS = {
    "mib_per_s": "MiB/s",
    "mbit_per_s": "Mbit/s",
    "s_per_mib": "s/MiB",
    "per_minute": "per minute",
    "per_day": "per day",
    "per_kwh": "per kWh",
    "per_s": "per second",
    "mhz_s": "MHz x s",
    "mcycles": "Mcycles",
    "mhz": "MHz",
    "mib": "MiB",
    "days": "days",
    "ms": "ms",
    "s": "s",
    "w": "W",
}
"""What the end of a key's name says of its unit; the first that fits counts."""

_EXAMPLE = re.compile(r" Example: `(.*)`\.$")
_BOUND = re.compile(r"_(min|max)$")
_INDEX = re.compile(r"\[\d+\]")
_NAMED = re.compile(r"`(\w+)`")
_TYPES: Mapping[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string", Any: "date-time"}
_NUMBERS = ("integer", "number")
_MANY = {"array": "arrays"}


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a file. type: "boolean", "integer", "number", "string", "date-time", "table", "array of ..."; values:
    what is allowed, in words ("" for anything of that type); unit: "" for none. default: None where the key has none:
    it must be given (`is_required`), or has no effect while it is left out. example: a value in TOML, "" for none."""

    name: str
    type: str
    values: str
    unit: str
    default: Any
    is_required: bool
    meaning: str
    example: str = ""
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A table of a file with its own keys; `name` "" is the top. is_optional: leaving the table out is not the same as
    leaving all its keys out. when: a key that such a table has, as in TOML, if it is of one kind among several."""

    name: str
    meaning: str
    keys: tuple[Key, ...]
    is_optional: bool = False
    when: str = ""

    @property
    def header(self) -> str:
        """The line of the file that begins the table; NAME is a name of the user's choice ("" for the top)."""
        name = self.name.replace("*", "NAME").replace("[]", "")
        if self.name.endswith("[]"):
            return f"[[{name}]]"
        return f"[{name}]" if name else ""


def sections(cls: type[Any], prefix: str = "") -> Iterator[Section]:
    """Yield the tables of a file for `cls` in the order of the dataclass, each before those inside it."""
    yield from _sections(cls, prefix, is_optional=False)


def rules(cls: type[Any]) -> tuple[str, ...]:
    """Return in words how the keys of a file for `cls` must relate, each rule once."""
    return tuple(dict.fromkeys(_rule(rule) for rule in getattr(cls, "RULES", ())))


def toml_value(value: Any) -> str:
    """Return a value as TOML writes it. Raises TypeError for what no key holds."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return toml_value(value.value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.15g}" if math.isfinite(value) else str(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {toml_value(item)}" for name, item in value.items()) + "}"
    raise TypeError(type(value).__name__)


def unit_of(name: str) -> str:
    """Return the unit that the end of a key's name says ("": none)."""
    last = _BOUND.sub("", name.rpartition(".")[2])
    ends = (unit for end, unit in UNITS.items() if last == end or last.endswith(f"_{end}"))
    return next(ends, "")


def _sections(cls: type[Any], name: str, *, is_optional: bool) -> Iterator[Section]:
    hints, texts, prefix = field_hints(cls, annotated=True), _texts_of(cls), f"{name}." if name else ""
    inside: list[tuple[type[Any], str, bool]] = []
    keys = []
    for field in fields(cls):
        key = prefix + field.name.removesuffix("_")
        found = list(_tables(hints[field.name], key))
        has_default = field.default is not MISSING or field.default_factory is not MISSING
        inside += [(table, where, may_be_missing and has_default) for table, where, may_be_missing in found]
        if not found:
            keys.append(_key(key, hints[field.name], field, texts.get(field.name, "")))
    yield Section(name, _paragraph(inspect.getdoc(cls) or ""), tuple(keys), is_optional)
    for table, where, may_be_left_out in inside:
        yield from _sections(table, where, is_optional=may_be_left_out)


def _tables(hint: Any, name: str) -> Iterator[tuple[type[Any], str, bool]]:
    """Yield the tables that a field holds, with their names, and whether they may be missing; nothing for other
    fields."""
    bare = _bare(hint)
    if get_origin(bare) in (Union, UnionType):
        for part in get_args(bare):
            yield from ((cls, where, True) for cls, where, _ in _tables(part, name))
    elif _is_table(bare):
        yield bare, name, False
    elif get_origin(bare) is tuple and _is_table(get_args(bare)[0]):
        yield get_args(bare)[0], f"{name}[]", True
    elif get_origin(bare) is Mapping and _is_table(get_args(bare)[1]):
        yield get_args(bare)[1], f"{name}.*", True


def _is_table(hint: Any) -> bool:
    return isinstance(hint, type) and is_dataclass(hint)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _key(name: str, hint: Any, field: Field[Any], text: str) -> Key:
    given = field.default_factory() if field.default_factory is not MISSING else field.default
    said = _paragraph(text)
    example = _EXAMPLE.search(said)
    limit, kind = _limit(hint), _type(hint)
    return Key(
        name=name,
        type=kind,
        values=_values(hint),
        unit=unit_of(name) if kind.removeprefix("array of ").removesuffix("s") in _NUMBERS else "",
        default=None if given is MISSING else given,
        is_required=given is MISSING,
        meaning=_EXAMPLE.sub("", said),
        example=example[1] if example else "",
        is_secret=isinstance(limit, Form) and limit.secret,
    )


def _parts(hint: Any) -> tuple[Any, ...]:
    """Return the alternative types of a value, without None."""
    if get_origin(hint) in (Union, UnionType):
        return tuple(part for part in get_args(hint) if part is not NoneType)
    return (hint,)


def _limit(hint: Any) -> Limit | None:
    first = _parts(hint)[0]
    notes = get_args(first)[1:] if get_origin(first) is Annotated else ()
    return next((note for note in notes if isinstance(note, Limit)), None)


def _type(hint: Any) -> str:
    first = _parts(hint)[0]
    bare = _bare(first)
    if get_origin(bare) is tuple:
        inner = _type(get_args(bare)[0])
        head, _, rest = inner.partition(" ")
        return f"array of {_MANY.get(head, head + 's')}" + (f" {rest}" if rest else "")
    if get_origin(bare) is Mapping:
        return "table"
    if isinstance(bare, type) and issubclass(bare, Enum):
        return "string"
    return _TYPES[bare]


def _values(hint: Any) -> str:
    """Describe the allowed values; for an array or a table, those of each item."""
    first = _parts(hint)[0]
    bare, limit = _bare(first), _limit(first)
    if get_origin(bare) is tuple:
        inner = _values(get_args(bare)[0])
        return f"{limit}, {inner}" if isinstance(limit, Items) and inner else inner or str(limit or "")
    if get_origin(bare) is Mapping:
        return _values(get_args(bare)[1])
    if isinstance(bare, type) and issubclass(bare, Enum):
        return ", ".join(toml_value(member) for member in bare)
    if isinstance(limit, OneOf):
        return ", ".join(map(toml_value, limit.words))
    if isinstance(limit, Range):
        return f"{limit.least:.15g} to {limit.most:.15g}"
    return "" if limit is None else str(limit)


def _rule(rule: Any) -> str:
    """Return the requirement of a rule: its docstring, with the values of the attributes that it names."""
    text = _paragraph(inspect.getdoc(type(rule)) or "")
    return _NAMED.sub(lambda found: _named(rule, found), text)


def _named(rule: Any, found: re.Match[str]) -> str:
    value = getattr(rule, found[1], None)
    return f"`{_INDEX.sub('[]', value)}`" if isinstance(value, str) else found[0]


# --- texts of the source --------------------------------------------------------------------------------------------


def _texts_of(cls: type[Any]) -> Mapping[str, str]:
    """Return the text after each field of a class, including the fields of its bases."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if is_dataclass(base):
            found |= _texts_in(base.__module__).get(base.__qualname__, {})
    return found


@cache
def _texts_in(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the texts after the fields of each class of a module."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: dict(_texts(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _texts(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            yield field.target.id, inspect.cleandoc(text.value.value)


def _paragraph(text: str) -> str:
    """Return the first paragraph, on one line."""
    return " ".join(text.partition("\n\n")[0].split())
