"""Deadline windows, live: what policies see, how data are acquired, when forecasts change, which alarms are raised."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from daemons.controller.windows.windows import endangered
from daemons.models.deadline.phases import Phases
from daemons.models.deadline.service_times import unavoidable
from daemons.values.records.cluster import ServedJob
from daemons.values.settings import Removal, ServiceModel
from shared.policy_api.decision import ProvisioningDecision, Reason, ReasonCode, WindowSize
from shared.policy_api.snapshot import WindowView, WorkloadState
from shared.protocol.operator_messages import Query
from shared.values.jobs import Job, Stage
from shared.values.nodes import Node
from tests.support import parts
from tests.support.window_harness import DAY_S, HOUR_S, WindowHarness, night

QUARTER_S = 900.0


def sized(jobs: int = 10, nodes: int = 2, wanted: int = 2, breach: tuple[float, ...] = (0.5, 0.2)) -> WindowSize:
    """What a decision gave the window."""
    return WindowSize("night", jobs, nodes, wanted, breach, Reason(ReasonCode.PROMISE))


def decide(harness: WindowHarness, size: WindowSize) -> None:
    """A decision gives the window a size."""
    decision = ProvisioningDecision((), Reason(ReasonCode.PROMISE), windows=(size,))
    parts.windows(harness.controller).decided(decision, harness.now_s)
    harness.report("n1")


# --- what policies see -----------------------------------------------------------------------------------------------


def test_policies_see_an_open_window() -> None:
    """Given a window of 12 hours with one declared arrival an hour, three jobs and two nodes of four slots, then its
    view has 48 intervals, a quarter of an arrival in each of the first 24, and all numbers of jobs and nodes."""
    harness = WindowHarness()
    harness.lead()
    for _ in range(3):
        harness.submit()

    view = harness.view()

    assert (view.interval, view.intervals, view.interval_s, view.opens_s) == (0, 48, QUARTER_S, 0.0)
    assert view.arrivals[:, 0] == pytest.approx(np.repeat([0.25, 0.0], 24))
    assert (view.jobs, view.service_s, view.slots, view.nodes) == (3, 600.0, 4, 2)
    assert view.rate.tolist() == [1.0, 1.0]


def test_the_interval_never_says_that_more_time_is_left() -> None:
    """Given moments within a period, then as many whole intervals are left as the view says, to within a hundredth;
    with less than one left it is the last."""
    harness = WindowHarness()
    harness.lead()
    left = []
    for hours in (0.0, 1.0, 1.01, 11.75, 11.9):
        harness.now_s = hours * HOUR_S
        view = harness.view()
        left.append(view.intervals - view.interval)

    assert left == [48, 44, 43, 1, 0]


def test_a_window_is_seen_a_day_before_it_opens() -> None:
    """Given a window that is over until the next midnight, then its next period is seen with all its intervals."""
    harness = WindowHarness()
    harness.lead()
    harness.pass_time(13 * HOUR_S)

    view = harness.view()

    assert (view.opens_s, view.interval, view.intervals) == (11 * HOUR_S, 0, 48)
    assert view.arrivals.sum() > 0.0


def test_windows_that_open_later_are_not_seen() -> None:
    """Given a window of another day of the week, then policies are not shown it."""
    harness = WindowHarness(night(times=("00:00", "06:00", "12:00")))
    harness.lead()
    harness.entry.change(opens_s=3 * DAY_S, submit_until_s=3.25 * DAY_S, deadline_s=3.5 * DAY_S)

    assert harness.controller.deciding.builder.build(harness.now_s).windows == ()


def test_nodes_are_worth_what_they_execute() -> None:
    """Given nodes of four, eight and no slots for its jobs, by cores and by memory, then the smaller of those that can
    hold a job is the reference, the larger is worth two, and the last nothing."""
    harness = WindowHarness(nodes=("n1", "n2", "n3"))
    harness.nodes |= {"n2": Node("n2", 8, 1000.0, memory_mib=16_000), "n3": Node("n3", 8, 1000.0, memory_mib=900)}
    harness.lead()
    harness.submit()

    view = harness.view()

    assert view.rate.tolist() == [1.0, 2.0, 0.0]
    assert (view.slots, view.nodes) == (4, 3)


def test_faster_nodes_are_worth_more() -> None:
    """Given jobs that can use two GHz and nodes of one and of two, then the faster one is worth two."""
    harness = WindowHarness()
    harness.nodes["n2"] = Node("n2", 4, 2000.0, memory_mib=4000)
    harness.lead()
    harness.ask_job(Job("fast", (Stage(1e6, 2000.0, memory_mib=1000),), queue="night"))

    assert harness.view().rate.tolist() == [1.0, 2.0]


def test_the_usual_size_of_jobs_stands_while_it_is_about_right() -> None:
    """Given jobs of which five fit a node, then a few slightly smaller ones change nothing, many larger ones do."""
    harness = WindowHarness()
    harness.nodes |= {name: Node(name, 8, 1000.0, memory_mib=5000) for name in harness.nodes}
    harness.lead()
    slots = []
    for count, memory_mib in ((5, 1000), (8, 910), (20, 2500)):
        for _ in range(count):
            harness.submit(memory_mib=memory_mib)
        slots.append(harness.view().slots)

    assert slots == [5, 5, 2]


def test_jobs_per_node_may_be_configured() -> None:
    """Given two jobs for each node, then that is what a node executes, whatever its cores."""
    harness = WindowHarness(night(jobs_per_node=2))
    harness.lead()
    harness.submit()

    assert harness.view().slots == 2


# --- submitting ------------------------------------------------------------------------------------------------------


def test_an_unknown_queue_is_refused() -> None:
    """Given a job for a queue that no window has, then the refusal lists those there are."""
    harness = WindowHarness()
    harness.lead()

    reply = harness.submit(queue="nigth")

    assert (reply.done, reply.code) == (False, "unknown-queue")
    assert "'night'" in reply.detail


@pytest.mark.full
@pytest.mark.parametrize("hour", [7.0, 13.0])
def test_a_closed_queue_is_refused_with_its_opening(hour: float) -> None:
    """Given a job after the submission period or after the deadline, then the refusal says when it opens."""
    harness = WindowHarness()
    harness.lead()
    harness.pass_time(hour * HOUR_S)

    reply = harness.submit()

    assert reply.code == "queue-closed"
    assert "1970-01-02 00:00 +0000 (UTC)" in reply.detail


# --- data acquisition ------------------------------------------------------------------------------------------------


def test_only_running_counts_as_service() -> None:
    """Given a job that waits for 20 minutes, runs for ten and is completed, then ten minutes at its speed count."""
    harness = WindowHarness(nodes=("n1",))
    harness.lead()
    for index in range(4):
        harness.submit(f"first{index}", memory_mib=900)
    harness.obey()
    harness.submit("late", memory_mib=900)
    harness.pass_time(1200.0)
    harness.finish("first0")
    harness.pass_time(600.0)
    harness.finish("late")

    work = {round(served.finished_s): served.mcycles for served in harness.window.served}

    assert work == {1200: 1200.0 * 1000.0, 1800: 600.0 * 1000.0}


@pytest.mark.full
def test_arrivals_are_counted_by_slot_and_kept_for_the_forecast() -> None:
    """Given jobs in the first and third hour, then after the deadline that day's counts are history, and the next
    forecast expects more in those hours than it did."""
    harness = WindowHarness()
    harness.lead()
    before = harness.window.rates
    for _ in range(3):
        harness.submit()
    harness.pass_time(2 * HOUR_S + 60.0)
    for _ in range(4):
        harness.submit()
    harness.pass_time(11 * HOUR_S)

    day = harness.window.days[0]

    assert (day.counts[0], day.counts[8], sum(day.counts)) == (3, 4, 7)
    assert day.exposure == (1.0,) * 24
    assert harness.window.opens_s == DAY_S
    assert harness.window.rates[0] > before[0]
    assert harness.window.rates[20] < before[20]


def test_a_forecast_stands_for_its_period() -> None:
    """Given arrivals as expected, then forecast and view are the same until the deadline, so that tables stay valid."""
    harness = WindowHarness()
    harness.lead()
    harness.submit("a", work=1e7)
    harness.pass_time(QUARTER_S)
    first = harness.view()
    for _ in range(5):
        harness.pass_time(HOUR_S)
        harness.submit(work=1e7)

    last = harness.view()

    assert last.arrivals.tolist() == first.arrivals.tolist()
    assert (last.service_s, last.slots) == (first.service_s, first.slots)
    assert harness.told("forecast-left-band") == []


@pytest.mark.full
def test_more_arrivals_than_foreseen_raise_the_forecast() -> None:
    """Given 60 jobs where 0.25 were expected, then an event tells it, later intervals expect more, and some of the
    raise is remembered for the next day."""
    harness = WindowHarness()
    harness.lead()
    for _ in range(60):
        harness.submit()
    expected = harness.view().arrivals.sum()
    harness.pass_time(QUARTER_S)

    told = harness.told("forecast-left-band")
    raised = harness.view().arrivals.sum()
    harness.pass_time(12 * HOUR_S)

    assert len(told) == 1
    assert told[0].startswith("60 jobs came in")
    assert raised > 10 * expected
    assert 1.0 < harness.window.arrivals_margin <= 4.0
    assert harness.window.arrivals_factor == 1.0


def test_a_margin_shrinks_while_forecasts_hold() -> None:
    """Given a remembered margin and a day without surprises, then half of it is left."""
    harness = WindowHarness(night(arrivals_per_day=0.0))
    harness.lead()
    harness.entry.change(arrivals_margin=2.0, service_margin=1.03)

    harness.pass_time(12 * HOUR_S)

    assert (harness.window.arrivals_margin, harness.window.service_margin) == (1.5, 1.0)


@pytest.mark.full
def test_longer_jobs_than_foreseen_raise_the_service_time() -> None:
    """Given 16 jobs of two hours where ten minutes were always true, then an event tells it, and policies see a longer
    service time for the rest of the period."""
    harness = WindowHarness(night(arrivals_per_day=60.0, jobs_per_node=8), nodes=("n1", "n2", "n3", "n4"))
    harness.lead()
    harness.entry.change(mcycles=6e5, mcycles_error=0.02, mcycles_cv=1.0)
    for index in range(16):
        harness.submit(f"j{index}", memory_mib=900)
    harness.obey()
    harness.pass_time(2 * HOUR_S - 60.0)
    for index in range(16):
        harness.finish(f"j{index}")
    before_s = harness.view().service_s
    harness.pass_time(QUARTER_S)

    assert any("Mcycles" in told for told in harness.told("forecast-left-band"))
    assert harness.view().service_s > 2.5 * before_s


def test_a_raised_service_time_is_lowered_when_short_jobs_follow() -> None:
    """Given a few long jobs in the morning, when many short ones have been done since, then what was raised is lowered
    again, and not below what was foreseen."""
    harness = WindowHarness(night(arrivals_per_day=400.0, jobs_per_node=8), nodes=("n1", "n2", "n3", "n4"))
    harness.lead()
    harness.entry.change(mcycles=6e5, mcycles_error=0.1, mcycles_cv=1.0)
    served = [ServedJob(harness.entry.record.opens_s + 60.0, 6e6, "", "") for _ in range(10)]
    harness.entry.change(served=tuple(served))
    harness.pass_time(QUARTER_S)
    raised = harness.entry.record.service_factor
    assert raised > 1.5
    served += [ServedJob(harness.entry.record.opens_s + 120.0, 5e5, "", "") for _ in range(300)]
    harness.entry.change(served=tuple(served))
    harness.pass_time(QUARTER_S)
    assert 1.0 <= harness.entry.record.service_factor < 0.8 * raised


# --- run times that are no exponential -------------------------------------------------------------------------------


def history(harness: WindowHarness, long_s: float, jobs: int = 200) -> None:
    """Jobs of earlier periods: one in ten took `long_s`, the others five minutes, in Mcycles of the reference node."""
    begun_s = harness.entry.record.opens_s - DAY_S
    rng = np.random.default_rng(5)
    runs_s = np.where(rng.random(jobs) < 0.1, rng.exponential(long_s, jobs), rng.exponential(300.0, jobs))
    served = tuple(ServedJob(begun_s + at, float(run_s) * 1_000.0, "", "") for at, run_s in enumerate(runs_s))
    harness.entry.change(served=served)


def window(**fields: object) -> WindowHarness:
    harness = WindowHarness(night(**fields))
    harness.lead()
    return harness


def test_run_times_that_vary_more_have_phases() -> None:
    """Given a history of short and long jobs, then policies see the phases of service times, whose mean is the one that
    is counted on, and what run times alone miss."""
    harness = window(confidence=0.9)
    history(harness, 7_200.0)
    view = harness.view()
    phases = Phases(tuple(view.phase_rates.tolist()), tuple(view.phase_goes.tolist()))
    assert phases.mean == pytest.approx(view.service_s)
    assert phases.cv > 1.5
    assert 0.0 < view.unavoidable < 1.0


@pytest.mark.parametrize(("model", "long_s", "phased"), [("auto", 300.0, False), ("exponential", 7_200.0, False)])
def test_others_are_taken_for_exponential(model: str, long_s: float, phased: bool) -> None:
    harness = window(service=ServiceModel(model))
    history(harness, long_s)
    view = harness.view()
    assert (len(view.phase_rates) > 0, view.unavoidable > 0.0) == (phased, phased)


def test_phases_may_be_asked_for() -> None:
    """Also of what looks like an exponential; of too few jobs there are none."""
    harness = window(service=ServiceModel.PHASES)
    history(harness, 300.0)
    assert len(harness.view().phase_rates) > 0
    few = window(service=ServiceModel.PHASES)
    history(few, 300.0, jobs=10)
    assert len(few.view().phase_rates) == 0


def test_phases_stand_for_a_period() -> None:
    """What is learnt in a period changes the next one's, so that tables stay valid."""
    harness = window()
    history(harness, 7_200.0)
    before = harness.view().phase_goes
    served = harness.entry.record.served
    harness.now_s += 60.0
    harness.entry.change(served=(*served, *(ServedJob(harness.now_s, 9e6, "", "") for _ in range(100))))
    assert (harness.view().phase_goes == before).all()


