"""What the controller's configuration file may say, and what the files of all daemons have in common: every key with
its unit, range and default (architecture, The loop).

`load(path, ControllerConfig)` reads a file; see `shared.config.toml`. Units are in the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from daemons.config.fencing import FencingKeys
from daemons.config.notify import NotifyKeys
from daemons.values.settings import Automation, Removal, ServiceModel
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
    """Intervals of recurring work."""

    report_s: Period = 5.0
    """Interval between two reports of an agent. Set `periods.report_s` of the agents to the same value."""
    reconcile_s: Period = 5.0
    """Interval at which the observed state is compared with the decided state and corrected."""
    web_adjust_s: Period = 20.0
    """Interval at which the CPU and the number of instances of web applications follow their load."""
    decide_s: Period = 900.0
    """Length of a scheduling cycle: the interval between two placement decisions."""
    probe_s: Period = 2.0
    """Interval at which a controller checks that it still is the leader."""
    scrape_s: Period = 5.0
    """Interval at which counters of web applications are read. A missed goal triggers at most one adjustment in this
    time."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits after which the controller acts."""

    unreachable_after_s: Duration = 15.0
    """Time without a report after which a node is unreachable."""
    fence_after_s: Duration = 60.0
    """Time after which an unreachable node is fenced, by `fencing.methods` or a power driver that can. Drained nodes
    without VMs are not."""
    max_skew_s: Period = 2.0
    """Largest accepted difference between the clocks of a node and the controller. Beyond it, no action is sent to the
    node."""
    gang_timeout_s: Duration = 120.0
    """Time within which all instances of a job must be prepared. Otherwise those already prepared are removed."""
    action_ttl_s: Duration = 60.0
    """Time within which an agent must begin an action. An agent refuses an action that has expired."""
    operation_timeout_s: Duration = 600.0
    """Time after which an unfinished operation raises the alarm `action-overdue`."""
    stall_after_s: Duration = 900.0
    """Time without progress after which a job raises the alarm `job-stalled`."""
    decide_limit_s: Duration = 60.0
    """Time limit of one decision. Beyond it, the worker process is killed and the decision is skipped."""
    external_change_pause_s: Duration = 900.0
    """Pause of reconciliation for a workload after an external change to one of its VMs. Each repetition doubles the
    pause, up to a day."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on operations in progress, and on what one account may have."""

    actions_per_node: Count = 8
    """Most operations in progress on one node."""
    migrations_per_node: Count = 1
    """Most migrations in progress on one node. A migration counts on its source and on its target."""
    actions_total: Count = 512
    """Most operations in progress in the cluster."""
    migrations_total: Count = 16
    """Most migrations in progress in the cluster."""
    jobs_per_account: Quota = 5_000
    """Most unfinished jobs of one user or owner. 0: no limit."""
    apps_per_environment: Quota = 500
    """Most web applications of one environment. 0: no limit."""
    environments_per_owner: Quota = 100
    """Most environments of one owner. 0: no limit."""


@dataclass(frozen=True, slots=True)
class Web:
    """How much CPU web applications get beyond what they use now."""

    headroom_quantile: Annotated[float, Range(0.5, 0.999)] = 0.9
    """Quantile of the expected load that a decision plans for. The quantile is lower while jobs are further from their
    goals than the applications."""
    horizon_s: Period = 60.0
    """How far ahead the load of web applications is forecast."""
    work_off_s: Period = 10.0
    """Time within which waiting requests should be served."""
    usable_frac: Annotated[float, Range(0.1, 1.0)] = 0.98
    """Part of an instance's CPU that counts as usable. Beyond it, requests pile up."""


