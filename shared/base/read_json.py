"""How JSON of users is parsed: within bounds, and what is wrong becomes `InvalidInput` with the place."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from shared.base.errors import InvalidInput, Problem

JSON_PARTS_MAX = 1_000_000  # objects and lists


def parse_json(content: bytes, name: str, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Parse JSON; `name` is the place named in problems, `pairs` makes an object from its pairs. Raises `InvalidInput`,
    also for more than JSON_PARTS_MAX objects and lists and for too deep nesting."""
    parts = content.count(b"{") + content.count(b"[")
    if parts > JSON_PARTS_MAX:
        raise InvalidInput(Problem(name, "has too many parts", f"at most {JSON_PARTS_MAX:,} objects and lists"))
    try:
        found = json.loads(content.decode("utf-8-sig"), object_pairs_hook=pairs)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidInput(Problem(f"{name}:{line}", "not UTF-8", "text in UTF-8")) from error
    except json.JSONDecodeError as error:
        raise InvalidInput(Problem(f"{name}:{error.lineno}:{error.colno}", error.msg[:60], "JSON")) from error
    except ValueError as error:  # a number of thousands of digits
        raise InvalidInput(Problem(name, str(error)[:60], "JSON")) from error
    except RecursionError as error:
        raise InvalidInput(Problem(name, "nested too deeply", "JSON")) from error
    return found
