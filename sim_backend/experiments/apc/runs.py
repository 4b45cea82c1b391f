"""One run of an experiment of apc.txt in the direct engine, kept small enough to travel between processes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared.policy_api.decision import Outlook
from shared.values.jobs import Job
from shared.values.nodes import Node
from shared.values.operation_costs import COSTS
from sim_backend.experiments.apc.settings import CYCLE_S, Rival
from sim_backend.replay.engine import run_direct
from sim_backend.replay.tasks import Pass
from sim_backend.replay.web_loads import WebLoad
from sim_backend.world.figures import JobRun


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one pass at a cycle came to. Utilities are predicted ones, None where the policy predicts none.

    jobs, placed: in the system, and running from now on. level: the jobs' common one; mean, least: over the jobs. web
    and web_mhz: of the web application. tried: placements evaluated; decide_s: how long deciding took.
    """

    at_s: float
    jobs: int
    placed: int
    jobs_mhz: float
    web_mhz: float
    level: float | None
    mean: float | None
    least: float | None
    web: float | None
    operations: Mapping[str, int]
    tried: int
    decide_s: float


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome: every job submitted, operations by kind (of jobs and instances), how many of the resumes were away
    from the image, and the cycles."""

    runs: tuple[JobRun, ...]
    operations: Mapping[str, int]
    moved_and_resumed: int
    cycles: tuple[Cycle, ...]

    @property
    def completed(self) -> list[JobRun]:
        """Those with an end, in order of submission."""
        return [run for run in self.runs if run.end_s is not None]

    @property
    def placement_changes(self) -> int:
        """Jobs migrated, suspended, and resumed on another node than the one they were suspended on (figure 16)."""
        return self.operations.get("migrate", 0) + self.operations.get("suspend", 0) + self.moved_and_resumed


def distance_s(run: JobRun) -> float:
    """Return the seconds from a completed job's end to its goal; negative when it missed the goal."""
    distance = run.distance_s
    return math.nan if distance is None else distance


def utility(run: JobRun) -> float:
    """Return the utility that a completed job achieved."""
    achieved = run.utility
    return math.nan if achieved is None else achieved


@dataclass(slots=True)
class _Recorder:
    cycles: list[Cycle] = field(default_factory=list)
    moved_and_resumed: int = 0
    operations: Counter[str] = field(default_factory=Counter)

    def __call__(self, seen: Pass) -> None:
        self.moved_and_resumed += seen.moved_and_resumed
        self.operations.update(seen.operations)
        if seen.seen.at_cycle:
            self.cycles.append(_cycle(seen))


def _cycle(seen: Pass) -> Cycle:
    outlook = seen.decision.outlook or Outlook()
    apps = set(seen.seen.web.names)
    by_name = dict(zip(outlook.names, outlook.predicted, strict=True))
    jobs = [value for name, value in by_name.items() if name not in apps]
    web = [value for name, value in by_name.items() if name in apps]
    return Cycle(
        seen.seen.now_s,
        seen.jobs,
        seen.placed,
        jobs_mhz=seen.jobs_mhz,
        web_mhz=sum(seen.web_mhz.values()),
        level=outlook.level,
        mean=math.fsum(jobs) / len(jobs) if jobs else None,
        least=min(jobs, default=None),
        web=web[0] if web else None,
        operations=dict(seen.operations),
        tried=seen.decision.evaluations,
        decide_s=seen.decide_s,
    )


def play(
    jobs: Sequence[Job],
    nodes: Sequence[Node],
    rival: Rival,
    *,
    costs: str = "paper",
    web_apps: Sequence[WebLoad] = (),
    stop_after: int | None = None,
    every_cycle: bool = True,
) -> RunOutcome:
    """Play one rival on these jobs. Without `every_cycle` those at which nothing could change may be missing. Raises as
    `run_direct` does."""
    recorder = _Recorder()
    outcome = run_direct(
        jobs,
        nodes,
        policy=rival.policy,
        costs=COSTS[costs],
        cycle_s=CYCLE_S,
        params=rival.params,
        web_apps=web_apps,
        event_driven=rival.by_events,
        stop_after=stop_after,
        watch=recorder,
        every_cycle=every_cycle,
    )
    return RunOutcome(outcome.runs, dict(recorder.operations), recorder.moved_and_resumed, tuple(recorder.cycles))