@dataclass(frozen=True, slots=True)
class Deciding:
    """How far decisions are carried out without an operator."""

    level: Automation = Automation.ADVISE
    """`advise` only records decisions, `confirm` waits for `trimtab plan approve`, `auto` carries them out."""
    hold_starts: bool = False
    """Hold back the start of submitted jobs as well, below level `auto`. If false, jobs start at every level."""
    approvals: Annotated[int, Range(1, 5)] = 1
    """Number of different accounts that must approve a plan at level `confirm`."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The policy of each role, by its registered name."""

    placement: Registered = "apc"
    """Placement policy. It chooses the node and the CPU of each workload."""
    provisioning: Registered = "static"
    """Provisioning policy. It chooses how many nodes are in service."""
    admission: Registered = "none"
    """Admission policy for environments. `none` admits every request."""
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Parameters of policies: one table `[policies.params.NAME]` for each policy that needs some."""


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
    """A deadline window: the jobs of one queue share a deadline."""

    submit_from: Hour
    """Local time from which the queue accepts jobs. Example: `"18:00"`."""
    submit_until: Hour
    """Local time until which the queue accepts jobs. If it is not after `submit_from`, it falls on the next day.
    Example: `"02:00"`."""
    deadline: Hour
    """Local time by which all jobs must be complete. If it is not after `submit_until`, it falls on the next day.
    Example: `"06:00"`."""
    timezone: Zone
    """Time zone of the local times. Example: `"Europe/Berlin"`."""
    queue: Name = ""
    """Name of the queue. Empty: the name of the window."""
    days: tuple[Weekday, ...] = tuple(Weekday)
    """Days on which the window opens."""
    confidence: Annotated[float, Range(0.5, 0.999999999)] = 0.9999
    """Planned probability that all jobs are complete by the deadline."""
    penalty: Money = 0.0
    """Cost of each job that misses the deadline, in `prices.currency`."""
    weight: Annotated[float, Range(1e-6, 1e6)] = 1.0
    """Weight against other windows when there are too few nodes."""
    nodes_min: Annotated[int, Range(1, 10_000)] = 1
    """Fewest nodes in service for the window, in reference nodes."""
    nodes_max: Annotated[int, Range(1, 10_000)] = 10_000
    """Most nodes in service for the window, in reference nodes."""
    jobs_per_node: Annotated[int, Range(0, 10_000)] = 0
    """Jobs that one node is assumed to run at a time when the number of nodes is chosen. 0: as many as fit."""
    service_s: Duration = 1_200.0
    """Run time of a job, assumed until enough jobs were measured."""
    arrivals_per_day: Annotated[float, Range(0, 10_000_000)] = 0.0
    """Jobs submitted per day, assumed until enough were measured."""
    removal: Removal = Removal.CHECKPOINT
    """What happens to running jobs when a node leaves service: `checkpoint` moves or suspends them, `wait` keeps the
    node, `lose` restarts them."""
    service: ServiceModel = ServiceModel.AUTO
    """Assumed distribution of run times. `auto` changes from `exponential` to `phases` when the measured times
    contradict it."""
    analyser: Registered = "batch-deadline"
    """Analyser that computes how likely the deadline is met with a number of nodes."""
    analyser_params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the analyser."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What energy costs."""

    shape: PriceShape = PriceShape.UNIFORM
    """Course of the price over a day. `quadratic-1` is low in the middle of the day, `quadratic-2` is high there.
    `series` reads a file."""
    per_kwh: Annotated[float, Range(-1e6, 1e6)] = 0.30
    """Price of a kWh: the daily mean of a shape, or the price used while a series is unknown."""
    ratio: Annotated[float, Range(1, 1000)] = 3.0
    """Highest price of a shape divided by its lowest."""
    currency: Annotated[str, Form(r"\S{1,16}", "a currency, say EUR")] = "EUR"
    """Currency of all prices and costs."""
    timezone: Zone = "UTC"
    """Time zone of the shape, and of times in the file that have no offset."""
    file: Annotated[str, Form(r"(/[^\0]+)?", "an absolute path")] = ""
    """CSV file of a series, plain or gzip. The first column contains the beginning of each period. Empty: none."""
    column: Annotated[str, Form(r"[^\0]{1,128}", "the title of a column")] = "price"
    """Title of the column of prices in the file."""
    factor: Annotated[float, Range(1e-9, 1e9)] = 1.0
    """Multiplier of the prices in the file. 0.001 converts prices per MWh."""
    read_every_s: Duration = 900.0
    """Interval at which the file is read again."""
    per_utility: Money = 0.0
    """Value of one hour of a web application at a utility lower by 1, in `currency`. 0: not counted."""


@dataclass(frozen=True, slots=True)
class PowerDraw:
    """What nodes of a type draw. The table `default` applies to every other type."""

    idle_w: Watts = 100.0
    """Power drawn without load."""
    peak_w: Watts = 200.0
    """Power drawn at full CPU load."""
    off_w: Watts = 5.0
    """Power drawn while asleep or off."""
    curve_w: tuple[Watts, ...] = ()
    """Power drawn at evenly spaced loads from none to full. It replaces `idle_w` and `peak_w`."""


