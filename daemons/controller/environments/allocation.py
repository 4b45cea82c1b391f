"""Shares the provider's units between groups: asks the arbiter, sets what environments are to have, and which nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from daemons.controller.environments.groups import CoordinationGroup
from daemons.controller.environments.inventory import (
    Inventory,
    is_wanted,
    nodes_for,
    slots,
    stock_of,
    tenants,
    vm_room,
    vms_used,
)
from daemons.controller.environments.node_selection import (
    RunningJob,
    Unit,
    arriving,
    claims_first,
    evicted,
    exchanges,
    fitted,
    idle_first,
    pending,
)
from daemons.controller.environments.reclaim import Preemption
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.models.coordination.granting import grant
from daemons.values.settings import PowerSettings
from shared.policy_api.coordination import Claim, Grants, Moment
from shared.values.agreement import VmTemplate
from shared.values.jobs import JobPhase

WAITS = "waits for"
Give = Callable[[NodeEntry, str, float], None]


class Allocation:
    """Gives groups what they request, as far as they may have it. `give(node, environment, now_s)` assigns a node to an
    environment ("": none). gives_notice: notify groups of units that they must give back at their next timer."""

    def __init__(
        self,
        cluster: Cluster,
        unit_of_work: UnitOfWork,
        power: PowerSettings,
        preemption: Preemption,
        give: Give,
        gives_notice: bool,
    ) -> None:
        self.cluster, self.unit_of_work, self.power = cluster, unit_of_work, power
        self.preemption, self._give = preemption, give
        self.gives_notice = gives_notice

    def stock(self, now_s: float) -> Inventory:
        """Return the current inventory of nodes."""
        return stock_of(self.cluster, self.power, now_s)

    def share(
        self, groups: Sequence[CoordinationGroup], stock: Inventory, now_s: float, due: CoordinationGroup | None = None
    ) -> bool:
        """Let every group have what it may; `due`: a group whose timer has fired, which gives back what it owes.
        Returns whether any node changes hands: the stock is another one then."""
        stock = stock.copy()
        self._share_vms([group for group in groups if not group.by_node], groups, stock, now_s, due)
        return self._share_nodes([group for group in groups if group.by_node], groups, stock, now_s, due)

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _share_nodes(
        self,
        groups: Sequence[CoordinationGroup],
        everyone: Sequence[CoordinationGroup],
        stock: Inventory,
        now_s: float,
        due: CoordinationGroup | None,
    ) -> bool:
        if not groups:
            return False
        kept = self._kept_for_vms([group for group in everyone if not group.by_node], stock)
        pool = [unit for unit in stock.free if unit.name in kept]
        stock.free = [unit for unit in stock.free if unit.name not in kept]
        grants = grant([self._claim(group, stock) for group in groups], stock.counted(stock.free))
        moving = _Moves()
        for index, group in enumerate(groups):
            self._give_notice(group, 0 if group is due else sum(grants.owed[index]), now_s)
            for kind, units in enumerate(grants.taken[index]):
                stock.free += self._idle_of(group, kind, units, stock)
            if group is due:
                for kind, units in enumerate(grants.owed[index]):
                    moving.left += self._forced_out(group, kind, units, stock, now_s)
        moving.left += [unit for unit in stock.free if self.cluster.nodes[unit.name].given]
        for index, group in enumerate(groups):
            self._allot(group, grants, index, stock, moving, now_s)
        moves = moving.ends()
        pool += [unit for unit in stock.free if unit.name not in moves]
        settled = {name: [unit for unit in units if unit.name not in moves] for name, units in stock.held.items()}
        moves |= dict(exchanges(settled, pool))
        for name, environment in moves.items():
            self._give(self.cluster.nodes[name], environment, now_s)
        return bool(moves)

    def _claim(self, group: CoordinationGroup, stock: Inventory) -> Claim:
        units = [unit for name in group.names for unit in stock.held.get(name, ())]
        return Claim(
            group.name,
            group.first,
            group.firm,
            stock.counted(units),
            stock.counted(unit for unit in units if unit.idle),
            group.requested_units,
            tuple(all(each) for each in zip(*(stock.fits(entry.agreement) for entry in group.entries), strict=True)),
        )

    def _idle_of(self, group: CoordinationGroup, kind: int, count: int, stock: Inventory) -> list[Unit]:
        """So many idle nodes of a class are not the group's any more, the batch environment's first."""
        gone: list[Unit] = []
        for entry in group.entries if count else ():
            held = [unit for unit in stock.held.get(entry.name, ()) if unit.kind == kind]
            gone += _out(stock, entry.name, idle_first(held, entry.name)[: count - len(gone)])
        return gone

    def _forced_out(
        self, group: CoordinationGroup, kind: int, count: int, stock: Inventory, now_s: float
    ) -> list[Unit]:
        """Take this many nodes of a class from the group, including nodes with running workloads."""
        gone: list[Unit] = []
        for entry in group.entries if count else ():
            held = [unit for unit in stock.held.get(entry.name, ()) if unit.kind == kind]
            gone += _out(stock, entry.name, self._leaving(entry, held, count - len(gone), now_s, forced=True))
        return gone

    def _leaving(
        self, entry: EnvironmentEntry, held: Sequence[Unit], count: int, now_s: float, *, forced: bool = False
    ) -> list[Unit]:
        """Return the nodes that an environment gives up: idle ones, then those without any assigned workload, then
        those of a batch environment's jobs, which are preempted. A web environment gives up nodes with instances only
        when `forced`, or when it may not have as many."""
        if count <= 0:
            return []
        gone = idle_first(held, entry.name)[:count]
        more = count - len(gone)
        if more <= 0:
            return gone
        busy = {unit.name: unit for unit in held if not unit.idle}
        if entry.batch:
            jobs, names = evicted(tenants(entry, self.cluster), sorted(busy), more)
            self.preemption.jobs(entry, jobs, now_s)
        else:
            names = self._web_nodes(busy, forced=forced or self._fills(entry))[:more]
            self.preemption.instances(names, entry.name, now_s)
        return gone + [busy[name] for name in names[:more]]

    def _fills(self, entry: EnvironmentEntry) -> bool:
        """Return whether the applications of a web environment vacate none of its nodes: they want more instances than
        it has units, for example when a replaced node comes back."""
        apps = (web for web in self.cluster.web.values() if web.app.environment == entry.name)
        return sum(web.wanted_instances or 0 for web in apps) > entry.size

    def _web_nodes(self, busy: Iterable[str], *, forced: bool) -> tuple[str, ...]:
        nodes = [self.cluster.nodes[name] for name in busy]
        left = [node for node in nodes if forced or not is_wanted(node)]
        return tuple(
            node.name for node in sorted(left, key=lambda node: (is_wanted(node), len(node.claimed), node.name))
        )

    def _allot(
        self, group: CoordinationGroup, grants: Grants, index: int, stock: Inventory, moving: _Moves, now_s: float
    ) -> None:
        """Size a group's environments, and say which nodes they give up and which ones they get."""
        names = frozenset(arriving(stock.free, group.names, grants.given[index]))
        spare = [unit for unit in stock.free if unit.name in names] if names else []
        stock.free = [unit for unit in stock.free if unit.name not in names] if names else stock.free
        held = [len(stock.held.get(name, ())) for name in group.names]
        total = sum(held) + len(spare)
        self._size(group, held, total, now_s)
        for entry in group.entries:
            own = stock.held.get(entry.name, [])
            spare += _out(stock, entry.name, self._leaving(entry, own, len(own) - entry.size, now_s))
        missing = min(group.requested_units, group.lower) - total
        for party in _web_first(group):
            entry = group.entries[party]
            lacks = entry.size - len(stock.held.get(entry.name, ()))
            if missing > 0 and not entry.batch and lacks > len(spare) and group.batch is not None:
                spare += self._from_partner(group, min(missing, lacks - len(spare)), stock, now_s)
            spare = claims_first(spare, entry.name)
            comes, spare = spare[: max(0, lacks)], spare[max(0, lacks) :]
            stock.held.setdefault(entry.name, []).extend(comes)
            moving.to(entry.name, comes)
        moving.left += spare

    def _from_partner(self, group: CoordinationGroup, count: int, stock: Inventory, now_s: float) -> list[Unit]:
        """Take nodes of the batch partner after nodes were lost and there are no others: what the group has of its
        lower bound goes to the web environment first."""
        assert group.batch is not None
        batch = group.entries[group.batch]
        return _out(stock, batch.name, self._leaving(batch, stock.held.get(batch.name, []), count, now_s))

    # --- VMs --------------------------------------------------------------------------------------------------------

    def _share_vms(
        self,
        groups: Sequence[CoordinationGroup],
        everyone: Sequence[CoordinationGroup],
        stock: Inventory,
        now_s: float,
        due: CoordinationGroup | None,
    ) -> None:
        """Share the VMs of environments: slots on nodes of no environment. One template at a time."""
        templates = {group.entries[0].agreement.template: None for group in groups}
        for template in templates:
            if template is None:
                continue
            alike = [group for group in groups if group.entries[0].agreement.template == template]
            free = self._vm_slots(template, groups, everyone, stock)
            grants = grant([self._vm_claim(group) for group in alike], (free,))
            for index, group in enumerate(alike):
                self._give_notice(group, 0 if group is due else grants.owed[index][0], now_s)
                back = grants.taken[index][0] + (grants.owed[index][0] if group is due else 0)
                total = sum(group.sizes) - back + grants.given[index][0]
                self._size(group, group.sizes, total, now_s)
                for entry in group.entries:
                    self._within_quota(entry, now_s)

    def _vm_slots(
        self,
        template: VmTemplate,
        groups: Sequence[CoordinationGroup],
        everyone: Sequence[CoordinationGroup],
        stock: Inventory,
    ) -> int:
        """Return how many VMs of a template fit in addition to all that environments have, on the nodes that are not
        kept for lower bounds of others."""
        promised = sum(
            max(0, group.lower - sum(len(stock.held.get(name, ())) for name in group.names))
            for group in everyone
            if group.by_node
        )
        room = vm_room(self.cluster, stock, template)[promised:]
        taken = sum(sum(group.sizes) * _part(group.entries[0].agreement.template, template) for group in groups)
        return max(0, int(sum(room) - taken))

    def _vm_claim(self, group: CoordinationGroup) -> Claim:
        size = sum(group.sizes)
        used = sum(min(entry.size, vms_used(entry, self.cluster)) for entry in group.entries)
        return Claim(group.name, group.first, group.firm, (size,), (size - used,), group.requested_units, (True,))

    def _within_quota(self, entry: EnvironmentEntry, now_s: float) -> None:
        """Preempt jobs where more VMs run than there are units."""
        if not entry.batch:
            return
        runs = [job for job in self.cluster.jobs_of(entry.name) if job.phase is JobPhase.RUNNING]
        more = sum(job.job.instances for job in runs) - entry.size
        if more > 0:
            crowd = [
                RunningJob(job.job.name, job.wanted_s, job.order, frozenset(one.vm for one in job.instances))
                for job in runs
            ]
            jobs, _ = evicted(crowd, [one.vm for job in runs for one in job.instances], more)
            self.preemption.jobs(entry, jobs, now_s)

    def _kept_for_vms(self, groups: Sequence[CoordinationGroup], stock: Inventory) -> frozenset[str]:
        """Return nodes of no environment that are reserved for environments whose units are VMs: enough for the VMs
        that they have or are guaranteed."""
        kept = 0
        roomy: dict[str, int] = {}
        for template in {group.entries[0].agreement.template: None for group in groups}:
            if template is None:
                continue
            alike = [group for group in groups if group.entries[0].agreement.template == template]
            vms = sum(max(group.lower, sum(group.sizes)) for group in alike)
            kept += nodes_for(vm_room(self.cluster, stock, template), vms)
            for unit in stock.free:
                facts = self.cluster.nodes[unit.name].inventory
                memory_mib = template.memory_mib + self.cluster.vm_overhead_mib
                roomy[unit.name] = slots(facts, memory_mib, template.max_mhz) if facts is not None else 0
        order = sorted(stock.free, key=lambda unit: (-roomy.get(unit.name, 0), unit.empty, unit.name))
        return frozenset(unit.name for unit in order[:kept])

    # --- sizes ------------------------------------------------------------------------------------------------------

    def _size(self, group: CoordinationGroup, held: Sequence[int], total: int, now_s: float) -> None:
        """Note how many units each environment of a group is to have, of `total` that the group has."""
        web, batch = group.web, group.batch
        sizes = fitted(group.requested, held, total, group.lower, 0 if web is None else web)
        for entry, size in zip(group.entries, sizes, strict=True):
            if size != entry.size:
                self.unit_of_work.emit(now_s, "environment-sized", entry.name, f"{entry.size} to {size}: {group.why}")
                entry.size = size
                entry.adjustments += 1
                self.unit_of_work.change_environment(entry)
                self.unit_of_work.place = True
        group.requested = pending(group.requested, sizes, group.firm, batch)
        if web is not None:
            self._tell_short(group, group.entries[web], group.requested[web] - sizes[web], now_s)

    def _give_notice(self, group: CoordinationGroup, owed: int, now_s: float) -> None:
        """Report that units in use are reclaimed for environments that are entitled to them."""
        if not self.gives_notice or owed == group.owed:
            return
        group.owed = owed
        if owed:
            by_s = group.next_s(Moment.PROVISION)
            told = f"{owed} units within {max(0.0, by_s - now_s):.0f} s: others are entitled to them"
            self.unit_of_work.emit(now_s, "units-reclaimed", group.name, told)

    def _tell_short(self, group: CoordinationGroup, entry: EnvironmentEntry, short: int, now_s: float) -> None:
        if short == group.short:
            return
        group.short = short
        told = f"{WAITS} {short} more units, {entry.size} granted" if short else ""
        if short:
            self.unit_of_work.emit(now_s, "environment-waiting", entry.name, told)
        if entry.running and (short or entry.detail.startswith(WAITS)):
            entry.detail = told
            self.unit_of_work.change_environment(entry)


class _Moves:
    """Which nodes change hands. left: those that nobody is to have unless they are given to somebody after all."""

    def __init__(self) -> None:
        self.left: list[Unit] = []
        self._to: dict[str, str] = {}

    def to(self, environment: str, units: Sequence[Unit]) -> None:
        """Assign these units to the environment."""
        self._to.update((unit.name, environment) for unit in units)

    def ends(self) -> dict[str, str]:
        """Return which environment gets each unit, in the order of decision."""
        return {unit.name: "" for unit in self.left} | self._to


def _out(stock: Inventory, environment: str, units: list[Unit]) -> list[Unit]:
    """They are not the environment's any more."""
    names = {unit.name for unit in units}
    if names:
        stock.held[environment] = [unit for unit in stock.held[environment] if unit.name not in names]
    return units


def _web_first(group: CoordinationGroup) -> list[int]:
    return sorted(range(len(group.entries)), key=lambda party: group.entries[party].batch)


def _part(other: VmTemplate | None, template: VmTemplate) -> float:
    """Return how many VMs of a template take the capacity of one of another template."""
    assert other is not None
    return max(other.memory_mib / max(1, template.memory_mib), other.max_mhz / template.max_mhz)
