"""Has tables computed that decisions lacked, one request at a time, while decisions go on without them."""

from __future__ import annotations

from daemons.controller.contract.computations import Computations
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.decision.pipeline import Prepared, PrepareRequest, Spec, name_of

LIMIT_S = 600.0
AGAIN_S = 3_600.0  # after so long what could not be computed is tried again
KEPT = 1_000


class TableRequests:
    """Asks for tables. in_progress: they are being computed."""

    def __init__(self, unit_of_work: UnitOfWork, computations: Computations) -> None:
        self._unit_of_work, self._computations = unit_of_work, computations
        self.in_progress = False
        self._asked: dict[str, float] = {}

    def lacked(self, specs: tuple[Spec, ...], now_s: float) -> None:
        """Request tables that a decision found missing. What was requested within the last hour is not requested again;
        otherwise a table that cannot be computed or kept would occupy a processor."""
        if self.in_progress:
            return
        wanted = {name_of(spec): spec for spec in specs}
        new = {name: spec for name, spec in wanted.items() if not self._was_asked(name, now_s)}
        if not new:
            return
        self._asked.update(dict.fromkeys(new, now_s))
        while len(self._asked) > KEPT:
            del self._asked[next(iter(self._asked))]
        self.in_progress = True
        self._computations.ask(PrepareRequest(tuple(new.values())), LIMIT_S, self._answered)
        self._unit_of_work.emit(now_s, "tables-missing", f"{len(new)}")

    def _answered(self, answer: object, error: str, now_s: float) -> None:
        """Take the answer. With new tables a cycle's decision is worth it."""
        self.in_progress = False
        done = answer if isinstance(answer, Prepared) else Prepared(0, (error or "no answer",))
        if done.failed:
            self._unit_of_work.emit(now_s, "tables-failed", f"{len(done.failed)}", "; ".join(done.failed)[:1_000])
        if done.count:
            self._unit_of_work.emit(now_s, "tables-ready", f"{done.count}")
            self._unit_of_work.place = self._unit_of_work.cycle = True

    def _was_asked(self, name: str, now_s: float) -> bool:
        return name in self._asked and 0.0 <= now_s - self._asked[name] < AGAIN_S
