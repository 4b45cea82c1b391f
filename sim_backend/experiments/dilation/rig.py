"""Lets kinds of work run side by side on one core, again and again, and counts what each does."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from shared.base.clock import SystemClock
from shared.runtime.child_process import without_interrupts
from sim_backend.experiments.dilation.workers import Counted, Window, WorkKind, make_files, serve

DISKS = "/var/tmp"  # on a disk, where the usual folder for what is temporary may be in memory
START_S = 60.0  # for a process to be there, with its file
ANSWER_S = 30.0  # beyond its window
END_S = 5.0
SLACK_S = 0.05  # and go on after the last has counted

Set = tuple[WorkKind, ...]
"""Kinds of work that run side by side, sorted; a kind may be there more than once."""


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection

    def answer(self, limit_s: float) -> Counted | None:
        """Raises ChildProcessError when it does not come within the limit, or the process has died."""
        if not self.pipe.poll(limit_s):
            raise ChildProcessError(f"a process of the measurement has not answered within {limit_s:.0f} s")
        try:
            found: Counted | None = self.pipe.recv()
        except EOFError as error:
            raise ChildProcessError("a process of the measurement has died") from error
        return found


class Rig:
    """Processes on one core that wait for commands to work."""

    def __init__(self, folder: Path, most: dict[WorkKind, int], file_mib: int) -> None:
        self.core = max(os.sched_getaffinity(0))
        self._clock = SystemClock()
        self._workers: dict[WorkKind, list[_Worker]] = {}
        self.direct = make_files(folder, file_mib)
        context = get_context("spawn")
        for kind, copies in most.items():
            for copy in range(copies):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=serve, args=(os.getpid(), kind, copy, self.core, folder, file_mib, theirs), daemon=True
                )
                with without_interrupts():
                    process.start()
                theirs.close()
                self._workers.setdefault(kind, []).append(_Worker(process, ours))
        for worker in self._all():
            worker.answer(START_S)

    def run(self, together: Set, window_s: float, settle_s: float) -> list[Counted]:
        """Run a set side by side for `settle_s`, then count for `window_s`; none ends before all have been counted. One
        answer each, in order. Raises ChildProcessError."""
        taken = dict.fromkeys(WorkKind, 0)
        workers = []
        for kind in together:
            workers.append(self._workers[kind][taken[kind]])
            taken[kind] += 1
        begin_s = self._clock.monotonic_s() + settle_s
        window = Window(begin_s, begin_s + window_s, begin_s + window_s + SLACK_S)
        for worker in workers:
            worker.pipe.send(window)
        answers = [worker.answer(window.stop_s - self._clock.monotonic_s() + ANSWER_S) for worker in workers]
        return [answer for answer in answers if answer is not None]

    def kill(self) -> None:
        """Kill the processes at once, even in the middle of work."""
        for worker in self._all():
            worker.process.kill()

    def close(self) -> None:
        """End the processes."""
        for worker in self._all():
            if worker.process.is_alive():
                with suppress(BrokenPipeError):  # it has just ended
                    worker.pipe.send(None)
        for worker in self._all():
            worker.process.join(END_S)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.pipe.close()

    def _all(self) -> Iterator[_Worker]:
        for workers in self._workers.values():
            yield from workers


@contextmanager
def rig(sets: Sequence[Set], file_mib: int) -> Iterator[Rig]:
    """Processes enough for any of these sets, with their files; all gone afterwards."""
    most = {kind: max(together.count(kind) for together in sets) for kind in WorkKind}
    place = DISKS if os.access(DISKS, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, prefix="trimtab-dfactor-") as folder:
        made = Rig(Path(folder), {kind: copies for kind, copies in most.items() if copies}, file_mib)
        try:
            yield made
        except BaseException:
            made.kill()
            raise
        finally:
            made.close()
