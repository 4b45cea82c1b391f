"""What `Reading` answers: rows of the store as plain values. Times are UTC seconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class EventRow:
    """Something that happened; `id` grows with the order in which events were stored."""

    id: int
    at_s: float
    what: str
    subject: str
    term: int
    detail: str


@dataclass(frozen=True, slots=True)
class EventCount:
    """How often something happened, first and last."""

    what: str
    count: int
    first_s: float
    last_s: float


@dataclass(frozen=True, slots=True)
class ActionFigures:
    """Actions of one kind and outcome (None: not heard of yet): how many, and the seconds from their orders to their
    results: mean, 95th percentile and most (None: no time is known)."""

    kind: str
    outcome: str | None
    count: int
    mean_s: float | None
    p95_s: float | None
    max_s: float | None


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """The plain columns of a decision. `changes` to `gains` are counts.

    The smallest and the mean utility over its workloads: `now_`, when it was taken; `predicted_`, at the end of its
    cycle; `measured_`, what then was so. `nodes_wanted`: nodes that provisioning asked for. Each is None where the
    decision says nothing of it, or was stored before these columns were there. `reasons`: how often each reason was
    given, by "change" or "refusal" and the reason's code.
    """

    number: int
    at_s: float
    term: int
    policy: str
    changes: int
    refusals: int
    dropped: int
    held: int
    gains: int
    now_min: float | None = None
    now_mean: float | None = None
    predicted_min: float | None = None
    predicted_mean: float | None = None
    measured_min: float | None = None
    measured_mean: float | None = None
    nodes_wanted: int | None = None
    reasons: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A snapshot that is kept: its decision's number, and how many bytes it has."""

    number: int
    at_s: float
    term: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ClusterUse:
    """The use of all nodes that reported in the `span_s` seconds from `from_s` on.

    nodes: how many (their mean where several stretches are put together). cpu_frac, iowait_frac: mean over nodes;
    cpu_frac_max: the busiest node's highest reading. memory_used_mib: of all nodes together. The rest was added in that
    time by all nodes together.
    """

    from_s: float
    span_s: float
    nodes: float
    cpu_frac: float
    cpu_frac_max: float
    iowait_frac: float
    memory_used_mib: float
    disk_read_bytes: float
    disk_write_bytes: float
    net_rx_bytes: float
    net_tx_bytes: float


@dataclass(frozen=True, slots=True)
class NodeStep:
    """The use of one node in the `span_s` seconds from `from_s` on: means over its readings, and the highest of them
    (`_max`)."""

    from_s: float
    span_s: float
    cpu_frac: float
    cpu_frac_max: float
    iowait_frac: float
    memory_used_mib: float
    memory_used_mib_max: float


@dataclass(frozen=True, slots=True)
class JobRow:
    """The plain columns of a job. goal_s None: best effort; finished_s None: it is not over."""

    name: str
    phase: str
    is_over: bool
    accepted_s: float
    goal_s: float | None
    finished_s: float | None
    instances: int
    memory_mib: int
    attempt: int

    @property
    def late_s(self) -> float | None:
        """Seconds by which it ended after its goal, negative before it; None without a goal or an end."""
        return None if self.goal_s is None or self.finished_s is None else self.finished_s - self.goal_s


@dataclass(frozen=True, slots=True)
class JobFigures:
    """Jobs of a span: accepted in it; ended in it, by how; of the completed ones with a goal those that met it and
    those that did not, with the mean and the largest lateness of the latter in seconds (None: there are none)."""

    accepted: int
    completed: int
    cancelled: int
    met: int
    missed: int
    late_mean_s: float | None
    late_max_s: float | None


@dataclass(frozen=True, slots=True)
class StoredSpans:
    """From when to when the store has something of each kind (None: nothing)."""

    events: tuple[float, float] | None
    actions: tuple[float, float] | None
    decisions: tuple[float, float] | None
    snapshots: tuple[float, float] | None
    samples: tuple[float, float] | None
    costs: tuple[float, float] | None

    def first_s(self) -> float | None:
        """Return the start of the oldest span."""
        known: list[Any] = [self.events, self.actions, self.decisions, self.snapshots, self.samples, self.costs]
        return min((span[0] for span in known if span is not None), default=None)
