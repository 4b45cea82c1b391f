"""The instance adjustment rule: settles under a constant load, follows a real one as the series of the data says, and
stays within what a model of the response time bears out."""

from __future__ import annotations

import csv
import gzip
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from daemons.models.adjustment import IDLE_FRAC, adjusted, bounds
from daemons.models.response import Hyperbola, MultiServer
from daemons.models.web_utility import AppUtility, flow_utility
from shared.values.agreement import WebTerms
from tests.extent import examples

PAPER = WebTerms()
FIRST_MINUTE = "1998-06-06T22:00Z"
MINUTES = 14 * 24 * 60
steady = settings(max_examples=examples(100))
terms = st.tuples(st.floats(0.05, 1.0), st.floats(0.05, 1.0)).map(lambda two: WebTerms(max(two), min(two)))


def settled(load: float, start: int, rule: WebTerms, least: int = 1, most: int = 1_000) -> int:
    """Where the rule comes to rest under a constant load, in instances' worth of CPU; fails where it does not."""
    count = start
    for _ in range(2 * most):
        step = adjusted(count, min(1.0, load / count), rule, least, most)
        if step == 0:
            return count
        count += step
    raise AssertionError(f"never comes to rest under {load}")


@steady
@given(load=st.floats(0.0, 150.0), start=st.integers(1, 200), rule=terms)
def test_a_constant_load_comes_to_rest(load: float, start: int, rule: WebTerms) -> None:
    """Given any load, then it ends where all instances are used no more than the one bound says and, but for one, more
    than the other."""
    assume(rule.add_above < 0.999)  # use never exceeds 1
    count = settled(load, start, rule, most=10_000)
    assert load / count <= rule.add_above * (1.0 + 1e-9)
    assert count == 1 or load / (count - 1) >= rule.remove_below * (1.0 - 1e-6)


@steady
@given(load=st.floats(0.01, 100.0), start=st.integers(1, 200))
def test_the_papers_rule_ends_at_load_over_capacity(load: float, start: int) -> None:
    """Given 80 % for both, then from anywhere the number is max(1, ceil(load / c)), c being 80 % of an instance."""
    assume(abs(load / 0.8 - round(load / 0.8)) > 1e-6)
    assert settled(load, start, PAPER) == max(1, math.ceil(load / 0.8))


@steady
@given(
    count=st.integers(0, 50),
    use=st.floats(0.0, 2.0) | st.sampled_from([math.nan, math.inf, 0.0]),
    least=st.integers(0, 20),
    more=st.integers(0, 20),
    rule=terms,
)
def test_it_never_leaves_its_bounds(count: int, use: float, least: int, more: int, rule: WebTerms) -> None:
    most = max(1, least + more)
    after = count + adjusted(count, use, rule, least, most)
    assert abs(after - count) <= 1
    if least <= count <= most:
        assert least <= after <= most
    elif not math.isnan(use):
        assert abs(after - min(max(count, least), most)) < abs(count - min(max(count, least), most))


@pytest.mark.parametrize(
    ("count", "use", "least", "step"),
    [
        (4, 0.8, 1, 0),
        (4, 0.81, 1, 1),
        (4, 0.6, 1, 0),
        (4, 0.59, 1, -1),
        (4, 0.59, 4, 0),
        (4, math.nan, 1, 0),
        (1, 0.0, 1, 0),
        (1, IDLE_FRAC, 0, -1),
        (1, 0.1, 0, 0),
        (0, 0.0, 0, 0),
        (0, math.inf, 0, 1),
        (1, math.nan, 2, 0),
        (1, 0.0, 2, 1),
    ],
)
def test_the_rule(count: int, use: float, least: int, step: int) -> None:
    assert adjusted(count, use, PAPER, least) == step


# --- real demand -----------------------------------------------------------------------------------------------------


def requests(folder: Path) -> list[float]:
    """Requests in each minute of the 14 days."""
    with gzip.open(folder / "worldcup98" / "requests_per_minute.csv.gz", "rt") as file:
        counted = {row["minute_utc"]: float(row["requests"]) for row in csv.DictReader(file)}
    first = np.datetime64(FIRST_MINUTE.rstrip("Z"))
    minutes = (first + np.arange(MINUTES)).astype(str)
    return [counted.get(f"{minute}Z", 0.0) for minute in minutes]