@dataclass(frozen=True, slots=True)
class PowerExec:
    """The programs of the power driver `exec`. In their arguments `{node}` is the node's name, `{mac}` its first
    hardware address."""

    wake: Command = ()
    """Program and arguments that wake a node. Empty: nodes cannot be woken."""
    sleep: Command = ()
    """Program and arguments that put a node to sleep. Empty: the node's agent does it."""
    fence: Command = ()
    """Program and arguments that switch a node off. Exit status 0 confirms that it has no power. It runs after all
    `fencing.methods` failed. Empty: this driver cannot fence."""
    link: Command = ()
    """Program and arguments that give a node back to another scheduler. Empty: there is none."""
    delink: Command = ()
    """Program and arguments that take a node from another scheduler. Exit status 0 confirms that nothing of it is left
    there."""
    limit_s: Duration = 60.0
    """Time limit of one program. Beyond it, the program is killed and has failed."""


@dataclass(frozen=True, slots=True)
class PowerKeys:
    """How nodes leave service, go to sleep and return."""

    driver: Registered = "none"
    """Power driver: `none`, `wake-on-lan`, `exec`, or another installed driver."""
    sleep: SleepMode = SleepMode.SUSPEND
    """How agents put their hosts to sleep: suspend to memory, or switch off."""
    standby_s: Annotated[float, Range(0, 604_800)] = 300.0
    """Time out of service after which a node is put to sleep."""
    deploy_s: Annotated[float, Range(0, 86_400)] = 25.0
    """Time that a node takes to enter service, assumed until it was measured."""
    remove_s: Annotated[float, Range(0, 86_400)] = 30.0
    """Time that a node takes to leave service, assumed until it was measured."""
    wake_limit_s: Duration = 600.0
    """Time after which a woken node that does not report has failed."""
    drain_limit_s: Duration = 3_600.0
    """Time after which a node that could not be emptied returns to service."""
    keep_nodes: Annotated[int, Range(0, 100_000)] = 1
    """Number of nodes that always stay in service."""
    never_sleep: tuple[Name, ...] = ()
    """Names of nodes that never leave service, such as the node of the broker."""
    wakes_per_minute: Count = 10
    """Most nodes that are woken in a minute."""
    sleeps_per_minute: Count = 10
    """Most nodes that are put to sleep in a minute."""
    wake_test_days: Days = 7.0
    """Interval at which each sleeping node is woken once as a test. 0: never."""
    broadcast: Annotated[str, Form(r"[0-9a-fA-F.:]{1,64}(:[0-9]{1,5})?", "an address, or address:port")] = (
        "255.255.255.255:9"
    )
    """Destination of wake-on-LAN packets."""
    exec: PowerExec = field(default_factory=PowerExec)
    draw: Mapping[str, PowerDraw] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Handing:
    """Nodes that are reassigned between environments."""

    attempts: Annotated[int, Range(1, 100)] = 3
    """Attempts at the setup of a node before an operator must use `trimtab nodes repair`."""


@dataclass(frozen=True, slots=True)
class BalancerExec:
    """The program of the load balancer driver `exec`. In its arguments `{app}` is the application's name, `{file}` a
    JSON file of its instances."""

    command: Command = ()
    """Program and arguments that update the load balancer. Exit status 0: done."""
    limit_s: Duration = 30.0
    """Time limit of one run. Beyond it, the program is killed and has failed."""


@dataclass(frozen=True, slots=True)
class BalancerHaproxy:
    """HAProxy as the load balancer."""

    folder: FilePath = "/var/lib/trimtab-controller/haproxy"
    """Folder of HAProxy's configuration files, `trimtab-APP.cfg` for each application."""
    socket: FilePath = "/run/haproxy/admin.sock"
    """Socket of HAProxy's runtime API, with level admin."""
    master_socket: FilePath = "/run/haproxy-master.sock"
    """Socket of HAProxy's master process."""
    address: Annotated[str, Form(r"\*|[0-9A-Fa-f:.]{2,45}", "an IP address, or *")] = "*"
    """Address on which applications listen. `*`: all addresses."""
    ports: tuple[Annotated[int, Range(1, 65_535)], ...] = (8000, 8999)
    """Lowest and highest port on which an application may listen."""
    instance_max: Annotated[int, Range(1, 1_000_000)] = 100
    """Requests that one instance serves at a time, where neither the application nor its model limits them."""
    queue_max: Annotated[int, Range(1, 1_000_000)] = 1000
    """Requests that may wait for an application, where neither the application nor its model limits them."""
    check_s: Annotated[float, Range(0.1, 3600)] = 2.0
    """Interval between two checks of an instance that has no `[probe]`."""
    check_limit_s: Annotated[float, Range(0.1, 3600)] = 2.0
    """Time limit of one check of an instance that has no `[probe]`."""
    check_fall: Annotated[int, Range(1, 1000)] = 3
    """Failed checks in a row after which an instance is down."""
    check_rise: Annotated[int, Range(1, 1000)] = 2
    """Successful checks in a row after which an instance is up."""
    connect_limit_s: Annotated[float, Range(0.1, 3600)] = 2.0
    """Time limit of a connection to an instance."""
    response_limit_s: Annotated[float, Range(0.1, 86_400)] = 60.0
    """Time limit for an answer of an instance to begin, and between two parts of it."""
    idle_limit_s: Annotated[float, Range(0.1, 86_400)] = 60.0
    """Longest time that a client may send nothing."""
    limit_s: Annotated[float, Range(0.1, 3600)] = 5.0
    """Time limit of one answer of HAProxy's sockets."""
    reload_limit_s: Annotated[float, Range(1, 3600)] = 30.0
    """Time limit of one reload of HAProxy."""


