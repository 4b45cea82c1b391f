"""What a policy must do, role by role; `sim_backend.conformance` checks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from shared.policy_api.admission import Grid, Pool, SlotFigures, Standing, Verdict
from shared.policy_api.coordination import Asked, GroupSizes, GroupView, InstancesView, ManagerView, Moment
from shared.values.agreement import Scheduling, WorkloadType
from shared.values.web_app import Distribution


@dataclass(frozen=True, slots=True)
class Needs:
    """What a policy demands of the data before it may act: the share of nodes reporting (0..1) and the age in
    seconds of the oldest report of an up node."""

    reporting_frac: float = 0.0
    report_age_s: float = float("inf")


class AnyPolicy(Protocol):
    """A pure decision of any role. One class per policy, without state of its own; found by name in its role's
    registry.

    `decide` never changes its arguments, uses no clock, I/O or global random state and returns the same for the same
    arguments. `state` is what it returned last time (None the first time) and must survive a round trip through
    msgpack.
    """

    @property
    def name(self) -> str:
        """The name in configuration and on the command line."""
        ...

    @property
    def needs(self) -> Needs:
        """Without these the loop keeps the last decision and says why."""
        ...

    @property
    def event_driven(self) -> bool:
        """Whether it also acts when a job arrives or ends, not only at each cycle; sizes change at cycles only."""
        ...

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` for parameters that it does not know or cannot use; asked once, at start-up."""
        ...


class Policy(AnyPolicy, Protocol):
    """A policy that names every workload it does not serve in a refusal."""

    def decide(self, snapshot: Any, state: Any, params: Mapping[str, Any]) -> tuple[Any, Any]:
        """From a `Snapshot` to (`PlacementDecision`, new state)."""
        ...


class TableCache(Protocol):
    """Where provisioning policies find tables that take long to compute."""

    def __call__(self, spec: Any, /) -> Any:
        """The `SizeTable` of a `TableSpec` (daemons.models.deadline.rules), None while it is not there yet; that it
        was asked for is noted, so that it will be."""
        ...


class ProvisioningPolicy(AnyPolicy, Protocol):
    """A policy that decides how many nodes are in service, and which."""

    @property
    def covers_all(self) -> bool:
        """Whether its answer stands; else nodes are added for what is of no window's queue."""
        ...

    def decide(self, snapshot: Any, state: Any, params: Mapping[str, Any], table_cache: TableCache) -> tuple[Any, Any]:
        """From a `Snapshot` to (`ProvisioningDecision`, new state). Pure but for what `table_cache` remembers."""
        ...


class CoordinationPolicy(Protocol):
    """How many units each environment of a group has (phoenixcloud.txt section 5). Pure, without state, and cheap: it
    is asked in the controller itself, at every change of a web environment's demand. Found by name in its role's
    registry.
    """

    @property
    def name(self) -> str:
        """The name in agreements and scenarios: their `model`."""
        ...

    @property
    def asked_at_arrivals(self) -> bool:
        """Whether it is asked (DEMAND) when jobs have arrived, too."""
        ...

    def objection(self, lower: int, upper: int | None) -> str:
        """Why an agreement of this model cannot have these bounds ("": it can)."""
        ...

    def firm(self, lower: int, upper: int | None) -> int:
        """Up to how many units an environment with these bounds comes before others."""
        ...

    def decide(self, group: GroupView, moment: Moment) -> GroupSizes:
        """The sizes that the parties of a group are to have from now on, as if the provider had no other group. It
        never names more units for a group than the upper bounds of its parties together."""
        ...


class AdmissionPolicy(Protocol):
    """Whether a reservation may stand beside those that do (statistical-assurance.txt, sections 3 to 5). Pure, without
    state; found by name in its role's registry.

    `memory` is what it returned last time, None at first and whenever that was dropped: with it the same answer comes
    sooner. It is not kept on disk. `standing` comes in the order in which they were admitted, so that what is known of
    the first ones serves for the next request; a reservation that is to be changed is not among them.
    """

    @property
    def name(self) -> str:
        """The name in configuration and on the command line."""
        ...

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` for parameters that it does not know or cannot use; asked once, at start-up."""
        ...

    def admit(
        self,
        request: Standing,
        standing: Sequence[Standing],
        pools: Sequence[Pool],
        now_s: float,
        params: Mapping[str, Any],
        memory: Any = None,
    ) -> tuple[Verdict, Any]:
        """What becomes of a request, and the new memory. With what is admitted every promise that held in a slot holds
        there still; one unit more of a resource than is offered would break one. Time before `now_s` counts for
        nothing."""
        ...

    def figures(
        self,
        standing: Sequence[Standing],
        pools: Sequence[Pool],
        from_s: float,
        params: Mapping[str, Any],
        memory: Any = None,
    ) -> tuple[tuple[Grid, tuple[SlotFigures, ...]], Any]:
        """What the promises need in every slot and of every pool, as reservations and pools are at `from_s`, and what
        they leave for best effort; and the new memory."""
        ...


@runtime_checkable
class EnvironmentType(Protocol):
    """What a type of environment does its own way (phoenixcloud.txt section 4.3, figure 5): its manager, its scheduler
    and, for web applications, how instances are adjusted and requests distributed. Found by name among the entry points
    `trimtab.environments`, made without arguments. What all types have in common is none of its business.

    Pure, without state: the same answer for the same arguments, which it does not change; terms that it accepts are
    plain data that the bus can carry. It is asked in the controller itself, so it must be cheap: O(jobs that wait).
    What raises, or answers what cannot be, changes nothing and is told as the event `coordination-failed`.
    """

    @property
    def name(self) -> str:
        """The name in agreements: their `workload`."""
        ...

    @property
    def workload(self) -> WorkloadType:
        """What is submitted to it, jobs or web applications, and on which side of a pair it shares its units."""
        ...

    @property
    def scheduling(self) -> Scheduling:
        """The scheduler where the agreement names none."""
        ...

    @property
    def distribution(self) -> Distribution:
        """How requests are distributed where the application does not say."""
        ...

    @property
    def terms(self) -> Mapping[str, str]:
        """The keys that an agreement's table `[terms]` may have, and what each means: unit, default."""
        ...

    def check_terms(self, terms: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` with one problem for each term of an agreement that it does not know, cannot use, or
        misses."""
        ...

    def manage(self, view: ManagerView, terms: Mapping[str, Any]) -> Asked:
        """How many units its manager wants to have, 0 to `UNITS_MAX`: for jobs at its timer, for web applications
        whenever what their instances fill has changed; what it is granted is the business of its model and the
        provider. Where it owns more than that, it gives back idle units alone: of a batch environment never less than
        what is not idle."""
        ...

    def adjust(self, view: InstancesView, terms: Mapping[str, Any]) -> int:
        """One instance of a web application more (1), one less (-1), or as many as there are (0): never away from
        what lies between `view.least` and `view.most`. Not asked where the use of CPU is not known."""
        ...


class Analyser(Protocol):
    """The objective analyser of a deadline window (batch-provisioning.txt section 3.2.3): metric in, probability of
    breach by number of servers out. Pure; found by name among the entry points `trimtab.analysers`."""

    @property
    def name(self) -> str:
        """The name in the configuration of windows."""
        ...

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` for parameters that it does not know or cannot use; asked once, at start-up."""
        ...

    def breach(self, window: Any, servers: Sequence[int], params: Mapping[str, Any]) -> Sequence[float]:
        """Of a `WindowView`: the probability (0..1) that its objective is missed with each number of reference nodes
        from now on; never rises with their number."""
        ...