def test_phases_are_found_within_the_first_period() -> None:
    """Where nothing was known before, as soon as enough is, and then they stand."""
    harness = window()
    assert len(harness.view().phase_rates) == 0
    history(harness, 7_200.0)
    now = [ServedJob(harness.now_s + 1.0, each.mcycles, "", "") for each in harness.window.served]
    harness.now_s += 60.0
    harness.entry.change(served=tuple(now))
    found = harness.view().phase_goes
    assert len(found) > 0
    harness.entry.change(served=(*now, *(ServedJob(harness.now_s, 9e6, "", "") for _ in range(100))))
    assert (harness.view().phase_goes == found).all()


def test_what_running_jobs_have_had_is_seen() -> None:
    """Given a job that has run for an hour, then policies see that, and the danger has grown with it."""
    harness = window(confidence=0.9)
    history(harness, 7_200.0)
    harness.submit("a", work=2e7)
    harness.pass_time(QUARTER_S)
    young = harness.view()
    harness.pass_time(HOUR_S)
    old = harness.view()
    assert len(young.begun_s) == len(old.begun_s) == 1
    assert old.begun_s[0] == pytest.approx(young.begun_s[0] + HOUR_S, rel=0.1)
    alone = [unavoidable_of(harness, view) for view in (young, old)]
    assert alone[1] > alone[0]


