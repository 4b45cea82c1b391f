"""What operators and faults do to a cluster of real processes: nothing is lost, nothing is done twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from shared.values.actions import ActionKind
from sim_backend.fake_server.wire import How
from tests.integration.harness import Process
from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import LIMIT_S, SOON_S, Scene, log_lines, scene


@pytest.fixture
def town(broker: PrivateBroker) -> Iterator[Scene]:
    """Three nodes and a controller that run, an operator, and a follower of events."""
    with scene(broker) as made:
        yield made


def test_an_operators_day(town: Scene) -> None:
    """Submit, watch, drain, cancel: what the command says comes true, and the events tell of it."""
    town.submit("short", work_s=15.0)
    town.submit("long", work_s=600.0, instances=2, spread=True)
    homes = town.running("short#0", "long#0", "long#1")
    assert homes["long#0"] != homes["long#1"]

    town.wait_for(lambda: as_running(town) == homes, SOON_S, "the command to show so")

    drained = homes["long#0"]
    town.do("nodes", "drain", drained)
    town.wait_for(lambda: drained not in town.homes().values(), LIMIT_S, f"{drained} to be empty")
    moved = town.running("long#0", "long#1")
    assert moved["long#0"] != moved["long#1"]

    status = town.do("status", "--output", "json").data
    assert (status["leader"], status["term"], status["alarms"]) == ("c1", 1, [])
    assert {name: count for name, count in status["nodes"]["service"].items() if count} == {
        "draining": 1,
        "in-service": 2,
    }
    town.do("jobs", "cancel", "long")
    town.wait_for(lambda: not any(vm.startswith("long#") for _, vm in town.domains()), SOON_S, "the end of long")
    town.all_done_once("short")
    assert not town.completions()["long"]
    phases = {job: town.do("jobs", "show", job, "--output", "json").data["job"]["phase"] for job in ("long", "short")}
    assert phases == {"long": "cancelled", "short": "completed"}
    expected = ["job-submitted", "node-draining", "job-cancelled", "job-completed"]
    town.wait_for(lambda: town.heard("job-completed", "short"), SOON_S, "word of the end")
    said = [(one["what"], one["subject"]) for one in town.happened() if one["what"] in expected]
    assert sorted(said) == sorted(
        [
            ("job-submitted", "short"),
            ("job-submitted", "long"),
            ("node-draining", drained),
            ("job-cancelled", "long"),
            ("job-completed", "short"),
        ]
    )
    assert town.run("jobs", "cancel", "long").status == 0  # it is so already
    again = town.run("jobs", "cancel", "short")
    assert (again.status, "job-over" in again.err) == (1, True)


def as_running(town: Scene) -> dict[str, str]:
    """Where VMs run by the command's word."""
    rows = town.do("vms", "list", "--output", "json").data["vms"]
    return {row["vm"]: row["node"] for row in rows if row["state"] == "running"}


@pytest.mark.accept
def test_a_broker_that_dies(town: Scene) -> None:
    """Killed and started again: everyone connects again, and no job is lost that ran, waited or ended meanwhile."""
    town.submit("first", work_s=8.0)
    town.submit("second", work_s=30.0, instances=2, spread=True)
    town.running("first#0", "second#0", "second#1")

    town.kill_broker()
    refused = town.run("jobs", "cancel", "first")
    assert (refused.status, "is the broker running" in refused.err) == (1, True)
    town.wait_for(lambda: town.completions()["first"], SOON_S, "the end of the first job while nobody can tell of it")
    assert set(town.homes()) == {"second#0", "second#1"}
    town.broker.start()

    town.submit("third", work_s=5.0)
    town.all_done_once("first", "second", "third")
    assert [agent.lives for agent in town.lab.agents.values()] == [1, 1, 1]
    assert "reconnected" in town.follower.log.read_text()
    town.wait_for(lambda: town.heard("job-completed", "third"), SOON_S, "events again")
    town.wait_for(lambda: len(town.told("job-completed")) == 3, SOON_S, "word of every end")


def children(process: Process) -> list[int]:
    """The living processes that a process has started, also when it has ended itself."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(group) == process.pid != int(stat.parent.name) and state != "Z":
                found.append(int(stat.parent.name))
    return found


@pytest.mark.full
def test_a_controller_that_dies_in_the_middle_of_a_plan(town: Scene) -> None:
    """Killed while the second of four VMs moves: the next life goes on with the rest and moves none of them twice."""
    jobs = ["a", "b", "c", "d"]
    for job in jobs:
        town.submit(job, work_s=40.0)
    vms = [f"{job}#0" for job in jobs]
    crowded = town.running(*vms)["a#0"]
    assert set(town.homes().values()) == {crowded}

    town.do("nodes", "drain", crowded)
    town.wait_for(lambda: len(town.begun(crowded, "migrate")) == 2, SOON_S, "the second move")
    controller = town.lab.controllers["c1"]
    assert children(controller)
    controller.kill()
    assert len(town.operations("migrate")) == 1
    town.wait_for(lambda: not children(controller), SOON_S, "the end of what it had started")
    controller.start()

    town.wait_for(lambda: crowded not in town.homes().values(), LIMIT_S, f"{crowded} to be empty")
    assert sorted(town.begun(crowded, "migrate")) == vms
    town.all_done_once(*jobs)
    assert town.completions() == {job: [1] for job in jobs}
    assert [(one["subject"], one["term"]) for one in town.heard("leading")] == [("c1", 1), ("c1", 2)]


@pytest.mark.full
def test_an_action_is_followed_by_its_id(town: Scene) -> None:
    """From the controller's order to the agent's operation and back, and into the events that the command shows."""
    town.submit("job", work_s=40.0)
    node = town.running("job#0")["job#0"]
    town.lab.fake.fail_next(node, ActionKind.MIGRATE, How.FAIL_HALF_WAY)
    town.do("nodes", "drain", node)
    (failed,) = town.wait_for(lambda: town.heard("action-failed", "job#0"), SOON_S, "the failed move")

    action = failed["detail"].split()[0]
    controller, agent = town.lab.controllers["c1"], town.lab.agents[node]
    town.wait_for(lambda: len(steps(controller, action)) == 3, SOON_S, "the controller's log")
    assert steps(controller, action) == ["order sent", "result received", "happened"]
    assert steps(agent, action) == ["order received", "operation begun", "operation ended", "result sent"]
    times = {
        (process.name, line["event"]): line["timestamp"]
        for process in (controller, agent)
        for line in log_lines(process)
        if action in (line.get("action"), *line.get("detail", "").split())
    }
    order = [
        (controller.name, "order sent"),
        (agent.name, "order received"),
        (agent.name, "operation begun"),
        (agent.name, "operation ended"),
        (agent.name, "result sent"),
        (controller.name, "result received"),
    ]
    assert [times[step] for step in order] == sorted(times[step] for step in order)

    (moved,) = town.wait_for(lambda: town.heard("vm-migrated", "job#0"), LIMIT_S, "the move that comes next")
    second = moved["detail"].split()[0]
    assert second != action
    town.wait_for(lambda: len(steps(controller, second)) == 3, SOON_S, "the controller's log")
    assert steps(controller, second) == ["order sent", "result received", "happened"]
    assert steps(agent, second) == ["order received", "operation begun", "operation ended", "result sent"]
    town.all_done_once("job")


def steps(process: Process, action: str) -> list[str]:
    """What a daemon's log says of one action, in order."""
    return [
        line["event"] for line in log_lines(process) if action in (line.get("action"), *line.get("detail", "").split())
    ]
