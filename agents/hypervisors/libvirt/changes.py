"""What guests do without being asked, found by comparing one reading with the next; events only say how it came.

So nothing is missed that happened while the connection, or libvirtd, was away. Pure but for what it remembers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from agents.hypervisors.libvirt.codes import RESUMED_MIGRATED, STARTED_MIGRATED, Lifecycle, Stopped
from agents.hypervisors.libvirt.statistics import ObservedDomain
from shared.ports.effects import GuestChanged
from shared.values.actions import GuestChange
from shared.values.vms import LIVE_STATES, VmState

GRACE_S = 2.0  # for the event that tells how a VM went
EVENTS_KEPT = 8
EVENTFUL_MAX = 4096  # VMs whose events are kept
ENDS = frozenset({VmState.ENDED, VmState.CRASHED})
_HOW = {
    Stopped.SHUTDOWN: "shut down",
    Stopped.DESTROYED: "destroyed by somebody",
    Stopped.CRASHED: "crashed",
    Stopped.SAVED: "saved by somebody",
    Stopped.FAILED: "could not be run",
    Stopped.FROM_SNAPSHOT: "reverted to a snapshot by somebody",
}
BY_HAND = frozenset({_HOW[Stopped.DESTROYED], _HOW[Stopped.SAVED], _HOW[Stopped.FROM_SNAPSHOT]})
Event = tuple[int, int]


@dataclass(slots=True)
class ComparedDomains:
    """The result of a comparison. `tell`: changes, each with the previously known state. `asked`: VMs that may be on
    another node, which has yet to be checked. `ended`: ends to note with the domain. `left`: definitions to remove.
    `moved_in`: domains to note as present here. `came`: domains that are live without an operation of this agent and
    need to be put in order; an operation of an earlier agent may have started them."""

    tell: list[tuple[GuestChanged, ObservedDomain | None]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    ended: list[ObservedDomain] = field(default_factory=list)
    left: list[ObservedDomain] = field(default_factory=list)
    moved_in: list[ObservedDomain] = field(default_factory=list)
    came: list[ObservedDomain] = field(default_factory=list)


class Changes:
    """Knows the domains of one node as they were."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._known: dict[str, ObservedDomain] | None = None
        self._events: dict[str, deque[Event]] = {}
        self._missing: dict[str, float] = {}
        self._whereabouts: dict[str, str | None] = {}

    @property
    def missing(self) -> dict[str, ObservedDomain]:
        """The VMs that are gone for reasons not known yet, as they were."""
        known = self._known or {}
        return {vm: known[vm] for vm in self._missing if vm in known}

    def known(self, vm: str) -> ObservedDomain | None:
        """Return a domain as it was last compared."""
        return (self._known or {}).get(vm)

    def happened(self, vm: str, event: int, detail: int) -> None:
        """Record an event; events arrive in order."""
        if event == Lifecycle.STARTED:
            self._events[vm] = deque(maxlen=EVENTS_KEPT)
        if vm not in self._events and len(self._events) >= EVENTFUL_MAX:  # of domains that come and go unread
            del self._events[next(iter(self._events))]
        self._events.setdefault(vm, deque(maxlen=EVENTS_KEPT)).append((event, detail))

    def settle(self, vm: str, now: ObservedDomain | None) -> None:
        """Record the result of Trimtab's own operation, so that it is not reported as a change."""
        self._events.pop(vm, None)
        self._missing.pop(vm, None)
        if self._known is not None:
            before = self._known.get(vm)
            if before is not None and now is not None and _came_back(before, now):
                return
            self._known.pop(vm, None)
            if now is not None:
                self._known[vm] = now

    def compare(self, found: Mapping[str, ObservedDomain], busy: Collection[str], now_s: float) -> ComparedDomains:
        """Return the changes since the last reading, except for VMs that are `busy` with an operation of Trimtab."""
        result = ComparedDomains()
        if self._known is None:
            self._known = dict(found)
            result.left += [seen for seen in found.values() if seen.left and seen.managed]
            result.came += [seen for seen in found.values() if _lives(seen)]
            return result
        known = self._known
        for vm in [*known, *(vm for vm in found if vm not in known)]:
            if vm in busy:
                continue
            before, now = known.get(vm), found.get(vm)
            if before is not None and _lives(before) and not self._is_still_here(now):
                if not self._gone(before, now, now_s, result):
                    continue  # not yet known how
            elif now is not None:
                self._seen(before, now, result)
            self._missing.pop(vm, None)
            self._whereabouts.pop(vm, None)
            if now is None:
                known.pop(vm, None)
                self._events.pop(vm, None)
            else:
                known[vm] = now
        return result

    def found_at(self, vm: str, node: str) -> None:
        """Take in the answer to `ComparedDomains.asked`: the node that has the VM ("": none that could be asked).
        Ignore an answer that is no longer awaited, so that it does not answer a later question."""
        if vm in self._whereabouts:
            self._whereabouts[vm] = node

    # --- inside -----------------------------------------------------------------------------------------------------

    def _is_still_here(self, now: ObservedDomain | None) -> bool:
        return now is not None and now.state is not None

    def _gone(self, before: ObservedDomain, now: ObservedDomain | None, now_s: float, result: ComparedDomains) -> bool:
        """Handle a VM that lived here and is not here any more; return false while there may still be an
        explanation."""
        vm = before.facts.name
        stops = [detail for event, detail in self._events.get(vm, ()) if event == Lifecycle.STOPPED]
        if now is not None and now.left:
            result.left.append(now)
        if (now is not None and now.left) or Stopped.MIGRATED in stops[-1:]:
            self._tell(GuestChange.LEFT, before, before, result, "migrated by somebody")
        elif stops:
            ended = stops[-1] == Stopped.SHUTDOWN
            self._end(before, VmState.ENDED if ended else VmState.CRASHED, _how(stops[-1]), result)
        elif now_s - self._missing.setdefault(vm, now_s) < GRACE_S:
            return False
        elif vm not in self._whereabouts:
            self._whereabouts[vm] = None
            result.asked.append(vm)
            return False
        else:
            node = self._whereabouts[vm]
            if node is None:
                return False
            if node:
                self._tell(GuestChange.LEFT, before, before, result, f"migrated by somebody, to {node}")
            else:
                self._tell(GuestChange.VANISHED, before, before, result, "its domain is gone")
        return True

    def _seen(self, before: ObservedDomain | None, now: ObservedDomain, result: ComparedDomains) -> None:
        """Handle a VM that is here and possibly was not before, or not in this state."""
        if not now.managed:
            return
        if now.left:
            result.left.append(now)
        if now.state in ENDS and before is not None and _lives(before):
            stops = [detail for event, detail in self._events.get(now.facts.name, ()) if event == Lifecycle.STOPPED]
            self._end(now, now.state, now.why or _how(stops[-1] if stops else None), result, before)
            result.ended.append(now)
        elif now.state in LIVE_STATES and (before is None or (before.managed and before.state not in LIVE_STATES)):
            result.came.append(now)
            arrived = self._arrived(before, now)
            if (now.meta and now.meta.node) != self._node:
                result.moved_in.append(now)
            change = GuestChange.ARRIVED if arrived else GuestChange.STARTED
            self._tell(change, now, None, result, "" if arrived else "started by somebody")

    def _arrived(self, before: ObservedDomain | None, now: ObservedDomain) -> bool:
        if before is not None and before.state is VmState.INCOMING:
            return True
        events = self._events.get(now.facts.name, ())
        came = {(Lifecycle.STARTED, STARTED_MIGRATED), (Lifecycle.RESUMED, RESUMED_MIGRATED)}
        return bool(came & set(events)) or (now.meta is not None and now.meta.node not in ("", self._node))

    def _end(
        self,
        last: ObservedDomain,
        state: VmState | None,
        how: str,
        result: ComparedDomains,
        before: ObservedDomain | None = None,
    ) -> None:
        """Report an end: normal, by a crash, or by hand."""
        change = GuestChange.ENDED if state is VmState.ENDED else GuestChange.VANISHED
        if how in BY_HAND:
            change = GuestChange.STOPPED
        result.tell.append((GuestChanged(change, last.status(state=state), how), before or last))

    def _tell(
        self,
        change: GuestChange,
        seen: ObservedDomain,
        before: ObservedDomain | None,
        result: ComparedDomains,
        how: str,
    ) -> None:
        if seen.managed:
            result.tell.append((GuestChanged(change, seen.status(), how), before))


def _came_back(before: ObservedDomain, now: ObservedDomain) -> bool:
    """Return whether a VM is live whose end was already reported: no operation of Trimtab does that."""
    return before.state in ENDS and now.state in LIVE_STATES and before.generation == now.generation


def _lives(seen: ObservedDomain) -> bool:
    return seen.managed and seen.state in LIVE_STATES


def _how(detail: int | None) -> str:
    try:
        return _HOW.get(Stopped(-1 if detail is None else detail), "")
    except ValueError:
        return ""
