"""Messages and records to msgpack bytes and back: strict, bounded, with `CodecError` for everything invalid.

A message travels as the map {"k": kind, "v": version, "b": fields}. Fields at their defaults are not sent; the rows of
reports (`msgspec.Struct`) are arrays of their fields in order, up to the last that is not at its default. Nothing is
coerced: "12" is not 12 and True is not 1; only a whole number in place of a float is accepted (and becomes a float).
`shared.protocol.msgpack` checks what msgpack itself may hold, and how much of it.

Texts of messages must have the form that their field declares (`shared.values.texts`), a line if it declares none. An
invalid text is refused on reading and cleaned on writing, so nothing honest is refused. Trimtab's own records (`pack`,
`unpack`) keep their texts unchanged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from functools import cache
from hashlib import blake2b
from operator import call
from typing import Any, TypeVar, cast, get_args

import msgspec

from shared.base.errors import CodecError, InvalidValue
from shared.base.type_hints import (
    bare,
    field_hints,
    inside,
    is_enum,
    is_homogeneous,
    is_optional,
    is_record,
    is_row,
    is_sequence,
    row_hints,
)
from shared.protocol.messages import MESSAGES, Message, Report
from shared.protocol.msgpack import ITEMS_MAX, KEYS_MAX, UNCHECKED_BYTES_MAX, from_bytes, to_bytes
from shared.values.scalars import INT_MAX, INT_MIN, TEXT_LENGTH_MAX
from shared.values.texts import TextForm, are_words, cleaned, fits

_ABSENT = object()
T = TypeVar("T")
Hook = Callable[[Any], Any]  # reads plain data, whose maps it uses up, or writes a value as plain data

PLAIN_DEPTH_MAX = 8  # containers in containers within data without a declared type
ECHO_LENGTH_MAX = 60  # characters of the input in an error
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # Python allows these in a string, UTF-8 does not


# --- what was wrong ----------------------------------------------------------------------------------------------


class _WrongError(Exception):
    """A value is not what its place needs; says what is."""

    def __init__(self, expected: str) -> None:
        super().__init__(expected)
        self.expected = expected


_TROUBLE = (_WrongError, CodecError, InvalidValue, KeyError, AttributeError, TypeError, ValueError)


def _placed(problem: Exception, step: str, value: Any) -> CodecError:
    """Return the problem with the value at `step` of a path, or with a part of it that has its own path already."""
    if isinstance(problem, CodecError):
        return CodecError(f"{step}{problem}")
    if isinstance(problem, InvalidValue):
        return CodecError(f"{step}: {problem.field} is {_echo(problem.got)}, expected {problem.expected}")
    if isinstance(problem, _WrongError):
        return CodecError(f"{step}: expected {problem.expected}, got {_echo(value)}")
    return CodecError(f"{step}: {type(problem).__name__} while converting {_echo(value)}")


def _echo(value: Any) -> str:
    """Return a short text for a value of any size."""
    if isinstance(value, str):
        return repr(str.__str__(value)[:ECHO_LENGTH_MAX])
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if INT_MIN <= value <= INT_MAX else "a larger whole number"
    if isinstance(value, dict | list | tuple):
        return f"a {'map' if isinstance(value, dict) else 'list'} of {len(value)}"
    return f"a {type(value).__name__}"[:ECHO_LENGTH_MAX]


# --- scalars -----------------------------------------------------------------------------------------------------


def _bool(value: Any) -> bool:
    if value is True or value is False:
        return value
    raise _WrongError("true or false")


def _int(value: Any) -> int:
    if type(value) is int and INT_MIN <= value <= INT_MAX:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and INT_MIN <= value <= INT_MAX:
        return int(value)
    raise _WrongError("a whole number of at most 64 bits")


def _float(value: Any) -> float:
    if type(value) is float and value - value == 0.0:  # so it is neither NaN nor infinite
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and INT_MIN <= value <= INT_MAX:
        return float(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    raise _WrongError("a finite number")


def _text(value: Any) -> str:
    if type(value) is str and len(value) <= TEXT_LENGTH_MAX and value.isascii():
        return value
    if isinstance(value, str) and len(value) <= TEXT_LENGTH_MAX and not _LONE_SURROGATE.search(value):
        return str.__str__(value)
    raise _WrongError(f"a string of at most {TEXT_LENGTH_MAX} characters")


def _checked(form: TextForm) -> Hook:
    def read(value: Any) -> str:
        if type(value) is str and fits(value, form):
            return value
        text = _text(value)
        if not fits(text, form):
            raise _WrongError(form.value)
        return text

    return read


def _cleaning(form: TextForm) -> Hook:
    def write(value: Any) -> str:
        if type(value) is str and fits(value, form):
            return value
        if isinstance(value, str) and not fits(value, form) and form is not TextForm.WORD:
            value = cleaned(str.__str__(value), form)
        text = _text(value)
        if not fits(text, form):
            raise _WrongError(form.value)
        return text

    return write


def _bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    raise _WrongError("bytes")


def _plain(value: Any, text: Callable[[Any], str], depth: int = 0) -> Any:
    """Data without a declared type: None, bool, int, finite float, str, and lists and string-keyed maps of them. `text`
    reads or writes a string."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _int(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str):
        return text(value)
    if depth < PLAIN_DEPTH_MAX and isinstance(value, (list, tuple)) and len(value) <= ITEMS_MAX:
        return list(value) if _is_column(value) else [_plain(item, text, depth + 1) for item in value]
    if depth < PLAIN_DEPTH_MAX and isinstance(value, dict) and len(value) <= KEYS_MAX:
        made = {}
        for key, item in value.items():  # views have hundreds of thousands of these
            kind = type(item)
            if item is None or kind is bool or (kind is float and math.isfinite(item)):
                made[text(key)] = item
            elif kind is str:
                made[text(key)] = text(item)
            else:
                made[text(key)] = _plain(item, text, depth + 1)
        return made
    raise _WrongError(f"plain data, at most {PLAIN_DEPTH_MAX} levels deep")


