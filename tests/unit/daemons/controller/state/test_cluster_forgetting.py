"""What retention has deleted is known no longer: not in memory, and not by its name."""

from __future__ import annotations

import gc
from contextlib import closing
from pathlib import Path

from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.state.jobs import JobEntry
from daemons.store import Retention, SqlStore
from daemons.values.records.cluster import JobRecord
from shared.base.clock import ManualClock
from shared.ports.effects import Pruned
from shared.protocol.operator_messages import CancelJob, Query, RemoveWeb, SetDeciding, SubmitJob, SubmitWeb
from shared.values.jobs import JobPhase
from tests.support.controller_harness import ControllerHarness, job
from tests.support.environment_harness import EnvironmentHarness, app
from tests.support.store_samples import sqlite_url

DAY_S = 86_400.0


def paused(nodes: tuple[str, ...] = ("n1",)) -> ControllerHarness:
    """A leader that starts nothing."""
    harness = ControllerHarness(nodes).lead()
    assert harness.ask(SetDeciding("pause", False)).done
    return harness


def over(harness: ControllerHarness, name: str) -> None:
    """A job that is over and was never anywhere."""
    assert harness.ask(SubmitJob(f"s-{name}-{harness.now_s}", job(name, memory_mib=3000))).done
    assert harness.ask(CancelJob(f"c-{name}-{harness.now_s}", name)).done


def names(harness: ControllerHarness) -> set[str]:
    return {row["name"] for row in harness.ask(Query("q", "jobs")).data["jobs"]}


def test_jobs_that_retention_deleted_are_forgotten_and_their_names_free() -> None:
    """Given jobs that were over before and after a moment, and one that waits since before, when the store has deleted
    what was over before it, then of that nothing is left, and a name of it may be used again."""
    harness = paused()
    for number in range(50):
        over(harness, f"old{number}")
    harness.ask(SubmitJob("s", job("waits")))
    harness.now_s = 100.0
    over(harness, "young")
    assert harness.ask(SubmitJob("again", job("old7"))).code == "duplicate-name"
    before = entries(JobEntry)

    harness.feed(Pruned(50.0))

    assert names(harness) == {"waits", "young"}
    assert entries(JobEntry) == before - 50
    assert harness.ask(Query("q", "status")).data["jobs"]["total"] == 2
    assert harness.ask(Query("q", "job", "old7")).code == "unknown-job"
    assert harness.ask(SubmitJob("again", job("old7"))).done
    assert names(harness) == {"waits", "young", "old7"}


def entries(kind: type) -> int:
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())


def test_what_may_be_somewhere_still_is_not_forgotten() -> None:
    """Given a job that was cancelled while its node was silent, then it is known as long as its VM may be there."""
    harness = ControllerHarness(["n1"]).lead()
    harness.ask(SubmitJob("s", job("j")))
    (order,) = harness.orders
    harness.result(order)
    harness.ask(CancelJob("c", "j"))
    harness.now_s = 100.0

    harness.feed(Pruned(50.0))

    assert names(harness) == {"j"}
    assert harness.ask(SubmitJob("again", job("j"))).code == "duplicate-name"


def test_a_name_of_a_web_application_is_free_when_its_last_instance_is_forgotten() -> None:
    harness = EnvironmentHarness(2)
    harness.lead()
    harness.ask(SubmitWeb("w", app("shop", environment="")))
    harness.finish()
    harness.ask(RemoveWeb("r", "shop"))
    harness.finish()
    harness.now_s += 100.0
    assert harness.controller.cluster.web == {}
    assert harness.ask(SubmitJob("s", job("shop"))).code == "duplicate-name"

    harness.feed(Pruned(harness.now_s - 50.0))

    assert harness.ask(SubmitJob("s", job("shop"))).done


def test_a_job_that_waits_for_a_forgotten_one_waits_as_after_a_restart() -> None:
    """Given a job after one that was cancelled and is forgotten, then it still waits for ever, until there is another
    job of that name."""
    harness = paused()
    harness.ask(SubmitJob("a", job("first")))
    harness.ask(SubmitJob("b", job("second", depends_on=("first",))))
    harness.ask(CancelJob("c", "first"))
    harness.now_s = 100.0
    harness.feed(Pruned(50.0))

    assert "job-dependency-failed" in alarms(harness)
    assert harness.ask(SubmitJob("again", job("first"))).done
    assert "job-dependency-failed" not in alarms(harness)


def alarms(harness: ControllerHarness) -> set[str]:
    return {alarm["what"] for alarm in harness.ask(Query("q", "status")).data["alarms"]}


def test_a_destroyed_environment_is_forgotten_with_what_was_promised_to_it() -> None:
    made = EnvironmentHarness(4)
    made.lead()
    made.open("web", "web", lower=1)
    made.destroy("web")
    made.finish()
    made.open("hpc", lower=1)
    made.now_s += 100.0
    assert made.states() == {"web": "destroyed", "hpc": "running"}
    before = entries(EnvironmentEntry)

    made.feed(Pruned(made.now_s - 50.0))

    assert made.states() == {"hpc": "running"}
    assert entries(EnvironmentEntry) == before - 1
    assert made.create("web", "batch", lower=1).done


def test_the_core_forgets_what_the_store_deletes(tmp_path: Path) -> None:
    """Given jobs in every state of being over, then the rule by which the core forgets is the one by which the store
    deletes: afterwards a new leader knows the same jobs."""
    harness = paused()
    for number, finished_s in enumerate((10.0, 20.0, 30.0, 29.0 * DAY_S, 31.0 * DAY_S)):
        harness.now_s = finished_s
        over(harness, f"job{number}")
    harness.now_s = 31.0 * DAY_S
    harness.ask(SubmitJob("s", job("waits")))
    keep, now_s = Retention(), 31.0 * DAY_S
    with closing(SqlStore(sqlite_url(tmp_path / "store.db"), ManualClock(now_s))) as store:
        store.write(store.take_lead("a").term, tuple(harness.store.take_lead("a").image))
        assert store.prune(keep).jobs == 3
        image = store.take_lead("b").image

    harness.feed(Pruned(keep.jobs_before_s(now_s)))

    assert names(harness) == {record.job.name for record in image if isinstance(record, JobRecord)}
    assert {entry.phase for entry in harness.controller.cluster.jobs.values()} >= {JobPhase.CANCELLED}
