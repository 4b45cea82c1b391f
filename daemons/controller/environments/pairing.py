"""Which environments are coordinated with each other: named, consented, offered, and parted with notice
(phoenixcloud.txt section 4.2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.models.coordination import pairing

Changed = Callable[[str, float], None]


class Pairing:
    """Keeps `EnvironmentEntry.partner` of both sides consistent. `changed` is called for every environment whose
    partner has changed. `dirty`: something has happened that may let environments pair."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, changed: Changed) -> None:
        self.cluster, self.unit_of_work, self.changed = cluster, unit_of_work, changed
        self.dirty = False

    def look_again(self) -> None:
        """Something has happened that may let environments find each other."""
        self.dirty = True

    # --- coming together --------------------------------------------------------------------------------------------

    def seek(self, now_s: float) -> None:
        """Pair environments: first those that are named or consented to, then those that may be offered one."""
        self.dirty = False
        for entry in self._free():
            other = next((one for one in self._named_by(entry) if not why_not(entry, one)), None)
            if other is not None and not entry.partner:
                self._couple(entry, other, now_s)
        for entry in self._free():
            if entry.batch and not entry.partner:
                self._offer(entry, now_s)

    def _free(self) -> list[EnvironmentEntry]:
        """Activated environments that have no partner, oldest first."""
        found = [one for one in self.cluster.environments.values() if one.serves and not one.partner]
        return sorted(found, key=lambda one: one.order)

    def _named_by(self, entry: EnvironmentEntry) -> Iterable[EnvironmentEntry]:
        names = dict.fromkeys((entry.agreement.coordinated_with, *sorted(entry.consents)))
        found = (self.cluster.environments.get(name) for name in names)
        return (one for one in found if one is not None and one.serves and not one.partner)

    def _couple(self, one: EnvironmentEntry, other: EnvironmentEntry, now_s: float) -> None:
        for entry, partner in ((one, other), (other, one)):
            entry.partner, entry.parts_s, entry.offered = partner.name, None, ""
            self.unit_of_work.change_environment(entry)
            self.unit_of_work.emit(now_s, "environment-coordinated", entry.name, f"with {partner.name}")
        self.changed(one.name, now_s)
        self.changed(other.name, now_s)

    def _offer(self, entry: EnvironmentEntry, now_s: float) -> None:
        """Offer a web environment that consents; pair both if the batch environment consents too."""
        willing = [one.agreement for one in self._free() if not _is_declined(entry, one)]
        name = pairing.offer(entry.agreement, willing)
        other = self.cluster.environments.get(name)
        if other is not None and pairing.consents(entry.agreement, other.agreement, tuple(entry.consents)):
            self._couple(entry, other, now_s)
        elif name != entry.offered:
            entry.offered = name
            self.unit_of_work.change_environment(entry)
            if name:
                self.unit_of_work.emit(
                    now_s, "partner-offered", entry.name, f"{name}: consent to be coordinated with it"
                )

    # --- parting ----------------------------------------------------------------------------------------------------

    def consent(self, entry: EnvironmentEntry, partner: str, now_s: float) -> None:
        """Record its owner's consent to coordination with that environment."""
        if partner in entry.consents:
            return
        entry.consents.add(partner)
        entry.declined.discard(partner)
        self.unit_of_work.change_environment(entry)
        self.unit_of_work.emit(now_s, "environment-consented", entry.name, f"to {partner}")
        other = self.cluster.environments.get(partner)
        if entry.partner == partner and other is not None and entry.name not in other.declined:
            entry.parts_s = other.parts_s = None
            self.unit_of_work.change_environment(other)
        self.dirty = True

    def withdraw(self, entry: EnvironmentEntry, partner: str, now_s: float) -> None:
        """Record that its owner withdraws the consent. Both stay paired until the notice of its agreement ends; the
        earlier notice counts where both have withdrawn."""
        if partner in entry.declined:
            return
        entry.declined.add(partner)
        entry.consents.discard(partner)
        self.unit_of_work.change_environment(entry)
        self.unit_of_work.emit(now_s, "environment-declined", entry.name, f"not with {partner} any more")
        other = self.cluster.environments.get(partner)
        parts_s = now_s + entry.agreement.notice_s
        if entry.partner == partner and other is not None and (entry.parts_s is None or parts_s < entry.parts_s):
            entry.parts_s = other.parts_s = parts_s
            self.unit_of_work.change_environment(other)
            until = f"in {entry.agreement.notice_s:g} s"
            self.unit_of_work.emit(now_s, "environment-separating", entry.name, f"from {partner} {until}")
        self.dirty = True

    def part(self, entry: EnvironmentEntry, now_s: float) -> None:
        """Separate an environment from its partner; each continues alone."""
        other = self.cluster.environments.get(entry.partner)
        for one in (entry, other):
            if one is not None and one.partner:
                self.unit_of_work.emit(now_s, "environment-separated", one.name, f"from {one.partner}")
                one.partner, one.parts_s = "", None
                self.unit_of_work.change_environment(one)
                self.changed(one.name, now_s)
        self.dirty = True

    def forget(self, name: str) -> None:
        """Drop consents to an environment that is gone; they do not apply to another one of its name."""
        for entry in self.cluster.environments.values():
            if name in entry.consents | entry.declined:
                entry.consents.discard(name)
                entry.declined.discard(name)
                self.unit_of_work.change_environment(entry)

    def due(self, now_s: float) -> None:
        """Part those whose notice is over."""
        for entry in list(self.cluster.environments.values()):
            if entry.partner and entry.parts_s is not None and entry.parts_s <= now_s:
                self.part(entry, now_s)

    def next_due_s(self) -> float:
        """Return when the next notice ends (inf: none)."""
        ends_s = (one.parts_s for one in self.cluster.environments.values() if one.parts_s is not None)
        return min(ends_s, default=math.inf)


def why_not(entry: EnvironmentEntry, other: EnvironmentEntry) -> str:
    """Return why two environments, of which one names or has consented to the other, are not coordinated ("": nothing
    prevents it)."""
    if _is_declined(entry, other):
        return f"the consent between {entry.name!r} and {other.name!r} was withdrawn"
    objections = pairing.objections(entry.agreement, other.agreement)
    if objections:
        return "; ".join(objections)
    for one, towards in ((entry, other), (other, entry)):
        if not pairing.consents(one.agreement, towards.agreement, tuple(one.consents)):
            return f"the owner of {one.name!r} has not consented to {towards.name!r}"
    return ""


def _is_declined(one: EnvironmentEntry, other: EnvironmentEntry) -> bool:
    return other.name in one.declined or one.name in other.declined
