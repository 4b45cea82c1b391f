"""What separates one workload from its desired state. Looks at one workload alone; room is `order`'s affair.

Safety first (architecture, rule 5): an instance that is unknown or busy is never touched; START is needed only for an
instance that is proven nowhere.
"""

from __future__ import annotations

from dataclasses import replace

from daemons.planning.observed import Diff, ObservedInstance, ObservedWorkload, PlannedAction, VmCopy
from shared.values.actions import ActionKind
from shared.values.jobs import JobPhase
from shared.values.vms import LIVE_STATES, OFF_STATES, VmState

CPU_TOLERANCE = 1e-9


def diff(observed: ObservedWorkload) -> Diff:
    """Return the needs of a workload, in the order of its instances."""
    if observed.phase is JobPhase.RUNNING:
        return _toward_running(observed)
    if observed.phase is JobPhase.SUSPENDED:
        return _toward_suspended(observed)
    if observed.phase is JobPhase.FORGOTTEN:
        return _toward_forgotten(observed)
    if observed.phase is JobPhase.SHUT_OFF:
        return _toward_off(observed)
    needs: list[PlannedAction] = []
    for instance in observed.instances:
        if not (instance.busy or instance.adopted):
            needs += [_removal(observed, instance, copy) for copy in instance.copies if _removable(copy)]
    return Diff(tuple(needs))


def _removable(copy: VmCopy) -> bool:
    return copy.usable and (copy.state in LIVE_STATES or copy.state is VmState.SUSPENDED)


def _removal(observed: ObservedWorkload, instance: ObservedInstance, copy: VmCopy) -> PlannedAction:
    kind = ActionKind.DISCARD_IMAGE if copy.state is VmState.SUSPENDED else ActionKind.STOP
    return _planned(kind, observed, instance, copy)


def _planned(kind: ActionKind, observed: ObservedWorkload, instance: ObservedInstance, copy: VmCopy) -> PlannedAction:
    return PlannedAction(kind, observed.name, instance.vm, node=copy.node, expects=copy.generation)


def live_copy(observed: ObservedWorkload, instance: ObservedInstance) -> VmCopy | None:
    """Return the live VM that counts: of this attempt, the newest generation."""
    return _newest(observed, instance, live=True)


def image_copy(observed: ObservedWorkload, instance: ObservedInstance) -> VmCopy | None:
    """Return the saved image that counts: of this attempt, the newest generation."""
    return _newest(observed, instance, live=False)


def _newest(observed: ObservedWorkload, instance: ObservedInstance, live: bool) -> VmCopy | None:
    best: VmCopy | None = None
    for copy in instance.copies:
        fits = copy.state in LIVE_STATES if live else copy.state is VmState.SUSPENDED
        if (
            fits
            and not copy.stale
            and copy.attempt == observed.attempt
            and (best is None or copy.generation > best.generation)
        ):
            best = copy
    return best


def _outlived(observed: ObservedWorkload, instance: ObservedInstance) -> list[PlannedAction]:
    """Return the removals of definitions that are left from before a failover: the VM has come to life on another node
    since, and no host starts it by itself."""
    newest = max((copy.generation for copy in instance.copies), default=0) if instance.adopted else 0
    return [
        _planned(ActionKind.UNDEFINE, observed, instance, copy)
        for copy in instance.copies
        if copy.guarded and copy.usable and copy.state in OFF_STATES and copy.generation < newest
    ]


def _leftovers(observed: ObservedWorkload, instance: ObservedInstance, keep: VmCopy | None) -> list[PlannedAction]:
    """Removals of everything but `keep`. An image goes only once the VM is seen live, or belongs to a past attempt. An
    adopted VM that lives is never stopped, whatever its generation: its owner may have started it."""
    needs = []
    for copy in instance.copies:
        if copy is keep or not _removable(copy) or (instance.adopted and copy.state in LIVE_STATES):
            continue
        past = copy.attempt < observed.attempt
        if past or instance.ended or (keep is not None and copy.generation < keep.generation):
            needs.append(_removal(observed, instance, copy))
    return needs


def _toward_suspended(observed: ObservedWorkload) -> Diff:
    needs: list[PlannedAction] = []
    lost = False
    for instance in observed.instances:
        if instance.busy:
            continue
        live, image = live_copy(observed, instance), image_copy(observed, instance)
        needs += [*_outlived(observed, instance), *_leftovers(observed, instance, live or image)]
        if instance.ended:
            continue
        if live is not None:
            if live.usable:
                needs.append(
                    PlannedAction(
                        ActionKind.SUSPEND, observed.name, instance.vm, node=live.node, expects=live.generation
                    )
                )
        elif image is None and not instance.unknown:
            lost = True
    return Diff(tuple(needs), lost)


def _toward_off(observed: ObservedWorkload) -> Diff:
    """Adopt a VM that is shut off, or shut one down. One that is seen live although nobody asked for it is left."""
    needs: list[PlannedAction] = []
    lost = False
    for instance in observed.instances:
        if instance.busy:
            continue
        live = live_copy(observed, instance)
        needs += _outlived(observed, instance)
        if live is not None:
            if observed.ends and live.usable:
                needs.append(_planned(ActionKind.STOP, observed, instance, live))
        elif not instance.copies and not instance.unknown and not instance.defined:
            if instance.issued:
                lost = True
            else:
                needs.append(_adopt(observed, instance))
        else:
            needs += [
                _planned(ActionKind.ADOPT, observed, instance, copy)
                for copy in instance.copies
                if copy.guarded and not instance.guards and copy.usable and copy.state in OFF_STATES
            ]
    return Diff(tuple(needs), lost)


