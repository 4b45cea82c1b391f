"""The real measurement: kinds of work on one core, alone and in pairs and triples, beside what three models predict."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import Protocol

import numpy as np

from daemons.capacity.process_pool import Work
from daemons.models.dilation import formula, inverse, linear, product_form
from daemons.models.dilation.formula import Floats
from sim_backend.experiments.dilation.rig import Set, rig
from sim_backend.experiments.dilation.workers import Counted, WorkKind
from sim_backend.experiments.experiment import mean

RUNS_PER_SEED = 2
DISTURBED = 0.05  # then it is run once more,
AGAIN = 4  # at most one run in so many
FORMULA, PRODUCT_FORM, LINEAR = "formula", "product form", "linear sum"
SETS: dict[int, tuple[Set, ...]] = {n: tuple(combinations_with_replacement(WorkKind, n)) for n in (1, 2, 3)}
RESOURCES = (WorkKind.CPU, WorkKind.IO)  # each with the standard job that uses it
PROBED: tuple[Set, ...] = (
    (WorkKind.FILES,),
    (WorkKind.CPU, WorkKind.FILES),
    (WorkKind.IO, WorkKind.FILES),
    (WorkKind.FILES, WorkKind.FILES),
)
Runs = Mapping[Set, Sequence[Sequence[Counted]]]
"""Of each set, in each round, what each of its processes did."""


@dataclass(frozen=True, slots=True)
class Measuring:
    """How it is measured. runs: rounds over all sets; profile_runs: over what profiles come from; window_s: how long
    each set is counted, settle_s: how long it runs before; file_mib: of the file that is read at random places; sizes
    of the sets (with 1); copies: how many of a standard job show what a resource serves at a time (with 1)."""

    runs: int = 10
    profile_runs: int = 3
    window_s: float = 1.0
    file_mib: int = 128
    settle_s: float = 0.1
    sizes: tuple[int, ...] = (1, 2, 3)
    copies: tuple[int, ...] = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Measured:
    """What came out: the runs from which profiles come, and those that are predicted."""

    cores: int
    direct: bool
    profiled: Runs
    runs: Runs


def work_measured(seeds: int) -> list[Work]:
    """Return the work: two rounds for each seed."""
    return [(measure, (replace(Measuring(), runs=RUNS_PER_SEED * seeds),))]


class Running(Protocol):
    """What can let a set run. direct: reads do not come from the page cache."""

    direct: bool

    def run(self, together: Set, window_s: float, settle_s: float) -> list[Counted]:
        """See `dfactor_rig.Rig`."""
        ...


def measure(settings: Measuring) -> Measured:
    """Measure processes of this machine, which should do nothing else."""
    with rig((*profiles(settings), *sets_of(settings)), settings.file_mib) as made:
        return measure_on(made, settings)


def profiles(settings: Measuring) -> tuple[Set, ...]:
    """Return the sets that profiles are derived from."""
    return (*((kind,) * n for kind in (WorkKind.CPU, WorkKind.IO) for n in settings.copies), *PROBED)


def sets_of(settings: Measuring) -> tuple[Set, ...]:
    """Return the sets that are predicted."""
    return tuple(each for size in settings.sizes for each in SETS[size])


def measure_on(made: Running, settings: Measuring) -> Measured:
    """Measure the running processes round by round, so that drift affects all sets equally."""
    profiled = _rounds(made, profiles(settings), settings.profile_runs, settings)
    runs = _rounds(made, sets_of(settings), settings.runs, settings)
    return Measured(os.cpu_count() or 1, made.direct, profiled, runs)


def _rounds(made: Running, sets: Sequence[Set], rounds: int, settings: Measuring) -> Runs:
    found: dict[Set, list[list[Counted]]] = {each: [] for each in sets}
    again = len(sets) * rounds // AGAIN
    for _round in range(rounds):
        for each in sets:
            best = made.run(each, settings.window_s, settings.settle_s)
            if again and disturbance(best) > DISTURBED:
                again -= 1
                best = min(best, made.run(each, settings.window_s, settings.settle_s), key=disturbance)
            found[each].append(best)
    return found


def disturbance(together: Sequence[Counted]) -> float:
    """Return the minimum fraction of the window in which another process had the core: one of the measured processes
    waited for it and none of the others used it."""
    cpu = sum(each.cpu for each in together)
    return max(0.0, *(each.queued - (cpu - each.cpu) for each in together))


def disturbances(runs: Runs) -> list[float]:
    """Return the disturbance of every run."""
    return [disturbance(together) for rounds in runs.values() for together in rounds]


# --- profiles ------------------------------------------------------------------------------------------------------


def shares(runs: Runs, kind: WorkKind) -> tuple[float, float, float]:
    """Return a kind's resource profile from its runs alone: the fractions on the CPU, blocked by the disk, and idle.
    Time in which another process had the core is not counted."""
    alone = [counted for (counted,) in runs[(kind,)]]
    return (
        mean([each.cpu / (1.0 - each.queued) for each in alone]),
        mean([each.blocked / (1.0 - each.queued) for each in alone]),
        mean([each.idle / (1.0 - each.queued) for each in alone]),
    )


def alone_s(alone: Counted, beside: Counted) -> float:
    """Return the seconds that a unit takes alone at the machine speed of another run, using the CPU time per unit of
    that run. The speed of a machine with shared cores changes from second to second."""
    return (1.0 - alone.cpu) / alone.units_per_s + beside.cpu / beside.units_per_s


def parallelism(runs: Runs, kind: WorkKind, copies: int) -> float:
    """Return the total throughput of `copies` copies of a standard job, relative to one copy."""
    return mean(
        [
            sum(each.units_per_s * alone_s(alone, each) for each in together)
            for together, (alone,) in zip(runs[(kind,) * copies], runs[(kind,)], strict=True)
        ]
    )


def copies_of(runs: Runs, kind: WorkKind) -> list[int]:
    """Return the numbers of copies of a standard job that ran side by side, greater than one."""
    return sorted(len(together) for together in runs if set(together) == {kind} and len(together) > 1)


def servers(runs: Runs, kind: WorkKind) -> int:
    """Return the number of requests of a standard job that its resource serves at a time. It is the number for which
    the product form comes closest to the throughput of the copies, which also share the core."""
    vector, resource = shares(runs, kind)[:2], RESOURCES.index(kind)
    counts = copies_of(runs, kind)

    def miss(served: int) -> float:
        serving = [served if index == resource else 1 for index in range(len(RESOURCES))]
        paces = [copies / float(product_form.dilation([vector] * copies, serving)[0]) for copies in counts]
        return sum(abs(parallelism(runs, kind, copies) - pace) for copies, pace in zip(counts, paces, strict=True))

    return min(range(1, max(counts) + 1), key=miss)


@dataclass(frozen=True, slots=True)
class Dilation:
    """Slowdown of one kind in one set over the rounds. The interval contains the true mean at 95 %. `by_clock`: mean
    throughput alone divided by the mean throughput in the set, regardless of the machine's speed in either."""

    together: Set
    kind: WorkKind
    over: inverse.Mean
    by_clock: float

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        return self.over.high - self.over.value