@dataclass(frozen=True, slots=True)
class BalancerKeys:
    """Updates of the load balancer of web applications."""

    driver: Registered = "none"
    """Load balancer driver: `none`, `exec`, `haproxy`, or another installed driver."""
    drain_limit_s: Annotated[float, Range(0, 86_400)] = 60.0
    """Time that an instance has to finish its requests before it is stopped."""
    resend_s: Annotated[float, Range(0, 86_400)] = 5.0
    """Interval at which the backends of each application are sent again without a change. 0: never."""
    exec: BalancerExec = field(default_factory=BalancerExec)
    haproxy: BalancerHaproxy = field(default_factory=BalancerHaproxy)


class SharingModel(StrEnum):
    """How dilation is computed."""

    AUTO = "auto"  # exactly as far as that is affordable
    FORMULA = "formula"
    PRODUCT_FORM = "product-form"


@dataclass(frozen=True, slots=True)
class Interference:
    """How jobs slow each other down by sharing disks and networks."""

    learn: bool = True
    """Learn the resource profiles of job classes from the reports of agents."""
    decisions: bool = True
    """Let placement take known resource profiles into account."""
    model: SharingModel = SharingModel.AUTO
    """Model of the slowdown. `auto` computes it as exactly as the time of a decision allows."""
    observations_min: Annotated[int, Range(2, 10_000)] = 3
    """Observations after which a measured resource profile counts."""
    half_width_max: Annotated[float, Range(0.001, 1)] = 0.25
    """Largest half width of the 95 % interval with which a measured profile counts, as a part of the isolated run
    time."""
    network_mbit_per_s: Annotated[float, Range(0, 1e9)] = 0.0
    """Bandwidth of a node's network link. 0: unknown; networks do not count."""


@dataclass(frozen=True, slots=True)
class AssuranceKeys:
    """Rate policing of environments, beside an admission policy."""

    police: bool = True
    """Limit the units of an environment to its reservation."""
    surplus: SurplusUse = SurplusUse.BEST_EFFORT
    """What happens to units requested beyond the quota: granted as best effort, or rejected."""
    headroom: Annotated[float, Range(0, 1000)] = 2.25
    """Standard deviations of the announced demand that belong to the quota beyond its mean."""
    windows: tuple[Annotated[int, Range(1, 168)], ...] = (4,)
    """Lengths of the sliding windows of rate policing, in slots; one number for each window."""
    timezone: Zone = "UTC"
    """Time zone of environments without a reservation."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of VMs on their hosts."""

    vm_overhead_mib: Mib = 64
    """Memory that a VM takes beyond its own."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Cost of operations on VMs as policies assume it.

    The defaults are those of the paper (apc.txt, Table 1).
    """

    start_s: Annotated[float, Range(0, 86_400)] = COSTS["paper"].start_s
    """Time to start a VM."""
    suspend_s_per_mib: Annotated[float, Range(0, 1000)] = COSTS["paper"].suspend_s_per_mib
    """Time to suspend a VM, per MiB of its memory."""
    resume_s_per_mib: Annotated[float, Range(0, 1000)] = COSTS["paper"].resume_s_per_mib
    """Time to resume a VM, per MiB of its memory."""
    migrate_s_per_mib: Annotated[float, Range(0, 1000)] = COSTS["paper"].migrate_s_per_mib
    """Time to migrate a VM, per MiB of its memory."""
    learn: bool = True
    """Correct these values by measured times."""


