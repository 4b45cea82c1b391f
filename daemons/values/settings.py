"""Settings that the controller's core gets once at its start; `daemons.service.main` builds them from the configuration
file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar, cast

from daemons.values.calendar import DailyPeriods
from shared.policy_api.admission import SurplusUse
from shared.values.nodes import PowerOperation, SleepMode
from shared.values.operation_costs import COSTS, OperationCosts


class Automation(StrEnum):
    """How far a cycle decision is carried out automatically."""

    ADVISE = "advise"  # recorded, never carried out
    CONFIRM = "confirm"  # waits for an operator's approval
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Limits:
    """Maximum numbers of concurrent actions, and of jobs of one account; 0 means no limit.

    A migration counts on both of its nodes. jobs_per_account: jobs of a user or an owner that are not over.
    """

    actions_per_node: int = 8
    migrations_per_node: int = 1
    actions_total: int = 512
    migrations_total: int = 16
    jobs_per_account: int = 5_000
    apps_per_environment: int = 500
    environments_per_owner: int = 100


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy of a role by name, with its parameters."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Draw:
    """Watts that a node draws: without load, at full CPU, asleep or off; `curve_w` at evenly spaced loads from none to
    full goes before the first two (empty: a line)."""

    idle_w: float = 100.0
    peak_w: float = 200.0
    off_w: float = 5.0
    curve_w: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class PowerSettings:
    """How nodes leave service and power and come back.

    driver: the name that durations are learnt by; does: what it can be asked for. through_agents: nodes go to sleep
    through their agents, in the way `sleep`. needs_mac: it wakes only nodes whose hardware address is known. standby_s:
    out of service for so long, a node is put to sleep. wake_limit_s: not back by then, it has failed. drain_limit_s:
    not empty by then, it returns to service. keep_nodes: so many are always in service. never: names of those that
    must not leave it. deploy_s, remove_s: taken for true until measured. wakes_per_minute, sleeps_per_minute: at most.
    wake_test_days: a sleeping node is woken once in so many (0: never). draws: by node type, "default" for the others.
    """

    driver: str = "none"
    does: frozenset[PowerOperation] = frozenset()
    through_agents: bool = False
    sleep: SleepMode = SleepMode.SUSPEND
    needs_mac: bool = False
    standby_s: float = 300.0
    deploy_s: float = 25.0
    remove_s: float = 30.0
    wake_limit_s: float = 600.0
    drain_limit_s: float = 3_600.0
    keep_nodes: int = 1
    never: frozenset[str] = frozenset()
    wakes_per_minute: int = 10
    sleeps_per_minute: int = 10
    wake_test_days: float = 7.0
    draws: Mapping[str, Draw] = field(default_factory=dict)

    @property
    def can_sleep(self) -> bool:
        """Nodes can be put to sleep, and woken again."""
        sleeps = self.through_agents or PowerOperation.SLEEP in self.does
        return sleeps and PowerOperation.WAKE in self.does

    def draw_of(self, node_type: str) -> Draw:
        """Return the power that a node of the type draws."""
        return self.draws.get(node_type) or self.draws.get("default") or Draw()


@dataclass(frozen=True, slots=True)
class PriceSettings:
    """The price of energy. per_kwh: average over the day, with a shape of the thesis, of which `ratio` is highest over
    lowest; "series": as `ReadPrices` returns, every read_every_s. `timezone`: of the time of day. per_utility: the
    value of an hour of a web application at a utility lower by one (0: not counted)."""

    shape: str = "uniform"
    per_kwh: float = 0.30
    ratio: float = 3.0
    currency: str = "EUR"
    timezone: str = "UTC"
    read_every_s: float = 900.0
    per_utility: float = 0.0


@dataclass(frozen=True, slots=True)
class BalancerSettings:
    """How web applications' load balancer is kept up to date. driver: "none": nothing updates it. An instance is not
    stopped before its requests are done, or drain_limit_s have passed. retry_s, retry_max_s: back-off after a failure,
    doubling. poll_s: interval of checks whether one is drained. resend_s: interval at which the backends of each
    application are sent again without a change (0: never). measures: it can measure requests."""

    driver: str = "none"
    drain_limit_s: float = 60.0
    poll_s: float = 5.0
    retry_s: float = 5.0
    retry_max_s: float = 30.0
    resend_s: float = 5.0
    measures: bool = False

    @property
    def tells(self) -> bool:
        """Whether there is a balancer to update."""
        return self.driver != "none"


class ServiceModel(StrEnum):
    """What the service times of a window's jobs are taken for."""

    AUTO = "auto"  # phases where the data speak against an exponential
    EXPONENTIAL = "exponential"
    PHASES = "phases"


