"""Failover of adopted VMs, as a feature of the controller: desired state does not change, a VM that is to run is wanted
on another node. No decision is involved, so it happens at every automation level. The most important VMs come first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

import numpy as np

from daemons.controller.contract.feature import Alarm, Feature
from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.measure.adopted import AdoptedVms
from daemons.controller.state import transitions
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.failover import hindrance
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.migration_fit import able_to_start
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.queries import last_node
from daemons.controller.state.tenancy import admits
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.vm_terms import fails_over
from daemons.decision.spare_capacity import SpareCapacityTask
from daemons.planning.failover import FailoverVm, FreePages, SpareCapacity, Uncovered, places, pools_of
from daemons.values.settings import ControllerSettings
from daemons.values.text_format import memory_text
from daemons.values.view_format import Row
from shared.policy_api.snapshot import Bools, Floats, Snapshot
from shared.values.jobs import Allotment, JobPhase
from shared.values.migration import pages_of, with_cell_memory
from shared.values.nodes import NodeCondition

NAMES_SHOWN = 5
NO_ROOM = "no node has the memory free, and what it needs, and keeps its rules"


class FailoverFeature(Feature):
    """Gives each VM without a node another one as soon as there is room."""

    def __init__(
        self,
        cluster: Cluster,
        unit_of_work: UnitOfWork,
        settings: ControllerSettings,
        adopted: AdoptedVms,
        deciding: DecisionCycle,
    ) -> None:
        self._cluster, self._unit_of_work, self._settings = cluster, unit_of_work, settings
        self._adopted, self._deciding = adopted, deciding
        self._uncovered: dict[str, str] = {}  # by node: what of its VMs could not restart elsewhere
        self._hindered: dict[str, str] = {}  # by job: why no node is looked for
        self._crowded: set[str] = set()  # jobs that no node could take when it was last looked
        self._look_s = math.inf

    def settle(self, now_s: float) -> None:
        """Place the VMs that have lost their nodes; look again later for those that no node can take.

        Costs nothing in an instant without news of such VMs.
        """
        if not self._adopted.take_news() and now_s < self._look_s:
            return
        homeless = self._adopted.homeless
        for name in [name for name, entry in homeless.items() if entry.phase is not JobPhase.SHUT_OFF]:
            del homeless[name]
        self._hindered = {name: why for name, entry in homeless.items() if (why := hindrance(self._cluster, entry))}
        ready = {name: entry for name, entry in homeless.items() if name not in self._hindered}
        if self._unit_of_work.acting and (ready.keys() - self._crowded or now_s >= self._look_s):
            self._crowded = set()
            self._place([*ready.values()], now_s)
        self._crowded &= homeless.keys() - self._hindered.keys()
        if not self._crowded:
            self._look_s = math.inf

    def _place(self, entries: Sequence[JobEntry], now_s: float) -> None:
        """Find nodes for all; what one takes of hugepages and of NUMA cells is counted before the next is placed."""
        for entry in entries:
            (instance,) = entry.instances
            if not instance.needs and instance.failover is not None:  # not seen by this leader
                self._cluster.note_needs(instance, instance.failover.needs)
        seen = self._deciding.builder.build(now_s, at_cycle=False, waiting=entries, spare=False)
        rows = {name: row for row, name in enumerate(seen.workloads.names)}
        vms, pages = self._vms(seen, entries, now_s)
        found = places(seen, vms, pages)
        for at, (row, node) in enumerate(found.items()):
            entry = self._cluster.jobs[seen.workloads.names[row]]
            self._fail_over(entry, seen.nodes.names[node], now_s)
            entry.wanted_rank = at - len(found)  # before all that decisions want
        self._crowded = {each.job.name for each in entries if rows[each.job.name] not in found}
        self._look_s = now_s + self._settings.reconcile_s

    def _vms(self, seen: Snapshot, entries: Iterable[JobEntry], now_s: float) -> tuple[list[FailoverVm], FreePages]:
        """Return the VMs of a snapshot as they are to be placed, and what is free of hugepages and of NUMA cells."""
        rows = {name: row for row, name in enumerate(seen.workloads.names)}
        node_of = {name: row for row, name in enumerate(seen.nodes.names)}
        able, free_mib = self._able(seen.nodes.names, now_s)
        vms = [
            FailoverVm(
                rows[entry.job.name],
                entry.instances[0].memory_mib,
                able(entry),
                node_of[entry.allotments[0].node] if entry.allotments else -1,
                pages_of(_needs_of(entry)),
            )
            for entry in entries
        ]
        pools = pools_of(vm.pages for vm in vms)
        counts = [free_mib(*pool) for pool in pools]
        return vms, FreePages(pools, np.array(counts).reshape(len(pools), len(seen.nodes.names)))

    def _able(
        self, names: Sequence[str], now_s: float
    ) -> tuple[Callable[[JobEntry], Bools], Callable[[int, frozenset[int]], Floats]]:
        """Return what says which nodes have what a start of a VM needs beside memory, bool[names], and `free_mib` of
        `able_to_start`."""
        nodes = [self._cluster.nodes[name] for name in names]
        (have, free_mib), rows = able_to_start(nodes), {name: row for row, name in enumerate(names)}

        @cache
        def admit(environment: str) -> Bools:
            return np.array([admits(self._cluster, node, environment) for node in nodes], dtype=np.bool_)

        def able(entry: JobEntry) -> Bools:
            (instance,) = entry.instances
            shunned = {name for name, until_s in instance.shunned.items() if now_s < until_s}
            found = have(_needs_of(entry)) & admit(entry.job.environment)
            found[[rows[name] for name in shunned & rows.keys()]] = False
            return found

        return able, free_mib

    def _fail_over(self, entry: JobEntry, name: str, now_s: float) -> None:
        (instance,) = entry.instances
        inventory = self._cluster.nodes[name].inventory
        most_mhz = entry.job.max_mhz if inventory is None else entry.job.speed_on_mhz(inventory)
        allotment = Allotment(name, min(instance.cpu_mhz or most_mhz, most_mhz))
        transitions.fail_over(self._cluster, entry, allotment, last_node(instance), now_s)
        self._adopted.homeless.pop(entry.job.name, None)
        self._unit_of_work.change(entry)
        self._unit_of_work.emit(now_s, "vm-failover", instance.vm, f"{last_node(instance)} is off, to {name}")

    # --- spare capacity ---------------------------------------------------------------------------------------------

    def cycle(self, now_s: float) -> None:
        """Have it computed what must stay free. A node that is off, or held by an operator, is one that is lost
        already: it needs what was kept for it."""
        guarded = [entry for entry in self._cluster.adopted.values() if self._is_guarded(entry)]
        nodes = self._cluster.nodes.values()
        lost = self._settings.spare_nodes - sum(n.held or n.condition is NodeCondition.OFF for n in nodes)
        if not guarded or lost <= 0:
            self._keep({}, {})
            return
        seen = self._deciding.builder.build(now_s, at_cycle=False, spare=False)
        jobs, nodes_seen = {*seen.workloads.names}, {*seen.nodes.names}
        there = [one for one in guarded if one.job.name in jobs and one.allotments[0].node in nodes_seen]
        vms, pages = self._vms(seen, there, now_s)

        def computed(found: SpareCapacity | None, _error: str, _now_s: float) -> None:
            if found is None:
                return
            kept = dict(zip(seen.nodes.names, found.reserve_mib.tolist(), strict=True))
            self._keep(kept, {seen.nodes.names[each.node]: _short(seen, each) for each in found.uncovered})

        self._deciding.assess(SpareCapacityTask(seen, tuple(vms), lost, pages), computed)

    def _is_guarded(self, entry: JobEntry) -> bool:
        (instance,) = entry.instances
        facts = instance.failover
        ready = facts is not None and facts.guarded and not facts.host_files
        return ready and entry.phase is JobPhase.RUNNING and fails_over(entry) and bool(entry.allotments)

    def _keep(self, kept_mib: Mapping[str, float], uncovered: dict[str, str]) -> None:
        for name, node in self._cluster.nodes.items():
            node.spare_mib = kept_mib.get(name, 0.0)
        self._uncovered = uncovered

    def of_node(self, node: NodeEntry) -> Row:
        """Return the memory that decisions keep free on a node."""
        return {"spare_mib": node.spare_mib}

    # --- when to look, and what is not as it should be ---------------------------------------------------------------

    def next_due_s(self) -> float:
        """Return when to look again for VMs that no node could take (inf: none waits)."""
        return self._look_s

    def alarms(self, now_s: float) -> Iterable[Alarm]:
        """Yield the VMs that are to be restarted elsewhere and cannot be."""
        for name, why in sorted((self._hindered | dict.fromkeys(self._crowded, NO_ROOM)).items()):
            entry = self._cluster.active.get(name)
            if entry is not None and entry.phase is JobPhase.SHUT_OFF and fails_over(entry):
                yield "failover-blocked", name, entry.wanted_s, f"{entry.adopted}: {why}"
        for name, why in sorted(self._uncovered.items()):
            yield "spare-capacity-short", name, None, why


def _needs_of(entry: JobEntry) -> tuple[str, ...]:
    """Return what a start of a VM needs of a node."""
    facts = entry.instances[0].failover
    return () if facts is None else with_cell_memory(facts.needs, entry.job.memory_mib)


def _short(seen: Snapshot, uncovered: Uncovered) -> str:
    names = [seen.workloads.names[row] for row in uncovered.rows]
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    shown = ", ".join(names[:NAMES_SHOWN])
    amounts = [memory_text(uncovered.memory_mib)] if uncovered.memory_mib or not uncovered.pages_mib else []
    amounts += [f"{memory_text(uncovered.pages_mib)} of hugepages"] if uncovered.pages_mib else []
    return f"if it is lost, {shown}{more} cannot restart elsewhere: {' and '.join(amounts)} are missing"
