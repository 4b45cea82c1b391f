"""What the driver answers before it does anything: pure."""

from __future__ import annotations

from dataclasses import dataclass

from agents.hypervisors import answers
from agents.hypervisors.answers import (
    MET,
    NO_SPEC,
    NOT_OURS,
    Answer,
    adopt,
    allotment,
    generation,
    is_strange,
    not_now,
    other,
)
from agents.hypervisors.libvirt import domain_xml
from agents.hypervisors.libvirt.domain_xml import NOWHERE, Facts
from agents.hypervisors.libvirt.migration_needs import Surroundings
from agents.hypervisors.libvirt.statistics import HALTED, ObservedDomain
from shared.values import migration
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.failover import host_file_sentence, start_needs
from shared.values.vms import LIVE_STATES, OFF_STATES, VmState


@dataclass(frozen=True, slots=True)
class NodeHeadroom:
    """What a node has left: MiB, the MHz of a core, its own name, and what it can do. `has`: what VMs may need of it,
    see `Node.migration_has`; `here`: what of it decides on their needs."""

    node: str
    free_mib: int
    core_mhz: float
    saves: bool = True
    migrates: bool = True
    fails_over: bool = True
    has: tuple[str, ...] = ()
    here: Surroundings = NOWHERE


def check(action: Action, here: ObservedDomain | None, room: NodeHeadroom) -> Answer | None:
    """None when the action may begin here, else how it is answered; OK where it finds itself done. What another node
    must be asked is checked when it is done."""
    if here is not None and here.state is None:
        here = None
    if here is not None and here.state is VmState.INCOMING:
        return Outcome.BUSY, "it is on its way here"
    if here is not None and here.halted and action.kind is not ActionKind.STOP:
        return Outcome.BUSY, HALTED
    if is_strange(action, here):
        return NOT_OURS
    kind = action.kind
    if kind is ActionKind.START:
        return _start(action, here, room)
    if kind is ActionKind.RESUME:
        return _resume(action, here, room)
    image = here if here is not None and here.state is VmState.SUSPENDED else None
    domain = here if image is None else None
    if kind is ActionKind.STOP:
        return MET if domain is None else generation(action, domain)
    if kind is ActionKind.DISCARD_IMAGE:
        return MET if image is None else generation(action, image)
    if kind is ActionKind.ADOPT:
        return _adopt(action, domain)
    if kind is ActionKind.UNDEFINE:
        return _undefine(action, here)
    if kind is ActionKind.RELEASE and (domain is None or not domain.managed):
        return MET
    if kind is ActionKind.RELEASE and domain is not None and domain.adopted:
        return generation(action, domain)  # also one that is shut off: nothing but metadata is removed
    if kind is ActionKind.SUSPEND and image is not None:
        return generation(action, image) or MET
    if kind is ActionKind.MIGRATE and domain is None and room.migrates:
        return None  # the target may have it
    return _of_live(action, domain, room)


def fits(memory_mib: int, cpu_mhz: float, vcpus: int, room: NodeHeadroom) -> Answer | None:
    """None where a VM with this much ordinary memory has room."""
    return answers.room(memory_mib, room.free_mib) or allotment(cpu_mhz, vcpus, room.core_mhz)


def _of_live(action: Action, here: ObservedDomain | None, room: NodeHeadroom) -> Answer | None:
    if here is None:
        return Outcome.NO_SUCH_VM, ""
    if (answer := generation(action, here)) is not None:
        return answer
    if here.state not in LIVE_STATES:
        return not_now(here)
    wanted = {ActionKind.PAUSE: VmState.PAUSED, ActionKind.UNPAUSE: VmState.RUNNING}.get(action.kind)
    if here.state is wanted:
        return MET
    if action.kind is ActionKind.SET_CPU:
        return allotment(action.cpu_mhz, here.facts.vcpus, room.core_mhz)
    if action.kind is ActionKind.MIGRATE:
        if not room.migrates:
            return Outcome.REFUSED, "it cannot migrate"
        return MET if action.to_node == room.node else None
    if action.kind is ActionKind.SUSPEND and not room.saves:
        return Outcome.REFUSED, "there is no pool for saved images"
    return None


def _start(action: Action, here: ObservedDomain | None, room: NodeHeadroom) -> Answer | None:
    spec = action.spec
    if spec is None or spec.vm != action.vm:
        return NO_SPEC
    if action.expects:
        return _start_adopted(action, here, room)
    if spec.definition:
        return _start_defined(action, here, room)
    return _present(action, here) or fits(spec.memory_mib, spec.cpu_mhz, spec.vcpus, room)


