"""Structured mutations of files, words and plain values: what an input looks like that is nearly right.

Everything is drawn from the generator that is given, so that a seed says which case it is.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import cache
from typing import Any

import msgpack  # type: ignore[import-untyped]

DIGITS = "9" * 400
LONG = "x" * 5_000
NUMBERS = (
    *("0", "-0", "1", "-1", "0.0", "-0.5", "1e-320", "1e308", "-1e308", "1e999", "nan", "-nan", "inf", "-inf"),
    *("2147483648", "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775809"),
    *("18446744073709551616", "1_0", "0x10", "0b1", "01", "+1", "1.", ".5", "1e", "٣", "1,5", "1e12", "1e9", "1e6"),
    *(DIGITS, f"1{'0' * 400}", f"0.{'0' * 400}1"),
)
DATES = (
    *("0001-01-01", "0001-01-01T00:00", "0001-01-01T00:00:00+23:59", "9999-12-31", "9999-12-31T23:59:59Z"),
    *("9999-12-31T23:59:59-12:00", "1970-01-01T00:00:00Z", "2024-02-30", "2023-02-29T00:00", "2022-03-27T02:30"),
    *("2022-10-30T02:30", "2026-13-01", "10000-01-01", "24:00", "23:60", "00:00"),
)
TEXTS = (
    *("", " ", "a", "-", "--", "a b", "ä", "\U0001f600", "x" * 129, "x" * 300, LONG, "../x", "./", ".", "..", "a/b"),
    *("\x00", "a\x00b", "a\x1b[31mb", "\x1b]0;t\x07", "a\u202eb", "\u2066a", "\ufeffa", "\u2028", "a\nb", "a\tb"),
    *("a\rb", "\x7f", "\x85", "a#0", "#", "{vm}", "{argument.9}", "{", "%s", "{0}", "[red]a[/red]", ":smile:", "=1+1"),
    *("a,b", "a;b", '"', "'", "\\", "no-such-thing", "true", "null", "None", "UTC", "Europe", "Europe/Berlin"),
    *("amqps://agent.n1@[::1/", "amqp://a:b@h:99999/", "http://[/", "sqlite:////", "https://h/%00", "127.00.0.1"),
)
SURROGATES = ("\ud800", "a\udfffb", "\ud83d")
PATHS = (
    *(
        "",
        ".",
        "..",
        "nosuch",
        "nosuch/x",
        "/proc/none/x",
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "-",
        "~",
        "~nobody/x",
    ),
    *("a\x00b", "x" * 300, "x/" * 2_500, "\x1b[31m", "a\nb", "//", "file:///x", "sqlite:///x", "\udcff"),
)
DEPTHS = (40, 120, 1_000, 20_000)
WORD = re.compile(r'"(?:[^"\\\n]|\\.)*"|[A-Za-z_][\w.-]*|-?\d[\w.:+-]*')
NUMBER = re.compile(r"-?\d[\w.]*(?:[eE][+-]?\d+)?")
BOMB_BYTES = 1 << 26


class Form(StrEnum):
    """How a file is written."""

    TOML = "toml"
    JSON = "json"
    CSV = "csv"
    SWF = "swf"
    XML = "xml"
    BINARY = "binary"


def mutated(content: bytes, form: Form, rng: random.Random) -> bytes:
    """A file with one to three things changed; a third of them in its bytes."""
    if form is Form.BINARY or rng.random() < 0.25:
        return bytes_changed(content, rng)
    text = content.decode("utf-8")
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice(_CHANGES[form])
        text = change(text, form, rng)
    body = text.encode("utf-8", errors="surrogatepass")
    return bytes_changed(body, rng) if rng.random() < 0.05 else body


# --- bytes ----------------------------------------------------------------------------------------------------------


def damaged(body: bytes, rng: random.Random, heads: bytes = b"") -> bytes:
    """One to four bytes changed, taken out or put in; `heads`: what is put there rather than any."""
    changed = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        if not changed:
            break
        at = rng.randrange(len(changed))
        byte = rng.choice(heads) if heads and rng.random() < 0.5 else rng.randrange(256)
        if rng.random() < 0.7:
            changed[at] = byte
        elif rng.random() < 0.5:
            del changed[at]
        else:
            changed.insert(at, byte)
    return bytes(changed)


def bytes_changed(content: bytes, rng: random.Random) -> bytes:
    """Flipped, cut, doubled, marked, in another encoding or packed."""
    kind = rng.random()
    if kind < 0.45:
        return damaged(content, rng)
    if kind < 0.6:
        return content[: rng.randrange(len(content) + 1)]
    if kind < 0.7:
        at, more = rng.randrange(len(content) + 1), rng.randrange(1, 200)
        return content[:at] + content[max(0, at - more) :]
    if kind < 0.98:
        return rng.choice(_WHOLE)(content, rng)
    return _bomb(rng.choice((b"\n", b"0", b"\x00", b"1 ")))


_WHOLE: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    lambda content, _: b"\xef\xbb\xbf" + content,
    lambda content, _: b"\xff\xfe" + content.decode("latin-1").encode("utf-16-le"),
    lambda content, _: content.replace(b"\n", b"\r\n"),
    lambda content, _: content.replace(b"\n", b"\r"),
    lambda content, _: content.replace(b"\n", b""),
    lambda content, _: content * 2,
    lambda content, _: gzip.compress(content, mtime=0),
    lambda content, rng: damaged(gzip.compress(content, mtime=0), rng),
    lambda content, rng: gzip.compress(content, mtime=0)[: rng.randrange(len(content) + 1)],
    lambda content, _: content + b"\x00" * 100,
    lambda content, _: b"\x00" * 70_000 + content,
    lambda content, rng: content + rng.randbytes(50),
    lambda _, rng: rng.randbytes(rng.choice((0, 1, 2, 10, 1_000))),
    lambda _, __: b"",
)


@cache
def _bomb(byte: bytes) -> bytes:
    """Little that unpacks to much."""
    return gzip.compress(byte * (BOMB_BYTES // len(byte)), mtime=0)


# --- lines and words ------------------------------------------------------------------------------------------------


def _lines_changed(text: str, form: Form, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    used = [at for at, line in enumerate(lines) if line.strip() and not line.lstrip().startswith(("#", ";"))]
    if not used:
        return text
    at, other = rng.choice(used), rng.choice(used)
    kind = rng.randrange(8)
    if kind <= 1:
        del lines[at]
    elif kind == 2:
        lines.insert(other, lines[at])
    elif kind == 3:
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 4:
        lines.insert(at, _odd_line(form, rng))
    elif kind == 5:
        lines[at] = lines[at][: rng.randrange(len(lines[at]))]
    elif kind == 6:
        lines[at] = lines[at].rstrip("\n") + " " + lines[other]
    else:
        del lines[min(at, other) : max(at, other)]
    return "".join(lines)


def _odd_line(form: Form, rng: random.Random) -> str:
    word, number = rng.choice(TEXTS), rng.choice(NUMBERS)
    if form is Form.TOML:
        deep = rng.choice(DEPTHS)
        odd = (
            f"x = {number}\n",
            f"{_quoted(word)} = 1\n",
            f"x = {_quoted(word)}\n",
            "[x]\n",
            "[[stages]]\n",
            f"x = {'[' * deep}{']' * deep}\n",
            f"x = {'{a=' * deep}1{'}' * deep}\n",
            f"{'a.' * min(deep, 1_000)}a = 1\n",
            f"[{'a.' * min(deep, 1_000)}a]\n",
            f"x = [{number + ', ' if len(number) < 30 else '1, '}{'1, ' * 20_000}]\n",
            "x = '''\n",
            f"x = {rng.choice(DATES)}\n",
        )
        return rng.choice(odd)
    if form is Form.CSV:
        return ",".join(rng.choice((word, number, rng.choice(DATES), "")) for _ in range(rng.randrange(1, 6))) + "\n"
    if form is Form.SWF:
        return " ".join(rng.choice((number, "1", "-1")) for _ in range(rng.choice((1, 17, 18, 18, 18, 19)))) + "\n"
    return rng.choice((word, number)) + "\n"


def _word_changed(text: str, form: Form, rng: random.Random) -> str:
    """Another value or name in the place of one."""
    found = [match for match in WORD.finditer(text) if not _is_comment(text, match.start(), form)]
    if not found:
        return text
    match = rng.choice(found)
    was = match[0]
    kind = rng.random()
    if kind < 0.12:
        new = rng.choice(found)[0]
    elif kind < 0.2:
        new = ""
    elif kind < 0.27:
        new = was + rng.choice(("x", "_", "-", ".", " ", "\x00", "0"))
    else:
        new = odd_value(form, rng, is_text=was.startswith('"'))
    return text[: match.start()] + new + text[match.end() :]


def _number_changed(text: str, form: Form, rng: random.Random) -> str:
    found = [match for match in NUMBER.finditer(text) if not _is_comment(text, match.start(), form)]
    if not found:
        return text
    match = rng.choice(found)
    new = _near(match[0], rng) if rng.random() < 0.4 else odd_value(form, rng, is_text=False)
    return text[: match.start()] + new + text[match.end() :]


def _near(number: str, rng: random.Random) -> str:
    """A number of the same kind that is another."""
    try:
        value = float(number.replace("_", ""))
    except ValueError:
        return rng.choice(NUMBERS)
    changed = rng.choice((-value, value * 10, value / 10, value + 1, value - 1, value * 1_000, value + 0.5))
    return str(int(changed)) if changed.is_integer() and rng.random() < 0.8 else repr(changed)


def odd_value(form: Form, rng: random.Random, is_text: bool) -> str:
    """How a value that is hardly expected is written in a file."""
    kind = rng.random()
    if kind < 0.4 - 0.3 * is_text:
        return rng.choice(NUMBERS)
    if kind < 0.5:
        return rng.choice(DATES) if form in (Form.CSV, Form.SWF) or not is_text else f'"{rng.choice(DATES)}"'
    if kind < 0.85:
        text = rng.choice(TEXTS if rng.random() < 0.9 else SURROGATES)
        return text if form in (Form.CSV, Form.SWF, Form.XML) else _quoted(text)
    if kind < 0.9:
        depth = rng.choice(DEPTHS)
        return {Form.XML: "<a>" * depth}.get(form, "[" * depth + "]" * depth)
    return rng.choice(("true", "false", "[]", "{}", "null", "[1]", '{"a": 1}', "{a = 1}", '["a", 1]', "", "''", "NaN"))


def _quoted(text: str) -> str:
    """As a string of TOML or JSON; both know these escapes."""
    return json.dumps(text) if not text.isprintable() else f'"{text}"'


def _is_comment(text: str, at: int, form: Form) -> bool:
    mark = {Form.TOML: "#", Form.SWF: ";"}.get(form)
    return mark is not None and mark in text[text.rfind("\n", 0, at) + 1 : at]


# --- tables, objects, elements --------------------------------------------------------------------------------------

_HEADER = re.compile(r"^\[{1,2}[^\n]*?\]{1,2}", re.MULTILINE)
_KEY = re.compile(r"^([\w.-]+|\"[^\"]*\")\s*=", re.MULTILINE)
_TAG = re.compile(r"<(/?)([\w:.-]+)([^<>]*)>")


def _header_changed(text: str, form: Form, rng: random.Random) -> str:
    found = [*(_HEADER if rng.random() < 0.5 else _KEY).finditer(text)]
    if not found:
        return _lines_changed(text, form, rng)
    match, other = rng.choice(found), rng.choice(found)
    if match.re is _KEY:
        new = rng.choice((f"{other[1]} =", f"{match[1]}x =", f"x.{match[1]} =", f"{match[1]}.x =", '"" =', "a b ="))
    else:
        table = match[0].strip("[]")
        new = rng.choice((f"[{table}]", f"[[{table}]]", f"[{table}.x]", f"[x.{table}]", other[0], "", "[]", "[", "[a"))
    return text[: match.start()] + new + text[match.end() :]


def _object_changed(text: str, form: Form, rng: random.Random) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _word_changed(text, form, rng)
    return json.dumps(plain_changed(value, rng, _JSON_VALUES))


_JSON_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, -0.5, 1e308, 1e-320, 10**400, -(10**400), float("nan"), float("inf")),
    *(2**31, 2**53 + 1, 2**63, 2**64, "", "a", "0", "nan-", [], {}, [[]], [{}], {"a": 1}, [None], ["a"] * 3),
    *TEXTS,
    *SURROGATES,
    *DATES,
)


def _tag_changed(text: str, _: Form, rng: random.Random) -> str:
    found = [*_TAG.finditer(text)]
    if not found:
        return "<!DOCTYPE a [<!ENTITY b 'c'>]>" + text
    match, other = rng.choice(found), rng.choice(found)
    deep = rng.choice(DEPTHS)
    entities = "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10 if n else 'aaaaaaaaaa'}'>" for n in range(8))
    new = rng.choice(
        (
            "",
            match[0] * 2,
            other[0],
            f"<{match[1]}x{match[2]}{match[3]}>",
            f"<{match[1]}{match[2]} a='1' a='2'{match[3]}>",
            f"<{match[2]} xmlns='urn:x'{match[3]}>",
            f"{match[0]}<!-- {rng.choice(TEXTS)} -->",
            f"{match[0]}<![CDATA[{rng.choice(TEXTS)}]]>",
            f"{match[0]}&#0;",
            f"{match[0]}&a;",
            f"{match[0]}<?x y?>",
            match[0] + "<a>" * deep + "</a>" * deep,
            match[0] + "<a/>" * deep,
        )
    )
    changed = text[: match.start()] + new + text[match.end() :]
    if rng.random() < 0.05:
        return f"<!DOCTYPE a [{entities}]>{changed.replace('>', '>&a7;', 1)}"
    return changed


_CHANGES: dict[Form, tuple[Callable[[str, Form, random.Random], str], ...]] = {
    Form.TOML: (_lines_changed, _word_changed, _word_changed, _number_changed, _number_changed, _header_changed),
    Form.JSON: (_lines_changed, _word_changed, _number_changed, _object_changed, _object_changed),
    Form.CSV: (_lines_changed, _word_changed, _number_changed),
    Form.SWF: (_lines_changed, _word_changed, _number_changed, _number_changed),
    Form.XML: (_lines_changed, _word_changed, _number_changed, _tag_changed, _tag_changed),
}


# --- plain values (JSON, msgpack) -----------------------------------------------------------------------------------

PACKED_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 0.5, -0.5, -0.0),
    *(1e308, -1e308, 1e-320, float("nan"), float("inf"), float("-inf"), b"", b"a", b"\xff" * 40, [], {}, [[]], [{}]),
    *([None], [1] * 40, {"a": 1}, {1: 2}, {b"a": None}, msgpack.ExtType(5, b"a"), msgpack.Timestamp(1)),
    *("x" * 4_096, "x" * 4_097, "ä" * 4_097, *TEXTS, *SURROGATES, *DATES),
)
HEADS = bytes((0x80, 0x87, 0x90, 0x9B, 0x9E, 0xA0, *range(0xC0, 0xE0), 0x7F, 0xFF))
"""First bytes of msgpack values."""


def plain_changed(value: Any, rng: random.Random, values: tuple[Any, ...] = PACKED_VALUES) -> Any:
    """A copy with one to three things in it changed."""
    changed = [copy.deepcopy(value)]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = [*_places(changed)]
        if not places:
            break
        holder, key = rng.choice(places)
        _change(holder, key, rng, values)
    return changed[0] if changed else None


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container and key in a value."""
    inside: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in inside:
        yield value, key
        if isinstance(item, dict | list):
            yield from _places(item)


