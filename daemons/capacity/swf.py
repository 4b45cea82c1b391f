"""Job logs in the Standard Workload Format (SWF): one job a line, 18 numbers, comments after `;`.

Reference: Chapin et al., Benchmarks and Standards for the Evaluation of Parallel Job Schedulers (1999).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from shared.base.errors import InvalidInput, Problem
from shared.base.read_file import read_lines
from shared.values.replay_job import ReplayJob

FIELDS = 18
LOG_BYTES_MAX = 256 << 20
LINES_MAX = 500_000
PROBLEMS_MAX = 20
_EXPECTED = "a log in the Standard Workload Format, plain or gzip"
_LARGEST = 1e12  # of a job number, time or size: beyond it a float no longer resolves a millisecond


@dataclass(frozen=True, slots=True)
class SwfJob:
    """One line of a log; -1 means unknown, as in the file. `line` counts from 1.

    `processors` is field 5 (allocated), `requested_processors` and `requested_s` fields 8 and 9, `status` field 11
    (1 completed, 0 failed, 5 cancelled), `user` field 12.
    """

    number: int
    submit_s: float
    wait_s: float
    run_s: float
    processors: int
    requested_processors: float
    requested_s: float
    status: int
    user: int
    line: int


def read_swf(path: str | Path) -> tuple[SwfJob, ...]:
    """Return every job of a log, in file order. Plain or gzip text, recognised by its first bytes.

    Raises `InvalidInput` with one `Problem` ("file:line") per broken line (at most 20), or for a file that cannot be
    read, is no regular file, is corrupt, above 256 MiB or 500,000 lines, or holds no job.
    """
    path = Path(path)
    jobs: list[SwfJob] = []
    problems: list[Problem] = []
    for line, text in enumerate(read_lines(path, _EXPECTED, LOG_BYTES_MAX, lines_max=LINES_MAX, encoding="latin-1"), 1):
        fields = text.split()
        if not fields or fields[0][0] == ";":
            continue
        try:
            values = [*map(float, fields)]
        except ValueError:
            values = []
        if len(values) != FIELDS or "_" in text or not _usable(values):
            problems.append(_what_is_wrong(f"{path}:{line}", fields))
            if len(problems) == PROBLEMS_MAX:
                break
            continue
        number, submit_s, wait_s, run_s, processors = values[:5]
        jobs.append(
            SwfJob(
                int(number),
                submit_s,
                wait_s,
                run_s=run_s,
                processors=int(processors),
                requested_processors=values[7],
                requested_s=values[8],
                status=int(values[10]),
                user=int(values[11]),
                line=line,
            )
        )
    if problems:
        raise InvalidInput(*problems)
    if not jobs:
        raise InvalidInput(Problem(str(path), "there is no job in this file", "a log in the Standard Workload Format"))
    return tuple(jobs)


def replay_jobs(
    jobs: Iterable[SwfJob],
    window_s: float = math.inf,
    divide_sizes: int = 1,
    skip: Collection[int] = (),
    source: str = "log",
) -> tuple[ReplayJob, ...]:
    """Return the jobs that a replay submits, ordered by submit time, ties by job number.

    Submitted in [0, window_s) with a run time >= 0 and at least one processor, except the job numbers in `skip`; size =
    ceil(processors / divide_sizes) nodes. Raises `InvalidInput` if two of them have one number; `source` names the log
    in messages.
    """
    chosen = [
        ReplayJob(job.number, job.submit_s, job.run_s, -(-job.processors // divide_sizes), job.line)
        for job in jobs
        if 0 <= job.submit_s < window_s and job.run_s >= 0 and job.processors >= 1 and job.number not in skip
    ]
    first: dict[int, ReplayJob] = {}
    for job in chosen:
        if first.setdefault(job.number, job) is not job:
            what = f"job {job.number} is stated a second time (first in line {first[job.number].line})"
            raise InvalidInput(Problem(f"{source}:{job.line}", what, "every job number once"))
    return tuple(sorted(chosen, key=lambda job: (job.submit_s, job.number)))


def _usable(values: list[float]) -> bool:
    """Return whether a line of 18 numbers can be a job; the slow `_what_is_wrong` gives the reason if not."""
    number, submit_s, _, run_s, processors = values[:5]
    return (
        0 <= number <= _LARGEST
        and number.is_integer()
        and -_LARGEST <= submit_s <= _LARGEST
        and (0 <= run_s <= _LARGEST or run_s == -1)
        and -1 <= processors <= _LARGEST
        and processors.is_integer()
        and math.isfinite(sum(values))
    )


def _number(text: str) -> float | None:
    """Return the finite number that a field holds, None if there is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


def _what_is_wrong(where: str, fields: list[str]) -> Problem:
    """Return the first error of an unusable line."""
    if len(fields) != FIELDS:
        return Problem(where, f"{len(fields)} fields", f"{FIELDS} numbers")
    values = []
    for at, text in enumerate(fields):
        value = _number(text)
        if value is None:
            return Problem(where, f"field {at + 1} is {fields[at][:40]!a}", "a finite number")
        values.append(value)
    checks: tuple[tuple[int, str, str, Callable[[float], bool]], ...] = (
        (0, "job number", "a whole number, 0 or above", lambda v: 0 <= v <= _LARGEST and v.is_integer()),
        (1, "submit time", f"seconds from {-_LARGEST:g} to {_LARGEST:g}", lambda v: abs(v) <= _LARGEST),
        (3, "run time", f"seconds from 0 to {_LARGEST:g}, or -1", lambda v: 0 <= v <= _LARGEST or v == -1),
        (4, "processors", "a whole number, -1 or above", lambda v: -1 <= v <= _LARGEST and v.is_integer()),
    )
    for at, what, expected, good in checks:
        if not good(values[at]):
            return Problem(where, f"field {at + 1} ({what}) is {fields[at][:40]!a}", expected)
    return Problem(where, "the numbers are too large", f"numbers up to {_LARGEST:g}")
