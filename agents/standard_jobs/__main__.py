"""`python -m agents.standard_jobs JOB --run-s S`: runs copies of a calibration benchmark side by side and prints their
throughputs.

Ends, with all its copies, as soon as its standard input is closed: the process that started it holds the other end.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.standard_jobs.programs import ReadFile, Unit, arithmetic, pace
from shared.base.clock import SystemClock
from shared.values.load_vector import StandardJob, StandardPace

READY_S = 0.05  # for each copy to be there; then all begin together
CHUNK_BYTES = 65_536
FAILED = 1
STDIN = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    options = _parser().parse_args(arguments)
    try:
        answer = _run(options)
    except OSError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
    return FAILED if "error" in answer else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m agents.standard_jobs", description="Runs copies of a standard job.")
    parser.add_argument("job", choices=[job.value for job in StandardJob])
    parser.add_argument("--run-s", type=float, required=True, help="for how many seconds")
    parser.add_argument("--copies", type=int, default=1, help="how many side by side")
    parser.add_argument("--folder", type=Path, default=Path(), help="where io makes its file")
    parser.add_argument("--file-mib", type=int, default=256, help="how large that is")
    return parser


def _run(options: argparse.Namespace) -> dict[str, Any]:
    if options.job == StandardJob.CPU:
        return {"paces": _copies(options, lambda _copy: arithmetic), "reads": ""}
    path = options.folder / f"standard-{os.getpid()}"
    file = ReadFile(path, options.file_mib)
    path.unlink()  # it is gone when the last copy is, however they end
    # By a child, so that this process can see meanwhile whether anyone waits for it.
    _answers([_child(lambda: [mib for mib in file.fill() if mib == file.mib])])
    return {"paces": _copies(options, file.reads), "reads": "direct" if file.direct else "dropped from the page cache"}


def _copies(options: argparse.Namespace, unit_of: Callable[[int], Unit]) -> list[list[float]]:
    clock = SystemClock()
    begin_s = clock.monotonic_s() + READY_S * options.copies

    def work(copy: int) -> Callable[[], list[float]]:
        return lambda: _figures(pace(unit_of(copy), begin_s, options.run_s, clock))

    return _answers([_child(work(copy)) for copy in range(options.copies)])


def _figures(done: StandardPace) -> list[float]:
    return [done.units, done.elapsed_s, done.cpu_s]


def _child(work: Callable[[], Any]) -> tuple[int, int]:
    """Do some work in a process of its own; returns where its answer can be read, and its id."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return reading, child
    try:
        answer = {"answer": work()}
    except Exception as error:  # noqa: BLE001  handed on: who started the copies says so
        answer = {"error": str(error)}
    os.write(writing, json.dumps(answer).encode())
    os._exit(0)


def _answers(begun: Sequence[tuple[int, int]]) -> list[Any]:
    """Return the answer of each child, in order; no child is left. Raises ChildProcessError when one failed, or
    standard input is closed first."""
    try:
        said = _said([pipe for pipe, _ in begun])
    finally:
        for _, child in begun:
            os.kill(child, signal.SIGKILL)  # most have ended, and are not waited for yet
            os.waitpid(child, 0)
    return [_answer(said[pipe]) for pipe, _ in begun]


def _said(pipes: Sequence[int]) -> Mapping[int, bytes]:
    said = dict.fromkeys(pipes, b"")
    waiting = set(pipes)
    while waiting:
        for ready in select.select([STDIN, *waiting], [], [])[0]:
            chunk = os.read(ready, CHUNK_BYTES)
            if ready == STDIN:
                if not chunk:
                    raise ChildProcessError("standard input was closed")
            elif chunk:
                said[ready] += chunk
            else:
                waiting.discard(ready)
    return said


def _answer(said: bytes) -> Any:
    values = json.loads(said) if said else {"error": "a copy was killed"}
    if "error" in values:
        raise ChildProcessError(values["error"])
    return values["answer"]


if __name__ == "__main__":
    sys.exit(main())