def unavoidable_of(harness: WindowHarness, view: WindowView) -> float:
    """What the begun jobs alone miss in an hour, by the history."""
    times = harness.entry.service_times([], {})
    assert times is not None
    nothing = np.zeros(0)
    return unavoidable(times, view.begun_s * 1_000.0, 0, 3.6e6, nothing, nothing)


# --- deadlines and promises ------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_missed_deadline_is_told_and_shown() -> None:
    """Given two jobs that are not done at the deadline, then an event and an alarm say so until the next deadline."""
    harness = WindowHarness()
    harness.lead()
    harness.submit("a")
    harness.submit("b")
    harness.submit("c")
    harness.pass_time(HOUR_S)
    harness.finish("c")
    harness.pass_time(11 * HOUR_S)

    assert harness.told("deadline-missed") == ["2 jobs were not done"]
    alarms = harness.ask(Query("q", "status")).data["alarms"]
    assert ("deadline-missed", "night") in {(alarm["what"], alarm["subject"]) for alarm in alarms}
    harness.finish("a")
    harness.finish("b")
    harness.pass_time(24 * HOUR_S)
    assert harness.window.missed == 0


def test_a_controller_that_was_away_tells_what_was_missed() -> None:
    """Given a controller that leads again a day after the deadline, then it closes that period, tells the miss, and has
    the period of today."""
    harness = WindowHarness()
    harness.lead()
    harness.submit("a")
    harness.pass_time(HOUR_S)
    later = WindowHarness(store=harness.store)
    later.now_s, later.vms = 1.6 * DAY_S, harness.vms
    later.lead()

    assert later.told("deadline-missed") == ["1 jobs were not done"]
    assert later.window.opens_s == 2 * DAY_S


