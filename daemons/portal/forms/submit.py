"""Jobs and web applications from forms and from files in the form of the `trimtab` command. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daemons.manifests import job as jobfile
from daemons.manifests import web_app
from daemons.manifests.job import JobFile
from daemons.manifests.web_app import WebFile
from daemons.portal.forms import binding
from daemons.portal.forms.binding import Field, Fieldset, Wrong
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.config import toml
from shared.values.jobs import Job
from shared.values.web_app import WebApp

ROWS = 3  # of stages or of flows that a form has
FILES_MAX = 50

Row = Mapping[str, Any]

_RULES = Fieldset(
    "Where it may run",
    (
        Field("needs", "Labels that its nodes must have", "list", "With commas between."),
        Field("rules.pin", "Only on these nodes", "list", "With commas between."),
        Field("rules.forbid", "Never on these nodes", "list", "With commas between."),
        Field("rules.together", "Together with the group"),
        Field("rules.apart", "Apart from the group"),
        Field("rules.keep", "Not moved once it runs", "box"),
    ),
    folded=True,
)
_STARTED = Fieldset(
    "What is started",
    (
        Field("template", "VM template", help="Empty: the node's default."),
        Field("arguments", "Arguments for the template's program", "lines", "One each line."),
    ),
    folded=True,
)


def _stage(index: int) -> tuple[Field, ...]:
    def key(name: str) -> str:
        return f"stages[{index}].{name}"

    which = f"Stage {index + 1}: "
    return (
        Field(key("work_mcycles"), f"{which}work of each VM, Mcycles", "number"),
        Field(key("max_mhz"), f"{which}most speed it can use, MHz", "number"),
        Field(key("min_mhz"), f"{which}least speed, MHz", "number"),
        Field(key("memory_mib"), f"{which}memory, MiB", "number"),
    )


def _flow(index: int) -> tuple[Field, ...]:
    def key(name: str) -> str:
        return f"flows[{index}].{name}"

    which = f"Requests {index + 1}: "
    return (
        Field(key("name"), f"{which}name"),
        Field(key("mean_s"), f"{which}goal: answered within, seconds on average", "number"),
        Field(key("percentile"), f"{which}goal: this part of them, 0.95 for 95 %", "number"),
        Field(key("percentile_s"), f"{which}... within, seconds", "number"),
        Field(key("throughput_per_s"), f"{which}goal: so many answered a second", "number"),
        Field(key("work_mcycles"), f"{which}work of one, Mcycles", "number", "Empty: estimated from what is measured."),
    )


JOB = (
    Fieldset(
        "The job",
        (
            Field("name", "Name", required=True),
            Field("environment", "Environment", "environment"),
            Field("instances", "How many VMs", "number", default="1"),
            Field("vcpus", "vCPUs of each", "number", default="1"),
            Field("class", "Class of jobs that are alike", help="Then stages may be left out."),
        ),
    ),
    Fieldset("Work", _stage(0)),
    *(Fieldset(f"Stage {index + 1}", _stage(index), folded=True) for index in range(1, ROWS)),
    Fieldset(
        "Goal: one of these, or none for best effort",
        (
            Field("goal.within_s", "Complete within, seconds from now", "number"),
            Field("goal.at", "Complete at", help="2030-01-31T12:00:00Z"),
            Field("goal.factor", "So many times the shortest run time", "number"),
            Field("importance", "Importance against other jobs", "number", default="1.0"),
        ),
    ),
    Fieldset(
        "When it may start",
        (
            Field("start.after_s", "Not before, seconds from now", "number"),
            Field("start.at", "Not before", help="2030-01-31T12:00:00Z"),
            Field("after", "After these jobs", "list", "With commas between."),
            Field("queue", "Queue of a deadline window"),
        ),
        folded=True,
    ),
    _STARTED,
    Fieldset(_RULES.title, (*_RULES.fields, Field("separate", "Each VM on another node", "box")), folded=True),
    Fieldset(
        "More",
        (Field("checkpoint_mcycles", "Work between saves of the guest's own progress, Mcycles", "number"),),
        folded=True,
    ),
)

WEB = (
    Fieldset(
        "The application",
        (
            Field("name", "Name", required=True),
            Field("environment", "Environment", "environment"),
            Field("memory_mib", "Memory of an instance, MiB", "number", required=True),
            Field("vcpus", "vCPUs of an instance", "number", default="1"),
            Field("max_mhz", "Most CPU that an instance can use, MHz", "number", required=True),
            Field("min_instances", "Instances at least", "number", default="1"),
            Field("max_instances", "Instances at most", "number", default="1"),
            Field("importance", "Importance against other workloads", "number", default="1.0"),
            Field("metrics_url", "Where its measurements are fetched", help="Empty: its balancer measures."),
        ),
    ),
    Fieldset("Requests, each with one goal", _flow(0)),
    *(Fieldset(f"Requests {index + 1}", _flow(index), folded=True) for index in range(1, ROWS)),
    _STARTED,
    _RULES,
    Fieldset(
        "Its balancer",
        (
            Field("serving.port", "Port on which every instance answers", "number"),
            Field("serving.listen", "Port of the balancer", "number"),
            Field("serving.queue_max", "Longest queue", "number"),
            Field("serving.queue_limit_s", "Longest wait in it, seconds", "number"),
        ),
        folded=True,
    ),
)


@dataclass(frozen=True, slots=True)
class SubmissionKind:
    """What is submitted: a job or a web application. of_form: what the fields say; of_text: what a file says, with the
    name of the file. Both raise `InvalidInput`."""

    title: str
    groups: Sequence[Fieldset]
    of_form: Callable[[Mapping[str, str], float], Job | WebApp]
    of_text: Callable[[str, str, float], Job | WebApp]


def _job_of_form(values: Mapping[str, str], now_s: float) -> Job:
    return jobfile.job_of(binding.read(JOB, values, JobFile), now_s, binding.FORM)


def _job_of_text(text: str, name: str, now_s: float) -> Job:
    return jobfile.job_of(toml.parse(text, JobFile, name), now_s, name)


def _web_of_form(values: Mapping[str, str], _now_s: float) -> WebApp:
    return web_app.checked(binding.read(WEB, values, WebFile), binding.FORM)


def _web_of_text(text: str, name: str, _now_s: float) -> WebApp:
    return web_app.checked(toml.parse(text, WebFile, name), name)


KINDS = {
    "job": SubmissionKind("job", JOB, _job_of_form, _job_of_text),
    "web": SubmissionKind("web application", WEB, _web_of_form, _web_of_text),
}


def from_form(kind: SubmissionKind, values: Mapping[str, str], now_s: float) -> tuple[Job | WebApp | None, Wrong]:
    """What the fields say, or what is wrong with them, all at once."""
    try:
        return kind.of_form(values, now_s), binding.NOTHING
    except InvalidInput as error:
        return None, binding.beside(kind.groups, values, error)
    except InvalidValue as error:
        return None, Wrong({}, [str(error)])


def from_files(
    kind: SubmissionKind, files: Sequence[tuple[str, str]], now_s: float
) -> tuple[list[tuple[str, Job | WebApp]], list[Problem]]:
    """What files say, each by its name and text; and what is wrong with all of them. Several may be in one text, with
    lines of `---` between."""
    made: list[tuple[str, Job | WebApp]] = []
    problems: list[Problem] = []
    texts = [(name, parts) for name, text in files if (parts := binding.parts_of(text))]
    if sum(len(parts) for _, parts in texts) > FILES_MAX:
        return [], [Problem(kind.title, "too many at once", f"at most {FILES_MAX}")]
    for name, parts in texts:
        for number, text in enumerate(parts, 1):
            where = name if len(parts) == 1 else f"{name}, part {number}"
            try:
                made.append((where, kind.of_text(text, where, now_s)))
            except InvalidInput as error:
                problems += error.problems
            except InvalidValue as error:
                problems.append(Problem(where, str(error)))
    return made, problems


def room_for(job: Job, nodes: Sequence[Row]) -> tuple[int, int]:
    """On how many nodes that take VMs one instance of a job would find its labels, its vCPUs and its memory now, and of
    how many; each counted alone, without what policies would make room for."""
    open_to_it = [row for row in nodes if row["schedulable"] and not row["environment"]]
    fits = 0
    for row in open_to_it:
        labels = row["name"] not in job.rules.forbid and (not job.rules.pin or row["name"] in job.rules.pin)
        labels = labels and set(job.needs) <= set(row["labels"] or ())
        free_mib = row["memory"]["free_mib"] or 0.0
        fits += labels and (row["cores"] or 0) >= job.vcpus and free_mib >= (job.memory_mib if job.stages else 0)
    return fits, len(open_to_it)
