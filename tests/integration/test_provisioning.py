"""Real processes that keep so many nodes in service as a deadline window needs, on hosts that truly fall silent."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.harness import toml
from tests.integration.private_broker import PrivateBroker
from tests.integration.provisioning_scene import (
    IDLE_W,
    OFF_W,
    PEAK_W,
    PER_KWH,
    QUEUE,
    WINDOW,
    Day,
    Plant,
    plant,
    write_prices,
)
from tests.integration.scene import LIMIT_S, SOON_S, TRIMTAB

JOBS = tuple(f"j{number:02}" for number in range(16))
WORK_S = 5.0  # in truth
DEAD_BMC = "bmc: no route to host"


def cautious(day: Day) -> Mapping[str, Any]:
    """What jobs are taken to need until they are measured: so much that one node is not enough for sixteen of them."""
    return {"service_s": round(day.left_s / 7.0, 1)}


@pytest.mark.full
def test_a_day_of_a_window(broker: PrivateBroker, tmp_path: Path) -> None:
    """Idle nodes leave service and fall asleep; jobs bring them back; all is done in time, and the command says so."""
    with plant(broker, tmp_path, window=cautious, does=("link", "delink")) as town:
        asleep = town.rest(2)
        (awake,) = set(town.lab.nodes) - set(asleep)
        assert sorted(town.switches.asked("delink")) == sorted(town.switches.asked("sleep")) == asleep
        assert not any(town.truth_up(node) for node in asleep)
        assert (town.service("off"), town.service("in-service")) == (asleep, [awake])
        quiet = town.wait_for(town.with_tables, SOON_S, "tables")
        assert (quiet["jobs"], quiet["nodes"], quiet["nodes_given"], quiet["open"]) == (0, 1, 1, True)
        costs_so_far(town)

        town.submit_all(JOBS, WORK_S)
        woken = town.until_heard("node-waking")["subject"]
        town.wait_for(lambda: woken in serving(town), SOON_S, f"{woken} in service")
        assert [what for what, node in town.switches.orders if node == woken] == ["delink", "sleep", "wake", "link"]
        busy = town.forecast()
        assert busy["arrivals"]["counted"] == len(JOBS)
        assert busy["nodes_wanted"] >= 2
        added = [
            row["number"]
            for row in town.do("plan", "history", "--output", "json").data["decisions"]
            if row["provisioning"] and row["provisioning"]["added"]
        ]
        plan = town.do("plan", "show", "--decision", str(added[0]), "--output", "json").data["decision"]
        assert woken in plan["provisioning"]["added"] or len(added) > 1
        (given,) = plan["provisioning"]["windows"]
        assert (given["window"], given["nodes"] >= 2) == (WINDOW, True)

        town.all_done_once(*JOBS)
        rows = town.do("jobs", "list", "--output", "json").data["jobs"]
        assert {row["phase"] for row in rows} == {"completed"}
        assert max(row["finished_at_s"] for row in rows) < town.day.deadline_s
        assert any(row["subject"] == WINDOW for row in town.happened() if row["what"] == "forecast-left-band")
        assert not town.heard("deadline-missed")
        assert town.forecast()["service"]["jobs_measured"] >= len(JOBS) / 2


def serving(town: Plant) -> list[str]:
    """Nodes that came into service, by the events."""
    return [one["subject"] for one in town.heard("node-in-service")]


def costs_so_far(town: Plant) -> None:
    """Less than with every node on, at the price of the file."""
    town.wait_for(lambda: sums(town)["kwh"] < 0.9 * sums(town)["static_kwh"], SOON_S, "what is saved")
    row = sums(town)
    assert row["cost"] == pytest.approx(PER_KWH * row["kwh"], rel=1e-6)
    assert row["static_cost"] == pytest.approx(PER_KWH * row["static_kwh"], rel=1e-6)
    watts = 3.6e6 * row["static_kwh"] / row["measured_s"]
    assert 3 * IDLE_W <= watts <= 3 * PEAK_W
    now = town.do("costs", "--output", "json").data["now"]
    assert IDLE_W + 2 * OFF_W <= now["watts"] <= PEAK_W + 2 * OFF_W
    assert (now["per_kwh"], now["trouble"]) == (PER_KWH, None)


def sums(town: Plant) -> dict[str, Any]:
    """What `trimtab costs` says of all that was measured."""
    rows = town.do("costs", "--output", "json").data["sums"]
    return dict(rows[0]) if rows else {"kwh": 1.0, "static_kwh": 1.0}


@pytest.mark.full
def test_a_node_that_does_not_wake(broker: PrivateBroker, tmp_path: Path) -> None:
    """It has failed, with what its power said; the other one takes its place; an operator has it tried again."""

    def window(day: Day) -> Mapping[str, Any]:
        return {**cautious(day), "nodes_max": 2}

    with plant(broker, tmp_path, window=window, power={"wake_limit_s": 5.0}) as town:
        broken, other = town.rest(2)
        for node in (broken, other):
            town.switches.break_wake(node, f"{DEAD_BMC} {node}")
        town.submit_all(JOBS, WORK_S)
        broken = town.until_heard("power-failed")["subject"]
        (other,) = set(town.asleep()) - {broken}
        town.switches.mend(other)

        failed = town.until_heard("node-failed")
        assert (failed["subject"], f"{DEAD_BMC} {broken}" in failed["detail"]) == (broken, True)
        row = town.do("nodes", "show", broken, "--output", "json").data["node"]
        assert (row["service"], row["wanted"]) == ("failed", True)
        assert f"exit status 7: {DEAD_BMC} {broken}" in row["failure"]
        assert f"{DEAD_BMC} {broken}" in town.do("nodes", "show", broken).out
        alarms = town.do("status", "--output", "json").data["alarms"]
        assert ("node-failed", broken) in {(alarm["what"], alarm["subject"]) for alarm in alarms}

        town.wait_for(lambda: other in serving(town), SOON_S, f"{other} in its place")
        assert broken not in serving(town)
        town.switches.mend(broken)
        town.do("nodes", "repair", broken)
        town.until_heard("node-repaired", broken)
        assert town.service("failed") == []
        assert town.do("nodes", "show", broken, "--output", "json").data["node"]["failure"] == ""
        town.all_done_once(*JOBS)
        assert town.run("nodes", "repair", "n9").status == 1


FEW, SIX = JOBS[:3], JOBS[:6]


def foreseen(day: Day) -> Mapping[str, Any]:
    """Three jobs at once are too many for a node that executes one at a time, and within the band of three a day."""
    return {"service_s": round(day.left_s / 5.0, 1), "arrivals_per_day": 3.0, "jobs_per_node": 1}


@pytest.mark.full
def test_a_controller_that_dies_while_a_node_wakes(broker: PrivateBroker, tmp_path: Path) -> None:
    """The next life goes on with the node that was on its way, with tables from the disk, and no job is lost."""
    with plant(broker, tmp_path, window=foreseen) as town:
        town.rest(2)
        town.switches.holds = True
        town.submit_all(FEW, 20.0)
        waking = town.until_heard("node-waking")["subject"]
        town.wait_for(lambda: waking in town.switches.asked("wake"), SOON_S, "the order to wake it")
        town.wait_for(town.with_tables, SOON_S, "tables")
        made = tables(town)
        controller = town.lab.controllers["c1"]
        controller.kill()
        controller.start()
        town.wait_for(lambda: len(town.heard("leading")) == 2, LIMIT_S, "the second life")
        assert made
        assert waking in town.service("waking")
        town.switches.holds = False

        town.wait_for(lambda: waking in serving(town), SOON_S, f"{waking} in service")
        town.wait_for(town.with_tables, SOON_S, "the tables")
        town.all_done_once(*FEW)
        assert town.completions() == {job: [1] for job in FEW}
        assert (second_life(town, "tables-missing"), tables(town)) == (0, made)
        assert second_life(town, "decided") > 1
        assert not town.heard("deadline-missed")


@pytest.mark.full
def test_a_controller_that_dies_while_nodes_fall_asleep(broker: PrivateBroker, tmp_path: Path) -> None:
    """They fell silent while nobody looked: the next life takes it for what was asked, and wakes them for a job."""
    with plant(broker, tmp_path, window=foreseen, holds=True) as town:
        town.wait_for(lambda: len(town.switches.asked("sleep")) == 2, SOON_S, "the orders to sleep")
        going = sorted(town.switches.asked("sleep"))
        assert town.service("standby") == going
        controller = town.lab.controllers["c1"]
        controller.kill()
        town.switches.holds = False
        town.wait_for(lambda: not any(map(town.truth_up, going)), SOON_S, "silence")
        controller.start()

        assert town.rest(2) == going
        assert town.service("off") == going
        assert sorted(town.switches.asked("sleep")) == going
        assert alarms(town) == set()
        town.submit_all(FEW, WORK_S)
        town.wait_for(lambda: set(serving(town)) & set(going), SOON_S, "one of them in service")
        town.all_done_once(*FEW)


def tables(town: Plant) -> dict[str, int]:
    """The files of tables, each with a number that another file of that name would not have."""
    return {file.name: file.stat().st_ino for file in (town.lab.folder / "tables").glob("*.table")}


def second_life(town: Plant, what: str) -> int:
    """How often the second life of the controller tells of something."""
    log = town.lab.controllers["c1"].log.read_text().partition("--- life 2")[2]
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return sum(line["event"] == "happened" and line["what"] == what for line in lines)


@pytest.mark.full
def test_a_node_whose_jobs_run_leaves_service(broker: PrivateBroker, tmp_path: Path) -> None:
    """An operator gives the window one node instead of two: its jobs go over, none twice, and the node falls asleep."""

    def two(_day: Day) -> Mapping[str, Any]:
        return {"nodes_min": 2, "nodes_max": 2}

    with plant(broker, tmp_path, window=two) as town:
        town.rest(1)
        town.submit_all(SIX, 12.0)
        homes = town.running(*(f"{job}#0" for job in SIX))
        assert len(set(homes.values())) == 2
        controller = town.lab.controllers["c1"]
        assert controller.stop() == 0
        file = town.lab.folder / "controller-c1.toml"
        file.write_text(file.read_text().replace("nodes_min = 2", "nodes_min = 1").replace("_max = 2", "_max = 1"))
        controller.start()

        (left,) = set(town.rest(2)) & set(homes.values())
        assert any(town.begun(left, kind) for kind in ("migrate", "suspend"))
        assert not town.heard("drain-failed")
        assert not town.heard("work-lost")
        town.all_done_once(*SIX)
        assert town.completions() == {job: [1] for job in SIX}


@pytest.mark.full
def test_prices_that_stop_and_go_back(broker: PrivateBroker, tmp_path: Path) -> None:
    """Each is told once, by an event and by the command, and decisions by price go on."""
    with plant(broker, tmp_path, controller={"policies": {"provisioning": "cost-aware"}}) as town:
        town.rest(2)
        write_prices(town.prices, -48, leave_out=(5,))
        stale = town.until_heard("prices-stale")
        gap = town.prices.read_text().splitlines()[1 + 48 + 5].split(",")[0]
        assert f"{town.prices}" in stale["detail"], stale
        assert gap in stale["detail"], stale
        assert str(town.prices) in costs(town)["now"]["trouble"]
        assert "prices-stale" in alarms(town)
        goes_on(town)

        write_prices(town.prices, -48)
        town.until_heard("prices-fresh")
        assert "prices-stale" not in alarms(town)
        write_prices(town.prices, -48, until_h=24, per_kwh=0.5)
        back = town.until_heard("prices-went-back")
        assert "prices were known until" in back["detail"]
        town.wait_for(lambda: costs(town)["now"]["per_kwh"] == 0.5, SOON_S, "the price of the newer file")
        assert costs(town)["now"]["trouble"] is None
        goes_on(town)
        town.prices.unlink()
        town.wait_for(lambda: len(town.heard("prices-stale")) == 2, SOON_S, "word of the file that is gone")
        goes_on(town)
        row = town.forecast()
        assert (row["tables"], row["nodes_given"]) == ("ready", 1)
        assert len(town.heard("prices-went-back")) == len(town.heard("prices-fresh")) == 1


def costs(town: Plant) -> dict[str, Any]:
    """What `trimtab costs` says."""
    return dict(town.do("costs", "--output", "json").data)


def alarms(town: Plant) -> set[str]:
    """The kinds of alarms that `trimtab status` shows."""
    return {alarm["what"] for alarm in town.do("status", "--output", "json").data["alarms"]}


def goes_on(town: Plant) -> None:
    """Two more decisions, one of which was asked for after this."""
    before = len(town.heard("decided"))
    town.wait_for(lambda: len(town.heard("decided")) >= before + 2, SOON_S, "decisions")
    assert not town.heard("decision-failed")


LOAD: Mapping[str, Any] = {
    "arrivals": {"mean_s": 60.0, "duration_s": 900.0, "profile": [2.0, -0.001]},
    "service": {"mean_s": 2.0, "distribution": "fixed"},
    "job": {"name": "load", "queue": QUEUE, "max_mhz": 1_000, "memory_mib": 500, "template": "fake:work=2000;max=1000"},
}


@pytest.mark.full
def test_a_load_by_a_profile(broker: PrivateBroker, tmp_path: Path) -> None:
    """What `trimtab load` submits is what the window counts, learns from, and has done."""
    profile = tmp_path / "load.toml"
    profile.write_text(toml(LOAD))
    with plant(broker, tmp_path) as town:
        words = ("load", str(profile), "--seed", "3", "--speed", "150", "--output", "json")
        planned = town.do(*words, "--dry-run").data
        assert town.forecast()["arrivals"]["counted"] == 0
        told = town.do(*words).data
        row = town.forecast()
        jobs = [job["name"] for job in town.do("jobs", "list", "--output", "json").data["jobs"]]
        assert planned == {**told, "submitted": 0}
        assert row["arrivals"]["counted"] == told["submitted"] == len(jobs) > 5
        assert row["days_counted"] == 0
        town.do(*words)
        assert town.forecast()["arrivals"]["counted"] == len(jobs)

        town.all_done_once(*jobs)
        town.wait_for(lambda: len(town.heard("job-completed")) == len(jobs), SOON_S, "word of all")
        row = town.forecast()
        assert row["service"]["jobs_measured"] == len(jobs)
        assert (row["jobs"], sum(slot["came"] for slot in row["arrivals"]["slots"])) == (0, len(jobs))
        assert town.do("forecast", "nowhere", "--output", "json").data["windows"] == []


# --- what cannot be -------------------------------------------------------------------------------------------------

RANGES = """
[windows.night]
submit_from = "18:00"
submit_until = "25:00"
deadline = "06:00"
timezone = "UTC"
confidence = 1
nodes_min = 0
[prices]
shape = "cubic"
[power]
sleep = "nap"
exec.wake = "reboot"
"""
MEANING = """
[policies]
provisioning = "treshold"
[windows.night]
submit_from = "18:00"
submit_until = "02:00"
deadline = "06:00"
timezone = "Europe/Nowhere"
nodes_min = 5
nodes_max = 2
analyser = "crystal-ball"
[windows.day]
queue = "night"
submit_from = "08:00"
submit_until = "12:00"
deadline = "11:00"
timezone = "UTC"
[prices]
shape = "series"
timezone = "Mars/Olympus"
[power]
driver = "exce"
[power.draw.big]
curve_w = [100]
"""
BAD = {
    "out of range": (
        RANGES,
        [
            "windows.night.submit_until",
            "windows.night.confidence",
            "windows.night.nodes_min",
            "prices.shape",
            "power.sleep",
            "power.exec.wake",
        ],
    ),
    "without a meaning": (
        MEANING,
        [
            "policies.provisioning",
            "windows.night.timezone",
            "windows.night.nodes_min",
            "windows.night.analyser",
            "windows.day.deadline",
            "windows.day.queue",
            "prices.timezone",
            "prices.file",
            "power.driver",
            "power.draw.big.curve_w",
        ],
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("more", [(), ("--check",)], ids=["start", "check"])
def test_a_configuration_that_cannot_be(case: str, more: tuple[str, ...], tmp_path: Path) -> None:
    """Exit status 2 before anything is tried, and every key that is wrong, at once."""
    text, keys = BAD[case]
    file = tmp_path / "controller.toml"
    file.write_text(text + '[bus]\nurl = "amqp://controller.c1:secret@127.0.0.1:1/"\n')
    file.chmod(0o600)

    command = [str(Path(TRIMTAB).with_name("trimtab-controller")), "--config", str(file), *more]
    said = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    assert said.returncode == 2, said
    places = [line.removeprefix(f"{file}:").partition(" (expected ")[0] for line in said.stderr.splitlines()]
    assert [re.sub(r"^(\d+:)? ", "", place).partition(":")[0] for place in places] == keys
