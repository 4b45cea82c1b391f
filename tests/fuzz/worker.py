"""The process that cases run in: it reads what is to be tried from standard input, and says how that went.

A line of JSON for each thing wrong, at once, and for each target at its end. What runs just now is in the file
`current`, so that whoever watches can say what ended it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.scene import Scene, forget_peak, peak_kib

LIMIT_S = 20.0  # of processor time; after that a case hangs
LONG_S = 2.0  # of processor time, for what may take long within its bounds
PEAK_KIB_MAX = 500 * 1024
RENEWED_AT_KIB = 330 * 1024
RENEW = 75  # exit status: to be started again, with what is left


class Hang(BaseException):
    """A case has computed for LIMIT_S."""


@dataclass(slots=True)
class Tally:
    """How the cases of a target went; the seconds are of processors."""

    target: str
    cases: int = 0
    stopped: int = 0
    slowest_s: float = 0.0
    slowest: int = 0
    peak_kib: int = 0
    peak: int = 0
    wrong: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count another's, too."""
        self.cases += other.cases
        self.stopped += other.stopped
        self.wrong += [(number, what) for number, what in other.wrong]
        if other.slowest_s > self.slowest_s:
            self.slowest_s, self.slowest = other.slowest_s, other.slowest
        if other.peak_kib > self.peak_kib:
            self.peak_kib, self.peak = other.peak_kib, other.peak


class Tries:
    """Runs cases one after another in a scene."""

    def __init__(self, scene: Scene, current: int) -> None:
        self._scene, self._current = scene, current
        self._stopping = self._stopped = False
        signal.signal(signal.SIGPROF, self._late)

    def _late(self, _: int, __: FrameType | None) -> None:
        if not self._stopping:
            raise Hang
        self._stopped = True
        raise KeyboardInterrupt

    def one(self, target: Any, number: int, tally: Tally) -> str:
        """Run a case; what is wrong with it."""
        os.pwrite(self._current, f"{target.name} {number}\n".ljust(200).encode(), 0)
        self._stopping, self._stopped = target.is_long, False
        forget_peak()
        begun_s = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, LONG_S if target.is_long else LIMIT_S)
        try:
            wrong = str(target.run(self._scene, number, random.Random(f"{target.name} {number}")))
        except Hang:
            wrong = f"computes for more than {LIMIT_S:g} s"
        except KeyboardInterrupt:
            wrong = "" if self._stopped else "was interrupted"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
        took_s, peak = time.process_time() - begun_s, peak_kib()
        if self._stopped and "Interrupt" in wrong:
            wrong = ""
        if self._scene.guard.outside:
            wrong = wrong or f"writes outside its folder: {self._scene.guard.outside[:3]}"
        if peak > PEAK_KIB_MAX:
            wrong = wrong or f"takes {peak // 1024} MiB"
        tally.cases += 1
        tally.stopped += self._stopped
        if took_s > tally.slowest_s:
            tally.slowest_s, tally.slowest = took_s, number
        if peak > tally.peak_kib:
            tally.peak_kib, tally.peak = peak, number
        if wrong:
            tally.wrong.append((number, wrong))
        self._scene.guard.forget()
        self._scene.tidy()
        return wrong


def main(folder: Path) -> int:
    """Work in a folder; returns the exit status."""
    sys.dont_write_bytecode = True
    faulthandler.enable(os.fdopen(os.dup(2), "w"))  # says where it was when it is ended (SIGABRT)
    out = os.fdopen(os.dup(1), "w", buffering=1)
    warnings.simplefilter("default")
    current = os.open(folder.parent / "current", os.O_RDWR | os.O_CREAT)
    plan = json.loads(sys.stdin.read())
    from shared.protocol.messages import MESSAGES
    from tests.fuzz.bases import MADE
    from tests.fuzz.messages import pool
    from tests.fuzz.targets import named

    scene = Scene(folder)
    scene.begin({} if all(name.startswith(("message:", "core:")) for name, *_ in plan) else MADE)
    if any(name.startswith(("message:", "core:")) for name, *_ in plan):
        pool(MESSAGES[0], 0)  # Hypothesis takes 300 MiB for its tables of characters, which is no case's doing
    tries = Tries(scene, current)
    for name, start, stop, step in plan:
        target, tally = named(name), Tally(name)
        for number in range(start, stop, step):
            wrong = tries.one(target, number, tally)
            if wrong or tally.cases % 500 == 0:
                out.write(_line(tally))
                tally = Tally(name)
            if peak_kib(b"VmRSS:") > RENEWED_AT_KIB:
                out.write(_line(tally))
                return RENEW
        out.write(_line(tally))
    return 0


def _line(tally: Tally) -> str:
    return json.dumps({name: getattr(tally, name) for name in Tally.__slots__}) + "\n"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
