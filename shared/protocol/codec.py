"""Messages and records to msgpack bytes and back: strict, bounded, and `CodecError` for whatever is not right.

A message travels as the map {"k": kind, "v": version, "b": fields}. Fields at their defaults are not sent; the rows of
reports (`msgspec.Struct`) are arrays of their fields in order, as far as the last that is not at its default. Nothing
is coerced: "12" is not 12 and True is not 1; only a whole number where a float belongs is taken (and becomes a float).
What msgpack itself may contain, and how much of it, is checked by `shared.protocol.msgpack`.

Texts of messages are held to the form that their field declares (`shared.values.texts`), a line where it declares none:
what is read is refused, what is written is cleaned, so that nothing honest is refused. Records of our own (`pack`,
`unpack`) hold what they were given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from functools import cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, cast, get_args

import msgspec

from shared.base.errors import CodecError, InvalidValue
from shared.base.record_reader import Reader, compile_reader
from shared.base.record_writer import Writer, compile_writer
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
    row_length,
)
from shared.protocol.messages import MESSAGES, Message, Report
from shared.protocol.msgpack import ITEMS_MAX, KEYS_MAX, UNCHECKED_BYTES_MAX, from_bytes, to_bytes
from shared.values.scalars import INT_MAX, INT_MIN, TEXT_LENGTH_MAX
from shared.values.texts import TextForm, are_words, cleaned, fits

T = TypeVar("T")
Part = tuple[str, Any, Any]  # step of the path, value, type

PLAIN_DEPTH_MAX = 8  # containers in containers within data without a declared type
ECHO_LENGTH_MAX = 60  # characters of the input in an error
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # Python allows these in a string, UTF-8 does not


class _WrongError(Exception):
    """A value is not what its place needs; says what is."""

    def __init__(self, expected: str) -> None:
        super().__init__(expected)
        self.expected = expected


_TROUBLE = (_WrongError, InvalidValue, KeyError, AttributeError, TypeError, ValueError)


# --- scalars -----------------------------------------------------------------------------------------------------


def _bool(value: Any, _: Any = None) -> bool:
    if value is True or value is False:
        return value
    raise _WrongError("true or false")


def _int(value: Any, _: Any = None) -> int:
    if type(value) is int and INT_MIN <= value <= INT_MAX:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and INT_MIN <= value <= INT_MAX:
        return int(value)
    raise _WrongError("a whole number of at most 64 bits")


def _float(value: Any, _: Any = None) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and INT_MIN <= value <= INT_MAX:
        return float(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    raise _WrongError("a finite number")


def _text(value: Any, _: Any = None) -> str:
    if type(value) is str and len(value) <= TEXT_LENGTH_MAX and value.isascii():
        return value
    if isinstance(value, str) and len(value) <= TEXT_LENGTH_MAX and not _LONE_SURROGATE.search(value):
        return str.__str__(value)
    raise _WrongError(f"a string of at most {TEXT_LENGTH_MAX} characters")


def _checked_reader(form: TextForm) -> Reader:
    def read(value: Any, _: Any = None) -> str:
        text = _text(value)
        if not fits(text, form):
            raise _WrongError(form.value)
        return text

    return read


def _cleaning_writer(form: TextForm) -> Writer:
    def write(value: Any) -> str:
        if isinstance(value, str) and not fits(value, form) and form is not TextForm.WORD:
            value = cleaned(str.__str__(value), form)
        text = _text(value)
        if not fits(text, form):
            raise _WrongError(form.value)
        return text

    return write


_CHECKED = {form: _checked_reader(form) for form in TextForm}
_CLEANING = {form: _cleaning_writer(form) for form in TextForm}


def _bytes(value: Any, _: Any = None) -> bytes:
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
    """Whether all are plain scalars, of one kind or None; False also where only a look at each can tell."""
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
    """A map of plain data by name."""
    if not isinstance(value, Mapping):
        raise _WrongError("a map")
    return _plain(dict(value), text)


def _item_hints(hint: Any, length: int) -> list[Any]:
    """The type of each of `length` items; `_WrongError` when a fixed-length tuple has another length."""
    parts = list(get_args(hint))
    if is_homogeneous(hint):
        return parts[:1] * length
    if len(parts) != length:
        raise _WrongError(f"an array of {len(parts)}")
    return parts


# --- reading -----------------------------------------------------------------------------------------------------


def _enum_reader(hint: type[Enum], _: bool) -> Reader:
    members = {member.value: member for member in hint}
    expected = "one of " + ", ".join(str(value) for value in members)

    def read(value: Any, _: Any) -> Enum:
        if type(value) is str or type(value) is int:
            member = members.get(value)
            if member is not None:
                return member
        raise _WrongError(expected)

    return read


def _optional_reader(hint: Any, checked: bool) -> Reader:
    inner = inside(hint)
    hook = _reader(inner, checked)
    return lambda value, _: None if value is None else hook(value, inner)


def _sequence_reader(hint: Any, checked: bool) -> Reader:
    if not is_homogeneous(hint):
        hooks = [(_reader(part, checked), part) for part in get_args(hint)]

        def read_fixed(value: Any, _: Any) -> tuple[Any, ...]:
            if type(value) is not list or len(value) != len(hooks):
                raise _WrongError(f"an array of {len(hooks)}")
            return tuple([hook(item, part) for item, (hook, part) in zip(value, hooks, strict=True)])

        return read_fixed
    inner = get_args(hint)[0]
    hook = _reader(inner, checked)

    def read(value: Any, _: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise _WrongError("an array")
        return tuple([hook(item, inner) for item in value])

    return read


def _record_reader(hint: type, checked: bool) -> Reader:
    hints = field_hints(hint, annotated=True)
    readers = {name: _reader(part, checked) for name, part in hints.items()}
    bounds = {"int_min": INT_MIN, "int_max": INT_MAX, "text_max": TEXT_LENGTH_MAX}
    return compile_reader(hint, hints, readers, bounds, _WrongError)


def _row_reader(hint: type[msgspec.Struct], checked: bool) -> Reader:
    hooks = [(_reader(part, checked), part) for part in row_hints(hint).values()]
    least, expected = row_length(hint)

    def read(value: Any, _: Any) -> Any:
        if type(value) is not list or not least <= len(value) <= len(hooks):
            raise _WrongError(expected)
        return hint(*[hook(item, part) for item, (hook, part) in zip(value, hooks, strict=False)])

    return read


# --- writing -----------------------------------------------------------------------------------------------------


def _enum_writer(hint: type[Enum], _: bool) -> Writer:
    def write(value: Any) -> Any:
        if type(value) is not hint:
            raise _WrongError(f"a {hint.__name__}")
        return value.value

    return write


def _optional_writer(hint: Any, checked: bool) -> Writer:
    hook = _writer(inside(hint), checked)
    return lambda value: None if value is None else hook(value)


def _sequence_writer(hint: Any, checked: bool) -> Writer:
    if not is_homogeneous(hint):
        hooks = [_writer(part, checked) for part in get_args(hint)]

        def write_fixed(value: Any) -> list[Any]:
            if not isinstance(value, tuple) or len(value) != len(hooks):
                raise _WrongError(f"a tuple of {len(hooks)}")
            return [hook(item) for hook, item in zip(hooks, value, strict=True)]

        return write_fixed
    hook = _writer(get_args(hint)[0], checked)

    def write(value: Any) -> list[Any]:
        if type(value) is not tuple and (isinstance(value, str | bytes) or not isinstance(value, Sequence)):
            raise _WrongError("a sequence")
        if len(value) > ITEMS_MAX:
            raise _WrongError(f"at most {ITEMS_MAX} items")
        return [hook(item) for item in value]

    return write


def _record_writer(hint: type, checked: bool) -> Writer:
    hints = field_hints(hint, annotated=True)
    return compile_writer(hint, {name: _writer(part, checked) for name, part in hints.items()}, _WrongError)


def _row_writer(hint: type[msgspec.Struct], checked: bool) -> Writer:
    hooks = [_writer(part, checked) for part in row_hints(hint).values()]
    defaults = hint.__struct_defaults__
    least = len(hooks) - len(defaults)

    def write(value: Any) -> Any:
        if type(value) is not hint:
            raise _WrongError(f"a {hint.__name__}")
        items = msgspec.structs.astuple(value)
        return [hook(item) for hook, item in zip(hooks[: _told(items)], items, strict=False)]

    def _told(items: tuple[Any, ...]) -> int:
        """How many fields are sent: those at the end that are as they are by default are not."""
        count = len(items)
        while count > least and items[count - 1] == defaults[count - 1 - least]:
            count -= 1
        return count

    return write


# --- by type -----------------------------------------------------------------------------------------------------


_SCALARS: dict[Any, Any] = {bool: _bool, int: _int, float: _float, bytes: _bytes}
_PLAIN: dict[Any, Callable[[Any, Callable[[Any], str]], Any]] = {Any: _plain, Mapping[str, Any]: _params}
_FORMS: tuple[tuple[Callable[[Any], bool], Callable[[Any, bool], Reader], Callable[[Any, bool], Writer]], ...] = (
    (is_enum, _enum_reader, _enum_writer),
    (is_optional, _optional_reader, _optional_writer),
    (is_sequence, _sequence_reader, _sequence_writer),
    (is_row, _row_reader, _row_writer),
    (is_record, _record_reader, _record_writer),
)


def _form_of(hint: Any) -> TextForm:
    """What a text of this type may hold."""
    notes = getattr(hint, "__metadata__", ())
    return next((note for note in notes if isinstance(note, TextForm)), TextForm.LINE)


@cache
def _reader(hint: Any, checked: bool) -> Reader:
    """What reads a value of this type, texts by their form if `checked`; TypeError for a type that has no form in a
    body."""
    plain = bare(hint)
    if plain is str:
        return _CHECKED[_form_of(hint)] if checked else _text
    if plain in _SCALARS:
        return cast(Reader, _SCALARS[plain])
    if plain in _PLAIN:
        convert = _PLAIN[plain]
        text = cast("Callable[[Any], str]", _CHECKED[TextForm.PROSE] if checked else _text)
        return lambda value, _: convert(value, text)
    for test, make_reader, _ in _FORMS:
        if test(plain):
            return make_reader(plain, checked)
    raise TypeError(f"{hint} has no form in a body")


@cache
def _writer(hint: Any, checked: bool) -> Writer:
    """What writes a value of this type, texts by their form if `checked`; TypeError for a type that has no form in a
    body."""
    plain = bare(hint)
    if plain is str:
        return _CLEANING[_form_of(hint)] if checked else _text
    if plain in _SCALARS:
        return cast(Writer, _SCALARS[plain])
    if plain in _PLAIN:
        convert, text = _PLAIN[plain], _CLEANING[TextForm.PROSE] if checked else _text
        return lambda value: convert(value, text)
    for test, _, make_writer in _FORMS:
        if test(plain):
            return make_writer(plain, checked)
    raise TypeError(f"{hint} has no form in a body")


# --- what was wrong ----------------------------------------------------------------------------------------------


def _echo(value: Any) -> str:
    """A short text for a value of any size."""
    if isinstance(value, str):
        return repr(str.__str__(value)[:ECHO_LENGTH_MAX])
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if INT_MIN <= value <= INT_MAX else "a larger whole number"
    if isinstance(value, dict | list | tuple):
        return f"a {'map' if isinstance(value, dict) else 'list'} of {len(value)}"
    return f"a {type(value).__name__}"[:ECHO_LENGTH_MAX]


def _items_of(value: Any, hint: Any) -> Iterator[Part]:
    """What lies directly inside an array, map or optional value."""
    if is_optional(hint) and value is not None:
        yield "", value, inside(hint)
    elif is_sequence(hint) and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for index, (item, part) in enumerate(zip(value, _item_hints(hint, len(value)), strict=True)):
            yield f"[{index}]", item, part


def _read_parts(value: Any, hint: Any) -> Iterator[Part]:
    """What lies directly inside a value that is to be read as `hint`; `_WrongError` for keys too many or missing."""
    if is_row(hint) and type(value) is list:
        least, expected = row_length(hint)
        hints = row_hints(hint)
        if not least <= len(value) <= len(hints):
            raise _WrongError(expected)
        for (name, part), item in zip(hints.items(), value, strict=False):
            yield f".{name}", item, part
        return
    if not (is_record(hint) and type(value) is dict):
        yield from _items_of(value, hint)
        return
    hints = field_hints(hint, annotated=True)
    known = {field.name: field for field in fields(hint)}
    for key in value:
        if key not in known:
            raise _WrongError(f"no field {_echo(key)}")
    for name, field in known.items():
        if name in value:
            yield f".{name}", value[name], hints[name]
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _WrongError(f"a field {name!r}")


def _write_parts(value: Any, hint: Any) -> Iterator[Part]:
    """What lies directly inside a value that is to be written as `hint`."""
    if type(value) is not hint or not (is_record(hint) or is_row(hint)):
        yield from _items_of(value, hint)
        return
    for name, part in (row_hints(hint) if is_row(hint) else field_hints(hint, annotated=True)).items():
        yield f".{name}", getattr(value, name), part


def _refuse(
    path: str, value: Any, hint: Any, attempt: Callable[[Any, Any], Any], parts: Callable[[Any, Any], Iterator[Part]]
) -> NoReturn:
    """Raise the `CodecError` for a value on which `attempt` failed: name its innermost part that fails alone."""
    try:
        for step, part, part_hint in parts(value, hint):
            try:
                attempt(part, part_hint)
            except _TROUBLE:
                _refuse(path + step, part, part_hint, attempt, parts)
        attempt(value, hint)
    except InvalidValue as problem:
        reason = f"{problem.field} is {_echo(problem.got)}, expected {problem.expected}"
        raise CodecError(f"{path}: {reason}") from problem
    except _WrongError as problem:
        raise CodecError(f"{path}: expected {problem.expected}, got {_echo(value)}") from problem
    except _TROUBLE as problem:
        raise CodecError(f"{path}: {type(problem).__name__} while converting {_echo(value)}") from problem
    raise CodecError(f"{path}: {_echo(value)} cannot be converted")


# --- public ------------------------------------------------------------------------------------------------------


def pack(value: Any, cls: type[Any]) -> bytes:
    """Bytes of a frozen dataclass value of exactly the class `cls`. Raises `CodecError`."""
    return to_bytes(_write(value, cls, cls.__name__, False), cls.__name__)


def unpack(body: bytes, cls: type[T]) -> T:
    """The value of class `cls` that `pack` made `body` from. Raises `CodecError` for anything else."""
    return _read(from_bytes(body), cls, cls.__name__, False)


def _write(value: Any, cls: type[Any], path: str, checked: bool) -> Any:
    try:
        return _writer(cast(Any, cls), checked)(value)
    except _TROUBLE:
        _refuse(path, value, cls, lambda part, hint: _writer(hint, checked)(part), _write_parts)


def _read(plain: Any, cls: type[T], path: str, checked: bool) -> T:
    try:
        made: T = _reader(cast(Any, cls), checked)(plain, cls)
        return made
    except _TROUBLE:
        _refuse(path, plain, cls, lambda part, hint: _reader(hint, checked)(part, hint), _read_parts)


_BY_KIND: dict[str, type[Message]] = {cls.KIND: cls for cls in MESSAGES}
_CLASSES = frozenset(MESSAGES)
_ENVELOPE = {"k", "v", "b"}


def encode(message: Message) -> bytes:
    """The body of a message. Raises `CodecError` when a field holds what its type does not allow (NaN, say)."""
    cls = type(message)
    if cls not in _CLASSES:
        raise CodecError(f"expected a message, got {_echo(message)}")
    return to_bytes({"k": cls.KIND, "v": cls.VERSION, "b": _write(message, cls, cls.KIND, True)}, cls.KIND)


def fingerprint(message: Message) -> bytes:
    """Return 16 bytes that are the same for equal messages alone (BLAKE2b): what to remember of a large one."""
    return blake2b(repr(message).encode("utf-8", "surrogatepass"), digest_size=16).digest()


# How nearly every report begins: with a map of seven fields. Seven have no default, so when all of those are there, no
# other is and none is there twice.
_REPORT_HEAD = to_bytes({"k": Report.KIND, "v": Report.VERSION, "b": None}, "")[:-1]
_REPORT_START = _REPORT_HEAD + bytes([0x80 + sum(part.default is MISSING for part in fields(Report))])
_REPORT_AT = len(_REPORT_HEAD)
_VM = attrgetter("vm")
# The texts of the last report of each node, which are those of the next as a rule.
_WORDS: dict[str, str] = {}
_WORDS_MAX, _WORDS_LENGTH_MAX = 4_000, 2_000
_REPORT_DECODER = msgspec.msgpack.Decoder(Report)


def decode(body: bytes) -> Message:
    """The message in a body. Raises `CodecError`, and nothing else, for every body that is not one."""
    if body.startswith(_REPORT_START) and len(body) <= UNCHECKED_BYTES_MAX:
        try:
            report = _REPORT_DECODER.decode(body[_REPORT_AT:])
        except (msgspec.MsgspecError, InvalidValue, ValueError, RecursionError):
            return decode_strictly(body)  # says what is wrong, or takes what the types above leave out
        if _has_plain_texts(report):
            return report
    return decode_strictly(body)


def _has_plain_texts(report: Report) -> bool:
    """Whether all texts of a report that begins as nearly every one does are words, so that they are of their forms;
    the types have seen to their lengths."""
    vms = report.vms
    texts = [report.node, report.boot_id, *map(_VM, vms)]
    for status in vms:
        if status.busy or status.address or status.definition or status.migration_needs:
            texts += (status.busy, status.address, status.definition, *status.migration_needs)
    joined = ",".join(texts)
    if _WORDS.get(report.node) == joined:
        return True
    if not are_words(joined):
        return False
    if len(joined) <= _WORDS_LENGTH_MAX:
        if len(_WORDS) >= _WORDS_MAX:
            _WORDS.clear()
        _WORDS[report.node] = joined
    return True


def decode_strictly(body: bytes) -> Message:
    """As `decode`, field by field."""
    envelope = from_bytes(body)
    if type(envelope) is not dict or envelope.keys() != _ENVELOPE:
        raise CodecError(f"not a message: expected a map of k, v and b, got {_echo(envelope)}")
    kind, version = envelope["k"], envelope["v"]
    cls = _BY_KIND.get(kind) if type(kind) is str else None
    if cls is None:
        raise CodecError(f"no message is of kind {_echo(kind)}")
    if type(version) is not int or not cls.OLDEST <= version <= cls.VERSION:
        raise CodecError(f"{kind}: version {_echo(version)}, expected {cls.OLDEST} to {cls.VERSION}")
    if len(body) <= UNCHECKED_BYTES_MAX:
        return _read(envelope["b"], cls, kind, True)
    try:
        made: Message = _reader(cast(Any, cls), True)(envelope["b"], cls)
    except _TROUBLE as problem:  # to find the place all of it would have to be read again
        raise CodecError(f"{kind}: something in its {len(body)} bytes is not as it should be") from problem
    return made
