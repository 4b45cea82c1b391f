"""`trimtab env advise`: what it plays, how it judges and ranks, what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from daemons.capacity.advise.advise import advise
from daemons.capacity.advise.grid import settings
from daemons.capacity.advise.values import AdviceRequest, Load
from daemons.capacity.coordination.runs import coordinate
from daemons.capacity.coordination.values import DEDICATED, FB, FLB_NUB, ON_DEMAND, WebDemand
from daemons.cli.main import main
from daemons.manifests.agreement import read_agreement
from shared.base.errors import Infeasible, InvalidInput
from shared.values.agreement import Agreement, BatchTerms, OnReclaim, WorkloadType
from shared.values.replay_job import ReplayJob
from sim_backend.env_commands.agreements import agreements

DAY_S = 86_400.0
# A job of 4 nodes for half an hour each hour; the web side needs 4 by day, 1 at night.
JOBS = tuple(ReplayJob(number, 3_600.0 * number, 1_800.0, 4, number) for number in range(22))
DEMAND = WebDemand((0.0, 28_800.0, 64_800.0), (1, 4, 1), DAY_S)
BOTH = Load(JOBS, DEMAND, DAY_S, 4)
NO_DEMAND = WebDemand((0.0,), (0,), DAY_S)
LEASES_S = (3_600.0,)


def test_what_is_played() -> None:
    """Given both sides, then every model with its parameters, each once; what has no effect is not varied."""
    made = settings(BOTH, LEASES_S)
    assert len(made) == len(set(made))
    assert {each.model for each in made} == {DEDICATED, FB, FLB_NUB, ON_DEMAND}
    assert min(each.batch_lower + each.web_lower for each in made if each.model == FB) == 4
    assert {each.terms.on_reclaim for each in made if each.model == FB} == set(OnReclaim)
    jobs_only = settings(Load(JOBS, NO_DEMAND, DAY_S, 4), LEASES_S)
    assert {each.terms.on_reclaim for each in jobs_only} == {OnReclaim.SUSPEND}
    web_only = settings(Load((), DEMAND, DAY_S, 0), LEASES_S)
    assert {each.terms for each in web_only} == {BatchTerms()}
    assert len(settings(BOTH, (3_600.0, 1_800.0))) == 2 * len(made) - 1  # dedicated nodes know no lease


def test_the_best_is_the_cheapest_that_meets_what_is_asked() -> None:
    advice = advise(BOTH, AdviceRequest(max_turnaround_factor=1.0), LEASES_S, workers=1)
    best = advice.best.option
    met = [each for each in advice.options if each.meets]
    assert advice.best is advice.options[0]
    assert best.outcome.node_hours <= 1.01 * min(each.option.outcome.node_hours for each in met)
    for each in advice.options:
        again = coordinate(JOBS, DEMAND, each.option.setting)
        assert again.node_hours == each.option.outcome.node_hours
        slow = (again.mean_turnaround_s or 0.0) > 1_800.0 * (1.0 + 1e-9)
        short = again.jobs_completed < 22
        assert each.meets is not (slow or short or again.web_waited_node_hours > 0.0)
    assert advice.runner_up is not None
    assert advice.runner_up.option.setting.model != best.setting.model
    assert all(one.meets or not other.meets for one, other in zip(advice.options, advice.options[1:], strict=False))


@pytest.mark.full
def test_the_same_again() -> None:
    """Also with another number of processes."""
    one, two = (advise(BOTH, AdviceRequest(), LEASES_S, workers) for workers in (1, 2))
    assert [each.option.setting for each in one.options] == [each.option.setting for each in two.options]


def test_a_limit_on_nodes() -> None:
    """Given a limit that dedicated nodes keep and some options do not, then these lack it; given one that none keeps,
    then the nearest is told."""
    bounded = advise(BOTH, AdviceRequest(9.0, max_nodes=8), LEASES_S, workers=1)
    over = [each for each in bounded.options if each.option.outcome.peak_nodes > 8]
    assert over
    assert all(any("nodes are held" in miss.what for miss in each.misses) for each in over)
    with pytest.raises(Infeasible, match=r"the nearest: .*nodes are held, asked for at most 3"):
        advise(BOTH, AdviceRequest(max_nodes=3), LEASES_S, workers=1)


@pytest.mark.parametrize(
    ("load", "names"),
    [(BOTH, ["batch", "web"]), (Load(JOBS, NO_DEMAND, DAY_S, 4), ["batch"]), (Load((), DEMAND, DAY_S, 0), ["web"])],
)
def test_agreements_say_what_was_played(load: Load, names: list[str]) -> None:
    """Every option of every model becomes agreements that a file can hold and whose bounds its model takes."""
    advice = advise(load, AdviceRequest(), LEASES_S, workers=1)
    for judged in advice.options:
        made = agreements(judged, load, "kim")
        setting = judged.option.setting
        assert [each.name for each in made] == names
        assert sum(each.lower for each in made) == setting.batch_lower + setting.web_lower
        assert {each.model for each in made} == {setting.model}
        shared = len(made) == 2 and setting.model in (FB, FLB_NUB)
        assert [each.coordinated_with for each in made if each.workload is WorkloadType.BATCH] in (
            [],
            ["web" if shared else ""],
        )


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    log, demand = tmp_path / "log.swf", tmp_path / "demand.csv"
    lines = (f"{job.number} {job.submit_s:g} -1 {job.run_s:g} 8 -1 -1 8 -1 -1 1 1 -1 -1 -1 -1 -1 -1" for job in JOBS)
    log.write_text("; a log\n" + "\n".join(lines) + "\n", "utf-8")
    demand.write_text("t_s,vms\n0,0\n28800,2\n64800,0\n", "utf-8")
    return {"log": log, "demand": demand, "folder": tmp_path / "out"}


def ran(*words: object, status: int = 0) -> dict[str, Any]:
    outcome = CliRunner().invoke(main, ["env", "advise", *map(str, words), "--output", "json"])
    assert outcome.exit_code == status, outcome.output
    found: dict[str, Any] = json.loads(outcome.stdout)
    return found


@pytest.mark.full
def test_both_files_to_two_agreements(files: dict[str, Path]) -> None:
    words = ("--log", files["log"], "--demand", files["demand"], "--divide-sizes", 2, "--scale", 2)
    found = ran(*words, "--price-per-node-hour", 0.5, "--write", files["folder"], "--owner", "kim")
    assert found["given"] == {
        "jobs": 22,
        "largest_job_nodes": 4,
        "nodes": 4,
        "web_peak_nodes": 4,
        "window_s": DAY_S,
    }
    best = found["recommended"]
    assert found["options"][0] == best
    assert best["cost"] == 0.5 * best["node_hours"]
    assert f"{best['node_hours']:,.0f} node-hours" in found["why"]
    made = [read_agreement(Path(path)) for path in found["written"]]
    assert [(each.name, each.owner, each.model) for each in made] == [
        ("batch", "kim", best["model"]),
        ("web", "kim", best["model"]),
    ]
    assert [each.lower for each in made] == [best["batch_lower"], best["web_lower"]]
    again = ran(*words, "--write", files["folder"], status=2)
    assert {each["where"] for each in again["error"]["problems"]} == {"--write"}


@pytest.mark.full
def test_one_side_alone(files: dict[str, Path]) -> None:
    web = ran("--demand", files["demand"])
    assert (web["given"]["jobs"], web["recommended"]["model"]) == (0, ON_DEMAND)
    assert web["recommended"]["node_hours"] == 20
    jobs = ran("--log", files["log"], "--skip-jobs", 0, "--skip-jobs", 1, "--window", 40_000)
    assert (jobs["given"]["jobs"], jobs["given"]["web_peak_nodes"]) == (10, 0)


def test_a_table_for_people(files: dict[str, Path]) -> None:
    outcome = CliRunner().invoke(main, ["env", "advise", "--demand", str(files["demand"])])
    assert outcome.exit_code == 0
    assert "recommended: on-demand, lease 3600 s: 20 node-hours in 1 day" in outcome.stdout


def test_what_cannot_be_read_or_done(files: dict[str, Path]) -> None:
    assert ran(status=2)["error"]["problems"][0]["where"] == "--log"
    files["log"].write_text(files["log"].read_text("utf-8") + "1 2 3\n", "utf-8")
    files["demand"].write_text("t_s,vms\n0,many\n", "utf-8")
    wrong = ran("--log", files["log"], "--demand", files["demand"], status=2)["error"]["problems"]
    assert [each["where"] for each in wrong] == [f"{files['log']}:24", f"{files['demand']}:2"]
    files["demand"].write_text("t_s,vms\n0,0\n", "utf-8")
    assert "nothing is needed" in ran("--demand", files["demand"], status=2)["error"]["message"]
    files["demand"].write_text("t_s,vms\n0,3\n", "utf-8")
    refused = ran("--demand", files["demand"], "--max-nodes", 2, status=1)["error"]
    assert refused["code"] == "infeasible"
    assert "the nearest: " in refused["message"]


def test_an_option_too_few_nodes_for_the_largest_job(files: dict[str, Path]) -> None:
    assert "at least 8" in ran("--log", files["log"], "--nodes", 7, status=2)["error"]["message"]


@pytest.mark.full
def test_public_logs(data_folder: Path) -> None:
    """Two weeks of NASA's log beside a web demand with a peak of 128, as the paper plays them."""
    found = ran(
        "--log",
        data_folder / "nasa-ipsc-1993/NASA-iPSC-1993-3.1-cln.swf.gz",
        "--demand",
        data_folder / "worldcup98/ws_demand_hourly_64vm.csv",
        *("--window", 1_209_600, "--scale", 2),
    )
    best, runner = found["recommended"], found["runner_up"]
    assert (best["model"], best["jobs_completed"], best["web_waited_node_hours"]) == (FLB_NUB, 2_603, 0.0)
    assert best["mean_turnaround_s"] <= 1.5 * found["dedicated"]["mean_turnaround_s"]
    assert found["dedicated"]["node_hours"] == 256 * 336
    assert best["node_hours"] == pytest.approx(41_761, abs=1)
    assert (runner["model"], runner["batch_lower"] + runner["web_lower"]) == (FB, 154)


def test_invalid_agreements_are_not_made() -> None:
    """Given more nodes than an agreement can say."""
    load = Load((), WebDemand((0.0,), (70_000,), DAY_S), DAY_S, 0)
    advice = advise(load, AdviceRequest(), LEASES_S, workers=1)
    with pytest.raises(Infeasible, match="at most 65,536"):
        agreements(advice.dedicated, load, "kim")
    leased = next(each for each in advice.options if each.option.setting.model == ON_DEMAND)
    assert agreements(leased, load, "kim") == [Agreement("web", "kim", WorkloadType.WEB, lower=0, model=ON_DEMAND)]
    with pytest.raises(InvalidInput):
        read_agreement(Path("none"))
