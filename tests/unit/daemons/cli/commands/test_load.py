"""`trimtab load`: jobs drawn from a profile, submitted when their time has come, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemons.manifests.load import draw, job_of, read_load
from daemons.models.load import draw_jobs
from shared.base.errors import InvalidInput, InvalidValue
from tests.support.operator_harness import Rig
from tests.support.paths import ROOT

EXAMPLE = ROOT / "examples/load.toml"
THESIS = (2.0, -1.04167e-4, 1.80845e-9)
SMALL = """
[arrivals]
mean_s = 20
duration_s = 200
[service]
mean_s = 30
distribution = "fixed"
[job]
max_mhz = 1000
memory_mib = 10
name = "x"
"""


def drawn(seed: int, **other: Any) -> Any:
    given: dict[str, Any] = {
        "mean_s": 480.0,
        "profile": THESIS,
        "duration_s": 57_600.0,
        "service_s": 1_200.0,
        "exponential": True,
    }
    return draw_jobs(**(given | other), rng=np.random.default_rng(seed))


def test_the_days_of_the_thesis() -> None:
    """As many jobs a day as the integral of the rate says, most of them at noon, of 20 minutes each."""
    days = [drawn(seed) for seed in range(200)]
    counts = np.array([day.arrivals_s.size for day in days])
    grid = np.linspace(0.0, 57_600.0, 100_001)
    rate = 1.0 / (480.0 * (THESIS[0] + THESIS[1] * grid + THESIS[2] * grid**2))
    expected = np.trapezoid(rate, grid)
    assert abs(counts.mean() - expected) < 4.0 * np.sqrt(expected / 200)
    every_s = np.concatenate([day.arrivals_s for day in days])
    noon = np.count_nonzero((every_s > 19_200) & (every_s < 38_400))
    inside = (grid > 19_200) & (grid < 38_400)
    assert noon / every_s.size == pytest.approx(np.trapezoid(rate[inside], grid[inside]) / expected, rel=0.03)
    assert np.concatenate([day.services_s for day in days]).mean() == pytest.approx(1_200.0, rel=0.03)
    assert all((np.diff(day.arrivals_s) >= 0).all() for day in days)


def test_a_seed_brings_the_same_and_another_others() -> None:
    assert drawn(1).arrivals_s.tolist() == drawn(1).arrivals_s.tolist() != drawn(2).arrivals_s.tolist()
    assert set(drawn(1, exponential=False).services_s) == {1_200.0}


@pytest.mark.parametrize("profile", [(0.0,), (-1.0,), (1.0, -1e-3), (1.0, -8e-5, 1.5e-9), (float("nan"),)])
def test_a_rate_that_cannot_be_is_refused(profile: tuple[float, ...]) -> None:
    """Not above 0 somewhere, be it in the middle."""
    with pytest.raises(InvalidValue, match="profile"):
        drawn(0, profile=profile)


def test_too_many_jobs_are_refused() -> None:
    with pytest.raises(InvalidValue, match="1000000 jobs"):
        drawn(0, mean_s=1e-3)


def test_the_example_can_be_drawn() -> None:
    file = read_load(EXAMPLE)
    assert 100 < draw(file, 1, "x").arrivals_s.size < 200


def test_a_bad_file_names_file_and_key(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(SMALL.replace("mean_s = 20", "mean_s = -20\nprofile = [0.0]").replace("max_mhz = 1000", ""))
    with pytest.raises(InvalidInput, match=r"(?s)bad\.toml.*arrivals\.mean_s.*max_mhz"):
        read_load(path)
    path.write_text(SMALL.replace("mean_s = 20", "mean_s = 20\nprofile = [0.0]"))
    with pytest.raises(InvalidInput, match=r"bad\.toml: arrivals\.profile"):
        draw(read_load(path), 0, str(path))


def test_jobs_may_go_to_an_environment_but_not_to_a_queue_of_a_window_too(tmp_path: Path) -> None:
    path = tmp_path / "load.toml"
    path.write_text(SMALL.replace("max_mhz = 1000", 'max_mhz = 1000\nenvironment = "night"'))
    assert job_of(read_load(path), 0, 0, 1.0, 0.0).environment == "night"
    path.write_text(SMALL.replace("max_mhz = 1000", 'max_mhz = 1000\nenvironment = "night"\nqueue = "window"'))
    with pytest.raises(InvalidInput, match=r"job\.queue.*nothing beside environment"):
        read_load(path)


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "load.toml"
    path.write_text(SMALL)
    return path


def test_jobs_are_submitted_when_they_arrive(profile: Path) -> None:
    """Given a profile of about ten jobs in 200 s, when it is loaded, then each is accepted at its moment."""
    rig = Rig()
    rig.run(20.0)
    begun_s = rig.loop.engine.now_s
    said = rig.asked("load", profile, "--seed", 3)
    arrivals_s = draw(read_load(profile), 3, "x").arrivals_s
    assert (said["jobs"], said["submitted"], said["stopped"]) == (arrivals_s.size, arrivals_s.size, False)
    rows = rig.asked("jobs", "list")["jobs"]
    assert [row["name"] for row in rows] == [f"x-3-{number:06d}" for number in range(arrivals_s.size)]
    accepted_s = np.array([row["accepted_at_s"] for row in rows])
    assert np.abs(accepted_s - begun_s - arrivals_s).max() < 2.0


def test_faster_and_once(profile: Path) -> None:
    """At ten times the speed it takes a tenth; the same seed again submits nothing again."""
    rig = Rig()
    rig.run(20.0)
    begun_s = rig.loop.engine.now_s
    first = rig.asked("load", profile, "--speed", 10)
    assert rig.loop.engine.now_s - begun_s < 25.0
    assert rig.asked("load", profile, "--speed", 1000)["submitted"] == first["submitted"]
    assert rig.asked("jobs", "list")["total"] == first["jobs"]


def test_a_dry_run_sends_nothing(profile: Path) -> None:
    rig = Rig()
    said = rig.asked("load", profile, "--dry-run")
    assert said["submitted"] == 0 < said["jobs"]
    assert rig.connections == 0


def test_what_is_refused_is_told(profile: Path) -> None:
    """Jobs that no node could hold: each is named, and the exit status is 1."""
    profile.write_text(SMALL.replace("memory_mib = 10", "memory_mib = 999999"))
    rig = Rig()
    rig.run(20.0)
    outcome = rig.trimtab("load", profile, "--speed", 100)
    assert outcome.exit_code == 1
    assert "fits-no-node" in outcome.output
