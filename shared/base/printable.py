"""Text of others as it may be shown: no character in it can be an order to a terminal or change how the rest reads."""

from __future__ import annotations


def one_line(text: str) -> str:
    """Return `text` with every character that is not printed as itself (control, C1, bidirectional, format, surrogate,
    every line end) replaced by its escape: ESC becomes a backslash and `x1b`."""
    return _visible(text, "")


def lines(text: str) -> str:
    """Return the text as `one_line` does, but keep line feeds and tabs."""
    return _visible(text, "\n\t")


def _visible(text: str, kept: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode("ascii") for c in text)
