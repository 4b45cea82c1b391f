"""A web application as a user writes it (examples/web.toml), and how Trimtab understands it. Every problem is reported
at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from daemons.manifests import rules as rulesfile
from daemons.manifests import serving as servingfile
from daemons.manifests.job import Argument, FewArguments, JobName, Mib, Seconds, Speed
from daemons.manifests.rules import Group, Label, RulesTable
from daemons.manifests.serving import ProbeIsWhole, ProbeTable, ServingTable
from shared.base.errors import InvalidInput, Problem
from shared.config import toml
from shared.config.records import AtLeast, Form, Range
from shared.values.jobs import INSTANCES_MAX
from shared.values.web_app import FLOWS_MAX, Flow, ModelForm, WebApp

GOALS = ("mean_s", "percentile_s", "throughput_per_s")
GOAL_WORDS = "exactly one goal: mean_s, percentile_s with percentile, or throughput_per_s"

FITTED_WORDS = f"{ModelForm.SHIFTED_HYPERBOLA.value} with c_mhz_s, or another model without c_mhz_s and load_mhz"
FLOWS_WORDS = f"1 to {FLOWS_MAX} tables [[flows]], or none in an environment"

GoalSeconds = Annotated[float, Range(1e-6, 1e6)]
MetricsUrl = Annotated[str, Form(r"(https?://\S{1,2000})?", "a URL http://... or https://..., or nothing")]


@dataclass(frozen=True, slots=True)
class FlowTable:
    """A kind of request and its goal."""

    name: JobName
    """Name of the flow, as the measurements use it. Example: `"browse"`."""
    mean_s: GoalSeconds | None = None
    """Goal: mean response time. Example: `0.25`."""
    percentile: Annotated[float, Range(0.001, 0.999999)] | None = None
    """Part of the requests that should be answered within `percentile_s`. Example: `0.95`."""
    percentile_s: GoalSeconds | None = None
    """Goal: response time within which that part of the requests is answered. Example: `1`."""
    throughput_per_s: Annotated[float, Range(1e-6, 1e12)] | None = None
    """Goal: requests answered per second. Example: `40`."""
    work_mcycles: Annotated[float, Range(1e-6, 1e15)] | None = None
    """CPU work of one request. Left out: estimated from measurements. Example: `60`."""
    t_min_s: Seconds = 0.0
    """Part of the response time that more CPU does not shorten."""
    model: ModelForm = ModelForm.PROCESSOR_SHARING
    """Model of the response time as a function of CPU."""
    c_mhz_s: Annotated[float, Range(1e-6, 1e15)] | None = None
    """Fitted constant of `shifted-hyperbola`: the response time beyond `t_min_s`, times the CPU above the load.
    Example: `1500`."""
    load_mhz: Annotated[float, Range(0, 1e15)] | None = None
    """Fitted load of the whole application, for `shifted-hyperbola`. Left out: as it is measured. Example: `4000`."""


@dataclass(frozen=True, slots=True)
class HasFlows:
    """A web application has 1 to 100 tables `[[flows]]` with different names. In an environment it may have none."""

    key: str = "flows"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        if "flows" not in values:
            return ""
        flows = values["flows"]
        if len(flows) > FLOWS_MAX:
            return FLOWS_WORDS
        differ = len({flow.name for flow in flows}) == len(flows)
        return "" if differ else "flows under names that differ"


@dataclass(frozen=True, slots=True)
class OneGoal:
    """Each flow has exactly one goal: `mean_s`, `percentile_s` with `percentile`, or `throughput_per_s`."""

    index: int

    @property
    def key(self) -> str:
        """Where a problem is said to be."""
        return f"flows[{self.index}].name"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds or something else is wrong with the flow."""
        keys = [f"flows[{self.index}].{name}" for name in (*GOALS, "percentile")]
        if self.key not in values or any(key not in values for key in keys):
            return ""
        *goals, percentile = (values[key] for key in keys)
        one = sum(goal is not None for goal in goals) == 1
        whole = (goals[1] is None) == (percentile is None)
        return "" if one and whole else GOAL_WORDS


