"""A job as a user writes it (examples/job.toml), and what Trimtab understands by it. Every problem is told at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar

from shared.base.errors import InvalidInput, Problem
from shared.config import toml
from shared.config.records import AtLeast, Form, Range
from shared.values.jobs import ARGUMENT_LENGTH_MAX, ARGUMENTS_MAX, INSTANCES_MAX, STAGES_MAX, Job, Rules, Stage
from shared.values.load_vector import CPU, IO, NET, SUM_ERROR_MAX, Loading

NUMBER_MAX = 1e15
SECONDS_MAX = 1e10
WHEN_WORDS = "a time with its offset from UTC, like 2030-01-31T12:00:00Z"

JobName = Annotated[str, Form(r"[A-Za-z0-9_-]{1,128}", "1 to 128 ASCII letters, digits, '-' or '_'")]
Group = Annotated[str, Form(r"[A-Za-z0-9_-]{0,128}", "at most 128 ASCII letters, digits, '-' or '_'")]
Label = Annotated[str, Form(r"\S{1,128}", "1 to 128 characters without spaces")]
Amount = Annotated[float, Range(0, NUMBER_MAX)]
Speed = Annotated[float, Range(0.001, NUMBER_MAX)]
Seconds = Annotated[float, Range(0, SECONDS_MAX)]
Mib = Annotated[int, Range(0, 1 << 40)]
Argument = Annotated[
    str, Form(rf"[^\0]{{0,{ARGUMENT_LENGTH_MAX}}}", f"at most {ARGUMENT_LENGTH_MAX} characters, none of them NUL")
]


@dataclass(frozen=True, slots=True)
class StageTable:
    """One stage: work per instance in Mcycles, the most and the least speed that it can use in MHz, memory in MiB."""

    work_mcycles: Amount
    max_mhz: Speed
    min_mhz: Amount = 0.0
    memory_mib: Mib = 0


@dataclass(frozen=True, slots=True)
class GoalTable:
    """When the job should be complete; one key of the three, or none for best effort.

    `at`: a time. `within_s`: so long after the submission. `factor`: so many times the shortest run time after the
    desired start.
    """

    at: Any = None
    within_s: Seconds | None = None
    factor: Annotated[float, Range(1, 1e6)] | None = None


@dataclass(frozen=True, slots=True)
class StartTable:
    """The earliest start; one key of the two, or none for at once. `at`: a time. `after_s`: after the submission."""

    at: Any = None
    after_s: Seconds | None = None


@dataclass(frozen=True, slots=True)
class RulesTable:
    """Where instances may run, see `shared.values.jobs.Rules`."""

    pin: tuple[JobName, ...] = ()
    forbid: tuple[JobName, ...] = ()
    together: Group = ""
    apart: Group = ""
    keep: bool = False


Part = Annotated[float, Range(0, 1)]


@dataclass(frozen=True, slots=True)
class LoadingTable:
    """The part of its time alone on a node that the job spends on the CPU, at the disk and at the network."""

    cpu: Part = 0.0
    io: Part = 0.0
    net: Part = 0.0


@dataclass(frozen=True, slots=True)
class SumsToOne:
    """The parts of a loading leave no less than nothing."""

    key: str = "loading.cpu"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        parts = [values.get(f"loading.{name}") or 0.0 for name in (CPU, IO, NET)]
        return "" if sum(parts) <= 1.0 + SUM_ERROR_MAX else "parts that sum to 1 at most"


@dataclass(frozen=True, slots=True)
class Unlike:
    """No name of the array under `key` may be in that under `other`; of two strings, they may not be equal."""

    key: str
    other: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        value, other = values.get(self.key), values.get(self.other)
        if not value or not other:
            return ""
        both = value == other if isinstance(value, str) else {*value} & {*other}
        return f"nothing that {self.other} has" if both else ""


@dataclass(frozen=True, slots=True)
class Without:
    """The key may not be given beside `other` (dotted keys)."""

    key: str
    other: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        both = values.get(self.key) is not None and values.get(self.other) is not None
        return f"it or {self.other}, not both" if both else ""


@dataclass(frozen=True, slots=True)
class When:
    """The value under `key`, if any, must be a time with an offset: a TOML date-time or a string in ISO 8601."""

    key: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        value = values.get(self.key)
        return "" if value is None or epoch_s(value) is not None else WHEN_WORDS


@dataclass(frozen=True, slots=True)
class FewArguments:
    """A program is not given too many."""

    key: str = "arguments"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        return "" if len(values.get(self.key) or ()) <= ARGUMENTS_MAX else f"at most {ARGUMENTS_MAX} arguments"


@dataclass(frozen=True, slots=True)
class HasStages:
    """A job has stages, but not too many; one of a class may leave them out."""

    key: str = "stages"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        if "stages" not in values or "class" not in values:
            return ""
        good = (values["stages"] or values["class"]) and len(values["stages"]) <= STAGES_MAX
        return "" if good else f"1 to {STAGES_MAX} tables [[stages]], or a class whose jobs are known"


@dataclass(frozen=True, slots=True)
class NeedsStages:
    """A goal as a factor of the shortest run time is of no use where that is not known."""

    key: str = "goal.factor"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        unknown = values.get(self.key) is not None and values.get("stages") == ()
        return "goal.at or goal.within_s, since there are no stages" if unknown else ""


@dataclass(frozen=True, slots=True)
class NoGoal:
    """A job of a queue has no goal of its own."""

    key: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        both = values.get(self.key) is not None and values.get("queue")
        return "no goal beside queue: its deadline is that of the queue" if both else ""


@dataclass(frozen=True, slots=True)
class NoQueue:
    """A job of an environment is of no queue of a deadline window."""

    key: str = "queue"
    environment: str = "environment"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        both = values.get(self.key) and values.get(self.environment)
        return "nothing beside environment: its nodes are those of the environment" if both else ""


@dataclass(frozen=True, slots=True)
class AfterOthers:
    """A job does not wait for itself, nor twice for one job."""

    key: str = "after"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        names = values.get(self.key) or ()
        good = values.get("name") not in names and len({*names}) == len(names)
        return "" if good else "other jobs, each once"


def epoch_s(value: Any) -> float | None:
    """A time as seconds since the epoch; None for anything that is no time with an offset."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return value.timestamp()


