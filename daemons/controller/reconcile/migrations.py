"""How VMs are migrated: by which method, how fast, and when not, by what their guests change and what earlier
migrations took.

A forecast needs the guest's dirty rate, from its node's reports, and the rate of the nodes' links: configured, or the
best that was measured of the two nodes. It keeps to what the source's agent allows. Without a rate nothing is refused:
auto-converge costs nothing where it is not needed, and the agent aborts what does not converge. What is learned is kept
with the VM and with its nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import Instance
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.vm_terms import pause_left_s, terms_of
from daemons.models.migration_backoff import is_calmer, retry_after_s
from daemons.models.migration_bandwidth import NodeLink, Transfer, shares
from daemons.models.migration_choice import MigrationChoice, MigrationLimits, choose
from daemons.models.migration_history import DOWNTIME_FEWEST_S, factor, log_ratio
from daemons.models.migration_time import SWITCH_OVER_S, Link, MigrationDemand
from daemons.values.records.cluster import NO_RATES, NodeMigrations, VmMigrations
from daemons.values.settings import ControllerSettings
from shared.protocol.messages import Result
from shared.values.actions import ActionKind, Outcome
from shared.values.migration_terms import (
    DEFAULT_BOUNDS,
    MigrationBounds,
    MigrationFigures,
    MigrationMethod,
    MigrationTerms,
)
from shared.values.vms import VmStatus

SENT_MAX = 20_000  # forecasts of orders that nobody answers go, the oldest first
SAFETY = 1.25
LEAST_MIB = 64.0  # a migration that moved less says nothing of the link


@dataclass(frozen=True, slots=True)
class _Sent:
    """The forecast of an order, uncorrected (NaN: there is none). `streams`: its connections (0: not known);
    `post_copy_s`: for how long post-copy may pause the guest, as forecast."""

    to_node: str = ""
    duration_s: float = math.nan
    downtime_s: float = math.nan
    streams: int = 0
    post_copy_s: float = math.inf


class Migrations:
    """Chooses methods, and learns from what came of them."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings) -> None:
        self.cluster, self.unit_of_work = cluster, unit_of_work
        self.settings, self._keys = settings, settings.migration
        self._sent: dict[str, _Sent] = {}  # by action

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
        changes = f"its guest changes {status.dirty_mib_per_s:.0f} MiB/s, {self._carried(instance, node, to_node)}"
        if choice.refusal == "too-slow":
            limits = self._limits(node)
            whose = f", the limit of {node}'s agent" if limits.source_s < limits.duration_s else ""
            return f"would take longer than {min(limits.source_s, limits.duration_s):g} s{whose}: {changes}"
        return f"would not converge: {changes}; allow post-copy, or migrate it when it is calmer"

    def pause_refusal(self, instance: Instance, node: str, to_node: str, now_s: float) -> tuple[float, str] | None:
        """Return for how many seconds a migration by a decision may pause the VM, and in words why that is more than
        its terms still allow now; None if they do, or an operator drains the node. Where nothing is forecast, the
        downtime limit counts."""
        left_s, there = pause_left_s(instance.job, now_s), self.cluster.nodes.get(node)
        if left_s is None or (there is not None and there.held):
            return None
        choice = self.choice(instance, node, to_node)
        pause_s = self._limits(node).downtime_s + SWITCH_OVER_S
        if choice is not None and choice.forecast is not None and not choice.guessed:
            pause_s = choice.forecast.pause_s
        if pause_s <= left_s:
            return None
        return pause_s, f"would pause it for {pause_s:.2f} s; {left_s:.2f} s of pause_s_per_day are left"

    def terms(self, instance: Instance, node: str, to_node: str, action: str) -> MigrationTerms:
        """Return how the agent is to migrate a VM, and remember the forecast of this action."""
        choice = self.choice(instance, node, to_node)
        limits = self._limits(node)
        if choice is None:
            blind = MigrationChoice(None, (), self._may_post_copy(instance), guessed=True)
            terms = replace(blind.terms(limits), streams=self._streams(instance))
        else:
            share = self._share(node, to_node)
            terms = choice.terms(limits, share if share < self._rate(node, to_node) else 0.0)
        self._sent[action] = self._forecast(instance, to_node, choice, terms.streams)
        if len(self._sent) > SENT_MAX:
            del self._sent[next(iter(self._sent))]
        return terms

    def _forecast(self, instance: Instance, to_node: str, choice: MigrationChoice | None, streams: int) -> _Sent:
        if choice is None or choice.guessed:
            return _Sent(to_node, streams=streams)
        ways = [reason.forecast for reason in choice.reasons]
        post_copy_s = min((way.pause_s for way in ways if way.method is MigrationMethod.POST_COPY), default=math.inf)
        found = choice.forecast
        if found is None:
            return _Sent(to_node, streams=streams, post_copy_s=post_copy_s)
        corrected, downtime = self._factors(instance, to_node)
        is_measured = found.method is not MigrationMethod.POST_COPY
        return _Sent(
            to_node,
            found.duration_s / corrected,
            found.downtime_s / downtime if is_measured else math.nan,
            streams,
            post_copy_s,
        )

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
        link = Link(
            min(rate, self._share(node, to_node), self._bounds(node).bandwidth_mib_per_s or math.inf),
            streams=self._streams(instance),
            stream_mib_per_s=self._stream_rate(node, to_node),
        )
        corrected, downtime = self._factors(instance, to_node)
        return choose(demand, link, self._limits(node), self._may_post_copy(instance), corrected, downtime)

    def _factors(self, instance: Instance, to_node: str) -> tuple[float, float]:
        """Return what forecast durations and downtimes are multiplied with."""
        own, there = instance.migration_facts, self._facts(to_node)
        return factor(own.ratio, there.ratio), factor(own.downtime, there.downtime)

    def _limits(self, node: str) -> MigrationLimits:
        """Return what a migration from a node may take, here and there. An agent aborts none that is in post-copy."""
        bounds, most_s = self._bounds(node), self.settings.operation_timeout_s
        return MigrationLimits(most_s, bounds.downtime_ms / 1e3, safety=SAFETY, source_s=bounds.limit_s)

    def _bounds(self, node: str) -> MigrationBounds:
        there = self.cluster.nodes.get(node)
        return DEFAULT_BOUNDS if there is None or there.inventory is None else there.inventory.migration_bounds

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
        return self._facts(name).mib_per_s

    def _facts(self, name: str) -> NodeMigrations:
        node = self.cluster.nodes.get(name)
        return NO_RATES if node is None else node.migration_facts

    def _stream_rate(self, node: str, to_node: str) -> float:
        """Return what one connection between two nodes carries in MiB/s: as configured, or more if it has carried
        more. That one has carried less proves nothing."""
        best = min(self._facts(name).stream_mib_per_s for name in (node, to_node))
        return max(self._keys.stream_mib_per_s, best)

    def _carried(self, instance: Instance, node: str, to_node: str) -> str:
        """Return in words what carries least of a migration that is alone."""
        streams, bandwidth = self._streams(instance), self._bounds(node).bandwidth_mib_per_s
        rate, what = min(
            (self._rate(node, to_node), "the link carries"),
            (bandwidth or math.inf, f"{node}'s agent allows"),
            (streams * self._stream_rate(node, to_node), f"connections ({streams}) carry"),
        )
        return f"{what} {rate:.0f} MiB/s"

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

    def answered(self, instance: Instance, result: Result, now_s: float) -> tuple[str, float]:
        """Learn from how a migration ended; return what is known of it in words, for the event, and for how many
        seconds it counts as a pause."""
        sent = self._sent.pop(result.action, _Sent())
        figures = result.migrated
        if figures is None:
            return "", 0.0
        self.unit_of_work.change(instance.job)
        paused_s = self._paused_s(result, figures, sent)
        if result.outcome is Outcome.OK:
            known = instance.migration_facts
            instance.migration_facts = VmMigrations(known.ratio, downtime=known.downtime)
            return self._learn(instance, result.node, figures, sent), paused_s
        if result.outcome is Outcome.NOT_CONVERGING:
            failures = instance.migration_facts.failures + 1
            instance.migration_facts = replace(
                instance.migration_facts,
                failures=failures,
                dirty_mib_per_s=figures.dirty_mib_per_s,
                until_s=now_s + retry_after_s(failures),
            )
        return "", paused_s

    def _paused_s(self, result: Result, figures: MigrationFigures, sent: _Sent) -> float:
        """Return for how long a guest was paused, as measured, else at most."""
        if figures.method is MigrationMethod.POST_COPY:  # nobody measures for how long it waited for its pages
            return max(figures.downtime_s, min(sent.post_copy_s, figures.duration_s))
        if figures.downtime_s >= 0.0:
            return figures.downtime_s
        most_s = self._limits(result.node).downtime_s + SWITCH_OVER_S
        return min(most_s, figures.duration_s) if result.outcome is Outcome.OK else 0.0

    def _learn(self, instance: Instance, node: str, figures: MigrationFigures, sent: _Sent) -> str:
        words, to_node = f"{figures.method.value}, took {figures.duration_s:.1f} s", sent.to_node
        paused = "not known how long paused" if figures.downtime_s < 0.0 else f"paused for {figures.downtime_s:.2f} s"
        corrected, downtime = self._factors(instance, to_node)
        self._learn_rates(node, figures, sent)
        if not math.isnan(sent.duration_s):
            words += f" (forecast {sent.duration_s * corrected:.1f} s)"
            self._learn_ratio(instance, to_node, "ratio", log_ratio(sent.duration_s, figures.duration_s))
        if not math.isnan(sent.downtime_s) and figures.downtime_s >= 0.0:
            paused += f" (forecast {sent.downtime_s * downtime:.2f} s)"
            if figures.method is not MigrationMethod.POST_COPY:
                measured = log_ratio(sent.downtime_s, figures.downtime_s, DOWNTIME_FEWEST_S)
                self._learn_ratio(instance, to_node, "downtime", measured)
        return f"{words}, {paused}"

    def _learn_rates(self, node: str, figures: MigrationFigures, sent: _Sent) -> None:
        if figures.transferred_mib < LEAST_MIB or figures.duration_s <= 0.0:
            return
        rate = figures.transferred_mib / figures.duration_s
        for there in {node, sent.to_node} & self.cluster.nodes.keys():
            if rate > self._measured(there):
                self._note(there, mib_per_s=rate)
            if sent.streams == 1 and rate > self._facts(there).stream_mib_per_s:
                self._note(there, stream_mib_per_s=rate)

    def _learn_ratio(self, instance: Instance, to_node: str, name: str, measured: float | None) -> None:
        """Take in the logarithm of measured over forecast (None: it says nothing), for the VM and its target."""
        if measured is None:
            return
        known = instance.migration_facts
        learned: dict[str, Any] = {name: getattr(known, name).with_measured(measured)}
        instance.migration_facts = replace(known, **learned)
        if to_node in self.cluster.nodes:
            self._note(to_node, **{name: getattr(self._facts(to_node), name).with_measured(measured)})

    def _note(self, name: str, **fields: Any) -> None:
        node = self.cluster.nodes[name]
        node.migration_facts = replace(node.migration_facts, **fields)
        self.unit_of_work.change_node(node)

    def until_s(self, instance: Instance) -> float:
        """Return until when no migration of a VM is tried (0: none has failed to converge)."""
        return instance.migration_facts.until_s
