"""What the controller's configuration file may say, and what the files of all daemons have in common: every key with
its unit, range and default (architecture, The loop).

`load(path, ControllerConfig)` reads a file; see `shared.config.toml`. Units are in the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from daemons.config.notify import NotifyKeys
from daemons.values.settings import Automation, Removal
from shared.config.common import (
    Bus,
    Command,
    Count,
    Days,
    Duration,
    FilePath,
    Hour,
    Log,
    Metrics,
    Mib,
    Money,
    Name,
    Period,
    Quota,
    Registered,
    SecretFile,
    StoreUrl,
    Watts,
    Zone,
)
from shared.config.records import Above, AtLeast, Form, Range, Rule
from shared.policy_api.admission import SurplusUse
from shared.values.nodes import SleepMode
from shared.values.operation_costs import COSTS

# --- the controller ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Periods:
    """How often things happen. `report_s` is what the agents are set to."""

    report_s: Period = 5.0
    reconcile_s: Period = 5.0
    web_adjust_s: Period = 20.0
    decide_s: Period = 900.0
    probe_s: Period = 2.0
    scrape_s: Period = 5.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long things may take before something is done about it.

    `silent_after_s` without a report a node is unknown, `fence_after_s` of silence it is fenced where that can be done.
    `max_skew_s`: beyond this difference of clocks nothing is done on a node. `gang_timeout_s` for all instances of a
    job to be prepared, `action_ttl_s` for an action to be begun, `operation_timeout_s` to be done; a job without
    progress for `stall_after_s` raises an alarm; `decide_limit_s` for one decision. `hands_off_s` a
    workload is left alone after somebody else moved, stopped, started, paused or resumed a VM of it, twice as long each
    time that it happens again.
    """

    silent_after_s: Duration = 15.0
    fence_after_s: Duration = 60.0
    max_skew_s: Period = 2.0
    gang_timeout_s: Duration = 120.0
    action_ttl_s: Duration = 60.0
    operation_timeout_s: Duration = 600.0
    stall_after_s: Duration = 900.0
    decide_limit_s: Duration = 60.0
    hands_off_s: Duration = 900.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How many operations may be under way at one time, on a node and in the cluster; and how many jobs that are not
    over an account may have, web applications an environment, environments an owner (0: no limit)."""

    actions_per_node: Count = 8
    migrations_per_node: Count = 1
    actions_total: Count = 512
    migrations_total: Count = 16
    jobs_per_account: Quota = 5_000
    apps_per_environment: Quota = 500
    environments_per_owner: Quota = 100


@dataclass(frozen=True, slots=True)
class Web:
    """What CPU web applications get beyond what they use now: the quantile `headroom_quantile` of their load within
    `horizon_s` is planned for, less where jobs are worse off than they are; what waits is to be worked off within
    `work_off_s`. An instance can use `usable_frac` of its CPU before requests pile up."""

    headroom_quantile: Annotated[float, Range(0.5, 0.999)] = 0.9
    horizon_s: Period = 60.0
    work_off_s: Period = 10.0
    usable_frac: Annotated[float, Range(0.1, 1.0)] = 0.98


@dataclass(frozen=True, slots=True)
class Deciding:
    """How far decisions go by themselves. `hold_starts`: even a submitted job's start is held back as they are.
    `approvals`: so many accounts must approve a plan at the level `confirm`."""

    level: Automation = Automation.ADVISE
    hold_starts: bool = False
    approvals: Annotated[int, Range(1, 5)] = 1


@dataclass(frozen=True, slots=True)
class Policies:
    """The policy of each role, and tables of parameters by policy name: [policies.params.NAME]. `admission` "none":
    whoever asks is let in."""

    placement: Registered = "apc"
    provisioning: Registered = "static"
    admission: Registered = "none"
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Weekday(StrEnum):
    """A day of the week."""

    MON, TUE, WED, THU, FRI, SAT, SUN = "mon", "tue", "wed", "thu", "fri", "sat", "sun"


class PriceShape(StrEnum):
    """How the price of energy goes over the day."""

    UNIFORM = "uniform"
    INCREASING = "increasing"
    DECREASING = "decreasing"
    QUADRATIC_1 = "quadratic-1"  # low in the middle of the day
    QUADRATIC_2 = "quadratic-2"  # high in the middle
    SERIES = "series"  # from a file


@dataclass(frozen=True, slots=True)
class Window:
    """A deadline that the jobs of a queue share (empty: the queue is named as the window). Jobs are submitted from
    `submit_from` until `submit_until` and are to be done by `deadline`, all by local time; a time of day that is not
    after the one before it is meant on the next day. It opens on `days`. `confidence`: that all are done by then.

    `penalty` for each job that is not, in the currency of the prices; `weight` against other windows when nodes are
    short. `jobs_per_node`: how many sizes count on a node to execute at a time (0: as many as fit). `service_s` and
    `arrivals_per_day`: what is taken as true until enough was measured.
    """

    submit_from: Hour
    submit_until: Hour
    deadline: Hour
    timezone: Zone
    queue: Name = ""
    days: tuple[Weekday, ...] = tuple(Weekday)
    confidence: Annotated[float, Range(0.5, 0.999999999)] = 0.9999
    penalty: Money = 0.0
    weight: Annotated[float, Range(1e-6, 1e6)] = 1.0
    nodes_min: Annotated[int, Range(1, 10_000)] = 1
    nodes_max: Annotated[int, Range(1, 10_000)] = 10_000
    jobs_per_node: Annotated[int, Range(0, 10_000)] = 0
    service_s: Duration = 1_200.0
    arrivals_per_day: Annotated[float, Range(0, 10_000_000)] = 0.0
    removal: Removal = Removal.CHECKPOINT
    analyser: Registered = "batch-deadline"
    analyser_params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prices:
    """What energy costs per kWh, on the average over the day where it has a shape, `ratio` being highest over lowest.

    Of a series, `file` is a CSV with the begin of each period in its first column, by the clock of the time zone, and
    the price in `column`, times `factor` (0.001 where the file gives it per MWh). `per_utility`: what an hour of a web
    application at a utility lower by one is worth, for what taking a node costs besides (0: not counted).
    """

    shape: PriceShape = PriceShape.UNIFORM
    per_kwh: Annotated[float, Range(-1e6, 1e6)] = 0.30
    ratio: Annotated[float, Range(1, 1000)] = 3.0
    currency: Annotated[str, Form(r"\S{1,16}", "a currency, say EUR")] = "EUR"
    timezone: Zone = "UTC"
    file: Annotated[str, Form(r"(/[^\0]+)?", "an absolute path")] = ""
    column: Annotated[str, Form(r"[^\0]{1,128}", "the title of a column")] = "price"
    factor: Annotated[float, Range(1e-9, 1e9)] = 1.0
    read_every_s: Duration = 900.0
    per_utility: Money = 0.0


@dataclass(frozen=True, slots=True)
class PowerDraw:
    """What a node draws: without load, at full CPU, asleep or off. `curve_w`: at evenly spaced loads from none to full,
    goes before the first two."""

    idle_w: Watts = 100.0
    peak_w: Watts = 200.0
    off_w: Watts = 5.0
    curve_w: tuple[Watts, ...] = ()


@dataclass(frozen=True, slots=True)
class PowerExec:
    """The programs of the power driver `exec` with their arguments; `{node}` in them is the node's name, `{mac}` its
    first hardware address. Exit status 0: done. Empty: it does not do that."""

    wake: Command = ()
    sleep: Command = ()
    fence: Command = ()
    link: Command = ()
    delink: Command = ()
    limit_s: Duration = 60.0


@dataclass(frozen=True, slots=True)
class PowerKeys:
    """How nodes leave power and come back. `sleep`: how, where the agents see to it. A node that has been out of
    service for `standby_s` is put to sleep; one that is not back after `wake_limit_s` has failed, one that is not empty
    after `drain_limit_s` returns to service. `keep_nodes` are always in service, `never` those that must not leave it
    (that of the broker, say). `deploy_s`, `remove_s`: how long that takes, until it was measured. At most so many are
    woken or put to sleep in a minute; every sleeping node is woken once in `wake_test_days` to see that it can be (0:
    never). `broadcast`: where wake-on-LAN packets go. `draw`: by node type; "default" for every other.
    """

    driver: Registered = "none"
    sleep: SleepMode = SleepMode.SUSPEND
    standby_s: Annotated[float, Range(0, 604_800)] = 300.0
    deploy_s: Annotated[float, Range(0, 86_400)] = 25.0
    remove_s: Annotated[float, Range(0, 86_400)] = 30.0
    wake_limit_s: Duration = 600.0
    drain_limit_s: Duration = 3_600.0
    keep_nodes: Annotated[int, Range(0, 100_000)] = 1
    never: tuple[Name, ...] = ()
    wakes_per_minute: Count = 10
    sleeps_per_minute: Count = 10
    wake_test_days: Days = 7.0
    broadcast: Annotated[str, Form(r"[0-9a-fA-F.:]{1,64}(:[0-9]{1,5})?", "an address, or address:port")] = (
        "255.255.255.255:9"
    )
    exec: PowerExec = field(default_factory=PowerExec)
    draw: Mapping[str, PowerDraw] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Handing:
    """Nodes that change hands: how often a setup is tried before an operator must see to it."""

    tries: Annotated[int, Range(1, 100)] = 3


@dataclass(frozen=True, slots=True)
class BalancerExec:
    """The program of the balancer driver `exec` with its arguments; `{app}` in them is the application's name, `{file}`
    a file with its instances in JSON. Exit status 0: done."""

    command: Command = ()
    limit_s: Duration = 30.0


@dataclass(frozen=True, slots=True)
class BalancerHaproxy:
    """HAProxy as the balancer. `folder`: where its configuration of each application is kept, one file each; it reads
    them all. socket: its runtime API at level admin, master_socket: its master's. address: on which applications listen
    ("*": on all), and on which ports they may: the lowest and the highest. instance_max and queue_max: for applications
    that say nothing, as in `shared.values.web_app.Serving`. check_*: how instances are checked that are not watched.
    connect_limit_s: for a connection to an instance; response_limit_s: for its answer to begin or go on; idle_limit_s:
    for a client that sends nothing. limit_s: for an answer of HAProxy's, reload_limit_s: for a reload."""

    folder: FilePath = "/var/lib/trimtab-controller/haproxy"
    socket: FilePath = "/run/haproxy/admin.sock"
    master_socket: FilePath = "/run/haproxy-master.sock"
    address: Annotated[str, Form(r"\*|[0-9A-Fa-f:.]{2,45}", "an IP address, or *")] = "*"
    ports: tuple[Annotated[int, Range(1, 65_535)], ...] = (8000, 8999)
    instance_max: Annotated[int, Range(1, 1_000_000)] = 100
    queue_max: Annotated[int, Range(1, 1_000_000)] = 1000
    check_s: Annotated[float, Range(0.1, 3600)] = 2.0
    check_limit_s: Annotated[float, Range(0.1, 3600)] = 2.0
    check_fall: Annotated[int, Range(1, 1000)] = 3
    check_rise: Annotated[int, Range(1, 1000)] = 2
    connect_limit_s: Annotated[float, Range(0.1, 3600)] = 2.0
    response_limit_s: Annotated[float, Range(0.1, 86_400)] = 60.0
    idle_limit_s: Annotated[float, Range(0.1, 86_400)] = 60.0
    limit_s: Annotated[float, Range(0.1, 3600)] = 5.0
    reload_limit_s: Annotated[float, Range(1, 3600)] = 30.0


