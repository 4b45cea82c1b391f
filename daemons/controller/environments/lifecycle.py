"""The life of environments (phoenixcloud.txt section 4.3): each is brought to the state that is wanted of it, in steps
that may be repeated, from what the store knows and what is observed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.environments.feasibility import can_serve, shortages
from daemons.controller.environments.pairing import Pairing
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.environment import NOT_BEGUN, EnvironmentEntry
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.transitions import cancel, outdate, rest
from daemons.controller.state.unit_of_work import UnitOfWork
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode
from shared.protocol.operator_messages import RemoveWeb
from shared.values.agreement import EnvironmentState
from shared.values.jobs import JobPhase
from shared.values.nodes import Handover, NodeCondition, NodeService

Give = Callable[[NodeEntry, str, float], None]
RemoveApp = Callable[[RemoveWeb, float], object]
NAMES_SHOWN = 5
_STOPS = Reason(ReasonCode.ENVIRONMENT)
_BEGUN = {
    EnvironmentState.RUNNING: "environment-activating",
    EnvironmentState.DEACTIVATED: "environment-deactivating",
    EnvironmentState.DESTROYED: "environment-destroying",
}


class EnvironmentLifecycle:
    """Takes the steps. `give(node, "", now_s)` gives a node back to the provider. `short`: which environments cannot
    have their lower bounds, and why."""

    def __init__(
        self,
        cluster: Cluster,
        unit_of_work: UnitOfWork,
        deciding: DecisionCycle,
        remove_web: RemoveApp,
        partners: Pairing,
        give: Give,
    ) -> None:
        self.cluster, self.unit_of_work, self.deciding, self._remove_web = (
            cluster,
            unit_of_work,
            deciding,
            remove_web,
        )
        self.partners, self.give = partners, give
        self.short: dict[str, str] = {}
        self._moving: dict[str, EnvironmentEntry] = {}
        self._supply: dict[str, tuple[object, ...]] = {}
        self._asked: dict[str, tuple[object, ...]] = {}

    def want(self, entry: EnvironmentEntry, state: EnvironmentState, now_s: float) -> None:
        """Move the environment toward that state."""
        entry.wanted, entry.detail = state, ""
        self._moving[entry.name] = entry
        self.unit_of_work.change_environment(entry)
        self.unit_of_work.emit(now_s, _BEGUN[state], entry.name)
        self.partners.look_again()
        if state is EnvironmentState.RUNNING:
            entry.started_s, entry.size = NOT_BEGUN, 0
        else:
            entry.offered = ""
            if entry.partner:
                self.partners.part(entry, now_s)
            for job in self.cluster.jobs_of(entry.name):
                outdate(job)
            self._stop(entry, now_s)
        self.partners.changed(entry.name, now_s)

    def created(self, now_s: float) -> None:
        """Mark environments as created once their requests are stored."""
        for entry in self.cluster.environments.values():
            if entry.state is EnvironmentState.UNINITIALISED:
                self._reach(entry, EnvironmentState.CREATED, now_s)

    def loaded(self) -> None:
        """Continue transitions in progress after a new leader has read all records."""
        self._moving = {name: one for name, one in self.cluster.environments.items() if one.state is not one.wanted}
        self.partners.look_again()
        self._supply = {name: _supply_of(node) for name, node in self.cluster.nodes.items()}
        self._asked = {name: _asked_of(entry) for name, entry in self.cluster.environments.items()}
        self.short = shortages(self.cluster) if self.cluster.environments else {}

    def run(self, now_s: float) -> None:
        """Take every step that may be taken now."""
        for entry in list(self._moving.values()):
            self._step(entry, now_s)
        self._look_at_supply(now_s)

    def _step(self, entry: EnvironmentEntry, now_s: float) -> None:
        if entry.state is entry.wanted:
            del self._moving[entry.name]
            return
        if entry.state is EnvironmentState.UNINITIALISED and entry.wanted is not EnvironmentState.DESTROYED:
            return  # not in the store yet
        if entry.wanted is EnvironmentState.RUNNING:
            waits = self._lacks(entry)
        else:
            self._stop(entry, now_s)
            waits = self._remains(entry)
        if not waits:
            self._reach(entry, entry.wanted, now_s)
        elif waits != entry.detail:
            entry.detail = waits
            self.unit_of_work.change_environment(entry)

    def _reach(self, entry: EnvironmentEntry, state: EnvironmentState, now_s: float) -> None:
        entry.state, entry.detail = state, ""
        if state is entry.wanted:
            self._moving.pop(entry.name, None)
        if state is EnvironmentState.DESTROYED:
            entry.ended_s, entry.size = now_s, 0
            self.partners.forget(entry.name)
        if state is EnvironmentState.RUNNING:
            self.unit_of_work.place = True
        self.unit_of_work.change_environment(entry)
        self.unit_of_work.emit(now_s, f"environment-{state.value}", entry.name)
        self.partners.changed(entry.name, now_s)

    # --- coming up --------------------------------------------------------------------------------------------------

    def _lacks(self, entry: EnvironmentEntry) -> str:
        """Return what an activated environment waits for before it serves ("": its lower bound is ready, as far as it
        was requested)."""
        if not entry.begun:
            return "waits for its units to be allotted"
        least = min(entry.size, entry.agreement.lower)
        if not entry.by_node:
            return ""
        given = [node for node in self.cluster.nodes.values() if node.given == entry.name]
        ready = sum(node.in_hand for node in given)
        if ready >= least:
            return ""
        coming = [f"{node.name} ({_doing(node, entry)})" for node in given if not node.in_hand]
        return f"{ready} of {least} nodes are being prepared" + _named("; on their way", coming)

    # --- going down -------------------------------------------------------------------------------------------------

    def _stop(self, entry: EnvironmentEntry, now_s: float) -> None:
        """Stop all workloads of an environment and return its nodes to the provider."""
        if entry.over:
            self._end_workloads(entry, now_s)
        else:
            self._rest_workloads(entry, now_s)
        for node in self.cluster.nodes.values():
            if node.given == entry.name:
                self.give(node, "", now_s)

    def _end_workloads(self, entry: EnvironmentEntry, now_s: float) -> None:
        for web in list(self.cluster.web.values()):
            if web.app.environment == entry.name and not web.removed:
                self._remove_web(RemoveWeb("", web.app.name), now_s)
        for job in list(self.cluster.jobs_of(entry.name)):
            if not (job.over or job.job.app):
                cancel(self.cluster, self.unit_of_work, job, now_s)

    def _rest_workloads(self, entry: EnvironmentEntry, now_s: float) -> None:
        """Suspend jobs to disk and stop web instances."""
        stopped = []
        for job in self.cluster.jobs_of(entry.name):
            if job.phase is not JobPhase.RUNNING:
                continue
            if job.job.app:
                stopped.append(Change(job.job.name, job.revision, ChangeKind.STOP, (), _STOPS))
            else:
                rest(self.cluster, job)
                outdate(job)
                self.unit_of_work.change(job)
                self.unit_of_work.emit(now_s, "job-suspended", job.job.name, str(_STOPS))
        if stopped:
            self.deciding.desired.apply(stopped, now_s)

    def _remains(self, entry: EnvironmentEntry) -> str:
        """Return what an environment that is being taken down still has ("": nothing)."""
        jobs = self.cluster.jobs_of(entry.name)
        left = [job.job.name for job in jobs if entry.over or _is_somewhere(job)]
        apps = [web.app.name for web in self.cluster.web.values() if web.app.environment == entry.name]
        nodes = [
            f"{node.name} ({_doing(node, entry)})"
            for node in self.cluster.nodes.values()
            if entry.name in (node.environment, node.given)
        ]
        parts = [_named("workloads", left or (apps if entry.over else [])), _named("nodes", nodes)]
        return "waits for " + "; ".join(part for part in parts if part) if any(parts) else ""

    # --- what there is ----------------------------------------------------------------------------------------------

    def _look_at_supply(self, now_s: float) -> None:
        """Report environments that can no longer have their lower bounds, or can again."""
        if not self.cluster.environments or not self._supply_changed():
            return
        short = shortages(self.cluster)
        for name, why in short.items():
            if name not in self.short:
                self.unit_of_work.emit(now_s, "environment-short", name, why)
        for name in self.short.keys() - short.keys():
            if name in self.cluster.environments:
                self.unit_of_work.emit(now_s, "environment-satisfied", name, "its lower bound can be met again")
        self.short = short

    def _supply_changed(self) -> bool:
        """Return whether nodes that can serve have come or gone, or bounds have changed. O(what must be stored)."""
        changed = False
        for entry in self.unit_of_work.dirty_environments.values():
            asked = _asked_of(entry)
            changed |= self._asked.get(entry.name) != asked
            self._asked[entry.name] = asked
        for name in self.unit_of_work.removed_nodes:
            changed |= self._supply.pop(name, None) is not None
        for node in self.unit_of_work.dirty_nodes.values():
            supply = _supply_of(node)
            changed |= self._supply.get(node.name) != supply
            self._supply[node.name] = supply
        return changed


def _asked_of(entry: EnvironmentEntry) -> tuple[object, ...]:
    return entry.serves, entry.agreement


def _supply_of(node: NodeEntry) -> tuple[object, ...]:
    return can_serve(node), node.inventory


def _is_somewhere(job: JobEntry) -> bool:
    """Return whether any of its VMs runs or may run; saved images do not count."""
    return any(instance.may_run_on or instance.in_flight is not None for instance in job.instances)


def _doing(node: NodeEntry, entry: EnvironmentEntry) -> str:
    """Return what keeps a node from serving the environment that it is assigned to; provisioning details of others are
    not disclosed."""
    if node.handover is Handover.FAILED:
        own = node.environment == entry.name and node.detail
        return f"its setup has failed: {node.detail}" if own else "its setup has failed"
    if node.service is NodeService.FAILED or (node.condition is NodeCondition.OFF and not node.asleep):
        return "it has failed" if node.service is NodeService.FAILED else "it is off"
    if node.condition is NodeCondition.UNKNOWN and not node.asleep:
        return "it is unreachable"
    return node.service.value if node.asleep else node.handover.value


def _named(what: str, names: Iterable[str]) -> str:
    """Return at most some of the names, and how many more there are."""
    found = list(names)
    if not found:
        return ""
    more = f" and {len(found) - NAMES_SHOWN} more" if len(found) > NAMES_SHOWN else ""
    return f"{what} {', '.join(found[:NAMES_SHOWN])}{more}"
