"""Random lives of a window: jobs come, wait for each other, end and are cancelled, time passes and jumps, controllers
are replaced. What is known must follow from the jobs and the time alone."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shared.values.jobs import JobPhase
from tests.extent import examples
from tests.support.window_harness import DAY_S, HOUR_S, WindowHarness, night


class Lives(RuleBasedStateMachine):
    """One window from midnight until 06:00, to be done by noon."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = WindowHarness(night(arrivals_per_day=24.0))
        self.harness.lead()
        self.submitted = 0
        self.told = 0

    @property
    def open_for_jobs(self) -> bool:
        """Whether jobs are accepted now."""
        return self.harness.now_s % DAY_S < 6 * HOUR_S

    @rule(count=st.integers(1, 6), chained=st.booleans())
    def submit(self, count: int, chained: bool) -> None:
        """Some jobs come in, perhaps each after the one before."""
        before: tuple[str, ...] = ()
        for _ in range(count):
            self.submitted += 1
            name = f"job{self.submitted}"
            reply = self.harness.submit(name, memory_mib=400, depends_on=before if chained else ())
            assert reply.done is self.open_for_jobs, reply
            before = (name,) if reply.done else ()
        self.harness.obey()

    @rule(pick=st.integers(0, 1_000))
    def finish(self, pick: int) -> None:
        """A running job is done."""
        running = [
            name
            for name, entry in sorted(self.harness.controller.cluster.active.items())
            if entry.phase is JobPhase.RUNNING and entry.released
        ]
        if running:
            self.harness.finish(running[pick % len(running)])

    @rule(pick=st.integers(0, 1_000))
    def cancel(self, pick: int) -> None:
        """A job is cancelled, whoever waits for it."""
        live = sorted(self.harness.entry.live)
        if live:
            self.harness.cancel(live[pick % len(live)])
            self.harness.obey()

    @rule(minutes=st.sampled_from((5, 15, 60, 240)))
    def wait(self, minutes: int) -> None:
        """Time passes."""
        self.harness.pass_time(60.0 * minutes)

    @rule(days=st.floats(0.1, 3.0))
    def jump(self, days: float) -> None:
        """The clock jumps ahead, or the controller was not there."""
        self.harness.now_s += days * DAY_S
        self.harness.settle()
        self.harness.pass_time(300.0)

    @precondition(lambda self: self.submitted)
    @rule()
    def replace(self) -> None:
        """Another controller takes over and knows the same."""
        old = self.harness
        new = WindowHarness(night(arrivals_per_day=24.0), store=old.store)
        new.now_s, new.vms, new.boots, new.number = old.now_s, old.vms, old.boots, old.number
        new.seqs = {name: seq + 10 for name, seq in old.seqs.items()}
        new.lead()
        assert new.entry.counts == old.entry.counts
        assert set(new.entry.live) == set(old.entry.live)
        assert new.window.rates == old.window.rates
        assert [job.finished_s for job in new.window.served] == [job.finished_s for job in old.window.served]
        self.told += len(old.happenings("deadline-missed"))
        self.harness = new

    @invariant()
    def the_queue_is_its_jobs(self) -> None:
        """n is the number of its jobs that are neither over nor blocked; nobody runs before those it waits for."""
        cluster = self.harness.controller.cluster
        open_jobs = [entry for entry in cluster.jobs.values() if not entry.over]
        assert set(self.harness.entry.live) == {entry.job.name for entry in open_jobs}
        for entry in open_jobs:
            done = [cluster.jobs[name].phase is JobPhase.COMPLETED for name in entry.job.depends_on]
            assert bool(entry.awaits) is not all(done)
            assert entry.phase is JobPhase.WAITING or all(done)
        assert self.harness.entry.jobs_at() == sum(not entry.awaits for entry in open_jobs)

    @invariant()
    def views_can_be_worked_with(self) -> None:
        """Arrivals are finite and not negative, intervals in range, and a period is open or to come."""
        view = self.harness.view()
        assert 0 <= view.interval <= view.intervals == 48
        assert np.isfinite(view.arrivals).all()
        assert (view.arrivals >= 0.0).all()
        assert math.isfinite(view.service_s)
        assert view.service_s > 0.0
        assert (view.opens_s > 0.0) is not self.harness.entry.is_open(self.harness.now_s)

    @invariant()
    def a_missed_deadline_is_never_silent(self) -> None:
        """What the record says was missed has been told."""
        if self.harness.window.missed:
            assert self.told + len(self.harness.happenings("deadline-missed"))


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=examples(15), stateful_step_count=15)
