"""Where cases run: a folder with whole files of every kind, commands in this process, and a judgement of their end."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from tests.fuzz.guard import Guard
from tests.fuzz.wire import Wire
from tests.support.operator_harness import URL

ROOT = Path(__file__).parents[2]
INTERRUPTED = 130
_BARE = re.compile(r"(?<![\w\"'.#-])[-+]?(?:nan|inf|infinity)(?![\w\"'.#-])", re.IGNORECASE)
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. `error`: what it raised, which is always a defect."""

    status: int
    out: str
    err: str
    error: str = ""


class Scene:
    """A folder for one process, which works in it; every case finds it as it was made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.guard = Guard(folder)
        self.bases: dict[str, bytes] = {}
        self._made: frozenset[tuple[str, int, int]] = frozenset()

    def begin(self, bases: Mapping[str, Callable[[Scene], bytes]]) -> None:
        """Make the files, go there, and let nothing be touched but that."""
        os.chdir(self.folder)
        tempfile.tempdir = str(self.folder)
        os.environ.update(HOME=str(self.folder), MPLCONFIGDIR=str(self.folder), TMPDIR=str(self.folder))
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(self.folder)
        for name in [name for name in os.environ if name.startswith(("TRIMTAB_", "XDG_"))]:
            del os.environ[name]
        for name, make in bases.items():
            self.bases[name] = make(self)
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_bytes(self.bases[name])
            Path(name).chmod(0o600)
        self._made = self._listed()
        self.guard.begin()

    def put(self, name: str, content: bytes) -> None:
        """Another content for a file; the next case finds it as it was."""
        Path(name).write_bytes(content)

    def tidy(self) -> None:
        """Put back what was changed, remove what was made."""
        if (now := self._listed()) == self._made:
            return
        for name, _, _ in now - self._made:
            if name in self.bases:
                continue
            if os.path.isdir(name) and not os.path.islink(name):
                shutil.rmtree(name, ignore_errors=True)
            elif os.path.lexists(name):
                os.unlink(name)
        there = {name: (size, time) for name, size, time in self._listed()}
        made = {name: (size, time) for name, size, time in self._made}
        for name, content in self.bases.items():
            if there.get(name) != made.get(name):
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                Path(name).write_bytes(content)
                os.utime(name, ns=(made[name][1], made[name][1]))

    def _listed(self, folder: str = "") -> frozenset[tuple[str, int, int]]:
        found: set[tuple[str, int, int]] = set()
        with os.scandir(folder or ".") as entries:
            for entry in entries:
                name = os.path.join(folder, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    found.add((name, 0, 0))
                    found |= self._listed(name)
                else:
                    known = entry.stat(follow_symlinks=False)
                    found.add((name, known.st_size, known.st_mtime_ns))
        return frozenset(found)

    # --- running ----------------------------------------------------------------------------------------------------

    def trimtab(self, words: Sequence[str], env: Mapping[str, str] | None = None, wire: Wire | None = None) -> Ended:
        """Run `trimtab` with a controller on a bus in memory."""
        from daemons.cli.main import main

        variables = {"TRIMTAB_URL": URL, **(env or {})}
        return self.click(main, "trimtab", words, variables, (wire or Wire()).access)

    def click(
        self,
        command: click.Command,
        name: str,
        words: Sequence[str],
        env: Mapping[str, str] | None = None,
        obj: object = None,
    ) -> Ended:
        """Run a click command."""
        options: dict[str, Any] = {} if obj is None else {"obj": obj}
        result = CliRunner().invoke(command, list(words), prog_name=name, env=dict(env or {}), **options)
        error = result.exception
        if error is None or isinstance(error, SystemExit):
            return Ended(result.exit_code, result.stdout, result.stderr)
        return Ended(result.exit_code, result.stdout, result.stderr, said_of(error))

    def daemon(self, main: Callable[[Sequence[str]], int], words: Sequence[str]) -> Ended:
        """Run a daemon's `main`."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                status = main(list(words))
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 1
            except BaseException as error:  # noqa: BLE001  # whatever comes out is what is looked for
                return Ended(1, out.getvalue(), err.getvalue(), said_of(error))
        return Ended(status, out.getvalue(), err.getvalue())


def called(call: Callable[[], object], *refusals: type[Exception]) -> str:
    """Call a reader: what is wrong with how it ended ("": nothing). It may raise one of `refusals` with words."""
    try:
        call()
    except refusals as error:
        return "" if str(error).strip() else f"{type(error).__name__} without words"
    except BaseException as error:  # noqa: BLE001  # whatever comes out is what is looked for
        return said_of(error)
    return ""


def said_of(error: BaseException) -> str:
    """An exception and where it is from: the last lines of ours and of all."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [each for each in frames if each.filename.startswith(str(ROOT)) and ".venv" not in each.filename]
    places = [f"{os.path.relpath(each.filename, ROOT)}:{each.lineno}" for each in (*ours[-2:], *frames[-1:])]
    return f"{type(error).__name__}: {str(error)[:200]!r} at {', '.join(dict.fromkeys(places))}"


def judged(
    ended: Ended,
    wants_json: bool = False,
    has_nan: bool = False,
    interrupted: bool = False,
    is_stream: bool = False,
) -> str:
    """What is wrong with the end of a command ("": nothing). `has_nan`: a text that it was given reads like NaN.
    `interrupted`: it may have been. `is_stream`: what it prints is JSON line by line."""
    if ended.error:
        return ended.error
    words = ended.out + ended.err
    if "Traceback (most recent call last)" in words or "RuntimeWarning" in words:
        return f"a traceback or warning: {words[-300:]!r}"
    if ended.status not in (0, 1, 2) and not (interrupted and ended.status == INTERRUPTED):
        return f"exit status {ended.status}: {words[-200:]!r}"
    if ended.status != 0 and not words.strip():
        return f"exit status {ended.status} without a word"
    if found := _STEERING.search(ended.err):
        return f"{found[0]!r} on standard error: {ended.err[max(0, found.start() - 80) : found.end() + 80]!r}"
    if wants_json and not (ended.status == 2 and not ended.out):
        return not_json(ended.out)
    if ended.status == 0 and is_stream:
        return next((wrong for line in ended.out.splitlines() if (wrong := not_json(line))), "")
    if ended.status == 0 and not has_nan and (found := _BARE.search(ended.out)):
        return f"prints {found[0]!r}: {ended.out[max(0, found.start() - 150) : found.end() + 50]!r}"
    return ""


def not_json(text: str) -> str:
    """Why a text is not exactly one JSON object without NaN ("": it is)."""

    def refuse(constant: str) -> None:
        raise ValueError(f"holds {constant}")

    try:
        value = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        return f"standard output is not one JSON object: {error}: {text[:200]!r}"
    return "" if isinstance(value, dict) else f"standard output is JSON, but no object: {text[:80]!r}"


def peak_kib(what: bytes = b"VmHWM:") -> int:
    """The largest that this process was since `forget_peak`; `VmRSS:` is what it is now."""
    with open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(what):
                return int(line.split()[1])
    return 0


def forget_peak() -> None:
    """Begin to measure anew."""
    with open("/proc/self/clear_refs", "wb") as refs:
        refs.write(b"5")


assert sys.platform == "linux", "memory is measured in /proc"
