"""Environments that share their units: one alone, or a batch and a web environment that are coordinated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from daemons.controller.state.environment import EnvironmentEntry
from daemons.values.environment_rights import Right
from shared.policy_api.coordination import Moment
from shared.policy_api.policies import CoordinationPolicy
from shared.ports.plugins import find_policy

TICK_SLACK = 1e-9  # of a lease unit: times are sums of floats
Key = tuple[str, ...]
Bounds = tuple[int, int | None]


@dataclass(slots=True, eq=False)
class CoordinationGroup:
    """One group. requested: the units that its parties get by its policy's last answer, as far as it still stands; why:
    that answer's reason; short: the units of the web environment's request that are not granted, as last reported (-1:
    not reported yet). bounds: the bounds of its parties when last checked. Where admission is configured: unpoliced,
    what they requested before policing limited it to what they are entitled to; rights: what each may have by right,
    None for one that has reserved nothing (empty: none has). owed: the units that it must give back, as last
    reported."""

    entries: tuple[EnvironmentEntry, ...]
    policy: CoordinationPolicy
    requested: tuple[int, ...]
    why: str = ""
    short: int = -1
    bounds: tuple[Bounds, ...] = ()
    unpoliced: tuple[int, ...] = ()
    rights: tuple[Right | None, ...] = ()
    owed: int = 0

    @property
    def name(self) -> str:
        """Its environments, in words."""
        return "+".join(entry.name for entry in self.entries)

    @property
    def names(self) -> tuple[str, ...]:
        """Its environments."""
        return tuple(entry.name for entry in self.entries)

    @property
    def by_node(self) -> bool:
        """Its units are nodes."""
        return self.entries[0].by_node

    @property
    def lower(self) -> int:
        """Units that nobody else may have."""
        return sum(entry.agreement.lower for entry in self.entries)

    @property
    def first(self) -> int:
        """Units that it is given before all others: its lower bounds, and what it requests of class guaranteed."""
        rights = self.rights or (None,) * len(self.entries)
        each = zip(self.entries, rights, strict=True)
        return sum(entry.agreement.lower if right is None else max(right.lower, right.first) for entry, right in each)

    @property
    def firm(self) -> int:
        """Units up to which it comes before others."""
        rights = self.rights or (None,) * len(self.entries)
        return sum(
            self.policy.firm(entry.agreement.lower, entry.agreement.upper)
            if right is None
            else max(right.lower, right.units)
            for entry, right in zip(self.entries, rights, strict=True)
        )

    @property
    def requested_units(self) -> int:
        """Units that it requests in all."""
        return sum(self.requested)

    @property
    def batch(self) -> int | None:
        """Which of its parties is the batch environment (None: none)."""
        return next((party for party, entry in enumerate(self.entries) if entry.batch), None)

    @property
    def web(self) -> int | None:
        """Which of its parties is the web environment (None: none)."""
        return next((party for party, entry in enumerate(self.entries) if not entry.batch), None)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many units its parties are to have."""
        return tuple(entry.size for entry in self.entries)

    def resized(self) -> bool:
        """Return whether its bounds have changed since the last call."""
        before = self.bounds
        self.bounds = tuple((entry.agreement.lower, entry.agreement.upper) for entry in self.entries)
        return before not in ((), self.bounds)

    def begin(self, now_s: float) -> None:
        """Start its timers."""
        for entry in self.entries:
            entry.started_s = entry.provisioned_s = entry.managed_s = now_s

    def begun(self) -> bool:
        """Return whether its timers have started, all at the same time."""
        since = {entry.started_s for entry in self.entries}
        return len(since) == 1 and all(entry.begun for entry in self.entries)

    def next_s(self, moment: Moment) -> float:
        """Return when a timer fires next. Timers keep the phase of the group's start, and missed ticks are skipped."""
        first = self.entries[0]
        last_s = first.provisioned_s if moment is Moment.PROVISION else first.managed_s
        lease_s = first.agreement.lease_s
        ticks = math.floor((last_s - first.started_s) / lease_s + TICK_SLACK)
        return first.started_s + (ticks + 1) * lease_s

    def fired(self, moment: Moment, now_s: float) -> None:
        """Note that a timer has fired."""
        for entry in self.entries:
            if moment is Moment.PROVISION:
                entry.provisioned_s = now_s
            else:
                entry.managed_s = now_s


def grouped(serving: Mapping[str, EnvironmentEntry]) -> dict[Key, tuple[EnvironmentEntry, ...]]:
    """Return the groups of the environments that serve, by their names and models, in the order in which they were
    requested; each batch environment comes before its partner."""
    found: dict[Key, tuple[EnvironmentEntry, ...]] = {}
    for entry in sorted(serving.values(), key=lambda entry: entry.order):
        partner = serving.get(entry.partner)
        mutual = partner is not None and partner.partner == entry.name and partner.batch is not entry.batch
        entries = sorted((entry, partner) if mutual and partner else (entry,), key=lambda one: not one.batch)
        key = tuple(f"{one.name}:{one.agreement.model}" for one in entries)
        found.setdefault(key, tuple(entries))
    return found


def made(entries: tuple[EnvironmentEntry, ...]) -> CoordinationGroup:
    """Return a group with the last sizes of its environments. Raises `UnknownPolicy` where its model is not
    registered."""
    policy: CoordinationPolicy = find_policy("coordination", entries[0].agreement.model)
    return CoordinationGroup(entries, policy, tuple(entry.size for entry in entries))


def of_names(groups: Iterable[CoordinationGroup], names: Iterable[str]) -> list[CoordinationGroup]:
    """Return the groups that contain any of these environments."""
    wanted = frozenset(names)
    return [group for group in groups if not wanted.isdisjoint(group.names)]
