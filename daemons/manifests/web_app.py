"""A web application as a user writes it (examples/web.toml), and what Trimtab understands by it. Every problem is told
at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from daemons.manifests import serving as servingfile
from daemons.manifests.job import Argument, FewArguments, Group, JobName, Label, Mib, RulesTable, Seconds, Speed, Unlike
from daemons.manifests.serving import ProbeIsWhole, ProbeTable, ServingTable
from shared.base.errors import InvalidInput, Problem
from shared.config import toml
from shared.config.records import AtLeast, Form, Range
from shared.values.jobs import INSTANCES_MAX, Rules
from shared.values.web_app import FLOWS_MAX, Flow, ModelForm, WebApp

GOALS = ("mean_s", "percentile_s", "throughput_per_s")
GOAL_WORDS = "exactly one goal: mean_s, percentile_s with percentile, or throughput_per_s"

FITTED_WORDS = f"{ModelForm.SHIFTED_HYPERBOLA.value} with c_mhz_s, or another model without c_mhz_s and load_mhz"
FLOWS_WORDS = f"1 to {FLOWS_MAX} tables [[flows]], or none in an environment"

GoalSeconds = Annotated[float, Range(1e-6, 1e6)]
MetricsUrl = Annotated[str, Form(r"(https?://\S{1,2000})?", "a URL http://... or https://..., or nothing")]


@dataclass(frozen=True, slots=True)
class FlowTable:
    """A kind of request and its goal, see `shared.values.web_app.Flow`."""

    name: JobName
    mean_s: GoalSeconds | None = None
    percentile: Annotated[float, Range(0.001, 0.999999)] | None = None
    percentile_s: GoalSeconds | None = None
    throughput_per_s: Annotated[float, Range(1e-6, 1e12)] | None = None
    work_mcycles: Annotated[float, Range(1e-6, 1e15)] | None = None
    t_min_s: Seconds = 0.0
    model: ModelForm = ModelForm.PROCESSOR_SHARING
    c_mhz_s: Annotated[float, Range(1e-6, 1e15)] | None = None
    load_mhz: Annotated[float, Range(0, 1e15)] | None = None


@dataclass(frozen=True, slots=True)
class HasFlows:
    """There are flows, not too many, under names that differ; in an environment there may be none."""

    key: str = "flows"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        if "flows" not in values:
            return ""
        flows = values["flows"]
        if len(flows) > FLOWS_MAX:
            return FLOWS_WORDS
        differ = len({flow.name for flow in flows}) == len(flows)
        return "" if differ else "flows under names that differ"


@dataclass(frozen=True, slots=True)
class OneGoal:
    """Flow `index` has one goal, with all that belongs to it."""

    index: int

    @property
    def key(self) -> str:
        """Where a problem is said to be."""
        return f"flows[{self.index}].name"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so or something else is wrong with the flow."""
        keys = [f"flows[{self.index}].{name}" for name in (*GOALS, "percentile")]
        if self.key not in values or any(key not in values for key in keys):
            return ""
        *goals, percentile = (values[key] for key in keys)
        one = sum(goal is not None for goal in goals) == 1
        whole = (goals[1] is None) == (percentile is None)
        return "" if one and whole else GOAL_WORDS


