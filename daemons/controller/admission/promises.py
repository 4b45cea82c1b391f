"""What is known of one environment's demand and of how it was served: the row of
`daemons.controller.admission.assurance`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from daemons.controller.admission.demand_history import slot_of, with_demand
from daemons.values.calendar import clock_s
from daemons.values.records.assurance import RECENT, AssuranceRecord, DemandDay, MissedLayer, PolicedRequest, ServedSlot
from shared.policy_api.admission import Ledger
from shared.values.agreement import Agreement, AssuranceTerms
from shared.values.reservation import DAY_S, ServiceClass, Share

SEEN_FRAC = 0.5  # of a slot instance: what was observed for less says nothing of how it was served
FORGET_COUNT = 35.0  # instances: older ones count less, all together as much as so many
POLICED_KEPT = 50

Layer = tuple[int, int]  # lower and upper bound in units


def shares_of(agreement: Agreement) -> tuple[Share, ...]:
    """Return the shares of an agreement. One without a reservation has its upper bound guaranteed, or its lower bound
    where the upper is undefined."""
    if agreement.assurance is not None:
        return agreement.assurance.shares
    return (Share(ServiceClass.GUARANTEED, agreement.lower if agreement.upper is None else agreement.upper),)


def holds(terms: AssuranceTerms, at_s: float) -> bool:
    """Return whether a reservation holds at an instant."""
    return terms.start_s <= at_s and (terms.end_s is None or at_s < terms.end_s)


def layers_of(shares: Sequence[Share], most: int) -> list[Layer]:
    """Return the bounds of shares in units. Each begins where the one before it ends; the last extends to `most` where
    it has no bound."""
    found: list[Layer] = []
    at = 0
    for share in shares:
        to = max(at, most) if share.units is None else at + share.units
        found.append((at, to))
        at = to
    return found


def by_right(shares: Sequence[Share], most: int) -> int:
    """Up to how many units its shares reserve: best effort reserves nothing."""
    bounds = zip(shares, layers_of(shares, most), strict=True)
    return max((to for share, (_, to) in bounds if share.service_class is not ServiceClass.BEST_EFFORT), default=0)


@dataclass(slots=True, eq=False)
class AssuranceEntry:
    """What is known of one environment's assurance. The fields are those of AssuranceRecord. `served`: by layer and
    slot; `RECENT` stands for the newest instances of all slots. terms: the terms of `agreement`, which define its
    slots. last: what the last instance showed of each layer. from_s: when it was last observed (None: not since this
    controller became leader). until_s: when the current slot instance ends. edge_s: when its reservation next begins or
    ends (inf: never). units: the units that it requests, is entitled to, and is served."""

    name: str
    terms: AssuranceTerms
    days: tuple[DemandDay, ...] = ()
    served: dict[tuple[int, int], ServedSlot] = field(default_factory=dict)
    missed: dict[int, MissedLayer] = field(default_factory=dict)
    instance: int = -1
    seen_s: float = 0.0
    asked: int = -1
    sums: list[float] = field(default_factory=list)
    ledger: Ledger | None = None
    ledger_instance: int = -1
    policed: tuple[PolicedRequest, ...] = ()
    couplings: list[float] = field(default_factory=list)
    coupled: list[int] = field(default_factory=list)
    from_s: float | None = None
    until_s: float = 0.0
    edge_s: float = math.inf
    units: tuple[int, int, int] = (0, 0, 0)
    agreement: Agreement | None = None
    last: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, record: AssuranceRecord, terms: AssuranceTerms) -> AssuranceEntry:
        """Return an entry from its stored record; counts made by another calendar are dropped."""
        entry = cls(record.name, terms)
        if (record.timezone, record.slot_s) != (terms.timezone, terms.slot_s):
            return entry
        entry.days, entry.policed = record.days, record.policed
        entry.instance, entry.seen_s, entry.asked = record.instance, record.seen_s, record.asked
        entry.sums = list(record.sums)
        entry.couplings, entry.coupled = list(record.couplings), list(record.coupled)
        told = len(terms.shares)
        served = (each for each in record.served if each.slot < terms.slots and each.layer <= told)
        entry.served = {(each.layer, each.slot): each for each in served}
        entry.missed = {each.layer: each for each in record.missed if each.layer <= told}
        fits = record.ledger is not None and len(record.ledger.instances) == terms.slots
        entry.ledger, entry.ledger_instance = (record.ledger if fits else None), record.ledger_instance
        return entry

    def record(self) -> AssuranceRecord:
        """Return the record that the store keeps."""
        return AssuranceRecord(
            self.name,
            self.terms.timezone,
            self.terms.slot_s,
            days=self.days,
            served=tuple(self.served.values()),
            missed=tuple(self.missed.values()),
            instance=self.instance,
            seen_s=self.seen_s,
            asked=self.asked,
            sums=tuple(self.sums),
            ledger=self.ledger,
            ledger_instance=self.ledger_instance,
            policed=self.policed,
            couplings=tuple(self.couplings),
            coupled=tuple(self.coupled),
        )

    @property
    def per_day(self) -> int:
        """Slots of a day."""
        return int(DAY_S / self.terms.slot_s)

    def slot_of(self, instance: int) -> int:
        """Return the slot of a slot instance."""
        return slot_of(instance, self.terms.calendar, self.per_day)

    def slot_at(self, at_s: float) -> int:
        """Return the slot of an instant."""
        return self.slot_of(self.instance_at(at_s))

    def instance_at(self, at_s: float) -> int:
        """Return the slot instance of an instant."""
        return int(clock_s(at_s, self.terms.timezone) // self.terms.slot_s)

    # --- observing --------------------------------------------------------------------------------------------------

    def begin(self, now_s: float) -> None:
        """Observe it from now on."""
        instance = self.instance_at(now_s)
        if instance != self.instance:
            self._keep()
            self._open(instance)
        self.go_on(now_s)

    def go_on(self, now_s: float) -> None:
        """Observe the environment from now on, in the current slot instance."""
        self.from_s = now_s
        self.until_s = now_s + self._left_s(now_s)
        self.look_ahead(now_s)

    def look_ahead(self, now_s: float) -> None:
        """Note when its reservation begins or ends next."""
        edges = (self.terms.start_s, math.inf if self.terms.end_s is None else self.terms.end_s)
        self.edge_s = min((edge for edge in edges if edge > now_s), default=math.inf)

    def end(self) -> None:
        """Stop observing an environment that no longer serves: nothing is requested or served until it begins again."""
        self.from_s = None
        self.units = (0, 0, 0)
        self.missed = {}

    def _left_s(self, now_s: float) -> float:
        into_s = clock_s(now_s, self.terms.timezone) % self.terms.slot_s
        return self.terms.slot_s - into_s

    def _keep(self) -> None:
        if self.asked >= 0:
            self.days = with_demand(self.days, self.instance, self.per_day, self.asked)

    def _open(self, instance: int) -> None:
        self.instance, self.seen_s, self.asked, self.sums = instance, 0.0, -1, []

    def over(self, now_s: float) -> bool:
        """Return whether the current slot instance has ended."""
        return self.from_s is not None and now_s >= self.until_s

    def pass_to(self, at_s: float, layers: Sequence[Layer]) -> None:
        """Account for the time until `at_s` with the current units."""
        if self.from_s is not None:
            for until_s in (min(at_s, self.edge_s), at_s):
                self._pass(self.from_s, until_s, layers)

    def _pass(self, from_s: float, at_s: float, layers: Sequence[Layer]) -> None:
        if at_s <= from_s:
            return
        self.from_s = at_s
        asked, entitled, served = self.units
        self.asked = max(self.asked, asked)
        if not holds(self.terms, from_s):
            return  # nothing is promised
        span_s = at_s - from_s
        parts = [_part(served, asked), *(_part_of(layer, served, entitled) for layer in layers)]
        if len(self.sums) != len(parts):
            self.sums, self.seen_s = [0.0] * len(parts), 0.0
        self.sums = [one + part * span_s for one, part in zip(self.sums, parts, strict=True)]
        self.seen_s += span_s

    def close(self, now_s: float) -> dict[int, ServedSlot]:
        """Close the slot instance that has ended: record what it has shown, by layer, and continue with the current
        one."""
        noted: dict[int, ServedSlot] = {}
        self._keep()
        if self.seen_s >= SEEN_FRAC * self.terms.slot_s:
            for layer, total in enumerate(self.sums):
                self.last[layer] = total / self.seen_s
                noted[layer] = self._learn(layer, self.slot_of(self.instance), self.last[layer], FORGET_COUNT)
                self._learn(layer, RECENT, self.last[layer], float(self.per_day))
        self._open(self.instance_at(now_s))
        self.go_on(now_s)
        return noted

    def recent(self, layer: int) -> ServedSlot | None:
        """Return what was served of a layer lately, over all slots."""
        return self.served.get((layer, RECENT))

    def _learn(self, layer: int, slot: int, value: float, forget: float) -> ServedSlot:
        before = self.served.get((layer, slot)) or ServedSlot(layer, slot, 0, 0.0, 1.0)
        weight = before.weight * (1.0 - 1.0 / forget) + 1.0
        mean = before.mean + (value - before.mean) / weight
        after = ServedSlot(layer, slot, before.count + 1, weight, min(1.0, max(0.0, mean)))
        self.served[layer, slot] = after
        return after

    def over_slots(self, layer: int) -> tuple[float, int]:
        """Return what was served of a layer over all slots, by weight, and the number of instances that this covers."""
        rows = [row for row in self.served.values() if row.layer == layer and row.slot != RECENT]
        weight = sum(row.weight for row in rows)
        count = sum(row.count for row in rows)
        return (sum(row.mean * row.weight for row in rows) / weight if weight else 1.0), count

    def couple(self, within: int, value: float, instances: int) -> None:
        """Note how far its demand varies with that of the others in one slot of the day."""
        if len(self.couplings) != self.per_day:
            self.couplings, self.coupled = [0.0] * self.per_day, [0] * self.per_day
        self.couplings[within], self.coupled[within] = value, instances

    @property
    def coupling(self) -> tuple[float, int]:
        """The largest of these over the day, and in how many instances of a slot it was seen at least."""
        return max(self.couplings, default=0.0), min(self.coupled, default=0)

    def note(self, verdict: PolicedRequest) -> None:
        """Keep a verdict, the newest `POLICED_KEPT` of them; the same again for the same slot is the same."""
        last = self.policed[-1] if self.policed else None
        if last is not None and _same(last, verdict):
            return
        self.policed = (*self.policed, verdict)[-POLICED_KEPT:]


def _part(served: int, asked: int) -> float:
    return min(1.0, served / asked) if asked > 0 else 1.0


def _part_of(layer: Layer, served: int, entitled: int) -> float:
    lower, upper = layer
    return _part(min(served, upper) - lower if served > lower else 0, min(entitled, upper) - lower)


def _same(one: PolicedRequest, other: PolicedRequest) -> bool:
    alike = (one.slot, one.requested, one.entitled, one.surplus, one.rejected, one.reason)
    return alike == (other.slot, other.requested, other.entitled, other.surplus, other.rejected, other.reason)
