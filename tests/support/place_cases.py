"""Files for `trimtab sim place` as tests write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from daemons.capacity.place.file import check
from daemons.capacity.place.snapshot import snapshot_of
from daemons.cli.main import main
from shared.policy_api.snapshot import Snapshot
from tests.support.paths import ROOT

EXAMPLE = ROOT / "examples/snapshot.json"


def node(name: str = "n1", **keys: Any) -> dict[str, Any]:
    """A node of 1,000 MHz and 2,000 MiB."""
    return {"name": name, "cpu_mhz": 1000, "memory_mib": 2000} | keys


def job(name: str = "j", **keys: Any) -> dict[str, Any]:
    """A job that needs 10 s at 1,000 MHz."""
    return {"name": name, "work_mcycles": 10_000, "max_mhz": 1000, "memory_mib": 500} | keys


def web(name: str = "w", **keys: Any) -> dict[str, Any]:
    """A web application with t / goal = 100 / (w - 200)."""
    return {"name": name, "memory_mib": 500, "goal_relative": {"c_mhz": 100, "load_mhz": 200}} | keys


def case(**keys: Any) -> dict[str, Any]:
    """A file of one node; cycles of 5 s."""
    return {"cycle_s": 5, "nodes": [node()]} | keys


def snapshot(**keys: Any) -> Snapshot:
    """The snapshot of a file."""
    return snapshot_of(check(case(**keys), "case"))


def example() -> dict[str, Any]:
    """The file that the documents show."""
    return dict(json.loads(EXAMPLE.read_text("utf-8")))


def experiment_one(goal_s: float) -> dict[str, Any]:
    """Experiment One of apc.txt at the beginning of its second cycle; the scenarios differ in the goal of J2."""
    common = {"min_mhz": 0, "memory_mib": 750}
    return {
        "now_s": 1,
        "cycle_s": 1,
        "operation_costs": "none",
        "nodes": [{"name": "n1", "cpu_mhz": 1000, "memory_mib": 2000}],
        "jobs": [
            {
                "name": "J1",
                "state": "running",
                "node": "n1",
                "work_mcycles": 4000,
                "done_mcycles": 1000,
                "max_mhz": 1000,
            }
            | common
            | {"desired_start_s": 0, "goal_s": 20},
            {"name": "J2", "state": "waiting", "node": None, "work_mcycles": 2000, "done_mcycles": 0, "max_mhz": 500}
            | common
            | {"desired_start_s": 1, "goal_s": goal_s},
        ],
        "web_apps": [],
        "constraints": [],
    }


def place(folder: Path, content: Any, *words: object) -> Result:
    """Run the command on a file with this content (text as it is, anything else as JSON)."""
    path = folder / "case.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return CliRunner().invoke(main, ["sim", "place", str(path), *map(str, words)])


def placed(folder: Path, content: Any, *words: object, status: int = 0) -> dict[str, Any]:
    """The JSON that the command prints."""
    outcome = place(folder, content, *words, "--output", "json")
    assert outcome.exit_code == status, (outcome.output, outcome.exception)
    return dict(json.loads(outcome.stdout))
