"""What a promise lets an environment ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Right:
    """What an environment may have by right, of what it asks for. first: of class guaranteed; units: with all that its
    shares reserve; lower: its lower bound, 0 while its reservation does not hold."""

    first: int
    units: int
    lower: int
