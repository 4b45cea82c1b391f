"""What policies and planning answer: changes with reasons, refusals, plans and predictions, as frozen values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import compress

from shared.values.actions import ActionKind
from shared.values.jobs import Allotment
from shared.values.utc import EPOCH_S, LAST_S, utc_text


class ChangeKind(StrEnum):
    """What a decision wants done to a workload."""

    START = "start"
    RESUME = "resume"
    SUSPEND = "suspend"
    MIGRATE = "migrate"
    RESIZE = "resize"
    STOP = "stop"  # an instance of a web application: not wanted any more, until it is started again


UNBOUNDED = 1e300  # stands in reasons, whose numbers are finite, for what has no bound: no utility, no limit


class ReasonCode(StrEnum):
    """Why a policy wants a change, or does not make one. Rendered with the numbers that go with it."""

    ARRIVAL_ORDER = "arrival-order"
    EARLIER_GOAL = "earlier-goal"  # its goal comes first
    LATER_GOAL = "later-goal"  # gives way to an earlier goal
    DRAIN = "drain"  # its node is being emptied
    RULE = "rule"  # a required rule does not hold where it is
    PREFERENCE = "preference"  # preferred rules hold where it goes
    KEEP = "keep"  # nothing better
    NO_MEMORY = "no-memory"  # no eligible node has the memory free
    NO_CPU = "no-cpu"  # no eligible node has the CPU free
    TOO_FEW_NODES = "too-few-nodes"  # fewer eligible nodes than instances that must be separate
    FITS_NO_NODE = "fits-no-node"  # larger than any node, even empty
    NO_NODES = "no-nodes"  # none in service and known
    LABELS = "labels"  # no node has the labels it needs
    NOT_YET = "not-yet"  # before its desired start, or its back-off after a failure
    UNKNOWN_NODE = "unknown-node"  # an instance is on a node that is silent
    BAD_PROFILE = "bad-profile"  # a number in its profile is not finite or out of range
    STALE = "stale"  # the workload changed after the snapshot
    HELD = "held"  # automation level advise or confirm, or deciding is paused
    OPERATOR = "operator"  # an operator asked for it
    HIGHER_UTILITY = "higher-utility"  # the smallest utilities grow
    PREEMPTED = "preempted"  # its place serves a workload that is worse off
    LOAD = "load"  # a web application's demand asks for more, or less
    IDLE_CAPACITY = "idle-capacity"  # there is room that nobody uses
    NO_GAIN = "no-gain"  # preempting would not raise the lowest utility by the tolerance
    GUARD = "guard"  # it would displace a job that is no less urgent
    MIGRATION_LIMIT = "migration-limit"  # as many changes as a cycle may make
    COOL_DOWN = "cool-down"  # moved a short while ago
    CONSTRAINT = "constraint"  # a required rule leaves no node: its numbers name it
    CONTRADICTION = "contradiction"  # its constraints cannot all hold
    NO_DEMAND = "no-demand"  # more instances would not raise its utility
    DUPLICATE = "duplicate"  # its name is taken by another workload
    AFTER = "after"  # a job that must be completed before it is not
    PROMISE = "promise"  # a deadline window needs so many nodes to keep its promise
    CHEAPER = "cheaper"  # so many nodes are expected to cost least
    NEEDED = "needed"  # jobs with goals or web applications would fall too low with fewer
    SPARE = "spare"  # fewer nodes are enough for everything
    OUT_OF_REACH = "out-of-reach"  # not even all nodes keep the promise
    NO_TABLES = "no-tables"  # tables are still being computed
    LIMIT = "limit"  # as many nodes woken, or put to sleep, as a minute may see
    PROTECTED = "protected"  # the node must not leave service
    ENVIRONMENT = "environment"  # its environment is not running
    OVER_QUOTA = "over-quota"  # its environment has no unit left for it
    RECLAIMED = "reclaimed"  # its environment's units are taken back
    UNHEALTHY = "unhealthy"  # its node's agent finds that it does not serve
    ADJUSTMENT = "adjustment"  # mean CPU use of a web application's instances asks for more, or fewer
    RECONCILIATION_PAUSED = "reconciliation-paused"  # somebody else has done something to a VM of it
    AUTOMATION = "automation"  # its own automation level only advises
    ADOPTED = "adopted"  # it was adopted: never suspended or stopped for others
    MIGRATION_FIT = "migration-fit"  # no node has what a live migration of it needs
    REJECTED = "rejected"  # an operator has rejected it of late
    FAIR_SHARE = "fair-share"  # without a goal: its part of what those with goals leave
    STARVED = "starved"  # without a goal, it is left next to nothing
    SHARING = "sharing"  # others on the node slow it by what they share with it beside the CPU


@dataclass(frozen=True, slots=True)
class Reason:
    """A code and the numbers behind it: ("needed_mib", 4320.0), ("largest_free_mib", 3040.0); `UNBOUNDED` or
    -`UNBOUNDED` where there is none."""

    code: ReasonCode
    numbers: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        return self.code.value + "".join(f" {name}={_in_words(name, value)}" for name, value in self.numbers)


def _in_words(name: str, value: float) -> str:
    """Format a number of a reason; a time is shown as a date."""
    if abs(value) >= UNBOUNDED:
        return "none"
    if name.endswith("_s") and not name.endswith("_per_s") and EPOCH_S < value <= LAST_S:
        return utc_text(value)
    return f"{value:g}"


@dataclass(frozen=True, slots=True)
class Change:
    """A change that a decision makes to one workload, of the revision that the snapshot showed.

    `allotments` has one entry per instance for START, RESUME, MIGRATE and RESIZE, none for SUSPEND and STOP.
    """

    workload: str
    revision: int
    kind: ChangeKind
    allotments: tuple[Allotment, ...]
    reason: Reason


@dataclass(frozen=True, slots=True)
class Refusal:
    """A change that was asked for or possible and is not made, and why."""

    workload: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Step:
    """One VM's operation in a plan. `wave` counts from 0: steps of a wave may run together, waves run in order.

    `group` is the workload: steps of one wave and group that start VMs are all done or none.
    """

    kind: ActionKind
    workload: str
    vm: str
    node: str
    to_node: str = ""
    memory_mib: int = 0
    cpu_mhz: float = 0.0
    wave: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in an order in which every intermediate state is feasible, and what cannot be done at all."""

    steps: tuple[Step, ...]
    blocked: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class Outlook:
    """A policy's predictions for workloads and web applications by name, one entry each in every sequence.

    now: the utility if nothing is changed. predicted: under the decision. best: the reachable utility at full speed
    from now on. All are at the end of the cycle (apc.txt section 4.4), under the expected load of applications. level:
    the jobs' common level (None: there are no jobs). goalless: those of the names that have no goal: their utility of 1
    has no meaning and is shown nowhere. planned: under the decision and the load to plan for (empty: as `predicted`).
    """

    names: Sequence[str] = ()
    now: Sequence[float] = ()
    predicted: Sequence[float] = ()
    best: Sequence[float] = ()
    level: float | None = None
    goalless: Sequence[str] = ()
    planned: Sequence[float] = ()

    def under_planned_load(self) -> Sequence[float]:
        """Return the utilities under the decision and the load to plan for, in the order of the names."""
        return self.planned or self.predicted

    def aims(self) -> list[bool]:
        """Return of each of the names whether it has a goal."""
        goalless = frozenset(self.goalless)
        return [name not in goalless for name in self.names]

    def of_goals(self) -> list[float]:
        """Return the utilities predicted for what has a goal."""
        return list(compress(self.predicted, self.aims()))


