"""Settings of an agent's core: periods and limits, in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from shared.base.errors import InvalidValue

OUTCOME_KEEP_S = 3600.0


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Settings of one agent; every number is finite and above 0, else `InvalidValue`.

    report_s: period of the reports. operation_timeout_s: an operation in progress for that long is aborted.
    publish_retry_s: messages that the broker has not confirmed by then are published again. outcome_keep_s: how long
    after its expiry a finished action's outcome is kept. An order that expires later than that from now is refused,
    which bounds the number of outcomes kept. address: where programs on this node answer whose VM has no address of its
    own ("": unknown).
    """

    report_s: float = 5.0
    operation_timeout_s: float = 600.0
    publish_retry_s: float = 5.0
    outcome_keep_s: float = OUTCOME_KEEP_S
    address: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float | int) and not (math.isfinite(value) and value > 0):
                raise InvalidValue(field.name, value, "a finite number above 0")
