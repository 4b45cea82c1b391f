"""How soon a password is guessed: by common ones, runs on a keyboard, and repeats that it is made of."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

COMMON = Path(__file__).parent / "common_passwords.txt"
PIECES_MIN = 9  # below that a password is guessed soon
WORD_PIECES, RUN_PIECES = 3, 2
WORD_LENGTH_MAX = 11
RUN_LENGTH_MIN = 3
ROWS = ("abcdefghijklmnopqrstuvwxyz", "01234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm", "qwertzuiop", "azertyuiop")
YEAR = re.compile(r"(?:19|20)\d\d")
PLAIN = str.maketrans("013457@$!", "oieastasi")


@cache
def common() -> frozenset[str]:
    """Passwords that are tried first, in small letters."""
    lines = COMMON.read_text("ascii").splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))


def is_guessed_soon(password: str) -> bool:
    """Return whether a password is a common one, or consists of few pieces: common words, runs, years, and repeats."""
    return any(
        each in common() or _pieces(each) < PIECES_MIN for each in (password.lower(), password.lower().translate(PLAIN))
    )


def _pieces(text: str) -> int:
    """Return the smallest number of pieces of a text: a character counts 1, a run `RUN_PIECES`, a common word
    `WORD_PIECES`. A repeated part counts once, plus 1."""
    unit = _repeated(text)
    if len(unit) < len(text):
        return _pieces(unit) + 1
    least = [0]
    for end in range(1, len(text) + 1):
        best = least[end - 1] + 1
        for length in range(RUN_LENGTH_MIN, end + 1):
            piece = text[end - length : end]
            if _is_run(piece):
                best = min(best, least[end - length] + RUN_PIECES)
            elif length <= WORD_LENGTH_MAX and piece in common():
                best = min(best, least[end - length] + WORD_PIECES)
            elif length > WORD_LENGTH_MAX:
                break
        least.append(best)
    return least[-1]


def _repeated(text: str) -> str:
    """Return the part that a text repeats at least twice, the last time possibly cut; else the text itself."""
    for length in range(1, len(text) // 2 + 1):
        if all(text[index] == text[index - length] for index in range(length, len(text))):
            return text[:length]
    return text


def _is_run(piece: str) -> bool:
    """Return whether a text is one character repeated, a year, or a sequence along the alphabet or a row of keys."""
    if len(set(piece)) == 1 or YEAR.fullmatch(piece):
        return True
    return any(piece in row or piece[::-1] in row for row in ROWS)
