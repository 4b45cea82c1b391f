"""What goes wrong around nodes in and out of service in a fault run: all of it drawn from the seed.

Pure, as `fault_script` is. Some seeds have a deadline window, a provisioning policy and nodes that sleep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from shared.values.jobs import Job, Stage
from shared.values.nodes import Node, SleepMode
from sim_backend.fakes.power import PowerTimes
from sim_backend.faults.clocks import FaultWindow, draw_window

SHARE, TURN = 5, 2  # of so many seeds in a row, the one with that remainder
QUEUE = "batch"
JOBS = (10, 16, 26)  # few, so that nodes sleep; and so many that the promise is in danger
JOB_S = 330.0
ASKED_S = 300.0  # so long before its end a queue is asked for the last time
FROM_S, UNTIL_S, REPAIRED_S = 120.0, 4_000.0, 4_500.0
INCIDENTS_MIN, INCIDENTS_MAX = 4, 7
ROTATED = 3
QUICK = ("threshold", "cost-aware", "delayed-threshold", "lp", "cost-aware-monotone", "cost-aware-fast")
POLICIES = (*QUICK, *QUICK, "optimal")  # the tables of the last take ten times as long as a run


class PowerFault(StrEnum):
    """Kinds of faults, in the order in which seeds rotate through them."""

    WAKE_FAILS = "wake-fails"
    WAKE_LATE = "wake-late"
    SLEEP_REFUSED = "sleep-refused"
    SLEEP_HANGS = "sleep-hangs"
    DIES_DRAINING = "node-dies-while-draining"
    KILLED_DEPLOYING = "controller-killed-during-deployment"
    PRICES_STOP = "price-feed-stops"
    PRICES_GO_BACK = "price-feed-goes-back"
    CLOCK_JUMPS = "clock-jumps"


@dataclass(frozen=True, slots=True)
class PowerIncident:
    """A fault of `kind` from `at_s` until `until_s`. `times`: number of occurrences; `told`: whether the driver reports
    the fault, for a clock jump whether it is forward; `size_s`: delay or clock offset in seconds."""

    kind: PowerFault
    at_s: float
    until_s: float
    node: str
    times: int
    told: bool
    size_s: float


@dataclass(frozen=True, slots=True)
class FaultPower:
    """The part of a script about power. `jobs` are those of the window's queue, `work_factors` true work / declared."""

    policy: str
    window: FaultWindow
    jobs: tuple[Job, ...]
    work_factors: dict[str, float]
    sleep: SleepMode
    times: PowerTimes
    keep_nodes: int
    removal: str
    incidents: tuple[PowerIncident, ...]


def draw_power(seed: int, nodes: Sequence[Node], window: FaultWindow | None = None) -> FaultPower | None:
    """Draw the power part of a seed's script, None for most seeds. `window` replaces the drawn window."""
    if seed % SHARE != TURN:
        return None
    rng, turn = Random(f"power {seed}"), seed // SHARE
    window = window or draw_window(seed, turn)
    jobs = tuple(_job(number, window, rng) for number in range(rng.choice(JOBS)))
    every = list(PowerFault)
    kinds = [every[(turn * ROTATED + at) % len(every)] for at in range(ROTATED)]
    kinds += rng.choices(every, k=rng.randint(INCIDENTS_MIN, INCIDENTS_MAX) - ROTATED)
    names = [node.name for node in nodes]
    return FaultPower(
        policy=POLICIES[turn % len(POLICIES)],
        window=window,
        jobs=jobs,
        work_factors={job.name: rng.uniform(0.7, 1.4) for job in jobs},
        sleep=rng.choice((SleepMode.SUSPEND, SleepMode.OFF)),
        times=PowerTimes(suspend_s=4.0, off_s=12.0, resume_s=9.0, boot_s=50.0, noise=0.3),
        keep_nodes=rng.choice((1, 2)),
        removal=rng.choice(("checkpoint", "checkpoint", "wait", "lose")),
        incidents=tuple(sorted((_incident(kind, names, rng) for kind in kinds), key=lambda each: each.at_s)),
    )


def _job(number: int, window: FaultWindow, rng: Random) -> Job:
    work_mcycles = JOB_S * 1_000.0 * rng.uniform(0.6, 1.5)
    stage = Stage(work_mcycles, 1_000.0, 0.0, rng.choice((300, 600)))
    submit_s = rng.uniform(window.opens_s + 30.0, window.closes_s - ASKED_S)
    return Job(f"w{number:02}", (stage,), submit_s=submit_s, queue=QUEUE)


def _incident(kind: PowerFault, nodes: Sequence[str], rng: Random) -> PowerIncident:
    at_s = rng.uniform(FROM_S, UNTIL_S)
    return PowerIncident(
        kind,
        at_s,
        min(at_s + rng.uniform(300.0, 1_200.0), REPAIRED_S),
        rng.choice(nodes),
        rng.choice((1, 2, 100)),
        rng.random() < 0.5,
        rng.choice((20.0, 200.0, 900.0)),
    )
