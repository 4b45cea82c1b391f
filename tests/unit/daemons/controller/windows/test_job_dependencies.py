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
    desk = WindowHarness()
    desk.lead()
    desk.submit("first", **free())
    desk.submit("gone", **free())
    desk.cancel("gone")

    unknown = desk.submit("second", **free(after=("frist",)))
    over = desk.submit("second", **free(after=("gone",)))

    assert (unknown.code, over.code) == ("unknown-job", "job-over")
    assert "'first'" in unknown.detail
    with pytest.raises(InvalidValue, match="after"):
        job("self", after=("self",))


def test_a_blocked_job_is_not_offered_to_placement() -> None:
    """Given a job after a running one, then no policy sees it, nothing is started, and its view says what it awaits."""
    desk = WindowHarness()
    desk.lead()
    desk.submit("first", **free())
    desk.submit("second", **free(after=("first",)))
    desk.pass_time(HOUR_S)

    row = desk.ask(Query("q", "job", "second")).data["job"]

    assert "second" not in desk.controller.deciding.builder.build(desk.now_s).workloads.names
    assert desk.phase("second") == "waiting"
    assert (row["waits_for"]["code"], row["waits_for"]["text"]) == ("after", "after first")


def test_the_last_completion_releases_it_at_once() -> None:
    """Given a job after two, then it is started in the instant in which the second of them is completed."""
    desk = WindowHarness()
    desk.lead()
    desk.submit("a", **free())
    desk.submit("b", **free())
    desk.submit("both", **free(after=("a", "b")))
    desk.obey()
    desk.report("n1")
    desk.finish("a")
    assert desk.phase("both") == "waiting"

    desk.finish("b")

    assert desk.phase("both") == "running"
    assert desk.told("job-released") == ["after b"]


def test_one_after_a_completed_job_does_not_wait() -> None:
    """Given a job that names a completed one, then it is started like any other."""
    desk = WindowHarness()
    desk.lead()
    desk.submit("a", **free())
    desk.obey()
    desk.finish("a")
    desk.submit("b", **free(after=("a",)))

    assert desk.phase("b") == "running"


def test_a_cancelled_predecessor_holds_it_for_ever_and_tells() -> None:
    """Given a chain whose first job is cancelled, then the second stays blocked, with an event and an alarm, until
    it is cancelled too."""
    desk = WindowHarness()
    desk.lead()
    desk.submit("a", **free())
    desk.submit("b", **free(after=("a",)))
    desk.submit("c", **free(after=("b",)))
    desk.cancel("a")
    desk.pass_time(HOUR_S)

    alarms = desk.ask(Query("q", "status")).data["alarms"]

    assert desk.told("job-waits-for-ever") == ["job 'a', which it waits for, is cancelled"]
    assert [(alarm["what"], alarm["subject"]) for alarm in alarms] == [("job-waits-for-ever", "b")]
    assert desk.phase("b") == desk.phase("c") == "waiting"
    desk.cancel("b")
    assert len(desk.told("job-waits-for-ever")) == 2


def test_a_successor_controller_knows_who_waits() -> None:
    """Given a controller that is replaced while a job waits, then the next one releases it."""
    desk = WindowHarness()
    desk.lead()
    desk.submit("a", **free())
    desk.submit("b", **free(after=("a",)))
    desk.obey()
    later = WindowHarness(store=desk.store)
    later.now_s, later.vms, later.boots = 60.0, desk.vms, desk.boots
    later.seqs = {name: seq + 10 for name, seq in desk.seqs.items()}
    later.lead()
    assert later.phase("b") == "waiting"

    later.finish("a")

    assert later.phase("b") == "running"


def test_a_predecessor_that_is_lost_is_awaited_again() -> None:
    """Given a running predecessor whose node is proven off, then its successor goes on waiting for its next attempt."""
    desk = WindowHarness()
    desk.lead()
    desk.submit("a", **free())
    desk.submit("b", **free(after=("a",)))
    desk.obey()
    node = desk.controller.cluster.jobs["a"].allotments[0].node
    desk.wait(20.0, [name for name in desk.nodes if name != node])
    desk.vms[node] = {}
    desk.ask(ConfirmOff("off", node))
    desk.obey()

    assert desk.phase("b") == "waiting"
    desk.finish("a")
    assert desk.phase("b") == "running"


def test_releases_are_expected_one_after_the_other() -> None:
    """Given a chain of three hours and a diamond, then each is expected when the slowest before it can be done."""
    desk = WindowHarness()
    desk.lead()
    desk.submit("a", **free())
    desk.submit("b", **free(after=("a",), work=2 * WORK))
    desk.submit("c", **free(after=("a",)))
    desk.submit("d", **free(after=("b", "c")))
    successors = parts.windows(desk.controller).successors

    releases = successors.releases_s(desk.now_s)

    assert releases == {"b": HOUR_S, "c": HOUR_S, "d": 3 * HOUR_S}


def test_what_is_never_released_is_not_expected() -> None:
    """Given a chain behind a cancelled job, then none of it is ever expected."""
    desk = WindowHarness()
    desk.lead()
    desk.submit("a", **free())
    desk.submit("b", **free(after=("a",)))
    desk.submit("c", **free(after=("b",)))
    desk.cancel("a")

    releases = parts.windows(desk.controller).successors.releases_s(0.0)

    assert set(releases.values()) == {float("inf")}


def test_long_chains_are_walked() -> None:
    """Given 3,000 jobs each after the one before, then the last is expected after all of them."""
    cluster = Cluster(0.0)
    successors = DependencyGraph(cluster, UnitOfWork())
    before: tuple[str, ...] = ()
    for index in range(3_000):
        entry = JobEntry(job(f"j{index}", work=1e6, after=before), "", index, accepted_s=0.0, awaits=before)
        cluster.jobs[entry.job.name] = entry
        successors.watch(entry)
        before = (entry.job.name,)

    assert successors.releases_s(0.0)["j2999"] == pytest.approx(2_999_000.0)


def test_a_blocked_job_counts_only_from_its_expected_release() -> None:
    """Given a job of a window after one of another kind that runs for two hours, then it is not in its queue, but among
    the arrivals of the interval in which it is expected, also when the controller changes."""
    desk = WindowHarness()
    desk.lead()
    desk.submit("before", **free(work=2.1 * WORK))
    desk.submit("own", after=("before",))
    parts.windows(desk.controller).cycle(desk.now_s)

    view = desk.view()

    assert view.jobs == 0
    assert view.arrivals[8, 0] == pytest.approx(1.25)
    assert view.arrivals.sum() == pytest.approx(7.0)


def test_releases_stand_while_they_are_about_right() -> None:
    """Given a blocked job among many, then its release an interval later than expected changes no forecast, so that
    tables stay valid; its real release takes it out of them."""
    desk = WindowHarness()
    desk.lead()
    for _ in range(20):
        desk.submit(work=1e8)
    desk.submit("before", **free(work=2.1 * WORK))
    desk.submit("own", after=("before",))
    desk.pass_time(900.0)
    first = desk.window.releases
    desk.pass_time(900.0)

    assert desk.window.releases == first
