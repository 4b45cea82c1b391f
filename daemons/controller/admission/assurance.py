"""Assurance, live: what environments ask for in every slot, what they are served, and whether promises are kept
(statistical-assurance.txt sections 3 to 5).

It is kept only where an admission policy is configured. Everything follows from the time, the agreements and one record
for each environment, so that a new leader goes on where the last one was.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from daemons.controller.admission.policing import Policing
from daemons.controller.admission.promises import AssuranceEntry, by_right, holds, layers_of, shares_of
from daemons.controller.environments.groups import CoordinationGroup
from daemons.controller.environments.inventory import Inventory, owned_and_idle
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.models.assurance.coupling import measured
from daemons.models.assurance.intervals import wilson
from daemons.values.environment_rights import Right
from daemons.values.records.assurance import AssuranceRecord, MissedLayer, ServedSlot
from daemons.values.records.cluster import Deleted
from daemons.values.settings import AssuranceSettings, ControllerSettings
from shared.values.agreement import UNITS_MAX, Agreement, AssuranceTerms
from shared.values.reservation import ServiceClass

SLACK = 0.005  # of a part served: handing units over takes a moment
SURE = 0.99  # two-sided confidence beyond which less than promised is no chance
CLOSED_AT_ONCE = 50  # environments whose slot is over
COUPLED = (8, 16, 32, 64)  # instances of a slot; from the first on they tell how demands vary together


class Assurance:
    """One entry for each environment."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings) -> None:
        self.cluster, self.unit_of_work = cluster, unit_of_work
        self.on = settings.admission is not None
        self.settings: AssuranceSettings = settings.assurance
        self.entries: dict[str, AssuranceEntry] = {}
        self._records: dict[str, AssuranceRecord] = {}
        self._dirty: set[str] = set()
        self._over: dict[tuple[str, float, int], None] = {}
        self.policing = Policing(unit_of_work, settings.assurance, self._dirty)

    # --- taking over ------------------------------------------------------------------------------------------------

    def load(self, record: AssuranceRecord) -> None:
        """Take over what an earlier controller kept."""
        self._records[record.name] = record

    def loaded(self) -> None:
        """Start after all records are read: delete the records of environments that no longer exist."""
        self.forget(self._records.keys() - self.cluster.environments.keys())
        for name in sorted(self._records) if self.on else ():
            self.entry_of(self.cluster.environments[name])

    def forget(self, names: Collection[str]) -> None:
        """Delete the records of these environments."""
        for name in sorted(names):
            if self._records.pop(name, None) is not None or self.entries.pop(name, None) is not None:
                self.unit_of_work.records.append(Deleted(("assurance", name)))
            self._dirty.discard(name)

    def entry_of(self, environment: EnvironmentEntry) -> AssuranceEntry:
        """Return the entry of an environment, created on first use. Where its agreement has changed, drop the counts
        made by the old agreement and keep the measurements; drop both where the owner is another one."""
        entry = self.entries.get(environment.name)
        if entry is not None and entry.agreement is environment.agreement:
            return entry
        terms = terms_of(environment.agreement, self.settings.timezone)
        if entry is not None and entry.terms == terms and _owner(entry) in ("", environment.owner):
            entry.agreement, entry.terms = environment.agreement, terms
            return entry
        record = entry.record() if entry is not None else self._records.pop(environment.name, None)
        if entry is not None and _owner(entry) not in ("", environment.owner):
            record = None
        made = AssuranceEntry(environment.name, terms) if record is None else AssuranceEntry.of(record, terms)
        made.agreement = environment.agreement
        if entry is not None:
            made.ledger, made.missed, made.served, made.sums, made.seen_s = None, {}, {}, [], 0.0
            self._dirty.add(environment.name)
        self.entries[environment.name] = made
        return made

    # --- requests for units -----------------------------------------------------------------------------------------

    def police(self, group: CoordinationGroup, requested: Sequence[int], now_s: float) -> tuple[int, ...]:
        """Return how many of its requested units each party of a group may get. Note in the group which of them are by
        right."""
        group.unpoliced = tuple(requested)
        rights: list[Right | None] = []
        given: list[int] = []
        for environment, units in zip(group.entries, requested, strict=True):
            if environment.agreement.assurance is None or not self.settings.police:
                rights.append(None)
                given.append(units)
                continue
            lower = environment.agreement.lower
            right, granted = self.policing.judge(self.entry_of(environment), units, lower, now_s)
            rights.append(right)
            given.append(granted)
        group.rights = tuple(rights) if any(rights) else ()
        return tuple(given)

    def ranked(self, groups: Sequence[CoordinationGroup]) -> list[CoordinationGroup]:
        """Groups in the order in which they get what is theirs by right: those that were promised most first, of equal
        ones the older."""
        return sorted(groups, key=lambda group: -max(map(_promised, group.entries)))

    # --- observing --------------------------------------------------------------------------------------------------

    def observe(
        self, groups: Iterable[CoordinationGroup], stock: Inventory, wanted: Mapping[str, int], now_s: float
    ) -> None:
        """Observe from now on what every environment requests, may have and has. wanted: the units that web
        environments need."""
        seen = set()
        for group in groups:
            asked = group.unpoliced or group.requested
            for party, environment in enumerate(group.entries):
                entry = self.entry_of(environment)
                seen.add(environment.name)
                if entry.from_s is None:
                    entry.begin(now_s)
                entry.pass_to(min(now_s, entry.until_s), _layers(entry))
                units = max(asked[party], wanted.get(environment.name, 0))
                entry.units = self._units(environment, group, party, units, stock, now_s)
        for name, entry in self.entries.items():
            if name not in seen and entry.from_s is not None:
                entry.pass_to(min(now_s, entry.until_s), _layers(entry))
                entry.end()
                self._dirty.add(name)

    def _units(
        self,
        environment: EnvironmentEntry,
        group: CoordinationGroup,
        party: int,
        asked: int,
        stock: Inventory,
        now_s: float,
    ) -> tuple[int, int, int]:
        terms = self.entries[environment.name].terms
        owned, idle = owned_and_idle(environment, self.cluster, stock)
        wanted = max(0, asked - idle) if environment.batch else asked
        right = group.rights[party] if group.rights else None
        reserved = by_right(terms.shares, UNITS_MAX) if holds(terms, now_s) else 0
        bound = reserved if right is None else right.units
        return wanted, min(wanted, bound), min(environment.size, owned)

    # --- time goes by -----------------------------------------------------------------------------------------------

    def next_due_s(self) -> float:
        """Return when to call `due` (inf: never on a timer)."""
        if not self.on:
            return math.inf
        serving = (entry for entry in self.entries.values() if entry.from_s is not None)
        return min((min(entry.until_s, entry.edge_s) for entry in serving), default=math.inf)

    def due(self, now_s: float) -> bool:
        """Record slots that have ended, check promises, and review what is requested. Return whether a slot has ended
        or a reservation begins or ends: what promises need may change then."""
        turned = [entry for entry in self.entries.values() if entry.from_s is not None and entry.edge_s <= now_s]
        for entry in turned:  # its reservation begins or ends
            entry.pass_to(min(now_s, entry.until_s), _layers(entry))
            entry.look_ahead(now_s)
            self.unit_of_work.coordinate.add(entry.name)
        ended = [entry for entry in self.entries.values() if entry.over(now_s)]
        for entry in ended[:CLOSED_AT_ONCE]:
            entry.pass_to(entry.until_s, _layers(entry))
            grid = (entry.terms.timezone, entry.terms.slot_s, entry.instance % entry.per_day)
            self._over[grid] = None
            self._judge(entry, entry.close(now_s), now_s)
            self._dirty.add(entry.name)
            if entry.agreement is not None and entry.agreement.assurance is not None:
                self.unit_of_work.coordinate.add(entry.name)  # another slot entitles to another number of units
        if len(ended) > CLOSED_AT_ONCE:
            return False  # the others at once, after whatever else has come in
        for timezone, slot_s, within in self._over:
            self._couple(timezone, slot_s, within)
        self._over.clear()
        return bool(ended or turned)

    def _couple(self, timezone: str, slot_s: float, within: int) -> None:
        """Measure how demands vary together in one slot of the day, of all that serve and count their slots alike:
        O(environments x days), in the slot that has just ended, so that it is spread over the day. Those of many days
        are measured without those of few, which would leave them few days in common."""
        grid = (timezone, slot_s)
        alike = [
            entry
            for entry in self.entries.values()
            if entry.from_s is not None and (entry.terms.timezone, entry.terms.slot_s) == grid
        ]
        rows = {
            entry.name: {day.day: day.asked[within] for day in entry.days if day.asked[within] >= 0} for entry in alike
        }
        before = 0
        for least in COUPLED:
            known = [entry for entry in alike if len(rows[entry.name]) >= least]
            if len(known) < 2:
                break
            if len(known) == before:
                continue
            before = len(known)
            days = sorted(set.intersection(*(set(rows[entry.name]) for entry in known)))
            if len(days) < COUPLED[0]:
                continue
            table = np.array([[rows[entry.name][day] for day in days] for entry in known], dtype=np.int64)
            values = measured(table, np.zeros(len(days), dtype=np.int64)).tolist()
            for entry, value in zip(known, values, strict=True):
                entry.couple(within, value, len(days))

    # --- promises ---------------------------------------------------------------------------------------------------

    def _judge(self, entry: AssuranceEntry, noted: dict[int, ServedSlot], now_s: float) -> None:
        """Check whether promises are kept, by the slot that has just ended."""
        for layer, share in enumerate(entry.terms.shares, 1):
            row, recent = noted.get(layer), entry.recent(layer)
            promised = share.promised
            if row is None or recent is None or promised <= 0.0:
                continue
            words = f"{share.service_class.value} {promised:g}"
            if layer not in entry.missed:
                worst = row if surely_below(row, promised) else recent if surely_below(recent, promised) else None
                if worst is not None and entry.last.get(layer, 1.0) < promised - SLACK:
                    entry.missed[layer] = MissedLayer(layer, now_s, row.slot)
                    told = f"{words}: {worst.mean:.4f} served in slot {row.slot}, by {worst.count} observations"
                    self.unit_of_work.emit(now_s, "assurance-missed", entry.name, told)
            elif recent.mean >= promised - SLACK:
                del entry.missed[layer]
                self.unit_of_work.emit(now_s, "assurance-kept", entry.name, f"{words}: {recent.mean:.4f} served lately")

    # --- storing ----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Have stored what has changed."""
        for name in sorted(self._dirty & self.entries.keys()):
            self.unit_of_work.records.append(self.entries[name].record())
        self._dirty.clear()


def terms_of(agreement: Agreement, timezone: str) -> AssuranceTerms:
    """Return an agreement's terms, or the implied terms where it states none."""
    return agreement.assurance or AssuranceTerms(shares_of(agreement), timezone=timezone)


def _owner(entry: AssuranceEntry) -> str:
    return "" if entry.agreement is None else entry.agreement.owner


def surely_below(row: ServedSlot, promised: float) -> bool:
    """Return whether less was served than promised, beyond sampling error. A fraction of 0 to 1 varies at most as much
    as hits and misses do, for which Wilson's interval holds."""
    _, upper = wilson(np.array(row.mean), np.array(row.weight), SURE)
    return float(upper) < promised - SLACK


def _promised(environment: EnvironmentEntry) -> float:
    """Return the lowest service level that an environment was promised for what it reserves."""
    shares = shares_of(environment.agreement)
    reserved = [share.promised for share in shares if share.service_class is not ServiceClass.BEST_EFFORT]
    return min(reserved, default=0.0)


def _layers(entry: AssuranceEntry) -> list[tuple[int, int]]:
    return layers_of(entry.terms.shares, max(1, *entry.units))
