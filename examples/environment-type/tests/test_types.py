"""Both types keep the contract, are found by their names, and say what they were written to say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from render_farm.render import Render
from render_farm.session import Session

from daemons.cli.main import main
from shared.policy_api.coordination import InstancesView, ManagerView, Party, WaitingJob
from shared.ports.plugins import find_environment_type
from shared.values.agreement import WebTerms, WorkloadType
from sim_backend.conformance.environment_type_checks import CHECKS, Check, TypeSubject

FOLDER = Path(__file__).resolve().parents[1]
RENDER = TypeSubject(
    Render(),
    good_terms=({}, {"patience_s": 60, "cool_down_s": 0.5, "step_units": 2}, {"step_units": 65_536}),
    bad_terms=({"patience_s": -1.0}, {"step_units": 1.5}, {"step_units": True}, {"cool_down_s": "long"}),
)
SESSION = TypeSubject(
    Session(),
    good_terms=({}, {"target_frac": 0.3, "spare_units": 0}),
    bad_terms=({"target_frac": 0.0}, {"target_frac": float("nan")}, {"spare_units": -1}),
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("subject", [RENDER, SESSION], ids=lambda subject: subject.type.name)
def test_conformance(subject: TypeSubject, check: Check) -> None:
    """Each check of the suite."""
    check(subject)


def test_they_are_found_by_name() -> None:
    """Their package is installed."""
    assert isinstance(find_environment_type("render"), Render)
    assert isinstance(find_environment_type("session"), Session)


def asked(owned: int, idle: int, waiting: tuple[WaitingJob, ...] = (), quiet_s: float = 0.0, **terms: Any) -> int:
    """What the farm's manager asks for; its lower bound is 2."""
    party = Party("farm", WorkloadType.BATCH, 2, owned=owned, idle=idle)
    return Render().manage(ManagerView(party, waiting, quiet_s), terms).units


def test_the_farm_is_patient() -> None:
    """It asks for jobs that have waited, or are due; gives back when it is quiet."""
    fresh, old, due = WaitingJob(2.0, 60.0), WaitingJob(2.5, 900.0), WaitingJob(1.0, 0.0, 300.0)
    assert asked(3, 0, (fresh, fresh)) == 3
    assert asked(3, 0, (fresh, old)) == 6
    assert asked(3, 1, (old, due)) == 6
    assert asked(3, 0, (old, due), step_units=2) == 5
    assert asked(3, 0, (fresh,), patience_s=60) == 5
    assert asked(6, 4, quiet_s=1_799.0) == 6
    assert asked(6, 4, quiet_s=1_800.0) == 2
    assert asked(6, 1, quiet_s=1e6) == 5
    assert asked(6, 6, (fresh,), quiet_s=1e6) == 6


def test_sessions_have_room_to_come() -> None:
    """A unit is spare; instances come early and go late."""
    party = Party("front", WorkloadType.WEB, 1, wanted=3)
    assert Session().manage(ManagerView(party), {}).units == 4

    def step(count: int, use: float, **terms: Any) -> int:
        return Session().adjust(InstancesView(count, use, WebTerms(), 1, 5), terms)

    assert [step(2, use) for use in (0.61, 0.59, 0.16, 0.14)] == [1, 0, 0, -1]
    assert (step(5, 0.9), step(1, 0.0), step(2, 0.4, target_frac=0.3)) == (0, 0, 1)


@pytest.mark.parametrize(("file", "scheduler"), [("env-render.toml", "edf"), ("env-session.toml", "first-fit")])
def test_agreements_name_them(file: str, scheduler: str) -> None:
    """Through the command, with the scheduler of the type."""
    said = CliRunner().invoke(main, ["env", "create", str(FOLDER / file), "--dry-run", "--output", "json"])
    agreement = json.loads(said.stdout)["agreement"]

    assert said.exit_code == 0
    assert (f"env-{agreement['workload']}.toml", agreement["scheduling"]["policy"]) == (file, scheduler)


def test_every_problem_of_terms_is_told(tmp_path: Path) -> None:
    """At once, with what would do."""
    text = (FOLDER / "env-render.toml").read_text("utf-8").replace("patience_s = 900", "patience = 900")
    (tmp_path / "env.toml").write_text(text.replace("step_units = 3", "step_units = 0"), "utf-8")

    said = CliRunner().invoke(main, ["env", "create", str(tmp_path / "env.toml"), "--dry-run"])

    assert said.exit_code == 2
    assert "patience: there is no such term" in said.stderr
    assert "step_units: is 0 (expected a whole number from 1 to 65536)" in said.stderr


def test_they_are_listed() -> None:
    """With their terms."""
    said = CliRunner().invoke(main, ["env", "types", "--output", "json"])
    rows = {row["name"]: row for row in json.loads(said.stdout)["types"]}

    assert {"batch", "web", "render", "session"} <= rows.keys()
    assert rows["render"]["workload"] == "batch"
    assert rows["session"]["distribution"] == "source"
    assert rows["render"]["terms"].keys() == Render().terms.keys()
    assert "terms.patience_s" in CliRunner().invoke(main, ["env", "types"]).stdout