@dataclass(frozen=True, slots=True)
class BalancerKeys:
    """Who tells the load balancer of web applications which instances there are. One that is to be stopped has
    `drain_limit_s` for the requests that it has. Each application is told anew every `retell_s` (0: when something has
    changed), since a balancer that has begun anew may know nothing."""

    driver: Registered = "none"
    drain_limit_s: Annotated[float, Range(0, 86_400)] = 60.0
    retell_s: Annotated[float, Range(0, 86_400)] = 5.0
    exec: BalancerExec = field(default_factory=BalancerExec)
    haproxy: BalancerHaproxy = field(default_factory=BalancerHaproxy)


class SharingModel(StrEnum):
    """How dilation is computed."""

    AUTO = "auto"  # exactly as far as that is affordable
    FORMULA = "formula"
    PRODUCT_FORM = "product-form"


@dataclass(frozen=True, slots=True)
class Interference:
    """How jobs slow each other down by sharing disks and networks. `learn`: how jobs of a class load nodes is learnt
    from reports. `decisions`: placement counts with what is known, by `model`. What was measured counts from
    `observations_min` observations on, when it is known to `half_width_max` (95 %), as a part of a job's time alone.
    `network_mbit_per_s`: of a node's link (0: not known, networks do not count)."""

    learn: bool = True
    decisions: bool = True
    model: SharingModel = SharingModel.AUTO
    observations_min: Annotated[int, Range(2, 10_000)] = 3
    half_width_max: Annotated[float, Range(0.001, 1)] = 0.25
    network_mbit_per_s: Annotated[float, Range(0, 1e9)] = 0.0


