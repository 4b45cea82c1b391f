"""Expired storage leases as proof that a node is off (`shared.values.lease`): the host of an expired lease has reset
itself, or has lost power. Agents of other nodes report them; one alone is not believed where there are more."""

from __future__ import annotations

from collections.abc import Sequence

from daemons.controller.measure.reports import Measure
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.fencing import heard_s, needs_no_fence
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.settings import ControllerSettings
from shared.values.lease import SeenLease
from shared.values.nodes import NodeCondition

TOLD_MAX = 1_000  # nodes with expired leases that are kept


class LeaseProofs:
    """Collects what agents report of leases."""

    def __init__(
        self, cluster: Cluster, unit_of_work: UnitOfWork, measure: Measure, settings: ControllerSettings
    ) -> None:
        self._cluster, self._unit_of_work, self._measure, self._settings = cluster, unit_of_work, measure, settings
        self._told: dict[str, dict[str, float]] = {}  # by node: who reported its lease as expired, and when

    def reported(self, witness: NodeEntry, leases: Sequence[SeenLease], now_s: float) -> None:
        """Take in a report of an agent whose node is up; prove nodes off."""
        for lease in leases:
            node = self._cluster.nodes.get(lease.node)
            if node is None or node is witness or not lease.is_proof or not self._may_be_off(node, lease, now_s):
                continue
            if len(self._told) >= TOLD_MAX and node.name not in self._told:
                self._told.clear()
            told = self._told.setdefault(node.name, {})
            told[witness.name] = now_s
            recent = {name for name, at_s in told.items() if now_s - at_s < self._settings.unreachable_after_s}
            if len(recent) >= self._needed(node):
                del self._told[node.name]
                names = ", ".join(sorted(recent))
                self._measure.proven_off(node, now_s, f"its storage lease expired, as reported by {names}")

    def _may_be_off(self, node: NodeEntry, lease: SeenLease, now_s: float) -> bool:
        """Return whether a lease is about the boot that was seen last of a node that is unreachable and that needs
        proof. An agent that is heard shows that its host has not reset itself."""
        silent = now_s - heard_s(node) >= self._settings.unreachable_after_s
        unknown = node.condition is NodeCondition.UNKNOWN and not node.asleep and node.silent_s is not None
        known = bool(node.boot_id) and node.boot_id == lease.boot_id
        acts = self._unit_of_work.acting and self._settings.lease_witnesses > 0
        return acts and unknown and silent and known and not needs_no_fence(self._cluster, node)

    def _needed(self, node: NodeEntry) -> int:
        """Return how many nodes must report the lease as expired: not more than there are."""
        others = sum(other is not node and other.usable for other in self._cluster.nodes.values())
        return max(1, min(self._settings.lease_witnesses, others))
