"""A cache of tables on disk: one file for each table, named by what the table depends on, checked when it is read."""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from daemons.decision.tables.making import Spec, Table, made, name_of
from daemons.decision.tables.memory import Remembered
from daemons.models.deadline.breaches import BreachTable
from daemons.models.deadline.phase_sizes import PhaseSizeTable
from daemons.models.deadline.risks import RiskTable
from daemons.models.deadline.rules import SizeTable
from shared.runtime.logs import get_logger

DEFAULT_FOLDER = "/var/lib/trimtab-controller/tables"
BYTES_MAX = 1 << 30
MEMORY_BYTES_MAX = 1 << 28
SUFFIX = ".table"
_DIGEST_LENGTH = 64
_KINDS: dict[str, type[Any]] = {
    "SizeTable": SizeTable,
    "BreachTable": BreachTable,
    "RiskTable": RiskTable,
    "PhaseSizeTable": PhaseSizeTable,
}
_ARRAYS = {
    "SizeTable": ("sizes",),
    "BreachTable": ("servers", "jobs", "breach"),
    "RiskTable": ("servers", "jobs", "stay", "once"),
    "PhaseSizeTable": ("servers", "sizes"),
}
_NUMBERS = {
    "SizeTable": ("servers_min", "delayed", "value_at_0"),
    "BreachTable": (),
    "RiskTable": (),
    "PhaseSizeTable": ("value_at_0",),
}


class TableFiles:
    """Tables in `folder`, at most `bytes_max` of files; the ones read longest ago go first.

    A file that is damaged is deleted, logged, and counts as missing. What the disk refuses (full, no permission) is
    logged, and the table is only remembered. Safe for several processes: files appear whole.
    """

    def __init__(self, folder: str | Path = DEFAULT_FOLDER, bytes_max: int = BYTES_MAX) -> None:
        self.folder, self.bytes_max = Path(folder), bytes_max
        self._remembered = Remembered(MEMORY_BYTES_MAX)
        self.log = get_logger("tables")

    def __call__(self, spec: Any, /) -> Any:
        """Return the table, None if there is none (yet)."""
        if not isinstance(spec, Spec):
            return None
        name = name_of(spec)
        table = self._remembered.get(name)
        if table is None:
            table = self._read(name)
            if table is not None:
                self._remembered.put(name, table)
        return table

    def prepare(self, spec: Spec) -> None:
        """Compute the table and keep it, unless it is there. Raises what computing it raises."""
        if self(spec) is not None:
            return
        table, name = made(spec), name_of(spec)
        self._remembered.put(name, table)
        try:
            self._write(name, packed(table))
        except OSError as error:
            self.log.error("a table cannot be kept", file=str(self._path(name)), error=str(error))

    def _path(self, name: str) -> Path:
        return self.folder / (name + SUFFIX)

    def _read(self, name: str) -> Table | None:
        path = self._path(name)
        try:
            body = path.read_bytes()
        except OSError:
            return None
        try:
            table = unpacked(body)
        except (ValueError, KeyError, TypeError, OSError) as error:
            self.log.error("a damaged table was deleted", file=str(path), error=str(error))
            self._delete(path)
            return None
        self._touch(path)
        return table

    def _write(self, name: str, body: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f".{name}.{os.getpid()}"
        try:
            with temporary.open("wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path(name))
        finally:
            temporary.unlink(missing_ok=True)
        self._trim()

    def _trim(self) -> None:
        """Delete the files used longest ago beyond the bound; the newest one stays."""
        files = sorted(((path.stat(), path) for path in self.folder.glob("*" + SUFFIX)), key=_by_age)
        total = sum(stat.st_size for stat, _ in files)
        for stat, path in files[:-1]:
            if total <= self.bytes_max:
                return
            self._delete(path)
            total -= stat.st_size

    def _touch(self, path: Path) -> None:
        """Reading counts as use; on a disk that cannot be written it does not."""
        try:
            path.touch()
        except OSError as error:
            self.log.debug("the use of a table was not noted", file=str(path), error=str(error))

    def _delete(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self.log.error("a table cannot be deleted", file=str(path), error=str(error))


def _by_age(entry: tuple[os.stat_result, Path]) -> tuple[int, str]:
    return entry[0].st_mtime_ns, entry[1].name


def packed(table: Table) -> bytes:
    """Return the table as bytes: a digest of the rest, then a compressed archive of its arrays and numbers."""
    kind = type(table).__name__
    about = json.dumps({"kind": kind, **{name: getattr(table, name) for name in _NUMBERS[kind]}})
    archive = io.BytesIO()
    arrays = {name: getattr(table, name) for name in _ARRAYS[kind]}
    np.savez_compressed(archive, about=np.frombuffer(about.encode(), dtype=np.uint8), **arrays)
    body = archive.getvalue()
    return hashlib.sha256(body).hexdigest().encode() + body


def unpacked(body: bytes) -> Table:
    """Return the table in these bytes. Raises ValueError if they differ from the output of `packed`."""
    digest, rest = body[:_DIGEST_LENGTH], body[_DIGEST_LENGTH:]
    if hashlib.sha256(rest).hexdigest().encode() != digest:
        raise ValueError("its digest is another")
    with np.load(io.BytesIO(rest), allow_pickle=False) as archive:
        about = json.loads(archive["about"].tobytes())
        kind = about.pop("kind")
        arrays = {name: archive[name] for name in _ARRAYS[kind]}
    for array in arrays.values():
        array.setflags(write=False)
    table: Table = _KINDS[kind](**about, **arrays)
    return table
