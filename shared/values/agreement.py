"""The agreement of an environment: what its owner wants of the resource provider (phoenixcloud.txt section 4.2),
checked when made. No numpy here.

Sizes count units of the agreement's granularity: nodes, or VMs of its template.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shared.base.errors import InvalidValue
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.reservation import Calendar, Reservation, ResourceDemand, ServiceClass, Share, SlotDemand, slots_in
from shared.values.scalars import check_name, not_negative, positive, whole
from shared.values.texts import check_label

UNITS_MAX = 65_536
USERS_MAX = 1_000
RATIO_MAX = 1_000.0
SERVERS = "servers"  # the resource of an environment's demand: units of its agreement
ZONE_LENGTH_MAX = 64
RESOURCES = ("node", "vm")  # the kinds of resource that can be provided


class Relationship(StrEnum):
    """What the owner of an environment is to the provider of its resources."""

    SAME = "same"
    AFFILIATED = "affiliated"
    BUSINESS = "business"


class WorkloadType(StrEnum):
    """What an environment is made for."""

    BATCH = "batch"
    WEB = "web"


class Granularity(StrEnum):
    """In what an environment's resources are counted and handed over."""

    NODE = "node"
    VM = "vm"


class OnReclaim(StrEnum):
    """What becomes of the jobs whose nodes are taken back."""

    SUSPEND = "suspend"  # saved to disk: no work is lost
    KILL = "kill"  # begun anew later (phoenixcloud.txt section 5.1)


@dataclass(frozen=True, slots=True)
class VmTemplate:
    """The VM in which an environment of granularity `vm` is counted. vcpus, memory_mib, max_mhz: of one VM."""

    name: str
    vcpus: int
    memory_mib: int
    max_mhz: float

    def __post_init__(self) -> None:
        check_name("name", self.name)
        whole("vcpus", self.vcpus, 1, 4096)
        whole("memory_mib", self.memory_mib, 1, 1 << 40)
        positive("max_mhz", self.max_mhz)


@dataclass(frozen=True, slots=True)
class BatchTerms:
    """How the manager of a batch environment asks for units and gives them back (phoenixcloud.txt section 5.2): the
    threshold ratios of requesting (U) and releasing (V), the elastic factor (G), and what becomes of jobs whose units
    are taken back."""

    request_ratio: float = 1.2
    release_ratio: float = 0.2
    elastic_factor: float = 0.5
    on_reclaim: OnReclaim = OnReclaim.SUSPEND

    def __post_init__(self) -> None:
        for key in ("request_ratio", "release_ratio"):
            not_negative(key, getattr(self, key))
            if getattr(self, key) > RATIO_MAX:
                raise InvalidValue(key, getattr(self, key), f"at most {RATIO_MAX:g}")
        if self.release_ratio >= self.request_ratio:
            raise InvalidValue("release_ratio", self.release_ratio, f"below request_ratio = {self.request_ratio:g}")
        if not 0.0 < self.elastic_factor < 1.0:
            raise InvalidValue("elastic_factor", self.elastic_factor, "above 0 and below 1")


@dataclass(frozen=True, slots=True)
class WebTerms:
    """How the manager of a web environment adjusts the number of instances (phoenixcloud.txt section 6.4): one more
    when the mean CPU use of all of them over `over_s` seconds is above `add_above`, one less when it is below
    `remove_below` (n-1)/n, n being their number."""

    add_above: float = 0.8
    remove_below: float = 0.8
    over_s: float = 20.0

    def __post_init__(self) -> None:
        for key in ("add_above", "remove_below"):
            if not 0.0 < getattr(self, key) <= 1.0:
                raise InvalidValue(key, getattr(self, key), "above 0 and at most 1")
        if self.remove_below > self.add_above:
            raise InvalidValue("remove_below", self.remove_below, f"at most add_above = {self.add_above:g}")
        positive("over_s", self.over_s)


@dataclass(frozen=True, slots=True)
class AssuranceTerms:
    """What an agreement says of assurance (statistical-assurance.txt sections 3 to 5): shares of classes of service, of
    the demand that is announced for every slot of the calendar, in units. demand: empty where it is made from what was
    measured of the environment when it asks. It holds from `start_s` until `end_s` (None: without end)."""

    shares: tuple[Share, ...]
    demand: tuple[SlotDemand, ...] = ()
    start_s: float = 0.0
    end_s: float | None = None
    calendar: Calendar = Calendar.HOUR_OF_DAY
    slot_s: float = 3_600.0
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if not self.shares:
            raise InvalidValue("shares", 0, "at least one share")
        if not self.timezone or len(self.timezone) > ZONE_LENGTH_MAX:
            raise InvalidValue("timezone", self.timezone[:ZONE_LENGTH_MAX], "the name of a time zone")
        demand = self.demand or (SlotDemand((1.0,)),) * slots_in(self.calendar, self.slot_s)
        self.reservation("checked", demand)

    @property
    def slots(self) -> int:
        """How many slots its calendar has."""
        return slots_in(self.calendar, self.slot_s)

    @property
    def guaranteed(self) -> int | None:
        """How many of the first units are of class guaranteed (None: all that there are)."""
        units = 0
        for share in self.shares:
            if share.service_class is not ServiceClass.GUARANTEED:
                break
            if share.units is None:
                return None
            units += share.units
        return units

    def reservation(self, name: str, demand: tuple[SlotDemand, ...] = ()) -> Reservation:
        """Return the reservation of the environment of that name: its own demand, else `demand`, in units of its
        agreement. Raises `InvalidValue` if there is none."""
        each = (ResourceDemand(SERVERS, self.demand or demand),)
        return Reservation(
            name,
            each,
            self.shares,
            start_s=self.start_s,
            end_s=self.end_s,
            calendar=self.calendar,
            slot_s=self.slot_s,
            timezone=self.timezone,
        )


