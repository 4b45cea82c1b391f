"""What each operation of the fake hypervisor checks, does at its begin and at its end, and how it is taken back.

`check` answers at once or lets the operation begin; `begin`, then `finish` or `undo`. A failed check changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from shared.values.actions import ActionKind, GuestChange, Outcome
from shared.values.failover import host_file_sentence
from shared.values.nodes import Ability
from shared.values.vms import HOLDING_STATES, LIVE_STATES, VmSpec, VmState, VmStatus
from sim_backend.fakes.hardware import PLAIN
from sim_backend.fakes.host import Domain, Operation, Site

Answer = tuple[Outcome, str]
HERE_OR_NOT_OURS = frozenset({ActionKind.START, ActionKind.ADOPT, ActionKind.RELEASE})
OVER_CAPACITY = 1.0 + 1e-9  # an allotment of exactly vcpus x core_mhz is right, whatever the rounding

MET: Answer = (Outcome.OK, "")


def check(op: Operation, now_s: float) -> Answer | None:
    """None when the operation may begin, else how it is answered; OK when its post-condition is met already."""
    site, vm = op.site, op.action.vm
    domain = site.domains.get(vm)
    if vm in site.operations or (domain is not None and domain.busy):
        return Outcome.BUSY, "another operation on it is in progress"
    if domain is not None and not domain.managed and op.action.kind not in HERE_OR_NOT_OURS:
        return Outcome.REFUSED, "it is not ours"
    op.domain = domain
    held = domain or site.images.get(vm)
    if held is not None and op.action.kind is not ActionKind.START and op.action.disks > held.disks:
        return Outcome.STALE_DISK, f"disk generation {held.disks}, expected {op.action.disks}"
    return _CHECKS[op.action.kind](op, now_s)


def trouble(op: Operation) -> str:
    """Return why an operation that is due cannot succeed; "" when it can."""
    if op.fails:
        return "failed half-way"
    peer = op.peer
    if peer is not None and not (peer.up and op.site.fabric.reachable(op.site.node.name, peer.node.name)):
        return f"{peer.node.name} became unreachable"
    return ""


def begin(op: Operation, now_s: float) -> None:
    """Start an operation and reserve the resources that it holds."""
    kind, site, vm = op.action.kind, op.site, op.action.vm
    domain = op.domain
    if domain is not None:
        op.before = domain.state
        domain.busy = kind.value
    if kind in (ActionKind.START, ActionKind.RESUME):
        assert domain is not None
        site.domains[vm] = domain
        domain.state = VmState.INCOMING
        site.fabric.locks[vm] = site.node.name
    elif kind is ActionKind.SUSPEND:
        assert domain is not None
        domain.state = VmState.PAUSED
        site.fabric.world.set_running(vm, False, now_s)
    elif kind is ActionKind.MIGRATE:
        assert domain is not None
        assert op.peer is not None
        op.arriving = domain.copy(VmState.INCOMING, kind.value)
        op.arriving.generation = op.action.generation or domain.generation
        op.arriving.relabel()
        op.peer.domains[vm] = op.arriving


def finish(op: Operation, now_s: float) -> VmStatus | None:
    """Complete an operation successfully. Return the VM's last counters if it left or stopped executing."""
    return _FINISHES[op.action.kind](op, now_s)


def undo(op: Operation, now_s: float) -> None:
    """Take back what `begin` did: the VM is as it was."""
    kind, site, vm = op.action.kind, op.site, op.action.vm
    if kind in (ActionKind.START, ActionKind.RESUME):
        site.fabric.locks.pop(vm, None)
        if kind is ActionKind.START and op.action.expects and op.domain is not None:
            op.domain.state, op.domain.busy = op.before, ""
        else:
            del site.domains[vm]
        return
    domain = op.domain
    if domain is None:
        return
    domain.busy = ""
    if kind is ActionKind.SUSPEND:
        domain.state = op.before
        site.fabric.world.set_running(vm, op.before is VmState.RUNNING, now_s)
    elif kind is ActionKind.MIGRATE and op.peer is not None:
        op.peer.domains.pop(vm, None)


# --- checks ------------------------------------------------------------------------------------------------------


