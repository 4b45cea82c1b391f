"""An independent judge of placement decisions, deliberately naive: what a placement does to every utility, whether a
decision is feasible. Plain loops over rows, shared with no policy and no model.

A placement is a mapping from workload rows to the node row and MHz of each instance; a row that is not in it runs
nowhere. What it predicts is apc.txt section 4.4.2 at the end of the cycle, read so:

* Work begins when a job's own operation is over: a start, a resume (from another node's image with the transfer), a
  move; nothing for a job that stays. Those who come to a node and do not all fit into the memory that is free there now
  take the place of the jobs suspended there, and first wait for the longest of these suspends.
* A job runs at the speed of its slowest instance, in each stage at most at that stage's. One that ends in time has the
  utility of its own completion and leaves the equation. All MHz given count in the equation, to whomever they are.
* Full speed is what the fastest node of the cluster could give.
* A job without a goal is at 1 and not in the equation.
* Where loads are known, each instance takes as many times as long as alone as the quadratic formula says of those on
  its node (d-factor.txt, 3.3; of x + 1 requests s are served at a time), a job as its slowest. The equation counts
  what is got done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shared.policy_api.snapshot import Snapshot, WorkloadState
from shared.values.actions import ActionKind
from shared.values.web_app import ModelForm

Places = tuple[tuple[int, float], ...]
Placement = Mapping[int, Places]
HALVINGS = 200


@dataclass(frozen=True, slots=True)
class Stage:
    """Work left in Mcycles and speed limits in MHz, of one instance."""

    work: float
    most: float
    least: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """Utilities of jobs and web applications by name; the level is None where no job is in the equation."""

    utilities: dict[str, float]
    level: float | None

    @property
    def smallest(self) -> float:
        """The smallest utility, 1 if there is none."""
        return min(self.utilities.values(), default=1.0)


def is_job(seen: Snapshot, row: int) -> bool:
    return seen.workloads.app.item(row) < 0


def counts(seen: Snapshot, row: int) -> bool:
    """Whether the prediction has the row: a job of sound numbers, the first of its name."""
    work = seen.workloads
    numbers = (work.desired_start_s, work.work_mcycles, work.done_mcycles, work.max_mhz, work.min_mhz, work.memory_mib)
    sound = all(math.isfinite(column.item(row)) and column.item(row) >= 0.0 for column in numbers)
    goal_s, importance = work.goal_s.item(row), work.importance.item(row)
    sound &= goal_s > work.desired_start_s.item(row) and math.isfinite(importance) and importance > 0.0
    sound &= work.max_mhz.item(row) > 0.0 and work.instances.item(row) >= 1 and work.vcpus.item(row) >= 1
    return sound and is_job(seen, row) and work.names.index(work.names[row]) == row


def current(seen: Snapshot) -> dict[int, Places]:
    """What runs now."""
    running = WorkloadState.RUNNING.value
    return {row: held(seen, row) for row in range(len(seen.workloads.names)) if seen.workloads.state[row] == running}


def held(seen: Snapshot, row: int) -> Places:
    """Node row and MHz of each instance of a running or suspended workload."""
    first, count = seen.workloads.first_instance.item(row), seen.workloads.instances.item(row)
    here = slice(first, first + count)
    return tuple(zip(seen.instances.node[here].tolist(), seen.instances.cpu_mhz[here].tolist(), strict=True))


def top_speed(seen: Snapshot, row: int) -> float:
    """The most that any node could give to one instance, stages apart."""
    nodes, vcpus = seen.nodes, seen.workloads.vcpus.item(row)
    pairs = zip(nodes.core_mhz.tolist(), nodes.cpu_mhz.tolist(), strict=True)
    speeds = [min(vcpus * core_mhz, cpu_mhz) for core_mhz, cpu_mhz in pairs]
    return max((speed for speed in speeds if math.isfinite(speed)), default=math.inf)


def stages_left(seen: Snapshot, row: int) -> list[Stage]:
    """The stages with work left, in order."""
    work, stages, top = seen.workloads, seen.stages, top_speed(seen, row)
    done, left = work.done_mcycles.item(row), []
    for at in range(work.first_stage.item(row), work.first_stage.item(row) + work.stages.item(row)):
        whole = stages.work_mcycles.item(at)
        used = min(done, whole)
        done -= used
        if whole > used:
            left.append(Stage(whole - used, min(stages.max_mhz.item(at), top), stages.min_mhz.item(at)))
    return left


def run(left: list[Stage], at_mhz: float, for_s: float) -> tuple[list[Stage], float]:
    """What is left after so long at that speed, and for how long the job ran: less than `for_s` if it ended."""
    rest, ran_s = [], 0.0
    for stage in left:
        speed = min(at_mhz, stage.most)
        could = speed * (for_s - ran_s)
        if could >= stage.work:
            ran_s += stage.work / speed
            continue
        ran_s = for_s
        rest.append(Stage(stage.work - could, stage.most, stage.least))
    return rest, ran_s


def best_s(left: list[Stage]) -> float:
    """Time to do what is left at full speed."""
    return sum(stage.work / stage.most for stage in left)


def speed_limits(seen: Snapshot, row: int) -> tuple[float, float]:
    """The most and the least MHz of an instance over the stages that full speed enters within the cycle."""
    left, passed_s, entered = stages_left(seen, row), 0.0, []
    for stage in left:
        if passed_s < seen.cycle_s:
            entered.append(stage)
        passed_s += stage.work / stage.most
    if not entered:
        return seen.workloads.max_mhz.item(row), seen.workloads.min_mhz.item(row)
    return max(stage.most for stage in entered), max(stage.least for stage in entered)


def weighted(utility: float, importance: float) -> float:
    """Importance divides a positive utility and multiplies a negative one."""
    return utility / importance if utility > 0 else utility * importance


def unweighted(utility: float, importance: float) -> float:
    return utility * importance if utility > 0 else utility / importance


def utility_at(seen: Snapshot, row: int, end_s: float) -> float:
    """Of a job that completes then."""
    work = seen.workloads
    goal_s = work.goal_s.item(row)
    if not math.isfinite(goal_s):
        return 1.0
    relative = (goal_s - end_s) / (goal_s - work.desired_start_s.item(row))
    return weighted(relative, work.importance.item(row))


def best_utility(seen: Snapshot, row: int) -> float:
    """Of a job at full speed from now on."""
    return utility_at(seen, row, seen.now_s + best_s(stages_left(seen, row)))


def suspend_waits(seen: Snapshot, placement: Placement) -> dict[int, float]:
    """By node row: how long those who come there wait until the suspended have left; nothing where all fit at once."""
    work, before = seen.workloads, current(seen)
    waits: dict[int, float] = {}
    for row, places in before.items():
        if row not in placement and is_job(seen, row):
            takes_s = seen.costs.duration_s(ActionKind.SUSPEND, work.memory_mib.item(row))
            for node, _ in places:
                waits[node] = max(waits.get(node, 0.0), takes_s)
    coming = dict.fromkeys(waits, 0.0)
    for row, places in placement.items():
        for index, (node, _) in enumerate(places):
            if node in coming and comes(seen, row, index, node):
                coming[node] += work.memory_mib.item(row) + seen.vm_overhead_mib
    free = seen.nodes.free_memory_mib
    return {node: wait_s for node, wait_s in waits.items() if not fits(coming[node], free.item(node))}


def fits(need_mib: float, free_mib: float) -> bool:
    return need_mib <= free_mib + 1e-6


def comes(seen: Snapshot, row: int, index: int, node: int) -> bool:
    """Whether the instance does not run on that node now."""
    return seen.workloads.state[row] != WorkloadState.RUNNING.value or held(seen, row)[index][0] != node


def own_operation_s(seen: Snapshot, row: int, index: int, to: int) -> float:
    """What bringing instance `index` to a node takes; 0 where it runs there already."""
    work, costs = seen.workloads, seen.costs
    memory_mib, state = work.memory_mib.item(row), WorkloadState(work.state.item(row))
    if state is WorkloadState.WAITING:
        return costs.duration_s(ActionKind.START, memory_mib)
    there = held(seen, row)[index][0]
    if state is WorkloadState.SUSPENDED:
        return costs.duration_s(ActionKind.RESUME, memory_mib, elsewhere=there != to)
    return 0.0 if there == to else costs.duration_s(ActionKind.MIGRATE, memory_mib)


def delay_s(seen: Snapshot, row: int, places: Places, waits: Mapping[int, float]) -> float:
    """How long the job makes no progress: until its last instance is where it is to be."""
    longest = 0.0
    for index, (node, _) in enumerate(places):
        if comes(seen, row, index, node):
            longest = max(longest, waits.get(node, 0.0) + own_operation_s(seen, row, index, node))
    return longest


def level_of(need_mhz: Callable[[float], float], highest: float, given_mhz: float) -> float:
    """Where the need, growing up to `highest` and constant from there, meets what is given."""
    if given_mhz <= 0.0:
        return -math.inf
    if need_mhz(highest) <= given_mhz:
        return highest
    low = min(highest, 0.0) - 1.0
    while need_mhz(low) > given_mhz:
        low *= 2.0
    high = highest
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if need_mhz(middle) <= given_mhz else (low, middle)
    return low


def slowing(seen: Snapshot, placement: Placement, row: int) -> float:
    """How many times as long as alone a workload takes."""
    loading, worst = seen.loading, 1.0
    if loading is None:
        return 1.0
    for at, (node, _) in enumerate(placement[row]):
        kind, slow = loading.node_type.item(node), 1.0
        for resource in range(len(loading.resources)):
            beside = sum(
                loading.parts.item(kind, other, resource)
                for other, places in placement.items()
                for index, (there, _) in enumerate(places)
                if there == node and (other, index) != (row, at)
            )
            servers = loading.servers.item(kind, resource)
            slow += loading.parts.item(kind, row, resource) * max(0.0, beside + 1.0 - servers) / servers
        worst = max(worst, slow)
    return worst


def predict(seen: Snapshot, placement: Placement) -> Prediction:
    """The utility of every job and web application at the end of the cycle."""
    work, end_s = seen.workloads, seen.now_s + seen.cycle_s
    waits = suspend_waits(seen, placement)
    given_mhz = 0.0
    utilities: dict[str, float] = {}
    equation: list[tuple[str, float, float, float, float, float, float]] = []
    for row, name in enumerate(work.names):
        places = placement.get(row, ())
        slow = slowing(seen, placement, row) if places else 1.0
        given_mhz += sum(mhz for _, mhz in places) / slow if is_job(seen, row) else 0.0
        if not counts(seen, row):
            continue
        left, ended_s = stages_left(seen, row), end_s
        if places:
            begins_s = seen.now_s + delay_s(seen, row, places, waits)
            left, ran_s = run(left, min(mhz for _, mhz in places), max(0.0, end_s - begins_s) / slow)
            ended_s = begins_s + ran_s * slow
        goal_s, importance = work.goal_s.item(row), work.importance.item(row)
        if not left or not math.isfinite(goal_s):
            utilities[name] = utility_at(seen, row, ended_s)
            continue
        a = work.instances.item(row) * sum(stage.work for stage in left)
        r, tb = goal_s - work.desired_start_s.item(row), best_s(left)
        equation.append((name, a, goal_s - end_s, r, tb, importance, utility_at(seen, row, end_s + tb)))

    def need_mhz(level: float) -> float:
        return sum(a / max(b - r * unweighted(level, w), tb) for _, a, b, r, tb, w, _ in equation)

    level = None
    if equation:
        level = level_of(need_mhz, max(highest for *_, highest in equation), given_mhz)
        utilities.update({name: min(level, highest) for name, *_, highest in equation})
    return Prediction(utilities | web_utilities(seen, placement), level)


def web_utilities(seen: Snapshot, placement: Placement) -> dict[str, float]:
    """Of every web application: that of its unhappiest flow with all its CPU, no more than max_mhz."""
    web, flows, found = seen.web, seen.flows, {}
    for app, name in enumerate(web.names):
        replicas = [row for row in placement if seen.workloads.app.item(row) == app]
        total_mhz = min(sum(mhz for row in replicas for _, mhz in placement[row]), web.max_mhz.item(app))
        of = [flow for flow in range(len(flows.names)) if flows.app.item(flow) == app]
        unhappiest = min((flow_utility(seen, flow, total_mhz) for flow in of), default=1.0)
        found[name] = weighted(unhappiest, web.importance.item(app))
    return found


def flow_utility(seen: Snapshot, flow: int, mhz: float) -> float:
    """(goal - t) / goal for a goal on the mean or a percentile, by the two models of one term; from ten goals above the
    shortest time on along the tangent."""
    flows = seen.flows
    goal_s, t_min_s, model = flows.goal.item(flow), flows.t_min_s.item(flow), flows.model[flow]
    if flows.throughput[flow] or model is ModelForm.MULTI_SERVER:
        raise ValueError("the judge does not know goals on throughput and the model multi-server")
    if model is ModelForm.SHIFTED_HYPERBOLA:
        scale, load_mhz = flows.c_mhz_s.item(flow), flows.load_mhz.item(flow)
    else:
        scale = flows.work_mcycles.item(flow)
        of_app = [at for at in range(len(flows.names)) if flows.app[at] == flows.app[flow]]
        load_mhz = sum(flows.rate_per_s.item(at) * flows.work_mcycles.item(at) for at in of_app)
    quantile = flows.percentile.item(flow)
    scale *= math.log(1.0 / (1.0 - quantile)) if quantile else 1.0
    bend_mhz = load_mhz + scale / (10.0 * goal_s)
    at_mhz = max(mhz, bend_mhz)
    utility = (goal_s - t_min_s - scale / (at_mhz - load_mhz)) / goal_s
    slope = scale / (at_mhz - load_mhz) ** 2 / goal_s
    return utility + slope * min(0.0, mhz - bend_mhz)
