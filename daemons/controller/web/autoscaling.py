"""Web instances between cycles: one more or one less as the use of their CPU asks (phoenixcloud.txt section 6.4); and
how many units a web environment needs for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.queries import is_busy
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.web_app import CpuReading, WebEntry
from daemons.controller.web.snapshot import flow_columns, web_columns
from daemons.decision.pipeline import DecideOutcome
from daemons.environment_types.registry import replica_step
from daemons.models.adjustment import adjusted, bounds
from daemons.models.web_utility import app_utilities
from daemons.values.settings import Automation, ControllerSettings
from shared.base.errors import InvalidValue
from shared.policy_api.coordination import InstancesView
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode
from shared.values.agreement import WebTerms
from shared.values.jobs import workload_of
from shared.values.nodes import Node, NodeCondition
from shared.values.vms import VmState
from shared.values.web_app import WebApp

STALE_REPORTS = 2.0  # older than so many report periods, a reading is not of now
SPAN_REPORTS = 1.5  # readings may span so many report periods less than a window
ROUNDING = 1e-9
EARLY_FRAC = 1e-6  # of a window: timers and clocks are rounded

_NO_NODE = Node("unit", 1, 1.0, memory_mib=0)

Apply = Callable[[Sequence[Change], float], Sequence[object]]


class Autoscaler:
    """Looks at every application whose instances it adjusts. `apply` makes changes the desired state and returns those
    that it has dropped."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings, apply: Apply) -> None:
        self.cluster, self.unit_of_work, self.settings, self._apply = cluster, unit_of_work, settings, apply
        self._failed: dict[str, str] = {}  # by application: what was told last of a type that failed

    def needed(self) -> bool:
        """Return whether any application's instances are adjusted."""
        return any(web.adjusts and not web.removed for web in self.cluster.web.values())

    def decided(self, outcome: DecideOutcome | None) -> None:
        """Handle a cycle's decision: where the policy predicts response times, its choice is the number of instances
        that are wanted now. One that is wanted but not placed yet stays wanted, unless the policy stops others."""
        if outcome is None or outcome.skipped or outcome.provisioning is None:
            return
        outlook = outcome.placement.outlook
        predicted = frozenset(outlook.names) if outlook is not None else frozenset()
        changes = outcome.placement.changes
        fewer = {workload_of(change.workload)[0] for change in changes if change.kind is ChangeKind.STOP}
        for name, web in self.cluster.web.items():
            if not (web.adjusts and web.app.flows) or web.removed:
                continue
            web.modelled = name in predicted
            web.chosen = len(self.cluster.replicas_wanted(name)) if web.modelled else None
            if web.chosen is not None and (name in fewer or web.chosen > (web.wanted_instances or 0)):
                self._want(web, max(web.chosen, web.app.min_instances))

    def tick(self, now_s: float, on: bool) -> None:
        """Look at all applications; `on`: decisions are taken and may be carried out."""
        self._failed = {app: told for app, told in self._failed.items() if app in self.cluster.web}
        for name, web in sorted(self.cluster.web.items()):
            if not web.adjusts or web.removed:
                continue
            if not on or not self._runs(web.app):
                web.looked = {}
                continue
            self._look(web, self.cluster.replicas_wanted(name), now_s)

    def _runs(self, app: WebApp) -> bool:
        environment = self.cluster.environments.get(app.environment)
        return environment.running if environment is not None else not app.environment

    # --- one application --------------------------------------------------------------------------------------------

    def _look(self, web: WebEntry, replicas: list[JobEntry], now_s: float) -> None:
        web.fit()
        terms = self._terms(web.app)
        use = self._use(web, replicas, terms, now_s)
        if use is None:
            return
        count, wanted = len(replicas), web.wanted_instances or 0
        least, most = self._between(web, replicas)
        step = -1 if count > max(wanted, least) else self._step(web, count, use, (least, most), now_s)
        if step > 0 and count >= wanted:
            self._add(web, count, use, terms, now_s)
        elif step < 0 and count >= wanted:
            self._remove(web, replicas, use, terms, now_s)
        elif count < wanted and self._step(web, wanted, use * count / wanted, (least, most), now_s) < 0:
            self._want(web, wanted - 1)  # what could not be started yet would be too many by now

    def _step(self, web: WebEntry, count: int, use: float, between: tuple[int, int], now_s: float) -> int:
        """Return the step that the type of its environment chooses: one more than `count`, one less, or no change; no
        change if the type fails."""
        view = InstancesView(count, use, self._terms(web.app), *between)
        environment = self.cluster.environments.get(web.app.environment)
        if environment is None:
            return adjusted(count, use, view.terms, *between)
        try:
            step = replica_step(environment.agreement, view)
        except Exception as problem:  # noqa: BLE001 - a type may raise anything: there are as many as there were then
            told = f"{web.app.name}: type {environment.agreement.type_name}: {problem}"
            if self._failed.get(web.app.name) != told:
                self.unit_of_work.emit(now_s, "coordination-failed", environment.name, told)
            self._failed[web.app.name] = told
            return 0
        self._failed.pop(web.app.name, None)
        return step

    def _add(self, web: WebEntry, count: int, use: float, terms: WebTerms, now_s: float) -> None:
        if self.settings.automation is not Automation.AUTO and self.settings.hold_starts:
            return
        self._want(web, count + 1)
        self.unit_of_work.place = True
        told = f"{count} to {count + 1}: mean CPU use {use:.3f}"
        told += f" above {terms.add_above:g}" if use > terms.add_above else ""
        self.unit_of_work.emit(now_s, "web-instance-added", web.app.name, told)

    def _remove(self, web: WebEntry, replicas: list[JobEntry], use: float, terms: WebTerms, now_s: float) -> None:
        if self.settings.automation is not Automation.AUTO:
            return
        count = len(replicas)
        below = terms.remove_below * (count - 1) / count
        replica = min(replicas, key=self._spared)
        numbers = (("use_frac", use), ("below_frac", below), ("instances", float(count)))
        change = Change(replica.job.name, replica.revision, ChangeKind.STOP, (), Reason(ReasonCode.ADJUSTMENT, numbers))
        if self._apply((change,), now_s):
            return
        self._want(web, count - 1)
        told = f"{count} to {count - 1}, {replica.job.name}: mean CPU use {use:.3f} below {below:.3f}"
        self.unit_of_work.emit(now_s, "web-instance-removed", web.app.name, told)

    def _spared(self, replica: JobEntry) -> tuple[int, float, int]:
        """Return a sort key: the instance on the node with the fewest VMs first, then the one that was started last."""
        node = self.cluster.nodes.get(replica.allotments[0].node) if replica.allotments else None
        return len(node.claimed) if node is not None else 0, -replica.wanted_s, -replica.order

    def _want(self, web: WebEntry, count: int) -> None:
        if web.wanted_instances == count:
            return
        web.wanted_instances = count
        self.unit_of_work.dirty_web[web.app.name] = web
        if web.app.environment:
            self.unit_of_work.coordinate.add(web.app.environment)

    def _terms(self, app: WebApp) -> WebTerms:
        environment = self.cluster.environments.get(app.environment)
        return environment.agreement.web if environment is not None else WebTerms(over_s=self.settings.web_adjust_s)

    def _between(self, web: WebEntry, replicas: list[JobEntry]) -> tuple[int, int]:
        """Return the fewest and the most instances for the adjustment. The last one is kept where no measurement would
        show that it is needed again."""
        app = web.app
        least = app.min_instances if app.min_instances or self._unasked(web) else 1
        if not app.flows or not web.modelled or web.chosen is None:
            return least, app.max_instances
        nodes = [
            node for replica in replicas if (node := self._node_of(replica)) is not None and node.inventory is not None
        ]
        each = [
            replica.job.speed_on_mhz(node.inventory)
            for replica, node in zip(replicas, nodes, strict=False)
            if node.inventory
        ]
        if not each:
            return least, app.max_instances
        vcpu_mhz = max(node.inventory.core_mhz for node in nodes if node.inventory)
        try:
            model = app_utilities(web_columns([web]), flow_columns([web], self.settings.web_planning), vcpu_mhz)[0]
        except (InvalidValue, ArithmeticError):
            return least, app.max_instances
        return bounds(model, sum(each) / len(each), web.chosen, least, app.max_instances)

    @staticmethod
    def _unasked(web: WebEntry) -> bool:
        """Return whether measurements show that it receives no requests."""
        found = [web.measured(flow) for flow in web.app.flows] or [web.traffic]
        return all(one is not None and one.offered_per_s == 0.0 and one.queued == 0 for one in found)

    # --- readings ---------------------------------------------------------------------------------------------------

    def _use(self, web: WebEntry, replicas: list[JobEntry], terms: WebTerms, now_s: float) -> float | None:
        """Mean part of their CPU that the instances have used over the window that ends now (None: not known, or it is
        not over yet). Without an instance: whether anything is asked for."""
        readings = self._readings(replicas, now_s)
        before, since_s = web.looked, now_s - web.looked_s
        if readings is None or not _same_lives(before, readings):
            web.looked, web.looked_s = readings or {}, now_s
            if readings is None or readings:
                return None
        if since_s < terms.over_s * (1.0 - EARLY_FRAC) or not self._span(before, readings, terms.over_s):
            return None
        web.looked, web.looked_s = readings, now_s
        if not readings:
            return 0.0 if self._unasked(web) or web.measured_at_s is None else float("inf")
        uses = [self._use_of(replica, before, readings) for replica in replicas]
        return sum(uses) / len(uses)

    def _span(self, before: dict[str, CpuReading], now: dict[str, CpuReading], over_s: float) -> bool:
        """Return whether all have reported for the whole window, except for the time between two reports."""
        enough_s = over_s - SPAN_REPORTS * self.settings.report_s
        spans_s = [reading.clock_s - before[vm].clock_s for vm, reading in now.items()]
        return all(span_s > 0.0 and span_s >= enough_s for span_s in spans_s)

    def _readings(self, replicas: list[JobEntry], now_s: float) -> dict[str, CpuReading] | None:
        """Return the counters of all instances, None unless each of them is running and has just reported."""
        found = {}
        for replica in replicas:
            node, instance = self._node_of(replica), replica.instances[0]
            if node is None or node.last is None or is_busy(self.cluster, instance):
                return None
            fresh = now_s - node.seen_s <= STALE_REPORTS * self.settings.report_s
            status = node.vms.get(instance.vm)
            if status is None or status.state is not VmState.RUNNING or not (replica.released and fresh):
                return None
            found[instance.vm] = CpuReading(
                node.name, node.boot_id, status.generation, node.last.clock_s, status.cpu_time_s
            )
        return found

    def _node_of(self, replica: JobEntry) -> NodeEntry | None:
        """Return the node that is up and is the only one that the instance is or may be on."""
        places = replica.instances[0].may_run_on if replica.instances else ()
        node = self.cluster.nodes.get(next(iter(places))) if len(places) == 1 else None
        up = node is not None and node.condition is NodeCondition.UP and node.inventory is not None
        return node if up else None

    def _use_of(self, replica: JobEntry, before: dict[str, CpuReading], now: dict[str, CpuReading]) -> float:
        vm = replica.instances[0].vm
        old, new = before[vm], now[vm]
        node = self.cluster.nodes[new.node]
        elapsed_s = new.clock_s - old.clock_s
        if node.inventory is None:
            return float("nan")
        used_mhz = max(0.0, new.cpu_time_s - old.cpu_time_s) * node.inventory.core_mhz / elapsed_s
        return used_mhz / replica.job.speed_on_mhz(node.inventory)


