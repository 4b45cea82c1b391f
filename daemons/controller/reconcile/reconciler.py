"""Brings what is seen nearer to what is wanted, again and again, until they agree (architecture, rule 3).

Looks only at jobs that something touched, that wait for room, or whose time has come. What it issues goes to the
unit_of_work's `stored` effects: the ledger is in the store before an order leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from daemons.controller.contract.feature_set import FeatureSet
from daemons.controller.measure.adopted import AdoptedVms
from daemons.controller.measure.drift import Drift
from daemons.controller.reconcile.migrations import Migrations
from daemons.controller.reconcile.observed import headrooms, observed
from daemons.controller.state import transitions
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import FAILURE_MAX, Failure, InFlight, Instance, JobEntry
from daemons.controller.state.migration_fit import lacking_on
from daemons.controller.state.queries import is_busy
from daemons.controller.state.tenancy import admits
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.vm_terms import fails_over, note_move, note_pause, runs, stays_off
from daemons.models.migration_backoff import FIRST_S
from daemons.planning import order
from daemons.planning.diff import diff
from daemons.planning.observed import Ceilings, Diff, Headroom, PlannedAction
from daemons.values.settings import ControllerSettings, Limits
from shared.ports.effects import Publish
from shared.protocol import topology
from shared.protocol.messages import Order, Result
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.jobs import Allotment, JobPhase
from shared.values.vms import LIVE_STATES, VmSpec

SHUNNED_BACK_OFFS = 2  # for so many back-offs after a failed migration or failover another target is looked for
DISKS_COUNT = frozenset({ActionKind.START, ActionKind.RESUME, ActionKind.MIGRATE, ActionKind.ADOPT})
FOR_THE_TARGET = frozenset(
    {Outcome.NO_ROOM, Outcome.REFUSED, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.ALREADY_THERE, Outcome.UNFIT}
)  # it may be the target's fault


class Reconciler:
    """Issues the next safe actions of jobs that are not as wanted."""

    def __init__(
        self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings, features: FeatureSet
    ) -> None:
        self.cluster, self.unit_of_work, self.settings, self._features = cluster, unit_of_work, settings, features
        self.blocked: dict[str, JobEntry] = {}
        self.due_s: dict[str, float] = {}
        self.drift = Drift(cluster, unit_of_work, settings)
        self.adopted = AdoptedVms(cluster, unit_of_work, settings)
        self._issued = 0
        self.migrations = Migrations(cluster, unit_of_work, settings)
        self._ceilings = ceilings_of(settings.limits)

    def run(self, now_s: float) -> None:
        """Reconcile every job that was touched, is blocked or is due; while not acting only note which they are."""
        if not self.unit_of_work.acting:
            self._observe(now_s)
            return
        entries = self.blocked | self.unit_of_work.queued
        for name in [name for name, due_s in self.due_s.items() if due_s <= now_s]:
            if name in self.cluster.active:
                entries[name] = self.cluster.active[name]
        self.unit_of_work.queued = {}
        self.blocked = {}
        needs: list[PlannedAction] = []
        for entry in sorted(entries.values(), key=_first_wanted):
            self.due_s.pop(entry.job.name, None)
            needs += self._needs(entry, now_s)
        if needs:
            self._send(_one_each(needs), now_s)

    def _observe(self, now_s: float) -> None:
        """Take note of jobs whose guests have all ended; who lets orders be issued again touches every job."""
        touched, self.unit_of_work.queued = self.unit_of_work.queued, {}
        for entry in touched.values():
            if not entry.over and entry.instances and all(instance.ended for instance in entry.instances):
                self._complete(entry, now_s)

    def next_due_s(self) -> float:
        """Return when a job must be checked again although nothing touches it (inf: never)."""
        if not self.unit_of_work.acting:
            return math.inf
        return min(self.due_s.values(), default=math.inf)

    # --- what one job needs -----------------------------------------------------------------------------------------

    def _needs(self, entry: JobEntry, now_s: float) -> tuple[PlannedAction, ...]:
        if not entry.over and all(instance.ended for instance in entry.instances):
            self._complete(entry, now_s)
        if entry.over and entry.clear:
            self.unit_of_work.dirty_jobs[entry.job.name] = entry
            self.cluster.retire(entry)
            return ()
        self.drift.look(entry, now_s)
        if entry.phase is JobPhase.SHUT_OFF:
            again_s = self.adopted.follow(entry, now_s)
            if again_s < math.inf:
                self.due_s[entry.job.name] = again_s
        difference = diff(observed(self.cluster, entry))
        if entry.phase is JobPhase.RUNNING and difference.together and not entry.released:
            self._release(entry, now_s)
        if difference.lost or self._overdue(entry, difference, now_s):
            if entry.adopted and (difference.lost or not entry.resuming):
                self.adopted.lost(entry, now_s)
            else:
                self.take_back(entry, now_s, keep_images=not difference.lost)
            difference = diff(observed(self.cluster, entry))
        self._note_due(entry, difference, now_s)
        # While a job is on its way back its old images wait: nothing is to keep a gang from coming together.
        coming = entry.phase is JobPhase.RUNNING and entry.resuming and not entry.released
        left_alone = entry.left_alone(now_s)
        difference = self._without_misfits(entry, difference, now_s)
        return tuple(
            need
            for need in difference.needs
            if not (coming and need.kind is ActionKind.DISCARD_IMAGE)
            and not (self._resting(need, now_s) or self._misplaced(need, entry) or self._beside(need, entry))
            and not (left_alone and self._is_others(need, entry))
        )

    def _without_misfits(self, entry: JobEntry, difference: Diff, now_s: float) -> Diff:
        """Return the difference without migrations to nodes that can no longer take the VM live, or that another
        instance has been brought to since: such a VM is wanted where it is."""
        for need in difference.needs:
            if need.kind is not ActionKind.MIGRATE:
                continue
            lack = lacking_on(self.cluster, self.cluster.instances[need.vm], need.to_node)
            why = f"{need.to_node} lacks {', '.join(lack)}" if lack else self._taken_by(entry, need)
            if why:
                self.unit_of_work.emit(now_s, "migration-unfit", entry.job.name, f"{need.vm}: {why}")
                self._stay(entry, self.cluster.instances[need.vm], need.node)
                return diff(observed(self.cluster, entry))
        return difference

    def _taken_by(self, entry: JobEntry, need: PlannedAction) -> str:
        """Return which instance that must be apart from this one is wanted on the node that it is to go to, as it is
        where somebody else has moved that one there ("": none)."""
        apart = list(zip(entry.instances, entry.allotments, strict=True)) if entry.job.spread else []
        if entry.job.app:
            replicas = self.cluster.replicas[entry.job.app].values()
            apart = [pair for each in replicas for pair in zip(each.instances, each.allotments, strict=False)]
        others = (one.vm for one, wanted in apart if wanted.node == need.to_node and one.vm != need.vm)
        return next((f"{vm} is on {need.to_node}; they must be separate" for vm in others), "")

    def _will_not_converge(self, need: PlannedAction, now_s: float) -> bool:
        """Return whether a migration that a decision wants would not end; the VM then stays for a while, as far as
        decisions go. An operator who insists is followed."""
        instance = self.cluster.instances[need.vm]
        if need.kind is not ActionKind.MIGRATE or instance.insisted:
            return False
        why = self.migrations.refusal(instance, need.node, need.to_node, now_s)
        if why:
            detail = f"{need.vm} to {need.to_node}: {why}"
            self.unit_of_work.emit(now_s, "migration-will-not-converge", instance.job.job.name, detail)
            instance.move_at_s = max(instance.move_at_s, self.migrations.until_s(instance), now_s + FIRST_S)
            self._stay(instance.job, instance, need.node)
        return bool(why)

    def _over_budget(self, need: PlannedAction, now_s: float) -> bool:
        """Return whether a migration that a decision wants would pause the VM for longer than its terms still allow;
        the VM then stays. An operator who insists or drains its node is followed."""
        instance = self.cluster.instances[need.vm]
        if need.kind is not ActionKind.MIGRATE or instance.insisted:
            return False
        found = self.migrations.pause_refusal(instance, need.node, need.to_node, now_s)
        if found is None:
            return False
        pause_s, why = found
        detail = f"{need.vm} to {need.to_node}: {why}"
        self.unit_of_work.emit(now_s, "migration-over-budget", instance.job.job.name, detail)
        instance.pause_hold = now_s + FIRST_S, pause_s
        self._stay(instance.job, instance, need.node)
        return True

    def _is_others(self, need: PlannedAction, entry: JobEntry) -> bool:
        """Return whether an action would undo an external change while reconciliation is paused."""
        return entry.phase is JobPhase.RUNNING or self.cluster.instances[need.vm].by_other

    def _misplaced(self, need: PlannedAction, entry: JobEntry) -> bool:
        """Return whether an action would bring a VM to a node that was reassigned since, or is on its way to another
        environment."""
        comes = need.kind in (ActionKind.START, ActionKind.RESUME, ActionKind.MIGRATE)
        return comes and not admits(self.cluster, self.cluster.nodes.get(need.target), entry.job.environment)

    def _beside(self, need: PlannedAction, entry: JobEntry) -> bool:
        """Return whether an action would start a web instance on a node that another instance of its application has
        not left. It then waits as if for capacity."""
        node = self.cluster.nodes.get(need.target)
        if need.kind is not ActionKind.START or not entry.job.app or node is None:
            return False
        beside = any(other.job.job.app == entry.job.app for other in node.claimed.values() if other.vm != need.vm)
        if beside:
            self.blocked[entry.job.name] = entry
        return beside

    def _resting(self, need: PlannedAction, now_s: float) -> bool:
        """Return whether the VM's back-off delays the action; a start has the back-off of its attempt. A web instance
        is stopped when it may be."""
        instance = self.cluster.instances[need.vm]
        if need.kind is ActionKind.STOP and not self._features.may_stop(instance.job, now_s):
            return True
        if need.kind is ActionKind.MIGRATE and not instance.insisted and now_s < instance.move_at_s:
            return True
        return need.kind is not ActionKind.START and now_s < instance.retry_at_s

    def _complete(self, entry: JobEntry, now_s: float) -> None:
        look_at_speed(entry, now_s)
        entry.measured_mcycles = entry.done_mcycles
        transitions.complete(self.cluster, entry, now_s)
        self.unit_of_work.records += self.cluster.lengths.ended(entry)
        self.unit_of_work.dirty_jobs[entry.job.name] = entry
        self.unit_of_work.place = True
        self.unit_of_work.emit(now_s, "job-completed", entry.job.name)

    def _release(self, entry: JobEntry, now_s: float) -> None:
        """Release the instances: all are live and run together from here on (a gang's last step is to unpause them)."""
        what = "job-resumed" if entry.resuming else "web-instance-started" if entry.job.app else "job-started"
        if entry.adopted:
            what = "adopted-vm-on" if entry.taken and not entry.resuming else what
            runs(entry)
        entry.released, entry.resuming, entry.begun_s = True, False, None
        if not entry.job.app:
            entry.failures = 0  # an instance of a web application must first have run for a while
        entry.progress_s = now_s
        entry.reading = (now_s, entry.done_mcycles)
        self.unit_of_work.place = True  # it may be moved or give way from now on
        self.unit_of_work.dirty_jobs[entry.job.name] = entry
        self.unit_of_work.emit(now_s, what, entry.job.name, f"attempt {entry.attempt}")

    def _overdue(self, entry: JobEntry, difference: Diff, now_s: float) -> bool:
        """Return whether the gang is late. An operation in progress may take longer: the attempt is not given up
        meanwhile, and the agent's limit and the order's expiry bound the operation."""
        if entry.phase is not JobPhase.RUNNING or entry.released or difference.together:
            return False
        late = now_s >= self._deadline_s(entry) or self._has_lost_its_place(entry)
        return late and not any(is_busy(self.cluster, i) for i in entry.instances)

    def _has_lost_its_place(self, entry: JobEntry) -> bool:
        """Return whether a node that the job is wanted on is being or was evacuated for another environment."""
        nodes = (self.cluster.nodes.get(allotment.node) for allotment in entry.allotments)
        return any(not admits(self.cluster, node, entry.job.environment) for node in nodes if node is not None)

    def _deadline_s(self, entry: JobEntry) -> float:
        if entry.begun_s is not None:
            return entry.begun_s + self.settings.gang_timeout_s
        return entry.wanted_s + self.settings.decide_s  # no room so long: let the policy think again

    def take_back(self, entry: JobEntry, now_s: float, keep_images: bool) -> None:
        """Give up this attempt to run the job. One that was being resumed goes back to its images if it still has them
        all. Any other waits to restart, after a back-off if not all its instances came up, or if it crashes soon after
        each start."""
        was_running = entry.released
        suspended = keep_images and entry.resuming
        transitions.take_back(self.cluster, entry, suspended)
        if entry.job.app and now_s - entry.wanted_s >= self.settings.retry_max_s:
            entry.failures = 0
        if not was_running or entry.job.app:  # nothing but a back-off keeps guests that end at once from it for ever
            entry.failures += 1
            entry.not_before_s = now_s + self._back_off_s(entry.failures)
        if entry.crashed == entry.attempt and not entry.job.app:
            self._note_crash(entry, now_s)
        if entry.reconciliation_paused is not None and entry.left_alone(now_s):
            entry.not_before_s = max(entry.not_before_s, entry.reconciliation_paused.until_s)
        self.unit_of_work.change(entry)
        self.unit_of_work.place = True
        seen = was_running or any(one.counter_generation == one.generation for one in entry.instances)
        what = "job-requeued"
        if entry.job.app:
            what = "web-instance-lost" if seen else "web-instance-waiting"
        self.unit_of_work.emit(now_s, what, entry.job.name, f"attempt {entry.attempt}")

    def _note_crash(self, entry: JobEntry, now_s: float) -> None:
        """Note a crash: the job restarts at once, and after a back-off from the second crash in a row."""
        soon = now_s - entry.wanted_s < self.settings.retry_max_s
        entry.crashes = entry.crashes + 1 if soon else 1
        if entry.crashes > 1:
            entry.not_before_s = max(entry.not_before_s, now_s + self._back_off_s(entry.crashes - 1))

    def _back_off_s(self, failures: int) -> float:
        return float(min(self.settings.retry_max_s, self.settings.retry_s * 2.0 ** min(failures - 1, 30)))

    def _note_due(self, entry: JobEntry, difference: Diff, now_s: float) -> None:
        due_s = math.inf
        if entry.phase is JobPhase.RUNNING and not entry.released and not difference.together:
            due_s = max(self._deadline_s(entry), now_s + self.settings.reconcile_s)
        if entry.reconciliation_paused is not None and now_s < entry.reconciliation_paused.until_s:
            due_s = min(due_s, entry.reconciliation_paused.until_s)
        for instance in entry.instances:
            for at_s in (instance.retry_at_s, instance.arriving_until_s):
                if now_s < at_s < due_s:
                    due_s = at_s
        if due_s < math.inf:
            self.due_s[entry.job.name] = due_s

    # --- sending ----------------------------------------------------------------------------------------------------

    def _send(self, needs: list[PlannedAction], now_s: float) -> None:
        rooms = headrooms(self.cluster, needs)
        in_progress = Headroom(0.0, 0.0, len(self.cluster.actions), self.cluster.migrations)
        wave = order.wave(needs, rooms, self._ceilings, in_progress)
        chosen = wave.chosen
        if not chosen and not self.cluster.actions:
            stuck = order.cycle(wave.blocked)
            if stuck is not None:
                chosen = [order.suspension(stuck)]
        for need in chosen:
            if not (self._will_not_converge(need, now_s) or self._over_budget(need, now_s)):
                self._issue(need, now_s)
        for need in wave.blocked:
            entry = self.cluster.active[need.workload]
            self.blocked[need.workload] = entry

    def _issue(self, need: PlannedAction, now_s: float) -> None:
        instance = self.cluster.instances[need.vm]
        entry = instance.job
        node = self.cluster.nodes[need.node]
        generation = need.expects
        spec = None
        if need.kind is ActionKind.ADOPT and need.expects:
            spec = self._spec(instance, need)  # it is ours already: its definition is to be read again
        elif need.kind in (ActionKind.START, ActionKind.RESUME, ActionKind.ADOPT):
            generation, spec = self._bring(instance, need, now_s)
        elif need.kind is ActionKind.MIGRATE:
            self.cluster.claim(instance, need.to_node)
            if not instance.insisted:
                note_move(entry, now_s)
        elif need.kind is ActionKind.SET_CPU and need.set_mhz > instance.cpu_mhz:
            self.cluster.set_cpu(instance, need.set_mhz)
        self.drift.ordered(instance, need.kind, need.node, need.to_node)
        self._issued += 1
        id = f"{self.unit_of_work.term}-{self._issued}"
        moves = need.kind is ActionKind.MIGRATE
        action = Action(
            id,
            need.kind,
            need.node,
            vm=need.vm,
            term=self.unit_of_work.term,
            boot_id=node.boot_id,
            expires_at_s=now_s + self.settings.action_ttl_s,
            expects=need.expects,
            generation=generation,
            spec=spec,
            from_node=need.from_node,
            to_node=need.to_node,
            cpu_mhz=need.set_mhz,
            cap_mhz=None,
            paused=need.paused,
            disks=instance.disks if need.kind in DISKS_COUNT else 0,
            digest=dict(entry.left_digests).get(need.node, "") if need.kind is ActionKind.UNDEFINE else "",
            migration=self.migrations.terms(instance, need.node, need.to_node, id) if moves else None,
        )
        flight = InFlight(action.id, action.kind, action.node, action.to_node, action.boot_id, action.expires_at_s)
        self.cluster.begin(instance, flight)
        self.unit_of_work.dirty_jobs[entry.job.name] = entry
        self.unit_of_work.stored.append(Publish(topology.ACTIONS, node.name, Order(action, node.events_seen)))

    def _bring(self, instance: Instance, need: PlannedAction, now_s: float) -> tuple[int, VmSpec]:
        """Enter a VM that is to come to life into the ledger; returns its generation and what the agent must know."""
        entry = instance.job
        instance.generation += 1
        instance.issued_attempt = entry.attempt
        instance.cpu_mhz = need.set_mhz
        self.cluster.claim(instance, need.node)
        if entry.begun_s is None and not entry.released:
            entry.begun_s = now_s
            self.due_s[entry.job.name] = self._deadline_s(entry)
        return instance.generation, self._spec(instance, need)

    def _spec(self, instance: Instance, need: PlannedAction) -> VmSpec:
        job, facts = instance.job.job, instance.failover
        anew = need.kind is ActionKind.START and bool(instance.job.adopted) and not need.expects
        return VmSpec(
            instance.vm,
            instance.generation,
            instance.job.attempt,
            memory_mib=job.memory_mib,
            vcpus=job.vcpus,
            cpu_mhz=need.set_mhz,
            cap_mhz=None,
            template=job.template,
            arguments=job.arguments,
            environment=job.environment,
            failover=fails_over(instance.job),
            autostart=anew and facts is not None and facts.autostart,
            definition=instance.job.definition if anew else (),
            stays_off=stays_off(instance.job),
        )

    def rolled_back(self, action: Action) -> None:
        """Undo what the ledger holds for an action that was planned but will not be sent."""
        instance = self.cluster.actions.get(action.id)
        if instance is None:
            return
        self.cluster.settle(instance)
        if action.kind in (ActionKind.START, ActionKind.RESUME, ActionKind.MIGRATE, ActionKind.ADOPT):
            target = action.to_node or action.node
            if target not in instance.copies:
                self.cluster.release(instance, target)
        self.unit_of_work.change(instance.job)

    def outcome(self, instance: Instance, result: Result, now_s: float) -> None:
        """Note how an action ended: clear or lengthen the back-off; a failed migration is not wanted any more."""
        entry = instance.job
        self.drift.answered(instance, result.kind, result.node, result.outcome, result.status)
        if result.status is not None and result.status.state in LIVE_STATES:
            self.cluster.set_cpu(instance, result.status.cpu_mhz)
        how = ""
        if result.kind is ActionKind.MIGRATE:
            how, paused_s = self.migrations.answered(instance, result, now_s)
            if not instance.insisted:
                note_pause(entry, paused_s, now_s)
            instance.insisted = False
            instance.move_at_s = self.migrations.until_s(instance)
        if result.outcome is Outcome.OK:
            if result.kind is ActionKind.ADOPT and result.status is not None:
                entry.taken = True
                entry.definition, entry.definition_digest = result.definition, result.status.definition
                self.unit_of_work.change(entry)
            instance.failures = 0
            instance.shunned.clear()
            if instance.failed is not None and instance.failed.kind == result.kind.value:
                instance.failed = None  # the same has gone well since
            if result.kind is ActionKind.MIGRATE:
                how = f": {how}" if how else ""
                self.unit_of_work.emit(now_s, "vm-migrated", instance.vm, f"{result.action} from {result.node}{how}")
            if result.kind is ActionKind.SUSPEND:
                self.unit_of_work.place = True  # it may be resumed from now on
            return
        self.unit_of_work.emit(
            now_s,
            "action-failed",
            instance.vm,
            f"{result.action} {result.kind} on {result.node}: {result.outcome} {result.detail}".rstrip(),
        )
        instance.failed = Failure(
            result.kind.value, result.node, now_s, result.outcome.value, result.detail[:FAILURE_MAX]
        )
        instance.failures += 1
        back_off_s = self._back_off_s(instance.failures)
        instance.retry_at_s = now_s + back_off_s
        anew = result.kind is ActionKind.START and entry.failover_to == result.node
        if result.outcome in FOR_THE_TARGET and (anew or result.kind is ActionKind.MIGRATE):
            targets = {result.node} if anew else instance.places - {result.node}
            instance.shunned |= dict.fromkeys(targets, now_s + SHUNNED_BACK_OFFS * back_off_s)
        if result.kind is ActionKind.MIGRATE and entry.phase is JobPhase.RUNNING:
            self._stay(entry, instance, result.node)

    def _stay(self, entry: JobEntry, instance: Instance, node: str) -> None:
        index = entry.instances.index(instance)
        allotments = list(entry.allotments)
        allotments[index] = Allotment(node, allotments[index].cpu_mhz)
        transitions.reallot(self.cluster, entry, allotments)
        entry.not_before_s = max(entry.not_before_s, instance.retry_at_s)
        self.unit_of_work.change(entry)
        self.unit_of_work.place = True


def look_at_speed(entry: JobEntry, now_s: float) -> None:
    """Note the speed of a job since it was last looked at, if it ran all the while: the highest is kept."""
    before, entry.reading = entry.reading, None
    if before is None:
        return
    since_s, done_mcycles = before
    if now_s > since_s:
        entry.measured_mhz = max(entry.measured_mhz, (entry.done_mcycles - done_mcycles) / (now_s - since_s))


def _one_each(needs: Sequence[PlannedAction]) -> list[PlannedAction]:
    """Return one action for each VM; the next is chosen when it has ended. A leftover image is discarded last, but
    before a restart."""
    chosen: dict[str, PlannedAction] = {}
    for need in needs:
        before = chosen.get(need.vm)
        later = before is not None and before.kind is ActionKind.DISCARD_IMAGE and need.kind is not ActionKind.START
        if before is None or later:
            chosen[need.vm] = need
    return list(chosen.values())


def _first_wanted(entry: JobEntry) -> tuple[int, int]:
    """Room goes to what was decided first."""
    return entry.wanted_rank, entry.order


def ceilings_of(limits: Limits) -> Ceilings:
    """Return the limits on operations in progress in the form that planning takes."""
    return Ceilings(limits.actions_per_node, limits.migrations_per_node, limits.actions_total, limits.migrations_total)
