"""Spreads cases over processes, starts one anew that a case has ended, and adds up how they went."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.worker import LIMIT_S, RENEW, Tally

ROOT = Path(__file__).parents[2]
Piece = tuple[str, int, int, int]
"""A target, and the numbers of its cases as for `range`."""
ENDED_TIMES_MAX = 200


@dataclass(slots=True)
class Summary:
    """How everything went. The processor time is of all processes."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    wall_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def wrong(self) -> list[tuple[str, int, str]]:
        """Every case that went wrong: target, number and what."""
        return [(name, number, what) for name, tally in self.tallies.items() for number, what in tally.wrong]

    def lines(self) -> list[str]:
        """What is printed: one line for each target, then the sums."""
        rows = [
            f"{name:44} {tally.cases:7,} cases {len(tally.wrong):4} wrong {tally.stopped:5} interrupted, slowest "
            f"{tally.slowest_s:6.2f} s (case {tally.slowest}), peak {tally.peak_kib / 1024:4.0f} MiB"
            for name, tally in sorted(self.tallies.items())
        ]
        return [*rows, self.words()]

    def words(self) -> str:
        """The sums in a line."""
        tallies = self.tallies.values()
        slowest = max(tallies, key=lambda tally: tally.slowest_s)
        largest = max(tallies, key=lambda tally: tally.peak_kib)
        return (
            f"{sum(tally.cases for tally in tallies):,} cases of {len(tallies)} targets, {len(self.wrong)} wrong, "
            f"{sum(tally.stopped for tally in tallies)} interrupted within their bounds; slowest "
            f"{slowest.slowest_s:.2f} s ({slowest.target} {slowest.slowest}); peak {largest.peak_kib / 1024:.0f} MiB "
            f"({largest.target} {largest.peak}); {self.cpu_s:.0f} s of processors in {self.wall_s:.0f} s"
        )


def run(pieces: Sequence[Piece], workers: int = 1, tell: Callable[[str], None] | None = None) -> Summary:
    """Run all cases. `tell` hears each that went wrong, at once."""
    begun_s, used_s = time.monotonic(), _used_s()
    summary = Summary()
    plans = [
        [(name, start + at * step, stop, step * workers) for name, start, stop, step in pieces] for at in range(workers)
    ]
    with ThreadPoolExecutor(workers) as pool:
        for tallies in pool.map(lambda plan: _worked(plan, tell), plans):
            for tally in tallies:
                summary.tallies.setdefault(tally.target, Tally(tally.target)).add(tally)
    summary.wall_s, summary.cpu_s = time.monotonic() - begun_s, _used_s() - used_s
    return summary


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _worked(plan: Sequence[Piece], tell: Callable[[str], None] | None) -> list[Tally]:
    """Work through a plan with one process after another, until nothing is left."""
    tallies: list[Tally] = []
    left = [piece for piece in plan if piece[1] < piece[2]]
    ended = 0
    while left:
        with tempfile.TemporaryDirectory(prefix="trimtab-fuzz-") as place:
            folder = Path(place) / "case"
            folder.mkdir()
            status, said = _lived(left, folder, tallies, tell)
            if status == 0:
                return tallies
            target, number = _current(Path(place) / "current")
        if status != RENEW:
            ended += 1
            wrong = f"ended the process with status {status}: {said[-1500:]}"
            tallies.append(Tally(target, cases=1, wrong=[(number, wrong)]))
            if tell is not None:
                tell(f"{target} {number}: {wrong}")
            if ended > ENDED_TIMES_MAX or not target:
                raise RuntimeError(f"processes do not stay: {said[-1500:]}")
        left = rest(left, target, number)
    return tallies


def rest(plan: Iterable[Piece], target: str, number: int) -> list[Piece]:
    """What comes after a case."""
    pieces = list(plan)
    at = next(at for at, piece in enumerate(pieces) if piece[0] == target)
    name, _, stop, step = pieces[at]
    first = (name, number + step, stop, step)
    return [first, *pieces[at + 1 :]] if number + step < stop else pieces[at + 1 :]


def _lived(
    plan: Sequence[Piece], folder: Path, tallies: list[Tally], tell: Callable[[str], None] | None
) -> tuple[int, str]:
    """The life of one process: its exit status, and what it said on standard error."""
    with tempfile.TemporaryFile("w+") as trouble:
        worker = subprocess.Popen(
            (sys.executable, "-m", "tests.fuzz.worker", str(folder)),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=trouble,
            text=True,
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        watch = _Watch(worker.pid, folder.parent / "current")
        with worker, watch:
            worker.stdin.write(json.dumps(plan))
            worker.stdin.close()
            for line in worker.stdout:
                tally = Tally(**json.loads(line))
                tallies.append(tally)
                for number, what in tally.wrong:
                    if tell is not None:
                        tell(f"{tally.target} {number}: {what}")
        trouble.seek(0)
        return worker.returncode, trouble.read()


class _Watch(threading.Thread):
    """Ends a process in which one case waits for LIMIT_S, or computes for twice that long without hearing that it is
    to end. What it waits for a processor does not count: machines do other work, too."""

    def __init__(self, pid: int, current: Path) -> None:
        super().__init__(daemon=True)
        self._pid, self._current, self._over = pid, current, threading.Event()

    def __enter__(self) -> _Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        """Look at it every second."""
        case, since_s, used_s, owed_s = ("", 0), 0.0, 0.0, 0.0
        while not self._over.wait(1.0):
            now, now_s = _current(self._current), time.monotonic()
            ran_s, ready_s = self._times_s()
            if now != case:
                case, since_s, used_s, owed_s = now, now_s, ran_s, ran_s + ready_s
            waits_s = now_s - since_s - (ran_s + ready_s - owed_s)
            if case[0] and (waits_s > LIMIT_S or ran_s - used_s > 2 * LIMIT_S):
                os.kill(self._pid, signal.SIGABRT)
                return

    def _times_s(self) -> tuple[float, float]:
        """How long its main thread has computed, and waited for a processor."""
        try:
            words = Path(f"/proc/{self._pid}/schedstat").read_text().split()
        except OSError:
            return 0.0, 0.0
        return int(words[0]) / 1e9, int(words[1]) / 1e9


def _current(file: Path) -> tuple[str, int]:
    words = file.read_text().split() if file.exists() else []
    return (words[0], int(words[1])) if len(words) == 2 else ("", 0)
