"""Instances of web applications that fall ill in a fault run, and how they are watched: drawn from the seed in a stream
of its own. Pure, as `fault_script` is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random

from shared.values.health import Probe, ProbeKind

FROM_S, UNTIL_S = 500.0, 4_200.0
WATCHED = 0.75  # share of applications that are watched
ILL_MAX = 4  # of one application
LENGTHS_S = (100.0, 1_500.0)  # so long a whole application is ill


class IllKind(StrEnum):
    """How instances fall ill."""

    INSTANCE = "instance-ill"  # one, in this life: it refuses
    HANGS = "instance-hangs"  # likewise: it lets probes wait
    APP = "application-ill"  # all of an application, whatever is done, for a common cause


@dataclass(frozen=True, slots=True)
class Illness:
    """An illness at `at_s`; that of an application passes at `until_s`. `number` chooses the instance."""

    kind: IllKind
    at_s: float
    until_s: float
    number: int = 0


def draw_probe(seed: int, app: str) -> Probe | None:
    """Draw the health check of an application of a seed, None for no health checks."""
    rng = Random(f"probe:{seed}:{app}")
    if rng.random() >= WATCHED:
        return None
    return Probe(
        ProbeKind.TCP,
        80,
        period_s=rng.choice((5.0, 10.0)),
        fall=rng.choice((2, 3)),
        rise=rng.choice((1, 2)),
        grace_s=rng.choice((0.0, 30.0, 60.0)),
        replace_max=rng.choice((0, 1, 2, 4)),
    )


def draw_illnesses(seed: int, app: str) -> tuple[Illness, ...]:
    """Draw the illnesses of an application of a seed, in order."""
    rng = Random(f"ill:{seed}:{app}")
    return tuple(sorted((_illness(rng) for _ in range(rng.randint(1, ILL_MAX))), key=lambda each: each.at_s))


def _illness(rng: Random) -> Illness:
    at_s = rng.uniform(FROM_S, UNTIL_S)
    kind = rng.choice((IllKind.INSTANCE, IllKind.INSTANCE, IllKind.HANGS, IllKind.APP))
    return Illness(kind, at_s, at_s + rng.uniform(*LENGTHS_S), rng.randint(0, 12))
