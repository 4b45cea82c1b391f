"""Has tables computed that decisions lacked, one request at a time, while decisions go on without them."""

from __future__ import annotations

from collections.abc import Callable

from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.decision.pipeline import Prepared, PrepareRequest, Spec, name_of

LIMIT_S = 600.0
AGAIN_S = 3_600.0  # after so long what could not be computed is tried again
KEPT = 1_000

Compute = Callable[[object, float], int]


class TableRequests:
    """Asks for tables. `compute` has a request carried out within so many seconds, and returns the id of its answer."""

    def __init__(self, unit_of_work: UnitOfWork, compute: Compute) -> None:
        self._agenda, self._compute = unit_of_work, compute
        self._open: int | None = None
        self._asked: dict[str, float] = {}

    @property
    def under_way(self) -> bool:
        """Tables are being computed."""
        return self._open is not None

    def lacked(self, specs: tuple[Spec, ...], now_s: float) -> None:
        """A decision found these missing. What was asked for within the last hour is not asked for again, so that what
        cannot be computed, or not be kept, does not keep a processor busy."""
        if self._open is not None:
            return
        wanted = {name_of(spec): spec for spec in specs}
        new = {name: spec for name, spec in wanted.items() if not self._was_asked(name, now_s)}
        if not new:
            return
        self._asked.update(dict.fromkeys(new, now_s))
        while len(self._asked) > KEPT:
            del self._asked[next(iter(self._asked))]
        self._open = self._compute(PrepareRequest(tuple(new.values())), LIMIT_S)
        self._agenda.happened(now_s, "tables-missing", f"{len(new)}")

    def answered(self, compute_id: int, answer: object, error: str, now_s: float) -> bool:
        """Take the answer; false when it is none of these requests. With new tables a cycle's decision is worth it."""
        if compute_id != self._open:
            return False
        self._open = None
        done = answer if isinstance(answer, Prepared) else Prepared(0, (error or "no answer",))
        if done.failed:
            self._agenda.happened(now_s, "tables-failed", f"{len(done.failed)}", "; ".join(done.failed)[:1_000])
        if done.count:
            self._agenda.happened(now_s, "tables-ready", f"{done.count}")
            self._agenda.place = self._agenda.cycle = True
        return True

    def _was_asked(self, name: str, now_s: float) -> bool:
        return name in self._asked and 0.0 <= now_s - self._asked[name] < AGAIN_S