_NOTHING = type(None)
_NUMBERS = frozenset({float, bool, _NOTHING})
_WHOLE = frozenset({int, bool, _NOTHING})
_TEXTS = frozenset({str, _NOTHING})


def _is_column(values: Sequence[Any]) -> bool:
    """Return whether all are plain scalars, of one kind or None; False also if only a check of each can decide."""
    kinds = set(map(type, values))
    if kinds <= _NUMBERS:
        return all(map(math.isfinite, filter(None, values)))
    if kinds <= _WHOLE:
        whole = [value for value in values if value is not None]
        return bool(min(whole) >= INT_MIN and max(whole) <= INT_MAX)
    if kinds <= _TEXTS:
        texts = list(filter(None, values))
        joined = "".join(texts)
        return max(map(len, texts), default=0) <= TEXT_LENGTH_MAX and joined.isascii() and joined.isprintable()
    return False


def _params(value: Any, text: Callable[[Any], str]) -> Any:
    """Convert a map of plain data by name."""
    if not isinstance(value, Mapping):
        raise _WrongError("a map")
    return _plain(dict(value), text)


# --- parts -------------------------------------------------------------------------------------------------------


def _gathered(made: Iterable[Any], items: Sequence[Any], names: Sequence[str] = ()) -> list[Any]:
    """Return everything that is `made` of the items, one of each; the first invalid item is reported by its name or
    index."""
    done: list[Any] = []
    try:
        done.extend(made)
    except _TROUBLE as problem:
        at = len(done)  # what was made before it is there
        raise _placed(problem, f".{names[at]}" if names else f"[{at}]", items[at]) from problem
    return done


def _defaults(hint: type) -> dict[str, Any]:
    """Return the defaults of a record's fields, for fields that are not sent."""
    made = {part.name: part.default_factory() for part in fields(hint) if part.default_factory is not MISSING}
    return {part.name: part.default for part in fields(hint) if part.default is not MISSING} | made


# --- reading -----------------------------------------------------------------------------------------------------


def _enum_reader(hint: type[Enum], _: _Way) -> Hook:
    members = {member.value: member for member in hint}
    expected = "one of " + ", ".join(str(value) for value in members)

    def read(value: Any) -> Enum:
        if type(value) is str or type(value) is int:
            member = members.get(value)
            if member is not None:
                return member
        raise _WrongError(expected)

    return read


def _sequence_reader(hint: Any, way: _Way) -> Hook:
    if not is_homogeneous(hint):
        hooks = [_hook(part, way) for part in get_args(hint)]
        return _array_reader(hooks, len(hooks), f"an array of {len(hooks)}", (), lambda *items: items)
    hook = _hook(get_args(hint)[0], way)

    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise _WrongError("an array")
        return tuple(_gathered(map(hook, value), value))

    return read


def _row_reader(hint: type[msgspec.Struct], way: _Way) -> Hook:
    hints = row_hints(hint)
    least, most = len(hints) - len(hint.__struct_defaults__), len(hints)
    hooks = [_hook(part, way) for part in hints.values()]
    return _array_reader(hooks, least, f"an array of {least} to {most}", [*hints], hint)


def _array_reader(hooks: list[Hook], least: int, expected: str, names: Sequence[str], make: Callable[..., Any]) -> Hook:
    """Return the reader of an array whose items, at least `least`, have a hook each."""

    def read(value: Any) -> Any:
        if type(value) is not list or not least <= len(value) <= len(hooks):
            raise _WrongError(expected)
        return make(*_gathered(map(call, hooks, value), value, names))

    return read