# What MessagePack has a form for.
LEAST_PACKED, MOST_PACKED = -(2**63), 2**64 - 1


def _change(holder: Any, key: Any, rng: random.Random, values: tuple[Any, ...]) -> None:
    item, kind = holder[key], rng.random()
    if kind < 0.5:
        holder[key] = copy.deepcopy(rng.choice(values))
    elif kind < 0.6 and isinstance(item, int | float) and not isinstance(item, bool):
        near = rng.choice((-item, item + 1, item - 1, float(item) if abs(item) < 1e300 else 0.5, str(item)))
        holder[key] = near if isinstance(near, str | float) or LEAST_PACKED <= near <= MOST_PACKED else str(near)
    elif kind < 0.7:
        del holder[key]
    elif kind < 0.78 and isinstance(item, list) and item:
        item.insert(rng.randrange(len(item) + 1), copy.deepcopy(rng.choice(item)))
    elif kind < 0.84 and isinstance(item, dict):
        item[rng.choice((*TEXTS[:20], "x"))] = copy.deepcopy(rng.choice(values))
    elif kind < 0.9:
        for _ in range(rng.choice((1, 2, 40))):
            holder[key] = [holder[key]] if rng.random() < 0.5 else {"a": holder[key]}
    elif kind < 0.95 and isinstance(item, list):
        holder[key] = item * rng.choice((0, 2, 100))
    else:
        holder[key] = copy.deepcopy(rng.choice(values))
