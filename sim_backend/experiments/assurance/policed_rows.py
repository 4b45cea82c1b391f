"""Rows and tables of statistical-assurance.txt, section 6.5: Table 3 and figures 6 to 8."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sim_backend.experiments.assurance.policed import (
    BAD_SLOTS,
    HEAD_ROOMS,
    POLICING,
    Course,
    Entitled,
    Policed,
    Variant,
)
from sim_backend.experiments.assurance.settings import (
    LOWER,
    TABLE_3_HORIZONTAL,
    TABLE_3_SHARES,
    TABLE_3_VERTICAL,
    TABLE_3_WIDTHS,
    UNUSED,
    UNUSED_PERCENT,
)
from sim_backend.experiments.experiment import Row, Tables, mean, within

SPARED = 0.998
LOSS_MAX = 0.005
_ERROR = 0.001  # of theta, that one kind of policing may be above another by chance
_LESS = 0.5  # of what is short under horizontal policing, at most so much is under vertical
_OVERLAP = 0.02  # of all servers


def rows_entitled(results: Sequence[Entitled]) -> list[Row]:
    """Table 3."""
    rows: list[Row] = []
    for each in results:
        for slot, vertical in each.vertical.items():
            paper, ours = (", ".join(map(str, values)) for values in (TABLE_3_VERTICAL[slot], vertical))
            shares = ", ".join(f"{100 * share:g}" for share in TABLE_3_SHARES)
            what = f"{each.name} {each.example}, slot {slot}: windows with {shares} % of {each.days} observations"
            rows.append(Row(f"T3a/{each.name}/{slot}", what, paper, ours, None, "the paper has 35 observations"))
        for slot, horizontal in each.horizontal.items():
            paper, ours = (
                ", ".join(f"{value:.2f}" for value in values) for values in (TABLE_3_HORIZONTAL[slot], horizontal)
            )
            widths = ", ".join(map(str, TABLE_3_WIDTHS))
            what = f"{each.name} {each.example}, slot {slot}: part of the sum of peaks that windows of {widths} hold"
            rows.append(Row(f"T3b/{each.name}/{slot}", what, paper, ours, None, "another application"))
    return rows


def rows_policed(results: Sequence[Policed]) -> list[Row]:
    """Return the rows for figures 6 to 8, without headroom as in the paper and with the default headroom."""
    rows: list[Row] = []
    for name in dict.fromkeys(each.name for each in results):
        mine = [each for each in results if each.name == name]
        for headroom in HEAD_ROOMS:
            rows += _figures_6_and_7(name, mine, headroom)
        rows += _honest(name, mine)
        rows += _figure_8(name, mine)
    return rows


def _label(headroom: float) -> str:
    return f"head-room {headroom:g}" if headroom else "no head-room"


def in_bad_slots(each: Policed, variant: Variant) -> float:
    """Theta of the lower class while its applications misbehave, mean of these slots."""
    return float(each.courses[variant, "lower"].theta[BAD_SLOTS, 1].mean())


def _figures_6_and_7(name: str, results: Sequence[Policed], headroom: float) -> Iterator[Row]:
    id, label = f"{name}/{headroom:g}", f"{name}, {_label(headroom)}"
    courses = {kind: [each.courses[(headroom, kind), "lower"] for each in results] for kind in POLICING}
    for kind, found in courses.items():
        values = [in_bad_slots(each, (headroom, kind)) for each in results]
        what = f"{label}, {kind}: theta of the misbehaving class in its slots"
        low = min(float(one.theta[:, 1].min()) for one in found)
        yield Row(f"6/{id}/{kind}", what, None, round(mean(values), 4), None, f"lowest slot {low:.4f}")
    orders = [_ordered([in_bad_slots(each, (headroom, kind)) for kind in POLICING]) for each in results]
    what = f"{label}: none < horizontal << vertical <= both"
    shown = " / ".join(f"{mean([in_bad_slots(each, (headroom, kind)) for each in results]):.4f}" for kind in POLICING)
    why = f"in {sum(orders)} of {len(orders)} runs; <<: at most {_LESS:g} of it is short; <=: within {_ERROR:g}"
    yield Row(f"6/{id}/order", what, "yes", shown, all(orders), why)
    spared = [float(one.theta[:, 0].min()) for found in courses.values() for one in found]
    what = f"{label}: theta of the higher class, lowest slot"
    yield within(f"6/{id}/spared", what, "spared", spared, SPARED, 1.0, 5)
    parts = {kind: mean([_satisfied_applications(one) for one in found]) for kind, found in courses.items()}
    what = f"{label}: applications and slots of the misbehaving class with theta {LOWER:g} (%), by policing"
    order = parts["vertical"] >= parts["none"] and parts["both"] >= parts["vertical"] - 100.0 * _ERROR
    yield Row(
        f"7/{id}",
        what,
        "vertical effective, both more",
        " / ".join(f"{value:.1f}" for value in parts.values()),
        order and parts["vertical"] >= parts["horizontal"],
    )


def _ordered(values: Sequence[float]) -> bool:
    none, horizontal, vertical, both = values
    return (
        none < horizontal
        and 1.0 - vertical <= _LESS * (1.0 - horizontal)
        and horizontal < vertical
        and vertical <= both + _ERROR
    )


def _satisfied_applications(course: Course) -> float:
    return 100.0 * float((course.seen[..., 1] >= LOWER).mean())


def _honest(name: str, results: Sequence[Policed]) -> Iterator[Row]:
    for headroom in HEAD_ROOMS:
        label, id = f"{name}, {_label(headroom)}", f"honest/{name}/{headroom:g}"
        found = [each.honest[headroom, "both"] for each in results]
        surplus, lost = [each.surplus for each in found], [each.lost for each in found]
        what = f"{label}, both: part of honest demand that counts as surplus"
        if headroom:
            yield within(f"{id}/surplus", what, None, surplus, 0.0, LOSS_MAX)
        else:
            yield Row(f"{id}/surplus", what, None, round(mean(surplus), 4), None, "why there is head-room")
        what = f"{label}, both: part of honest demand that is not served as best effort either"
        yield within(f"{id}/lost", what, None, lost, 0.0, LOSS_MAX)


def unused(results: Sequence[Policed], variant: Variant, behaviour: str) -> float:
    """Servers left for best effort, mean over days, slots and seeds."""
    counts = [each.courses[variant, behaviour].left for each in results]
    return mean([float(count @ np.arange(len(count)) / count.sum()) for count in counts])


def _figure_8(name: str, results: Sequence[Policed]) -> Iterator[Row]:
    total = results[0].pools.total
    course = results[0].courses[(0.0, "none"), "honest"]
    most = np.cumsum(course.left) / course.left.sum()
    low, high = (int(np.searchsorted(most, edge)) for edge in (0.05, 0.95))
    free = unused(results, (0.0, "none"), "honest")
    what = f"{name}: servers left for best effort, 5 to 95 % of days and slots"
    yield Row(f"8a/{name}/servers", what, f"{UNUSED[0]} to {UNUSED[1]}", f"{low} to {high} of {total}")
    percent = 100.0 * free / total
    what = f"{name}: servers left for best effort (%)"
    holds = 20.0 <= percent <= 40.0
    near = results[0].pools.guaranteed
    why = "mean of days and slots; asked for 20 to 40" + (
        "" if holds else f"; its mean demand is nearer to its peak, {near}"
    )
    yield Row(f"8a/{name}", what, UNUSED_PERCENT, round(percent, 1), holds, why)
    for headroom in HEAD_ROOMS:
        left = {kind: unused(results, (headroom, kind), "both") for kind in POLICING}
        shown = " / ".join(f"{value:.1f}" for value in left.values())
        label, id = f"{name}, {_label(headroom)}, both misbehave", f"8b/{name}/{headroom:g}"
        what = f"{label}: servers left with no, horizontal, vertical policing, both: more by vertical, most by both"
        yield Row(
            f"{id}/more",
            what,
            "yes",
            shown,
            left["none"] < left["vertical"] <= left["both"] + _ERROR * total and left["horizontal"] < left["both"],
        )
        apart = abs(left["horizontal"] - left["none"]) / total
        what = f"{label}: no and horizontal policing overlap, apart by (part of all servers)"
        yield Row(
            f"{id}/overlap", what, "overlap", round(apart, 4), apart <= _OVERLAP, f"asked for at most {_OVERLAP:g}"
        )


def tables_policed(results: Sequence[Policed]) -> Tables:
    """Return tables of the effect of each kind of policing, for the first seed."""
    return {
        f"policing: {each.name}, pools {each.pools.guaranteed}, {each.pools.sizes[0]} and {each.pools.sizes[1]}": [
            {
                "headroom": headroom,
                "policing": kind,
                "misbehaving": behaviour,
                "higher_lowest_slot": round(float(each.courses[(headroom, kind), behaviour].theta[:, 0].min()), 4),
                "lower_lowest_slot": round(float(each.courses[(headroom, kind), behaviour].theta[:, 1].min()), 4),
                "lower_bad_slots": round(
                    float(each.courses[(headroom, kind), behaviour].theta[BAD_SLOTS, 1].mean()), 4
                ),
                "servers_left": round(unused([each], (headroom, kind), behaviour), 1),
                "honest_surplus": round(each.honest[headroom, kind].surplus, 5),
                "honest_lost": round(each.honest[headroom, kind].lost, 5),
            }
            for headroom, kind, behaviour in _lines(each)
        ]
        for each in results
        if each.seed == results[0].seed
    }


def _lines(each: Policed) -> Iterator[tuple[float, str, str]]:
    seen: set[tuple[str, str]] = set()
    for (headroom, kind), behaviour in each.courses:
        if kind != "none" or (kind, behaviour) not in seen:
            seen.add((kind, behaviour))
            yield headroom, kind, behaviour