def _toward_forgotten(observed: ObservedWorkload) -> Diff:
    """Release live VMs unchanged, once no older copies of them are left, and adopted ones that are shut off. Their
    newest image is never discarded."""
    needs: list[PlannedAction] = []
    for instance in observed.instances:
        if instance.busy:
            continue
        live = live_copy(observed, instance)
        leftovers = _leftovers(observed, instance, live or image_copy(observed, instance))
        leftovers += _outlived(observed, instance)
        needs += leftovers
        off = (copy for copy in instance.copies if instance.adopted and copy.state in OFF_STATES)
        held = live if live is not None else next(off, None)
        if not leftovers and held is not None and held.usable:
            needs.append(
                PlannedAction(ActionKind.RELEASE, observed.name, instance.vm, node=held.node, expects=held.generation)
            )
    return Diff(tuple(needs))


def _toward_running(observed: ObservedWorkload) -> Diff:
    gang = len(observed.instances) > 1
    lives = [live_copy(observed, instance) for instance in observed.instances]
    together = all(
        instance.ended or (live is not None and live.usable)
        for instance, live in zip(observed.instances, lives, strict=True)
    )
    needs: list[PlannedAction] = []
    lost = False
    for instance, live in zip(observed.instances, lives, strict=True):
        if instance.busy:
            continue
        image = image_copy(observed, instance)
        needs += [*_outlived(observed, instance), *_leftovers(observed, instance, live or image)]
        if instance.ended:
            continue
        if live is not None:
            needs += _adjust(observed, instance, live, gang, together)
        elif image is not None:
            if not instance.unknown and image.usable:
                needs.append(_resume(observed, instance, image, gang))
        elif not instance.unknown:
            if instance.issued:
                lost = True
            elif instance.defined:
                needs += _start_adopted(observed, instance)
            elif instance.adopted:
                needs.append(_adopt(observed, instance))
            else:
                needs.append(_start(observed, instance, gang))
    return Diff(tuple(needs), lost, together)


def _start(observed: ObservedWorkload, instance: ObservedInstance, gang: bool) -> PlannedAction:
    return PlannedAction(
        ActionKind.START,
        observed.name,
        instance.vm,
        node=instance.want_node,
        memory_mib=instance.memory_mib,
        cpu_mhz=instance.want_mhz,
        set_mhz=instance.want_mhz,
        paused=gang,
    )


def _start_adopted(observed: ObservedWorkload, instance: ObservedInstance) -> list[PlannedAction]:
    """Return the action that starts the instance by its definition, where that is. CPU is compressible: the VM needs
    memory alone. Without a definition anywhere it is made anew, if it is to be."""
    here = [one for one in instance.copies if one.node == instance.want_node and one.state in OFF_STATES and one.usable]
    if instance.anew and not instance.copies:
        return [replace(_start(observed, instance, gang=False), cpu_mhz=0.0)]
    return [
        PlannedAction(
            ActionKind.START,
            observed.name,
            instance.vm,
            node=one.node,
            expects=one.generation,
            memory_mib=instance.memory_mib,
            set_mhz=instance.want_mhz,
        )
        for one in here[:1]
    ]


def _adopt(observed: ObservedWorkload, instance: ObservedInstance) -> PlannedAction:
    """Return the action that adopts the instance. It needs no capacity: the VM already exists and is counted."""
    return PlannedAction(
        ActionKind.ADOPT, observed.name, instance.vm, node=instance.want_node, set_mhz=instance.want_mhz
    )


def _resume(observed: ObservedWorkload, instance: ObservedInstance, image: VmCopy, gang: bool) -> PlannedAction:
    return PlannedAction(
        ActionKind.RESUME,
        observed.name,
        instance.vm,
        node=instance.want_node,
        from_node=image.node,
        expects=image.generation,
        memory_mib=max(0.0, instance.memory_mib - (image.held_mib if image.node == instance.want_node else 0.0)),
        cpu_mhz=0.0 if instance.adopted else instance.want_mhz,  # CPU is compressible: it comes back, then all share
        set_mhz=instance.want_mhz,
        paused=gang,
    )


def _adjust(
    observed: ObservedWorkload, instance: ObservedInstance, live: VmCopy, gang: bool, together: bool
) -> list[PlannedAction]:
    """Bring a live VM to its node, its CPU and its gang's beat; one operation at a time. A VM arrives with the CPU that
    it left with: what is to have less has less before it moves."""
    if not live.usable:
        return []

    def need(kind: ActionKind, **fields: object) -> list[PlannedAction]:
        return [PlannedAction(kind, observed.name, instance.vm, node=live.node, expects=live.generation, **fields)]  # type: ignore[arg-type]

    running = live.state is VmState.RUNNING
    if running and gang and not together:
        return need(ActionKind.PAUSE)
    if not running and together:
        return need(ActionKind.UNPAUSE)
    more_mhz = instance.want_mhz - live.cpu_mhz
    differs = abs(more_mhz) > CPU_TOLERANCE * max(1.0, instance.want_mhz)
    move: list[PlannedAction] = []
    if live.node != instance.want_node and together:
        room = {"memory_mib": instance.memory_mib, "cpu_mhz": instance.want_mhz, "set_mhz": instance.want_mhz}
        move = need(ActionKind.MIGRATE, to_node=instance.want_node, stays=instance.adopted, **room)
    if move and not (differs and more_mhz < 0.0):
        return move
    if differs:
        then = move[0] if move else None
        return need(ActionKind.SET_CPU, cpu_mhz=more_mhz, set_mhz=instance.want_mhz, then=then)
    edited = live.definition not in ("", instance.definition)
    agrees = live.guarded is instance.guards and live.stays_off is instance.stays_off
    if instance.adopted and (edited or not agrees):
        return need(ActionKind.ADOPT, set_mhz=instance.want_mhz)  # to read what its owner has edited
    return []