@dataclass(frozen=True, slots=True)
class JobFile:
    """A file for `trimtab jobs submit`. `template`: the VM template; empty for the hypervisor driver's default.
    `class`: of jobs that are alike; then stages may be left out. `queue`: of a deadline window; its deadline is
    the goal then. `after`: jobs that must be completed before it is started. `environment`: the batch environment
    that it is submitted to. `loading`: how it loads a node, as far as that is known."""

    RULES: ClassVar[tuple[Any, ...]] = (
        HasStages(),
        FewArguments(),
        Without("goal.within_s", "goal.at"),
        Without("goal.factor", "goal.at"),
        Without("goal.factor", "goal.within_s"),
        Without("start.after_s", "start.at"),
        When("goal.at"),
        When("start.at"),
        NeedsStages(),
        *(NoGoal(f"goal.{key}") for key in ("at", "within_s", "factor")),
        NoQueue(),
        AfterOthers(),
        SumsToOne(),
        Unlike("rules.forbid", "rules.pin"),
        Unlike("rules.apart", "rules.together"),
        *(AtLeast(f"stages[{index}].max_mhz", f"stages[{index}].min_mhz") for index in range(STAGES_MAX)),
    )

    name: JobName
    stages: tuple[StageTable, ...] = ()
    class_: Group = ""
    instances: Annotated[int, Range(1, INSTANCES_MAX)] = 1
    vcpus: Annotated[int, Range(1, 4096)] = 1
    separate: bool = False
    needs: tuple[Label, ...] = ()
    importance: Annotated[float, Range(0.001, 1e6)] = 1.0
    checkpoint_mcycles: Amount = 0.0
    template: Annotated[str, Form(r"[^\0]{0,4096}", "at most 4096 characters")] = ""
    start: StartTable = field(default_factory=StartTable)
    goal: GoalTable = field(default_factory=GoalTable)
    rules: RulesTable = field(default_factory=RulesTable)
    queue: Group = ""
    after: tuple[JobName, ...] = ()
    environment: Group = ""
    arguments: tuple[Argument, ...] = ()
    loading: LoadingTable = field(default_factory=LoadingTable)


def read_job(path: Path, now_s: float, name: str = "", environment: str = "") -> Job:
    """The job in a TOML file, submitted at `now_s` (seconds since the epoch), under another name and to another
    environment where these are given.

    Raises `InvalidInput` with one problem for each thing that is wrong.
    """
    return job_of(toml.load(path, JobFile), now_s, str(path), name, environment)


