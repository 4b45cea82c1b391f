"""Long lists, a page at a time: what is looked for, in which order, and which part of it is shown. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

Row = Mapping[str, Any]

PAGE_ROWS = 50
TEXT_LENGTH_MAX = 200
PAGE_MAX = 10_000


def _nothing(_row: Any) -> None:
    """Return None, since the value is unknown."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list. key: in the address, "" where nothing can be sorted by it; value: what of a row is sorted by,
    None where it is not known; number: it is of numbers."""

    key: str
    title: str
    value: Callable[[Any], Any] = _nothing
    number: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """What somebody wants to see of a list. filters: texts by name; sort: the key of a column ("": as it comes);
    falling: the largest first; number: of the page, from 1."""

    filters: Mapping[str, str]
    sort: str = ""
    falling: bool = False
    number: int = 1

    def query(self, **changes: str | int) -> str:
        """Return the same listing as the query of an address, "?..." or "", with changes; it shows the first page by
        default."""
        values: dict[str, str | int] = dict(self.filters)
        values["sort"] = ("-" if self.falling else "") + self.sort
        values["page"] = 1
        values |= changes
        if values["page"] == 1:
            values["page"] = ""
        said = {key: value for key, value in values.items() if value != ""}
        return f"?{urlencode(said)}" if said else ""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column. query: of the address under which the list is sorted by it ("": it cannot be); order:
    "ascending", "descending" or "" as `aria-sort` says it."""

    title: str
    query: str
    order: str
    number: bool


@dataclass(frozen=True, slots=True)
class RowsPage:
    """What is shown: these rows, from `first` (1) on, of `total`; `before` and `after`: queries of the addresses of the
    pages beside it ("": there is none); `here`: of its own."""

    rows: Sequence[Any]
    total: int
    first: int
    page: int
    pages: int
    before: str
    after: str
    here: str
    heads: tuple[Head, ...]
    filters: Mapping[str, str]

    @property
    def last(self) -> int:
        """The number of its last row."""
        return self.first + len(self.rows) - 1


def wanted(params: Mapping[str, str], filters: Mapping[str, str], columns: Sequence[Column], sort: str = "") -> Listing:
    """Return the listing that the query of an address describes. A missing or invalid part defaults to `filters` (the
    default filter values) and `sort` ("-" before it: descending)."""
    said = {name: params.get(name, default).strip()[:TEXT_LENGTH_MAX] for name, default in filters.items()}
    key = params.get("sort", sort)
    if key.removeprefix("-") not in {column.key for column in columns if column.key}:
        key = sort
    page = params.get("page", "1")
    number = int(page) if page.isascii() and page.isdigit() and len(page) < 6 else 1
    return Listing(said, key.removeprefix("-"), key.startswith("-"), min(max(number, 1), PAGE_MAX))


def part(
    rows: Sequence[Any], listing: Listing, columns: Sequence[Column], size: int = PAGE_ROWS, ordered: bool = False
) -> RowsPage:
    """Return the requested page of the rows, or the nearest one if there are fewer. ordered: the rows are in order
    already."""
    found = rows if ordered else in_order(rows, listing, columns)
    pages = max((len(rows) + size - 1) // size, 1)
    page = min(listing.number, pages)
    first = (page - 1) * size
    before = listing.query(page=page - 1) or "?page=1" if page > 1 else ""
    after = listing.query(page=page + 1) if page < pages else ""
    heads = tuple(_head(column, listing) for column in columns)
    here = listing.query(page=page)
    return RowsPage(
        found[first : first + size],
        len(rows),
        first + 1,
        page=page,
        pages=pages,
        before=before,
        after=after,
        here=here,
        heads=heads,
        filters=listing.filters,
    )


def in_order(rows: Sequence[Any], listing: Listing, columns: Sequence[Column]) -> Sequence[Any]:
    """Return the rows in the requested order: those with unknown values come last."""
    column = next((column for column in columns if column.key and column.key == listing.sort), None)
    if column is None:
        return rows
    valued = [(column.value(row), row) for row in rows]
    known = [pair for pair in valued if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=listing.falling)
    return [row for _, row in known] + [row for value, row in valued if value is None]


def _head(column: Column, listing: Listing) -> Head:
    if not column.key:
        return Head(column.title, "", "", column.number)
    if column.key != listing.sort:
        return Head(column.title, listing.query(sort=column.key), "", column.number)
    other = column.key if listing.falling else f"-{column.key}"
    return Head(
        column.title, listing.query(sort=other), "descending" if listing.falling else "ascending", column.number
    )


def has_text(text: str, *places: str) -> bool:
    """Return whether each word of a text is somewhere in the places, regardless of case."""
    if not text:
        return True
    there = "\n".join(places).casefold()
    return all(word in there for word in text.casefold().split())


def name_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return the sort key of a name: n9 comes before n10."""
    parts = re.findall(r"\d{1,18}|[^\d]+|\d", name)
    return tuple((0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part) for part in parts)
