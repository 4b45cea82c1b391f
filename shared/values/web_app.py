"""Web applications: what a user writes of one, checked when made, and what is measured of it. No numpy here.

Units are in the names, as in `shared.values.jobs`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from shared.base.errors import InvalidValue
from shared.values.health import PORT_MAX, Probe
from shared.values.jobs import INSTANCES_MAX, Job, Rules, Stage, check_arguments, check_labels, instance_name
from shared.values.scalars import check_name, not_negative, positive, whole
from shared.values.texts import Prose, check_label, check_line

FLOWS_MAX = 100
QUEUE_MAX = 1_000_000


class ModelForm(StrEnum):
    """Registered forms of the response time of a web application against its CPU (docs/appendix/models.md)."""

    SHIFTED_HYPERBOLA = "shifted-hyperbola"  # t_min + c / (w - load)
    PROCESSOR_SHARING = "processor-sharing"  # t_min + d / (w - rate d)
    MULTI_SERVER = "multi-server"  # as many servers as vCPUs


@dataclass(frozen=True, slots=True)
class Flow:
    """A kind of request of a web application and its goal; exactly one of the three goals is given.

    mean_s: the mean response time. percentile and percentile_s: the share of requests (between 0 and 1) that must be
    answered within percentile_s. throughput_per_s: requests answered a second. work_mcycles: CPU work of one request
    (None: the work profiler estimates it). t_min_s: the part of the response time that more CPU does not shorten.
    c_mhz_s and load_mhz: the fitted figures of `shifted-hyperbola`: response time x MHz above the load (None: the work
    of a request), and the load that all flows of the application make (None: as measured).
    """

    name: str
    mean_s: float | None = None
    percentile: float = 0.0
    percentile_s: float | None = None
    throughput_per_s: float | None = None
    work_mcycles: float | None = None
    t_min_s: float = 0.0
    model: ModelForm = ModelForm.PROCESSOR_SHARING
    c_mhz_s: float | None = None
    load_mhz: float | None = None

    def __post_init__(self) -> None:
        check_name("name", self.name)
        goals = {
            "mean_s": self.mean_s,
            "percentile_s": self.percentile_s,
            "throughput_per_s": self.throughput_per_s,
        }
        given = {key: value for key, value in goals.items() if value is not None}
        if len(given) != 1:
            raise InvalidValue("goals", len(given), "exactly one of mean_s, percentile_s and throughput_per_s")
        for key, value in given.items():
            positive(key, value)
        if (self.percentile_s is None) != (self.percentile == 0.0) or not 0.0 <= self.percentile < 1.0:
            raise InvalidValue("percentile", self.percentile, "above 0 and below 1 beside percentile_s, else nothing")
        if self.work_mcycles is not None:
            positive("work_mcycles", self.work_mcycles)
        not_negative("t_min_s", self.t_min_s)
        if self.c_mhz_s is not None:
            positive("c_mhz_s", self.c_mhz_s)
        if self.load_mhz is not None:
            not_negative("load_mhz", self.load_mhz)


def with_goal(flow: Flow, goal: float) -> Flow:
    """Return the flow with another goal of the same kind: seconds, or requests a second. Raises `InvalidValue` unless
    it is above 0."""
    key = next(key for key in ("mean_s", "percentile_s", "throughput_per_s") if getattr(flow, key) is not None)
    return replace(flow, **{key: goal})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class FlowSample:
    """What was measured of a flow over `window_s` seconds: requests that arrived, were answered, were rejected, and are
    queued before the instances at its end; of those answered the mean response time (0 when there is none) and the
    one that `percentile` of the flow names (0: not measured)."""

    flow: str
    window_s: float
    offered: int = 0
    served: int = 0
    rejected: int = 0
    queued: int = 0
    mean_s: float = 0.0
    percentile_s: float = 0.0

    def __post_init__(self) -> None:
        check_label("flow", self.flow)
        positive("window_s", self.window_s)
        for key in ("offered", "served", "rejected", "queued"):
            whole(key, getattr(self, key), 0, 1 << 62)
        not_negative("mean_s", self.mean_s)
        not_negative("percentile_s", self.percentile_s)


class Distribution(StrEnum):
    """How a balancer chooses the instance that gets the next request."""

    LEAST_CONNECTIONS = "least-connections"  # the one with the fewest under way
    ROUND_ROBIN = "round-robin"
    SOURCE = "source"  # the same client always the same one, as long as there are the same
    WEIGHTED = "weighted"  # in turn, in proportion to the CPU that each has


@dataclass(frozen=True, slots=True)
class Serving:
    """How requests reach a web application through a balancer that Trimtab updates.

    port: on which every instance answers. listen: the balancer's own port for clients. distribution: None: the default
    of its environment's type, least connections if it has none. instance_max: requests that one instance works on at a
    time; more wait in the application's queue. queue_max: the queue limit; more are rejected; None: by the performance
    model, while there is one, else the balancer's defaults. queue_limit_s: the longest wait in the queue, after which a
    request is rejected.
    """

    port: int
    listen: int
    distribution: Distribution | None = None
    instance_max: int | None = None
    queue_max: int | None = None
    queue_limit_s: float = 10.0

    def __post_init__(self) -> None:
        whole("port", self.port, 1, PORT_MAX)
        whole("listen", self.listen, 1, PORT_MAX)
        for key in ("instance_max", "queue_max"):
            if getattr(self, key) is not None:
                whole(key, getattr(self, key), 1, QUEUE_MAX)
        positive("queue_limit_s", self.queue_limit_s)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many requests one instance works on at a time, and how many wait before all of them; None: not known."""

    instance_max: int | None = None
    queue_max: int | None = None