@dataclass(frozen=True, slots=True)
class FittedModel:
    """`c_mhz_s` and `load_mhz` belong to the model `shifted-hyperbola`. It needs `c_mhz_s`, unless the goal is a
    throughput."""

    index: int

    @property
    def key(self) -> str:
        """Where a problem is said to be."""
        return f"flows[{self.index}].model"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds or something else is wrong with the flow."""
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
    """A web application for `trimtab web submit`. Submitted again under its name, the file changes the application."""

    RULES: ClassVar[tuple[Any, ...]] = (
        HasFlows(),
        FewArguments(),
        ProbeIsWhole(),
        AtLeast("max_instances", "min_instances"),
        *rulesfile.RULES,
        rulesfile.LABEL_RULE,
        *(rule(index) for index in range(FLOWS_MAX) for rule in (OneGoal, FittedModel)),
    )

    name: JobName
    """Name of the web application. No job may have it. Example: `"shop"`."""
    memory_mib: Mib
    """Memory of one instance. Example: `2048`."""
    max_mhz: Speed
    """Most CPU that one instance can use. Example: `15600`."""
    flows: tuple[FlowTable, ...] = ()
    min_instances: Annotated[int, Range(0, INSTANCES_MAX)] = 1
    """Fewest instances that run."""
    max_instances: Annotated[int, Range(1, INSTANCES_MAX)] = 1
    """Most instances that run. At most one runs on a node."""
    vcpus: Annotated[int, Range(1, 4096)] = 1
    """Virtual CPUs of one instance."""
    importance: Annotated[float, Range(0.001, 1e6)] = 1.0
    """Weight against other workloads when CPU is short."""
    required_labels: tuple[Label, ...] = ()
    """Labels that the application's nodes must have."""
    template: Annotated[str, Form(r"[^\0]{0,4096}", "at most 4096 characters")] = ""
    """Name of the VM template. Empty: the default of the hypervisor driver."""
    metrics_url: MetricsUrl = ""
    """URL from which measurements are fetched. Empty: they are pushed, or the load balancer measures."""
    rules: RulesTable = field(default_factory=RulesTable)
    environment: Group = ""
    """Web environment in which the application runs. Empty: none."""
    arguments: tuple[Argument, ...] = ()
    """Arguments for the template: values of `{argument.0}` and so on, or arguments of its program."""
    serving: ServingTable | None = None
    probe: ProbeTable | None = None


def read_web(path: Path, name: str = "", environment: str = "") -> WebApp:
    """Read the web application in a TOML file, with another name and environment if these are given.

    Raises `InvalidInput` with one problem for each thing that is wrong.
    """
    return checked(toml.load(path, WebFile), str(path), name, environment)


def checked(file: WebFile, where: str, name: str = "", environment: str = "") -> WebApp:
    """Return the web application that a file describes. Raises `InvalidInput` for one without flows that is in no
    environment."""
    if not file.flows and not (environment or file.environment):
        raise InvalidInput(Problem(f"{where}: flows", "is missing", FLOWS_WORDS))
    return web_of(file, name, environment)


def web_of(file: WebFile, name: str = "", environment: str = "") -> WebApp:
    """Return the web application that a file describes."""
    return WebApp(
        name or file.name,
        tuple(_flow(table) for table in file.flows),
        file.memory_mib,
        max_mhz=file.max_mhz,
        min_instances=file.min_instances,
        max_instances=file.max_instances,
        vcpus=file.vcpus,
        importance=file.importance,
        required_labels=file.required_labels,
        template=file.template,
        metrics_url=file.metrics_url,
        rules=rulesfile.rules_of(file.rules),
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
    """Return a web application as it was understood, for people and for JSON."""
    return {
        "name": app.name,
        "min_instances": app.min_instances,
        "max_instances": app.max_instances,
        "memory_mib": app.memory_mib,
        "vcpus": app.vcpus,
        "max_mhz": app.max_mhz,
        "importance": app.importance,
        "required_labels": list(app.required_labels),
        "template": app.template,
        "arguments": list(app.arguments),
        "metrics_url": app.metrics_url,
        "environment": app.environment,
        "serving": servingfile.understood(app.serving),
        "probe": servingfile.understood(app.probe),
        "rules": rulesfile.understood(app.rules),
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
    """Return the goal of a flow in words."""
    if flow.mean_s is not None:
        return f"answered within {flow.mean_s:g} s on average"
    if flow.percentile_s is not None:
        return f"{100 * flow.percentile:g} % answered within {flow.percentile_s:g} s"
    return f"{flow.throughput_per_s:g} requests answered a second"
