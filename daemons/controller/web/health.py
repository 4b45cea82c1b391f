"""Which instances of web applications each node's agent is to watch, what it finds, and the replacing of those that it
finds unhealthy: one of an application at a time, and only so many in an hour (phoenixcloud.txt section 4.3 (6)).

The work is in proportion to what changes, not to what there is: a report whose instances are all well costs a look.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.web_app import WebEntry
from daemons.controller.state.web_health import Ill
from daemons.values.settings import Automation, ControllerSettings
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode
from shared.ports.effects import Publish
from shared.protocol import topology
from shared.protocol.messages import Happened, Report, Watch
from shared.values.health import UNKNOWN_COMMAND, Health, Probe, Target
from shared.values.jobs import JobPhase, workload_of
from shared.values.nodes import NodeCondition
from shared.values.vms import VmState

LATE_REPORTS = 2.0  # an agent that goes by another list for so many report periods is told again


@dataclass(slots=True)
class _SentTargets:
    """The list that a node was sent last; `again`: it has to be sent though it has not changed."""

    number: int = 0
    at_s: float = 0.0
    targets: tuple[Target, ...] = ()
    again: bool = False


class HealthChecks:
    """Sends agents their health check targets, and replaces instances that they find unhealthy."""

    def __init__(
        self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings, deciding: DecisionCycle
    ) -> None:
        self.cluster, self.unit_of_work, self.settings = cluster, unit_of_work, settings
        self._deciding = deciding
        self._changed: dict[str, JobEntry] = {}
        self._probes: dict[str, Probe | None] = {}  # by application, as last looked at
        self._at: dict[str, tuple[str, Target]] = {}  # on which node each instance is to be watched, by VM
        self._wanted: dict[str, dict[str, Target]] = {}  # by node
        self._sent: dict[str, _SentTargets] = {}
        self._stale: set[str] = set()  # nodes whose list may have to be sent
        self._odd: set[str] = set()  # instances of which something is known that is not well
        self._open: set[str] = set()  # applications with unhealthy instances, or one that is being replaced

    def loaded(self) -> None:
        """Start after a new leader has read all records: no target list was sent yet, and replacements in progress
        continue."""
        self._open = {name for name, web in self.cluster.web.items() if web.health.least}
        for replicas in self.cluster.replicas.values():
            self._note(replicas.values())

    # --- reports ----------------------------------------------------------------------------------------------------

    def heard(self, node: NodeEntry, report: Report, now_s: float) -> None:
        """Handle a report with the health of instances, or of an agent that uses another list than it was sent."""
        sent = self._sent.setdefault(node.name, _SentTargets())
        late = report.watch != sent.number and now_s > sent.at_s + LATE_REPORTS * self.settings.report_s
        if late or not sent.number:  # without a number: by a list of an earlier leader
            sent.again = True
            self.unit_of_work.settle_soon()
            self._stale.add(node.name)
        for row in report.health:
            if row.healthy and not row.detail and row.vm not in self._odd:
                continue
            at = self._at.get(row.vm)
            if at is not None and at[0] == node.name and at[1].generation == row.generation:
                self._take(node.name, row, now_s)

    def _take(self, node: str, row: Health, now_s: float) -> None:
        """Take an agent's result for an instance that it checks."""
        app = workload_of(row.vm)[0]
        health = self.cluster.web[app].health
        unknown = row.detail if row.healthy and row.detail.startswith(UNKNOWN_COMMAND) else ""
        if unknown and row.vm not in health.unknown:
            self.unit_of_work.emit(now_s, "probe-unknown", row.vm, f"on {node}: {unknown}")
        if unknown:
            health.unknown[row.vm] = f"on {node}: {unknown}"
        else:
            health.unknown.pop(row.vm, None)
        ill = health.ill.get(row.vm)
        if not row.healthy:
            self._unhealthy(health.ill, node, row, now_s)
            self._open.add(app)
            self.unit_of_work.settle_soon()
        elif ill is not None and row.probes and not row.detail:
            del health.ill[row.vm]
            self.unit_of_work.emit(now_s, "web-instance-healthy", row.vm, f"on {node}")
        elif ill is not None:
            ill.now = False
        if row.vm in health.ill or row.vm in health.unknown:
            self._odd.add(row.vm)
        else:
            self._odd.discard(row.vm)

    def _unhealthy(self, found: dict[str, Ill], node: str, row: Health, now_s: float) -> None:
        ill = found.get(row.vm)
        if ill is None:
            found[row.vm] = Ill(node, now_s, row.detail)
            self.unit_of_work.emit(now_s, "web-instance-unhealthy", row.vm, f"on {node}: {row.detail}")
        else:
            ill.detail, ill.now = row.detail, True

    # --- replacing --------------------------------------------------------------------------------------------------

    def run(self, now_s: float) -> None:
        """Replace what may be replaced now; before what is wanted is brought about."""
        self._note(self.unit_of_work.queued.values())
        for app in sorted(self._open):
            web = self.cluster.web.get(app)
            if web is None or web.removed:
                self._open.discard(app)
                continue
            self._replace(web, now_s)
            if not web.health.ill and not web.health.least:
                self._open.discard(app)

    def _replace(self, web: WebEntry, now_s: float) -> None:
        """Stop the instance that has been unhealthy for longest; another is started as wherever one is lacking."""
        health = web.health
        health.why = self._held(web, now_s)
        ready = [
            replica for replica in self.cluster.replicas.get(web.app.name, {}).values() if self._is_ill(web, replica)
        ]
        if health.why or not ready:
            return
        replica = min(ready, key=lambda each: (health.ill[each.job.name].since_s, each.order))
        ill, number = health.ill[replica.job.name], health.replaced(now_s) + 1
        running = len(self.cluster.replicas_wanted(web.app.name))
        numbers = (("unhealthy_s", now_s - ill.since_s), ("in_last_hour", float(number)))
        change = Change(replica.job.name, replica.revision, ChangeKind.STOP, (), Reason(ReasonCode.UNHEALTHY, numbers))
        if self._deciding.desired.apply((change,), now_s):
            return
        health.replaced_s.append(now_s)
        health.least = running
        self.unit_of_work.dirty_web[web.app.name] = web
        self.unit_of_work.place = True
        detail = f"on {ill.node}: {ill.detail}; number {number} in the last hour"
        event = Happened(now_s, "web-instance-replaced", replica.job.name, self.unit_of_work.term, detail)
        self.unit_of_work.stored.append(
            Publish(topology.EVENTS, event.what, event)
        )  # not before it is counted for good

    def _is_ill(self, web: WebEntry, replica: JobEntry) -> bool:
        """Return whether an instance may be replaced: its node is reachable and currently reports it as unhealthy."""
        ill = web.health.ill.get(replica.job.name)
        if ill is None or not ill.now or replica.phase is not JobPhase.RUNNING or not replica.released:
            return False
        node = self.cluster.nodes.get(ill.node)
        return node is not None and node.condition is NodeCondition.UP and node.echoed

    def _held(self, web: WebEntry, now_s: float) -> str:
        """Return why no instance of an application may be replaced now ("": one may)."""
        probe, health = web.app.probe, web.health
        in_progress = self._is_in_progress(web)
        if probe is None or probe.replace_max == 0:
            return "none is replaced: replace_max is 0"
        if self.settings.automation is not Automation.AUTO:
            return f"none is replaced: automation is {self.settings.automation.value}"
        if not (self._deciding.enabled and self.unit_of_work.acting):
            return "none is replaced: deciding is paused"
        if in_progress:
            return "another instance is being started or stopped"
        if health.replaced(now_s) >= probe.replace_max:
            return f"replacements used up: {health.replaced(now_s)} in the last hour"
        return ""

    def _is_in_progress(self, web: WebEntry) -> bool:
        """Return whether instances start or stop, or a stopped one has not been replaced yet."""
        replicas = self.cluster.replicas.get(web.app.name, {}).values()
        wanted = self.cluster.replicas_wanted(web.app.name)
        if any(not replica.released for replica in wanted) or any(
            replica not in wanted and not replica.clear for replica in replicas
        ):
            return True
        most = web.app.max_instances if web.wanted_instances is None else web.wanted_instances
        if len(wanted) < min(web.health.least, most):
            return True
        if web.health.least:
            web.health.least = 0
            self.unit_of_work.dirty_web[web.app.name] = web
        return False

    # --- telling ----------------------------------------------------------------------------------------------------

    def tell(self, now_s: float) -> None:
        """Send nodes that are up their lists, where these have changed; after what is wanted was brought about."""
        unit_of_work = self.unit_of_work
        self._note(unit_of_work.dirty_jobs.values())
        for app, web in unit_of_work.dirty_web.items():
            if self._probes.get(app) != web.app.probe:
                self._probes[app] = web.app.probe
                self._note(self.cluster.replicas.get(app, {}).values())
        for app in unit_of_work.removed_web:
            self._probes.pop(app, None)
        if not unit_of_work.acting:
            return
        changed, self._changed = self._changed, {}
        for entry in changed.values():
            self._look(entry)
        for name in sorted(self._stale):
            self._send(name, now_s)

    def _note(self, entries: Iterable[JobEntry]) -> None:
        """Instances among these may have come, moved or gone."""
        for entry in entries:
            if entry.job.app:
                self._changed[entry.job.name] = entry

    def _look(self, entry: JobEntry) -> None:
        """Put an instance on the list of the node that it is on now."""
        vm = entry.job.name
        before, now = self._at.get(vm), self._target_of(entry)
        if before == now:
            return
        if before is not None:
            self._wanted[before[0]].pop(vm, None)
            self._stale.add(before[0])
        if now is not None:
            self._at[vm] = now
            self._wanted.setdefault(now[0], {})[vm] = now[1]
            self._stale.add(now[0])
        else:
            self._at.pop(vm, None)
        web = self.cluster.web.get(entry.job.app)
        if web is not None:
            web.health.drop(vm)
        self._odd.discard(vm)

    def _target_of(self, entry: JobEntry) -> tuple[str, Target] | None:
        """Return where an instance runs and how it is checked (None: it is not)."""
        web = self.cluster.web.get(entry.job.app)
        if web is None or web.removed or web.app.probe is None:
            return None
        if entry.phase is not JobPhase.RUNNING or not entry.released or not entry.instances:
            return None
        instance = entry.instances[0]
        for name in sorted(instance.copies):
            status = self.cluster.nodes[name].vms.get(instance.vm)
            if status is not None and status.state is VmState.RUNNING:
                return name, Target(instance.vm, status.generation, web.app.probe)
        return None

    def _send(self, name: str, now_s: float) -> None:
        node = self.cluster.nodes.get(name)
        if node is None:
            self._stale.discard(name)
            self._wanted.pop(name, None)
            if name in self._sent:  # added again, its agent follows no smaller number
                self._sent[name] = _SentTargets(self._sent[name].number)
            return
        if node.condition is not NodeCondition.UP or not node.echoed:
            return  # it stays noted
        self._stale.discard(name)
        sent = self._sent.setdefault(name, _SentTargets())
        targets = tuple(target for _, target in sorted(self._wanted.get(name, {}).items()))
        if targets == sent.targets and not sent.again:
            return
        sent.number, sent.at_s, sent.targets, sent.again = sent.number + 1, now_s, targets, False
        node.watch = sent.number
        watch = Watch(self.unit_of_work.term, sent.number, targets)
        self.unit_of_work.effects.append(Publish(topology.ACTIONS, name, watch))