def _same_lives(before: dict[str, CpuReading], now: dict[str, CpuReading]) -> bool:
    return before.keys() == now.keys() and all(
        (old.node, old.boot_id, old.generation) == (now[vm].node, now[vm].boot_id, now[vm].generation)
        and old.clock_s <= now[vm].clock_s
        for vm, old in before.items()
    )


# --- units -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Bin:
    """A unit that is being filled."""

    memory_mib: float
    cpu_mhz: float
    apps: set[str] = field(default_factory=set)

    def put(self, app: str, memory_mib: float, cpu_mhz: float) -> None:
        """Take one instance in."""
        self.apps.add(app)
        self.memory_mib -= memory_mib
        self.cpu_mhz -= cpu_mhz


def units_wanted(environment: str, cluster: Cluster) -> int:
    """Return how many units the wanted instances of a web environment's applications need together.

    VMs: one each. Nodes: as first-fit packs them by memory and CPU, with no two of one application on a node. Each node
    is sized like the smallest that the environment has (or that exists). 0 without an instance or an environment of
    that name.
    """
    entry = cluster.environments.get(environment)
    apps = [web for web in cluster.web.values() if web.app.environment == environment and not web.removed]
    counts = {web.app.name: web.wanted_instances or 0 for web in apps}
    if entry is None:
        return 0
    if not entry.by_node:
        return sum(counts.values())
    unit = _unit(environment, cluster)
    bins: list[_Bin] = []
    for web in sorted(apps, key=lambda web: web.order):
        needs_mib = web.app.memory_mib + cluster.vm_overhead_mib
        _pack(bins, web.app.name, counts[web.app.name], needs_mib, web.app.replica_job(0, 0.0).speed_on_mhz(unit), unit)
    return len(bins)