def series(path: Path) -> list[tuple[int, int]]:
    """The steps of a demand file."""
    with path.open() as file:
        return [(int(row["t_s"]), int(row["vms"])) for row in csv.DictReader(file)]


def changes(counts: list[int], step_s: int) -> list[tuple[int, int]]:
    """When a count changes, and to what."""
    return [(at * step_s, count) for at, count in enumerate(counts) if at == 0 or counts[at - 1] != count]


def test_it_follows_the_load_of_every_minute(data_folder: Path) -> None:
    """Given the requests of each minute, looked at every 20 s from two instances on, then the series of the data."""
    minutes = requests(data_folder)
    full = max(minutes) / 64.0 / 0.8  # what one instance manages at most
    count, counts = 2, []
    for load in minutes:
        for _ in range(3):
            counts.append(count)
            count += adjusted(count, load / (count * full), PAPER)
    found, wanted = changes(counts, 20), series(data_folder / "worldcup98" / "ws_demand_minute_64vm.csv")
    assert found == wanted


def test_it_comes_to_rest_at_the_demand_of_every_hour(data_folder: Path) -> None:
    """Given the mean load of each hour for as long as it takes, then max(1, ceil(load / c)) instances."""
    minutes = requests(data_folder)
    hours = [math.fsum(minutes[at : at + 60]) / 60.0 for at in range(0, MINUTES, 60)]
    full = max(hours) / 64.0 / 0.8
    count, counts = 1, []
    for load in hours:
        count = settled(load / full, count, PAPER, most=128)
        counts.append(count)
    assert changes(counts, 3600) == series(data_folder / "worldcup98" / "ws_demand_hourly_64vm.csv")


# --- with a goal -----------------------------------------------------------------------------------------------------


def model(load_mhz: float, goal_s: float = 0.1, work: float = 10.0) -> AppUtility:
    return AppUtility((flow_utility(MultiServer(work, load_mhz, 1_000.0), goal_s),), math.inf, 1.0)


def test_the_fewest_meet_the_goal_and_the_most_still_gain() -> None:
    """Given a load of 3,500 MHz and instances of 1,000 MHz, then four meet the goal, and beyond some nothing is won."""
    app = model(3_500.0)
    low, high = bounds(app, 1_000.0, 5, 1, 50)
    assert low == 4
    assert float(app.utility(low * 1_000.0)) >= 0.0 > float(app.utility((low - 1) * 1_000.0))
    assert low <= high < 50
    assert float(app.utility((high + 1) * 1_000.0)) - float(app.utility(high * 1_000.0)) <= 1e-3


@pytest.mark.parametrize(("chosen", "inside"), [(2, 2), (40, 40), (99, 50), (0, 1)])
def test_what_was_chosen_is_inside(chosen: int, inside: int) -> None:
    low, high = bounds(model(3_500.0), 1_000.0, chosen, 1, 50)
    assert 1 <= low <= inside <= high <= 50


def test_a_goal_out_of_reach_takes_nothing_away() -> None:
    low, high = bounds(model(90_000.0), 1_000.0, 7, 1, 10)
    assert (low, high) == (7, 10)


def test_a_model_that_says_nothing_leaves_the_agreements_bounds() -> None:
    broken = AppUtility((flow_utility(Hyperbola(10.0, 100.0), 0.1),), math.inf, math.nan)
    assert bounds(broken, 1_000.0, 3, 2, 8) == (2, 8)


@steady
@given(
    load=st.floats(0.0, 50_000.0),
    each=st.floats(100.0, 5_000.0),
    chosen=st.integers(0, 80),
    least=st.integers(0, 30),
    more=st.integers(0, 40),
)
def test_bounds_are_bounds(load: float, each: float, chosen: int, least: int, more: int) -> None:
    most = max(1, least + more)
    low, high = bounds(model(load), each, chosen, least, most)
    assert least <= low <= min(max(chosen, least), most) <= high <= most
