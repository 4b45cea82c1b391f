"""Files for `trimtab sim provision`: what is understood, and every problem with its key."""

from __future__ import annotations

import datetime
import gzip
from pathlib import Path

import numpy as np
import pytest

from daemons.capacity.provisioning.file import PricedScenario, PriceSeriesRequest, expected_arrivals
from daemons.capacity.provisioning.problem import problem_of
from daemons.capacity.provisioning.series import paid, read_scenario
from shared.base.errors import InvalidInput, Problem
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"
THESIS = EXAMPLES / "provision-thesis.toml"
HOURS = "\n".join(f"2022-01-10T{hour:02}:00,{hour}.5" for hour in range(24))


def changed(tmp_path: Path, *replacements: tuple[str, str], csv: str = f"hour,eur\n{HOURS}\n") -> Path:
    """The thesis's scenario with some lines changed, beside a series of prices."""
    text = THESIS.read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "prices.csv").write_text(csv)
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    return path


def series(start: str = "2022-01-10T00:00", zone: str = "UTC", column: str = "eur") -> tuple[str, str]:
    """What asks for the series."""
    keys = {"file": "prices.csv", "column": column, "time_zone": zone, "start": start}
    return 'shape = "increasing"', 'shape = "series"\n' + "\n".join(f'{k} = "{v}"' for k, v in keys.items())


def problems(path: Path) -> dict[str, Problem]:
    """By key or, of the series, by line."""
    with pytest.raises(InvalidInput) as caught:
        read_scenario(path)
    return {problem.where.rpartition(": ")[2]: problem for problem in caught.value.problems}


def test_the_thesis() -> None:
    """Every key of the example."""
    scenario = read_scenario(THESIS).scenario
    assert (scenario.period.interval_s, scenario.period.submission_end, scenario.period.deadline) == (900, 64, 92)
    assert (scenario.servers.min, scenario.servers.max, scenario.servers.deploy_s) == (1, 5, 25)
    assert scenario.submission_end_s == 57_600
    assert scenario.gap_factor(np.array([0.0, 28_800.0])) == pytest.approx([2.0, 0.5], abs=1e-4)
    assert scenario.rate_per_interval(np.array([0.0])) == pytest.approx([900 / 960])
    count = expected_arrivals(scenario.arrivals.profile, 480, 900, 64)
    assert count == pytest.approx(145.10574, abs=1e-4)


def test_a_day_of_real_prices() -> None:
    """Given the example with a series, then an interval costs what 250 W do, also where the price is below 0."""
    given = read_scenario(EXAMPLES / "provision-day-ahead.toml")
    assert given.paid is not None
    assert given.paid.price.shape == (92,)
    assert given.paid.price[0] == pytest.approx(124.54 * 250e-6 / 4)  # 8:00 of the Saturday
    assert given.paid.price[4 * 7] == pytest.approx(-35.00 * 250e-6 / 4)  # 15:00
    assert given.paid.price[-1] == pytest.approx(143.14 * 250e-6 / 4)  # 6:45 of the Sunday


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("profile = [2.0, -1.04167e-4, 1.80845e-9]", "profile = [2.0, -1e-4]", "arrivals.profile"),
        ("profile = [2.0, -1.04167e-4, 1.80845e-9]", "profile = [2.0, -2e-4, 3e-9]", "arrivals.profile"),
        ("profile = [2.0, -1.04167e-4, 1.80845e-9]", "profile = []", "arrivals.profile"),
        ("profile = [2.0, -1.04167e-4, 1.80845e-9]", "profile = [nan]", "arrivals.profile[0]"),
        ("mean_s = 480", "mean_s = -480", "arrivals.mean_s"),
        ("mean_s = 480", "mean_s = 1e-3", "arrivals.profile"),
        ("deadline = 92", "deadline = 64", "period.deadline"),
        ("deadline = 92", "deadline = 9.5", "period.deadline"),
        ("min = 1", "min = 6", "servers.max"),
        ("min = 1", "min = 0", "servers.min"),
        ("deploy_s = 25", "deploy_s = 901", "period.interval_s"),
        ("max = 5", "max = 1000", "servers.max"),
        ("max = 5", "max = 20\nslots = 1000", "servers.max"),
        ("confidence = 0.9999", "confidence = 1", "promise.confidence"),
        ("confidence = 0.9999", "confidence = 0.0", "promise.confidence"),
        ('shape = "increasing"', 'shape = "cubic"', "price.shape"),
        ("ratio = 3", "ratio = 0.5", "price.ratio"),
        ("mean_s = 1200", "mean = 1200", "service.mean_s"),
    ],
)
def test_a_problem_names_its_key(tmp_path: Path, old: str, new: str, key: str) -> None:
    """And the file."""
    found = problems(changed(tmp_path, (old, new)))
    assert key in found
    assert "scenario.toml" in found[key].where
    assert found[key].expected


def test_rates_are_not_negative_within_submission_alone(tmp_path: Path) -> None:
    """Given a profile that is below 0 after the end of submission only, then it is good."""
    path = changed(tmp_path, ("profile = [2.0, -1.04167e-4, 1.80845e-9]", "profile = [2.0, -3e-5]"))
    assert isinstance(read_scenario(path), PricedScenario)


@pytest.mark.parametrize("profile", ["1e308, 1e305", "1e-308, 1e-310"])
def test_rates_beyond_all_measure_are_refused(tmp_path: Path, profile: str) -> None:
    """In words; a warning of numpy's would be an error here."""
    found = problems(changed(tmp_path, ("profile = [2.0, -1.04167e-4, 1.80845e-9]", f"profile = [{profile}]")))
    assert set(found) == {"arrivals.profile"}


