"""Counts the words of the documentation by kind: `python -m tests.docs.words` prints the table."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.support.paths import ROOT

DOCS = ROOT / "docs"
GENERATED = re.compile(r"<!-- (generated|Made by `make reference`)")  # what stands below is written by a command
APART = ("generated reference", "appendix")  # kinds that the limit leaves out
PROSE_MAX = 55_000
HOW_TO_MAX = 800

_FENCE = re.compile(r"^ *(```+|~~~+).*?^ *\1", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TARGET = re.compile(r"\]\([^)]*\)")


def prose_words(text: str) -> int:
    """Return the number of words of a page outside code blocks, comments and link targets. A word has a letter."""
    for pattern in (_FENCE, _COMMENT, _TARGET):
        text = pattern.sub(" ", text)
    return sum(any(letter.isalpha() for letter in word) for word in text.split())


def kind_of(path: Path) -> str:
    """Return the kind of a page: its folder, or `start` for pages of the first level and the README."""
    parts = path.relative_to(DOCS).parts if path.is_relative_to(DOCS) else ("README.md",)
    return parts[0] if len(parts) > 1 else "start"


def pages() -> list[Path]:
    """Return the README and every page of the documentation."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def counts() -> Counter[str]:
    """Return the number of words by kind. Text below the mark of a generated page is of a kind of its own."""
    found: Counter[str] = Counter()
    for path in pages():
        written, *generated = GENERATED.split(path.read_text("utf-8"), maxsplit=1)[::2]
        found[kind_of(path)] += prose_words(written)
        found["generated reference"] += sum(prose_words(f"<!-- {text}") for text in generated)
    return found


def main() -> None:
    """Print the table."""
    found = counts()
    for kind, count in sorted(found.items(), key=lambda each: -each[1]):
        print(f"{kind:20} {count:7,}")
    print(f"{'prose':20} {sum(found.values()) - sum(found[kind] for kind in APART):7,} of {PROSE_MAX:,}")


if __name__ == "__main__":
    main()