def test_a_successor_counts_again() -> None:
    """Given a controller that is replaced within a period, then arrivals, service times, running work and the frozen
    forecast are those of the first."""
    harness = WindowHarness()
    harness.lead()
    for name in ("a", "b", "c"):
        harness.submit(name)
    harness.pass_time(1800.0)
    harness.finish("a")
    harness.report("n1")
    later = WindowHarness(store=harness.store)
    later.now_s, later.vms, later.boots = harness.now_s + 30.0, harness.vms, harness.boots
    later.seqs = {name: seq + 10 for name, seq in harness.seqs.items()}
    later.lead()
    later.finish("b")

    assert later.entry.counts == harness.entry.counts
    assert later.window.rates == harness.window.rates
    assert later.view().arrivals.tolist() == harness.view().arrivals.tolist()
    assert [round(job.mcycles) for job in later.window.served] == [1_800_000, 1_830_000]


def test_a_jump_of_the_clock_ends_periods() -> None:
    """Given a clock that jumps three days ahead, then the period of that day is there and one event tells the miss."""
    harness = WindowHarness()
    harness.lead()
    harness.submit("a")
    harness.now_s = 3.1 * DAY_S
    harness.settle()

    assert harness.window.opens_s == 3 * DAY_S
    assert harness.told("deadline-missed") == ["1 jobs were not done"]
    assert harness.view().interval == 10