def dilations(runs: Runs, together: Set) -> list[Dilation]:
    """Return the slowdown of each kind of the set: its time per unit in the set divided by its time per unit alone,
    measured in the same round."""
    found = []
    for kind in dict.fromkeys(together):
        values, by_clock = [], []
        for each, (alone,) in zip(runs[together], runs[(kind,)], strict=True):
            ours = [one for one, of in zip(each, together, strict=True) if of is kind]
            values.append(1.0 / mean([one.units_per_s * alone_s(alone, one) for one in ours]))
            by_clock.append(alone.units_per_s / mean([one.units_per_s for one in ours]))
        found.append(Dilation(together, kind, inverse.mean(values), mean(by_clock)))
    return found


def probed(runs: Runs, kind: WorkKind, probe: WorkKind, count: int = 1) -> inverse.ResourceFraction:
    """Return a kind's fraction of the resource that a standard job uses, by Property 3: both run side by side all the
    time."""
    together = tuple(sorted((kind, probe), key=list(WorkKind).index))
    (beside,) = [each.over.value for each in dilations(runs, together) if each.kind is kind]
    return inverse.probed(1.0, beside, copies=count, servers=count)


# --- predictions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compared:
    """A measured dilation beside what each model predicts, by name."""

    measured: Dilation
    predicted: Mapping[str, float]

    def error(self, model: str) -> float:
        """Return the relative error of the prediction, as a fraction of the measured value (section 5)."""
        return abs(self.predicted[model] / self.measured.over.value - 1.0)


def models(found: Measured) -> dict[str, Callable[[Floats], Floats]]:
    """Dilations by loading vectors over CPU and disk, on this machine."""
    counts = [1, servers(found.profiled, WorkKind.IO)]
    return {
        FORMULA: lambda p: formula.dilation(p, counts),
        PRODUCT_FORM: lambda p: product_form.dilation(p, counts),
        LINEAR: linear.dilation,
    }


def compared(found: Measured, size: int) -> list[Compared]:
    """Return the comparison for every kind in every set of `size` processes."""
    vectors = {kind: shares(found.profiled, kind)[:2] for kind in WorkKind}
    by_model = models(found)
    cases = []
    for together in SETS[size]:
        p = np.array([vectors[kind] for kind in together])
        predicted = {name: model(p) for name, model in by_model.items()}
        cases += [
            Compared(each, {name: float(row[together.index(each.kind)]) for name, row in predicted.items()})
            for each in dilations(found.runs, together)
        ]
    return cases


def error(cases: Sequence[Compared], model: str) -> float:
    """Return the mean of the errors."""
    return mean([each.error(model) for each in cases])
