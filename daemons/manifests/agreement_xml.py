"""Agreements in XML, as the paper has them (phoenixcloud.txt section 4.2, figure 3), and the same checks as for TOML.

Figure 3 as printed (`<relationship="business ">`) is not well-formed XML; here the text of an element is its value. Its
element names are used where it has one, the keys of the TOML file for all else: tables are nested elements, arrays
repeated ones. docs/how-to/environments.md has the table.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin
from xml.sax.saxutils import escape, quoteattr

from daemons.manifests.safe_xml import Element, load, parse
from shared.base.errors import InvalidInput, Problem
from shared.base.type_hints import field_hints
from shared.config import records
from shared.values.agreement import WorkloadType

T = TypeVar("T")
ROOT = "RE_agreement"
EXPECTED = "well-formed XML, values as the text of elements: <RE_agreement><name>night</name>...</RE_agreement>"
# Our key -> the paper's element.
PAPER = {
    "workload": "type",
    "shares": "coordinated_RE",
    "model": "resource_coordination_model",
    "lower": "lower_bound_size",
    "upper": "upper_bound_size",
    "setup.policy": "setup_policy",
}
TYPES = {"parallel_batch_jobs": WorkloadType.BATCH.value, "web_services": WorkloadType.WEB.value}
_FIRST = (
    "name",
    "owner",
    "relationship",
    "workload",
    "type",
    "shares",
    "granularity",
    "model",
    "lower",
    "upper",
    "setup_policy",
)
_SHOUTED = {"relationship", "granularity", "model", "setup.policy"}  # the paper writes FLB_NUB and NOOP
_NULL = "null"
_KINDS = ("string", "integer", "number", "boolean", "null", "array", "table")
_BLANK = " \t\r\n"
_ECHO = 60
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][+-]?[0-9]{1,4})?|[+-]?inf|nan")
_SPEAKABLE = re.compile(r"[\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")


# --- reading --------------------------------------------------------------------------------------------------------


def read(path: Path, cls: type[T]) -> T:
    """Read the XML file as an instance of `cls`, the class of the TOML file. Raises `InvalidInput` with one problem for
    each thing that is wrong."""
    reader = _Reader(str(path), load(path, EXPECTED))
    table = reader.table(cls)
    try:
        made: T = records.read(table, cls, str(path), {key: element.line for key, element in reader.places.items()})
    except InvalidInput as error:
        reader.problems += [reader.renamed(each) for each in error.problems if reader.key_of(each) not in reader.told]
    if reader.problems:
        raise InvalidInput(*reader.problems)
    return made


def from_xml(text: str, cls: type[Any], name: str = "agreement") -> dict[str, Any]:
    """Return the nested mapping of the TOML file's keys in `text`, whose values are not checked yet. Raises
    `InvalidInput`."""
    reader = _Reader(name, parse(text.encode("utf-8", "surrogatepass"), name, EXPECTED))
    table = reader.table(cls)
    if reader.problems:
        raise InvalidInput(*reader.problems)
    return table


class _Reader:
    """Turns elements into the nested mapping of a TOML file, and gathers what such a mapping cannot show."""

    def __init__(self, file: str, root: Element) -> None:
        self.problems: list[Problem] = []
        self.places: dict[str, Element] = {}
        self._file, self._root = file, root
        self.told: set[str] = set()  # keys whose elements have problems that are told already

    def table(self, cls: type[Any]) -> dict[str, Any]:
        """Return the whole table."""
        if self._root.name != ROOT:
            self._wrong(self._root, f"is the element <{self._root.name[:_ECHO]}>", f"<{ROOT}>")
            raise InvalidInput(*self.problems)
        self._no_text(self._root)
        self._attributes(self._root)
        elements: dict[str, list[Element]] = {}
        for child in self._root.children:
            elements.setdefault(child.name, []).append(child)
        named = {ours: theirs for ours, theirs in PAPER.items() if "." not in ours}
        setup = elements.pop(PAPER["setup.policy"], [])
        table = self._section("", elements, cls, named)
        if setup:
            inner = table.setdefault("setup", {})
            if isinstance(inner, dict):
                self._keep(inner, "policy", "setup.policy", setup, str)
        return table

    def _section(
        self, path: str, elements: Mapping[str, list[Element]], cls: type[Any], named: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return the keys of one table; `named`: those whose elements have other names."""
        hints = field_hints(cls, annotated=True)
        own = {named.get(key, key): key for key in (field.name.removesuffix("_") for field in fields(cls))}
        if path == "setup":
            del own["policy"]
        values: dict[str, Any] = {}
        for name, found in elements.items():
            if name not in own:
                words = difflib.get_close_matches(name[:_ECHO], own, 1) or list(own)
                expected = ("one of " if len(words) > 1 else "") + ", ".join(f"<{word}>" for word in words)
                self._wrong(found[0], "no such element", expected, path)
                continue
            key = own[name]
            hint = hints[key if key in hints else f"{key}_"]
            self._keep(values, key, _join(path, key), found, hint)
        return values

    def _keep(self, values: dict[str, Any], key: str, dotted: str, found: list[Element], hint: Any) -> None:
        """Note the value of a key, from the elements of that name."""
        bare, optional = _bare(hint)
        self.places[dotted] = found[0]
        before = len(self.problems)
        if get_origin(bare) is tuple:
            inner = get_args(bare)[0]
            for index, each in enumerate(found):
                self.places[f"{dotted}[{index}]"] = each
            items = [self._value(each, f"{dotted}[{index}]", inner) for index, each in enumerate(found)]
            values[key] = items
        else:
            for again in found[1:]:
                self._wrong(again, f"is there again, after line {found[0].line}", "one such element")
            if not (optional and _bare_text(found[0]) == _NULL and not found[0].attributes):
                values[key] = self._value(found[0], dotted, bare)
        if len(self.problems) > before:
            self.told.add(dotted)

    def _value(self, element: Element, dotted: str, hint: Any) -> Any:
        bare, _ = _bare(hint)
        if isinstance(bare, type) and is_dataclass(bare):
            self._no_text(element)
            self._attributes(element)
            below: dict[str, list[Element]] = {}
            for child in element.children:
                below.setdefault(child.name, []).append(child)
            return self._section(dotted, below, bare, {})
        if get_origin(bare) is Mapping:
            self._attributes(element)
            return self._free_table(element)
        text = self._text(element, ("coding",))
        if "coding" in element.attributes:
            return text
        if dotted == "workload":
            return TYPES.get(text, text)
        if dotted == "shares" and text.lower() in ("yes", "no"):
            return text.lower() == "yes"
        if dotted in _SHOUTED:
            return _heard(text)
        return _scalar(text, bare)

    # --- values of which the file alone says what they are ------------------------------------------------------------

    def _free_table(self, element: Element) -> dict[str, Any]:
        """Read `<entry key="..." type="...">` for each key; `json_key` in place of `key` for one that XML cannot
        hold."""
        self._no_text(element)
        table: dict[str, Any] = {}
        for child in element.children:
            if child.name != "entry":
                self._wrong(child, "no such element", '<entry key="...">')
                continue
            key = self._key_of(child)
            if key is None:
                continue
            if key in table:
                self._wrong(child, f"says {key[:_ECHO]!r} again", "every key once")
            table[key] = self._free(child, ("key", "json_key", "type", "coding"))
        return table

    def _key_of(self, element: Element) -> str | None:
        plain, coded = element.attributes.get("key"), element.attributes.get("json_key")
        key = plain if coded is None else _from_json(coded)
        if key is None or (plain is not None and coded is not None):
            self._wrong(element, "has no key", '<entry key="...">, or json_key="..." with a string as in JSON')
            return None
        return key

    def _free(self, element: Element, allowed: tuple[str, ...]) -> Any:
        kind = element.attributes.get("type", "string")
        if kind == "table":
            self._attributes(element, allowed)
            return self._free_table(element)
        if kind == "array":
            self._attributes(element, allowed)
            self._no_text(element)
            for child in element.children:
                if child.name != "item":
                    self._wrong(child, "no such element", "<item>")
            return [self._free(child, ("type", "coding")) for child in element.children if child.name == "item"]
        text = self._text(element, allowed)
        kinds = {"string": str, "integer": int, "number": float, "boolean": bool}
        if kind == _NULL:
            if text:
                self._wrong(element, f"is {text[:_ECHO]!r}", "nothing, for null")
            return None
        if kind not in kinds:
            self._wrong(element, f"has the type {kind[:_ECHO]!r}", "one of " + ", ".join(_KINDS))
            return None
        value = _scalar(text, kinds[kind])
        if type(value) is not kinds[kind]:
            self._wrong(element, f"is {text[:_ECHO]!r}", f"a value of type {kind}")
        return value

    # --- what there is to say -----------------------------------------------------------------------------------------

    def _text(self, element: Element, allowed: tuple[str, ...]) -> str:
        """Return the text of an element that has no other elements in it."""
        self._attributes(element, allowed)
        for child in element.children:
            self._wrong(child, f"is inside <{element.name[:_ECHO]}>", "text alone")
        text = _bare_text(element)
        if "coding" not in element.attributes:
            return text
        decoded = _from_json(text) if element.attributes["coding"] == "json" else None
        if decoded is None:
            self._wrong(element, "is not a string as in JSON", 'coding="json" with one, or no coding')
            return ""
        return decoded

    def _attributes(self, element: Element, allowed: tuple[str, ...] = ()) -> None:
        for name in element.attributes:
            if name not in allowed:
                words = " or ".join(allowed) or "none"
                self._wrong(element, f"has an attribute {name[:_ECHO]!r}", f"{words}: values are the text of elements")

    def _no_text(self, element: Element) -> None:
        if text := _bare_text(element):
            self._wrong(element, f"holds the text {text[:_ECHO]!r}", "elements alone")

    def _wrong(self, element: Element, what: str, expected: str, path: str = "") -> None:
        where = f"{self._file}:{element.line}: " + (f"{path.replace('.', '/')}/" if path else "")
        self.problems.append(Problem(where + element.name[: 2 * _ECHO], what, expected))

    def key_of(self, problem: Problem) -> str:
        """Return the dotted key of a problem of the nested mapping."""
        return problem.where.removeprefix(self._file).partition(": ")[2]

    def renamed(self, problem: Problem) -> Problem:
        """Return a problem of the nested mapping, with the element in place of the key."""
        place, dotted = problem.where.removeprefix(self._file).partition(": ")[0], self.key_of(problem)
        name = PAPER.get(dotted, dotted).replace(".", "/")
        expected = re.sub(r"\ba table \[([\w.]+)\]", r"an element <\1>", problem.expected)
        expected = re.sub(r"\bno table \[([\w.]+)\]", r"no element <\1>", expected)
        if dotted == "workload":
            for theirs, ours in TYPES.items():
                expected = re.sub(rf"(?<!<)\b{ours}\b(?!>)", theirs, expected)
        return Problem(f"{self._file}{place}: {name}", problem.what, expected)


