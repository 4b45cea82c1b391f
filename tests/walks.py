"""Through which files of the controller an input goes: `python -m tests.walks` prints five walks and their lengths.

A file counts when a function of it is called; a change is a call from one file into another. Vocabulary (`shared/`,
`daemons/values/`) is not counted: every file speaks it. What a reader must follow is what remains.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from daemons.decision.admitting import compute
from daemons.decision.tables.memory import MemoryTables
from shared.ports import effects as fx
from shared.protocol import topology
from shared.protocol.messages import Report
from shared.protocol.operator_messages import SubmitJob
from shared.values.nodes import NodeSample
from tests.support.controller_harness import OPERATOR, ControllerHarness, job

ROOT = Path(__file__).resolve().parents[1]
WALKED = str(ROOT / "daemons") + "/"
VOCABULARY = str(ROOT / "daemons/values") + "/"


@dataclass
class Walk:
    """The files that were entered, in the order of their first call, and how often one called into another."""

    files: dict[str, int] = field(default_factory=dict)
    changes: int = 0

    def _called(self, frame: FrameType, event: str, _arg: Any) -> None:
        if event != "call":
            return
        path = frame.f_code.co_filename
        if not path.startswith(WALKED) or path.startswith(VOCABULARY):
            return
        self.files[path] = self.files.get(path, 0) + 1
        caller = frame.f_back
        self.changes += caller is not None and caller.f_code.co_filename not in (path, __file__)

    @contextmanager
    def traced(self) -> Any:
        """Trace what runs inside."""
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)


class Scene:
    """Three nodes and three jobs that run, led for a while."""

    def __init__(self) -> None:
        self.harness = ControllerHarness(("n1", "n2", "n3"), decide_s=900.0).lead()
        for name in ("a", "b", "c"):
            self.harness.ask(SubmitJob(f"submit-{name}", job(name)))
        self.harness.obey()
        self.harness.wait(60.0, reporting=("n1", "n2", "n3"))
        self.core = self.harness.controller

    def report(self) -> fx.Received:
        """What a node says all the time."""
        harness = self.harness
        report = Report(
            node="n1",
            boot_id=harness.boots["n1"],
            seq=harness.next_seq("n1"),
            clock_s=harness.now_s,
            term=self.core.unit_of_work.term,
            sample=NodeSample(),
            vms=tuple(harness.vms["n1"].values()),
            inventory=harness.nodes["n1"],
        )
        return fx.Received(None, topology.agent_user("n1"), report)


def walks() -> dict[str, Walk]:
    """Every walk by its name."""
    found: dict[str, Walk] = {}

    def walk(name: str, step: Callable[[], Any]) -> Any:
        found[name] = made = Walk()
        with made.traced():
            return step()

    scene = Scene()
    core, harness = scene.core, scene.harness
    report = scene.report()
    walk("report", lambda: core.handle(report, harness.now_s))
    harness.settle()
    effects = walk("cycle until its snapshot", lambda: core.handle(fx.TimerFired("decide"), harness.now_s))
    (asked,) = [effect for effect in effects if isinstance(effect, fx.Compute)]
    harness.carry([effect for effect in effects if effect is not asked])
    outcome = compute(asked.request, MemoryTables())
    harness.carry(walk("computed", lambda: core.handle(fx.Computed(asked.compute_id, outcome), harness.now_s)))
    harness.timers.pop("settle", None)
    harness.carry(walk("settle", lambda: core.handle(fx.TimerFired("settle"), harness.now_s)))
    submit = fx.Received(harness.delivery(), OPERATOR, SubmitJob("submit-d", job("d")), f"reply.{OPERATOR}")
    walk("submit", lambda: core.handle(submit, harness.now_s))
    return found


def main() -> None:
    """Print the walks."""
    for name, walk in walks().items():
        print(f"{name}: {len(walk.files)} files, {walk.changes} changes")
        for path, calls in walk.files.items():
            print(f"    {Path(path).relative_to(ROOT)} ({calls})")


if __name__ == "__main__":
    main()
