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

ROWS = 3  # stages or flows in a form
FILES_MAX = 50

Row = Mapping[str, Any]

_RULES = Fieldset(
    "Placement rules",
    (
        Field("required_labels", "Required labels", "list", "Separated by commas."),
        Field("rules.node_affinity", "Node affinity: only these nodes", "list", "Separated by commas."),
        Field("rules.node_anti_affinity", "Node anti-affinity: never these nodes", "list", "Separated by commas."),
        Field("rules.affinity", "Affinity: same node as this group"),
        Field("rules.anti_affinity", "Anti-affinity: never on a node of this group"),
        Field("rules.label_affinity", "Label affinity: only with all of these", "list", "Separated by commas."),
        Field("rules.label_anti_affinity", "Label anti-affinity: not with these", "list", "Separated by commas."),
        Field("rules.affinity_scope", "Affinity: what is shared", help="node, or a label's key such as zone."),
        Field(
            "rules.anti_affinity_scope",
            "Anti-affinity: what is not shared",
            help="node, or a label's key such as rack.",
        ),
        Field("rules.vm_affinity", "Affinity: with these workloads", "list", "Separated by commas."),
        Field("rules.vm_anti_affinity", "Anti-affinity: never with these workloads", "list", "Separated by commas."),
        Field("rules.no_migration", "Migration disabled", "box"),
    ),
    folded=True,
)
_STARTED = Fieldset(
    "Template",
    (
        Field("template", "VM template", help="Empty: the node's default."),
        Field("arguments", "Arguments for the template's program", "lines", "One per line."),
    ),
    folded=True,
)


def _stage(index: int) -> tuple[Field, ...]:
    def key(name: str) -> str:
        return f"stages[{index}].{name}"

    which = f"Stage {index + 1}: "
    return (
        Field(key("work_mcycles"), f"{which}work per VM, Mcycles", "number"),
        Field(key("max_mhz"), f"{which}maximum CPU, MHz", "number"),
        Field(key("min_mhz"), f"{which}minimum CPU, MHz", "number"),
        Field(key("memory_mib"), f"{which}memory, MiB", "number"),
    )


def _flow(index: int) -> tuple[Field, ...]:
    def key(name: str) -> str:
        return f"flows[{index}].{name}"

    which = f"Flow {index + 1}: "
    return (
        Field(key("name"), f"{which}name"),
        Field(key("mean_s"), f"{which}goal: mean response time, seconds", "number"),
        Field(key("percentile"), f"{which}goal: percentile, such as 0.95", "number"),
        Field(key("percentile_s"), f"{which}goal: response time at the percentile, seconds", "number"),
        Field(key("throughput_per_s"), f"{which}goal: throughput, requests per second", "number"),
        Field(
            key("work_mcycles"), f"{which}work per request, Mcycles", "number", "Empty: estimated from measurements."
        ),
    )


JOB = (
    Fieldset(
        "Job",
        (
            Field("name", "Name", required=True),
            Field("environment", "Environment", "environment"),
            Field("instances", "Number of VMs", "number", default="1"),
            Field("vcpus", "vCPUs per VM", "number", default="1"),
            Field("class", "Job class", help="With a class you can leave out the stages."),
        ),
    ),
    Fieldset("Work", _stage(0)),
    *(Fieldset(f"Stage {index + 1}", _stage(index), folded=True) for index in range(1, ROWS)),
    Fieldset(
        "Goal: one of these, or none (best effort)",
        (
            Field("goal.within_s", "Complete within (seconds from now)", "number"),
            Field("goal.at", "Complete at", help="2030-01-31T12:00:00Z"),
            Field("goal.factor", "Complete within a multiple of the shortest run time", "number"),
            Field("importance", "Importance relative to other jobs", "number", default="1.0"),
        ),
    ),
    Fieldset(
        "Start",
        (
            Field("start.after_s", "Not before (seconds from now)", "number"),
            Field("start.at", "Not before", help="2030-01-31T12:00:00Z"),
            Field("depends_on", "Depends on these jobs", "list", "Separated by commas."),
            Field("queue", "Queue of a deadline window"),
        ),
        folded=True,
    ),
    _STARTED,
    Fieldset(
        _RULES.title, (*_RULES.fields, Field("spread", "Spread: each VM on a different node", "box")), folded=True
    ),
    Fieldset(
        "More",
        (Field("checkpoint_mcycles", "Work between checkpoints of the guest, Mcycles", "number"),),
        folded=True,
    ),
)

WEB = (
    Fieldset(
        "Application",
        (
            Field("name", "Name", required=True),
            Field("environment", "Environment", "environment"),
            Field("memory_mib", "Memory per instance, MiB", "number", required=True),
            Field("vcpus", "vCPUs per instance", "number", default="1"),
            Field("max_mhz", "Maximum CPU per instance, MHz", "number", required=True),
            Field("min_instances", "Minimum instances", "number", default="1"),
            Field("max_instances", "Maximum instances", "number", default="1"),
            Field("importance", "Importance relative to other workloads", "number", default="1.0"),
            Field("metrics_url", "URL of its metrics", help="Empty: the load balancer measures."),
        ),
    ),
    Fieldset("Flow: requests with one goal", _flow(0)),
    *(Fieldset(f"Flow {index + 1}", _flow(index), folded=True) for index in range(1, ROWS)),
    _STARTED,
    _RULES,
    Fieldset(
        "Load balancer",
        (
            Field("serving.port", "Port of the instances", "number"),
            Field("serving.listen", "Port of the load balancer", "number"),
            Field("serving.queue_max", "Queue limit, requests", "number"),
            Field("serving.queue_limit_s", "Maximum time in the queue, seconds", "number"),
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
    """Return the submission that the fields describe, or all their problems at once."""
    try:
        return kind.of_form(values, now_s), binding.NOTHING
    except InvalidInput as error:
        return None, binding.beside(kind.groups, values, error)
    except InvalidValue as error:
        return None, Wrong({}, [str(error)])


def from_files(
    kind: SubmissionKind, files: Sequence[tuple[str, str]], now_s: float
) -> tuple[list[tuple[str, Job | WebApp]], list[Problem]]:
    """Return the submissions in files, each by name and text, and all their problems. One text may hold several,
    separated by lines of `---`."""
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
    """Return on how many nodes that take VMs one instance of a job would find its labels, vCPUs and memory now, and the
    number of these nodes. Each node is counted alone, without capacity that policies would free."""
    open_to_it = [row for row in nodes if row["schedulable"] and not row["environment"]]
    fits = 0
    for row in open_to_it:
        labels = row["name"] not in job.rules.node_anti_affinity and (
            not job.rules.node_affinity or row["name"] in job.rules.node_affinity
        )
        has = set(row["labels"] or ())
        labels = labels and {*job.required_labels, *job.rules.label_affinity} <= has
        labels = labels and has.isdisjoint(job.rules.label_anti_affinity)
        free_mib = row["memory"]["free_mib"] or 0.0
        fits += labels and (row["cores"] or 0) >= job.vcpus and free_mib >= (job.memory_mib if job.stages else 0)
    return fits, len(open_to_it)
