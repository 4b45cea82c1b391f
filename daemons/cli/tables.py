"""Tables that fit the width at hand: full where there is room, else without the least important columns and with long
values cut. A cut value ends in `…`; nothing is wrapped."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

LONG = 24  # a column with wider values than this may be cut to it before others are dropped
SHORTEST = 10  # and to this after that
GAP, NARROW_GAP = 3, 2  # columns of the screen between two of the table
NOTHING = ("-", "")
HIDDEN = "not shown at this width: {}"


@dataclass(frozen=True, slots=True)
class Fit:
    """How a table is shown. columns: which, in order; widths: of each of them; gap: between two."""

    columns: tuple[int, ...]
    widths: tuple[int, ...]
    gap: int


def fit(natural: Sequence[int], floors: Sequence[int], drops: Sequence[int], width: int) -> Fit:
    """Return what of columns with these `natural` widths goes into `width`: all; else with smaller gaps; else with long
    ones cut, without those of `drops` from its begin on, with more cut, until it fits. floors: of the columns, below
    which they are cut last of all."""
    everything = tuple(range(len(natural)))
    if sum(natural) + GAP * (len(natural) - 1) <= width:
        return Fit(everything, tuple(natural), GAP)
    left = list(everything)
    cut = [min(each, max(LONG, floor)) for each, floor in zip(natural, floors, strict=True)]
    dropped: list[int] = []
    for column in drops:
        if _fits(left, cut, width):
            break
        left.remove(column)
        dropped.append(column)
    for column in reversed(dropped):  # the last one may have made room for some before it
        if _fits([*left, column], cut, width):
            left.append(column)
    left.sort()
    room = _room(left, width)
    least = [min(natural[each], floors[each], cut[each]) for each in left]
    start = [cut[each] for each in left] if sum(cut[each] for each in left) <= room else least
    return Fit(tuple(left), _shared(start, [natural[each] for each in left], room), NARROW_GAP)


def _fits(left: Sequence[int], widths: Sequence[int], width: int) -> bool:
    return sum(widths[each] for each in left) <= _room(left, width)


def _room(left: Sequence[int], width: int) -> int:
    return width - NARROW_GAP * (len(left) - 1)


def _shared(least: Sequence[int], most: Sequence[int], room: int) -> tuple[int, ...]:
    """Share `room` among columns: each has its least, what is left goes to the narrowest that want more; where not even
    the least fits, the widest give."""
    widths = list(least)
    while sum(widths) > room and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    while sum(widths) < room:
        wanting = [at for at, width in enumerate(widths) if width < most[at]]
        if not wanting:
            break
        widths[min(wanting, key=lambda at: widths[at])] += 1
    return tuple(widths)


class Fitted:
    """A table of texts. `least`: heads of the columns to drop first, the least important one first; those not named are
    dropped after them, from the last on, the first column never. `right`: heads of columns of numbers."""

    def __init__(
        self,
        title: str,
        heads: Sequence[str],
        rows: Sequence[Sequence[str]],
        least: Sequence[str] = (),
        right: Collection[str] = (),
    ) -> None:
        self.title, self.heads, self.rows = title, heads, rows
        self._right = right
        self._natural = [
            max(cell_len(head), *(cell_len(row[at]) for row in rows), 1) if rows else cell_len(head)
            for at, head in enumerate(heads)
        ]
        self._floors = [
            min(natural, max(SHORTEST, cell_len(head))) for natural, head in zip(self._natural, heads, strict=True)
        ]
        self._drops = list(self._dropped_first(least))

    def _dropped_first(self, least: Sequence[str]) -> Iterator[int]:
        """Columns in the order in which they are dropped: those without values, the least important, the last."""
        others = range(len(self.heads) - 1, 0, -1)
        empty = [at for at in others if all(row[at] in NOTHING for row in self.rows)]
        named = [self.heads.index(head) for head in least if head in self.heads]
        yield from dict.fromkeys((*empty, *named, *others))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table, and a note of the columns that are hidden."""
        found = fit(self._natural, self._floors, self._drops, options.max_width)
        table = Table(
            box=SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            collapse_padding=found.gap < GAP,
        )
        for at, width in zip(found.columns, found.widths, strict=True):
            head = self.heads[at]
            table.add_column(
                Text(head), justify="right" if head in self._right else "left", no_wrap=True, max_width=width
            )
        for row in self.rows:
            table.add_row(*(Text(row[at]) for at in found.columns))
        if self.title:
            yield Text(self.title, style="bold")  # not the table's, which would be folded to its width
        yield table
        hidden = [self.heads[at] for at in range(len(self.heads)) if at not in found.columns]
        if hidden:
            yield Text(HIDDEN.format(", ".join(hidden)), style="dim")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return the range of widths, from almost nothing to all columns."""
        return Measurement(1, sum(self._natural) + GAP * (len(self._natural) - 1))


def table(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    least: Sequence[str] = (),
    right: Collection[str] = (),
) -> RenderableType:
    """Return such a table, or that there is none of what the title names."""
    return Fitted(title, heads, rows, least, right) if rows else Text(f"{title}: none")


def stacked(*parts: RenderableType) -> RenderableType:
    """Return parts one below the other: a blank line around each but between lines of text."""
    shown: list[RenderableType] = []
    for before, part in zip((None, *parts), parts, strict=False):
        if before is not None and not (isinstance(before, Text) and isinstance(part, Text)):
            shown.append("")
        shown.append(part)
    return Group(*shown)
