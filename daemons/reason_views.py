"""What views tell of a reason."""

from __future__ import annotations

from typing import Any

from shared.decision import UNBOUNDED, Reason


def reason_view(reason: Reason) -> dict[str, Any]:
    """A reason: its code, its numbers (None: there is none), and both in words."""
    numbers = {name: number if abs(number) < UNBOUNDED else None for name, number in reason.numbers}
    return {"code": reason.code.value, "numbers": numbers, "text": str(reason)}