def _bare(hint: Any) -> tuple[Any, bool]:
    """Return a type without its annotations, and whether it may be None."""
    optional = get_origin(hint) in (Union, UnionType)
    if optional:
        hint = next(part for part in get_args(hint) if part is not NoneType)
    return (get_args(hint)[0] if get_origin(hint) is Annotated else hint), optional


def _bare_text(element: Element) -> str:
    return element.text.strip(_BLANK)


def _heard(word: str) -> str:
    """Convert a word that the paper would write in capitals to its form in a TOML file."""
    return word.lower().replace("_", "-") if re.fullmatch(r"[A-Z0-9_]+", word) else word


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _from_json(text: str) -> str | None:
    """Return the string; None for anything else."""
    try:
        value = json.loads(text)
        if isinstance(value, str):
            value.encode()
            return value
    except (ValueError, RecursionError):
        return None
    return None


def _scalar(text: str, bare: Any) -> Any:
    """Return the value of that type; the text itself if it is not one, for the checks to report."""
    if bare is bool and text in ("true", "false"):
        return text == "true"
    if bare is int and _INTEGER.fullmatch(text):
        return int(text)
    if bare is float and _NUMBER.fullmatch(text):
        return float(text)
    return text


# --- writing --------------------------------------------------------------------------------------------------------


