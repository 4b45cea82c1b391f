"""A job as a user writes it (examples/job.toml), and how Trimtab understands it. Every problem is reported at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar

from daemons.manifests import rules as rulesfile
from daemons.manifests.rules import Group, Label, RulesTable
from shared.base.errors import InvalidInput, Problem
from shared.config import toml
from shared.config.records import AtLeast, Form, Range
from shared.values.jobs import ARGUMENT_LENGTH_MAX, ARGUMENTS_MAX, INSTANCES_MAX, STAGES_MAX, Job, Stage
from shared.values.load_vector import CPU, IO, NET, SUM_ERROR_MAX, Loading

NUMBER_MAX = 1e15
SECONDS_MAX = 1e10
WHEN_WORDS = "a time with its offset from UTC, like 2030-01-31T12:00:00Z"

JobName = Annotated[str, Form(r"[A-Za-z0-9_-]{1,128}", "1 to 128 ASCII letters, digits, '-' or '_'")]
Amount = Annotated[float, Range(0, NUMBER_MAX)]
Speed = Annotated[float, Range(0.001, NUMBER_MAX)]
Seconds = Annotated[float, Range(0, SECONDS_MAX)]
Mib = Annotated[int, Range(0, 1 << 40)]
Moment = Annotated[Any, Form(r"[^\0]*", WHEN_WORDS)]  # which `When` checks
Argument = Annotated[
    str, Form(rf"[^\0]{{0,{ARGUMENT_LENGTH_MAX}}}", f"at most {ARGUMENT_LENGTH_MAX} characters, none of them NUL")
]


@dataclass(frozen=True, slots=True)
class StageTable:
    """A stage of the job's work. Stages follow one another."""

    work_mcycles: Amount
    """Work of one instance in this stage. One Mcycle is one second at 1 MHz. Example: `1200000`."""
    max_mhz: Speed
    """Highest speed that one instance can use. Example: `3900`."""
    min_mhz: Amount = 0.0
    """Lowest speed that one instance needs."""
    memory_mib: Mib = 0
    """Memory of one instance. The VM gets the memory of its largest stage."""


@dataclass(frozen=True, slots=True)
class GoalTable:
    """When the job should be complete. Give one key; without any, the job is best effort."""

    at: Moment = None
    """Time by which the job should be complete. Example: `2030-01-31T12:00:00Z`."""
    within_s: Seconds | None = None
    """Time from the submission within which the job should be complete. Example: `7200`."""
    factor: Annotated[float, Range(1, 1e6)] | None = None
    """Multiple of the shortest run time within which the job should be complete, from its earliest start. Example:
    `2.5`."""


@dataclass(frozen=True, slots=True)
class StartTable:
    """The earliest start. Give one key; without any, the job starts at once."""

    at: Moment = None
    """Earliest start. Example: `2030-01-31T12:00:00Z`."""
    after_s: Seconds | None = None
    """Time from the submission to the earliest start. Example: `60`."""


Part = Annotated[float, Range(0, 1)]


@dataclass(frozen=True, slots=True)
class LoadingTable:
    """The resource profile: parts of the isolated run time that the job spends on each resource."""

    cpu: Part = 0.0
    """Part of the isolated run time on the CPU."""
    io: Part = 0.0
    """Part of the isolated run time at the disk."""
    net: Part = 0.0
    """Part of the isolated run time at the network."""


@dataclass(frozen=True, slots=True)
class SumsToOne:
    """The parts of `resource_profile` sum to 1 at most."""

    key: str = "resource_profile.cpu"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        parts = [values.get(f"resource_profile.{name}") or 0.0 for name in (CPU, IO, NET)]
        return "" if sum(parts) <= 1.0 + SUM_ERROR_MAX else "parts that sum to 1 at most"


@dataclass(frozen=True, slots=True)
class Without:
    """`key` and `other` cannot both be given."""

    key: str
    other: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        both = values.get(self.key) is not None and values.get(self.other) is not None
        return f"it or {self.other}, not both" if both else ""


@dataclass(frozen=True, slots=True)
class When:
    """`key` is a time with its offset from UTC: a TOML date-time, or a string in ISO 8601."""

    key: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        value = values.get(self.key)
        return "" if value is None or epoch_s(value) is not None else WHEN_WORDS


@dataclass(frozen=True, slots=True)
class FewArguments:
    """`key` has at most 100 items."""

    key: str = "arguments"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        return "" if len(values.get(self.key) or ()) <= ARGUMENTS_MAX else f"at most {ARGUMENTS_MAX} arguments"


@dataclass(frozen=True, slots=True)
class HasStages:
    """A job has 1 to 1000 tables `[[stages]]`. A job with a `class` may have none."""

    key: str = "stages"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        if "stages" not in values or "class" not in values:
            return ""
        good = (values["stages"] or values["class"]) and len(values["stages"]) <= STAGES_MAX
        return "" if good else f"1 to {STAGES_MAX} tables [[stages]], or a class whose jobs are known"


@dataclass(frozen=True, slots=True)
class NeedsStages:
    """`key` cannot be given without `stages`."""

    key: str = "goal.factor"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        unknown = values.get(self.key) is not None and values.get("stages") == ()
        return "goal.at or goal.within_s, since there are no stages" if unknown else ""


@dataclass(frozen=True, slots=True)
class NoGoal:
    """`key` and `queue` cannot both be given: the goal is the deadline of the queue."""

    key: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        both = values.get(self.key) is not None and values.get("queue")
        return "no goal beside queue: its deadline is that of the queue" if both else ""


