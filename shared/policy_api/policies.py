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
        """Map a `Snapshot` to (`PlacementDecision`, new state)."""
        ...


class TableCache(Protocol):
    """Where provisioning policies find tables that take long to compute."""

    def __call__(self, spec: Any, /) -> Any:
        """Return the `SizeTable` of a `TableSpec` (daemons.models.deadline.rules), None while it is not available. The
        request is recorded, and the table is computed."""
        ...


class ProvisioningPolicy(AnyPolicy, Protocol):
    """A policy that decides how many nodes are in service, and which."""

    @property
    def covers_all(self) -> bool:
        """Whether its answer stands; else nodes are added for what is of no window's queue."""
        ...

    def decide(self, snapshot: Any, state: Any, params: Mapping[str, Any], table_cache: TableCache) -> tuple[Any, Any]:
        """Map a `Snapshot` to (`ProvisioningDecision`, new state). Pure except for what `table_cache` remembers."""
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
        """Return why an agreement of this model cannot have these bounds ("": it can)."""
        ...

    def firm(self, lower: int, upper: int | None) -> int:
        """Up to how many units an environment with these bounds comes before others."""
        ...

    def decide(self, group: GroupView, moment: Moment) -> GroupSizes:
        """Return the new sizes of a group's parties, as if the provider had no other group. The total for a group never
        exceeds the sum of its parties' upper bounds."""
        ...


class AdmissionPolicy(Protocol):
    """Decides whether a reservation may be admitted beside the existing ones (statistical-assurance.txt, sections 3 to
    5). Pure, without state; found by name in its role's registry.

    `memory` is the value returned last time, None at first and whenever it was dropped: with it the same answer comes
    sooner. It is not kept on disk. `standing` is in the order of admission, so results for the first ones can be reused
    for the next request. A reservation that is being changed is not in it.
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
        """Return the verdict on a request, and the new memory. An admitted reservation breaks no promise that held in a
        slot; one unit more of a resource than is offered would break one. Time before `now_s` is ignored."""
        ...

    def figures(
        self,
        standing: Sequence[Standing],
        pools: Sequence[Pool],
        from_s: float,
        params: Mapping[str, Any],
        memory: Any = None,
    ) -> tuple[tuple[Grid, tuple[SlotFigures, ...]], Any]:
        """Return the needs of the promises in every slot and of every pool, with reservations and pools as at `from_s`,
        and the rest for best effort; and the new memory."""
        ...


@runtime_checkable
class EnvironmentType(Protocol):
    """The type-specific behaviour of an environment (phoenixcloud.txt section 4.3, figure 5): its manager, its
    scheduler and, for web applications, autoscaling and request distribution. Found by name among the entry points
    `trimtab.environments`, created without arguments. It does not handle what all types have in common.

    Pure, without state: the same answer for the same arguments, which it does not change. Terms that it accepts are
    plain data that the bus can carry. It is called in the controller itself, so it must be cheap: O(waiting jobs). An
    error or an impossible answer changes nothing and is reported as the event `coordination-failed`.
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
        """Return the number of units that its manager requests, 0 to `UNITS_MAX`: for jobs at its timer, for web
        applications whenever the demand of their instances has changed. Its model and the provider decide the grant. If
        it owns more, it returns idle units only: a batch environment keeps at least the units that are not idle."""
        ...

    def adjust(self, view: InstancesView, terms: Mapping[str, Any]) -> int:
        """Return the change in instances of a web application: one more (1), one less (-1), or none (0). The result
        always stays between `view.least` and `view.most`. Not called while CPU usage is unknown."""
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
        """Return the probability (0..1) that the objective of a `WindowView` is missed with each number of reference
        nodes from now on; it never rises with their number."""
        ...
