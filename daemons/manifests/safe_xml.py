"""Reads small XML files from untrusted sources.

Expat alone would expand the entities that a file declares (unlimited memory) and can be made to open the files it
names. Here nothing is declared and nothing is named: document types, entities, external references and processing
instructions are refused at their first character, before anything is expanded. The rest is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from xml.parsers import expat

from shared.base.errors import InvalidInput, Problem
from shared.base.read_file import read_bytes

FILE_BYTES_MAX = 1 << 20
DEPTH_MAX = 16
ELEMENTS_MAX = 10_000
ATTRIBUTES_MAX = 8
_PLAIN = "elements, attributes and text alone"
_UTF_8 = "text in UTF-8"


@dataclass(slots=True)
class Element:
    """An element with what is in it. `line` counts from 1. `text`: all of its own text, as it stands in the file."""

    name: str
    line: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    children: list[Element] = field(default_factory=list)
    text: str = ""


def load(path: Path, expected: str) -> Element:
    """Return the root of the file, which must hold what `expected` describes. Raises `InvalidInput`."""
    return parse(read_bytes(path, expected, FILE_BYTES_MAX), str(path), expected)


def parse(content: bytes, name: str, expected: str) -> Element:
    """Return the root of the XML in `content`; `name` is the place named in problems. Raises `InvalidInput` with one
    problem."""
    if len(content) > FILE_BYTES_MAX:
        raise InvalidInput(Problem(name, "too large", f"at most {FILE_BYTES_MAX} bytes"))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidInput(Problem(f"{name}:{line}", "not UTF-8", _UTF_8)) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InvalidInput(Problem(f"{name}:{line}", "holds a null character", _UTF_8))
    return _Tree(name, expected).build(text)


class _Tree:
    """Builds the elements of one file."""

    def __init__(self, name: str, expected: str) -> None:
        self._name, self._expected = name, expected
        self._open: list[Element] = []
        self._texts: list[list[str]] = []
        self._root: Element | None = None
        self._count = 0
        self._parser = self._hardened()

    def _hardened(self) -> expat.XMLParserType:
        parser = expat.ParserCreate("utf-8")  # whatever the file says of itself
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.buffer_text = True
        parser.XmlDeclHandler = self._declared
        parser.StartDoctypeDeclHandler = self._refuse("a document type")
        parser.EntityDeclHandler = self._refuse("an entity")
        parser.UnparsedEntityDeclHandler = self._refuse("an entity")
        parser.ExternalEntityRefHandler = self._refuse("a reference to something outside")
        parser.SkippedEntityHandler = self._refuse("a reference to an entity")
        parser.ProcessingInstructionHandler = self._refuse("a processing instruction")
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        return parser

    def build(self, text: str) -> Element:
        """Build the whole tree."""
        try:
            self._parser.Parse(text.encode(), True)
        except expat.ExpatError as error:
            where = f"{self._name}:{error.lineno}:{error.offset + 1}"
            raise InvalidInput(Problem(where, expat.errors.messages[error.code], self._expected)) from error
        assert self._root is not None  # expat finds a file without a root element
        return self._root

    def _stop(self, what: str, expected: str) -> NoReturn:
        where = f"{self._name}:{self._parser.CurrentLineNumber}"
        raise InvalidInput(Problem(where, what, expected))

    def _refuse(self, what: str) -> Any:
        def refuse(*_: object) -> NoReturn:
            self._stop(f"holds {what}", _PLAIN)

        return refuse

    def _declared(self, version: str, encoding: str | None, _: int) -> None:
        if version != "1.0":
            self._stop("is not XML 1.0", 'version="1.0"')
        if encoding is not None and encoding.lower() not in ("utf-8", "utf8", "us-ascii"):
            self._stop("says that it is in another encoding", _UTF_8)

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > ELEMENTS_MAX:
            self._stop("has too many elements", f"at most {ELEMENTS_MAX}")
        if len(self._open) >= DEPTH_MAX:
            self._stop("is nested too deeply", f"at most {DEPTH_MAX} elements in each other")
        if len(attributes) > ATTRIBUTES_MAX:
            self._stop("has too many attributes", f"at most {ATTRIBUTES_MAX} of an element")
        element = Element(name, self._parser.CurrentLineNumber, attributes)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)
        self._texts.append([])

    def _end(self, _: str) -> None:
        self._open.pop().text = "".join(self._texts.pop())

    def _characters(self, text: str) -> None:
        self._texts[-1].append(text)
