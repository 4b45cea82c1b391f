"""What guests printed on their serial ports: which units were done, how often, and how many requests were served."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

STARTED = "start"
ENDED = "end"
SERVED = "served"
UNIT = re.compile(r"[0-9]{4,10}")


@dataclass(frozen=True, slots=True)
class Output:
    """What one guest printed. `runs`: the units of each start from the beginning, in order; a guest that was saved,
    restored and moved has one. `ends`: how often it came to its end. `stray`: lines that are none of these, such as
    those of two guests that wrote at once."""

    runs: tuple[tuple[int, ...], ...]
    ends: int
    stray: tuple[str, ...]

    def missing(self, units: int) -> tuple[int, ...]:
        """Those of the units 1 to `units` that were never done."""
        done = {unit for run in self.runs for unit in run}
        return tuple(unit for unit in range(1, units + 1) if unit not in done)

    def doubled(self) -> tuple[int, ...]:
        """Units that were done more than once, in one run or in several."""
        counts = Counter(unit for run in self.runs for unit in run)
        return tuple(sorted(unit for unit, count in counts.items() if count > 1))

    def fault(self, units: int) -> str:
        """What is wrong where each of the units 1 to `units` should have been done once, in order, in one run that came
        to its end; "" where nothing is."""
        if self.runs == (tuple(range(1, units + 1)),) and self.ends == 1 and not self.stray:
            return ""
        return (
            f"{len(self.runs)} runs and {self.ends} ends; missing {self.missing(units)}, doubled {self.doubled()}, "
            f"stray {self.stray[:5]}, in order {self.runs}"
        )


def output(file: Path) -> Output:
    """What a guest printed; nothing where there is no such file. A line without its end is not yet one."""
    runs: list[list[int]] = []
    ends = 0
    stray: list[str] = []
    for line in _lines(file):
        if line == STARTED:
            runs.append([])
        elif line == ENDED:
            ends += 1
        elif runs and UNIT.fullmatch(line):
            runs[-1].append(int(line))
        else:
            stray.append(line)
    return Output(tuple(tuple(run) for run in runs), ends, tuple(stray))


def units_done(files: Iterable[Path]) -> list[int]:
    """The numbers of all units that the guests of these files have done, file after file, in the order printed."""
    return [unit for file in files for run in output(file).runs for unit in run]


def requests_served(files: Iterable[Path]) -> int:
    """How many requests for their page the web guests of these files have answered."""
    return sum(line == SERVED for file in files for line in _lines(file))


def _lines(file: Path) -> list[str]:
    """The whole lines of a file, without the carriage returns that a terminal adds."""
    if not file.exists():
        return []
    text = file.read_bytes().decode("ascii", errors="replace").replace("\r", "")
    return text.split("\n")[:-1]