class Removal(StrEnum):
    """What becomes of a window's running jobs where a node leaves service."""

    CHECKPOINT = "checkpoint"  # they are moved, or suspended to disk
    WAIT = "wait"  # the node stays until they are done
    LOSE = "lose"  # they begin anew from what they have saved themselves


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """A deadline that the jobs of a queue share.

    confidence: least probability that all are done by it; penalty: of each that is not, in the currency of the prices;
    weight: against other windows when nodes are short. nodes_min, nodes_max: in reference nodes. jobs_per_node: how
    many a node executes at a time (0: as many as fit). service_s, arrivals_per_day: taken for true until measured.
    service: what service times are taken for.
    """

    name: str
    queue: str
    periods: DailyPeriods
    confidence: float = 0.9999
    penalty: float = 0.0
    weight: float = 1.0
    nodes_min: int = 1
    nodes_max: int = 10_000
    jobs_per_node: int = 0
    service_s: float = 1_200.0
    arrivals_per_day: float = 0.0
    removal: Removal = Removal.CHECKPOINT
    analyser: PolicyChoice = PolicyChoice("batch-deadline")
    service: ServiceModel = ServiceModel.AUTO


@dataclass(frozen=True, slots=True)
class MigrationSettings:
    """How VMs are migrated. link_mib_per_s: what the link of a node carries (0: as measured). streams: connections of
    one migration at most; stream_mib_per_s: what one of them carries. post_copy: every migration may switch to
    post-copy."""

    link_mib_per_s: float = 0.0
    streams: int = 1
    stream_mib_per_s: float = 1_200.0
    post_copy: bool = False


