"""Turns agents' messages into the controller's state: nodes, VMs, work done, and proof that a VM is gone.

Every message of an agent carries its sequence number; messages older than the known state of a VM change nothing. A VM
leaves the ledger only on proof: a report that omits it and that no open order can overtake, the event of its end, or
the fencing of its node.
"""

from __future__ import annotations

from operator import attrgetter

from msgspec import structs

from daemons.controller.contract.feature_set import FeatureSet
from daemons.controller.measure.adopted import is_left, note_failover
from daemons.controller.measure.drift import Drift
from daemons.controller.measure.missing import Missing
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import FAILURE_MAX, Failure, Instance, JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.queries import last_node
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.vm_terms import note_exit
from daemons.values.rate_limit import PerMinute
from daemons.values.settings import ControllerSettings
from shared.protocol.messages import GuestEvent, NoReading, Report, Result
from shared.values.actions import COMING, ActionKind, GuestChange, Outcome
from shared.values.jobs import JobPhase
from shared.values.migration import ordinary_mib
from shared.values.nodes import NodeCondition, NodeService
from shared.values.vms import LIVE_STATES, OFF_STATES, VmState, VmStatus

_VM = attrgetter("vm")
# Looking a member up costs more than all else in a line.
_RUNNING, _SUSPENDED, _UP = VmState.RUNNING, VmState.SUSPENDED, NodeCondition.UP
STRANGERS_MAX = 20  # VMs whose job is not known that are told of a node in a minute
_AWAY = frozenset({NodeService.OFF, NodeService.WAKING})
USAGE_S = 30.0  # over so long the use of CPU is told; reports in between are not kept: what is touched costs time
BRINGING = frozenset({ActionKind.START, ActionKind.RESUME, ActionKind.MIGRATE, ActionKind.ADOPT})
# What a VM of ours has left a node by, as it should.
TAKING = frozenset(
    {
        ActionKind.STOP,
        ActionKind.SUSPEND,
        ActionKind.RELEASE,
        ActionKind.MIGRATE,
        ActionKind.DISCARD_IMAGE,
        ActionKind.UNDEFINE,
    }
)
# Outcomes that the agent answers without asking its hypervisor: they say nothing about the VM.
UNASKED = frozenset({Outcome.OLDER_TERM, Outcome.OTHER_BOOT, Outcome.EXPIRED, Outcome.BUSY, Outcome.INTERRUPTED})


