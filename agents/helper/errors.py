"""Why the helper has not done what it was asked."""

from __future__ import annotations


class Refusal(Exception):
    """Nothing was changed; the text says why."""


class Failure(Exception):
    """A request was begun and has failed; the text says why."""
