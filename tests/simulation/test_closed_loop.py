"""The closed loop without faults: real controller and agents do what was asked, and the figures are the truth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agents.core.settings import AgentSettings
from daemons.values.records.cluster import JobRecord
from daemons.values.settings import ControllerSettings, PolicyChoice
from shared.protocol import topology
from shared.protocol.operator_messages import CancelJob, DrainNode, SubmitJob
from shared.values.actions import ActionKind
from shared.values.jobs import Job, JobPhase, Stage
from shared.values.nodes import Node
from shared.values.operation_costs import COSTS, OperationCosts
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings, replay
from sim_backend.loop.operator import OperatorClient

NODES = tuple(Node(f"n{index}", 2, 1_000.0, memory_mib=2_000) for index in range(3))
SETTINGS = LoopSettings(ControllerSettings(placement=PolicyChoice("first-fit")), AgentSettings())


def job(name: str, submit_s: float = 10.0, run_s: float = 300.0, **more: object) -> Job:
    values: dict[str, object] = {"desired_start_s": submit_s, "submit_s": submit_s}
    return Job(name, (Stage(run_s * 1_000.0, 1_000.0, 0.0, 500),), **(values | more))  # type: ignore[arg-type]


def record(loop: ClosedLoop, name: str) -> JobRecord:
    found = loop.store.get(("job", name))
    assert isinstance(found, JobRecord)
    return found


def test_a_job_is_started_at_once_runs_its_time_and_leaves_nothing() -> None:
    loop = ClosedLoop(NODES, SETTINGS)
    loop.submit(job("one"))

    loop.run_until(400.0)

    assert loop.world.completions["one"] == [(1, 310.0)]
    assert record(loop, "one").phase is JobPhase.COMPLETED
    assert loop.operator.replies["submit-one"].done
    assert all(not hypervisor.domains for hypervisor in loop.cluster.hypervisors.values())


def test_what_agents_report_is_the_truth_and_the_truth_need_not_be_what_was_declared() -> None:
    loop = ClosedLoop(NODES, SETTINGS)
    loop.submit(job("one"), [(450_000.0, 1_000.0)])

    loop.run_until(400.0)

    assert record(loop, "one").phase is JobPhase.RUNNING
    loop.run_until(500.0)
    assert loop.world.completions["one"] == [(1, 460.0)]


def test_figures_come_from_the_first_start_operation_and_the_end_of_the_work() -> None:
    costs = OperationCosts(start_s=4.0)
    loop = ClosedLoop(NODES, replace(SETTINGS, costs=costs))
    loop.submit(job("one"))
    loop.submit(job("three", instances=3, spread=True, goal_s=100.0))

    loop.run_until(1_000.0)
    figures = loop.figures(1_000.0)

    assert (figures.jobs_submitted, figures.jobs_completed) == (2, 2)
    assert figures.mean_wait_s == 0.0
    assert figures.mean_execution_s == pytest.approx(304.0)
    assert figures.node_hours * 3600 == pytest.approx(3 * 304.0)
    assert (figures.peak_nodes, figures.goals, figures.goals_met) == (3, 1, 0)
    assert figures.operations == {"start": 2}
    assert loop.truth.actions == {"start": 4, "unpause": 3}


def test_a_drained_node_is_emptied_without_loss_of_work() -> None:
    loop = ClosedLoop(NODES, replace(SETTINGS, costs=OperationCosts(migrate_s_per_mib=0.01)))
    loop.submit(job("one"))
    loop.run_until(100.0)
    (home,) = [name for name, hypervisor in loop.cluster.hypervisors.items() if hypervisor.domains]

    loop.operator.send(DrainNode("drain", home, True))
    loop.run_until(200.0)

    assert not loop.cluster.hypervisor(home).domains
    assert loop.truth.actions == {"start": 1, "migrate": 1}
    loop.run_until(400.0)
    assert loop.world.completions["one"] == [(1, 310.0)]


def test_a_cancelled_job_ends_without_a_trace() -> None:
    loop = ClosedLoop(NODES, SETTINGS)
    loop.submit(job("one"))
    loop.engine.at(100.0, 0, lambda: loop.operator.send(CancelJob("cancel", "one")))

    loop.run_until(200.0)

    assert record(loop, "one").phase is JobPhase.CANCELLED
    assert loop.world.completions["one"] == []
    assert all(not hypervisor.domains for hypervisor in loop.cluster.hypervisors.values())
    assert loop.truth.actions[ActionKind.STOP] == 1


def test_a_submission_that_is_repeated_is_one_job_and_a_name_is_taken_once() -> None:
    loop = ClosedLoop(NODES, SETTINGS)
    loop.submit(job("one"))
    loop.run_until(20.0)

    loop.operator.send(SubmitJob("submit-one", job("one")))
    loop.operator.send(SubmitJob("another", job("one", run_s=5.0)))
    loop.run_until(400.0)

    assert loop.operator.replies["submit-one"].done
    assert not loop.operator.replies["another"].done
    assert loop.world.completions["one"] == [(1, 310.0)]


def test_a_host_that_dies_is_fenced_and_its_job_runs_again_from_its_checkpoint() -> None:
    loop = ClosedLoop(NODES, replace(SETTINGS, controller=ControllerSettings(fence_after_s=60.0)))
    loop.submit(job("one", checkpoint_mcycles=50_000.0))
    loop.run_until(200.0)
    (home,) = [name for name, hypervisor in loop.cluster.hypervisors.items() if hypervisor.domains]

    loop.host_dies(home)
    loop.run_until(1_000.0)

    ((attempt, end_s),) = loop.world.completions["one"]
    assert attempt == 2
    begun_s = loop.truth.begun["one"][1]
    assert begun_s >= 260.0
    assert end_s == pytest.approx(begun_s + 300.0 - 150.0)  # 190 s were done, 150 s of them saved


def test_without_proof_the_vms_of_a_silent_node_are_left_alone() -> None:
    loop = ClosedLoop(NODES, SETTINGS)
    loop.submit(job("one"))
    loop.run_until(100.0)
    (home,) = [name for name, hypervisor in loop.cluster.hypervisors.items() if hypervisor.domains]

    loop.agents[home].kill()
    loop.run_until(800.0)

    assert loop.truth.actions == {"start": 1}
    loop.agents[home].restart()
    loop.run_until(900.0)
    assert record(loop, "one").phase is JobPhase.COMPLETED


def test_the_standby_takes_over_and_the_job_goes_on() -> None:
    loop = ClosedLoop(NODES, replace(SETTINGS, controllers=("a", "b")))
    loop.submit(job("one"))
    loop.submit(job("two", submit_s=200.0))
    loop.run_until(100.0)
    assert (loop.store.leader, loop.store.term) == ("a", 1)

    loop.controllers["a"].kill()
    loop.run_until(600.0)

    assert (loop.store.leader, loop.store.term) == ("b", 2)
    assert loop.world.completions["one"] == [(1, 310.0)]
    assert loop.world.completions["two"] == [(1, 500.0)]


def test_what_cannot_be_decoded_is_kept_with_the_reason_and_hurts_nobody() -> None:
    loop = ClosedLoop(NODES, SETTINGS)
    loop.submit(job("one"))
    loop.run_until(5.0)
    rogue = loop.broker.connect("controller.rogue")
    rogue.publish(topology.ACTIONS, "n0", b"\xff\x00 not a message")
    rogue.publish(topology.REQUESTS, topology.CONTROLLER_QUEUE, b"")

    loop.run_until(400.0)

    assert {letter.queue for letter in loop.broker.dead_letters()} == {"controller"}  # agents write none
    assert record(loop, "one").phase is JobPhase.COMPLETED


def test_the_operator_repeats_what_nobody_answers() -> None:
    loop = ClosedLoop(NODES, SETTINGS)
    loop.submit(job("one"))
    loop.engine.at(5.0, 0, loop.controllers["a"].kill)
    loop.engine.at(6.0, 0, loop.broker.restart)
    loop.engine.at(100.0, 0, loop.controllers["a"].restart)
    client = loop.operator
    assert isinstance(client, OperatorClient)

    loop.run_until(99.0)
    assert "submit-one" in client.pending
    loop.run_until(500.0)

    assert client.replies["submit-one"].done
    assert not client.pending
    assert len(loop.world.completions["one"]) == 1


@pytest.mark.parametrize("policy", ["first-fit", "edf"])
def test_a_replay_is_the_same_every_time(policy: str) -> None:
    jobs = [job(f"j{index}", submit_s=index * 40.0, goal_s=index * 40.0 + 700.0 - index) for index in range(12)]

    def figures() -> dict[str, object]:
        outcome = replay(jobs, NODES[:1], policy=policy, costs=COSTS["paper"], window_s=5_000.0)
        return outcome.to_json() | {"wall_s": 0.0}

    first = figures()
    assert first["jobs_completed"] == 12
    assert figures() == first


def test_the_policy_is_the_one_asked_for() -> None:
    settings = replace(SETTINGS, controller=ControllerSettings(placement=PolicyChoice("edf")))
    loop = ClosedLoop(NODES, settings)
    loop.submit(job("one", goal_s=900.0))
    loop.run_until(100.0)

    policies = {r.policy for r in loop.store.records() if r.key[0] == "decision"}
    assert policies == {"edf"}