@dataclass(frozen=True, slots=True)
class FittedModel:
    """Flow `index` has fitted figures if and only if its model is fitted."""

    index: int

    @property
    def key(self) -> str:
        """Where a problem is said to be."""
        return f"flows[{self.index}].model"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so or something else is wrong with the flow."""
        path = f"flows[{self.index}]"
        names = ("c_mhz_s", "load_mhz", "throughput_per_s")
        if self.key not in values or any(f"{path}.{name}" not in values for name in names):
            return ""
        fitted, load, throughput = (values[f"{path}.{name}"] for name in names)
        if values[self.key] is not ModelForm.SHIFTED_HYPERBOLA:
            return "" if fitted is None and load is None else FITTED_WORDS
        return FITTED_WORDS if fitted is None and throughput is None else ""


@dataclass(frozen=True, slots=True)
class WebFile:
    """A file for `trimtab web submit`. Memory, vcpus and max_mhz are of one instance. `metrics_url`: where
    measurements are scraped; empty: they are pushed, or the balancer measures. `environment`: the web environment that
    it is submitted to."""

    RULES: ClassVar[tuple[Any, ...]] = (
        HasFlows(),
        FewArguments(),
        ProbeIsWhole(),
        AtLeast("max_instances", "min_instances"),
        Unlike("rules.forbid", "rules.pin"),
        Unlike("rules.apart", "rules.together"),
        *(rule(index) for index in range(FLOWS_MAX) for rule in (OneGoal, FittedModel)),
    )

    name: JobName
    memory_mib: Mib
    max_mhz: Speed
    flows: tuple[FlowTable, ...] = ()
    min_instances: Annotated[int, Range(0, INSTANCES_MAX)] = 1
    max_instances: Annotated[int, Range(1, INSTANCES_MAX)] = 1
    vcpus: Annotated[int, Range(1, 4096)] = 1
    importance: Annotated[float, Range(0.001, 1e6)] = 1.0
    needs: tuple[Label, ...] = ()
    template: Annotated[str, Form(r"[^\0]{0,4096}", "at most 4096 characters")] = ""
    metrics_url: MetricsUrl = ""
    rules: RulesTable = field(default_factory=RulesTable)
    environment: Group = ""
    arguments: tuple[Argument, ...] = ()
    serving: ServingTable | None = None
    probe: ProbeTable | None = None


def read_web(path: Path, name: str = "", environment: str = "") -> WebApp:
    """The web application in a TOML file, under another name and in another environment where these are given.

    Raises `InvalidInput` with one problem for each thing that is wrong.
    """
    return checked(toml.load(path, WebFile), str(path), name, environment)


def checked(file: WebFile, where: str, name: str = "", environment: str = "") -> WebApp:
    """The web application that a file describes. Raises `InvalidInput` for one without flows that is in no
    environment."""
    if not file.flows and not (environment or file.environment):
        raise InvalidInput(Problem(f"{where}: flows", "is missing", FLOWS_WORDS))
    return web_of(file, name, environment)


def web_of(file: WebFile, name: str = "", environment: str = "") -> WebApp:
    """The web application that a file describes."""
    rules = file.rules
    return WebApp(
        name or file.name,
        tuple(_flow(table) for table in file.flows),
        file.memory_mib,
        max_mhz=file.max_mhz,
        min_instances=file.min_instances,
        max_instances=file.max_instances,
        vcpus=file.vcpus,
        importance=file.importance,
        needs=file.needs,
        template=file.template,
        metrics_url=file.metrics_url,
        rules=Rules(rules.pin, rules.forbid, rules.together, rules.apart, rules.keep),
        environment=environment or file.environment,
        arguments=file.arguments,
        serving=servingfile.serving_of(file.serving),
        probe=servingfile.probe_of(file.probe, file.serving),
    )


def _flow(table: FlowTable) -> Flow:
    return Flow(
        table.name,
        table.mean_s,
        table.percentile or 0.0,
        percentile_s=table.percentile_s,
        throughput_per_s=table.throughput_per_s,
        work_mcycles=table.work_mcycles,
        t_min_s=table.t_min_s,
        model=table.model,
        c_mhz_s=table.c_mhz_s,
        load_mhz=table.load_mhz,
    )


def understood(app: WebApp) -> dict[str, Any]:
    """A web application as it was understood, for people and for JSON."""
    rules = app.rules
    return {
        "name": app.name,
        "min_instances": app.min_instances,
        "max_instances": app.max_instances,
        "memory_mib": app.memory_mib,
        "vcpus": app.vcpus,
        "max_mhz": app.max_mhz,
        "importance": app.importance,
        "needs": list(app.needs),
        "template": app.template,
        "arguments": list(app.arguments),
        "metrics_url": app.metrics_url,
        "environment": app.environment,
        "serving": servingfile.understood(app.serving),
        "probe": servingfile.understood(app.probe),
        "rules": {
            "pin": list(rules.pin),
            "forbid": list(rules.forbid),
            "together": rules.together,
            "apart": rules.apart,
            "keep": rules.keep,
        },
        "flows": [
            {
                "name": flow.name,
                "goal": goal_text(flow),
                "mean_s": flow.mean_s,
                "percentile": flow.percentile or None,
                "percentile_s": flow.percentile_s,
                "throughput_per_s": flow.throughput_per_s,
                "work_mcycles": flow.work_mcycles,
                "t_min_s": flow.t_min_s,
                "model": flow.model.value,
                "c_mhz_s": flow.c_mhz_s,
                "load_mhz": flow.load_mhz,
            }
            for flow in app.flows
        ],
    }


def goal_text(flow: Flow) -> str:
    """The goal of a flow in words."""
    if flow.mean_s is not None:
        return f"answered within {flow.mean_s:g} s on average"
    if flow.percentile_s is not None:
        return f"{100 * flow.percentile:g} % answered within {flow.percentile_s:g} s"
    return f"{flow.throughput_per_s:g} requests answered a second"
