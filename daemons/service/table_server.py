"""What the controller's workers run: decisions with the tables that are there, and the making of those that are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from daemons.decision.admitting import compute
from daemons.decision.packing import EncodeRequest, encode
from daemons.decision.pipeline import Prepared, PrepareRequest
from daemons.service.table_files import BYTES_MAX, DEFAULT_FOLDER, TableFiles
from shared.base.errors import TrimtabError


class TableServer:
    """Answers a `DecideRequest` with a `DecideOutcome`, an `AdmissionTask` with an `AdmissionAnswer`, a
    `PrepareRequest` with a `Prepared`, an `EncodeRequest` with bytes. Goes to another process as it was made."""

    def __init__(self, folder: str | Path = DEFAULT_FOLDER, bytes_max: int = BYTES_MAX) -> None:
        self.folder, self.bytes_max = str(folder), bytes_max
        self._table_cache: TableFiles | None = None

    def __getstate__(self) -> tuple[str, int]:
        return self.folder, self.bytes_max

    def __setstate__(self, state: tuple[str, int]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __call__(self, request: Any, /) -> Any:
        """Return the answer. Raises the errors of a policy."""
        if isinstance(request, EncodeRequest):
            return encode(request)
        if self._table_cache is None:
            self._table_cache = TableFiles(self.folder, self.bytes_max)
        if isinstance(request, PrepareRequest):
            return prepare(request, self._table_cache)
        return compute(request, self._table_cache)


def prepare(request: PrepareRequest, table_cache: TableFiles) -> Prepared:
    """Compute the tables of the request; one that cannot be computed does not keep the others from it."""
    failed = []
    for spec in request.specs:
        try:
            table_cache.prepare(spec)
        except (TrimtabError, MemoryError, ArithmeticError, ValueError) as error:
            failed.append(f"{type(error).__name__}: {error}")
    return Prepared(len(request.specs) - len(failed), tuple(failed))
