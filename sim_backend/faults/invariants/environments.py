"""Invariants for environments, checked from the true events on hosts and from messages and records. The controller's
core is never consulted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.ports import effects as fx
from shared.protocol.messages import Result
from shared.protocol.operator_messages import CancelJob, DestroyEnvironment
from shared.values.actions import ActionKind, Outcome
from shared.values.agreement import Agreement, EnvironmentState, Granularity, OnReclaim, WorkloadType
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.jobs import workload_of
from shared.values.nodes import Handover, NodeService, SetupStep
from shared.values.vms import LIVE_STATES, VmState
from sim_backend.fakes.host_setup import SetupRun
from sim_backend.loop.closed_loop import ClosedLoop

LOOK_S = 10.0
LATE_S = 300.0  # beyond a lease unit: so long a silent node counts, and no controller may lead
Report = Callable[[str, str], None]


@dataclass(slots=True)
class _Since:
    """Since when something that may be only for a while has been so."""

    at_s: float
    what: str


class EnvironmentChecks:
    """No VM on a node of others or on one that is not set up for it, no setup beside a VM, no lower bound lent, no work
    thrown away. `agreements`: of all environments that there ever are."""

    def __init__(self, loop: ClosedLoop, agreements: Sequence[Agreement], report: Report) -> None:
        self._loop, self._report = loop, report
        self._agreements = {agreement.name: agreement for agreement in agreements}
        self._alive: dict[str, dict[str, str]] = {}  # VMs on each node, with whose they are
        self._left_s: dict[tuple[str, str], float] = {}  # when a node had a VM of an environment last
        self._runs: dict[str, list[SetupRun]] = {}
        self._runs_seen = self._with_seen = self._doubled_seen = 0
        self._blamed: set[str] = set()  # jobs that have lost a VM, or of which an operation failed
        self._released: set[tuple[str, int]] = set()  # jobs that were set free to run, with their attempt
        self._since: dict[str, _Since] = {}
        self._then_write, loop.store.on_write = loop.store.on_write, self._written
        for agent in loop.agents.values():
            agent.on_effect = self._hearing(agent.on_effect)
        loop.engine.at(LOOK_S, 0, self._tick)

    def blame(self, vm: str) -> None:
        """Note that a VM was lost, and with it the work of its job."""
        self._blamed.add(workload_of(vm)[0])

    # --- VMs and setups ---------------------------------------------------------------------------------------------

    def look(self, node: str) -> None:
        """Check the VMs on a node after a change."""
        self._read_setups()
        now_s, before = self._loop.engine.now_s, self._alive.get(node, {})
        domains = self._loop.cluster.hypervisor(node).domains
        alive = {vm: self._holder(vm) for vm, domain in domains.items() if domain.state in LIVE_STATES}
        self._alive[node] = alive
        for holder in {*before.values()} - {*alive.values()}:
            self._left_s[node, holder] = now_s
        if len(set(alive.values())) > 1:
            self._report("foreign-vm", f"{node} has {_shown(alive)}")
        for vm in sorted(alive.keys() - before.keys()):
            self._check_begun(vm, alive[vm], node)

    def _holder(self, vm: str) -> str:
        """Return the environment that a VM's nodes belong to; "" for VMs on nodes without one."""
        environment = environment_of(self._loop, workload_of(vm)[0])
        agreement = self._agreements.get(environment)
        return environment if agreement is not None and agreement.granularity is Granularity.NODE else ""

    def _check_begun(self, vm: str, holder: str, node: str) -> None:
        """Check that the previous environment of the node has released it, and that it has been acquired since."""
        runs = self._runs.get(node, [])
        strangers_s = [-1.0]
        for name, agreement in self._agreements.items():
            if name == holder:
                continue
            left_s = self._left_s.get((node, name), -1.0)
            strangers_s.append(left_s)
            came_s = max((run.begun_s for run in runs if (run.environment, run.step) == (name, _ACQUIRE)), default=-1.0)
            if _acts(agreement.setup, _RELEASE) and max(left_s, came_s) > _done_s(runs, name, _RELEASE):
                self._report("not-released", f"{vm} on {node}, which {name} has not released")
        strangers_s.append(self._left_s.get((node, ""), -1.0) if holder else -1.0)
        last_s = max(strangers_s)
        if holder and _acts(self._agreements[holder].setup, _ACQUIRE) and _done_s(runs, holder, _ACQUIRE) < last_s:
            self._report("not-acquired", f"{vm} on {node}, where others were until {last_s:.0f} s")
        if holder and _acts(self._agreements[holder].setup, _ACQUIRE) and _done_s(runs, holder, _ACQUIRE) < 0.0:
            self._report("not-acquired", f"{vm} on {node}, which was never set up for {holder}")
        if self._loop.fake_setups.in_progress(node) is not None:
            self._report("vm-in-setup", f"{vm} on {node}")

    def _read_setups(self) -> None:
        setups = self._loop.fake_setups
        for run in setups.runs[self._runs_seen :]:
            self._runs.setdefault(run.node, []).append(run)
        for at_s, node, vm in setups.set_up_with[self._with_seen :]:
            self._report("vm-in-setup", f"{vm} on {node} at {at_s:.0f} s")
        for at_s, node in setups.doubled[self._doubled_seen :]:
            self._report("setup-twice", f"two at once on {node} at {at_s:.0f} s")
        self._runs_seen, self._with_seen = len(setups.runs), len(setups.set_up_with)
        self._doubled_seen = len(setups.doubled)

    # --- work -------------------------------------------------------------------------------------------------------

    def _hearing(self, then: Callable[[Any, fx.Effect], None] | None) -> Callable[[Any, fx.Effect], None]:
        def hear(shell: Any, effect: fx.Effect) -> None:
            if isinstance(effect, fx.Operate) and effect.action.kind is ActionKind.STOP:
                self._check_stop(shell.node, effect.action.vm, effect.action.expects)
            message = effect.message if isinstance(effect, fx.Publish) else None
            if isinstance(message, Result) and message.outcome is not Outcome.OK:
                self.blame(message.vm)
            if then is not None:
                then(shell, effect)

        return hear

    def _written(self, term: int, records: tuple[Any, ...]) -> None:
        for one in records:
            if one.key[0] == "job" and getattr(one, "released", False):  # else it is deleted, or does not run
                self._released.add((one.job.name, one.attempt))
        if self._then_write is not None:
            self._then_write(term, records)

    def _check_stop(self, node: str, vm: str, generation: int) -> None:
        """Check that jobs on reclaimed nodes are suspended, not stopped, if the specification says so and they run."""
        name = workload_of(vm)[0]
        job = self._loop.jobs.get(name)
        agreement = self._agreements.get(job.environment) if job is not None else None
        domain = self._loop.cluster.hypervisor(node).domains.get(vm)
        if agreement is None or domain is None or agreement.batch.on_reclaim is not OnReclaim.SUSPEND:
            return
        runs = domain.state is VmState.RUNNING and domain.generation == generation
        runs = runs and (name, domain.attempt) in self._released
        if runs and name not in self._blamed and not self._is_to_end(name, agreement.name):
            self._report("work-thrown-away", f"{vm} of {agreement.name} on {node}")

    def _is_to_end(self, job: str, environment: str) -> bool:
        operator = self._loop.operator
        asked = [*operator.pending.values(), *operator.answered.values()]
        return any(
            (isinstance(one, CancelJob) and one.job == job)
            or (isinstance(one, DestroyEnvironment) and one.environment == environment)
            for one in asked
        )

    # --- what may be only for a while ---------------------------------------------------------------------------------

    def _tick(self) -> None:
        now_s = self._loop.engine.now_s
        self._read_setups()
        found = {**self._lent(), **self._unreturned(), **self._over_quota()}
        for key in [key for key in self._since if key not in found]:
            del self._since[key]
        for key, (what, limit_s) in found.items():
            since = self._since.setdefault(key, _Since(now_s, what))
            if now_s - since.at_s > limit_s:
                self._report(key.partition(" ")[0], f"{since.what} since {since.at_s:.0f} s")
                since.at_s = math.inf
        self._loop.engine.at(now_s + LOOK_S, 0, self._tick)

    def _lent(self) -> dict[str, tuple[str, float]]:
        """Return a finding if groups hold more than their lower bounds while others lack nodes that are not free."""
        groups = groups_of(self._loop, self._agreements)
        if not groups:
            return {}
        held = held_by(self._loop)
        sizes = [(sum(one.agreement.lower for one in group), _held(group, held)) for group in groups]
        missing = sum(max(0, lower - have) for lower, have in sizes)
        if missing <= held.get("", 0) or all(have <= lower for lower, have in sizes):
            return {}
        lease_s = max(one.agreement.lease_s for group in groups for one in group)
        told = ", ".join(f"{'+'.join(_names(g))} {have} of {low}" for g, (low, have) in zip(groups, sizes, strict=True))
        return {"lower-bound-lent": (f"{told}, {held.get('', 0)} free", lease_s + LATE_S)}

    def _unreturned(self) -> dict[str, tuple[str, float]]:
        """Return a finding if an environment holds more nodes than its size while another holds fewer. This may last
        one reallocation interval."""
        groups, held = groups_of(self._loop, self._agreements), held_by(self._loop)
        serving = [record for group in groups for record in group]
        sizes = {record.agreement.name: (held.get(record.agreement.name, 0), record.size) for record in serving}
        if all(have >= size for have, size in sizes.values()) or all(have <= size for have, size in sizes.values()):
            return {}
        lease_s = max(record.agreement.lease_s for record in serving)
        told = ", ".join(f"{name} {have} of {size}" for name, (have, size) in sizes.items())
        return {"size-not-returned": (told, lease_s + LATE_S)}

    def _over_quota(self) -> dict[str, tuple[str, float]]:
        """Return a finding for each environment of VMs that has more running VMs than units."""
        found = {}
        for record in stored(self._loop, "environment", self._agreements).values():
            name = record.agreement.name
            if record.agreement.granularity is not Granularity.VM:
                continue
            alive = [
                vm
                for vms in self._alive.values()
                for vm in vms
                if environment_of(self._loop, workload_of(vm)[0]) == name
            ]
            if len(alive) > record.size:
                told = f"{len(alive)} VMs of {name}, which has {record.size}"
                found[f"quota-exceeded {name}"] = (told, LATE_S)
        return found


