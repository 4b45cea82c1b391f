"""What coordination policies see and answer: frozen values, pure Python. Units are nodes, or VMs of one template.

A group is an environment with its partner, if it has one: they share what both of them may have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from shared.values.agreement import BatchTerms, WebTerms, WorkloadType


class Moment(StrEnum):
    """When a group's policy is asked (phoenixcloud.txt section 5). Within one instant in this order, after jobs that
    end and before jobs that arrive: DEMAND, PROVISION, MANAGE."""

    START = "start"  # the group begins, an environment has joined or left it, or its bounds are others
    DEMAND = "demand"  # the web environment needs more or fewer units, or jobs have arrived (`asked_at_arrivals`)
    PROVISION = "provision"  # the provider's timer, every lease unit
    MANAGE = "manage"  # the batch manager's timer, every lease unit


@dataclass(frozen=True, slots=True)
class Party:
    """One environment of a group, in units.

    lower, upper (None: undefined): of its agreement. owned: what it has, what is on its way to it among it. idle: of
    these, on how many nothing runs. wanted: what a web environment's manager wants for its instances now (0 for batch).
    queued: what all waiting jobs of a batch environment need together (Q); biggest: what the largest of them needs.
    batch: its terms. asks: what its manager wants to have: of a batch environment at MANAGE, of a web environment
    always, None where it was not asked.
    """

    name: str
    workload: WorkloadType
    lower: int
    upper: int | None = None
    owned: int = 0
    idle: int = 0
    wanted: int = 0
    queued: int = 0
    biggest: int = 0
    batch: BatchTerms = field(default_factory=BatchTerms)
    asks: Asked | None = None


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that waits for units: how many it needs where it has them for itself (parts of one where several jobs fit
    on a node), how long ago it could have begun first, and in how many seconds it should be complete (None: best
    effort; below 0: it should have been)."""

    units: float
    waited_s: float
    goal_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class ManagerView:
    """What the manager of an environment sees. party: the environment itself; its `wanted` is what the instances of its
    web applications fill. waiting: the jobs that wait, in their order. quiet_s: for how long no job of it has come in
    or ended (inf: there was none)."""

    party: Party
    waiting: tuple[WaitingJob, ...] = ()
    quiet_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Asked:
    """How many units a manager wants to have, and a reason for people."""

    units: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class InstancesView:
    """A web application of `instances` instances between `least` and `most`, and the mean part of their CPU (0..1) that
    they have used over `terms.over_s`; without an instance above 0 when anything is asked for."""

    instances: int
    utilisation: float
    terms: WebTerms
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class GroupView:
    """At most one batch and one web environment, at least one of them."""

    parties: tuple[Party, ...]

    @property
    def lower(self) -> int:
        """The coordinated resources: units that nobody else may have."""
        return sum(party.lower for party in self.parties)

    def of(self, workload: WorkloadType) -> Party | None:
        """Return the group's environment of a type, None when there is none."""
        return next((party for party in self.parties if party.workload is workload), None)


@dataclass(frozen=True, slots=True)
class GroupSizes:
    """How many units each party of a group is to have, in the order of its parties, and a reason for people. What a
    batch environment loses of units that are not idle it frees by its agreement's `on_reclaim`, at once."""

    sizes: tuple[int, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """The nodes that one group holds and requests from the provider. Nodes are distinguished by class: nodes of one
    class are alike in everything that agreements may require of a node; every tuple has one entry per class.

    lower: nobody else may have these. firm: up to this number the group has priority. held: what its parties hold.
    idle: held nodes on which nothing runs. requested: total number requested. fits: which classes are suitable.
    """

    group: str
    lower: int
    firm: int
    held: tuple[int, ...]
    idle: tuple[int, ...]
    requested: int
    fits: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Grants:
    """The provider's answer, one entry per claim, of each class. given: units granted, from those that are free or that
    the same answer takes back. taken: idle units that it returns at once. owed: further units that it must return
    within one reallocation interval, even if something runs on them."""

    given: tuple[tuple[int, ...], ...]
    taken: tuple[tuple[int, ...], ...]
    owed: tuple[tuple[int, ...], ...]
