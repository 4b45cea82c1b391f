"""What batch-provisioning.txt says of arrivals, capacities and larger clusters, beside what comes out here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sim_backend.experiments.experiment import Row, Tables, mean, within
from sim_backend.experiments.provisioning.runs import BINS, Capacities, Scaled, Streams
from sim_backend.experiments.provisioning.settings import (
    CONFIDENCE,
    HEURISTIC,
    RUNS,
    SERVERS_MAX,
    SUBMISSION_END,
    thesis,
)

EXACT_MEAN, EXACT_SD = 144.985, 12.067  # of the thesis's arrivals
_DEVIATIONS = 4.0
_SHOWN = (0, 16, 32, 48, 64, 72, 76, 78, 79, 80, 84, 85, 91)
# Table 5.1: pmax, mean number of arrivals, mean inter-arrival time (s).
TABLE_5_1 = {5: (144.74, 393.52), 10: (291.06, 197.51), 20: (583.12, 99.04), 30: (878.38, 65.98)}
_WHOLE_FROM = 30  # where a clock of whole seconds makes more of a difference than chance


# --- section 5.1.1 ----------------------------------------------------------------------------------------------------


def rows_arrivals(results: Sequence[Streams]) -> list[Row]:
    """Return the rows for figures 5.2 and 5.3, and for the moments in their text."""
    factor = thesis().scenario.gap_factor(np.array([0.0, 28_800.0, 57_600.0]))
    apart = float(np.abs(factor - [2.0, 0.5, 2.0]).max())
    error, deviation = EXACT_SD / RUNS**0.5, EXACT_SD / (2 * RUNS) ** 0.5
    counts = np.mean([each.by_interval for each in results], axis=0)
    middle, ends = float(counts[28:36].mean()), float(np.concatenate([counts[:4], counts[-4:]]).mean())
    return [
        Row(
            "5.2.fit",
            "a(x) at x = 0, 28,800 and 57,600",
            "2, 0.5, 2",
            ", ".join(f"{value:.4f}" for value in factor),
            apart < 1e-3,
        ),
        _about("5.3.mean", "mean number of arrivals", 145.27, [each.mean for each in results], EXACT_MEAN, error),
        _about("5.3.sd", "its standard deviation", 12.17, [each.sd for each in results], EXACT_SD, deviation),
        within(
            "5.3.gap",
            "mean inter-arrival time of a stream (s)",
            394.17,
            [each.gap_s for each in results],
            390.0,
            398.0,
            why="last arrival / number",
        ),
        within("5.3.gap-sd", "its deviation (s)", 33.69, [each.gap_sd_s for each in results], 30.0, 37.0),
        Row(
            "5.3.shape",
            "arrivals in the middle against the ends",
            "more in the middle",
            f"{middle:.2f} against {ends:.2f} per interval",
            middle > 2 * ends,
        ),
    ]


def _about(id: str, what: str, paper: float, values: Sequence[float], exact: float, error: float) -> Row:
    """Ours and the paper's are within four deviations of the exact value."""
    row = within(id, what, paper, values, exact - _DEVIATIONS * error, exact + _DEVIATIONS * error)
    sigma = abs(paper - exact) / error
    why = f"{row.why}; exactly {exact:g}, from which the paper is {sigma:.1f} deviations away"
    return Row(row.id, row.what, row.paper, row.ours, bool(row.holds) and sigma <= _DEVIATIONS, why)


# --- section 5.2 ------------------------------------------------------------------------------------------------------


def rows_capacities(results: Sequence[Capacities]) -> list[Row]:
    """Return the rows for the claims of section 5.4 on g and on the static size."""
    found = results[0]
    top = found.table[:, SERVERS_MAX - 1]
    late = top[SUBMISSION_END:]
    fewer = next((size for size, miss in enumerate(found.static, 1) if miss <= 1.0 - CONFIDENCE), 0)
    chance = ", ".join(map(str, found.by_chance))
    return [
        Row(
            "5.12.late",
            "g_s(pmax) after the end of submission",
            "decreases",
            f"{late[0]} to {late[-1]}",
            bool((np.diff(late) <= 0).all() and late[0] > late[-1]),
        ),
        Row(
            "4.2.order",
            "g_s(p) in p",
            "does not decrease",
            "does not" if (np.diff(found.table, axis=1) >= 0).all() else "does",
            bool((np.diff(found.table, axis=1) >= 0).all()),
        ),
        _late(84, 9, int(top[84]), found.finish[0], f"; its own method with {RUNS} runs finds {chance}"),
        _late(85, 3, int(top[85]), found.finish[1], ""),
        Row(
            "5.15.static",
            "fewest servers that keep 99.99 % throughout",
            4.0,
            float(fewer),
            fewer == 4,
            f"a job misses with probability {found.static[2]:.3g} with three, {found.static[3]:.3g} with four",
        ),
    ]


