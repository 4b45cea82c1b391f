"""What workloads that are no window's hold on its nodes, and jobs that a window has left behind."""

from __future__ import annotations

import pytest

from daemons.controller.windows.node_rates import JobSize, taken_of
from shared.protocol.operator_messages import SubmitWeb
from shared.values.nodes import Node
from shared.values.vms import VmState, VmStatus
from shared.values.web_app import Flow, WebApp
from tests.support.controller_harness import ControllerHarness, job
from tests.support.window_harness import HOUR_S, WindowHarness, night

NODE = Node("n", 4, 1000.0, memory_mib=8000)
SMALL = JobSize(1000.0, 1000.0, 1)


@pytest.mark.parametrize(
    ("size", "per_node", "mhz", "mib", "share"),
    [
        (SMALL, 0, 0.0, 0.0, 0.0),
        (SMALL, 0, 1000.0, 0.0, 0.25),
        (SMALL, 0, 1000.0, 6000.0, 0.5),  # room for two by memory
        (SMALL, 0, 9000.0, 0.0, 1.0),
        (JobSize(3000.0, 1000.0, 1), 0, 0.0, 2000.0, 0.0),  # two fit, and still do
        (JobSize(3000.0, 1000.0, 1), 0, 0.0, 5000.0, 0.5),
        (JobSize(3000.0, 1000.0, 1), 0, 2000.0, 0.0, 0.0),  # two of four cores are not used by two jobs
        (SMALL, 8, 1000.0, 0.0, 0.25),  # more jobs than cores: each gets its part of what is left
        (SMALL, 2, 2000.0, 0.0, 0.0),
        (JobSize(0.0, 1000.0, 1), 0, 1000.0, 4000.0, 0.25),
        (JobSize(9000.0, 1000.0, 1), 0, 1000.0, 4000.0, 0.0),  # nothing to lose
    ],
)
def test_the_share_that_others_hold(size: JobSize, per_node: int, mhz: float, mib: float, share: float) -> None:
    """Of a node with four cores and 8,000 MiB: by the scarcer of CPU and memory."""
    assert taken_of(NODE, size, per_node, mhz, mib) == pytest.approx(share)


def test_jobs_with_goals_take_from_the_windows_nodes() -> None:
    """Given two nodes of four slots, three goal jobs on them and a stranger of half the memory of one, then the window
    has what is left of them; its own jobs take nothing from it."""
    harness = WindowHarness(nodes=("n1", "n2"))
    harness.nodes |= {name: Node(name, 4, 1000.0, memory_mib=4000) for name in harness.nodes}
    harness.lead()
    for _ in range(2):
        harness.submit()
    harness.pass_time(1.0)
    assert (harness.view().taken.tolist(), harness.view().nodes) == ([0.0, 0.0], 2)
    for index in range(3):
        harness.ask_job(job(f"goal{index}", goal_s=9e4))
    harness.pass_time(1.0)
    assert harness.view().taken.sum() == pytest.approx(0.75)
    assert harness.view().nodes == 1
    harness.vms["n2"]["other"] = VmStatus(
        "other", VmState.RUNNING, memory_mib=2000, vcpus=1, cpu_mhz=1.0, managed=False
    )
    harness.report("n2")
    assert harness.view().taken[1] >= 0.5


def test_what_an_application_is_allotted_counts_used_or_not() -> None:
    harness = WindowHarness(nodes=("n1", "n2", "n3"))
    harness.lead()
    harness.submit()
    flow = Flow("buy", mean_s=0.5, work_mcycles=20.0)
    harness.ask(SubmitWeb("web", WebApp("shop", (flow,), 200, max_mhz=2000.0, max_instances=1, vcpus=2)))
    harness.pass_time(1.0)
    given = [
        sum(each.cpu_mhz for each in replica.allotments)
        for replica in harness.controller.cluster.replicas["shop"].values()
    ]
    assert harness.view().taken.sum() == pytest.approx(sum(given) / 4000.0)
    assert given == [2000.0]


def test_jobs_of_other_windows_are_no_others() -> None:
    """Given a job in each of two windows, then neither takes from the other's nodes: they are shared by the broker."""
    day = night()
    harness = WindowHarness(day, type(day)("day", "day", day.periods, arrivals_per_day=6.0, service_s=600.0))
    harness.lead()
    harness.submit()
    harness.ask_job(job("d", queue="day"))
    harness.pass_time(1.0)
    views = harness.controller.deciding.builder.build(harness.now_s).windows
    assert [view.taken.tolist() for view in views] == [[0.0, 0.0], [0.0, 0.0]]


def queued(harness: ControllerHarness) -> dict[str, bool]:
    """Jobs as policies see them: whether an open window's queue has them."""
    work = harness.controller.deciding.builder.build(harness.now_s).workloads
    return dict(zip(work.names, work.queued.tolist(), strict=True))


@pytest.mark.full
def test_jobs_that_a_window_has_left_behind_are_its_own_no_more() -> None:
    """Given a job that is not done by noon, then it is of the queue until then, no more afterwards, when it takes from
    what the next period's jobs will have, and again from midnight on."""
    harness = WindowHarness()
    harness.lead()
    harness.submit(work=1e9)
    harness.ask_job(job("other", work=1e9))
    harness.pass_time(HOUR_S)
    assert queued(harness) == {"j1": True, "other": False}
    harness.pass_time(12 * HOUR_S)
    assert queued(harness) == {"j1": False, "other": False}
    assert harness.view().opens_s > 0.0
    assert harness.view().taken.sum() == pytest.approx(0.5)
    harness.pass_time(12 * HOUR_S)
    assert queued(harness) == {"j1": True, "other": False}
    assert (harness.view().opens_s, harness.view().taken.sum()) == (0.0, pytest.approx(0.25))
