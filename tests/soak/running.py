"""A soak from its beginning to its verdict: warm up, suffer faults, be calm, end the load, and look what is left.

Memory, descriptors and threads are judged in the calm phase: its length is what the other phases leave, at least a
third. Faults that the time does not reach are left out and named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.integration.harness import CLOCK
from tests.integration.private_broker import PrivateBroker
from tests.soak.cluster import ADJUST_S, NODES, REPORT_S, Soak, daemons, soak
from tests.soak.faults import FAULTS, RECOVERED_S, Fault, Recovery, suffer
from tests.soak.judge import CYCLES_MIN, Causes, Course, Said, said
from tests.soak.load import APP

WARM_UP_FRAC, CALM_FRAC = 0.06, 0.40
SETTLE_FRAC = 0.10  # after the last fault, until memory is as it stays
MONTH = 2_880  # decisions of one in a quarter of an hour, in 30 minutes
FULL_S = 1_800.0
OVER_S = 120.0  # for everything to be done once no more is submitted
SHOWN = 12
SHARE_MIN = 0.9  # of the decisions that there should be
Tell = Callable[[str], object]


@dataclass(slots=True)
class Outcome:
    """What came of a soak. `wrong`: what must not be, in words."""

    seconds: float
    recoveries: list[Recovery] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    courses: list[Course] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    counts: dict[str, float] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class Run:
    """One soak of `seconds`. `only`: names of faults, all when there is none."""

    def __init__(self, made: Soak, no_disk: str, seconds: float, only: Sequence[str], tell: Tell) -> None:
        self.soak, self.seconds, self.tell = made, seconds, tell
        self._no_disk = no_disk
        self._faults = [fault for fault in FAULTS if not only or fault.name in only]
        self.outcome = Outcome(seconds)
        self._begun_s = CLOCK.monotonic_s()

    @property
    def _passed_s(self) -> float:
        return CLOCK.monotonic_s() - self._begun_s

    def go(self) -> Outcome:
        """All of it."""
        made = self.soak
        made.load(seed=1)
        self._say("the load has begun")
        made.until(lambda: made.normal(self._begun_s), RECOVERED_S, "a cluster without alarms")
        made.pause(WARM_UP_FRAC * self.seconds)
        self._suffer()
        made.fill_pools()
        made.pause(SETTLE_FRAC * self.seconds)
        self._be_calm()
        self._end()
        self.outcome.times = made.times.of()
        return self.outcome

    # --- phases -----------------------------------------------------------------------------------------------------

    def _suffer(self) -> None:
        until_s = (1.0 - CALM_FRAC - SETTLE_FRAC) * self.seconds
        for fault in self._faults:
            reason = self._no_disk if fault.needs_disk else ""
            if not reason and self._passed_s + fault.hold_s > until_s:
                reason = "there was no time for it"
            if reason:
                self.outcome.left_out.append(f"{fault.name}: {reason}")
                continue
            self._suffer_one(fault)

    def _suffer_one(self, fault: Fault) -> None:
        self._say(fault.name)
        recovery = suffer(self.soak, fault)
        self.outcome.recoveries.append(recovery)

    def _be_calm(self) -> None:
        made = self.soak
        begin_s, decisions = CLOCK.monotonic_s(), self._decisions()
        made.dump_threads()
        self._say("the calm phase begins")
        made.pause(max(CALM_FRAC * self.seconds, self.seconds - self._passed_s))
        end_s = CLOCK.monotonic_s()
        made.dump_threads()
        if not made.normal(end_s - 5.0):
            self.outcome.wrong.append(f"not well at the end of the calm phase: {made.status.latest[1].get('alarms')}")
        per_s = (self._decisions() - decisions) / (end_s - begin_s)
        cycles = {"agent-": 1.0 / REPORT_S, "controller-": per_s, "portal": 1.0}
        self.outcome.courses = made.watched.courses(begin_s, end_s, cycles)
        self.outcome.wrong += made.watched.restarted(begin_s, end_s)
        for course in self.outcome.courses:
            self.outcome.wrong += course.faults()
            if course.threads.grown and course.name.startswith("controller"):
                self.tell(made.threads_file.read_text())
        self.outcome.counts["decisions per s in the calm phase"] = per_s

    def _end(self) -> None:
        """No more load; all that was accepted comes to its end, and nothing of it is left."""
        made = self.soak
        self._say("the load ends")
        self._judge_logs()
        made.end_load(made.submitter, made.meddler, made.commands)
        try:
            made.until(self._all_over, OVER_S, "the end of all jobs")
        except AssertionError as error:
            self.outcome.wrong.append(str(error).splitlines()[0])
        self._judge_jobs()
        made.do("web", "remove", APP)
        made.until(lambda: not made.lab.homes(), OVER_S, "the end of all VMs")
        made.end_load(*made.workers)
        doubles = made.lab.fake.state()["doubles"]
        if doubles:
            self.outcome.wrong.append(f"VMs that nearly came to life a second time: {doubles}")

    # --- judging ----------------------------------------------------------------------------------------------------

    def _all_over(self) -> bool:
        return not self._unfinished(self.soak.completions()) and not self._live()

    def _unfinished(self, completed: Mapping[str, Sequence[int]]) -> list[str]:
        """The jobs that are to be completed and are not."""
        every = self.soak.ledger.all()
        return sorted(one.name for one in every if one.accepted and not one.over and not completed.get(one.name))

    def _live(self) -> list[str]:
        """The VMs that are live and no instances of the application."""
        return sorted(vm for vm in self.soak.lab.homes() if not vm.startswith(f"{APP}#"))

    def _judge_jobs(self) -> None:
        completed, entries = self.soak.completions(), self.soak.ledger.all()
        twice = sorted(name for name, attempts in completed.items() if len(attempts) > 1)
        lost, left = self._unfinished(completed), self._live()
        for what, names in (("done twice", twice), ("lost or stuck", lost), ("VMs that are left", left)):
            if names:
                self.outcome.wrong.append(f"{what}: {len(names)}, {names[:10]}")
        self.outcome.counts |= {
            "jobs submitted": len(entries),
            "VMs of them": sum(one.instances for one in entries),
            "jobs completed": sum(1 for one in entries if completed.get(one.name)),
            "done twice": len(twice),
            "lost or stuck": len(lost),
            "most VMs at a time": self.soak.most_live,
            **dict(sorted(self.soak.ledger.done.items())),
        }

    def _decisions(self) -> int:
        """How many a controller has made since the beginning, by its log."""
        counts = self.soak.watched.counts()
        return sum(lines["decision computed"] for name, lines in counts.items() if name.startswith("controller"))

    def _judge_logs(self) -> None:
        made, decisions = self.soak, self._decisions()
        counts, entries = made.watched.counts(), made.ledger.all()
        causes = Causes(
            self._passed_s,
            decisions + round(self._passed_s / ADJUST_S),
            len(entries),
            sum(one.instances for one in entries),
            made.requests + made.pages.count,
            round(self._passed_s / (made.keep_s / 4)) + 1,
            made.ledger.done.get("drains", 0) + NODES * (1 + len(self.outcome.recoveries)),
        )
        for daemon in daemons(made):
            self.outcome.said += said(daemon.name, counts[daemon.name], causes)
        for one in self.outcome.said:
            if one.too_often:
                self.outcome.wrong.append(f"{one.process} says {one.count} times, at most {one.most:.0f}: {one.key}")
        least = SHARE_MIN * MONTH * self.seconds / FULL_S
        if decisions < least:
            self.outcome.wrong.append(f"{decisions} decisions, at least {least:.0f} were to be")
        self.outcome.counts |= {"decisions": decisions, "requests": causes.requests, "pages": made.pages.count}
        self.outcome.counts |= {"commands": made.commands.count, "lines of the stream": made.stream.lines}
        self.outcome.counts["cuts of the stream"] = made.stream.cuts

    def _say(self, what: str) -> None:
        self.tell(f"{self._passed_s:7.1f} s  {what}")


def run(broker: PrivateBroker, seconds: float, only: Sequence[str] = (), tell: Tell = print) -> Outcome:
    """Soak a cluster for about so long."""
    keep_s = max(20.0, min(150.0, 0.08 * seconds))
    with soak(broker, keep_s) as (made, no_disk):
        return Run(made, no_disk, seconds, only, tell).go()


def report(outcome: Outcome) -> str:
    """What came of it, for people."""
    lines = [
        f"{'process':28} {'RSS begin':>10} {'end KiB':>9} {'KiB/1,000':>10} {'cycles':>7} "
        f"{'fds (most)':>14} {'threads':>14} {'CPU':>6}"
    ]
    for one in sorted(outcome.courses, key=lambda course: _natural(course.name)):
        judged = "" if one.cycles >= CYCLES_MIN else " (not judged: too few cycles)"
        lines.append(
            f"{one.name:28} {one.begin_kib:10.0f} {one.end_kib:9.0f} {one.kib_per_1000:+10.0f} {one.cycles:7.0f} "
            f"{one.descriptors!s:>14} {one.threads!s:>14} "
            f"{one.cpu_frac:6.1%}{judged}"
        )
    lines += ["", f"{'fault':34} {'answers':>8} {'normal':>8} {'new job':>8}  (s)"]
    lines += [
        f"{one.fault:34} {one.answered_s:8.1f} {one.normal_s:8.1f} {one.job_s:8.1f}" for one in outcome.recoveries
    ]
    lines += [f"left out: {one}" for one in outcome.left_out]
    lines += ["", *(f"{what:34} {count:10.4g}" for what, count in outcome.counts.items())]
    lines += ["", f"{'answers':34} {'count':>8} {'median':>8} {'99 %':>8} {'longest':>8}  (s)"]
    for what, times in outcome.times.items():
        middle, late = times[len(times) // 2], times[int(0.99 * (len(times) - 1))]
        lines.append(f"{what:34} {len(times):8} {middle:8.3f} {late:8.3f} {times[-1]:8.3f}")
    lines += ["", *_frequent(outcome.said), ""]
    lines += [f"WRONG: {one}" for one in outcome.wrong] or ["all as it should be"]
    return "\n".join(lines)


def _frequent(every: Sequence[Said]) -> list[str]:
    """The lines that come next to their bounds, and the most frequent ones; agents are put together."""
    lines = [f"{'line of a log':46} {'process':16} {'count':>7} {'at most':>8}  because of"]
    worst: dict[tuple[str, str], Said] = {}
    for one in every:
        key = (one.process.partition("-")[0], one.key)
        if key not in worst or one.count > worst[key].count:
            worst[key] = one
    ordered = sorted(worst.values(), key=lambda one: -one.count / one.most)
    hourly = [one for one in ordered if one.cause == "hour"][:SHOWN]
    others = [one for one in ordered if one.cause != "hour"][:SHOWN]
    for one in (*hourly, *others):
        lines.append(f"{one.key:46} {one.process:16} {one.count:7} {one.most:8.0f}  {one.cause}")
    return lines


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