@dataclass(frozen=True, slots=True)
class WebApp:
    """A web application of `min_instances` to `max_instances` equal VMs, at most one on a node, behind a balancer.

    memory_mib, vcpus, max_mhz: of one instance. metrics_url: where its measurements are scraped ("": they are pushed).
    flows: empty: it has no goal, and CPU usage alone determines the number of instances. environment: the web
    environment that it is submitted to ("": none). serving: how requests reach it (None: Trimtab only updates the
    balancer's backends, and the rest is configured there). probe: how the health of its instances is checked (None: it
    is not). The rest as for a Job.
    """

    name: str
    flows: tuple[Flow, ...]
    memory_mib: int
    max_mhz: float
    min_instances: int = 1
    max_instances: int = 1
    vcpus: int = 1
    importance: float = 1.0
    required_labels: tuple[str, ...] = ()
    template: str = ""
    metrics_url: str = ""
    rules: Rules = field(default_factory=Rules)
    environment: str = ""
    arguments: tuple[Prose, ...] = ()
    serving: Serving | None = None
    probe: Probe | None = None

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_arguments(self.arguments)
        check_line("template", self.template)
        check_labels(self.required_labels, self.rules)
        whole("flows", len(self.flows), 0, FLOWS_MAX)
        if len({flow.name for flow in self.flows}) < len(self.flows):
            raise InvalidValue("flows", [flow.name for flow in self.flows], "names that differ")
        whole("memory_mib", self.memory_mib, 0, 1 << 40)
        positive("max_mhz", self.max_mhz)
        whole("max_instances", self.max_instances, 1, INSTANCES_MAX)
        whole("min_instances", self.min_instances, 0, self.max_instances)
        whole("vcpus", self.vcpus, 1, 4096)
        positive("importance", self.importance)
        check_line("metrics_url", self.metrics_url)
        if self.environment:
            check_name("environment", self.environment)

    def replica_job(self, index: int, submit_s: float) -> Job:
        """Instance `index` as a workload of its own: without work and goal, it runs until it is stopped."""
        return Job(
            instance_name(self.name, index),
            (Stage(0.0, self.max_mhz, 0.0, self.memory_mib),),
            submit_s,
            vcpus=self.vcpus,
            importance=self.importance,
            required_labels=self.required_labels,
            template=self.template,
            app=self.name,
            rules=self.rules,
            environment=self.environment,
            arguments=self.arguments,
        )