@pytest.mark.full
def test_a_day_of_25_hours() -> None:
    """Given a window of the whole day on which the clock is put back, then it has four intervals more, and the slots of
    the hour that comes twice are remembered to have come twice."""
    day = datetime(2026, 10, 24, 22, tzinfo=UTC).timestamp()
    window = night(times=("00:00", "12:00", "00:00"), zone="Europe/Berlin")
    harness = WindowHarness(window)
    harness.now_s = day
    harness.lead()
    harness.submit("a")
    intervals = harness.view().intervals
    harness.pass_time(25 * HOUR_S)

    assert (intervals, harness.view().intervals) == (100, 96)
    assert harness.window.days[0].exposure == (*(1.0,) * 8, *(2.0,) * 4, *(1.0,) * 36)
    assert harness.told("deadline-missed") == ["1 jobs were not done"]


@pytest.mark.parametrize(
    ("size", "danger"),
    [
        (sized(breach=(0.5, 1e-9)), None),
        (sized(breach=(0.5, 0.2)), 0.2),
        (sized(nodes=1, wanted=2, breach=(0.3, 1e-9)), 0.3),
        (sized(nodes=1, wanted=1, breach=(0.3, 1e-9)), None),
        (sized(breach=()), None),
        (WindowSize("night", 1, 3, 4, (1e-9,), Reason(ReasonCode.OUT_OF_REACH, (("breach_from", 3.0),))), None),
        (WindowSize("night", 1, 4, 5, (0.4, 0.1), Reason(ReasonCode.PROMISE, (("breach_from", 3.0),))), 0.1),
        (WindowSize("night", 1, 0, 0, (), Reason(ReasonCode.OUT_OF_REACH)), 1.0),
    ],
)
def test_what_endangers_a_promise(size: WindowSize, danger: float | None) -> None:
    """The largest size misses too often, or nodes were short; a policy that adds nodes later does not."""
    assert endangered(size, 1, 0.9999) == danger


