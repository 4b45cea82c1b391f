"""How an action ended whose answer nobody heard: read from what its VM is now."""

from __future__ import annotations

from agents.core.journal import left_a_domain
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.vms import VmState, VmStatus

BROUGHT_TO_LIFE = frozenset({VmState.RUNNING, VmState.PAUSED, VmState.ENDED, VmState.CRASHED})


def judge(action: Action, domain: VmStatus | None, image: VmStatus | None, same_boot: bool) -> tuple[Outcome, str]:
    """Return OK if the action's post-condition holds on this node, else INTERRUPTED; and a detail for people.

    `domain` and `image` are the managed domain and image of the VM on the node, with no operation in progress on it.
    `same_boot`: the host has not been restarted since the action was accepted.
    """
    if _holds(action, domain, image, same_boot):
        return Outcome.OK, "not seen to end"
    return Outcome.INTERRUPTED, "the agent was away" if same_boot else "the host rebooted"


def _holds(action: Action, domain: VmStatus | None, image: VmStatus | None, same_boot: bool) -> bool:
    kind = action.kind
    if kind in (ActionKind.START, ActionKind.RESUME):
        return domain is not None and domain.state in BROUGHT_TO_LIFE and domain.generation == action.generation
    if kind is ActionKind.ADOPT:
        if domain is None or (action.spec is not None and domain.failover is not action.spec.failover):
            return False
        if domain.adopted and action.spec is not None and domain.stays_off is not action.spec.stays_off:
            return False
        return domain.state in BROUGHT_TO_LIFE and domain.generation == action.generation
    if kind is ActionKind.UNDEFINE:
        return domain is None and image is None
    if kind is ActionKind.STOP:
        return domain is None or (domain.adopted and left_a_domain(domain))
    if kind is ActionKind.RELEASE:
        return domain is None
    if kind is ActionKind.MIGRATE:
        return domain is None and same_boot  # after a new start of the host nothing is here, moved or not
    if kind is ActionKind.SUSPEND:
        return domain is None and image is not None and image.generation == action.expects
    if kind is ActionKind.DISCARD_IMAGE:
        # A VM of the same name may hide the image, unless it was adopted: that one stays defined without it.
        return image is None and (domain is None or (domain.adopted and left_a_domain(domain)))
    if domain is None or domain.generation != action.expects:
        return False
    if kind is ActionKind.PAUSE:
        return domain.state is VmState.PAUSED
    if kind is ActionKind.UNPAUSE:
        return domain.state is VmState.RUNNING
    return domain.cpu_mhz == action.cpu_mhz