def _start_defined(action: Action, here: ObservedDomain | None, room: NodeHeadroom) -> Answer | None:
    """Check the start of a VM that is not here by a definition that another node has sent."""
    assert action.spec is not None
    if here is not None:
        return _present(action, here) or other(here)
    if not room.fails_over:
        return Outcome.REFUSED, "it starts no VM by a definition from another node"
    try:
        text = domain_xml.without_meta("".join(action.spec.definition))
        problem = domain_xml.problem_of(domain_xml.parse(text), action.vm, room.here.has)
        facts = domain_xml.facts_of(text, room.here)
    except ValueError as error:
        return Outcome.REFUSED, f"its definition: {error}"
    if problem:
        return Outcome.REFUSED, f"its definition: {problem}"
    reasons = _why_not_here(facts, room)
    if reasons:
        return Outcome.UNFIT, "; ".join(reasons)
    return fits(facts.ordinary_mib, action.spec.cpu_mhz, facts.vcpus, room)


def _why_not_here(facts: Facts, room: NodeHeadroom) -> list[str]:
    """Return why a domain cannot be started here: what lies on another host alone, and what this one lacks."""
    lacking = migration.lacks(room.has, start_needs(facts.needs))
    reasons = [host_file_sentence(text) for text in facts.host_files]
    return reasons + [migration.sentence(need, room.node, room.has) for need in lacking]


def _start_adopted(action: Action, here: ObservedDomain | None, room: NodeHeadroom) -> Answer | None:
    assert action.spec is not None
    if here is None:
        return Outcome.NO_SUCH_VM, f"no definition on {room.node}"
    if here.generation == action.generation:
        return MET
    if (answer := generation(action, here)) is not None:
        return answer
    if here.state not in OFF_STATES or not here.adopted:
        return not_now(here)
    return fits(here.facts.ordinary_mib, action.spec.cpu_mhz, here.facts.vcpus, room)


def _adopt(action: Action, here: ObservedDomain | None) -> Answer | None:
    """Check an adoption. One that is ours already is asked who starts it with its host: a flag of libvirt's that its
    owner has switched on again counts, too."""
    answer = adopt(action, here)
    if answer != MET or action.spec is None or here is None or here.meta is None or not here.adopted:
        return answer
    if here.meta.stays_off is not action.spec.stays_off:
        return None
    wanted = action.spec.failover
    return MET if here.meta.failover is wanted and not (wanted and here.facts.autostart) else None


def stays(action: Action, here: ObservedDomain) -> Answer | None:
    """None where a definition may be removed: the VM was restarted elsewhere by the same one, and nothing of it lies on
    this host alone."""
    if here.facts.host_files:
        return Outcome.REFUSED, "; ".join(host_file_sentence(text) for text in here.facts.host_files)
    if action.digest and here.facts.definition != action.digest:
        return Outcome.REFUSED, "its definition here is not the one by which it was restarted elsewhere"
    return None


def _undefine(action: Action, here: ObservedDomain | None) -> Answer | None:
    if here is None:
        return MET
    if not here.adopted or here.state not in OFF_STATES:
        return not_now(here)
    return generation(action, here) or stays(action, here)


def _resume(action: Action, here: ObservedDomain | None, room: NodeHeadroom) -> Answer | None:
    elsewhere = action.from_node not in ("", room.node)
    if here is not None and (elsewhere or here.state is not VmState.SUSPENDED):
        taken = _present(action, here)
        if taken is not None:
            return taken
    if elsewhere:
        return None if room.saves else (Outcome.REFUSED, "there is no pool for saved images")
    if here is None:
        return Outcome.NO_SUCH_VM, f"no image on {room.node}"
    if (answer := generation(action, here)) is not None:
        return answer
    spec, facts = action.spec, here.facts
    meta_mhz = here.meta.cpu_mhz if here.meta is not None else 0.0
    return fits(facts.ordinary_mib, meta_mhz if spec is None else spec.cpu_mhz, facts.vcpus, room)


def _present(action: Action, here: ObservedDomain | None) -> Answer | None:
    """Return the answer to a start or resume where the VM, or a newer image of it, is already here."""
    if here is None:
        return None
    if here.state is VmState.SUSPENDED:
        if here.generation >= action.generation:
            return Outcome.ALREADY_THERE, f"an image of generation {here.generation}"
        return None
    same = here.managed and here.generation == action.generation
    return MET if same else other(here)