def _check_start(op: Operation, now_s: float) -> Answer | None:
    site, action, spec = op.site, op.action, op.action.spec
    if spec is None or spec.vm != action.vm:
        return Outcome.REFUSED, "no spec for this VM"
    if action.expects:
        return _check_start_of_adopted(op, now_s)
    taken = _present(site, action.vm, action.generation)
    if taken is not None:
        return taken
    op.domain = Domain(
        spec.vm,
        action.generation,
        spec.attempt,
        memory_mib=spec.memory_mib,
        vcpus=spec.vcpus,
        cpu_mhz=spec.cpu_mhz,
        cap_mhz=spec.cap_mhz,
        state=VmState.INCOMING,
    )
    op.domain.disks = action.disks + 1
    if spec.definition:
        if "".join(spec.definition) != site.fabric.definitions.get(spec.vm):
            site.fabric.note_unfit(spec.vm, site.node.name, "it is the definition of another VM, or an old one")
            return Outcome.REFUSED, "not its definition"
        op.domain.foreign = op.domain.shared = op.domain.failover = True
        op.domain.autostart, op.domain.disks = spec.autostart, action.disks
        op.domain.stays_off, op.domain.xml = spec.stays_off, "".join(spec.definition)
        op.domain.relabel()
        op.domain.hardware = site.fabric.hardware.get(spec.vm, PLAIN)
    return _fits(site, op.domain) or _lock(op, now_s)


def _check_start_of_adopted(op: Operation, now_s: float) -> Answer | None:
    site, action, domain = op.site, op.action, op.domain
    if domain is None:
        return Outcome.NO_SUCH_VM, f"no definition on {site.node.name}"
    if domain.generation == action.generation:
        return MET
    if domain.generation != action.expects:
        return _other_generation(domain)
    if domain.state in HOLDING_STATES:
        return Outcome.REFUSED, f"it is {domain.state.value}"
    return _fits(site, domain) or _lock(op, now_s)


def _check_resume(op: Operation, now_s: float) -> Answer | None:
    site, action = op.site, op.action
    elsewhere = action.from_node not in ("", site.node.name)
    if op.domain is not None or elsewhere:
        taken = _present(site, action.vm, action.generation)
        if taken is not None:
            return taken
    source = site.fabric.sites.get(action.from_node) if elsewhere else site
    if elsewhere and (site.node.freezes or (source is not None and source.node.freezes)):
        return Outcome.REFUSED, "what is frozen cannot move"
    if source is None or (elsewhere and not _reaches(site, source)):
        return Outcome.FAILED, "image unreachable"
    image = source.images.get(action.vm)
    if image is None:
        return Outcome.NO_SUCH_VM, f"no image on {source.node.name}"
    if image.generation != action.expects:
        return _other_generation(image)
    if action.disks > image.disks:
        return Outcome.STALE_DISK, f"disk generation {image.disks}, expected {action.disks}"
    if elsewhere and image.foreign:
        return Outcome.UNFIT, f"it was adopted, and is resumed on {source.node.name} alone"
    op.peer = source if elsewhere else None
    op.domain = image.copy(VmState.INCOMING)
    op.domain.disks += elsewhere
    if action.spec is not None:
        op.domain.cpu_mhz, op.domain.cap_mhz = action.spec.cpu_mhz, action.spec.cap_mhz
    held_mib = image.memory_mib if source.node.freezes else 0
    return _fits(site, op.domain, held_mib) or _lock(op, now_s)


def _check_live(op: Operation, _now_s: float = 0.0) -> Answer | None:
    domain = op.domain
    if domain is None:
        return Outcome.NO_SUCH_VM, ""
    if domain.generation != op.action.expects:
        return _other_generation(domain)
    if domain.state not in LIVE_STATES:
        return Outcome.REFUSED, f"it is {domain.state.value}"
    return None


def _check_stop(op: Operation, _now_s: float) -> Answer | None:
    if op.domain is None:
        return MET
    return _other_generation(op.domain) if op.domain.generation != op.action.expects else None


def _check_pause(op: Operation, _now_s: float) -> Answer | None:
    wanted = VmState.PAUSED if op.action.kind is ActionKind.PAUSE else VmState.RUNNING
    answer = _check_live(op)
    if answer is None and op.domain is not None and op.domain.state is wanted:
        return MET
    return answer


