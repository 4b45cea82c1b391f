"""The coordination driver: asks the policies of groups of environments when something has changed and when their timers
fire, and has their answers carried out (phoenixcloud.txt section 5).

Everything that must outlive a controller is in the records of environments and nodes: sizes, who is to have which node,
and since when the timers run. A new leader goes on with the same phase.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from daemons.controller.environments import types as by_type
from daemons.controller.environments.allocation import Allocation, Give
from daemons.controller.environments.groups import CoordinationGroup, Key, grouped, made, of_names
from daemons.controller.environments.inventory import Inventory, UnitsWanted, like, party_of, queue_of
from daemons.controller.environments.reclaim import Preemption
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.environment import NOT_BEGUN, EnvironmentEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.tenancy import runs
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.environment_types.registry import type_of
from daemons.values.settings import ControllerSettings
from shared.base.errors import UnknownPolicy, UnknownType
from shared.policy_api.coordination import GroupView, Moment
from shared.values.agreement import UNITS_MAX, WorkloadType
from shared.values.jobs import JobPhase
from shared.values.scalars import whole

_TIMERS = (Moment.PROVISION, Moment.MANAGE)
_SAYS = {
    WorkloadType.BATCH: (Moment.START, Moment.MANAGE),
    WorkloadType.WEB: (Moment.START, Moment.DEMAND),
}  # when each says what it needs


class Entitlements(Protocol):
    """What groups are entitled to by what was promised to them."""

    def observe(
        self, groups: Iterable[CoordinationGroup], stock: Inventory, wanted: Mapping[str, int], now_s: float
    ) -> None:
        """Take what everybody asks for, may have and has, from now on."""
        ...

    def police(self, group: CoordinationGroup, requested: Sequence[int], now_s: float) -> tuple[int, ...]:
        """Return how many units each party of a group may be given of what it requests."""
        ...

    def ranked(self, groups: Sequence[CoordinationGroup]) -> list[CoordinationGroup]:
        """Return groups in the order in which they get what is theirs by right."""
        ...


class Coordination:
    """Keeps one group for every environment that serves, or pair of them. `units_wanted(name, cluster)`: what the
    instances of a web environment fill; `give(node, environment, now_s)` says who is to have a node. entitlements:
    where admission is configured, what is requested is held to what was reserved."""

    def __init__(
        self,
        cluster: Cluster,
        unit_of_work: UnitOfWork,
        settings: ControllerSettings,
        preemption: Preemption,
        units_wanted: UnitsWanted,
        give: Give,
        entitlements: Entitlements | None = None,
    ) -> None:
        self.cluster, self.unit_of_work, self.settings = cluster, unit_of_work, settings
        gives_notice = entitlements is not None
        self.allocation = Allocation(cluster, unit_of_work, settings.power, preemption, give, gives_notice)
        self._units_wanted, self._give, self._entitlements = units_wanted, give, entitlements
        self._groups: dict[Key, CoordinationGroup] = {}
        self._unknown: set[Key] = set()
        self._wanted: dict[str, int] = {}
        self._asked_by_arrivals: set[str] = set()
        self._loaded = False
        self._due_s = math.inf
        self._pending = False
        self._seen: Inventory | None = None  # the nodes as they stand, while nothing changes them

    @property
    def groups(self) -> list[CoordinationGroup]:
        """All groups, in the order in which they get what they request."""
        return list(self._groups.values())

    # --- what is heard ----------------------------------------------------------------------------------------------

    def changed(self, name: str, now_s: float) -> None:
        """Handle an environment that has begun or ceased to serve, gained or lost its partner, or changed its
        agreement."""
        del now_s
        self._pending = True
        self.unit_of_work.coordinate.add(name)

    def loaded(self, now_s: float) -> None:
        """Start after a new leader has read all records: groups that had begun continue as they were."""
        del now_s
        self._loaded = self._pending = True
        self.unit_of_work.settle_soon()

    def wake(self, now_s: float) -> None:
        """Handle the timer: coordinate at the end of this instant."""
        del now_s
        self._pending = True
        self.unit_of_work.settle_soon()

    # --- converging -------------------------------------------------------------------------------------------------

    def run(self, now_s: float) -> float:
        """Ask whom there is reason to ask, in the order of `Moment`; returns when to look again (inf: when something
        happens)."""
        unit_of_work = self.unit_of_work
        if not unit_of_work.acting:
            return math.inf
        asked = unit_of_work.coordinate | self._arrived()
        look = self._pending or now_s >= self._due_s
        if not (asked or look or unit_of_work.dirty_environments):
            return self._due_s
        unit_of_work.coordinate, self._pending = set(), False
        self._seen = None
        self._regroup(now_s)
        if not self._groups:
            self._due_s = math.inf
            if self._entitlements is not None:
                self._entitlements.observe((), self.allocation.stock(now_s), {}, now_s)
            return math.inf
        if look:
            asked |= self._other_demand()
        self._ask_for_demand(of_names(self.groups, asked), now_s)
        for moment in _TIMERS:
            for group in self.groups:
                if now_s >= group.next_s(moment):
                    self._ask(group, moment, now_s)
        if self._seen is None:  # nobody was asked, or nodes have become free since
            self._share(None, now_s)
        if self._entitlements is not None:
            self._seen = self._seen or self.allocation.stock(now_s)
            self._entitlements.observe(self.groups, self._seen, self._wanted, now_s)
        ticks_s = min(group.next_s(moment) for group in self.groups for moment in _TIMERS)
        self._due_s = min(ticks_s, now_s + self.settings.reconcile_s)
        return self._due_s

    def _arrived(self) -> set[str]:
        """Environments whose model is asked when jobs have arrived, and to which some have."""
        if not self._asked_by_arrivals:
            return set()
        entries = self.unit_of_work.dirty_jobs.values()
        return {job.job.environment for job in entries if job.phase is JobPhase.WAITING} & self._asked_by_arrivals

    def _other_demand(self) -> set[str]:
        """Web environments that need another number of units than when it was last looked."""
        names = [entry.name for group in self.groups for entry in group.entries if not entry.batch]
        before, self._wanted = self._wanted, {name: self._units_wanted(name, self.cluster) for name in names}
        return {name for name in names if self._wanted[name] != before.get(name)}

    # --- groups -----------------------------------------------------------------------------------------------------

    def _regroup(self, now_s: float) -> None:
        """Form the current groups; new ones begin."""
        serving = {name: entry for name, entry in self.cluster.environments.items() if entry.serves}
        self._give_up(serving, now_s)
        before, goes_on, self._loaded = self._groups, self._loaded, False
        self._groups, new, resized = {}, [], []
        for key, entries in grouped(serving).items():
            group = before.get(key) or self._made(key, entries, now_s)
            if group is None:
                continue
            self._groups[key] = group
            if not (group.begun() and (goes_on or key in before)):
                new.append(group)
            elif group.resized():
                resized.append(group)
        self._asked_by_arrivals = {
            name for group in self.groups for name in group.names if group.policy.asked_at_arrivals
        }
        for group in new:
            group.begin(now_s)
            group.resized()  # from here on
        for group in new + resized:
            self._ask(group, Moment.START, now_s)

    def _made(self, key: Key, entries: tuple[EnvironmentEntry, ...], now_s: float) -> CoordinationGroup | None:
        try:
            group = made(entries)
            for entry in entries:
                type_of(entry.agreement)
        except (UnknownPolicy, UnknownType) as problem:
            if key not in self._unknown:
                self._unknown.add(key)
                self.unit_of_work.emit(now_s, "coordination-failed", entries[0].name, f"{problem}")
            return None
        self._unknown.discard(key)
        return group

    def _give_up(self, serving: Mapping[str, EnvironmentEntry], now_s: float) -> None:
        """Take all units from environments that do not serve, and nodes from environments whose operating system they
        no longer run."""
        for name, entry in self.cluster.environments.items():
            if name not in serving and (entry.size or entry.begun):
                if entry.size:
                    self.unit_of_work.emit(now_s, "environment-sized", name, f"{entry.size} to 0: it does not serve")
                entry.size, entry.started_s = 0, NOT_BEGUN
                self.unit_of_work.change_environment(entry)
        for node in self.cluster.nodes.values():
            if node.given and (node.given not in serving or not _fits(node, serving[node.given])):
                self._give(node, "", now_s)

    # --- asking -----------------------------------------------------------------------------------------------------

    def _ask(self, group: CoordinationGroup, moment: Moment, now_s: float) -> None:
        """Ask a group's policy and carry out its answer."""
        if moment in _TIMERS:
            group.fired(moment, now_s)
        if moment is not Moment.DEMAND:
            for entry in group.entries:
                self.unit_of_work.change_environment(entry)
        self._request(group, moment, now_s)
        self._share(group if moment is Moment.PROVISION else None, now_s)

    def _ask_for_demand(self, groups: Sequence[CoordinationGroup], now_s: float) -> None:
        """Ask groups for what they need now. Slots of many reservations end together: units are shared once for all of
        these."""
        if self._entitlements is None:
            for group in groups:
                self._ask(group, Moment.DEMAND, now_s)
            return
        for group in groups:
            self._request(group, Moment.DEMAND, now_s)
        if groups:
            self._share(None, now_s)

    def _request(self, group: CoordinationGroup, moment: Moment, now_s: float) -> None:
        """Have a group's policy say what it is to have, as far as it is entitled to that."""
        answer = self._answer(group, moment, now_s)
        if answer is not None:
            group.requested = answer if self._entitlements is None else self._entitlements.police(group, answer, now_s)

    def _share(self, due: CoordinationGroup | None, now_s: float) -> None:
        stock = self._seen = self._seen or self.allocation.stock(now_s)
        groups = self.groups if self._entitlements is None else self._entitlements.ranked(self.groups)
        if self.allocation.share(groups, stock, now_s, due):
            self._seen = None

    def _answer(self, group: CoordinationGroup, moment: Moment, now_s: float) -> tuple[int, ...] | None:
        stock = self._seen = self._seen or self.allocation.stock(now_s)
        try:
            view = self._view(group, stock, moment, now_s)
            answer = group.policy.decide(view, moment)
            for size, _ in zip(answer.sizes, group.entries, strict=True):
                whole("sizes", size, 0, UNITS_MAX)
        except Exception as problem:  # noqa: BLE001 - a policy or type may raise anything: all keep what they have
            who = ", ".join(
                [group.policy.name, *(entry.agreement.type for entry in group.entries if entry.agreement.type)]
            )
            self.unit_of_work.emit(now_s, "coordination-failed", group.name, f"{who}: {problem}")
            return None
        reason = answer.reason or by_type.reasons(view.parties, moment)
        group.why = f"{moment.value}: {reason}" if reason else moment.value
        return self._with_pending(group, moment, answer.sizes)

    def _view(self, group: CoordinationGroup, stock: Inventory, moment: Moment, now_s: float) -> GroupView:
        """Return a group as its policy sees it. Jobs that came in at this instant are included except at timers."""
        parties = []
        for entry in group.entries:
            node = like(entry, self.cluster, stock)
            queue = queue_of(entry, self.cluster, node, now_s, arrived=moment not in _TIMERS)
            party = party_of(entry, self.cluster, stock, self._units_wanted, queue)
            parties.append(by_type.managed(entry, party, node, moment, self.cluster, now_s))
        return GroupView(tuple(parties))

    @staticmethod
    def _with_pending(group: CoordinationGroup, moment: Moment, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Keep requesting what an environment still waits for, unless it states its needs again at this moment or must
        shrink."""
        return tuple(
            max(size, requested) if size >= entry.size and moment not in _SAYS[entry.agreement.workload] else size
            for entry, size, requested in zip(group.entries, sizes, group.requested, strict=True)
        )


def _fits(node: NodeEntry, entry: EnvironmentEntry) -> bool:
    facts = node.inventory
    return facts is None or runs(entry.agreement, (facts.os_type, facts.os_version))
