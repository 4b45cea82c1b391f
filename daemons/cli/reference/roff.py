"""What manual pages are written in."""

from __future__ import annotations

import re
from collections.abc import Iterator

PROGRAM = "trimtab"


def escaped(text: str) -> str:
    """Text as roff takes it: nothing in it is a request, and dashes stay those that are typed."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", plain, flags=re.MULTILINE)


def head(title: str, number: int, version: str, short: str) -> Iterator[str]:
    """Yield the beginning of a page of a section of the manual: its title and its name."""
    yield f'.TH "{escaped(title.upper())}" {number} "" "{PROGRAM} {version}" "Trimtab"'
    yield ".SH NAME"
    yield f"{escaped(title)} \\- {escaped(short.rstrip('.'))}"