def _record_reader(hint: type, way: _Way) -> Hook:
    hooks = {name: _hook(part, way) for name, part in field_hints(hint, annotated=True).items()}
    defaults = _defaults(hint)

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _WrongError("a map")
        try:
            for key, item in value.items():
                value[key] = hooks[key](item)  # nobody else has it
        except _TROUBLE as problem:
            if key not in hooks:
                raise _WrongError(f"no field {_echo(key)}") from problem
            raise _placed(problem, f".{key}", item) from problem
        try:
            return hint(**value)
        except TypeError as problem:
            for name in hooks:
                if name not in value and name not in defaults:
                    raise _WrongError(f"a field {name!r}") from problem
            raise

    return read


# --- writing -----------------------------------------------------------------------------------------------------


def _enum_writer(hint: type[Enum], _: _Way) -> Hook:
    def write(value: Any) -> Any:
        if type(value) is not hint:
            raise _WrongError(f"a {hint.__name__}")
        return value.value

    return write


def _sequence_writer(hint: Any, way: _Way) -> Hook:
    if not is_homogeneous(hint):
        hooks = [_hook(part, way) for part in get_args(hint)]

        def write_fixed(value: Any) -> list[Any]:
            if not isinstance(value, tuple) or len(value) != len(hooks):
                raise _WrongError(f"a tuple of {len(hooks)}")
            return _gathered(map(call, hooks, value), value)

        return write_fixed
    hook = _hook(get_args(hint)[0], way)

    def write(value: Any) -> list[Any]:
        if type(value) is not tuple and (isinstance(value, str | bytes) or not isinstance(value, Sequence)):
            raise _WrongError("a sequence")
        if len(value) > ITEMS_MAX:
            raise _WrongError(f"at most {ITEMS_MAX} items")
        return _gathered(map(hook, value), value)

    return write


def _row_writer(hint: type[msgspec.Struct], way: _Way) -> Hook:
    hooks = [_hook(part, way) for part in row_hints(hint).values()]
    defaults = hint.__struct_defaults__
    least = len(hooks) - len(defaults)

    def write(value: Any) -> list[Any]:
        if type(value) is not hint:
            raise _WrongError(f"a {hint.__name__}")
        items = msgspec.structs.astuple(value)
        told = len(items)
        while told > least and items[told - 1] == defaults[told - 1 - least]:
            told -= 1  # what is at its default at the end is not sent
        return _gathered(map(call, hooks, items[:told]), items, hint.__struct_fields__)

    return write


def _record_writer(hint: type, way: _Way) -> Hook:
    hints, defaults = field_hints(hint, annotated=True), _defaults(hint)
    parts = [(name, _hook(part, way), defaults.get(name, _ABSENT)) for name, part in hints.items()]

    def write(value: Any) -> dict[str, Any]:
        if type(value) is not hint:
            raise _WrongError(f"a {hint.__name__}")
        made: dict[str, Any] = {}
        try:
            for name, hook, default in parts:
                item = getattr(value, name)
                if item is not default and (default is _ABSENT or item != default):
                    made[name] = hook(item)
        except _TROUBLE as problem:
            raise _placed(problem, f".{name}", item) from problem
        return made

    return write


# --- by type -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class _Way:
    """To plain data or from it: what is made of a text of each form, and of what is not plain, by what it is."""

    texts: Mapping[TextForm, Hook]
    forms: tuple[tuple[Callable[[Any], bool], Callable[[Any, _Way], Hook]], ...]


_READERS = (
    (is_enum, _enum_reader),
    (is_sequence, _sequence_reader),
    (is_row, _row_reader),
    (is_record, _record_reader),
)
_WRITERS = (
    (is_enum, _enum_writer),
    (is_sequence, _sequence_writer),
    (is_row, _row_writer),
    (is_record, _record_writer),
)
_READ = _Way({form: _checked(form) for form in TextForm}, _READERS)
_WRITE = _Way({form: _cleaning(form) for form in TextForm}, _WRITERS)
_READ_OWN = _Way(dict.fromkeys(TextForm, _text), _READERS)
_WRITE_OWN = _Way(dict.fromkeys(TextForm, _text), _WRITERS)
_SCALARS: dict[Any, Hook] = {bool: _bool, int: _int, float: _float, bytes: _bytes}
_PLAIN: dict[Any, Callable[[Any, Callable[[Any], str]], Any]] = {Any: _plain, Mapping[str, Any]: _params}


def _form_of(hint: Any) -> TextForm:
    """Return the form of texts of this type."""
    notes = getattr(hint, "__metadata__", ())
    return next((note for note in notes if isinstance(note, TextForm)), TextForm.LINE)


