"""Jobs that wait for jobs: refused, held back, released, stranded, and when they are expected."""

from __future__ import annotations

from typing import Any

import pytest

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.windows.job_dependencies import DependencyGraph
from shared.base.errors import InvalidValue
from shared.protocol.operator_messages import ConfirmOff, Query
from tests.support import parts
from tests.support.controller_harness import job
from tests.support.window_harness import HOUR_S, WindowHarness

WORK = 3.6e6  # an hour at the 1,000 MHz that a job can use


def free(**fields: Any) -> dict[str, Any]:
    """A job that is in no queue."""
    return {"queue": "", "work": WORK} | fields


def test_unknown_predecessors_are_refused() -> None:
    """Given a job after one that was never submitted, then it is refused and nearest names are told; so is one after a
    job that will never be completed. Nobody can wait in a circle."""
    harness = WindowHarness()
    harness.lead()
    harness.submit("first", **free())
    harness.submit("gone", **free())
    harness.cancel("gone")

    unknown = harness.submit("second", **free(depends_on=("frist",)))
    over = harness.submit("second", **free(depends_on=("gone",)))

    assert (unknown.code, over.code) == ("unknown-job", "job-over")
    assert "'first'" in unknown.detail
    with pytest.raises(InvalidValue, match="depends_on"):
        job("self", depends_on=("self",))


def test_a_blocked_job_is_not_offered_to_placement() -> None:
    """Given a job after a running one, then no policy sees it, nothing is started, and its view says what it awaits."""
    harness = WindowHarness()
    harness.lead()
    harness.submit("first", **free())
    harness.submit("second", **free(depends_on=("first",)))
    harness.pass_time(HOUR_S)

    row = harness.ask(Query("q", "job", "second")).data["job"]

    assert "second" not in harness.controller.deciding.builder.build(harness.now_s).workloads.names
    assert harness.phase("second") == "waiting"
    assert (row["waits_for"]["code"], row["waits_for"]["text"]) == ("after", "after first")


def test_the_last_completion_releases_it_at_once() -> None:
    """Given a job after two, then it is started in the instant in which the second of them is completed."""
    harness = WindowHarness()
    harness.lead()
    harness.submit("a", **free())
    harness.submit("b", **free())
    harness.submit("both", **free(depends_on=("a", "b")))
    harness.obey()
    harness.report("n1")
    harness.finish("a")
    assert harness.phase("both") == "waiting"

    harness.finish("b")

    assert harness.phase("both") == "running"
    assert harness.told("job-unblocked") == ["after b"]


def test_one_after_a_completed_job_does_not_wait() -> None:
    """Given a job that names a completed one, then it is started like any other."""
    harness = WindowHarness()
    harness.lead()
    harness.submit("a", **free())
    harness.obey()
    harness.finish("a")
    harness.submit("b", **free(depends_on=("a",)))

    assert harness.phase("b") == "running"


def behind_a_cancelled_job() -> WindowHarness:
    """A chain of three jobs of which the first is cancelled."""
    harness = WindowHarness()
    harness.lead()
    harness.submit("a", **free())
    harness.submit("b", **free(depends_on=("a",)))
    harness.submit("c", **free(depends_on=("b",)))
    harness.cancel("a")
    return harness


def test_a_cancelled_predecessor_holds_it_for_ever_and_tells() -> None:
    """Given a chain whose first job is cancelled, then the second stays blocked, with an event and an alarm, until
    it is cancelled too."""
    harness = behind_a_cancelled_job()
    harness.pass_time(HOUR_S)

    alarms = harness.ask(Query("q", "status")).data["alarms"]

    assert harness.told("job-dependency-failed") == ["job 'a', which it waits for, is cancelled"]
    assert [(alarm["what"], alarm["subject"]) for alarm in alarms] == [("job-dependency-failed", "b")]
    assert harness.phase("b") == harness.phase("c") == "waiting"
    harness.cancel("b")
    assert len(harness.told("job-dependency-failed")) == 2


