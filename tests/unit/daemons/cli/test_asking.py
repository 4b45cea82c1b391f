"""Lists that are too long for one message: pages in an order that holds while things change, and the commands that turn
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from daemons.cli.asking import PAGE_ROWS
from daemons.controller.core.controller import Controller
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from shared.protocol.operator_messages import CancelJob, Query, SetDeciding, SubmitJob
from shared.values.jobs import JobPhase
from shared.values.vms import VmState, VmStatus
from tests.support.controller_harness import ControllerHarness, job
from tests.support.operator_harness import Rig

Between = Callable[[], object]


def turned(
    harness: ControllerHarness, what: str, limit: int, subject: str = "", between: Between = lambda: None
) -> list[dict[str, Any]]:
    """The rows of all pages, one page after the other."""
    rows: list[dict[str, Any]] = []
    after = ""
    while True:
        reply = harness.ask(Query("q", what, subject, limit, after=after))
        assert reply.done, reply.detail
        assert len(reply.data[what]) <= limit
        rows += reply.data[what]
        after = reply.data["next"]
        if not after:
            return rows
        between()


@pytest.fixture
def harness() -> ControllerHarness:
    """Thirty jobs, every third of which is over."""
    made = ControllerHarness([f"n{number:02}" for number in range(12)]).lead()
    made.ask(SetDeciding("pause", False))
    for number in range(30):
        made.ask(SubmitJob(f"s{number}", job(f"j{number:02}")))
        if number % 3 == 0:
            made.ask(CancelJob(f"c{number}", f"j{number:02}"))
    for number in range(10):
        for node in ("n01", "n02", "n03"):
            made.vms[node][f"vm{number}"] = VmStatus(f"vm{number}", VmState.RUNNING, 0, managed=False)
    for node in ("n01", "n02", "n03"):
        made.report(node)
    return made


@pytest.mark.parametrize("what", ["jobs", "nodes", "vms"])
@pytest.mark.parametrize("limit", [1, 7, 10, 12, 30, 1000])
def test_pages_together_are_the_whole_list(harness: ControllerHarness, what: str, limit: int) -> None:
    assert turned(harness, what, limit) == harness.ask(Query("q", what, "", 1000)).data[what]


def test_pages_of_what_a_subject_chooses(harness: ControllerHarness) -> None:
    assert len(turned(harness, "jobs", 3, "cancelled")) == 10
    assert len(turned(harness, "jobs", 3, "not-over")) == 20
    assert len(turned(harness, "vms", 3, "n02")) == 10
    assert [row["name"] for row in turned(harness, "nodes", 1, "n1")] == ["n10", "n11"]


def test_no_job_is_missed_that_ends_while_pages_are_turned(harness: ControllerHarness) -> None:
    """Given jobs that end and others that come between two pages, then each of the first is on one page at least."""
    names = iter(range(30))

    def end_one() -> None:
        number = next(names)
        harness.ask(CancelJob(f"d{number}", f"j{number:02}"))
        harness.ask(SubmitJob(f"t{number}", job(f"k{number:02}")))

    found = {row["name"] for row in turned(harness, "jobs", 4, between=end_one)}

    assert found >= {f"j{number:02}" for number in range(30)}


@pytest.mark.parametrize(
    ("what", "after", "why"),
    [("status", "x", "has no pages"), ("jobs", "j03", "the `next` of a page"), ("jobs", "9" * 20, "the `next`")],
)
def test_no_page_begins_there(harness: ControllerHarness, what: str, after: str, why: str) -> None:
    reply = harness.ask(Query("q", what, after=after))

    assert reply.code == "invalid-value"
    assert why in reply.detail


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.run(30.0)
    return made


def cluster_of(rig: Rig) -> Cluster:
    core = rig.loop.controllers["a"].core
    assert isinstance(core, Controller)
    return core.cluster


def fill(rig: Rig, count: int, instances: int = 1) -> None:
    """Have the controller know many jobs that are over."""
    cluster = cluster_of(rig)
    for number in range(count):
        spec = job(f"a-name-as-long-as-they-are-in-a-large-cluster-{number:06}", instances=instances)
        cluster.add_job(
            JobEntry(spec, f"r{number}", number, accepted_s=0.0, phase=JobPhase.COMPLETED, profile="p" * 100)
        )


def test_ten_thousand_jobs_are_listed(rig: Rig) -> None:
    """Given more jobs than a message can tell, then the command tells as many as it is asked for, each once, and its
    JSON has no pages."""
    fill(rig, 11_000)

    found = rig.asked("jobs", "list", "--limit", 10_000)

    assert set(found) == {"at_s", "term", "total", "jobs"}
    assert found["total"] == 11_000
    assert len({row["name"] for row in found["jobs"]}) == len(found["jobs"]) == 10_000
    assert [row["order"] for row in found["jobs"]] == list(range(10_999, 999, -1))


def test_a_page_that_is_too_long_is_asked_for_in_shorter_ones(rig: Rig) -> None:
    """Given jobs of which not even a page fits into a message, then it takes more pages."""
    fill(rig, 1_500)
    for entry in cluster_of(rig).jobs.values():
        entry.profile = "p" * 4_000

    found = rig.asked("jobs", "list", "--limit", PAGE_ROWS)

    assert len(found["jobs"]) == PAGE_ROWS
    assert found["total"] == 1_500