@pytest.mark.parametrize("profile", ["1.0, 1e-310, 5e-324", "1e200, -1e190, 1e180"])
def test_coefficients_of_any_size_are_read(tmp_path: Path, profile: str) -> None:
    path = changed(tmp_path, ("profile = [2.0, -1.04167e-4, 1.80845e-9]", f"profile = [{profile}]"))
    assert isinstance(read_scenario(path), PricedScenario)


def test_many_servers_whose_number_is_fixed(tmp_path: Path) -> None:
    """Given no sizes to choose from, then tables are small."""
    path = changed(tmp_path, ("max = 5", "max = 900"), ("min = 1", "min = 900"))
    assert read_scenario(path).scenario.servers.max == 900
    assert read_scenario(changed(tmp_path, ("max = 5", "max = 200"))).scenario.servers.max == 200


def test_all_problems_at_once(tmp_path: Path) -> None:
    """Also those of the series."""
    path = changed(
        tmp_path,
        ("deadline = 92", "deadline = 60"),
        ("min = 1", "min = 9"),
        ("confidence = 0.9999", "confidence = 1.0"),
        series(column="usd"),
    )
    found = problems(path)
    assert {"period.deadline", "servers.max", "promise.confidence"} < set(found)
    assert any("no column 'usd'" in problem.what for problem in found.values())


@pytest.mark.parametrize(
    ("csv", "said"),
    [
        (HOURS.replace("2022-01-10T05:00,5.5\n", ""), "7200 s from 2022-01-10T04:00 to 2022-01-10T06:00"),
        (HOURS.replace("05:00,5.5", "05:00,"), "no price at 2022-01-10T05:00"),
        (HOURS.replace("05:00,5.5", "05:00,nan"), "no price at 2022-01-10T05:00"),
        (HOURS.replace("05:00,5.5", "03:00,5.5"), "goes back"),
        (HOURS.replace("2022-01-10T05", "5"), "is no time"),
        (HOURS[: HOURS.index("2022-01-10T20")], "begins a period from 2022-01-10T"),
        ("", "has 0 prices"),
    ],
)
def test_prices_with_gaps(tmp_path: Path, csv: str, said: str) -> None:
    """Named with the file and the time or the line."""
    found = problems(changed(tmp_path, series(), csv=f"hour,eur\n{csv}"))
    assert any(said in problem.what for problem in found.values())
    assert all("prices.csv" in problem.where for problem in changed_where(found))


def changed_where(found: dict[str, Problem]) -> list[Problem]:
    """Problems of the series."""
    return [problem for problem in found.values() if "scenario.toml" not in problem.where]


def test_the_price_of_a_removed_server(tmp_path: Path) -> None:
    """Given removal that takes longer than an interval, then it is paid for at the prices of that time, and not past
    the deadline; a late job costs its service at the highest price."""
    given = read_scenario(changed(tmp_path, series(), ("remove_s = 30", "remove_s = 1000")))
    assert given.paid is not None
    assert given.paid.price[:5] == pytest.approx([0.5, 0.5, 0.5, 0.5, 1.5])
    assert given.paid.removal_price[0] == pytest.approx(0.5 * 1000 / 900)
    assert given.paid.removal_price[3] == pytest.approx((0.5 * 900 + 1.5 * 100) / 900)
    assert given.paid.removal_price[91] == pytest.approx(22.5)
    problem = problem_of(given)
    assert problem.penalty == pytest.approx(1200 / 900 * 22.5)
    assert problem.removal_price is not given.paid.removal_price
    assert problem_of(given, "uniform").penalty == pytest.approx(1200 / 900)


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("zone", "Mars/Base", "price.time_zone"),
        ("start", "noon", "price.start"),
        ("start", "2023-01-10T00:00", "price.start"),
    ],
)
def test_wrong_series(tmp_path: Path, key: str, value: str, place: str) -> None:
    """A zone or a time that nobody knows, and a day without prices."""
    asked = series(zone=value) if key == "zone" else series(start=value)
    found = problems(changed(tmp_path, asked))
    assert any(place in problem.where for problem in found.values())


def test_a_series_needs_its_keys(tmp_path: Path) -> None:
    """Given the shape alone, then all three are asked for."""
    found = problems(changed(tmp_path, ('shape = "increasing"', 'shape = "series"')))
    assert set(found) == {"price.file", "price.column", "price.start"}
    path = changed(tmp_path, ('shape = "increasing"', series()[1].replace("prices.csv", "gone.csv")))
    assert any("gone.csv" in problem.where for problem in problems(path).values())


def test_days_on_which_the_clock_changes(tmp_path: Path) -> None:
    """Given the 30th of October 2022 in Brussels, whose hour from 2:00 comes twice, then 25 hours follow each other."""
    hours = [0, 1, 2, 2, *range(3, 24)]
    lines = [f"2022-10-30T{hour:02}:00,{row}" for row, hour in enumerate(hours)]
    path = tmp_path / "prices.csv.gz"
    path.write_bytes(gzip.compress(("hour,eur\n" + "\n".join(lines)).encode()))
    start = datetime.datetime.fromisoformat("2022-10-30T00:00")
    wanted = PriceSeriesRequest(path, "eur", "Europe/Brussels", start, 3600.0, 25, 0.0)
    assert paid(wanted, "x.toml").price == pytest.approx(list(range(25)))
    half = PriceSeriesRequest(path, "eur", "Europe/Brussels", start, 5400.0, 4, 5400.0)
    assert paid(half, "x.toml").price == pytest.approx([1 / 3, 5 / 3, 10 / 3, 14 / 3])
    assert paid(half, "x.toml").removal_price == pytest.approx([1 / 3, 5 / 3, 10 / 3, 14 / 3])