def _check_set_cpu(op: Operation, _now_s: float) -> Answer | None:
    answer = _check_live(op)
    if answer is None and op.domain is not None:
        return _allotment(op.site, op.action.cpu_mhz, op.domain.vcpus)
    return answer


def _check_suspend(op: Operation, _now_s: float) -> Answer | None:
    if op.domain is None:
        image = op.site.images.get(op.action.vm)
        if image is not None:
            return MET if image.generation == op.action.expects else _other_generation(image)
    return _check_live(op)


def _check_migrate(op: Operation, _now_s: float) -> Answer | None:
    site, action = op.site, op.action
    peer = site.fabric.sites.get(action.to_node)
    reached = peer is not None and _reaches(site, peer)
    if op.domain is None and peer is not None and reached:
        there = peer.domains.get(action.vm)
        if there is not None and there.state in LIVE_STATES and there.generation in (action.expects, action.generation):
            return MET
    answer = _check_live(op)
    if answer is not None or op.domain is None:
        return answer
    if Ability.MIGRATE not in site.node.abilities:
        return Outcome.REFUSED, "it cannot migrate"
    if peer is site:
        return MET
    if peer is None or not reached:
        return Outcome.FAILED, "target unreachable"
    if action.vm in peer.operations:
        return Outcome.BUSY, f"another operation on it is in progress on {peer.node.name}"
    image = peer.images.get(action.vm)
    if action.vm in peer.domains or (image is not None and image.generation > op.domain.generation):
        return Outcome.ALREADY_THERE, f"{peer.node.name} has it"
    op.peer = peer
    return _fits(peer, op.domain)


def _check_discard(op: Operation, _now_s: float) -> Answer | None:
    image = op.site.images.get(op.action.vm)
    op.domain = image
    if image is None:
        return MET
    return _other_generation(image) if image.generation != op.action.expects else None


def _check_adopt(op: Operation, _now_s: float) -> Answer | None:
    domain, spec = op.domain, op.action.spec
    if spec is None or spec.vm != op.action.vm:
        return Outcome.REFUSED, "no spec for this VM"
    if domain is None:
        return Outcome.NO_SUCH_VM, ""
    if domain.managed and domain.generation != op.action.generation:
        return _taken(domain)
    if domain.managed and domain.failover is spec.failover and domain.stays_off is spec.stays_off:
        return MET
    return None if domain.state is not VmState.INCOMING else (Outcome.REFUSED, f"it is {domain.state.value}")


def _check_release(op: Operation, _now_s: float) -> Answer | None:
    domain = op.domain
    if domain is None or not domain.managed:
        return MET
    if domain.foreign and domain.state not in LIVE_STATES:
        return _other_generation(domain) if domain.generation != op.action.expects else None
    return _check_live(op)


def _check_undefine(op: Operation, now_s: float) -> Answer | None:
    domain = op.domain
    if domain is None:
        return MET
    if domain.generation != op.action.expects:
        return _other_generation(domain)
    if not domain.foreign or domain.state in HOLDING_STATES:
        return Outcome.REFUSED, f"it is {domain.state.value}"
    here = op.site.status_of(domain, now_s)
    if here.host_files:
        return Outcome.REFUSED, "; ".join(host_file_sentence(text) for text in here.host_files)
    if op.action.digest and here.definition != op.action.digest:
        return Outcome.REFUSED, "its definition here is not the one by which it was restarted elsewhere"
    return None


_CHECKS: dict[ActionKind, Callable[[Operation, float], Answer | None]] = {
    ActionKind.START: _check_start,
    ActionKind.STOP: _check_stop,
    ActionKind.PAUSE: _check_pause,
    ActionKind.UNPAUSE: _check_pause,
    ActionKind.SUSPEND: _check_suspend,
    ActionKind.RESUME: _check_resume,
    ActionKind.MIGRATE: _check_migrate,
    ActionKind.SET_CPU: _check_set_cpu,
    ActionKind.DISCARD_IMAGE: _check_discard,
    ActionKind.ADOPT: _check_adopt,
    ActionKind.RELEASE: _check_release,
    ActionKind.UNDEFINE: _check_undefine,
}


