"""Small random batch logs whose events often fall into the same second."""

from __future__ import annotations

from random import Random

from shared.values.replay_job import ReplayJob


def random_log(seed: int, count: int = 120, size_max: int = 8) -> list[ReplayJob]:
    """Jobs of 1 to `size_max` nodes with short whole run times (0 s among them) and clustered submissions."""
    rng = Random(seed)
    submits = sorted(rng.randrange(0, 300) * 10 for _ in range(count))
    return [
        ReplayJob(number, float(submit_s), float(rng.choice((0, 10, 50, 100, 290))), rng.randint(1, size_max), number)
        for number, submit_s in enumerate(submits, 1)
    ]