@dataclass(frozen=True, slots=True)
class NoQueue:
    """`key` and `environment` cannot both be given."""

    key: str = "queue"
    environment: str = "environment"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        both = values.get(self.key) and values.get(self.environment)
        return "nothing beside environment: its nodes are those of the environment" if both else ""


@dataclass(frozen=True, slots=True)
class AfterOthers:
    """`key` names other jobs, each once."""

    key: str = "depends_on"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        names = values.get(self.key) or ()
        good = values.get("name") not in names and len({*names}) == len(names)
        return "" if good else "other jobs, each once"


def epoch_s(value: Any) -> float | None:
    """Return a time as seconds since the epoch; None for anything that is not a time with an offset."""
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
    """A job for `trimtab jobs submit`."""

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
        *rulesfile.RULES,
        rulesfile.LABEL_RULE,
        *(AtLeast(f"stages[{index}].max_mhz", f"stages[{index}].min_mhz") for index in range(STAGES_MAX)),
    )

    name: JobName
    """Name of the job. No other job or web application may ever have had it. Example: `"render-42"`."""
    stages: tuple[StageTable, ...] = ()
    class_: Group = ""
    """Name of a class of similar jobs. Stages may be left out once 5 jobs of the class are complete. Empty: none."""
    instances: Annotated[int, Range(1, INSTANCES_MAX)] = 1
    """Number of VMs. They start together and run at the speed of the slowest."""
    vcpus: Annotated[int, Range(1, 4096)] = 1
    """Virtual CPUs of one VM."""
    spread: bool = False
    """Run every instance on a node of its own."""
    required_labels: tuple[Label, ...] = ()
    """Labels that the job's nodes must have."""
    importance: Annotated[float, Range(0.001, 1e6)] = 1.0
    """Weight against other workloads when CPU is short."""
    checkpoint_mcycles: Amount = 0.0
    """Work between two checkpoints that the guest saves. 0: the guest saves none and restarts after a loss."""
    template: Annotated[str, Form(r"[^\0]{0,4096}", "at most 4096 characters")] = ""
    """Name of the VM template. Empty: the default of the hypervisor driver."""
    start: StartTable = field(default_factory=StartTable)
    goal: GoalTable = field(default_factory=GoalTable)
    rules: RulesTable = field(default_factory=RulesTable)
    queue: Group = ""
    """Queue of a deadline window. The job's goal is then the deadline of the window. Empty: none."""
    depends_on: tuple[JobName, ...] = ()
    """Names of jobs that must be complete before this job starts. They must be known already."""
    environment: Group = ""
    """Batch environment in which the job runs. Empty: none."""
    arguments: tuple[Argument, ...] = ()
    """Arguments for the template: values of `{argument.0}` and so on, or arguments of its program."""
    resource_profile: LoadingTable = field(default_factory=LoadingTable)


def read_job(path: Path, now_s: float, name: str = "", environment: str = "") -> Job:
    """Read the job in a TOML file, submitted at `now_s` (seconds since the epoch), with another name and environment if
    these are given.

    Raises `InvalidInput` with one problem for each thing that is wrong.
    """
    return job_of(toml.load(path, JobFile), now_s, str(path), name, environment)


def job_of(file: JobFile, now_s: float, where: str, name: str = "", environment: str = "") -> Job:
    """Return the job that a file describes. Raises `InvalidInput` if its times are inconsistent or have passed, or if
    it has both an environment and a queue."""
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
    return Job(
        name or file.name,
        stages,
        submit_s=now_s,
        desired_start_s=start_s,
        goal_s=goal_s,
        instances=file.instances,
        vcpus=file.vcpus,
        importance=file.importance,
        spread=file.spread,
        checkpoint_mcycles=file.checkpoint_mcycles,
        required_labels=file.required_labels,
        template=file.template,
        job_class=file.class_,
        rules=rulesfile.rules_of(file.rules),
        queue=file.queue,
        depends_on=file.depends_on,
        environment=environment or file.environment,
        arguments=file.arguments,
        resource_profile=Loading(
            tuple((name, part) for name, part in asdict(file.resource_profile).items() if part > 0.0)
        ),
    )


def shortest_s(stages: tuple[Stage, ...]) -> float:
    """Return the shortest run time: every stage at its highest speed."""
    return math.fsum(stage.work_mcycles / stage.max_mhz for stage in stages)


def _start_s(start: StartTable, now_s: float) -> float:
    at_s = epoch_s(start.at)
    return at_s if at_s is not None else now_s + (start.after_s or 0.0)


def _goal_s(goal: GoalTable, start_s: float, now_s: float, run_s: float) -> tuple[float | None, str]:
    """Return the goal and the key that sets it."""
    at_s = epoch_s(goal.at)
    if at_s is not None:
        return at_s, "goal.at"
    if goal.within_s is not None:
        return now_s + goal.within_s, "goal.within_s"
    if goal.factor is not None:
        return start_s + goal.factor * run_s, "goal.factor"
    return None, ""


def understood(job: Job) -> dict[str, Any]:
    """Return a job as it was understood, for people and for JSON; times in seconds since the epoch. Values that depend
    on missing stages are None."""
    known = bool(job.stages)
    return {
        "name": job.name,
        "class": job.job_class,
        "instances": job.instances,
        "spread": job.spread,
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
        "required_labels": list(job.required_labels),
        "queue": job.queue,
        "depends_on": list(job.depends_on),
        "environment": job.environment,
        "template": job.template,
        "arguments": list(job.arguments),
        "resource_profile": dict(job.resource_profile.parts),
        "rules": rulesfile.understood(job.rules),
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
