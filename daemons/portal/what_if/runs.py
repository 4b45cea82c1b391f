"""What-ifs in the background: each is a low-priority process of the `trimtab` command, a few at a time, the others in a
queue. Results are kept in a folder and outlive the portal."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from daemons.portal.process_pool import TooBusy
from shared.ports.core import Clock
from shared.runtime.logs import get_logger

NICENESS = 15
OOM_SCORE_ADJ = 1000  # of the kernel's -1000 to 1000
MEMORY_BYTES_MAX = 4 << 30  # address space of one
RESULT_BYTES_MAX = 64 << 20
LINE_BYTES_MAX = 16_384
LAST_LINES = 8
PASSED_ON = ("PATH", "LANG", "LC_ALL", "HOME", "TZ", "LD_LIBRARY_PATH")
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
ABOUT, RESULT = "run.json", "result.json"
STOPPED = "the portal stopped before the run ended"
PARTS = {
    "reading": "reading the history",
    "baseline": "simulating the span without the change",
    "changed": "simulating the span with the change",
}


class WhatIfKind(StrEnum):
    """What is computed again: the whole span in the simulator, or each decision from what it was made of."""

    SIMULATE = "simulate"
    REPLAY = "replay"


class RunState(StrEnum):
    """How far one is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN = (RunState.QUEUED, RunState.RUNNING)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What is asked for: a span (UTC epoch seconds), other policies ("": as recorded), values `section.key=value`."""

    kind: WhatIfKind
    from_s: float
    to_s: float
    placement: str = ""
    provisioning: str = ""
    values: tuple[str, ...] = ()
    account: str = ""
    why: str = ""

    @property
    def arguments(self) -> list[str]:
        """Of the `trimtab` command."""
        words = ["sim", "what-if"] if self.kind is WhatIfKind.SIMULATE else ["snapshot", "replay"]
        words += [f"--from={self.from_s!r}", f"--to={self.to_s!r}", "--output=json", "--progress=json"]
        words += [f"--{role}={name}" for role in ("placement", "provisioning") if (name := getattr(self, role))]
        return words + [f"--set={each}" for each in self.values]


@dataclass(frozen=True, slots=True)
class Run:
    """One what-if. `part`: of it that is done, 0 to 1; `words`: what it does now; `detail`: why there is nothing."""

    id: str
    wish: RunRequest
    state: RunState
    asked_s: float
    begun_s: float | None = None
    ended_s: float | None = None
    part: float = 0.0
    words: str = ""
    detail: str = ""

    @property
    def is_open(self) -> bool:
        """Whether something is still to come."""
        return self.state in OPEN


@dataclass(slots=True)
class _Process:
    """One that runs. `given_up`: why it was killed ("": it was not)."""

    process: subprocess.Popen[bytes] | None = None
    given_up: str = ""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))


class Runs:
    """The what-ifs of a portal. Usable from any thread; nothing blocks for longer than a small file takes.

    folder: where they are kept. variables: the command's environment variables, such as the store's URL. Raises
    `OSError` when the folder cannot be created.
    """

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        variables: Mapping[str, str],
        *,
        command: Sequence[str] = (),
        at_once: int = 1,
        queue_max: int = 10,
        kept_max: int = 30,
        limit_s: float = 3_600.0,
    ) -> None:
        self._folder, self._clock, self._variables = folder, clock, dict(variables)
        self._command = tuple(command) or (str(Path(sys.executable).with_name("trimtab")),)
        self._at_once, self._queue_max, self._kept_max = at_once, queue_max, kept_max
        self.limit_s = limit_s
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._processes: dict[str, _Process] = {}
        self._closed = False
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._load()

    # --- what there is ----------------------------------------------------------------------------------------------

    def all(self) -> tuple[Run, ...]:
        """Return every what-if, the newest first."""
        with self._lock:
            return tuple(sorted(self._runs.values(), key=lambda run: (-run.asked_s, run.id)))

    def find(self, id: str) -> Run | None:
        """Return one what-if."""
        with self._lock:
            return self._runs.get(id)

    def place(self, id: str) -> int:
        """Return the number of what-ifs before it in the queue."""
        waiting = [run.id for run in reversed(self.all()) if run.state is RunState.QUEUED]
        return waiting.index(id) if id in waiting else 0

    def result(self, id: str) -> dict[str, Any] | None:
        """Return its result; None while there is none. Reads a file."""
        run = self.find(id)
        if run is None or run.state is not RunState.DONE:
            return None
        return _read(self._folder / run.id / RESULT)

    # --- what is done -----------------------------------------------------------------------------------------------

    def start(self, request: RunRequest) -> Run:
        """Take one in; it begins when its turn comes. Raises `TooBusy` when too many wait."""
        with self._lock:
            if sum(run.state is RunState.QUEUED for run in self._runs.values()) >= self._queue_max:
                raise TooBusy(f"{self._queue_max} what-ifs are queued. Cancel one, or try again later.")
            run = Run(secrets.token_hex(8), request, RunState.QUEUED, asked_s=self._clock.now_s())
            (self._folder / run.id).mkdir(mode=0o700)
            self._put(run)
            self._drop_old()
        self._next()
        return run

    def cancel(self, id: str) -> bool:
        """End one that waits or runs; false when there is nothing to end."""
        with self._lock:
            run = self._runs.get(id)
            if run is None or not run.is_open:
                return False
            if run.state is RunState.QUEUED:
                self._put(replace(run, state=RunState.CANCELLED, ended_s=self._clock.now_s()))
                return True
            return self._kill(id, "cancelled")

    def forget(self, id: str) -> bool:
        """Drop one that is over, with what came of it; false when there is none."""
        with self._lock:
            run = self._runs.get(id)
            if run is None or run.is_open:
                return False
            self._remove(id)
            return True

    def close(self) -> None:
        """End all that run or wait."""
        with self._lock:
            self._closed = True
            for run in [run for run in self._runs.values() if run.state is RunState.QUEUED]:
                self._put(replace(run, state=RunState.FAILED, ended_s=self._clock.now_s(), detail=STOPPED))
            for id in list(self._processes):
                self._kill(id, STOPPED)

    # --- files ------------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        for path in self._folder.iterdir():
            about = _read(path / ABOUT)
            run = None if about is None else _run_of(path.name, about)
            if run is None:
                get_logger("portal").warning("not a what-if", folder=path.name)
                continue
            self._runs[run.id] = run
            if run.is_open:
                self._put(replace(run, state=RunState.FAILED, detail=STOPPED))
        self._drop_old()

    def _put(self, run: Run) -> None:
        """Keep a state, in the folder too."""
        self._runs[run.id] = run
        path = self._folder / run.id / ABOUT
        try:
            path.with_suffix(".new").write_text(json.dumps(asdict(run)), encoding="utf-8")
            path.with_suffix(".new").replace(path)
        except OSError as error:  # it is shown as long as the portal lives
            get_logger("portal").error("a what-if is not kept", run=run.id, error=str(error))

    def _drop_old(self) -> None:
        over = sorted((run for run in self._runs.values() if not run.is_open), key=lambda run: run.asked_s)
        for run in over[: max(0, len(self._runs) - self._kept_max)]:
            self._remove(run.id)

    def _remove(self, id: str) -> None:
        del self._runs[id]
        shutil.rmtree(self._folder / id, ignore_errors=True)

    # --- processes --------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        """Begin those whose turn it is."""
        with self._lock:
            waiting = sorted((run for run in self._runs.values() if run.state is RunState.QUEUED), key=_order)
            for run in waiting[: max(0, self._at_once - len(self._processes))] if not self._closed else ():
                self._processes[run.id] = _Process()
                self._put(replace(run, state=RunState.RUNNING, begun_s=self._clock.now_s()))
                threading.Thread(target=self._work, args=(run.id,), name="what-if", daemon=True).start()

    def _work(self, id: str) -> None:
        """Run one to its end."""
        work = self._processes[id]
        status = None
        try:
            status = self._watch(id, work)
        except OSError as error:
            work.given_up = work.given_up or f"{self._command[0]}: {error.strerror or error}"
        finally:
            with self._lock:
                del self._processes[id]
                self._ended(id, work, status)
            self._next()

    def _watch(self, id: str, work: _Process) -> int:
        """Have the command run; its exit status."""
        folder = self._folder / id
        with (folder / RESULT).open("wb") as result:
            process = subprocess.Popen(
                [*self._command, *self._runs[id].wish.arguments],
                stdin=subprocess.DEVNULL,
                stdout=result,
                stderr=subprocess.PIPE,
                cwd=folder,
                env={name: os.environ[name] for name in PASSED_ON if name in os.environ}
                | dict.fromkeys(ONE_THREAD, "1")
                | self._variables,
                start_new_session=True,
            )
        with process:
            _hold_back(process.pid)
            with self._lock:
                work.process = process
                if work.given_up or self._closed:
                    self._kill(id, work.given_up or STOPPED)
            limit = threading.Timer(self.limit_s, self._out_of_time, (id,))
            limit.daemon = True
            limit.start()
            try:
                while process.stderr is not None and (line := process.stderr.readline(LINE_BYTES_MAX)):
                    self._heard(id, work, line.decode(errors="replace"))
                return process.wait()
            finally:
                limit.cancel()
                _kill_group(process)

    def _heard(self, id: str, work: _Process, line: str) -> None:
        progress = _progress(line)
        if progress is None:
            work.lines.append(line.strip()[:500])
            return
        with self._lock:  # not in the folder: that would be a file per line
            run = self._runs[id]
            part, words = _of_all(run.wish, *progress)
            self._runs[id] = replace(run, part=max(run.part, part), words=words)

    def _out_of_time(self, id: str) -> None:
        with self._lock:
            self._kill(id, f"exceeded the time limit of {self.limit_s:g} s")

    def _kill(self, id: str, why: str) -> bool:
        work = self._processes.get(id)
        if work is None:
            return False
        work.given_up = work.given_up or why
        if work.process is not None:
            _kill_group(work.process)
        return True

    def _ended(self, id: str, work: _Process, status: int | None) -> None:
        """Keep what came of it."""
        run = replace(self._runs[id], ended_s=self._clock.now_s())
        result = None if work.given_up else _read(self._folder / id / RESULT)
        if work.given_up == "cancelled":
            run = replace(run, state=RunState.CANCELLED)
        elif result is None or "error" in result or status not in (0, 1):
            words = (result or {}).get("error", {})
            message = words.get("message") if isinstance(words, Mapping) else None
            detail = work.given_up or message or "\n".join(work.lines) or f"the command ended with status {status}"
            run = replace(run, state=RunState.FAILED, detail=f"{detail}"[:2000])
        else:
            run = replace(run, state=RunState.DONE, part=1.0, words="")
        self._put(run)


def _order(run: Run) -> tuple[float, str]:
    return (run.asked_s, run.id)


def _hold_back(pid: int) -> None:
    """Lower the process's priority and limit its memory and its output. When memory of the whole unit is short, the
    kernel ends it first."""
    with contextlib.suppress(OSError):  # it may have ended already
        with Path(f"/proc/{pid}/oom_score_adj").open("w", encoding="ascii") as file:
            file.write(str(OOM_SCORE_ADJ))
        os.setpriority(os.PRIO_PROCESS, pid, max(NICENESS, os.getpriority(os.PRIO_PROCESS, pid)))
        resource.prlimit(pid, resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (RESULT_BYTES_MAX, RESULT_BYTES_MAX))


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process, which is a session of its own, with everything it has started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _progress(line: str) -> tuple[float, str] | None:
    """Return the progress in a line: the part that is done, and words; None for other lines."""
    try:
        progress = json.loads(line)
        done, of = float(progress["done"]), float(progress["of"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    part = min(max(done / of, 0.0), 1.0) if of > 0.0 else 0.0
    words = progress.get("run", "")
    return (part, words[:100]) if isinstance(words, str) else (part, "")


def _of_all(request: RunRequest, part: float, words: str) -> tuple[float, str]:
    """Return the part of the whole run that is done, given the part of the phase that `words` names; and the phase in
    words."""
    if words not in PARTS:
        return part, ""
    if request.placement or request.provisioning or request.values:
        part = {"reading": 0.0, "baseline": part / 2.0, "changed": 0.5 + part / 2.0}[words]
    return (0.0 if words == "reading" else part), PARTS[words]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _run_of(id: str, about: dict[str, Any]) -> Run | None:
    """Return a stored what-if; None if the record is invalid."""
    try:
        request = dict(about.pop("wish"))
        kind, values = WhatIfKind(request.pop("kind")), tuple(request.pop("values"))
        state = RunState(about.pop("state"))
        run = Run(wish=RunRequest(kind=kind, values=values, **request), state=state, **about)
    except (TypeError, ValueError, KeyError):
        return None
    return run if run.id == id else None
