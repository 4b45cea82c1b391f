"""What must hold for web applications and for rules on where workloads run, by what the controller has stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from shared.protocol.messages import Reply
from shared.protocol.operator_messages import DestroyEnvironment, RemoveWeb, Request, SubmitWeb
from shared.values.jobs import INSTANCE_SEPARATOR, JobPhase, Rules, workload_of
from shared.values.vms import LIVE_STATES, VmState
from shared.values.web_app import WebApp
from sim_backend.loop.closed_loop import ClosedLoop

Nodes = tuple[str, ...]
_FREE = Rules()
STAYED_S = 1_200.0  # within it what a failed migration, or somebody else, has brought together or apart is put right


class AppChecks:
    """Every accepted application stays in the store until it is removed, its instances live as they may, and what is
    wanted keeps the required rules about nodes, labels and other workloads, in their scopes, and disabled migration; no
    two instances of an application are on one node."""

    def __init__(self, loop: ClosedLoop, report: Callable[[str, str], None]) -> None:
        self._loop, self._report = loop, report
        self.is_stuck: Callable[[str], bool] = lambda _name: False  # whether no other node could run it now
        self.accepted: set[str] = set()
        self._changed: list[Any] = []
        self._wanted: dict[str, Nodes] = {}  # where each workload is wanted to run
        self._rules: dict[str, Rules] = {}  # of each workload that has any
        self.ruled_s: dict[str, float] = {}  # when the rules of a workload were changed
        self._kept: dict[str, tuple[int, Nodes]] = {}  # attempt and nodes of those that must not be moved
        self._stayed: dict[str, float] = {}  # when a migration of theirs failed
        self._left_alone: dict[str, float] = {}  # until when they stay where somebody else has put them
        self._most: dict[str, int] = {}  # most instances of an application that were ever asked for

    def on_reply(self, request: Request, reply: Reply) -> None:
        """Record the answer to an operator's request."""
        if isinstance(request, SubmitWeb):
            name = request.app.name
            if not reply.done:
                self._report("web-refused", f"{name}: {reply.code} {reply.detail}")
                return
            self.accepted.add(name)
            if self._loop.store.get(("web", name)) is None and not self._asked_to_remove(name):
                self._report("web-lost", f"{name} was accepted and is not in the store")

    def job_stored(self, record: Any) -> None:
        """Record that a job or an instance is about to be stored."""
        self._want(record)
        self._changed.append(record)

    def app_stored(self, app: WebApp) -> None:
        """Record that an application is about to be stored."""
        self._most[app.name] = max(self._most.get(app.name, 0), app.max_instances)

    def deleted(self, key: tuple[str, str]) -> None:
        """Check the deletion of a record that is about to happen."""
        kind, name = key
        if kind == "job":
            self._wanted.pop(name, None)
            self._rules.pop(name, None)
        elif kind == "web":
            self._rules.pop(name, None)
            self._check_removed(name)

    def all_stored(self) -> None:
        """Check all records of one write after the last of them."""
        changed, self._changed = self._changed, []
        for record in changed:
            self._check_own(record)
        if changed:
            self._check_groups()

    # --- what is wanted -------------------------------------------------------------------------------------------

    def _want(self, record: Any) -> None:
        name, rules = record.job.name, record.job.rules
        if self._stays(record):
            self._stayed[record.job.app or name] = self._loop.engine.now_s
        if record.reconciliation_paused is not None:
            self._left_alone[record.job.app or name] = record.reconciliation_paused.until_s
        if record.adopted and record.phase is JobPhase.RUNNING and name not in self._wanted and not record.failover_to:
            self.ruled_s[name] = self._loop.engine.now_s  # it is where its owner made or started it
        if record.phase is JobPhase.RUNNING:
            self._wanted[name] = tuple(allotment.node for allotment in record.allotments)
        else:
            self._wanted.pop(name, None)
        if self._rules.get(record.job.app or name, rules) != rules:  # changed: the next cycle may have to repair it
            self.ruled_s[record.job.app or name] = self._loop.engine.now_s
        if rules != _FREE:
            self._rules[record.job.app or name] = rules
        else:
            self._rules.pop(record.job.app or name, None)

    def _stays(self, record: Any) -> bool:
        """Return whether a migration has failed: the VM is wanted where it was, regardless of other decisions in the
        meantime."""
        before = self._loop.store.get(record.key)
        if before is None or (before.phase, before.attempt) != (record.phase, record.attempt):
            return False
        moved = [
            new.node in instance.may_run_on
            for old, new, instance in zip(before.allotments, record.allotments, before.instances, strict=False)
            if old.node != new.node
        ]
        return bool(moved) and all(moved)

    def _excused(self, members: Iterable[str]) -> bool:
        """Return whether one of the members stays where it was, or has its reconciliation paused where somebody else
        put it, now or so recently that there was no time to react."""
        now_s = self._loop.engine.now_s
        return any(
            max(since.get(member, -math.inf) for since in (self._stayed, self._left_alone, self.ruled_s)) + STAYED_S
            >= now_s
            for member in members
        )

    def _check_own(self, record: Any) -> None:
        """Check the rules that concern one workload alone."""
        name, rules = record.job.name, record.job.rules
        nodes = self._wanted.get(name, ())
        left_alone = self._excused([record.job.app or name])
        if not left_alone and any(
            (rules.node_affinity and node not in rules.node_affinity)
            or node in rules.node_anti_affinity
            or not {*rules.label_affinity} <= {*self._labels(node)}
            or {*rules.label_anti_affinity} & {*self._labels(node)}
            for node in nodes
        ):
            self._report("rule-broken", f"{name} is wanted on {nodes}, against {rules}")
        if rules.no_migration and nodes:
            before = self._kept.get(name)
            if not left_alone and before is not None and before[0] == record.attempt and before[1] != nodes:
                self._report("rule-broken", f"{name} is to be kept on {before[1]}, and is wanted on {nodes}")
            self._kept[name] = (record.attempt, nodes)
        if record.job.app and record.phase in (JobPhase.SUSPENDED, JobPhase.COMPLETED):
            self._report("instance-phase", f"{name} is {record.phase}")

    def _check_groups(self) -> None:
        """Check the rules between workloads, and between the instances of one application."""
        homes: dict[str, list[str]] = {}
        for name, nodes in self._wanted.items():
            owner = workload_of(name)[0] if INSTANCE_SEPARATOR in name else name
            homes.setdefault(owner, []).extend(nodes)
        for app in self._loop.apps:
            replicas = sorted(homes.get(app, ()))
            if len(set(replicas)) < len(replicas) and not self._excused([app]):
                self._report("instances-together", f"{app} is wanted on {replicas}")
            if len(replicas) > self._most.get(app, len(replicas)):
                self._report("too-many-instances", f"{app} is wanted on {replicas}")
        for owner, rules in self._rules.items():
            if homes.get(owner):
                self._check_related(owner, rules, homes)

    def _check_related(self, owner: str, rules: Rules, homes: Mapping[str, Sequence[str]]) -> None:
        """Check the rules of a workload about others, each in its scope."""

        def domains(name: str, scope: str) -> list[str]:
            return [self._domain(node, scope) for node in homes.get(name, ())]

        def members(group: str, key: str) -> set[str]:
            return {name for name, each in self._rules.items() if group and getattr(each, key) == group}

        scope = rules.affinity_scope
        near = {*members(rules.affinity, "affinity"), *rules.vm_affinity} - {owner}
        bound = bool(rules.affinity) or any(homes.get(name) for name in near)
        places = {domain for name in (owner, *near) for domain in domains(name, scope)}
        if bound and len(places) > 1 and not self._excused((owner, *near)):
            self._report("rule-broken", f"{owner} is to be with {sorted(near)}: {sorted(places)}")
        scope = rules.anti_affinity_scope
        group = members(rules.anti_affinity, "anti_affinity") - {owner}
        far = group | ({*rules.vm_anti_affinity} - {owner})
        own = domains(owner, scope)
        shared = {*own} & {each for name in far for each in domains(name, scope)}
        alone = owner in rules.vm_anti_affinity or (bool(rules.anti_affinity) and not group)
        together = {owner, *(name for name in far if shared.intersection(domains(name, scope)))}
        if len(together) > 1 and all(map(self.is_stuck, together)):
            self.ruled_s |= dict.fromkeys(together, self._loop.engine.now_s)
        if (shared or (alone and len(set(own)) < len(own))) and not self._excused((owner, *far)):
            self._report("rule-broken", f"{owner} is to be apart from {sorted(far)}: {sorted(own)}")

    def _labels(self, node: str) -> tuple[str, ...]:
        hypervisor = self._loop.cluster.hypervisors.get(node)
        return hypervisor.node.labels if hypervisor is not None else ()

    def _domain(self, node: str, scope: str) -> str:
        """Return what counts as one place: the label with this key, else the node."""
        return next((label for label in self._labels(node) if label.split("=")[0] == scope), node)

    # --- removed --------------------------------------------------------------------------------------------------

    def _check_removed(self, app: str) -> None:
        """Check that an application is deleted only after a request to remove it, and when none of its VMs runs."""
        if not self._asked_to_remove(app):
            self._report("web-lost", f"{app} was forgotten unasked")
        for vm, node, state in vms_of(self._loop, app):
            if state in LIVE_STATES:
                self._report("forgotten-early", f"{vm} is {state} on {node}")

    def _asked_to_remove(self, app: str) -> bool:
        operator = self._loop.operator
        asked = [*operator.pending.values(), *operator.answered.values()]
        known = self._loop.apps.get(app)
        home = known.environment if known is not None else ""
        return any(
            (isinstance(request, RemoveWeb) and request.app == app)
            or (isinstance(request, DestroyEnvironment) and request.environment == home)
            for request in asked
        )


