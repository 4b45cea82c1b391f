"""Why the helper has not done what it was asked."""

from __future__ import annotations


class Refusal(Exception):
    """Nothing was changed; the text says why."""


class Failure(Exception):
    """It was begun and has not come about; the text says why."""