def test_a_successor_controller_knows_who_waits() -> None:
    """Given a controller that is replaced while a job waits, then the next one releases it."""
    harness = WindowHarness()
    harness.lead()
    harness.submit("a", **free())
    harness.submit("b", **free(depends_on=("a",)))
    harness.obey()
    later = WindowHarness(store=harness.store)
    later.now_s, later.vms, later.boots = 60.0, harness.vms, harness.boots
    later.seqs = {name: seq + 10 for name, seq in harness.seqs.items()}
    later.lead()
    assert later.phase("b") == "waiting"

    later.finish("a")

    assert later.phase("b") == "running"


def test_a_predecessor_that_is_lost_is_awaited_again() -> None:
    """Given a running predecessor whose node is proven off, then its successor goes on waiting for its next attempt."""
    harness = WindowHarness()
    harness.lead()
    harness.submit("a", **free())
    harness.submit("b", **free(depends_on=("a",)))
    harness.obey()
    node = harness.controller.cluster.jobs["a"].allotments[0].node
    harness.wait(20.0, [name for name in harness.nodes if name != node])
    harness.vms[node] = {}
    harness.ask(ConfirmOff("off", node))
    harness.obey()

    assert harness.phase("b") == "waiting"
    harness.finish("a")
    assert harness.phase("b") == "running"


def test_releases_are_expected_one_after_the_other() -> None:
    """Given a chain of three hours and a diamond, then each is expected when the slowest before it can be done."""
    harness = WindowHarness()
    harness.lead()
    harness.submit("a", **free())
    harness.submit("b", **free(depends_on=("a",), work=2 * WORK))
    harness.submit("c", **free(depends_on=("a",)))
    harness.submit("d", **free(depends_on=("b", "c")))
    successors = parts.windows(harness.controller).successors

    releases = successors.releases_s(harness.now_s)

    assert releases == {"b": HOUR_S, "c": HOUR_S, "d": 3 * HOUR_S}


def test_what_is_never_released_is_not_expected() -> None:
    """Given a chain behind a cancelled job, then none of it is ever expected."""
    harness = behind_a_cancelled_job()

    releases = parts.windows(harness.controller).successors.releases_s(0.0)

    assert set(releases.values()) == {float("inf")}


def test_long_chains_are_walked() -> None:
    """Given 3,000 jobs each after the one before, then the last is expected after all of them."""
    cluster = Cluster(0.0)
    successors = DependencyGraph(cluster, UnitOfWork())
    before: tuple[str, ...] = ()
    for index in range(3_000):
        entry = JobEntry(job(f"j{index}", work=1e6, depends_on=before), "", index, accepted_s=0.0, awaits=before)
        cluster.jobs[entry.job.name] = entry
        successors.watch(entry)
        before = (entry.job.name,)

    assert successors.releases_s(0.0)["j2999"] == pytest.approx(2_999_000.0)


def test_a_blocked_job_counts_only_from_its_expected_release() -> None:
    """Given a job of a window after one of another kind that runs for two hours, then it is not in its queue, but among
    the arrivals of the interval in which it is expected, also when the controller changes."""
    harness = WindowHarness()
    harness.lead()
    harness.submit("before", **free(work=2.1 * WORK))
    harness.submit("own", depends_on=("before",))
    parts.windows(harness.controller).cycle(harness.now_s)

    view = harness.view()

    assert view.jobs == 0
    assert view.arrivals[8, 0] == pytest.approx(1.25)
    assert view.arrivals.sum() == pytest.approx(7.0)


def test_releases_stand_while_they_are_about_right() -> None:
    """Given a blocked job among many, then its release an interval later than expected changes no forecast, so that
    tables stay valid; its real release takes it out of them."""
    harness = WindowHarness()
    harness.lead()
    for _ in range(20):
        harness.submit(work=1e8)
    harness.submit("before", **free(work=2.1 * WORK))
    harness.submit("own", depends_on=("before",))
    harness.pass_time(900.0)
    first = harness.window.releases
    harness.pass_time(900.0)

    assert harness.window.releases == first
