"""What texts that others wrote may hold: forms, the types of fields by which the codec holds to them, and checks for
values that check themselves.

Nothing of these forms can become a control sequence or a further line; what is a word or a name can become neither an
option nor more than one word.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, Final

from msgspec import Meta

from shared.base.errors import InvalidValue
from shared.values.scalars import NAME_LENGTH_MAX, TEXT_LENGTH_MAX

LABEL_LENGTH_MAX: Final = 255
REPLACEMENT: Final = "\ufffd"

# Control characters, those that turn the direction of text around or end a line, and lone surrogates.
_ALWAYS_UNFIT = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_UNFIT = re.compile(f"[\x00-\x1f{_ALWAYS_UNFIT}]")
_UNFIT_IN_PROSE = re.compile(f"[\x00-\x08\x0b-\x1f{_ALWAYS_UNFIT}]")
_MAC = re.compile(r"[0-9a-fA-F]{2}([:-]?)(?:[0-9a-fA-F]{2}\1){4}[0-9a-fA-F]{2}")


class TextForm(Enum):
    """What a text may hold, from the narrowest form to the widest; each may be empty. The value says it in words."""

    WORD = f"at most {LABEL_LENGTH_MAX} printable characters without spaces, the first of them no '-'"
    LABEL = f"at most {LABEL_LENGTH_MAX} printable characters, the first of them no '-'"
    LINE = f"a line of at most {TEXT_LENGTH_MAX} characters, none of them a control character"
    PROSE = f"at most {TEXT_LENGTH_MAX} characters, no control characters but tabs and ends of lines"


# `str` to everyone else. A field that says nothing is a line.
Word = Annotated[str, Meta(max_length=LABEL_LENGTH_MAX), TextForm.WORD]
Label = Annotated[str, Meta(max_length=LABEL_LENGTH_MAX), TextForm.LABEL]
Line = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX), TextForm.LINE]
Prose = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX), TextForm.PROSE]


def fits(text: str, form: TextForm) -> bool:
    """Return whether a text has a form."""
    if form is TextForm.LINE:
        return len(text) <= TEXT_LENGTH_MAX and ((text.isascii() and text.isprintable()) or not _UNFIT.search(text))
    if form is TextForm.PROSE:
        return len(text) <= TEXT_LENGTH_MAX and not _UNFIT_IN_PROSE.search(text)
    if len(text) > LABEL_LENGTH_MAX or not text.isprintable() or text.startswith("-"):
        return False
    return form is TextForm.LABEL or " " not in text


def cleaned(text: str, form: TextForm) -> str:
    """Return a line, prose or label in a form that may be sent: characters that must not be shown are replaced; a label
    that is too long is cut."""
    if form is TextForm.LABEL:
        text = "".join(c if c.isprintable() else REPLACEMENT for c in text[:LABEL_LENGTH_MAX])
        return REPLACEMENT + text[1:] if text.startswith("-") else text
    return (_UNFIT_IN_PROSE if form is TextForm.PROSE else _UNFIT).sub(REPLACEMENT, text)


_OF_WORDS = bytes(byte if 0x21 <= byte < 0x7F else ord("?") for byte in range(256))  # all other bytes are replaced


def are_words(texts: str) -> bool:
    """Return whether all words, separated by commas, are certainly of form WORD; false also if only a check of each can
    decide."""
    written = texts.encode("utf-8", "surrogatepass")
    return written == written.translate(_OF_WORDS) and ",-" not in texts and texts[:1] != "-"


def check_label(field: str, text: str) -> None:
    """Raise `InvalidValue` unless `text` is of form LABEL, so that it can be shown, and given to a program, as one."""
    _check(field, text, TextForm.LABEL)


def check_line(field: str, text: str) -> None:
    """Raise `InvalidValue` unless `text` is of form LINE."""
    _check(field, text, TextForm.LINE)


def check_prose(field: str, text: str) -> None:
    """Raise `InvalidValue` unless `text` is of form PROSE."""
    _check(field, text, TextForm.PROSE)


def _check(field: str, text: str, form: TextForm) -> None:
    if not fits(text, form):
        raise InvalidValue(field, text[:NAME_LENGTH_MAX], form.value)


def is_mac(text: str) -> bool:
    """Return whether this is the address of one network card (12 hexadecimal digits, in pairs by ':' or '-' or
    together): neither a group address nor all zeros."""
    if _MAC.fullmatch(text) is None:
        return False
    address = mac_bytes(text)
    return not address[0] & 1 and any(address)


def mac_bytes(mac: str) -> bytes:
    """Return the six bytes of an address that `is_mac` accepts."""
    return bytes.fromhex(mac.replace(":", "").replace("-", ""))


def check_mac(field: str, text: str) -> None:
    """Raise `InvalidValue` unless `is_mac`."""
    if not is_mac(text):
        raise InvalidValue(field, text[:NAME_LENGTH_MAX], "the hardware address of one network card")
