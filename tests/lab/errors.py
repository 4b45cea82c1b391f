"""What goes wrong with a lab itself."""

from __future__ import annotations


class LabError(Exception):
    """The lab could not be made, changed or ended as asked; its text says what failed."""
