"""How far a request of an environment is entitled, by its reservation (statistical-assurance.txt section 5): every
verdict is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from daemons.controller.admission.demand_history import made_series
from daemons.controller.admission.promises import AssuranceEntry, by_right, holds, layers_of
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.models.assurance.policing import advanced, entitlement, opened, police
from daemons.values.environment_rights import Right
from daemons.values.records.assurance import PolicedRequest
from daemons.values.settings import AssuranceSettings
from shared.policy_api.admission import Entitlement, Ledger, PoliceReason, PoliceVerdict, SurplusUse
from shared.values.agreement import UNITS_MAX, AssuranceTerms
from shared.values.reservation import ServiceClass, Share

_WINDOWS = {PoliceReason.HORIZONTAL: "slots in a row", PoliceReason.VERTICAL: "instances of the slot"}


class Policing:
    """Judges requests by the announced demand: an environment that requests more has no right to the excess. `dirty`:
    environments with data to store."""

    def __init__(self, unit_of_work: UnitOfWork, settings: AssuranceSettings, dirty: set[str]) -> None:
        self.unit_of_work, self.settings, self._dirty = unit_of_work, settings, dirty
        self._entitled: dict[str, tuple[AssuranceTerms, Entitlement]] = {}

    def judge(self, entry: AssuranceEntry, units: int, lower: int, now_s: float) -> tuple[Right, int]:
        """Return which part of a request is by right, and how many units may be granted. units: all units, held and
        new."""
        verdict = self._verdict(entry, units, now_s)
        self._keep(entry, verdict, now_s)
        first = min(_guaranteed(entry.terms.shares), verdict.entitled)
        right = Right(first, verdict.entitled, lower if holds(entry.terms, now_s) else 0)
        return right, verdict.entitled + verdict.surplus

    def _verdict(self, entry: AssuranceEntry, units: int, now_s: float) -> PoliceVerdict:
        slot = entry.slot_at(now_s)
        if not holds(entry.terms, now_s):
            spare = units if self.settings.surplus is SurplusUse.BEST_EFFORT else 0
            reason = PoliceReason.SURPLUS if units else PoliceReason.WITHIN
            return PoliceVerdict(slot, units, 0, surplus=spare, rejected=units - spare, reason=reason, limit=0.0)
        entitled = self.entitled(entry)
        ledger = self._ledger(entry, entitled, entry.instance_at(now_s))
        verdict, entry.ledger = police(entitled, ledger, units, self.settings.surplus)
        return verdict

    def _ledger(self, entry: AssuranceEntry, entitled: Entitlement, instance: int) -> Ledger:
        """Return the ledger in a slot instance. Units held are assumed to stay held in unobserved instances; after a
        day of these the windows restart."""
        ledger, last = entry.ledger, entry.ledger_instance
        fits = ledger is not None and len(ledger.instances) == entry.terms.slots
        if ledger is None or not fits or not 0 <= instance - last <= entry.per_day:
            ledger, last = opened(entitled, *made_series(entry.terms.demand), entry.slot_of(instance)), instance
        while last < instance:
            last += 1
            used = ledger.used
            ledger = advanced(entitled, ledger, entry.slot_of(last))
            if last < instance:
                ledger = replace(ledger, used=used)
        entry.ledger_instance = instance
        return ledger

    def entitled(self, entry: AssuranceEntry) -> Entitlement:
        """Return what an environment may use, computed from its announced demand."""
        kept = self._entitled.get(entry.name)
        if kept is not None and kept[0] is entry.terms:
            return kept[1]
        terms = entry.terms
        demand, slots = made_series(terms.demand)
        peaks = [_peak(slot.probabilities) for slot in terms.demand]
        widths = tuple(width for width in self.settings.horizontal if width <= len(demand))
        reserved = by_right(terms.shares, max(peaks))
        found = entitlement(demand, slots, peaks, reserved, self.settings.headroom, widths)
        self._entitled[entry.name] = (terms, found)
        return found

    def _keep(self, entry: AssuranceEntry, verdict: PoliceVerdict, now_s: float) -> None:
        before = entry.policed[-1] if entry.policed else None
        entry.note(kept(verdict, now_s))
        if entry.policed[-1] is before:
            return
        self._dirty.add(entry.name)
        if verdict.surplus or verdict.rejected:
            self.unit_of_work.emit(now_s, "request-policed", entry.name, verdict_text(verdict))


def _guaranteed(shares: Sequence[Share]) -> int:
    """Return how many of the first units are of class guaranteed."""
    until = 0
    for share, (_, to) in zip(shares, layers_of(shares, UNITS_MAX), strict=True):
        if share.service_class is not ServiceClass.GUARANTEED:
            break
        until = to
    return until


def _peak(probabilities: Sequence[float]) -> int:
    return max((units for units, chance in enumerate(probabilities) if chance > 0.0), default=0)


def kept(verdict: PoliceVerdict, at_s: float) -> PolicedRequest:
    """Return a verdict in the form in which it is kept."""
    return PolicedRequest(
        at_s,
        verdict.slot,
        verdict.requested,
        entitled=verdict.entitled,
        surplus=verdict.surplus,
        rejected=verdict.rejected,
        reason=verdict.reason.value,
        limit=verdict.limit,
        used=verdict.used,
        width=verdict.width,
    )


def verdict_text(verdict: PoliceVerdict | PolicedRequest) -> str:
    """Return a verdict as text."""
    parts = [f"{verdict.requested} units asked for", f"{verdict.entitled} by right"]
    parts += [f"{verdict.surplus} as best effort"] if verdict.surplus else []
    parts += [f"{verdict.rejected} not granted"] if verdict.rejected else []
    reason = PoliceReason(verdict.reason)
    why = f"at most {verdict.limit:g}"
    if reason in _WINDOWS:
        why = f"{verdict.used} of {verdict.limit:g} used in {verdict.width} {_WINDOWS[reason]}"
    return f"{', '.join(parts)}: {reason.value}, {why}"
