"""Coordination live: the paper's order of events, with a controller on a desk."""

from __future__ import annotations

from tests.unit.coordination_desk import HOUR_S, KILL, CoordinationDesk


def test_fixed_bounds_follow_the_papers_order() -> None:
    desk = CoordinationDesk(10).begin()
    desk.pair(6, 4)
    assert desk.sizes() == {"hpc": 10, "shop": 0}
    desk.app("site", 3)
    assert desk.held() == {"hpc": 7, "shop": 3}
    desk.demand("site", 1)
    assert desk.held() == {"hpc": 7, "shop": 1}  # what the web gives back waits for the provider's timer
    desk.demand("site", 4)  # the provider's idle nodes come first, then idle ones of the batch side
    assert desk.held() == {"hpc": 6, "shop": 4}
    desk.demand("site", 2)
    desk.pass_time(HOUR_S)
    assert desk.held() == {"hpc": 8, "shop": 2} == desk.sizes()
    assert desk.controller.cluster.seats_wanted("site") == 2


def test_web_growth_suspends_the_smallest_job_first_and_then_the_one_that_started_last() -> None:
    desk = CoordinationDesk(10).begin()
    hpc, _ = desk.pair(6, 4)
    for name, size in (("large", 4), ("early", 2), ("late", 2), ("small", 1)):
        desk.submit(name, size)
        desk.pass_time(60.0)
    desk.app("site", 1)  # an idle node does
    assert set(desk.phases().values()) == {"running"}
    desk.demand("site", 2)
    assert [event.subject for event in desk.happenings("job-suspended-for-environment")] == ["small"]
    desk.demand("site", 3)
    assert [event.subject for event in desk.happenings("job-suspended-for-environment")] == ["small", "late"]
    assert hpc.suspended == 2
    assert desk.held() == {"hpc": 7, "shop": 3}
    assert desk.phases() == {"large": "running", "early": "running", "late": "suspended", "small": "running"}


def test_killed_jobs_go_back_to_their_place_and_their_work_is_counted_as_lost() -> None:
    desk = CoordinationDesk(4).begin()
    hpc, _ = desk.pair(3, 1, batch=KILL)
    desk.submit("wide", 2)
    desk.submit("first", 2)
    desk.submit("second", 2)
    killed = desk.controller.cluster.jobs["first"]
    for instance in killed.instances:
        instance.done_mcycles = 3_600_000.0
    desk.app("site", 1)
    assert hpc.killed == 1
    assert hpc.suspended == 0
    assert hpc.lost_node_hours == 2.0
    assert desk.phases() == {"wide": "running", "first": "waiting", "second": "waiting"}
    desk.demand("site", 0)
    desk.pass_time(HOUR_S)
    assert desk.phases() == {"wide": "running", "first": "running", "second": "waiting"}
    assert killed.attempt == 2
    assert killed.failures == 0
