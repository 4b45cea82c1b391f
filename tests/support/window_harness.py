"""A harness with a deadline window, for tests of what becomes of its jobs and its forecast."""

from __future__ import annotations

from typing import Any

from daemons.controller.windows.window import WindowEntry
from daemons.values.calendar import weekly
from daemons.values.records.cluster import WindowRecord
from daemons.values.settings import WindowSettings
from shared.policy_api.snapshot import WindowView
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import CancelJob, SubmitJob
from shared.values.actions import GuestChange
from shared.values.jobs import Job
from tests.support import parts
from tests.support.controller_harness import ControllerHarness, job

HOUR_S = 3600.0
DAY_S = 86_400.0
NODES = ("n1", "n2")


def night(**fields: Any) -> WindowSettings:
    """Submission from midnight to 06:00 UTC, to be done by noon; a job an hour each of 600 s is declared."""
    given: dict[str, Any] = {"arrivals_per_day": 6.0, "service_s": 600.0} | fields
    zone = given.pop("zone", "UTC")
    times = given.pop("times", ("00:00", "06:00", "12:00"))
    return WindowSettings("night", "night", weekly(zone, times[0], times[1], times[2], range(7)), **given)


class WindowHarness(ControllerHarness):
    """A harness of two nodes, each of four slots, whose first cycle has not come yet. It begins at midnight."""

    def __init__(self, *windows: WindowSettings, nodes: tuple[str, ...] = NODES, **settings: Any) -> None:
        super().__init__(nodes, windows=windows or (night(),), **settings)
        self.number = 0

    @property
    def entry(self) -> WindowEntry:
        """The window."""
        return parts.windows(self.controller).entries["night"]

    @property
    def window(self) -> WindowRecord:
        """What is kept of it."""
        return self.entry.record

    def view(self) -> WindowView:
        """What policies would see of the first window now."""
        return self.controller.deciding.builder.build(self.now_s).windows[0]

    def submit(self, name: str = "", **fields: Any) -> Reply:
        """Submit a job to the window's queue."""
        self.number += 1
        return self.ask_job(job(name or f"j{self.number}", **({"queue": "night"} | fields)))

    def ask_job(self, wanted: Job) -> Reply:
        """Submit a job."""
        return self.ask(SubmitJob(f"submit-{wanted.name}", wanted))

    def cancel(self, name: str) -> Reply:
        """Cancel a job."""
        return self.ask(CancelJob(f"cancel-{name}", name))

    def pass_time(self, seconds: float) -> None:
        """Let time pass with all nodes reporting and every order obeyed, in steps of five minutes."""
        self.obey()
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(self.now_s + 300.0, end_s)
            for name in self.nodes:
                self.report(name)
            self.settle()
            self.obey()

    def finish(self, name: str) -> None:
        """A job's guest has done its work."""
        for node, vms in self.vms.items():
            if f"{name}#0" in vms:
                seen = self.controller.cluster.nodes[node].events_seen
                self.guest(node, f"{name}#0", GuestChange.ENDED, seen + 1)
                self.obey()
                return
        raise AssertionError(f"{name} runs nowhere")

    def phase(self, name: str) -> str:
        """Where a job stands."""
        return self.controller.cluster.jobs[name].phase.value

    def told(self, what: str) -> list[str]:
        """The details of events of one kind."""
        return [event.detail for event in self.happenings(what)]