@cache
def _hook(hint: Any, way: _Way) -> Hook:
    """Return the hook that reads or writes a value of this type; TypeError for a type that has no form in a body."""
    plain = bare(hint)
    if plain is str:
        return way.texts[_form_of(hint)]
    if plain in _SCALARS:
        return _SCALARS[plain]
    if plain in _PLAIN:
        convert, text = _PLAIN[plain], way.texts[TextForm.PROSE]
        return lambda value: convert(value, text)
    if is_optional(plain):
        hook = _hook(inside(plain), way)
        return lambda value: None if value is None else hook(value)
    for test, make_hook in way.forms:
        if test(plain):
            return make_hook(plain, way)
    raise TypeError(f"{hint} has no form in a body")


# --- public ------------------------------------------------------------------------------------------------------


def pack(value: Any, cls: type[Any]) -> bytes:
    """Bytes of a frozen dataclass value of exactly the class `cls`. Raises `CodecError`."""
    return to_bytes(_converted(value, cls, cls.__name__, _WRITE_OWN), cls.__name__)


def unpack(body: bytes, cls: type[T]) -> T:
    """Return the value of class `cls` that `pack` made `body` from. Raises `CodecError` for anything else."""
    made: T = _converted(from_bytes(body), cls, cls.__name__, _READ_OWN)
    return made


def _converted(value: Any, cls: type[Any], path: str, way: _Way) -> Any:
    hook = _hook(cast(Any, cls), way)
    try:
        return hook(value)
    except _TROUBLE as problem:
        raise _placed(problem, path, value) from problem


_BY_KIND: dict[str, type[Message]] = {cls.KIND: cls for cls in MESSAGES}
_CLASSES = frozenset(MESSAGES)
_ENVELOPE = {"k", "v", "b"}


def encode(message: Message) -> bytes:
    """Return the body of a message. Raises `CodecError` when a field holds a value that its type does not allow (NaN,
    for example)."""
    cls = type(message)
    if cls not in _CLASSES:
        raise CodecError(f"expected a message, got {_echo(message)}")
    return to_bytes({"k": cls.KIND, "v": cls.VERSION, "b": _converted(message, cls, cls.KIND, _WRITE)}, cls.KIND)


def fingerprint(message: Message) -> bytes:
    """Return 16 bytes that are the same for equal messages alone (BLAKE2b): what to remember of a large one."""
    return blake2b(repr(message).encode("utf-8", "surrogatepass"), digest_size=16).digest()


# How nearly every report begins: with a map of seven fields. Seven have no default, so when all of those are there, no
# other is and none is there twice.
_REPORT_HEAD = to_bytes({"k": Report.KIND, "v": Report.VERSION, "b": None}, "")[:-1]
_REPORT_START = _REPORT_HEAD + bytes([0x80 + sum(part.default is MISSING for part in fields(Report))])
_REPORT_AT = len(_REPORT_HEAD)
_REPORT_DECODER = msgspec.msgpack.Decoder(Report)


def decode(body: bytes) -> Message:
    """Return the message in a body. Raises `CodecError`, and nothing else, for every invalid body."""
    if body.startswith(_REPORT_START) and len(body) <= UNCHECKED_BYTES_MAX:
        try:
            report = _REPORT_DECODER.decode(body[_REPORT_AT:])
        except (msgspec.MsgspecError, InvalidValue, ValueError, RecursionError):
            return decode_strictly(body)  # says what is wrong, or takes what the types above leave out
        if _has_plain_texts(report):
            return report
    return decode_strictly(body)


def _has_plain_texts(report: Report) -> bool:
    """Return whether all texts of a report with the usual start are words, and thus of their forms; the types have
    checked their lengths."""
    texts = [report.node, report.boot_id]
    for status in report.vms:
        texts.append(status.vm)
        if status.busy:
            texts.append(status.busy)
        if status.address:
            texts.append(status.address)
        if status.definition:
            texts.append(status.definition)
        if status.migration_needs:
            texts += status.migration_needs
    return are_words(",".join(texts))


def decode_strictly(body: bytes) -> Message:
    """Decode as `decode` does, field by field."""
    envelope = from_bytes(body)
    if type(envelope) is not dict or envelope.keys() != _ENVELOPE:
        raise CodecError(f"not a message: expected a map of k, v and b, got {_echo(envelope)}")
    kind, version = envelope["k"], envelope["v"]
    cls = _BY_KIND.get(kind) if type(kind) is str else None
    if cls is None:
        raise CodecError(f"no message is of kind {_echo(kind)}")
    if type(version) is not int or not cls.OLDEST <= version <= cls.VERSION:
        raise CodecError(f"{kind}: version {_echo(version)}, expected {cls.OLDEST} to {cls.VERSION}")
    made: Message = _converted(envelope["b"], cls, kind, _READ)
    return made