@dataclass(frozen=True, slots=True)
class AssuranceKeys:
    """What goes with an admission policy. `police`: requests for units are held to what was reserved; `surplus`: what
    becomes of the rest. `head_room`: standard deviations of what was announced that are entitled beyond its mean;
    `windows`: how many slots in a row are looked at, one number for each window. `timezone`: of environments without a
    reservation."""

    police: bool = True
    surplus: SurplusUse = SurplusUse.BEST_EFFORT
    head_room: Annotated[float, Range(0, 1000)] = 2.25
    windows: tuple[Annotated[int, Range(1, 168)], ...] = (4,)
    timezone: Zone = "UTC"


@dataclass(frozen=True, slots=True)
class Memory:
    """What a VM takes beyond its own memory."""

    vm_overhead_mib: Mib = 64


@dataclass(frozen=True, slots=True)
class Costs:
    """What policies take operations on VMs to cost: seconds, and seconds per MiB of the VM's memory. The defaults are
    those of the paper (apc.txt, Table 1). `learn`: what operations took here corrects that; false: it stands."""

    start_s: Annotated[float, Range(0, 86_400)] = COSTS["paper"].start_s
    suspend_s_per_mib: Annotated[float, Range(0, 1000)] = COSTS["paper"].suspend_s_per_mib
    resume_s_per_mib: Annotated[float, Range(0, 1000)] = COSTS["paper"].resume_s_per_mib
    migrate_s_per_mib: Annotated[float, Range(0, 1000)] = COSTS["paper"].migrate_s_per_mib
    learn: bool = True


