"""What types say of terms of an agreement that they do not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.base.errors import InvalidInput, Problem


def refuse_all(name: str, terms: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` with one problem for each term: the type has none."""
    if terms:
        raise InvalidInput(*(Problem(f"type {name}: {key}", "there is no such term", "none") for key in terms))