def _unit(environment: str, cluster: Cluster) -> Node:
    """Return a node with the memory and CPU of the smallest one of the environment, or of all nodes while it has
    none."""
    known = [node for node in cluster.nodes.values() if node.inventory is not None]
    own = [node for node in known if environment in (node.given, node.environment)] or known
    facts = [node.inventory for node in own if node.inventory is not None]
    if not facts:
        return _NO_NODE
    core_mhz, cpu_mhz = min(fact.core_mhz for fact in facts), min(fact.cpu_mhz for fact in facts)
    return Node("unit", max(1, int(cpu_mhz / core_mhz)), core_mhz, memory_mib=min(fact.usable_mib for fact in facts))


def _pack(bins: list[_Bin], app: str, count: int, memory_mib: float, cpu_mhz: float, unit: Node) -> None:
    """First-fit; what is larger than a unit has one to itself."""
    placed = 0
    for found in bins:
        if placed == count:
            return
        fits = memory_mib <= found.memory_mib and cpu_mhz <= found.cpu_mhz * (1.0 + ROUNDING)
        if fits and app not in found.apps:
            found.put(app, memory_mib, cpu_mhz)
            placed += 1
    for _ in range(count - placed):
        bins.append(_Bin(unit.memory_mib, unit.cpu_mhz))
        bins[-1].put(app, memory_mib, cpu_mhz)
