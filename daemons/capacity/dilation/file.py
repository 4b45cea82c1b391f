"""Reads a file for `trimtab sim dilation`: jobs, what they load and when they arrive, checked as a whole."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemons.capacity.json_file import REQUIRED, Checker, Field, Row, echo, number, parse_file, rows, table, text, whole
from daemons.capacity.place.fields import LABEL, LABEL_WORDS, SECONDS_MAX
from shared.values.load_vector import RESOURCES_MAX, SUM_ERROR_MAX

JOBS_MAX = 1_000  # instances in all
STAGES_MAX = 100
SERVERS_MAX = 1_000_000
NEUTRAL_S_MIN = 1e-6
ONE_MACHINE = ""


def _names(most: int, default: Any = REQUIRED) -> Field:
    def admits(raw: Any) -> bool:
        return isinstance(raw, list) and 1 <= len(raw) <= most

    return Field(f"a list of 1 to {most} names", admits, default)


NAME = text(r"\S(.{0,126}\S)?", "1 to 128 printable characters in one line, no space at either end")
NEUTRAL = number(NEUTRAL_S_MIN, SECONDS_MAX)
VECTOR = Field("a list of numbers", lambda raw: isinstance(raw, list))
FILE: Mapping[str, Field] = {"resources": _names(RESOURCES_MAX), "servers": table({}), "jobs": rows()}
JOB: Mapping[str, Field] = {
    "name": NAME,
    "loading": Field(VECTOR.words, VECTOR.admits, None),
    "neutral_s": number(NEUTRAL_S_MIN, SECONDS_MAX, None),
    "arrival_s": number(-SECONDS_MAX, SECONDS_MAX, 0.0),
    "stages": rows(None),
    "instances": whole(1, JOBS_MAX, None),
    "machines": _names(JOBS_MAX, None),
}
STAGE: Mapping[str, Field] = {"loading": VECTOR, "neutral_s": NEUTRAL}


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage: its time alone, and its part of each resource."""

    neutral_s: float
    loading: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job: its stages, and the number of the machine that each of its instances is on."""

    name: str
    arrival_s: float
    stages: tuple[StageRow, ...]
    machines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DilationFile:
    """A file whose every part is known to be good. servers: of each resource."""

    resources: tuple[str, ...]
    servers: tuple[int, ...]
    jobs: tuple[JobRow, ...]


def read(path: Path) -> DilationFile:
    """The file at `path`. Raises `InvalidInput` naming each problem with its place in the file."""
    reader = _Reader(Checker(str(path)), parse_file(path))
    found = reader.read()
    reader.checker.done()
    return found


class _Reader:
    """Walks through one file. Goes on after a problem, so what it returns counts only where there was none."""

    def __init__(self, checker: Checker, raw: Any) -> None:
        self.checker = checker
        self._top = checker.row("", raw, FILE)
        self._resources = self._unique("resources", self._top.get("resources") or ())
        self._machines: dict[str, int] = {}

    def read(self) -> DilationFile:
        """The whole file."""
        servers = self._servers()
        jobs = list(self._jobs())
        if self._top.get("jobs") == []:
            self.checker.wrong("jobs", "is a list of 0", "one job or more")
        for name, count in Counter(row["name"] for _, row in jobs if "name" in row).items():
            if count > 1:
                self.checker.wrong("jobs", f"{count} jobs have the name {name!r}", "names that differ")
        named = [row.get("machines") is not None for _, row in jobs]
        if any(named) and not all(named):
            self.checker.wrong("jobs", "some have machines, others none", "machines for all jobs, or for none")
        found = tuple(
            JobRow(row.get("name", ""), row.get("arrival_s", 0.0), self._stages(at, row), self._homes(at, row))
            for at, row in jobs
        )
        instances = sum(len(job.machines) for job in found)
        if instances > JOBS_MAX:
            self.checker.wrong("jobs", f"{instances} instances", f"at most {JOBS_MAX}")
        return DilationFile(self._resources, servers, found)

    def _jobs(self) -> Iterator[tuple[str, Row]]:
        """The place, with the name, and the good keys of each job."""
        for index, raw in enumerate(self._top.get("jobs") or ()):
            name = raw.get("name") if isinstance(raw, dict) else None
            at = f"jobs[{index}] ({name})" if JOB["name"].admits(name) else f"jobs[{index}]"
            yield at, self.checker.row(at, raw, JOB)

    def _unique(self, path: str, raw: Any) -> tuple[str, ...]:
        """Names, none of them twice."""
        label = text(LABEL, LABEL_WORDS)
        for name in raw:
            if not label.admits(name):
                self.checker.wrong(path, f"has {echo(name)}", LABEL_WORDS)
        for name, count in Counter(name for name in raw if label.admits(name)).items():
            if count > 1:
                self.checker.wrong(path, f"has {name!r} {count} times", "every name once")
        return tuple(map(str, raw))

    def _servers(self) -> tuple[int, ...]:
        fields = {name: whole(1, SERVERS_MAX, 1) for name in self._resources}
        found = self.checker.row("servers", self._top.get("servers", {}), fields) if fields else {}
        return tuple(found.get(name, 1) for name in self._resources)

    def _homes(self, at: str, row: Row) -> tuple[int, ...]:
        """The machine of each instance."""
        machines, instances = row.get("machines"), row.get("instances")
        if machines is None:
            return (self._machine(ONE_MACHINE),) * (instances or 1)
        if instances is not None and instances != len(machines):
            self.checker.wrong(f"{at}.machines", f"{len(machines)} for {instances} instances", "one for each instance")
        label = text(LABEL, LABEL_WORDS)
        for name in machines:
            if not label.admits(name):
                self.checker.wrong(f"{at}.machines", f"has {echo(name)}", LABEL_WORDS)
        return tuple(self._machine(name) for name in machines if label.admits(name))

    def _machine(self, name: str) -> int:
        return self._machines.setdefault(name, len(self._machines))

    def _stages(self, at: str, row: Row) -> tuple[StageRow, ...]:
        if row.get("stages") is None:
            for key in ("loading", "neutral_s"):
                if key in row and row[key] is None:
                    self.checker.wrong(f"{at}.{key}", "is missing", JOB[key].words)
            return (self._stage(at, row),)
        for key in ("loading", "neutral_s"):
            if row.get(key) is not None:
                self.checker.wrong(f"{at}.{key}", "is there beside stages", "either that or stages")
        if not 1 <= len(row["stages"]) <= STAGES_MAX:
            self.checker.wrong(f"{at}.stages", f"is a list of {len(row['stages'])}", f"1 to {STAGES_MAX} stages")
        stages = self.checker.rows(f"{at}.stages", row["stages"], STAGE)
        return tuple(self._stage(place, stage) for place, stage in stages)

    def _stage(self, at: str, row: Row) -> StageRow:
        return StageRow(row.get("neutral_s") or 1.0, self._vector(f"{at}.loading", row.get("loading")))

    def _vector(self, at: str, raw: list[Any] | None) -> tuple[float, ...]:
        """A loading vector; of a bad one zeros, to go on with."""
        count = len(self._resources)
        part = number(0.0, 1.0)
        bad = [value for value in raw or () if not part.admits(value)]
        if raw is None:
            pass
        elif bad:
            self.checker.wrong(at, f"has {echo(bad[0])}", "numbers from 0 to 1")
        elif len(raw) != count:
            self.checker.wrong(at, f"has {len(raw)} parts", f"{count}, one for each resource")
        elif math.fsum(raw) > 1.0 + SUM_ERROR_MAX:
            self.checker.wrong(at, f"sums to {math.fsum(raw):.12g}", "parts that sum to 1 at most")
        else:
            return tuple(map(float, raw))
        return (0.0,) * count
