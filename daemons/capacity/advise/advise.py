"""Which coordination model an owner's load asks for: all of them are played, held against what is asked, and ranked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from daemons.capacity.advise.grid import settings
from daemons.capacity.advise.values import MODELS, AdviceRequest, Judged, Load, Miss, Option
from daemons.capacity.coordination.runs import coordinate
from daemons.capacity.coordination.values import DEDICATED, FB, FLB_NUB, ON_DEMAND, Coordinated, Setting
from daemons.capacity.process_pool import run_all
from shared.base.errors import Infeasible
from shared.values.agreement import BatchTerms, OnReclaim

NEAR_FRAC = 0.01  # options whose costs differ by less are alike: the quicker one is better
CHUNK = 24  # runs that a process does at a time: the load is handed over once for all of them
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Advice:
    """options: all that were played, best first. dedicated: what they are compared with. best, runner_up: the one that
    is recommended, and the best of another model (None where no other has all that was asked)."""

    load: Load
    asked: AdviceRequest
    options: tuple[Judged, ...]
    dedicated: Judged
    best: Judged
    runner_up: Judged | None


def advise(
    load: Load,
    asked: AdviceRequest,
    leases_s: Sequence[float],
    workers: int | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> Advice:
    """Simulate and rank. `tell`: called with the number of finished tasks and their total. Raises `Infeasible` with the
    nearest miss if no option meets all requirements."""
    wanted = settings(load, leases_s)
    chunks = [wanted[at : at + CHUNK] for at in range(0, len(wanted), CHUNK)]
    work = [(_play, (load, chunk)) for chunk in chunks]
    played = run_all(work, workers, None if tell is None else lambda done: tell(done, len(work)))
    options = [Option(setting, outcome) for setting, outcome in zip(wanted, chain.from_iterable(played), strict=True)]
    own = options[0].outcome
    ranked = _ranked([Judged(option, _misses(option, own, asked)) for option in options])
    best = ranked[0]
    if not best.meets:
        raise Infeasible(f"no option has all that is asked for; the nearest: {nearest_words(best)}")
    others = (each for each in ranked if each.meets and each.option.setting.model != best.option.setting.model)
    dedicated = next(each for each in ranked if each.option.setting.model == DEDICATED)
    return Advice(load, asked, tuple(ranked), dedicated, best, next(others, None))


def _play(load: Load, chunk: Sequence[Setting]) -> list[Coordinated]:
    return [coordinate(load.jobs, load.demand, setting) for setting in chunk]


# --- judging ----------------------------------------------------------------------------------------------------------


def _misses(option: Option, own: Coordinated, asked: AdviceRequest) -> tuple[Miss, ...]:
    """Return the requirements that it misses; `own`: the result with dedicated nodes. An equal number of completed jobs
    counts as the same jobs."""
    outcome, found = option.outcome, []
    if outcome.jobs_completed < own.jobs_completed:
        lost = own.jobs_completed - outcome.jobs_completed
        words = f"{outcome.jobs_completed:,} jobs complete, {own.jobs_completed:,} on dedicated nodes"
        found.append(Miss(words, 1.0 + lost / own.jobs_completed))
    if own.mean_turnaround_s and outcome.mean_turnaround_s is not None:
        factor, most = outcome.mean_turnaround_s / own.mean_turnaround_s, asked.max_turnaround_factor
        if factor > most * (1.0 + _ROUNDING):
            words = f"the mean turnaround is {factor:.3g} times that on dedicated nodes, asked for at most {most:g}"
            found.append(Miss(words, factor / most - 1.0))
    waited, limit = outcome.web_waited_node_hours, asked.max_web_wait
    if waited > limit + _ROUNDING:
        words = f"the web side waits for {waited:,.3g} node-hours, asked for at most {limit:g}"
        found.append(Miss(words, (waited - limit) / outcome.node_hours))
    if asked.max_nodes is not None and outcome.peak_nodes > asked.max_nodes:
        words = f"up to {outcome.peak_nodes:,} nodes are held, asked for at most {asked.max_nodes:,}"
        found.append(Miss(words, outcome.peak_nodes / asked.max_nodes - 1.0))
    return tuple(found)


def _ranked(judged: Sequence[Judged]) -> list[Judged]:
    """Return the options that meet the requirements, by cost; then the others by the size of their misses. Of those
    that cost the same as the cheapest left, or nearly, the quickest comes first."""
    met = sorted((each for each in judged if each.meets), key=_cost)
    ranked: list[Judged] = []
    while met:
        limit = met[0].option.outcome.node_hours * (1.0 + NEAR_FRAC)
        alike = [each for each in met if each.option.outcome.node_hours <= limit]
        ranked += sorted(alike, key=_quick)
        met = met[len(alike) :]
    return ranked + sorted((each for each in judged if not each.meets), key=_lack)


def _cost(each: Judged) -> tuple[float, ...]:
    return (each.option.outcome.node_hours, *_quick(each))


def _quick(each: Judged) -> tuple[float, ...]:
    outcome, setting = each.option.outcome, each.option.setting
    usual, own = BatchTerms(), setting.terms
    unusual = sum(getattr(own, key) != getattr(usual, key) for key in own.__slots__)
    simple = (MODELS.index(setting.model), unusual, setting.batch_lower + setting.web_lower)
    return outcome.mean_turnaround_s or 0.0, outcome.adjustments, *simple


def _lack(each: Judged) -> tuple[float, ...]:
    return (sum(miss.by for miss in each.misses), *_cost(each))


# --- words ------------------------------------------------------------------------------------------------------------


def name_of(setting: Setting) -> str:
    """Return a model with its relevant parameters, for people."""
    both = setting.batch_lower + setting.web_lower
    lease, terms = f"lease {setting.lease_s:g} s", setting.terms
    if setting.model == DEDICATED:
        return f"dedicated, {setting.batch_lower} + {setting.web_lower} nodes"
    if setting.model == ON_DEMAND:
        return f"on-demand, {lease}"
    if setting.model == FB:
        way = "suspending" if terms.on_reclaim is OnReclaim.SUSPEND else "killing"
        return f"fb, {both} nodes, {lease}, {way}"
    asks = f"U {terms.request_ratio:g}, V {terms.release_ratio:g}, G {terms.elastic_factor:g}"
    return f"{FLB_NUB}, lower bound {both}, {lease}, {asks}"


def nearest_words(judged: Judged) -> str:
    """Describe an option and its misses."""
    return f"{name_of(judged.option.setting)}: {'; '.join(miss.what for miss in judged.misses)}"


def why(advice: Advice, price: float | None) -> str:
    """Explain why it is recommended, with the numbers."""
    best, own = advice.best.option, advice.dedicated.option
    hours, of_own = best.outcome.node_hours, own.outcome.node_hours
    days = advice.load.horizon_s / 86_400.0
    parts = [f"{name_of(best.setting)}: {_spent(hours, price)} in {days:g} {'day' if days == 1.0 else 'days'}"]
    if best.setting.model != DEDICATED and of_own > 0.0:
        parts.append(f"{100 * (1 - hours / of_own):.1f} % less than dedicated nodes ({of_own:,.0f})")
    if advice.load.jobs:
        parts.append(_of_jobs(best.outcome, own.outcome, len(advice.load.jobs), advice.asked))
    if advice.load.web_peak:
        waited = best.outcome.web_waited_node_hours
        parts.append("the web side never waits" if not waited else f"the web side waits for {waited:,.3g} node-hours")
    parts.append(f"at most {best.outcome.peak_nodes:,} nodes at a time")
    return "; ".join(parts) + ". " + _of_runner_up(advice, price)


def _of_jobs(outcome: Coordinated, own: Coordinated, submitted: int, asked: AdviceRequest) -> str:
    words = f"{outcome.jobs_completed:,} of {submitted:,} jobs complete ({own.jobs_completed:,} on dedicated nodes)"
    if outcome.mean_turnaround_s is None or not own.mean_turnaround_s:
        return words
    factor = outcome.mean_turnaround_s / own.mean_turnaround_s
    return (
        f"{words}, after {outcome.mean_turnaround_s:,.0f} s in the mean, {factor:.2f} times as long as on dedicated "
        f"nodes (at most {asked.max_turnaround_factor:g})"
    )


def _of_runner_up(advice: Advice, price: float | None) -> str:
    runner = advice.runner_up
    if runner is None:
        return "No other model has all that is asked for"
    hours, best = runner.option.outcome.node_hours, advice.best.option.outcome.node_hours
    more = hours - best
    part = f" ({100 * more / best:+.1f} %)" if best > 0.0 else ""
    return f"Of the other models {name_of(runner.option.setting)} is best: it takes {_spent(more, price)} more{part}"


def _spent(hours: float, price: float | None) -> str:
    return f"{hours:,.0f} node-hours" + ("" if price is None else f", {price * hours:,.2f} to pay,")