_ACQUIRE, _RELEASE = SetupStep.ACQUIRE, SetupStep.RELEASE


def _acts(setup: Setup, step: SetupStep) -> bool:
    """Return whether the setup changes a host in this step."""
    return setup.policy is not SetupPolicy.NOOP and (setup.acquire if step is _ACQUIRE else setup.release)


def _done_s(runs: Sequence[SetupRun], environment: str, step: SetupStep) -> float:
    """Return the start of the last successful setup of this kind (-1: never)."""
    return max(
        (run.begun_s for run in runs if run.ok and (run.environment, run.step) == (environment, step)), default=-1.0
    )


def _shown(alive: Mapping[str, str]) -> str:
    return ", ".join(f"{vm} of {holder or 'nobody'}" for vm, holder in sorted(alive.items()))


def environment_of(loop: ClosedLoop, workload: str) -> str:
    """Return the environment that a job or an application was submitted to ("": none)."""
    app = loop.apps.get(workload)
    return app.environment if app is not None else loop.jobs[workload].environment


def stored(loop: ClosedLoop, kind: str, names: Iterable[str]) -> dict[str, Any]:
    """Return the existing records of a kind in the store, by name."""
    found = {name: loop.store.get((kind, name)) for name in names}
    return {name: record for name, record in found.items() if record is not None}