class Measure:
    """Applies agents' messages to the cluster; consequences go to the unit of work and to features."""

    def __init__(
        self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings, features: FeatureSet
    ) -> None:
        self.cluster, self.unit_of_work, self.settings, self._features = cluster, unit_of_work, settings, features
        self.missing, self.drift = Missing(cluster, unit_of_work, settings), Drift(cluster, unit_of_work, settings)
        self._strangers = PerMinute(STRANGERS_MAX)

    # --- reports --------------------------------------------------------------------------------------------------

    def report(self, node: NodeEntry, report: Report, now_s: float, arrived_s: float | None = None) -> None:
        """Apply a node's report, which came at `arrived_s` (None: now). The caller has checked the sender and that no
        newer term is named."""
        if report.boot_id == node.off_boot_id:
            if report.clock_s <= node.off_s + self.settings.max_skew_s:
                return  # said before it was proven off
            node.off_boot_id, node.condition = "", NodeCondition.UNKNOWN
            if not node.asleep:
                node.back_s = now_s
                self.unit_of_work.emit(now_s, "off-node-reports", node.name, "it was taken for off and is not")
            self.unit_of_work.change_node(node)
        if report.boot_id != node.boot_id:
            self._new_boot(node, report, now_s)
        elif report.seq <= node.report_seq or (node.condition is not _UP and self._is_old(node, report)):
            return
        if report.events:
            if node.skip_events(min(event.event for event in report.events)):
                self.unit_of_work.change_node(node)
            for event in report.events:
                self.guest_event(node, event, now_s)
        node.report_seq, node.seen_s, node.trouble = report.seq, now_s, None
        node.cpu_sum += report.sample.cpu_frac
        node.cpu_readings += 1
        last, node.last = node.last, report
        if last is not None and _is_due(node.before, last):
            if node.before is not None:
                self._features.measured(node, node.before, last, now_s)
            node.before = last
        self._skew(node, (now_s if arrived_s is None else min(arrived_s, now_s)) - report.clock_s, now_s)
        if report.inventory is not None and report.inventory != node.inventory:
            node.inventory = report.inventory
            self.unit_of_work.change_node(node)
            self.unit_of_work.place = True
        if report.term != self.unit_of_work.term:
            node.echoed = False
            return  # until it echoes this term its VMs may still be changed by an older leader's orders
        self._inventory(node, report, now_s)
        if not node.echoed or node.condition is not _UP:
            self._up(node, now_s)
        if report.health or report.watch != node.watch:
            self._features.watched(node, report, now_s)

    def no_reading(self, node: NodeEntry, message: NoReading, now_s: float) -> None:
        """Note that an agent is there whose hypervisor cannot be read. If its host has rebooted, the VMs of the boot
        before have stopped. A late message of an earlier boot is no proof: this leader has seen that boot, or the
        host's clock was behind then."""
        node.trouble = (now_s, message.detail, message.boot_id)
        if not message.boot_id or message.boot_id in (node.boot_id, *node.boots) or not node.boot_id or node.asleep:
            return
        later = node.last is not None and message.clock_s > node.last.clock_s
        if later and node.condition is NodeCondition.UNKNOWN and self.unit_of_work.acting:
            self.proven_off(node, now_s, "it has rebooted, and its hypervisor does not answer")

    def _is_old(self, node: NodeEntry, report: Report) -> bool:
        """Return whether a report from a node that is believed asleep dates from before it fell asleep."""
        return node.service in _AWAY and report.clock_s <= node.since_s - self.settings.max_skew_s

    def _new_boot(self, node: NodeEntry, report: Report, now_s: float) -> None:
        if node.boot_id and not node.asleep:
            self.unit_of_work.emit(now_s, "node-rebooted", node.name)
        if node.boot_id:
            node.boots.append(node.boot_id)
        node.boot_id, node.off_boot_id = report.boot_id, ""
        node.condition, node.echoed = NodeCondition.UNKNOWN, False
        node.report_seq = 0
        node.last = node.before = None
        node.vm_seq.clear()
        node.skews_s.clear()
        for instance in node.claimed.values():
            instance.host_restarted = True
        self.unit_of_work.deploy = True
        self.unit_of_work.change_node(node)

    def _skew(self, node: NodeEntry, reading_s: float, now_s: float) -> None:
        """Note a clock difference. The smallest of the last ones counts, because a delay in transit only adds to it."""
        node.skews_s.append(reading_s)
        max_skew_s = self.settings.max_skew_s
        if not node.skewed and -max_skew_s <= reading_s <= max_skew_s:
            return  # nor is the smallest too far off: it was not before
        skewed = abs(min(node.skews_s)) > max_skew_s
        if skewed != node.skewed:
            node.skewed = skewed
            self.unit_of_work.emit(now_s, "clock-skewed" if skewed else "clock-good", node.name)
            self.unit_of_work.place = self.unit_of_work.deploy = True
            self._touch_all(node)

    def set_ahead(self, node: NodeEntry, term: int) -> None:
        """Note the later term that its agent claims to have seen (0: none): while it does it takes no order."""
        changed = bool(node.term_ahead) != bool(term)
        node.term_ahead = term
        if changed:
            self.unit_of_work.place = self.unit_of_work.deploy = True
            self._touch_all(node)

    def _up(self, node: NodeEntry, now_s: float) -> None:
        node.echoed, node.condition = True, NodeCondition.UP
        node.silent_s, node.hello_wait_s = None, 0.0
        self.unit_of_work.emit(now_s, "node-up", node.name)
        self.unit_of_work.place = self.unit_of_work.deploy = True
        self._touch_all(node)
        for entry in self.cluster.adopted.values():
            if node.name in entry.left_on and entry.adopted not in node.vms:
                self._is_clean(node, entry)

    def _is_clean(self, node: NodeEntry, entry: JobEntry) -> None:
        """Note that a node has nothing of a VM from before a failover."""
        entry.left_on = tuple(name for name in entry.left_on if name != node.name)
        entry.left_digests = tuple(one for one in entry.left_digests if one[0] != node.name)
        self.unit_of_work.change(entry)

    def _touch_all(self, node: NodeEntry) -> None:
        for claimed in node.claimed.values():
            self.unit_of_work.enqueue(claimed.job)
        for vm in node.vms:
            self._enqueue(vm)

    def _inventory(self, node: NodeEntry, report: Report, now_s: float) -> None:
        if node.in_progress or report.in_progress:
            self._in_progress(node, report)
        vms, claimed, news, unmanaged_mib = node.vms, node.claimed, node.vm_seq, 0.0
        running = 0  # VMs that have been here, are here and run on as they did, which is the rule
        for status in report.vms:
            vm = status.vm
            if not status.managed:
                if status.state in LIVE_STATES:
                    unmanaged_mib += ordinary_mib(status.memory_mib, status.migration_needs)
                if vm in vms and news.get(vm, 0) < report.seq:
                    self._not_ours(node, status)
                continue
            if news and news.get(vm, 0) >= report.seq:
                continue
            before, instance, state = vms.get(vm), claimed.get(vm), status.state
            differs = (
                before is None
                or before.state is not state
                or before.generation != status.generation
                or before.busy != status.busy
                or before.cpu_mhz != status.cpu_mhz
                or before.address != status.address
                or before.migration_needs != status.migration_needs
                or before.failover != status.failover
                or before.stays_off != status.stays_off
                or before.host_files != status.host_files
            )
            if instance is not None and state is _RUNNING and not differs:
                vms[vm] = status
                instance.host_restarted = False
                self.account(instance, node, status, now_s)
                running += 1
            elif not self._status(node, status, before, differs, now_s) and state in LIVE_STATES:
                unmanaged_mib += ordinary_mib(status.memory_mib, status.migration_needs)
        node.unmanaged_mib = unmanaged_mib
        if running != len(claimed) or (*vms.values(),) != report.vms:  # each once, in the order in which they came
            listed = set(map(_VM, report.vms))
            if not running == len(listed) == len(report.vms) == len(vms) == len(claimed):
                self._absent(node, report, listed, now_s)
        if node.vm_seq:
            node.vm_seq = {vm: seq for vm, seq in node.vm_seq.items() if seq > report.seq}
        if node.flights:
            self._lapsed(node, report)
        if self.cluster.nodes_not_reported:
            self._heard(node)
        if self.cluster.missing:
            self.missing.reported(node, report)

    def _not_ours(self, node: NodeEntry, status: VmStatus) -> None:
        """Handle a VM that was managed and is not: a report may overtake the answer to a release. One that is off is no
        copy of ours; one that is live may still be, and is asked for again once no operation holds it."""
        if status.state not in LIVE_STATES:
            self._drop_copy(node, status.vm)
            return
        before = node.vms[status.vm]
        if before.busy != status.busy:
            node.vms[status.vm] = structs.replace(before, busy=status.busy)
            self._enqueue(status.vm)

    def _absent(self, node: NodeEntry, report: Report, listed: set[str], now_s: float) -> None:
        """Handle VMs that a report omits or lists only as an image."""
        for vm in [vm for vm in node.vms if vm not in listed]:
            if node.vm_seq.get(vm, 0) < report.seq:
                self._drop_copy(node, vm)
                entry = self.cluster.adopted.get(vm)
                if entry is not None and node.name in entry.left_on:
                    self._is_clean(node, entry)
        for instance in list(node.claimed.values()):
            seen = node.vms.get(instance.vm)
            # One that has ended or crashed is left to its guest event.
            gone = seen is None or (seen.state is VmState.SUSPENDED and not seen.busy)
            if gone and node.vm_seq.get(instance.vm, 0) < report.seq:
                self._not_live(node, instance, seen, report, now_s)

    def _heard(self, node: NodeEntry) -> None:
        for entry in self.cluster.first_report(node.name):
            self.unit_of_work.enqueue(entry)

    def _in_progress(self, node: NodeEntry, report: Report) -> None:
        """Take over what the agent has in hand; what a later result has ended already is not taken up again."""
        before = node.in_progress
        node.in_progress = {
            doing.vm: doing for doing in report.in_progress if node.vm_seq.get(doing.vm, 0) < report.seq
        }
        for vm in before:
            if vm not in node.in_progress:
                self._enqueue(vm)

    def _status(self, node: NodeEntry, status: VmStatus, before: VmStatus | None, differs: bool, now_s: float) -> bool:
        """Apply a report's word on one VM, of which it said `before` last; false when its job is not known (then it is
        counted, never touched)."""
        instance = self.cluster.note_copy(node, status)
        if instance is None:
            if before is None and self._strangers.passes(node.name, now_s):
                self.unit_of_work.emit(now_s, "unknown-vm", status.vm, f"on {node.name}")
            return False
        self.account(instance, node, status, now_s)
        if status.state in LIVE_STATES:
            instance.host_restarted = False
        if status.adopted and note_failover(instance, node.name, status):
            self.unit_of_work.change(instance.job)
        if differs:
            self.unit_of_work.enqueue(instance.job)
            if instance.job.job.app and (before is None or before.address != status.address):
                self.unit_of_work.readdressed.add(instance.job.job.app)
        return True

    def _drop_copy(self, node: NodeEntry, vm: str) -> None:
        node.vms.pop(vm, None)
        instance = self.cluster.instances.get(vm)
        if instance is not None:
            instance.copies.discard(node.name)
            self.unit_of_work.enqueue(instance.job)

    def _enqueue(self, vm: str) -> None:
        instance = self.cluster.instances.get(vm)
        if instance is not None:
            self.unit_of_work.enqueue(instance.job)

    def _not_live(
        self, node: NodeEntry, instance: Instance, status: VmStatus | None, report: Report, now_s: float
    ) -> None:
        """Handle a VM that may be there but is omitted, or listed only as an image (`status`). This proves that it does
        not run there, unless an operation may still bring it."""
        if instance.vm in node.in_progress or self._expected(instance, node, report):
            return
        if now_s < instance.arriving_until_s:
            return
        if status is None:
            self._gone(node, instance)
            self.missing.vanished(instance, node, now_s)
        else:
            self.cluster.release(instance, node.name)
            self.unit_of_work.change(instance.job)

    def _expected(self, instance: Instance, node: NodeEntry, report: Report) -> bool:
        """Return whether an order of this controller that may still bring the VM to the node is open."""
        flight = instance.in_flight
        if flight is None or flight.kind not in BRINGING:
            return self._moving_here(instance, node)
        if node.name not in (flight.node, flight.to_node):
            return False
        if flight.node != node.name:
            return True  # the source answers for a migration
        return not _has_lapsed(flight.boot_id, flight.expires_at_s, report)

    def _moving_here(self, instance: Instance, node: NodeEntry) -> bool:
        """Return whether another node still runs a migration here that an older leader ordered."""
        for name in instance.may_run_on:
            doing = self.cluster.nodes[name].in_progress.get(instance.vm) if name in self.cluster.nodes else None
            if doing is not None and doing.to_node == node.name:
                return True
        return False

    def _gone(self, node: NodeEntry, instance: Instance) -> None:
        self.cluster.release(instance, node.name)
        self._drop_copy(node, instance.vm)
        self.unit_of_work.change(instance.job)

    def _lapsed(self, node: NodeEntry, report: Report) -> None:
        """Actions that the agent will never begin any more: it says so by its own clock or by its new boot."""
        doing = {in_progress.id for in_progress in report.in_progress}
        for action, instance in list(node.flights.items()):
            flight = instance.in_flight
            if flight is None or action in doing or not _has_lapsed(flight.boot_id, flight.expires_at_s, report):
                continue
            self.cluster.settle(instance)
            self.unit_of_work.enqueue(instance.job)

    # --- results and guest events -----------------------------------------------------------------------------------

    def result(self, node: NodeEntry, result: Result, now_s: float) -> Instance | None:
        """Apply how an action ended; returns the instance whose open action it was, None when it is not known."""
        instance = self.cluster.actions.get(result.action)
        about = instance or self.cluster.instances.get(result.vm)
        flight = self.cluster.settle(instance) if instance is not None else None
        doing = node.in_progress.get(result.vm)
        if doing is not None and doing.id == result.action:
            del node.in_progress[result.vm]
        if about is None:
            return None
        self.unit_of_work.enqueue(about.job)
        if result.outcome in UNASKED or not _speaks(node, result.boot_id):
            return instance
        if not self._news(node, result.vm, result.seq):
            return instance
        if result.kind is ActionKind.RELEASE and result.outcome is Outcome.OK and node.name in about.may_run_on:
            mib = ordinary_mib(about.job.job.memory_mib, about.needs)
            node.unmanaged_mib += mib  # it runs on; the next report counts it too
        if result.final is not None:
            self.account(about, node, result.final, now_s)
        if result.kind is ActionKind.MIGRATE and result.outcome is Outcome.OK:
            self._moved(node, about, flight.to_node if flight is not None else (doing.to_node if doing else ""), now_s)
        self._word(node, about, result.status, now_s)
        if result.kind is ActionKind.UNDEFINE and result.outcome is Outcome.OK:
            self._is_clean(node, about.job)
        if result.status is None and not (result.outcome is Outcome.OK and result.kind in TAKING):
            self.missing.vanished(about, node, now_s)
        return instance

    def _moved(self, source: NodeEntry, instance: Instance, target: str, now_s: float) -> None:
        instance.arriving_until_s = now_s + self.settings.arrival_grace_s
        node = self.cluster.nodes.get(target)
        before = source.vms.get(instance.vm)
        if node is None or before is None or instance.vm in node.vms:
            return
        arrived = _as_arrived(before)
        self.cluster.note_copy(node, arrived)
        note_failover(instance, target, arrived)

    def _word(self, node: NodeEntry, instance: Instance, status: VmStatus | None, now_s: float) -> None:
        """Apply newer information on one VM than the last report: its status, or its absence."""
        if status is None:
            self._gone(node, instance)
            return
        self.cluster.note_copy(node, status)
        self.account(instance, node, status, now_s)
        note_failover(instance, node.name, status)
        if status.state is VmState.SUSPENDED or (status.adopted and status.state in OFF_STATES):
            self.cluster.release(instance, node.name)
        self.unit_of_work.change(instance.job)

    def _news(self, node: NodeEntry, vm: str, seq: int) -> bool:
        if seq <= max(node.report_seq, node.vm_seq.get(vm, 0)):
            return False
        node.vm_seq[vm] = seq
        return True

    def guest_event(self, node: NodeEntry, event: GuestEvent, now_s: float) -> None:
        """Apply a guest event; the same event again changes nothing."""
        if not node.takes_event(event.event):
            return
        node.events_above.add(event.event)
        self.unit_of_work.change_node(node)
        status = event.status
        news = _speaks(node, event.boot_id) and self._news(node, status.vm, event.seq)
        if event.change in COMING:
            if news:
                self._came(node, event, now_s)
            return
        instance = self.cluster.instances.get(status.vm)
        crashed = bool(event.detail) and event.change is GuestChange.VANISHED
        if crashed and (instance is not None or self._strangers.passes(node.name, now_s)):
            self.unit_of_work.emit(now_s, "guest-crashed", status.vm, f"on {node.name}: {event.detail}")
        if instance is None:
            node.vms.pop(status.vm, None)
            return
        if is_left(instance, node.name, status):
            if news:  # the end of what a failover has left here, told when the host is back
                self._gone(node, instance)
            return
        if event.change is GuestChange.VANISHED:
            instance.failed = Failure("guest", node.name, now_s, "crashed", event.detail[:FAILURE_MAX])
        if status.adopted and (news or _explains(instance, status)):
            # One that may run elsewhere alone did not end by itself where its host has taken that back.
            elsewhere = bool(instance.may_run_on) and node.name not in instance.may_run_on
            with_host = event.change is GuestChange.VANISHED and (instance.host_restarted or elsewhere)
            instance.exit = None if with_host else event.change
            if instance.job.phase is JobPhase.SHUT_OFF:
                note_exit(instance.job)
        if event.change is GuestChange.ENDED and not status.adopted:
            self._ended(instance, status.attempt)
        elif status.state is VmState.CRASHED and event.change is not GuestChange.STOPPED:
            instance.job.crashed = status.attempt
        if news:
            if instance.left and status.generation == instance.generation:
                self.cluster.found(instance)  # it was there all the time
            self.account(instance, node, status, now_s)
            self._gone(node, instance)
            self._went(node, instance, event, now_s)
        self.unit_of_work.change(instance.job)

    def _came(self, node: NodeEntry, event: GuestEvent, now_s: float) -> None:
        instance = self.cluster.note_copy(node, event.status)
        if instance is None:
            return
        instance.said = event.detail or instance.said
        if event.change is GuestChange.STARTED:
            self.drift.started(instance, node, event.status, event.detail, now_s)
        self.unit_of_work.change(instance.job)

    def _went(self, node: NodeEntry, instance: Instance, event: GuestEvent, now_s: float) -> None:
        """Handle the departure of a VM from the node, with the reason that the event gives."""
        if event.change is GuestChange.LEFT:
            instance.said = event.detail or instance.said
            self.missing.left(instance, node, event.detail, now_s)
        elif event.change is GuestChange.STOPPED and not event.status.adopted:
            self.drift.stopped(instance, node, event.detail, now_s)
        elif event.change is GuestChange.VANISHED and event.status.state in LIVE_STATES:
            self.missing.vanished(instance, node, now_s)

    def _ended(self, instance: Instance, attempt: int) -> None:
        """Note that a guest has done its work. An earlier attempt counts too if it was the whole job. An instance of a
        web application is never done: it counts as lost."""
        if instance.job.job.app:
            return
        if attempt == instance.job.attempt or instance.job.job.instances == 1:
            instance.ended = True

    # --- work -----------------------------------------------------------------------------------------------------

    def account(self, instance: Instance, node: NodeEntry, status: VmStatus, now_s: float) -> None:
        """Add the CPU time since the last reading to the work done; a new node or generation starts its counter at 0.
        An incoming VM counts on the target only after its arrival; until then its source reports it."""
        entry = instance.job
        if status.attempt != entry.attempt or node.inventory is None or status.state is _SUSPENDED:
            return
        used_s = counter_s = status.cpu_time_s
        if instance.counter_node == node.name and instance.counter_generation == status.generation:
            used_s -= instance.counter_s
            if used_s < 0.0:
                used_s = 0.0
        elif status.state is VmState.INCOMING or _comes_to(instance, node):
            return
        else:
            instance.counter_node, instance.counter_generation = node.name, status.generation
        instance.counter_s = counter_s
        instance.done_mcycles += used_s * node.inventory.core_mhz
        if used_s > 0:
            entry.progress_s, entry.stalled = now_s, False
        elif self._stalls(entry, now_s):
            entry.stalled = True
            self.unit_of_work.emit(now_s, "job-stalled", entry.job.name, f"no progress since {entry.progress_s:.0f} s")

    def _stalls(self, entry: JobEntry, now_s: float) -> bool:
        wanted = entry.phase is JobPhase.RUNNING and entry.released and not entry.stalled and not entry.job.app
        return wanted and now_s - entry.progress_s >= self.settings.stall_after_s

    # --- nodes falling silent and proven off ------------------------------------------------------------------------

    def silent(self, node: NodeEntry, now_s: float) -> None:
        """Mark a node as unreachable after no report came in time: nothing on it may be assumed any more. This is
        expected of a node that was sent to sleep and holds no VM."""
        node.condition, node.silent_s = NodeCondition.UNKNOWN, None if node.asleep else now_s
        if not node.asleep:
            self.unit_of_work.emit(now_s, "node-unreachable", node.name)
        self.unit_of_work.deploy = True
        self._touch_all(node)

    def proven_off(self, node: NodeEntry, now_s: float, detail: str = "") -> None:
        """Record that the node is off: its VMs have stopped, its images are unreachable, and its open actions will not
        be done. `detail`: how it was proven."""
        node.condition, node.off_boot_id, node.echoed = NodeCondition.OFF, node.boot_id, False
        node.fencing, node.off_s = False, now_s
        node.in_progress.clear()
        self.unit_of_work.deploy = True
        self.unit_of_work.emit(now_s, "node-off", node.name, detail)
        self._touch_all(node)
        for instance in [*node.flights.values(), *node.claimed.values()]:
            flight = instance.in_flight
            if flight is not None and node.name in (flight.node, flight.to_node):
                if flight.kind is ActionKind.MIGRATE and flight.node == node.name:
                    instance.arriving_until_s = now_s + self.settings.arrival_grace_s
                self.cluster.settle(instance)
            instance.host_restarted |= node.name in instance.may_run_on  # its event comes when its host is back
            self.cluster.release(instance, node.name)
            self.unit_of_work.change(instance.job)
        for vm in list(node.vms):
            self._drop_copy(node, vm)
        for entry in self.cluster.adopted.values():
            if entry.phase is JobPhase.SHUT_OFF and last_node(entry.instances[0]) == node.name:
                self.unit_of_work.enqueue(entry)
        node.unmanaged_mib = 0.0
        self._heard(node)
        self.unit_of_work.change_node(node)


