"""Puts needs into waves: every intermediate state respects memory, CPU and limits; cycles are broken by suspending.

`wave` chooses what may be sent now from live totals; `plan` repeats it to the end on the assumption that every step
succeeds. Cost: one pass over the needs per wave, O(needs x waves) for a plan; a cycle search only when nothing moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from daemons.planning.observed import Ceilings, Headroom, PlannedAction, Wave
from shared.policy_api.decision import Plan, Reason, ReasonCode, Refusal, Step
from shared.values.actions import ActionKind

ROOM_TOLERANCE = 1e-9  # sums of floats; policies allow as much
RANK = {
    ActionKind.STOP: 0,
    ActionKind.DISCARD_IMAGE: 0,
    ActionKind.PAUSE: 0,
    ActionKind.RELEASE: 0,
    ActionKind.UNDEFINE: 0,
    ActionKind.ADOPT: 0,
    ActionKind.SUSPEND: 1,
    ActionKind.UNPAUSE: 2,
    ActionKind.SET_CPU: 3,
    ActionKind.MIGRATE: 4,
    ActionKind.RESUME: 4,
    ActionKind.START: 4,
}


def wave(
    needs: Iterable[PlannedAction], rooms: Mapping[str, Headroom], ceilings: Ceilings, in_progress: Headroom
) -> Wave:
    """Choose the needs that may be sent together now.

    `rooms` (by node) and `in_progress` (its counters are the totals) are scratch: what is chosen is taken from them.
    Starts and resumes of one workload are chosen all or none as far as room goes. Order: what frees room first, then
    as given.
    """
    result = Wave()
    for group in _groups(needs):
        if not _fits(group, rooms):
            result.blocked += group
            continue
        for need in group:
            if _within_limits(need, rooms, ceilings, in_progress):
                _take(need, rooms, in_progress)
                result.chosen.append(need)
            else:
                result.blocked.append(need)
    return result


def _groups(needs: Iterable[PlannedAction]) -> list[list[PlannedAction]]:
    """Return one group per need, but one per workload for its starts and resumes; ranked, otherwise in order."""
    ranked = sorted(needs, key=lambda need: (RANK[need.kind], need.kind is ActionKind.SET_CPU and need.cpu_mhz > 0))
    groups: list[list[PlannedAction]] = []
    gangs: dict[str, list[PlannedAction]] = {}
    for need in ranked:
        if need.kind not in (ActionKind.START, ActionKind.RESUME):
            groups.append([need])
        elif need.workload in gangs:
            gangs[need.workload].append(need)
        else:
            groups.append(gangs.setdefault(need.workload, [need]))
    return groups


def _fits(group: list[PlannedAction], rooms: Mapping[str, Headroom]) -> bool:
    if len(group) == 1:
        need = group[0]
        return _has_room(rooms.get(need.target), need.memory_mib, need.cpu_mhz)
    wanted: dict[str, list[float]] = {}
    for need in group:
        sums = wanted.setdefault(need.target, [0.0, 0.0])
        sums[0] += need.memory_mib
        sums[1] += need.cpu_mhz
    return all(_has_room(rooms.get(node), memory_mib, cpu_mhz) for node, (memory_mib, cpu_mhz) in wanted.items())


def _has_room(room: Headroom | None, memory_mib: float, cpu_mhz: float) -> bool:
    if room is None:
        return False
    enough_memory = memory_mib <= 0 or memory_mib * (1.0 - ROOM_TOLERANCE) <= room.memory_mib
    return enough_memory and (cpu_mhz <= 0 or cpu_mhz * (1.0 - ROOM_TOLERANCE) <= room.cpu_mhz)


def _within_limits(
    need: PlannedAction, rooms: Mapping[str, Headroom], ceilings: Ceilings, in_progress: Headroom
) -> bool:
    migrating = need.kind is ActionKind.MIGRATE
    if _full(in_progress.actions, ceilings.actions_total):
        return False
    if migrating and _full(in_progress.migrations, ceilings.migrations_total):
        return False
    for name in (need.node, need.to_node):
        room = rooms.get(name)
        if room is None:
            continue
        if _full(room.actions, ceilings.actions_per_node):
            return False
        if migrating and _full(room.migrations, ceilings.migrations_per_node):
            return False
    return True


def _full(count: int, ceiling: int) -> bool:
    return ceiling > 0 and count >= ceiling


def _take(need: PlannedAction, rooms: Mapping[str, Headroom], in_progress: Headroom) -> None:
    migrating = need.kind is ActionKind.MIGRATE
    in_progress.actions += 1
    in_progress.migrations += migrating
    target = rooms.get(need.target)
    if target is not None:
        target.memory_mib -= need.memory_mib
        target.cpu_mhz -= max(0.0, need.cpu_mhz)
    for name in {need.node, need.to_node} - {""}:
        room = rooms.get(name)
        if room is not None:
            room.actions += 1
            room.migrations += migrating


def cycle(blocked: Iterable[PlannedAction]) -> PlannedAction | None:
    """Return the migration to replace by a suspend so that a cycle of migrations can continue: the one with the least
    memory.

    An edge leads from the node that a blocked migration leaves to the one it waits for. None if there is no cycle, or
    none with a VM that may be suspended.
    """
    moves = sorted(
        (need for need in blocked if need.kind is ActionKind.MIGRATE), key=lambda need: (need.memory_mib, need.vm)
    )
    onward: dict[str, set[str]] = {}
    for need in moves:
        onward.setdefault(need.node, set()).add(need.to_node)
    for need in moves:
        if not need.stays and _reaches(onward, need.to_node, need.node):
            return need
    return None


def _reaches(onward: Mapping[str, set[str]], start: str, end: str) -> bool:
    seen, front = {start}, [start]
    while front:
        node = front.pop()
        if node == end:
            return True
        for following in onward.get(node, ()):
            if following not in seen:
                seen.add(following)
                front.append(following)
    return False


def suspension(need: PlannedAction) -> PlannedAction:
    """Return the suspend that replaces a migration in a cycle; the resume follows as a separate need."""
    return PlannedAction(ActionKind.SUSPEND, need.workload, need.vm, node=need.node, expects=need.expects)


def plan(
    needs: Iterable[PlannedAction], rooms: Mapping[str, Headroom], holdings: Mapping[str, Headroom], ceilings: Ceilings
) -> Plan:
    """Put all needs into waves, assuming that every step succeeds.

    `holdings` maps each VM to the memory and CPU that it holds on its node now: freed when it is stopped, suspended or
    has moved. Both are scratch. Needs for which there is never capacity are returned in `blocked`.
    """
    steps: list[Step] = []
    left = list(needs)
    number = 0
    while left:
        for room in rooms.values():
            room.actions = room.migrations = 0
        chosen = wave(left, rooms, ceilings, Headroom(0.0, 0.0))
        if not chosen.chosen:
            stuck = cycle(chosen.blocked)
            if stuck is None:
                break
            resume = replace(stuck, kind=ActionKind.RESUME, node=stuck.to_node, to_node="", from_node=stuck.node)
            left = [suspension(stuck), *(resume if need is stuck else need for need in left)]
            continue
        for need in chosen.chosen:
            steps.append(_step(need, number))
            _free(need, rooms, holdings)
        left = [*chosen.blocked, *(need.then for need in chosen.chosen if need.then is not None)]
        number += 1
    return Plan(tuple(steps), tuple(_refusal(need, rooms) for need in left))


def _free(need: PlannedAction, rooms: Mapping[str, Headroom], holdings: Mapping[str, Headroom]) -> None:
    held, room = holdings.get(need.vm), rooms.get(need.node)
    if room is None:
        return
    if need.kind is ActionKind.SET_CPU and need.cpu_mhz < 0:
        room.cpu_mhz -= need.cpu_mhz
        if held is not None:
            held.cpu_mhz += need.cpu_mhz
    elif held is not None and need.kind in (ActionKind.STOP, ActionKind.SUSPEND, ActionKind.MIGRATE):
        room.memory_mib += held.memory_mib
        room.cpu_mhz += held.cpu_mhz


def _step(need: PlannedAction, number: int) -> Step:
    memory_mib = int(need.memory_mib)
    return Step(
        need.kind,
        need.workload,
        need.vm,
        node=need.node,
        to_node=need.to_node,
        memory_mib=memory_mib,
        cpu_mhz=need.set_mhz,
        wave=number,
    )


def _refusal(need: PlannedAction, rooms: Mapping[str, Headroom]) -> Refusal:
    room = rooms.get(need.target)
    if room is None:
        return Refusal(need.workload, Reason(ReasonCode.UNKNOWN_NODE))
    if need.memory_mib > room.memory_mib:
        numbers = (("needed_mib", need.memory_mib), ("free_mib", room.memory_mib))
        return Refusal(need.workload, Reason(ReasonCode.NO_MEMORY, numbers))
    return Refusal(need.workload, Reason(ReasonCode.NO_CPU, (("needed_mhz", need.cpu_mhz), ("free_mhz", room.cpu_mhz))))