@dataclass(frozen=True, slots=True)
class InterferenceSettings:
    """How jobs slow each other down by sharing disks and networks. learn: profiles are learnt from what agents report.
    decisions: placement counts with what is known, by `model` ("formula", "product-form", "auto"). observations_min,
    half_width_max: what was measured counts from so many observations on, known as surely as that (95 %), as a part of
    a job's time alone. network_mbit_per_s: of a node's link (0: not known, networks do not count)."""

    learn: bool = True
    decisions: bool = True
    model: str = "auto"
    observations_min: int = 3
    half_width_max: float = 0.25
    network_mbit_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AssuranceSettings:
    """What goes with admission. police: requests for units are held to what was reserved; surplus: what becomes of the
    rest. headroom: standard deviations of use that are entitled beyond the mean; horizontal: widths of sliding windows
    in slots. timezone: of environments without a reservation."""

    police: bool = True
    surplus: SurplusUse = SurplusUse.BEST_EFFORT
    headroom: float = 2.25
    horizontal: tuple[int, ...] = (4,)
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From one local time of day to another, in seconds after midnight, by the clock of `zone`."""

    from_s: int
    until_s: int
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class NotifyRule:
    """Which notices go over which channels. events: codes of events, and of alarms after `alarm:`, with `*` and `?`;
    subjects: the same for their subjects (empty: everything). at_least_every_s: a lasting alarm is repeated at this
    interval (0: never). digest_s: collection time of a message. deduplicate_s: about the same subject, at most one
    message in this time."""

    events: tuple[str, ...]
    channels: tuple[str, ...]
    subjects: tuple[str, ...] = ()
    at_least_every_s: float = 0.0
    digest_s: float = 0.0
    deduplicate_s: float = 300.0
    quiet: QuietHours | None = None


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """Who receives which notifications. channels: their kinds by name. A message is given up after `attempts_max`
    attempts, or when one fails more than `give_up_s` after it was written. waiting_max: notifications that may wait for
    a channel. cluster: the name of the cluster in messages."""

    channels: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[NotifyRule, ...] = ()
    attempts_max: int = 100
    give_up_s: float = 86_400.0
    waiting_max: int = 1_000
    cluster: str = "trimtab"

    @property
    def watches_alarms(self) -> bool:
        """Some rule is about alarms."""
        return any(event.startswith("alarm:") for rule in self.rules for event in rule.events)


@dataclass(frozen=True, slots=True)
class WebPlanning:
    """CPU for web applications beyond their current use. A decision plans for the quantile `headroom_quantile` (0.5 to
    below 1) of the load within `horizon_s`, for less where jobs have a lower utility, and for clearing the backlog
    within `work_off_s`. An instance can use `usable_frac` (0..1) of its CPU before requests pile up. `known_mhz`: the
    load in MHz of an application over that time from a moment on, if it is known (an oracle to compare decisions
    with)."""

    headroom_quantile: float = 0.9
    horizon_s: float = 60.0
    work_off_s: float = 10.0
    usable_frac: float = 0.98
    known_mhz: Callable[[str, float], float] | None = None


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Periods and limits of the controller, all in seconds unless named otherwise.

    report_s: the agents' report period. unreachable_after_s: a node without a report for that long is unknown.
    fence_after_s: a node without a report for that long is fenced through its power driver (None: no power driver, an
    operator must confirm). max_skew_s: a node whose clock is further off gets no actions. gang_timeout_s: a job of
    which not all instances are prepared by then is requeued, once no operation on it is in progress.
    operation_timeout_s: an action without an answer this long after its latest start is an alarm. retry_s, retry_max_s:
    back-off after a failed operation, doubling. arrival_grace_s: how long after a migration a report from the target
    that the VM is not there is ignored. scrape_s: how often web applications with counters are read.
    external_change_pause_s: how long reconciliation of a workload is paused after somebody else moved, stopped,
    started, paused or resumed a VM of it; doubles with each repetition, up to a day. setup_tries: how often a setup of
    a node is attempted before an operator must intervene. approvals: number of accounts that must approve a waiting
    plan (1 to 5). record_snapshots: keep the input of each decision. operation_costs: the costs of operations on VMs
    that policies assume; learn_costs: they are only a prior, which measured times correct. power: how nodes leave
    service and return. windows: deadlines that queues of jobs share. prices: of energy. interference: how jobs slow
    each other down. spare_nodes: of how many nodes the VMs with failover could restart on others (0: no memory is kept
    free for that). lease_witnesses: how many nodes must report a storage lease as expired until it is proof (0: it
    never is).
    """

    report_s: float = 5.0
    reconcile_s: float = 5.0
    decide_s: float = 900.0
    decide_limit_s: float = 60.0
    unreachable_after_s: float = 15.0
    fence_after_s: float | None = None
    max_skew_s: float = 2.0
    probe_s: float = 2.0
    gang_timeout_s: float = 120.0
    action_ttl_s: float = 60.0
    operation_timeout_s: float = 600.0
    setup_tries: int = 3
    arrival_grace_s: float = 10.0
    retry_s: float = 15.0
    retry_max_s: float = 900.0
    stall_after_s: float = 900.0
    external_change_pause_s: float = 900.0
    scrape_s: float = 5.0
    automation: Automation = Automation.AUTO
    hold_starts: bool = False
    approvals: int = 1
    vm_overhead_mib: float = 0.0
    operation_costs: OperationCosts = COSTS["paper"]
    learn_costs: bool = True
    limits: Limits = Limits()
    placement: PolicyChoice = PolicyChoice("apc")
    provisioning: PolicyChoice = PolicyChoice("static")
    power: PowerSettings = field(default_factory=PowerSettings)
    windows: tuple[WindowSettings, ...] = ()
    prices: PriceSettings = PriceSettings()
    web_adjust_s: float = 20.0
    web_planning: WebPlanning = WebPlanning()
    balancer: BalancerSettings = BalancerSettings()
    admission: PolicyChoice | None = None
    assurance: AssuranceSettings = AssuranceSettings()
    interference: InterferenceSettings = InterferenceSettings()
    migration: MigrationSettings = MigrationSettings()
    spare_nodes: int = 1
    lease_witnesses: int = 2
    record_snapshots: bool = False
    notify: NotifySettings = field(default_factory=NotifySettings)


K = TypeVar("K")


def from_keys(kind: type[K], *tables: object, **other: Any) -> K:
    """Return settings of a kind: each field is `other`'s, else the key of that name in the first table that has one,
    else its default."""
    found = dict(other)
    for each in fields(cast(Any, kind)):
        table = next((table for table in tables if hasattr(table, each.name)), None)
        if each.name not in found and table is not None:
            found[each.name] = getattr(table, each.name)
    return kind(**found)
