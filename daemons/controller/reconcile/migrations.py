"""How VMs are migrated: by which method, how fast, and when not, by what their guests change and what earlier
migrations took.

A forecast needs the guest's dirty rate, from its node's reports, and the rate of the nodes' links: configured, or the
best that was measured of the two nodes. Without a rate nothing is refused: auto-converge costs nothing where it is not
needed, and the agent aborts what does not converge. What is learned is kept with the VM and with its nodes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import Instance
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.vm_terms import terms_of
from daemons.models.migration_backoff import is_calmer, retry_after_s
from daemons.models.migration_bandwidth import NodeLink, Transfer, shares
from daemons.models.migration_choice import MigrationChoice, MigrationLimits, choose
from daemons.models.migration_history import NOTHING, factor, log_ratio
from daemons.models.migration_time import Link, MigrationDemand
from daemons.values.records.cluster import VmMigrations
from daemons.values.settings import ControllerSettings
from shared.protocol.messages import Result
from shared.values.actions import ActionKind, Outcome
from shared.values.migration_terms import MigrationFigures, MigrationTerms
from shared.values.vms import VmStatus

SENT_MAX = 20_000  # forecasts of orders that nobody answers go, the oldest first
SAFETY = 1.25
LEAST_MIB = 64.0  # a migration that moved less says nothing of the link


class Migrations:
    """Chooses methods, and learns from what came of them."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings) -> None:
        self.cluster, self.unit_of_work = cluster, unit_of_work
        self.settings, self._keys = settings, settings.migration
        self._forecasts: dict[str, tuple[str, float]] = {}  # by action: the target, and the forecast in s (nan: none)

    # --- before it begins -------------------------------------------------------------------------------------------

    def refusal(self, instance: Instance, node: str, to_node: str, now_s: float) -> str:
        """Return why a migration that a decision wants would not end, in words ("": it would, or nothing is known)."""
        status = self._status(instance, node)
        known = instance.migration_facts
        calmer = status is not None and is_calmer(status.dirty_mib_per_s, known.dirty_mib_per_s)
        if now_s < known.until_s and not calmer:
            return f"did not converge {known.failures} times; it is tried again in {known.until_s - now_s:.0f} s"
        choice = self.choice(instance, node, to_node)
        if choice is None or choice.forecast is not None or choice.guessed or status is None:
            return ""
        rate = self._rate(node, to_node)
        changes = f"its guest changes {status.dirty_mib_per_s:.0f} MiB/s, the link carries {rate:.0f} MiB/s"
        if choice.refusal == "too-slow":
            return f"would take longer than {self.settings.operation_timeout_s:g} s: {changes}"
        return f"would not converge: {changes}; allow post-copy, or migrate it when it is calmer"

    def terms(self, instance: Instance, node: str, to_node: str, action: str) -> MigrationTerms:
        """Return how the agent is to migrate a VM, and remember the forecast of this action."""
        choice = self.choice(instance, node, to_node)
        forecast_s = math.nan
        if choice is not None and choice.forecast is not None and not choice.guessed:
            forecast_s = choice.forecast.duration_s / self._factor(instance, to_node)
        self._forecasts[action] = to_node, forecast_s
        if len(self._forecasts) > SENT_MAX:
            del self._forecasts[next(iter(self._forecasts))]
        if choice is None:
            blind = MigrationChoice(None, (), self._may_post_copy(instance), guessed=True)
            return replace(blind.terms(self._limits()), streams=self._streams(instance))
        share = self._share(node, to_node)
        return choice.terms(self._limits(), share if share < self._rate(node, to_node) else 0.0)

    def choice(self, instance: Instance, node: str, to_node: str) -> MigrationChoice | None:
        """Return how a VM would be migrated from node to node, with the forecast; None while no rate of their links is
        known, or no figures of the VM."""
        rate, status = self._rate(node, to_node), self._status(instance, node)
        if rate <= 0.0 or status is None:
            return None
        demand = MigrationDemand(
            float(status.resident_mib or status.memory_mib),
            status.dirty_mib_per_s,
            float(status.working_set_mib),
            disk_mib=float(status.disk_mib),
        )
        link = Link(min(rate, self._share(node, to_node)), streams=self._streams(instance))
        corrected = self._factor(instance, to_node)
        return choose(demand, link, self._limits(), self._may_post_copy(instance), corrected)

    def _factor(self, instance: Instance, to_node: str) -> float:
        there = self.cluster.nodes.get(to_node)
        return factor(instance.migration_facts.ratio, NOTHING if there is None else there.migration_facts.ratio)

    def _limits(self) -> MigrationLimits:
        return MigrationLimits(self.settings.operation_timeout_s, safety=SAFETY)

    def _streams(self, instance: Instance) -> int:
        return 1 if self._may_post_copy(instance) else self._keys.streams

    def _may_post_copy(self, instance: Instance) -> bool:
        return self._keys.post_copy or (bool(instance.job.adopted) and terms_of(instance.job).post_copy)

    def _rate(self, node: str, to_node: str) -> float:
        """Return the rate of the link between two nodes in MiB/s (0: not known)."""
        if self._keys.link_mib_per_s > 0.0:
            return self._keys.link_mib_per_s
        return min(self._measured(node), self._measured(to_node))

    def _measured(self, name: str) -> float:
        node = self.cluster.nodes.get(name)
        return 0.0 if node is None else node.migration_facts.mib_per_s

    def _share(self, node: str, to_node: str) -> float:
        """Return what one more migration gets beside those in progress, in MiB/s. O(migrations in progress)."""
        flights = [one.in_flight for one in self.cluster.actions.values() if one.in_flight is not None]
        moves = [Transfer(flight.node, flight.to_node) for flight in flights if flight.kind is ActionKind.MIGRATE]
        moves.append(Transfer(node, to_node))
        names = {name for one in moves for name in (one.source, one.target)}
        rates = {name: self._keys.link_mib_per_s or self._measured(name) or math.inf for name in names}
        return float(shares(moves, {name: NodeLink(rate, rate) for name, rate in rates.items()})[-1])

    def _status(self, instance: Instance, node: str) -> VmStatus | None:
        there = self.cluster.nodes.get(node)
        return None if there is None else there.vms.get(instance.vm)

    # --- after it ended ---------------------------------------------------------------------------------------------

    def answered(self, instance: Instance, result: Result, now_s: float) -> str:
        """Learn from how a migration ended; return what is known of it in words, for the event."""
        forecast = self._forecasts.pop(result.action, None)
        figures = result.migrated
        if figures is None:
            return ""
        self.unit_of_work.change(instance.job)
        if result.outcome is Outcome.OK:
            instance.migration_facts = VmMigrations(instance.migration_facts.ratio)
            return self._learn(instance, result.node, figures, *(forecast or ("", math.nan)))
        if result.outcome is Outcome.NOT_CONVERGING:
            failures = instance.migration_facts.failures + 1
            instance.migration_facts = replace(
                instance.migration_facts,
                failures=failures,
                dirty_mib_per_s=figures.dirty_mib_per_s,
                until_s=now_s + retry_after_s(failures),
            )
        return ""

    def _learn(self, instance: Instance, node: str, figures: MigrationFigures, to_node: str, forecast_s: float) -> str:
        paused = "not known how long paused" if figures.downtime_s < 0.0 else f"paused for {figures.downtime_s:.2f} s"
        words = f"{figures.method.value}, took {figures.duration_s:.1f} s"
        if figures.transferred_mib >= LEAST_MIB and figures.duration_s > 0.0:
            rate = figures.transferred_mib / figures.duration_s
            for there in {node, to_node} & self.cluster.nodes.keys():
                if rate > self._measured(there):
                    self._note(there, mib_per_s=rate)
        if math.isnan(forecast_s):
            return f"{words}, {paused}"
        expected_s = forecast_s * self._factor(instance, to_node)
        measured = log_ratio(forecast_s, figures.duration_s)
        if measured is not None:
            known = instance.migration_facts
            instance.migration_facts = replace(known, ratio=known.ratio.with_measured(measured))
            if to_node in self.cluster.nodes:
                self._note(to_node, ratio=self.cluster.nodes[to_node].migration_facts.ratio.with_measured(measured))
        return f"{words} (forecast {expected_s:.1f} s), {paused}"

    def _note(self, name: str, **fields: Any) -> None:
        node = self.cluster.nodes[name]
        node.migration_facts = replace(node.migration_facts, **fields)
        self.unit_of_work.change_node(node)

    def until_s(self, instance: Instance) -> float:
        """Return until when no migration of a VM is tried (0: none has failed to converge)."""
        return instance.migration_facts.until_s