def _is_due(before: Report | None, last: Report) -> bool:
    """Return whether the base report for CPU usage must be replaced: it is old, or VMs have come or gone."""
    return before is None or len(before.vms) != len(last.vms) or last.clock_s - before.clock_s >= USAGE_S


def _comes_to(instance: Instance, node: NodeEntry) -> bool:
    """Return whether an order of this controller moves the VM to the node."""
    return instance.in_flight is not None and instance.in_flight.to_node == node.name


def _explains(instance: Instance, status: VmStatus) -> bool:
    """Return whether an event that a report or a result has overtaken says how an adopted VM stopped of which that is
    not known."""
    is_off = instance.job.phase is JobPhase.SHUT_OFF and instance.exit is None
    return is_off and status.generation == instance.generation


def _speaks(node: NodeEntry, boot_id: str) -> bool:
    """Return whether a message of that boot describes the node's current VMs."""
    return boot_id == node.boot_id and boot_id != node.off_boot_id


def _has_lapsed(boot_id: str, expires_at_s: float, report: Report) -> bool:
    return report.boot_id != boot_id or report.clock_s > expires_at_s


def _as_arrived(before: VmStatus) -> VmStatus:
    """Return the assumed state on the target until it reports: the same VM with fresh counters."""
    return VmStatus(
        before.vm,
        before.state,
        before.generation,
        attempt=before.attempt,
        memory_mib=before.memory_mib,
        vcpus=before.vcpus,
        cpu_mhz=before.cpu_mhz,
        address=before.address,
        migration_needs=before.migration_needs,
        adopted=before.adopted,
        definition=before.definition,
        autostart=before.autostart,
        failover=before.failover,
        host_files=before.host_files,
        stays_off=before.stays_off,
    )
