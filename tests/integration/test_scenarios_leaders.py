"""Two controllers on one PostgreSQL: a leader that is frozen for a minute comes back to find that it leads no more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.runtime.shell import BEGIN_ANEW
from tests.integration.harness import CLOCK, QUICK_LEADERS
from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import LIMIT_S, SOON_S, Scene, log_lines, scene
from tests.integration.test_postgresql import Cluster, cluster

__all__ = ["cluster"]  # a fixture

FROZEN_S = 60.0


@pytest.fixture
def town(broker: PrivateBroker, cluster: Cluster) -> Iterator[Scene]:
    """Three nodes and two controllers, of which c1 leads."""
    two = ("c1", "c2")
    with scene(broker, controllers=two, store=cluster.new_url(), controller=QUICK_LEADERS, supervised=False) as made:
        yield made


@pytest.mark.full
def test_a_leader_that_is_frozen(town: Scene) -> None:
    """The standby takes over and goes on with the plan; the old leader ends itself and sends no order any more."""
    old, new = town.lab.controllers["c1"], town.lab.controllers["c2"]
    for job in ("a", "b"):
        town.submit(job, work_s=90.0)
    crowded = town.running("a#0", "b#0")["a#0"]
    town.do("nodes", "drain", crowded)
    town.wait_for(lambda: town.operations("migrate"), SOON_S, "the first move")
    old.freeze()
    frozen_s = CLOCK.monotonic_s()
    sent = orders(old.log.read_text())

    town.wait_for(lambda: town.heard("leading", "c2"), LIMIT_S, "the standby to lead")
    town.submit("c", work_s=5.0)
    town.wait_for(lambda: town.heard("job-completed", "c"), LIMIT_S, "a job under the new leader")
    town.wait_for(lambda: crowded not in town.homes().values(), LIMIT_S, f"{crowded} to be empty")
    assert old.alive
    town.watch(frozen_s + FROZEN_S - CLOCK.monotonic_s(), lambda: not town.heard("leading", "c1")[1:], "one new leader")
    old.thaw()

    assert old.wait(SOON_S) == BEGIN_ANEW
    assert orders(old.log.read_text()) == sent
    (why,) = [line["reason"] for line in log_lines(old) if line["event"] == "ending"]
    assert why
    old.start()
    town.do("jobs", "cancel", "b")
    town.wait_for(lambda: set(town.homes()) == {"a#0"}, SOON_S, "the end of b")
    town.all_done_once("a", "c", timeout_s=2 * LIMIT_S)
    assert town.completions() == {"a": [1], "b": [], "c": [1]}
    assert [(one["subject"], one["term"]) for one in town.heard("leading")] == [("c1", 1), ("c2", 2)]
    assert sorted(town.begun(crowded, "migrate")) == ["a#0", "b#0"]
    assert (old.alive, new.lives) == (True, 1)


def orders(log: str) -> int:
    """How many orders a controller's log says that it has sent."""
    return log.count('"order sent"')


@pytest.mark.full
def test_a_database_that_dies(town: Scene, cluster: Cluster) -> None:
    """Nothing new is done while it is away, what runs goes on, and the next leader carries out what was asked for."""
    town.submit("runs", work_s=8.0)
    town.running("runs#0")
    cluster.stop()
    waiting = town.run("jobs", "submit", str(town.job_file("waits", 1.0)), "--timeout", "3")
    assert (waiting.status, "may still be carried out" in waiting.err) == (1, True)
    town.wait_for(lambda: town.completions()["runs"], SOON_S, "the end of what ran")
    leader = town.lab.controllers["c1"]
    assert leader.wait(SOON_S) == BEGIN_ANEW
    assert "see that the server runs" in leader.log.read_text()
    cluster.start()
    leader.start()

    town.all_done_once("runs", "waits")
    town.wait_for(lambda: town.told("job-completed") == {"runs", "waits"}, SOON_S, "word of both ends")
    assert [one["term"] for one in town.heard("leading")] == [1, 2]
