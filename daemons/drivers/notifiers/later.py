"""A receiver that says when a message may be sent to it again."""

from __future__ import annotations

import math
from email.utils import parsedate_to_datetime

from shared.base.errors import TransientError

LATER_MAX_S = 900.0


class TryLater(TransientError):
    """It may work later, and not before `after_s` seconds (0: whenever) have gone by."""

    def __init__(self, detail: str, after_s: float) -> None:
        super().__init__(detail)
        self.after_s = after_s


def retry_after_s(text: str, now_s: float) -> float:
    """Return the delay that a header Retry-After requests at `now_s`, a number of seconds or a date (RFC 9110 section
    10.2.3): seconds, 0 to `LATER_MAX_S`; 0 if it is neither."""
    try:
        wait_s = float(text) if text.isascii() and text.isdigit() else parsedate_to_datetime(text).timestamp() - now_s
    except (ValueError, OverflowError):
        return 0.0
    return min(max(wait_s, 0.0), LATER_MAX_S) if math.isfinite(wait_s) else LATER_MAX_S