@dataclass(frozen=True, slots=True)
class Scheduling:
    """The placement policy that schedules an environment's workloads on its nodes, and its parameters. Not used with
    granularity `vm`: VMs of several parties share nodes, and the provider's policy places them."""

    policy: str = "first-fit"
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of one environment.

    owner: the service provider, the part of a broker user `owner.NAME` after the dot. model: a registered coordination
    policy. lower: units that only it or its partner may have. upper: units up to which it and its partner come first
    (None: undefined). lease_s: the lease unit, the period of its timers. coordinated_with: the environment with which
    it shares its units ("": none named). shares: it consents to be coordinated with an environment of another owner
    that names it, or that looks for a partner. notice_s: how long a withdrawn consent holds on. template: of
    granularity VM. os_type, os_version: what its nodes must run ("": any). users: who may submit to it besides its
    owner, as in broker users `user.NAME`. batch, web: the terms of its side; the other is not used. type: the
    registered type of environment ("": the one named as its workload); terms: what that one wants to know. assurance:
    what is reserved for it (None: nothing but its bounds).
    """

    name: str
    owner: str
    workload: WorkloadType
    lower: int
    upper: int | None = None
    model: str = "fb"
    relationship: Relationship = Relationship.AFFILIATED
    granularity: Granularity = Granularity.NODE
    resource: str = ""
    template: VmTemplate | None = None
    os_type: str = ""
    os_version: str = ""
    lease_s: float = 3600.0
    coordinated_with: str = ""
    shares: bool = False
    notice_s: float = 3600.0
    setup: Setup = field(default_factory=Setup)
    scheduling: Scheduling = field(default_factory=Scheduling)
    users: tuple[str, ...] = ()
    batch: BatchTerms = field(default_factory=BatchTerms)
    web: WebTerms = field(default_factory=WebTerms)
    type: str = ""
    terms: Mapping[str, Any] = field(default_factory=dict)
    assurance: AssuranceTerms | None = None

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_name("owner", self.owner)
        if self.type:
            check_name("type", self.type)
        whole("lower", self.lower, 0, UNITS_MAX)
        if self.upper is not None:
            whole("upper", self.upper, max(1, self.lower), UNITS_MAX)
        if self.resource not in ("", self.granularity.value):
            raise InvalidValue("resource", self.resource, f"{self.granularity.value}, as the granularity says")
        if (self.granularity is Granularity.VM) is not (self.template is not None):
            raise InvalidValue("template", self.template, "a VM template for granularity vm, else nothing")
        if self.granularity is Granularity.VM and (self.setup.policy is not SetupPolicy.NOOP or self.setup.brings):
            raise InvalidValue("setup", self.setup.policy, "noop: each VM starts fresh from its template")
        for key in ("model", "os_type", "os_version"):
            check_label(key, getattr(self, key))
        if self.os_version and not self.os_type:
            raise InvalidValue("os_version", self.os_version, "nothing without os_type")
        if self.coordinated_with:
            check_name("coordinated_with", self.coordinated_with)
        if self.coordinated_with == self.name:
            raise InvalidValue("coordinated_with", self.coordinated_with, "another environment")
        positive("lease_s", self.lease_s)
        not_negative("notice_s", self.notice_s)
        most = None if self.assurance is None else self.assurance.guaranteed
        if most is not None and self.lower > most:
            raise InvalidValue("lower", self.lower, f"at most {most}, the units of a first share of class guaranteed")
        if len(self.users) > USERS_MAX or len(set(self.users)) < len(self.users):
            raise InvalidValue("users", len(self.users), f"at most {USERS_MAX}, each once")
        for user in self.users:
            check_name("users", user)

    @property
    def type_name(self) -> str:
        """The registered type of environment."""
        return self.type or self.workload.value


class EnvironmentState(StrEnum):
    """Where an environment is in its life (phoenixcloud.txt section 4.3)."""

    UNINITIALISED = "uninitialised"  # asked for
    CREATED = "created"  # configured: it may be activated
    RUNNING = "running"  # its lower bound is allotted, it serves
    DEACTIVATED = "deactivated"  # its nodes are given back, its workloads wait
    DESTROYED = "destroyed"
