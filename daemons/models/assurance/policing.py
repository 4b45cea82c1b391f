"""Policing: what an application is entitled to over time, by the days on which it was observed, and whether a request
keeps to that (statistical-assurance.txt, sections 5 and 6.5).

Only what is granted as entitled fills the windows. They start full of the observed days: empty ones would let an
application burst, and starve in step. Days form one series: the slot after the last of a day is the first of the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shared.base.errors import InvalidValue
from shared.policy_api.admission import Entitlement, Ledger, PoliceReason, PoliceVerdict, SurplusUse, Window
from shared.policy_api.snapshot import Floats, Ints

# Standard deviations. On demands drawn from the profiles of 27 Bitbrains VMs honest applications lose 0.2 % to a
# vertical window of all days, the one that loses most 0.5 %; without head-room 6 %. On the last third of the days, by
# the first two, they lose 0.1 % more to it than the peaks cost them. As a part of the total, head-room would have to be
# 30 % for as little, and small applications would lose more than large ones.
HEAD_ROOM = 2.25
HORIZONTAL = (4,)  # slots
_EXACT = 1e-9  # limits are products of whole numbers and a fraction


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """A sliding window of `width`: units[slots, ...] that may be used in it (see
    `shared.policy_api.admission.Window`)."""

    width: int
    units: Floats


@dataclass(frozen=True, slots=True)
class Limits:
    """The entitlements of many applications at once: peaks int64[slots, ...], the largest entitled demand of each slot,
    with as many further axes as the observed days had."""

    peaks: Ints
    horizontal: tuple[WindowLimits, ...]
    vertical: tuple[WindowLimits, ...]


def limits(
    observed: Ints,
    headroom: float = HEAD_ROOM,
    horizontal: Sequence[int] = HORIZONTAL,
    vertical: Sequence[int] | None = None,
) -> Limits:
    """Return the units that may be used in each window (section 5): the most that was used in any window of the
    observed demand, whole numbers [days, slots, ...], but at least the mean use plus `headroom` standard deviations,
    with independent days.

    horizontal: widths in slots; vertical: widths in instances of a slot (None: one, of all days). Raises `InvalidValue`
    for a window longer than the observation.
    """
    observed = _checked(observed)
    z = _headroom(headroom)
    rows = [WindowLimits(w, _row_limits(observed, w, z)) for w in horizontal]
    columns = [
        WindowLimits(w, _column_limits(observed, w, z)) for w in (observed.shape[:1] if vertical is None else vertical)
    ]
    return Limits(observed.max(axis=0), tuple(rows), tuple(columns))


def _row_limits(observed: Ints, width: int, headroom: float) -> Floats:
    days, slots = observed.shape[:2]
    sums = _sums(observed.reshape(days * slots, *observed.shape[2:]), width)
    peaks = _row_peaks(observed.max(axis=0), width)
    return np.stack([_limit(sums[slot::slots], peaks[slot], headroom) for slot in range(slots)])


def _column_limits(observed: Ints, width: int, headroom: float) -> Floats:
    spread = headroom * math.sqrt(width) * observed.std(axis=0)
    return np.asarray(np.maximum(_instances(observed, width), width * observed.mean(axis=0) + spread), dtype=np.float64)


def _limit(sums: Ints, unseen: Ints, headroom: float) -> Floats:
    """Return the limit of windows that begin at the same slot, from their sums along the first axis; `unseen` if there
    are none."""
    if not len(sums):
        return np.asarray(unseen, dtype=np.float64)
    return np.asarray(np.maximum(sums.max(axis=0), sums.mean(axis=0) + headroom * sums.std(axis=0)), dtype=np.float64)


def _headroom(headroom: float) -> float:
    if not (math.isfinite(headroom) and headroom >= 0.0):
        raise InvalidValue("headroom", headroom, "a finite number, 0 or above")
    return headroom


def _checked(observed: Ints) -> Ints:
    days = np.asarray(observed)
    if days.ndim < 2 or 0 in days.shape[:2]:
        raise InvalidValue("observed", days.shape, "demands of at least one day of at least one slot")
    if days.dtype.kind not in "iu" or (days < 0).any():
        raise InvalidValue("observed", str(days.dtype), "whole numbers of units, 0 or above")
    return days.astype(np.int64)


def _sums(series: Ints, width: int) -> Ints:
    """Sums of every window of `width` along the first axis."""
    if not 1 <= width <= series.shape[0]:
        raise InvalidValue("width", width, f"1 to {series.shape[0]}, as many as were observed")
    total = np.concatenate([np.zeros_like(series[:1]), series.cumsum(axis=0)])
    return np.asarray(total[width:] - total[:-width])


def _instances(observed: Ints, width: int) -> Ints:
    """Return the most used in `width` successive instances; [slots, ...]."""
    return np.asarray(_sums(observed, width).max(axis=0))


def _in_a_row(observed: Ints, width: int) -> Ints:
    """Return the most used in `width` consecutive slots, by the slot that they begin with; [slots, ...]. If no window
    that begins there was observed to its end: all that the peaks allow."""
    days, slots = observed.shape[:2]
    series = observed.reshape(days * slots, *observed.shape[2:])
    sums = _sums(series, width)
    whole = np.full_like(series, -1)
    whole[: len(sums)] = sums
    most = np.asarray(whole.reshape(observed.shape).max(axis=0))
    return np.where(most >= 0, most, _row_peaks(observed.max(axis=0), width))


def _row_peaks(peaks: Ints, width: int) -> Ints:
    """Return the sum of slot peaks in `width` consecutive slots (section 5: the maximum possible demand of the
    interval)."""
    return np.asarray(sum(np.roll(peaks, -ahead, axis=0) for ahead in range(width)))


def horizontal_share(observed: Ints, width: int) -> Floats:
    """H: the largest part of the sum of slot peaks that was used in `width` slots in a row; float64[slots, ...], by the
    slot that they begin with (section 6.5, table 3b). 1 where the peaks are 0."""
    observed = _checked(observed)
    most = _row_peaks(observed.max(axis=0), width)
    share: Floats = np.where(most > 0, _in_a_row(observed, width) / np.maximum(most, 1), 1.0)
    return share


def vertical_share(observed: Ints, width: int) -> Floats:
    """V: the largest part of what all observed instances of a slot used together that `width` successive ones used;
    float64[slots, ...] (section 6.5). 1 where none used anything."""
    observed = _checked(observed)
    total = observed.sum(axis=0)
    share: Floats = np.where(total > 0, _instances(observed, width) / np.maximum(total, 1), 1.0)
    return share


def shortest_window(observed: Ints, share: float) -> Ints:
    """Return the smallest number of successive instances of a slot in which `share` (0..1) of its total was used;
    int64[slots, ...] (section 6.5, table 3a)."""
    observed = _checked(observed)
    widths = range(1, observed.shape[0] + 1)
    enough = np.stack([vertical_share(observed, width) >= share - _EXACT for width in widths])
    return np.asarray(enough.argmax(axis=0) + 1)


def entitlement(
    demand: Ints,
    slots: Ints,
    peaks: Sequence[int],
    reserved: int | None = None,
    headroom: float = HEAD_ROOM,
    horizontal: Sequence[int] = HORIZONTAL,
    vertical: Sequence[int] | None = None,
) -> Entitlement:
    """Return the quota of one application, from its demand in every observed slot instance, whole numbers in the order
    of time, and `slots`, the slot of each instance. Of the demand, the first `reserved` units (None: all) count, as in
    `limits`.

    peaks: of the profile, for every slot of its calendar. vertical (None): two windows, over all instances of the slots
    observed least and over all of those observed most. A window that was never observed is bounded by the peaks alone.
    Raises `InvalidValue` if demands and slots do not match.
    """
    most = max(peaks) if reserved is None else reserved
    demand, slots = _series(demand, slots, len(peaks))
    demand, z = np.minimum(demand, most), _headroom(headroom)
    columns = [demand[slots == slot] for slot in range(len(peaks))]
    seen = [len(column) for column in columns if len(column)]
    widths = sorted({min(seen), max(seen)}) if vertical is None and seen else vertical or ()
    largest = [min(peak, most) for peak in peaks]
    return Entitlement(
        most,
        tuple(peaks),
        tuple(Window(w, _row_units(demand, slots, w, largest, z)) for w in horizontal),
        tuple(Window(w, _column_units(columns, w, largest, z)) for w in widths),
    )


def _series(demand: Ints, slots: Ints, count: int) -> tuple[Ints, Ints]:
    found, slots = (
        _checked(np.asarray(demand)[:, None])[:, 0] if len(demand) else np.zeros(0, np.int64),
        np.asarray(slots),
    )
    if slots.shape != found.shape or (len(slots) and not (slots.min() >= 0 and slots.max() < count)):
        raise InvalidValue("slots", slots.shape, f"the slot (0 to {count - 1}) of each of {len(found)} demands")
    return found, slots


def _row_units(demand: Ints, slots: Ints, width: int, peaks: list[int], headroom: float) -> tuple[float, ...]:
    sums = _sums(demand, width) if width <= len(demand) else demand[:0]
    first, unseen = slots[: len(sums)], np.asarray(width * max(peaks))
    return tuple(float(_limit(sums[first == slot], unseen, headroom)) for slot in range(len(peaks)))


def _column_units(columns: list[Ints], width: int, peaks: list[int], headroom: float) -> tuple[float, ...]:
    return tuple(
        float(_column_limits(column, width, headroom)) if len(column) >= width else float(width * peak)
        for column, peak in zip(columns, peaks, strict=True)
    )


def opened(entitled: Entitlement, demand: Ints, slots: Ints, slot: int) -> Ledger:
    """Return the ledger of an application at the beginning of slot `slot`, with its windows full of the observed
    demand: see `entitlement`. The slots just before come from the newest observed stretch that led to such a slot."""
    demand, slots = _series(demand, slots, len(entitled.peaks))
    used = np.minimum(demand, entitled.reserved)
    depth, length = _depths(entitled)
    instances = tuple(_newest(tuple(used[slots == one].tolist()), depth) for one in range(len(entitled.peaks)))
    found = np.flatnonzero(slots == slot)
    goes_on = len(slots) > 0 and bool(((slots[:-1] == slots[-1]) & (slots[1:] == slot)).any())
    end = len(used) if goes_on or not len(found) else int(found[-1])
    first = max(0, end - length)
    return Ledger(slot, 0, tuple(used[first:end].tolist()), tuple(slots[first:end].tolist()), instances)


def _depths(entitled: Entitlement) -> tuple[int, int]:
    """Return the number of instances of a slot, and the number of slots, that the ledger must remember."""
    depth = max((window.width for window in entitled.vertical), default=1) - 1
    return depth, max((window.width for window in entitled.horizontal), default=1) - 1


def police(
    entitled: Entitlement, ledger: Ledger, requested: int, surplus: SurplusUse = SurplusUse.BEST_EFFORT
) -> tuple[PoliceVerdict, Ledger]:
    """Return how much of a request for `requested` units in total, held or new, is within quota in the ledger's slot,
    and the reason for any limit; also the updated ledger. O(widths)."""
    if requested < 0:
        raise InvalidValue("requested", requested, "0 or above")
    limit, reason, used, width = min(_bounds(entitled, ledger), key=lambda bound: bound[0] - bound[2])
    granted = min(requested, max(0, math.floor(limit - used + _EXACT)))
    if granted == requested:
        limit, reason, used, width = float(entitled.peaks[ledger.slot]), PoliceReason.WITHIN, 0, 0
    rest = requested - granted
    spare = rest if surplus is SurplusUse.BEST_EFFORT else 0
    verdict = PoliceVerdict(
        ledger.slot,
        requested,
        granted,
        surplus=spare,
        rejected=rest - spare,
        reason=reason,
        limit=limit,
        used=used,
        width=width,
    )
    return verdict, replace(ledger, used=max(ledger.used, granted))


_Bound = tuple[float, PoliceReason, int, int]


def _bounds(entitled: Entitlement, ledger: Ledger) -> list[_Bound]:
    """Return limit, reason, units used before and width of each bound; of equally tight bounds the first is
    reported."""
    slot = ledger.slot
    bounds: list[_Bound] = [
        (float(entitled.peaks[slot]), PoliceReason.BEYOND_PEAK, 0, 0),
        (float(entitled.reserved), PoliceReason.SURPLUS, 0, 0),
    ]
    for window in entitled.horizontal:
        used = sum(_newest(ledger.recent, window.width - 1))
        first = next(iter(_newest((*ledger.slots, slot), window.width)))
        bounds.append((window.units[first], PoliceReason.HORIZONTAL, used, window.width))
    for window in entitled.vertical:
        used = sum(_newest(ledger.instances[slot], window.width - 1))
        bounds.append((window.units[slot], PoliceReason.VERTICAL, used, window.width))
    return bounds


def _newest(values: tuple[int, ...], count: int) -> tuple[int, ...]:
    return values[len(values) - count :] if 0 < count < len(values) else values if count else ()


def advanced(entitled: Entitlement, ledger: Ledger, slot: int) -> Ledger:
    """Return the ledger at the beginning of the next slot, `slot`. Units that stay held count again there once they are
    policed."""
    depth, length = _depths(entitled)
    instances = list(ledger.instances)
    instances[ledger.slot] = _newest((*instances[ledger.slot], ledger.used), depth)
    recent, slots = (*ledger.recent, ledger.used), (*ledger.slots, ledger.slot)
    return Ledger(slot, 0, _newest(recent, length), _newest(slots, length), tuple(instances))


def policed(demand: Ints, allowed: Limits, observed: Ints) -> Ints:
    """Return the part of the demand that is within quota, in the same shape. The demand is whole numbers [days, slots,
    ...] and is processed day by day in the order of the slots. The windows start full of the observed days. The slots
    of a day are those of `observed`."""
    demand, observed = _checked(demand), _checked(observed)
    days, slots = demand.shape[:2]
    depth = max((one.width for one in allowed.vertical), default=1) - 1
    before = observed[len(observed) - depth :] if depth else observed[:0]
    kept = np.concatenate([np.broadcast_to(before, (depth, *demand.shape[1:])), np.zeros_like(demand)])
    sums = [_last(kept[:depth], one.width - 1) for one in allowed.vertical]
    recent = _Recent(allowed.horizontal, np.broadcast_to(observed, (len(observed), *demand.shape[1:])))
    for day in range(days):
        granted = np.minimum(demand[day], allowed.peaks)
        for one, used in zip(allowed.vertical, sums, strict=True):
            granted = np.minimum(granted, np.floor(one.units - used + _EXACT))
        granted = np.maximum(granted, 0).astype(np.int64)
        if allowed.horizontal:
            for slot in range(slots):
                granted[slot] = recent.granted(slot, granted[slot])
        kept[depth + day] = granted
        for one, used in zip(allowed.vertical, sums, strict=True):
            if one.width > 1:
                used += granted - kept[depth + day - one.width + 1]
    return np.asarray(kept[depth:])


def _last(rows: Ints, count: int) -> Ints:
    return np.asarray(rows[len(rows) - count :].sum(axis=0))


class _Recent:
    """What the last slots have used, for every horizontal window."""

    def __init__(self, windows: tuple[WindowLimits, ...], observed: Ints) -> None:
        self._windows = windows
        length = max((one.width for one in windows), default=1) - 1
        series = observed.reshape(-1, *observed.shape[2:])
        rows = series[len(series) - length :]
        self._rows = list(rows)
        self._sums = [_last(rows, one.width - 1) for one in windows]

    def granted(self, slot: int, wanted: Ints) -> Ints:
        """Return the units granted of those wanted in the next slot, and count them as used."""
        granted = wanted
        for one, used in zip(self._windows, self._sums, strict=True):
            first = (slot - one.width + 1) % len(one.units)
            granted = np.minimum(granted, np.floor(one.units[first] - used + _EXACT))
        granted = np.maximum(granted, 0).astype(np.int64)
        self._rows.append(granted)
        for index, one in enumerate(self._windows):
            if one.width > 1:
                self._sums[index] = self._sums[index] + granted - self._rows[-one.width]
        if len(self._windows):
            del self._rows[0]
        return granted


def share_pools(demand: Ints, needed: Ints, sizes: Ints) -> Ints:
    """Return the units that classes are served; all arrays are whole numbers broadcast to [..., classes], the highest
    theta first. Each class is served from its own need (`needed`, theta's units of the slot), then, in that order, from
    the surplus of the pools (`sizes`) over the needs of all classes (section 6.5: pool sharing by priority)."""
    demand, needed, sizes = np.broadcast_arrays(demand, needed, sizes)
    own = np.minimum(demand, np.minimum(needed, sizes))
    missing = demand - own
    surplus = np.maximum(sizes - needed, 0).sum(axis=-1, keepdims=True)
    before = missing.cumsum(axis=-1) - missing
    return np.asarray(own + np.minimum(missing, np.maximum(surplus - before, 0)))