def test_a_promise_in_danger_is_told_when_that_is_new() -> None:
    """Given decisions whose largest size misses too often, then it is told once, also by the next controller, and again
    when that is twice as likely."""
    harness = WindowHarness()
    harness.lead()
    decide(harness, sized())
    decide(harness, sized())
    assert len(harness.told("deadline-at-risk")) == 1

    later = WindowHarness(store=harness.store)
    for now_s, breach, told in ((60.0, 0.2, 0), (70.0, 0.3, 0), (80.0, 0.41, 1), (90.0, 0.5, 1)):
        later.now_s = now_s
        if now_s == 60.0:
            later.lead()
        decide(later, sized(breach=(0.9, breach)))
        assert len(later.told("deadline-at-risk")) == told


def test_a_promise_is_kept_again_with_a_margin() -> None:
    """Given a danger, then its end is not told while nearly as much is missed as is allowed; after it danger is new."""
    harness = WindowHarness(night(confidence=0.9))
    harness.lead()
    decide(harness, sized(breach=(0.5, 0.2)))
    decide(harness, sized(breach=(0.5, 0.08)))
    assert harness.told("deadline-on-track") == []
    decide(harness, sized(breach=(0.5, 0.11)))
    assert len(harness.told("deadline-at-risk")) == 1
    decide(harness, sized(breach=(0.5, 0.04)))
    assert len(harness.told("deadline-on-track")) == 1
    decide(harness, sized(breach=(0.5, 0.11)))
    assert len(harness.told("deadline-at-risk")) == 2


def test_jobs_that_must_stay_are_fixed_while_they_run() -> None:
    """Given a window whose jobs cannot be suspended, then its running jobs are fixed in the snapshot, waiting ones and
    others are not."""
    harness = WindowHarness(night(removal=Removal.WAIT), nodes=("n1",))
    harness.lead()
    for name in ("a", "b", "c", "d"):
        harness.submit(name, memory_mib=900)
    harness.obey()
    harness.report("n1")
    harness.submit("waits", memory_mib=900)

    work = harness.controller.deciding.builder.build(harness.now_s).workloads
    fixed = dict(zip(work.names, zip(work.state.tolist(), work.fixed.tolist(), strict=True), strict=True))

    assert fixed["a"] == (WorkloadState.RUNNING, True)
    assert fixed["waits"] == (WorkloadState.WAITING, False)


def test_cycles_are_counted_back_from_the_deadline() -> None:
    """Given a deadline that cycles from now on would miss by five minutes, then the next one comes earlier, so that
    all that follow leave whole intervals."""
    harness = WindowHarness(night(times=("00:00", "06:00", "12:05")))
    harness.lead()

    assert harness.timers["decide"] == 300.0
    harness.pass_time(300.0)
    assert harness.timers["decide"] == 1200.0


def test_the_view_shows_the_forecast() -> None:
    """Given a window with jobs, then the view has its period by local time, its arrivals with bands, its service time
    and what the last decision gave it."""
    harness = WindowHarness()
    harness.lead()
    harness.submit("a")
    decide(harness, sized())

    row = harness.ask(Query("q", "forecast")).data["windows"][0]

    assert row["period"]["deadline_local"] == "1970-01-01 12:00 +0000"
    assert (row["jobs"], row["arrivals"]["counted"], row["arrivals"]["left_expected"]) == (1, 1, pytest.approx(6.0))
    assert row["arrivals"]["left_low"] < 6.0 < row["arrivals"]["left_high"]
    slots = row["arrivals"]["slots"]
    assert (len(slots), slots[1]["from_at_s"], slots[0]["came"], slots[1]["came"]) == (24, QUARTER_S, 1, 0)
    assert slots[0]["low"] <= slots[0]["expected"] <= slots[0]["high"]
    assert row["service"]["mean_s"] == 600.0
    assert row["service"]["low_s"] < 600.0 < row["service"]["high_s"]
    assert row["breach"] == [{"nodes": 1, "breach": 0.5}, {"nodes": 2, "breach": 0.2}]
    assert harness.ask(Query("r", "forecast", "other")).data["windows"] == []
