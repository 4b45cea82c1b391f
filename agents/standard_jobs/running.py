"""Runs standard jobs on this host as processes: bounded in time, number and disk space, gone with the agent."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agents.standard_jobs.programs import MIB
from shared.config.agent import StandardJobKeys
from shared.ports.effects import RunStandard, StandardRan
from shared.values.load_vector import StandardJob, StandardPace, StandardRun

COMMAND = (sys.executable, "-I", "-m", "agents.standard_jobs")
MARGIN_S = 60.0  # to start and, on a slow disk, to make the file
FREE_MIB_MIN = 1024  # what must be left on the disk
OUTPUT_CHARS_MAX = 400


class OwnStandardJobs:
    """Implements `agents.service.main.StandardRunner` on this machine, as the agent's file allows it."""

    def __init__(self, keys: StandardJobKeys, command: Sequence[str] = COMMAND, margin_s: float = MARGIN_S) -> None:
        self._keys, self._command, self._margin_s = keys, tuple(command), margin_s

    def run(self, effect: RunStandard) -> StandardRan:
        """Run the copies and return their paces, or why there are none; never raises. Takes `run_s` and, at most, the
        margin."""
        why = self._refusal(effect.run)
        if why:
            return StandardRan(effect.request, False, detail=why)
        try:
            return _read(effect, self._output(effect.run))
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            return StandardRan(effect.request, False, detail=str(error)[:OUTPUT_CHARS_MAX])

    def _refusal(self, run: StandardRun) -> str:
        """Return why the benchmark is not run; empty when it is."""
        keys = self._keys
        if not keys.enabled:
            return "standard_jobs.enabled is not set on this node"
        if run.run_s > keys.run_s_max:
            return f"{run.run_s:g} s are more than standard_jobs.run_s_max = {keys.run_s_max:g}"
        if run.copies > keys.copies_max:
            return f"{run.copies} copies are more than standard_jobs.copies_max = {keys.copies_max}"
        if run.job is not StandardJob.IO:
            return ""
        try:
            Path(keys.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
            free_mib = shutil.disk_usage(keys.folder).free // MIB
        except OSError as error:
            return f"no folder for its file: {error}"
        if free_mib < keys.file_mib + FREE_MIB_MIN:
            return f"{free_mib} MiB free in {keys.folder}, {keys.file_mib + FREE_MIB_MIN} are needed"
        return ""

    def _output(self, run: StandardRun) -> str:
        """Return the output of the processes. They end when the pipe at their standard input is closed: with the
        agent."""
        arguments = [run.job.value, "--run-s", str(run.run_s), "--copies", str(run.copies)]
        arguments += ["--folder", self._keys.folder, "--file-mib", str(self._keys.file_mib)]
        reading, writing = os.pipe()
        try:
            process = subprocess.Popen(
                [*self._command, *arguments],
                stdin=reading,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        except OSError:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        try:
            out, complaints = process.communicate(timeout=run.run_s + self._margin_s)
        except subprocess.TimeoutExpired as error:
            raise subprocess.SubprocessError(f"killed after {error.timeout:g} s") from error
        finally:
            os.close(writing)
            _kill_all(process)
        return out or json.dumps({"error": complaints.strip()[-OUTPUT_CHARS_MAX:] or "it said nothing"})


def _kill_all(process: subprocess.Popen[str]) -> None:
    """Kill what is left of the process and of those that it started, and wait for its end."""
    with suppress(ProcessLookupError):  # they have all ended
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    process.wait()


def _read(effect: RunStandard, output: str) -> StandardRan:
    """Raises ValueError for what is no answer of the program."""
    values = json.loads(output)
    match values:
        case {"error": why}:
            return StandardRan(effect.request, False, detail=str(why)[:OUTPUT_CHARS_MAX])
        case {"paces": [*lines], "reads": reads} if len(lines) == effect.run.copies:
            paces = tuple(_pace(line) for line in lines)
            return StandardRan(effect.request, True, paces, f"reads: {reads}" if reads else "")
    raise ValueError(f"the program said {output.strip()}")


def _pace(line: Any) -> StandardPace:
    match line:
        case [float(units), float(elapsed_s), float(cpu_s)]:
            return StandardPace(units, elapsed_s, cpu_s)
    raise ValueError(f"the program said {line} of a copy")


class NoStandardJobs:
    """A host on which the agent cannot run them: it is not the machine that the agent runs on."""

    def run(self, effect: RunStandard) -> StandardRan:
        """Refused."""
        return StandardRan(effect.request, False, detail="this node's host is not the agent's own machine")