@dataclass(frozen=True, slots=True)
class RetentionDays:
    """How long history is kept."""

    events_days: Days = 30.0
    """Days that events are kept."""
    actions_days: Days = 30.0
    """Days that actions are kept."""
    decisions_days: Days = 90.0
    """Days that decisions are kept. The newest decision always stays."""
    jobs_days: Days = 30.0
    """Days that finished jobs and destroyed environments are kept, from their end."""
    fine_samples_days: Days = 7.0
    """Days after which samples of five minutes are merged into hourly samples."""
    samples_days: Days = 400.0
    """Days that hourly samples are kept."""
    costs_days: Days = 400.0
    """Days that energy and costs are kept."""
    snapshots_days: Days = 30.0
    """Days that the recorded inputs of decisions are kept."""
    snapshots_mib: Annotated[float, Range(0, 1e9)] = 20_480.0
    """Size of all recorded inputs of decisions. Beyond it, the oldest are removed. 0: no limit."""
    audit_days: Days = 400.0
    """Days that the audit log is kept."""
    notifications_days: Days = 30.0
    """Days that notifications are kept."""


@dataclass(frozen=True, slots=True)
class StoreFile:
    """The database of the controller."""

    url: StoreUrl = field(default="sqlite:////var/lib/trimtab-controller/controller.db", repr=False)
    """URL of the database, SQLite or PostgreSQL. It may contain a password and is never shown."""
    password_file: SecretFile = ""
    """File of the database password: a path or `credential:NAME`. Empty: the URL contains the password, or needs
    none."""
    record_snapshots: bool = True
    """Keep the input of each decision, so that the decision can be repeated."""
    retention: RetentionDays = field(default_factory=RetentionDays)


@dataclass(frozen=True, slots=True)
class FailoverKeys:
    """Restart of adopted VMs on other nodes."""

    spare_nodes: Annotated[int, Range(0, 10)] = 1
    """Keep memory free so that the VMs with failover of that many nodes could restart on others. `0`: keep none."""


@dataclass(frozen=True, slots=True)
class MigrationConfig:
    """How VMs are migrated live. `libvirt.migration` of the agents bounds it from above."""

    link_mib_per_s: Annotated[float, Range(0, 1e6)] = 0.0
    """What the link of a node carries. 0: the best rate that was measured."""
    streams: Annotated[int, Range(1, 255)] = 1
    """Most connections of one migration (QEMU's multifd). More than one are used where the link carries more than
    `stream_mib_per_s` and one would take too long."""
    stream_mib_per_s: Annotated[float, Range(1, 1e6)] = 1_200.0
    """What one connection carries at most, until one has carried more. The default is 10 Gbit/s; encrypted connections
    may carry a third of it."""
    post_copy: bool = False
    """Let every migration that does not converge switch to post-copy. A failure of either node then stops the VM. The
    term `post_copy` allows it for one adopted VM."""


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """The configuration of the controller."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Above("timeouts.unreachable_after_s", "periods.report_s"),
        Above("timeouts.fence_after_s", "timeouts.unreachable_after_s"),
        Above("periods.decide_s", "timeouts.decide_limit_s"),
        Above("timeouts.stall_after_s", "timeouts.operation_timeout_s"),
        Above("timeouts.unreachable_after_s", "timeouts.max_skew_s"),
        Above("timeouts.action_ttl_s", "timeouts.max_skew_s"),
        AtLeast("limits.actions_per_node", "limits.migrations_per_node"),
        AtLeast("limits.actions_total", "limits.actions_per_node"),
        AtLeast("limits.actions_total", "limits.migrations_total"),
        AtLeast("limits.migrations_total", "limits.migrations_per_node"),
        AtLeast("periods.decide_s", "periods.reconcile_s"),
        AtLeast("store.retention.samples_days", "store.retention.fine_samples_days"),
    )

    name: Name = ""
    """Name of this controller: NAME of its broker account `controller.NAME`. Empty: the host's name without its
    domain."""
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
    fencing: FencingKeys = field(default_factory=FencingKeys)
    balancer: BalancerKeys = field(default_factory=BalancerKeys)
    assurance: AssuranceKeys = field(default_factory=AssuranceKeys)
    interference: Interference = field(default_factory=Interference)
    migration: MigrationConfig = field(default_factory=MigrationConfig)
    failover: FailoverKeys = field(default_factory=FailoverKeys)
    setup: Handing = field(default_factory=Handing)
    notify: NotifyKeys = field(default_factory=NotifyKeys)
    store: StoreFile = field(default_factory=StoreFile)
    bus: Bus = field(default_factory=Bus)
    metrics: Metrics = field(default_factory=Metrics)
    log: Log = field(default_factory=Log)
