"""What the terms of adopted VMs allow: pure questions about one job's row."""

from __future__ import annotations

import math
from dataclasses import replace

from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.values.settings import Automation
from shared.values.actions import GuestChange
from shared.values.nodes import Ability
from shared.values.vm_terms import DAY_S, OnShutdown, VmAutomation, VmTerms

DEFAULT = VmTerms()
OWNERS = frozenset({GuestChange.ENDED, GuestChange.STOPPED})  # the guest's or its owner's own will


def terms_of(entry: JobEntry) -> VmTerms:
    """Return the terms of an adopted VM."""
    return entry.terms if entry.terms is not None else DEFAULT


def runs(entry: JobEntry) -> None:
    """Note that an adopted VM runs, and is therefore wanted to."""
    entry.taken, entry.lost_with_host, entry.failover_to = True, False, ""
    entry.terms = replace(terms_of(entry), running=True)
    for instance in entry.instances:
        instance.exit, instance.host_restarted = None, False


def note_exit(entry: JobEntry) -> None:
    """Take in how an adopted VM stopped: one that its guest shut down, unless its terms have it restarted then, or that
    somebody stopped is wanted to be off."""
    (instance,) = entry.instances
    terms = terms_of(entry)
    by_guest = instance.exit is GuestChange.ENDED and terms.on_shutdown is OnShutdown.RESTART
    if instance.exit in OWNERS and not by_guest:
        entry.terms = replace(terms, running=False)


def restarts(entry: JobEntry) -> bool:
    """Return whether an adopted VM that is shut off is to be started again without a further request."""
    terms = terms_of(entry)
    wanted = terms.running and not (entry.released or entry.held)
    return wanted and (entry.lost_with_host or terms.on_shutdown is OnShutdown.RESTART)


def stays_off(entry: JobEntry) -> bool:
    """Return whether libvirt is not to restart an adopted VM when its guest has shut down or crashed."""
    return bool(entry.adopted) and terms_of(entry).on_shutdown is OnShutdown.LEAVE_OFF


def fails_over(entry: JobEntry) -> bool:
    """Return whether an adopted VM is to be restarted on another node when its own is off."""
    return bool(entry.adopted) and terms_of(entry).failover


def can_fail_over(node: NodeEntry) -> bool:
    """Return whether the node's driver can keep a VM from starting with its host, and start one from elsewhere."""
    return node.inventory is not None and Ability.FAILOVER in node.inventory.abilities


def is_kept(entry: JobEntry) -> bool:
    """Return whether decisions never suspend a job for others."""
    return bool(entry.adopted) and not terms_of(entry).suspend


def is_off_limits(entry: JobEntry) -> bool:
    """Return whether no decision may change a job."""
    return entry.terms is not None and entry.terms.automation is VmAutomation.OFF


def automation_of(entry: JobEntry | None, cluster_level: Automation) -> Automation:
    """Return the automation level of changes to a job: an adopted VM may have its own."""
    own = entry.terms.automation if entry is not None and entry.terms is not None else None
    return cluster_level if own is None or own is VmAutomation.OFF else Automation(own.value)


def note_move(entry: JobEntry, now_s: float) -> None:
    """Count a migration that a decision ordered; those of more than a day ago count no more."""
    if entry.adopted:
        entry.moves_s = (*(at_s for at_s in entry.moves_s if at_s > now_s - DAY_S), now_s)


def moves_left(entry: JobEntry, now_s: float) -> int | None:
    """Return how many more migrations decisions may order now (None: no limit)."""
    most = terms_of(entry).moves_per_day if entry.adopted else None
    return None if most is None else max(0, most - sum(at_s > now_s - DAY_S for at_s in entry.moves_s))


def note_pause(entry: JobEntry, seconds: float, now_s: float) -> None:
    """Count a pause by a migration; those of more than a day ago count no more."""
    if entry.adopted and seconds > 0.0:
        entry.pauses = (*(one for one in entry.pauses if one[0] > now_s - DAY_S), (now_s, seconds))


def pause_left_s(entry: JobEntry, now_s: float) -> float | None:
    """Return for how many seconds migrations by decisions may still pause it now (None: no limit)."""
    most_s = terms_of(entry).pause_s_per_day if entry.adopted else None
    if most_s is None:
        return None
    return max(0.0, most_s - math.fsum(seconds for at_s, seconds in entry.pauses if at_s > now_s - DAY_S))


def is_out_of_budget(entry: JobEntry, now_s: float) -> bool:
    """Return whether no decision may move it any more now: nothing is left, or less than the pause that was forecast
    for it lately."""
    if moves_left(entry, now_s) == 0:
        return True
    left_s = pause_left_s(entry, now_s)
    if left_s is None:
        return False
    holds = [one.pause_hold for one in entry.instances]
    return left_s == 0.0 or any(now_s < until_s and left_s < pause_s for until_s, pause_s in holds)