def _present(site: Site, vm: str, generation: int) -> Answer | None:
    """Return the answer to an action that starts `vm` as `generation` where it, or its newer image, already exists;
    None where neither does."""
    domain = site.domains.get(vm)
    if domain is not None:
        return MET if domain.generation == generation else _taken(domain)
    image = site.images.get(vm)
    if image is not None and image.generation >= generation:
        return Outcome.ALREADY_THERE, f"an image of generation {image.generation}"
    return None


def _fits(site: Site, domain: Domain, held_mib: int = 0) -> Answer | None:
    """Return the refusal if the domain does not fit on the host, else None. `held_mib`: memory that it already
    holds."""
    free_mib = site.node.memory_mib - site.node.hugepages_mib - site.memory_used_mib() + held_mib
    if domain.ordinary_mib > free_mib:
        return Outcome.NO_ROOM, f"{domain.ordinary_mib} MiB wanted, {free_mib} MiB free"
    lacks = site.lacking(domain)
    if lacks:
        site.fabric.note_unfit(domain.vm, site.node.name, lacks)
        return Outcome.UNFIT, lacks
    return _allotment(site, domain.cpu_mhz, domain.vcpus)


def _allotment(site: Site, cpu_mhz: float, vcpus: int) -> Answer | None:
    most_mhz = vcpus * site.node.core_mhz
    if 0.0 <= cpu_mhz <= most_mhz * OVER_CAPACITY:
        return None
    return Outcome.REFUSED, f"{cpu_mhz:g} MHz wanted, at most {most_mhz:g} MHz"


def _lock(op: Operation, now_s: float) -> Answer | None:
    """Return the refusal if the VM's disk is locked, else None. The lock is the second protection against a VM that
    runs twice."""
    site, vm = op.site, op.action.vm
    holder = site.fabric.locks.get(vm)
    if holder is None:
        return None
    site.fabric.note_double(vm, site.node.name, now_s)
    return Outcome.REFUSED, f"its disk is locked by {holder}"


def _taken(domain: Domain) -> Answer:
    return Outcome.ALREADY_THERE, f"generation {domain.generation}"


def _other_generation(domain: Domain) -> Answer:
    return Outcome.WRONG_GENERATION, f"generation {domain.generation}"


def _reaches(site: Site, peer: Site) -> bool:
    return peer.up and site.fabric.reachable(site.node.name, peer.node.name)


# --- ends --------------------------------------------------------------------------------------------------------


def _finish_alive(op: Operation, now_s: float) -> None:
    assert op.domain is not None
    site, vm = op.site, op.action.vm
    op.domain.generation = op.action.generation
    op.domain.relabel()
    if op.action.kind is ActionKind.START and op.action.expects:
        _start_adopted(op.domain, op.action.spec)
    elif op.action.kind is ActionKind.START and not op.domain.foreign:
        site.fabric.disks.make(vm, site.node.name)
    elif op.peer is not None:
        site.fabric.disks.copy(vm, op.peer.node.name, site.node.name)
    op.site.come_alive(op.domain, VmState.PAUSED if op.action.paused else VmState.RUNNING, now_s)


def _start_adopted(domain: Domain, spec: VmSpec | None) -> None:
    assert spec is not None
    domain.attempt, domain.cpu_time_s, domain.disk_time_s = spec.attempt, 0.0, 0.0
    domain.cpu_mhz = min(spec.cpu_mhz, domain.ceiling_mhz)


def _finish_stop(op: Operation, now_s: float) -> VmStatus:
    assert op.domain is not None
    if not op.domain.foreign:
        del op.site.domains[op.action.vm]
    if op.domain.state in LIVE_STATES:
        op.domain.busy = ""
        return op.site.leave_world(op.domain, VmState.ENDED, now_s)
    op.domain.busy = ""
    return op.site.status_of(op.domain, now_s)


def _finish_pause(op: Operation, now_s: float) -> None:
    assert op.domain is not None
    running = op.action.kind is ActionKind.UNPAUSE
    op.domain.busy = ""
    if op.domain.state in LIVE_STATES:
        op.domain.state = VmState.RUNNING if running else VmState.PAUSED
        op.site.fabric.world.set_running(op.action.vm, running, now_s)