# --- sizes -----------------------------------------------------------------------------------------------------------


def groups_of(loop: ClosedLoop, names: Iterable[str]) -> list[tuple[Any, ...]]:
    """Return the records of the running environments of nodes, grouped by resource sharing; in a group the batch
    environment comes first."""
    serving = {
        name: record
        for name, record in stored(loop, "environment", names).items()
        if record.wanted is EnvironmentState.RUNNING and record.agreement.granularity is Granularity.NODE
    }
    found: dict[tuple[str, ...], tuple[Any, ...]] = {}
    for record in sorted(serving.values(), key=lambda one: one.order):
        partner = serving.get(record.partner)
        group = (record,) if partner is None or partner.partner != record.agreement.name else (record, partner)
        ordered = tuple(sorted(group, key=lambda one: one.agreement.workload is WorkloadType.WEB))
        found.setdefault(_names(ordered), ordered)
    return list(found.values())


def _names(group: Sequence[Any]) -> tuple[str, ...]:
    return tuple(record.agreement.name for record in group)


def _held(group: Sequence[Any], held: Mapping[str, int]) -> int:
    return sum(held.get(name, 0) for name in _names(group))


def held_by(loop: ClosedLoop) -> dict[str, int]:
    """Return the number of usable nodes assigned to each environment; those assigned to none under ""."""
    found: dict[str, int] = {}
    for name, node in stored(loop, "node", loop.agents).items():
        agent = loop.agents[name]
        sound = agent.alive and agent.hypervisor.up and not node.held
        if sound and node.service is not NodeService.FAILED and node.handover is not Handover.FAILED:
            found[node.given] = found.get(node.given, 0) + 1
    return found