def job_of(file: JobFile, now_s: float, where: str, name: str = "", environment: str = "") -> Job:
    """The job that a file describes. Raises `InvalidInput` where its times do not fit together or have passed, or
    where it is to go to an environment and has a queue."""
    stages = tuple(Stage(each.work_mcycles, each.max_mhz, each.min_mhz, each.memory_mib) for each in file.stages)
    start_s = _start_s(file.start, now_s)
    goal_s, key = _goal_s(file.goal, start_s, now_s, shortest_s(stages))
    problems = []
    if goal_s is not None and goal_s <= now_s and key == "goal.at":
        problems.append(Problem(f"{where}: {key}", "has passed", "a time to come"))
    elif goal_s is not None and goal_s <= start_s:
        expected = "a job with work to do" if key == "goal.factor" else "a time after the desired start"
        problems.append(Problem(f"{where}: {key}", "leaves no time for the job", expected))
    if file.queue and environment:
        problems.append(Problem(f"{where}: queue", f"is {file.queue!r}", f"nothing for environment {environment!r}"))
    if problems:
        raise InvalidInput(*problems)
    rules = file.rules
    return Job(
        name or file.name,
        stages,
        submit_s=now_s,
        desired_start_s=start_s,
        goal_s=goal_s,
        instances=file.instances,
        vcpus=file.vcpus,
        importance=file.importance,
        separate=file.separate,
        checkpoint_mcycles=file.checkpoint_mcycles,
        needs=file.needs,
        template=file.template,
        job_class=file.class_,
        rules=Rules(rules.pin, rules.forbid, rules.together, rules.apart, rules.keep),
        queue=file.queue,
        after=file.after,
        environment=environment or file.environment,
        arguments=file.arguments,
        loading=Loading(tuple((name, part) for name, part in asdict(file.loading).items() if part > 0.0)),
    )


def shortest_s(stages: tuple[Stage, ...]) -> float:
    """The shortest run time: every stage at its highest speed."""
    return math.fsum(stage.work_mcycles / stage.max_mhz for stage in stages)


def _start_s(start: StartTable, now_s: float) -> float:
    at_s = epoch_s(start.at)
    return at_s if at_s is not None else now_s + (start.after_s or 0.0)


def _goal_s(goal: GoalTable, start_s: float, now_s: float, run_s: float) -> tuple[float | None, str]:
    """The goal and the key that says it."""
    at_s = epoch_s(goal.at)
    if at_s is not None:
        return at_s, "goal.at"
    if goal.within_s is not None:
        return now_s + goal.within_s, "goal.within_s"
    if goal.factor is not None:
        return start_s + goal.factor * run_s, "goal.factor"
    return None, ""


def understood(job: Job) -> dict[str, Any]:
    """A job as it was understood, for people and for JSON; times in seconds since the epoch. What follows from stages
    that are not given is None."""
    known = bool(job.stages)
    rules = {"pin": list(job.rules.pin), "forbid": list(job.rules.forbid)}
    return {
        "name": job.name,
        "class": job.job_class,
        "instances": job.instances,
        "separate": job.separate,
        "vcpus": job.vcpus,
        "memory_mib": job.memory_mib if known else None,
        "work_mcycles": job.work_mcycles if known else None,
        "min_mhz": job.min_mhz if known else None,
        "max_mhz": job.max_mhz if known else None,
        "shortest_run_s": shortest_s(job.stages) if known else None,
        "submit_s": job.submit_s,
        "desired_start_s": job.desired_start_s,
        "goal_s": job.goal_s,
        "importance": job.importance,
        "checkpoint_mcycles": job.checkpoint_mcycles,
        "needs": list(job.needs),
        "queue": job.queue,
        "after": list(job.after),
        "environment": job.environment,
        "template": job.template,
        "arguments": list(job.arguments),
        "loading": dict(job.loading.parts),
        "rules": asdict(job.rules) | rules,
        "stages": [
            {
                "work_mcycles": stage.work_mcycles,
                "max_mhz": stage.max_mhz,
                "min_mhz": stage.min_mhz,
                "memory_mib": stage.memory_mib,
            }
            for stage in job.stages
        ],
    }