def to_xml(table: Mapping[str, Any]) -> str:
    """Return the text of an XML file with the keys of a TOML file (see `daemons.manifests.agreement_text.table_of`)."""
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + "\n".join(_written(table)) + "\n"


def _written(table: Mapping[str, Any]) -> Iterator[str]:
    left = dict(table)
    if setup := left.get("setup"):
        left["setup"] = {key: value for key, value in setup.items() if key != "policy"}
        left["setup_policy"] = setup.get("policy")
    left.setdefault("upper", None)
    left = {key: left[key] for key in (*(each for each in _FIRST if each in left), *left)}
    yield f"<{ROOT}>"
    for key, value in left.items():
        yield from _known(key, value, "" if key != "setup_policy" else "setup.policy", "  ")
    yield f"</{ROOT}>"


def _known(key: str, value: Any, dotted: str, indent: str) -> Iterator[str]:
    """Yield the lines of a known key of the file."""
    dotted = dotted or key
    name = PAPER.get(dotted, key)
    if dotted == "workload" and value in TYPES.values():
        yield from _element(name, next(theirs for theirs, ours in TYPES.items() if ours == value), indent)
    elif dotted == "workload" and value in TYPES:  # a registered type that is called as the paper calls another
        yield _verbatim(name, value, indent)
    elif dotted == "shares":
        yield from _element(name, "Yes" if value else "No", indent)
    elif dotted in _SHOUTED and isinstance(value, str):
        yield _shouted(name, value, dotted in ("model", "setup.policy"), indent)
    elif dotted in ("scheduling.params", "terms"):
        yield from _free(name, "", value, indent)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _known(key, item, dotted, indent)
    elif isinstance(value, Mapping):
        if value or dotted != "setup":
            yield f"{indent}<{name}>"
            for inner, item in value.items():
                yield from _known(inner, item, f"{dotted}.{inner}", indent + "  ")
            yield f"{indent}</{name}>"
    else:
        yield from _element(name, value, indent)