def _finish_set_cpu(op: Operation, now_s: float) -> None:
    domain = op.domain
    assert domain is not None
    domain.busy = ""
    domain.cpu_mhz, domain.cap_mhz = op.action.cpu_mhz, op.action.cap_mhz
    if domain.state in LIVE_STATES:
        op.site.fabric.world.set_weight(domain.vm, domain.cpu_mhz, domain.ceiling_mhz, now_s)


def _finish_suspend(op: Operation, now_s: float) -> VmStatus:
    assert op.domain is not None
    op.domain.busy = ""
    final = op.site.leave_world(op.domain, VmState.SUSPENDED, now_s)
    op.domain.written = op.site.fabric.disks.copies[op.action.vm, op.site.node.name]
    op.site.images[op.action.vm] = op.site.domains.pop(op.action.vm)
    return final


def _finish_migrate(op: Operation, now_s: float) -> VmStatus:
    site, peer, domain, arriving = op.site, op.peer, op.domain, op.arriving
    assert peer is not None
    assert domain is not None
    assert arriving is not None
    domain.busy = ""
    final = site.status_of(domain, now_s)
    del site.domains[domain.vm]
    disks, here, there = site.fabric.disks, site.node.name, peer.node.name
    disks.write(domain.vm, here)
    disks.copy(domain.vm, here, there)
    disks.remove(domain.vm, here)
    disks.executes(domain.vm, there, now_s)
    site.fabric.belongings.moves(domain.vm, here, there)
    arriving.disks = domain.disks + (not domain.shared)
    site.fabric.world.move(domain.vm, peer.node.name, now_s)
    site.fabric.locks[domain.vm] = peer.node.name
    arriving.state, arriving.busy = domain.state, ""
    peer.images.pop(domain.vm, None)
    peer.tell_change(GuestChange.ARRIVED, peer.status_of(arriving, now_s), now_s)
    return final


def _finish_discard(op: Operation, _now_s: float) -> None:
    image = op.site.images.pop(op.action.vm)
    if image.foreign:
        image.state, image.written = VmState.CRASHED, 0  # without its memory; its definition stays
        op.site.domains[op.action.vm] = image
    else:
        op.site.fabric.disks.remove(op.action.vm, op.site.node.name)


def _finish_adopt(op: Operation, _now_s: float) -> None:
    domain, spec = op.domain, op.action.spec
    assert domain is not None
    assert spec is not None
    domain.busy = ""
    if domain.foreign and not domain.managed:
        domain.cpu_mhz = spec.cpu_mhz or domain.cpu_mhz  # its weight in the world stays its owner's
    domain.managed, domain.generation, domain.attempt = True, op.action.generation, spec.attempt
    domain.disks = 0 if domain.shared else max(1, domain.disks)
    domain.failover, domain.stays_off = spec.failover, spec.stays_off
    domain.relabel()


def _finish_release(op: Operation, _now_s: float) -> None:
    assert op.domain is not None
    op.domain.busy = ""
    op.domain.managed, op.domain.generation, op.domain.attempt = False, 0, 0
    op.domain.failover = op.domain.stays_off = False
    op.domain.relabel()


def _finish_undefine(op: Operation, _now_s: float) -> None:
    del op.site.domains[op.action.vm]
    op.site.fabric.belongings.undefined(op.action.vm, op.site.node.name)


_FINISHES: dict[ActionKind, Callable[[Operation, float], VmStatus | None]] = {
    ActionKind.START: _finish_alive,
    ActionKind.STOP: _finish_stop,
    ActionKind.PAUSE: _finish_pause,
    ActionKind.UNPAUSE: _finish_pause,
    ActionKind.SUSPEND: _finish_suspend,
    ActionKind.RESUME: _finish_alive,
    ActionKind.MIGRATE: _finish_migrate,
    ActionKind.SET_CPU: _finish_set_cpu,
    ActionKind.DISCARD_IMAGE: _finish_discard,
    ActionKind.ADOPT: _finish_adopt,
    ActionKind.RELEASE: _finish_release,
    ActionKind.UNDEFINE: _finish_undefine,
}