@dataclass(frozen=True, slots=True)
class Slowed:
    """A workload that takes `factor` times as long on a node as alone there with the same CPU (above 1), by what it
    shares with others there. resource: the one that slows it most; by: who uses that there, the heaviest first."""

    workload: str
    node: str
    factor: float
    resource: str
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlacementDecision:
    """What a placement policy wants changed, and why everything else that could be wanted is not.

    `changes` and `refusals` are sequences that may build their items when read. A workload in neither is kept as it is.
    `evaluations` counts the placements tried, `predicted_utility` is the smallest predicted one (None: not computed),
    `outlook` the prediction for each workload (None: not computed). `slowed`: who would be slowed by sharing, the most
    first.
    """

    changes: Sequence[Change] = ()
    refusals: Sequence[Refusal] = ()
    evaluations: int = 0
    predicted_utility: float | None = None
    outlook: Outlook | None = None
    slowed: Sequence[Slowed] = ()


@dataclass(frozen=True, slots=True)
class WindowSize:
    """How many nodes a deadline window is given, counted in reference nodes.

    jobs: in its queue. nodes: given now; wanted: what its policy asked for (more where nodes were short). breach: the
    probability (0..1) that its deadline is missed with nodes_min, nodes_min + 1, ... nodes from now on. predicted_cost:
    from now to the deadline, in the currency of the prices (None: not computed).
    """

    window: str
    jobs: int
    nodes: int
    wanted: int
    breach: tuple[float, ...]
    reason: Reason
    predicted_cost: float | None = None


@dataclass(frozen=True, slots=True)
class ProvisioningDecision:
    """The names of the nodes that are in service until the next decision, and why.

    `windows` lists the size of each open deadline window. `refused`: smaller sizes that were tried and rejected,
    because the utility of jobs with goals or web applications would fall too low; with the smallest utility predicted
    for each.
    """

    in_service: tuple[str, ...]
    reason: Reason
    predicted_cost: float | None = None
    windows: tuple[WindowSize, ...] = ()
    refused: tuple[tuple[int, float], ...] = ()