def _shouted(name: str, value: str, loud: bool, indent: str) -> str:
    """Return a word as the paper writes it if it is read back unchanged, else so that it is taken literally."""
    words = (value.upper().replace("-", "_"), value) if loud else (value,)
    for word in words:
        if _heard(word) == value:
            return "".join(_element(name, word, indent))
    return _verbatim(name, value, indent)


def _verbatim(name: str, value: str, indent: str) -> str:
    """Text that is taken as it stands, and for no word of the paper."""
    return f'{indent}<{name} coding="json">{escape(json.dumps(value))}</{name}>'


def _free(name: str, attributes: str, value: Any, indent: str) -> Iterator[str]:
    """Yield a value with its type in the file; the outermost one is always a table."""
    if isinstance(value, Mapping):
        kind = ' type="table"' if attributes or name == "item" else ""
        yield f"{indent}<{name}{attributes}{kind}>"
        for key, item in value.items():
            coded = _coded(key)
            at = f" key={quoteattr(key)}" if coded is None else f" json_key={quoteattr(coded)}"
            yield from _free("entry", at, item, indent + "  ")
        yield f"{indent}</{name}>"
    elif isinstance(value, list | tuple):
        yield f'{indent}<{name}{attributes} type="array">'
        for item in value:
            yield from _free("item", "", item, indent + "  ")
        yield f"{indent}</{name}>"
    else:
        kinds = {bool: "boolean", int: "integer", float: "number", NoneType: _NULL, str: "string"}
        found = kinds.get(type(value))
        if found is None:
            raise InvalidInput(Problem(name, f"is a {type(value).__name__}", "a value of " + ", ".join(_KINDS)))
        said = "" if found == "string" else f' type="{found}"'
        yield from _element(name, "" if value is None else value, indent, attributes + said)


def _element(name: str, value: Any, indent: str, attributes: str = "") -> Iterator[str]:
    """Yield an element with text."""
    coded = _coded(value) if isinstance(value, str) else None
    if coded is not None:
        attributes, text = attributes + ' coding="json"', coded
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = value
    else:
        text = _NULL if value is None else repr(value)
    yield f"{indent}<{name}{attributes}>{escape(text)}</{name}>"


def _coded(text: str) -> str | None:
    """Return a string in JSON if XML cannot hold it or would change it, or if it would mean another; None if it can be
    written as it is."""
    plain = _SPEAKABLE.fullmatch(text) and text == text.strip(_BLANK) and text != _NULL
    return None if plain else json.dumps(text)
