"""What the real measurement shows: profiles, dilations beside the models' predictions, and their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from daemons.models.dilation import inverse
from sim_backend.experiments.dilation.measured import (
    FORMULA,
    LINEAR,
    PRODUCT_FORM,
    SETS,
    Compared,
    Measured,
    compared,
    copies_of,
    dilations,
    disturbances,
    error,
    parallelism,
    probed,
    servers,
    shares,
)
from sim_backend.experiments.dilation.workers import WorkKind
from sim_backend.experiments.experiment import Row, Tables, mean

NEAR = 0.25  # of the prediction: CPU with CPU
PAIRS, TRIPLES = 2, 3
NAMES: Mapping[WorkKind, str] = {WorkKind.CPU: "CPU loop", WorkKind.IO: "random reads", WorkKind.FILES: "compressor"}


def rows_measured(results: Sequence[Measured]) -> list[Row]:
    """Return the rows for the claims, and for the compressor's profile by each method of learning it."""
    (found,) = results
    return [_row_machine(found), *_rows_servers(found), *_rows_profile(found), *_rows_errors(found)]


def tables_measured(results: Sequence[Measured], names: Mapping[WorkKind, str] = NAMES) -> Tables:
    """Profiles, and every dilation, with what the kinds of work are called."""
    (found,) = results
    shown = {PAIRS: "Measured: pairs on one core", TRIPLES: "Measured: triples on one core"}
    tables: dict[str, list[dict[str, object]]] = {
        "Measured: alone on one core": [_alone(found, kind, names) for kind in WorkKind]
    }
    for size, title in shown.items():
        if SETS[size][0] in found.runs:
            tables[title] = [_line(case, names) for case in compared(found, size)]
    return tables


def _alone(found: Measured, kind: WorkKind, names: Mapping[WorkKind, str]) -> dict[str, object]:
    cpu, io, idle = shares(found.profiled, kind)
    alone = [one.units_per_s for (one,) in found.runs[(kind,)]]
    pace = inverse.mean(alone)
    return {
        "work": names[kind],
        "cpu": round(cpu, 3),
        "io": round(io, 3),
        "idle": round(idle, 3),
        "units_per_s": round(pace.value, 1),
        "half_width": round(pace.high - pace.value, 1),
        "runs": len(alone),
    }


def _line(case: Compared, names: Mapping[WorkKind, str]) -> dict[str, object]:
    line: dict[str, object] = {
        "together": " + ".join(names[kind] for kind in case.measured.together),
        "of": names[case.measured.kind],
        "measured": round(case.measured.over.value, 3),
        "half_width": round(case.measured.half, 3),
        "by_clock": round(case.measured.by_clock, 3),
        "runs": case.measured.over.samples,
    }
    for model, predicted in case.predicted.items():
        line[model] = round(predicted, 3)
        line[f"{model} error (%)"] = round(100.0 * case.error(model), 1)
    return line


def _row_machine(found: Measured) -> Row:
    reads = "past the page cache" if found.direct else "dropped from the page cache"
    parts = disturbances(found.runs)
    why = f"at most {100.0 * max(parts):.1f} of a run; {found.cores} cores, of which one is used; reads {reads}"
    what = "Real machine: time in which something else had the core (%)"
    return Row("real-core", what, None, float(f"{100.0 * mean(parts):.4g}"), None, why)


def _rows_servers(found: Measured) -> list[Row]:
    rows = []
    for kind, name in ((WorkKind.CPU, "core"), (WorkKind.IO, "disk")):
        runs = found.profiled
        paces = [f"{n} copies {parallelism(runs, kind, n):.2f}" for n in copies_of(runs, kind)]
        what = f"Real machine: requests that the {name} serves at a time"
        why = f"pace against one's: {', '.join(paces)}"
        rows.append(Row(f"real-servers-{kind}", what, 1.0, float(servers(runs, kind)), None, why))
    return rows


def _rows_profile(found: Measured) -> list[Row]:
    """FileComp's vector by time shares, by probes, by its own copies."""
    cpu, io, idle = shares(found.profiled, WorkKind.FILES)
    by_cpu = probed(found.profiled, WorkKind.FILES, WorkKind.CPU)
    by_io = probed(found.profiled, WorkKind.FILES, WorkKind.IO)
    vector, status = inverse.vector_of((by_cpu, by_io))
    beside = _copies(found)
    copies = inverse.of_square(inverse.regressed(list(beside), list(beside.values())).value)
    decided = copies.decided(by_cpu.value)
    return [
        Row(
            "real-shares",
            "Compressor, its part of CPU by the time on the CPU",
            "0.58",
            float(f"{cpu:.4g}"),
            None,
            f"disk {io:.3f}, idle {idle:.3f}; another disk than the paper's",
        ),
        Row(
            "real-probe-cpu",
            "The same by STD-CPU (Property 3)",
            None,
            float(f"{by_cpu.value:.4g}"),
            None,
            f"{by_cpu.status}",
        ),
        Row(
            "real-probe-io",
            "Its part of the disk by STD-I/O",
            None,
            float(f"{by_io.value:.4g}"),
            None,
            f"{by_io.status}; STD-I/O itself is on the CPU for {shares(found.profiled, WorkKind.IO)[0]:.2f} of its "
            f"time; by both probes its vector is ({vector[0]:.3f}, {vector[1]:.3f}), {status}",
        ),
        Row(
            "real-copies",
            "Its part of CPU by its own copies (Algorithm 1)",
            None,
            float(f"{decided[0]:.4g}"),
            None,
            f"{copies.status}; {', '.join(f'{n} copies slowed {over:.3f}' for n, over in beside.items())}; "
            "which root: by STD-CPU",
        ),
    ]


def _copies(found: Measured) -> dict[int, float]:
    """Dilation of so many compressors together, where they were measured."""
    pair, triple = (WorkKind.FILES,) * PAIRS, (WorkKind.FILES,) * TRIPLES
    sets = [(found.profiled, pair), *([(found.runs, triple)] if triple in found.runs else [])]
    return {len(together): dilations(runs, together)[0].over.value for runs, together in sets}


def _rows_errors(found: Measured) -> list[Row]:
    rows = []
    for size, name in ((PAIRS, "pairs"), (TRIPLES, "triples")):
        if SETS[size][0] not in found.runs:
            continue
        cases = compared(found, size)
        if size == PAIRS:
            rows.append(_row_cpu(cases))
        linear = error(cases, LINEAR)
        for model in (FORMULA, PRODUCT_FORM):
            ours = error(cases, model)
            rows.append(
                Row(
                    f"real-{name}-{model.replace(' ', '-')}",
                    f"Real machine, {name}: mean error of the {model} (%)",
                    "7, linear sum up to 98" if size == PAIRS else None,
                    float(f"{100.0 * ours:.4g}"),
                    ours < linear if size == PAIRS else None,
                    f"linear sum {100.0 * linear:.1f}; {len(cases)} dilations",
                )
            )
    return rows


def _row_cpu(cases: Sequence[Compared]) -> Row:
    (case,) = [each for each in cases if each.measured.together == (WorkKind.CPU, WorkKind.CPU)]
    return Row(
        "real-cpu-cpu",
        "Real machine: dilation of the CPU loop beside another",
        2.0,
        float(f"{case.measured.over.value:.4g}"),
        case.error(FORMULA) <= NEAR,
        f"+- {case.measured.half:.2g}; asked for {case.predicted[FORMULA]:.3g} within {100 * NEAR:g} %",
    )