@dataclass(frozen=True, slots=True)
class RetentionDays:
    """Days that history is kept; jobs count from when they were over. Samples of five minutes become hourly ones after
    `fine_samples_days`. `snapshots_mib`: of what decisions were computed from, oldest first (0: no bound)."""

    events_days: Days = 30.0
    actions_days: Days = 30.0
    decisions_days: Days = 90.0
    jobs_days: Days = 30.0
    fine_samples_days: Days = 7.0
    samples_days: Days = 400.0
    costs_days: Days = 400.0
    snapshots_days: Days = 30.0
    snapshots_mib: Annotated[float, Range(0, 1e9)] = 20_480.0
    audit_days: Days = 400.0
    notifications_days: Days = 30.0


@dataclass(frozen=True, slots=True)
class StoreFile:
    """Where the controller keeps its state, and how long history. The URL may hold a password and is shown nowhere;
    `password_file`: where the password is instead. `record_snapshots`: whether what each decision was computed from is
    kept too."""

    url: StoreUrl = field(default="sqlite:////var/lib/trimtab-controller/controller.db", repr=False)
    password_file: SecretFile = ""
    record_snapshots: bool = True
    retention: RetentionDays = field(default_factory=RetentionDays)


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """The controller's file. `name` makes its user at the broker; empty: the name of the host."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Above("timeouts.silent_after_s", "periods.report_s"),
        Above("timeouts.fence_after_s", "timeouts.silent_after_s"),
        Above("periods.decide_s", "timeouts.decide_limit_s"),
        Above("timeouts.stall_after_s", "timeouts.operation_timeout_s"),
        Above("timeouts.silent_after_s", "timeouts.max_skew_s"),
        Above("timeouts.action_ttl_s", "timeouts.max_skew_s"),
        AtLeast("limits.actions_per_node", "limits.migrations_per_node"),
        AtLeast("limits.actions_total", "limits.actions_per_node"),
        AtLeast("limits.actions_total", "limits.migrations_total"),
        AtLeast("limits.migrations_total", "limits.migrations_per_node"),
        AtLeast("periods.decide_s", "periods.reconcile_s"),
        AtLeast("store.retention.samples_days", "store.retention.fine_samples_days"),
    )

    name: Name = ""
    periods: Periods = field(default_factory=Periods)
    timeouts: Timeouts = field(default_factory=Timeouts)
    limits: Limits = field(default_factory=Limits)
    automation: Deciding = field(default_factory=Deciding)
    policies: Policies = field(default_factory=Policies)
    web: Web = field(default_factory=Web)
    memory: Memory = field(default_factory=Memory)
    operation_costs: Costs = field(default_factory=Costs)
    windows: Mapping[str, Window] = field(default_factory=dict)
    prices: Prices = field(default_factory=Prices)
    power: PowerKeys = field(default_factory=PowerKeys)
    balancer: BalancerKeys = field(default_factory=BalancerKeys)
    assurance: AssuranceKeys = field(default_factory=AssuranceKeys)
    interference: Interference = field(default_factory=Interference)
    setup: Handing = field(default_factory=Handing)
    notify: NotifyKeys = field(default_factory=NotifyKeys)
    store: StoreFile = field(default_factory=StoreFile)
    bus: Bus = field(default_factory=Bus)
    metrics: Metrics = field(default_factory=Metrics)
    log: Log = field(default_factory=Log)