def settled_sizes(agreements: Sequence[Agreement], wanted: int) -> tuple[int, ...]:
    """Return the sizes in which the policy leaves a group's environments, batch before web (phoenixcloud.txt section 5,
    restated). Nothing waits, nothing of the batch environment runs and the web environment needs `wanted` units."""
    lower = sum(one.lower for one in agreements)
    uppers = [one.upper for one in agreements]
    sizes: dict[WorkloadType, int] = {}
    kinds = {one.workload for one in agreements}
    web = wanted if WorkloadType.WEB in kinds else 0
    match agreements[0].model:
        case "dedicated":
            return tuple(one.lower for one in agreements)
        case "fb":
            web = min(web, lower)
            sizes[WorkloadType.BATCH] = lower - web
        case "flb-nub":
            if None not in uppers:
                web = min(web, sum(upper or 0 for upper in uppers))
            left = max(0, lower - web)
            terms = next((one.batch for one in agreements if one.workload is WorkloadType.BATCH), None)
            back = math.floor(terms.elastic_factor * left) if terms is not None else 0
            sizes[WorkloadType.BATCH] = left - back
    sizes[WorkloadType.WEB] = web
    return tuple(sizes[one.workload] for one in agreements)


def unsettled_environments(loop: ClosedLoop, names: Iterable[str], over: frozenset[str], wanted: int) -> list[str]:
    """Return why environments have not converged. Those in `over` must be destroyed and the others running, with as
    many nodes as their policies say when the web environment needs `wanted`, and with all reassignments complete."""
    why: list[str] = []
    found, nodes = stored(loop, "environment", names), stored(loop, "node", loop.agents)
    for name, record in found.items():
        state = EnvironmentState.DESTROYED if name in over else EnvironmentState.RUNNING
        if record.state is not state or record.wanted is not state:
            why.append(f"{name} is {record.state}, on its way to {record.wanted}: {record.detail}")
    for name, node in nodes.items():
        if node.handover is not Handover.SETTLED or node.environment != node.given:
            whose = f"{node.environment or 'nobody'} for {node.given or 'nobody'}"
            why.append(f"{name} is {node.handover}, from {whose}: {node.detail}")
        elif node.given in over:
            why.append(f"{name} is still with {node.given}")
    for group in groups_of(loop, found):
        expected = settled_sizes([record.agreement for record in group], wanted)
        for record, size in zip(group, expected, strict=True):
            name = record.agreement.name
            have = sum(node.environment == name for node in nodes.values())
            spare = 1 if size == 0 and record.agreement.model == "flb-nub" else 0  # half of one unit is none
            if not size <= record.size <= size + spare or have != record.size:
                why.append(f"{name} has {have} nodes and size {record.size}, its policy says {size}")
    return why
