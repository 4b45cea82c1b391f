"""The tables of the reference pages `codes.md`, `events.md` and `alarms.md`, as Markdown.

A page is written by hand down to its marker `<!-- generated: NAME -->`; what follows is made here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from daemons.codes.alarms import ALARMS
from daemons.codes.code import Code
from daemons.codes.errors import ERRORS, STATUSES
from daemons.codes.events import EVENTS
from daemons.codes.outcomes import GUEST_CHANGES, OUTCOMES, VERDICTS
from daemons.codes.reasons import REASONS
from daemons.codes.refusals import REFUSALS

MARKER = "<!-- generated: {} -->"
FOLDER = "reference"  # of the pages, in the root of the documentation
Cells = Callable[[Code], tuple[str, ...]]


def generated(page: str, text: str) -> str:
    """Return the text of a page (`codes`, `events` or `alarms`) with its tables made again. ValueError if it has no
    marker."""
    marker = MARKER.format(page)
    head, found, _ = text.partition(marker)
    if not found:
        raise ValueError(f"{page}.md has no line {marker}")
    return f"{head}{marker}\n\n{tables(page)}"


def tables(page: str) -> str:
    """Return the tables of a page under their headings. KeyError for a page that is none."""
    parts = (part for heads, cells, codes in PAGES[page] for part in _sections(heads, cells, codes))
    return "\n".join(parts)


def _sections(heads: Sequence[str], cells: Cells, codes: Sequence[Code]) -> Iterator[str]:
    for group in dict.fromkeys(each.group for each in codes):
        yield f"## {group}\n"
        yield _row(heads)
        yield "|" + "---|" * len(heads)
        yield from (_row((f"`{each.code}`", *cells(each))) for each in codes if each.group == group)
        yield ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _what_to_do(code: Code) -> str:
    """Return the action, the command and the link, in one cell."""
    command = f"`{code.command}`." if code.command else ""
    link = f"[Details]({_from_reference(code.page)})." if code.page else ""
    return " ".join(part for part in (code.action, command, link) if part)


def _from_reference(page: str) -> str:
    return page.removeprefix(f"{FOLDER}/") if page.startswith(f"{FOLDER}/") else f"../{page}"


_TO_DO = ("code", "meaning", "what to do")
_MEANING = ("code", "meaning")
PAGES: dict[str, tuple[tuple[Sequence[str], Cells, Sequence[Code]], ...]] = {
    "events": ((("code", "when", "subject"), lambda each: (each.meaning, each.about), EVENTS),),
    "alarms": ((_TO_DO, lambda each: (each.meaning, _what_to_do(each)), ALARMS),),
    "codes": (
        (_TO_DO, lambda each: (each.meaning, _what_to_do(each)), STATUSES),
        (
            ("code", "kind", "meaning", "what to do"),
            lambda each: (each.about, each.meaning, _what_to_do(each)),
            ERRORS,
        ),
        (_TO_DO, lambda each: (each.meaning, _what_to_do(each)), REFUSALS),
        (_TO_DO, lambda each: (each.meaning, _what_to_do(each)), OUTCOMES),
        (_MEANING, lambda each: (each.meaning,), GUEST_CHANGES),
        (("code", "meaning", "what lifts it"), lambda each: (each.meaning, _what_to_do(each)), REASONS),
        (("code", "part", "meaning"), lambda each: (each.about, each.meaning), VERDICTS),
    ),
}