def vms_of(loop: ClosedLoop, app: str) -> list[tuple[str, str, VmState]]:
    """Return name, node and state of every VM of an application."""
    return [
        (vm, node, domain.state)
        for node, hypervisor in loop.cluster.hypervisors.items()
        for vm, domain in hypervisor.domains.items()
        if vm.startswith(app + INSTANCE_SEPARATOR)
    ]


def unsettled_apps(loop: ClosedLoop) -> list[str]:
    """Return why web applications have not converged. Those that are not removed must have a number of instances within
    their limits, each on a node of its own. Removed ones must have left nothing in the store and in the world."""
    why: list[str] = []
    for name, app in loop.apps.items():
        vms = vms_of(loop, name)
        if loop.balancers[name].stopped:
            why += [f"{vm} is {state} on {node}, and {name} was removed" for vm, node, state in vms]
            if loop.store.get(("web", name)) is not None:
                why.append(f"{name} was removed and is in the store")
            continue
        running = [node for _, node, state in vms if state is VmState.RUNNING]
        if not app.min_instances <= len(running) <= app.max_instances:
            why.append(f"{name} has {len(running)} instances, not {app.min_instances} to {app.max_instances}")
        if len(set(running)) < len(running):
            why.append(f"{name} has two instances on one node: {sorted(running)}")
    return why