def _late(interval: int, paper: int, ours: int, finish: float, more: str) -> Row:
    why = f"{paper} jobs are done in time with probability {finish:.4f}, not {CONFIDENCE:g}{more}"
    return Row(f"5.12.g{interval}", f"g_{interval}(5)", float(paper), float(ours), paper == ours, why)


def tables_capacities(results: Sequence[Capacities]) -> Tables:
    """Return tables of g_s(p) at some moments."""
    table = results[0].table
    lines = [
        {"s": at, **{f"p = {p}": None if jobs < 0 else jobs for p, jobs in enumerate(table[at].tolist(), 1)}}
        for at in _SHOWN
    ]
    return {"g_s(p): most jobs that p servers finish, 99.99 %": lines}


# --- section 5.4.4 ----------------------------------------------------------------------------------------------------


def rows_scale(results: Sequence[Scaled]) -> list[Row]:
    """Table 5.1 and figure 5.17."""
    rows = []
    ordered = sorted(results, key=lambda each: each.servers_max)
    for each in ordered:
        size = each.servers_max
        count, gap_s = TABLE_5_1[size]
        exact = EXACT_MEAN * size / SERVERS_MAX
        error = (exact / RUNS) ** 0.5
        means = [streams.mean for streams in each.streams]
        whole = mean([streams.whole_seconds for streams in each.streams])
        holds = abs(mean(means) - count) <= _DEVIATIONS * error
        why = f"{min(means):.2f} to {max(means):.2f}; with times cut to whole seconds {whole:.2f}"
        what = f"mean number of arrivals, pmax = {size}"
        rows.append(Row(f"T5.1.arrivals.{size}", what, count, round(mean(means), 2), holds, why))
        gaps_s = [streams.gap_s for streams in each.streams]
        spread = 0.015 * gap_s
        what = f"mean inter-arrival time, pmax = {size} (s)"
        rows.append(within(f"T5.1.gap.{size}", what, gap_s, gaps_s, gap_s - spread, gap_s + spread))
    whole = mean([streams.whole_seconds for streams in ordered[-1].streams])
    paper = TABLE_5_1[_WHOLE_FROM][0]
    why = "a clock of whole seconds, which makes every gap half a second shorter, explains it"
    what = "arrivals, pmax = 30, in whole seconds"
    rows.append(Row("T5.1.whole", what, paper, round(whole, 2), abs(whole - paper) < 3.5, why))
    for name in ("g(pmax)", "cost-aware", "cost-aware-monotone", "cost-aware-fast"):
        times = " / ".join(f"{each.took_s[name]:.2f}" for each in ordered)
        what = f"time of {HEURISTIC.get(name, name)}, pmax = 5 / 10 / 20 / 30 (s)"
        why = "exact, without runs; depends on the machine and on what else it does"
        rows.append(Row(f"5.17.{name}", what, "mostly k_s(q, n, m), by simulation", times, None, why))
    slow, fast = (mean([each.took_s[name] for each in ordered]) for name in ("cost-aware", "cost-aware-fast"))
    what = "time of H5 against H3, mean of the four (s)"
    rows.append(Row("5.17.H5", what, "less", f"{fast:.2f} against {slow:.2f}", None, "M* costs little here"))
    return rows


def tables_scale(results: Sequence[Scaled]) -> Tables:
    """Return a table of computing times by size."""
    lines: list[dict[str, Any]] = [
        {"pmax": each.servers_max, **{HEURISTIC.get(name, name): took_s for name, took_s in each.took_s.items()}}
        for each in sorted(results, key=lambda each: each.servers_max)
    ]
    return {"time of exact tables (s)": lines}


def tables_arrivals(results: Sequence[Streams]) -> Tables:
    """Figure 5.3 by hours."""
    counts = np.mean([each.by_interval for each in results], axis=0).reshape(BINS // 4, 4).sum(axis=1)
    return {"arrivals per hour": [{"hour": hour, "arrivals": float(count)} for hour, count in enumerate(counts)]}
