"""Runs the work of experiments on all processors; every piece draws from a seed of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from typing import Any

from shared.runtime.child_process import live_with_parent, without_interrupts

Work = tuple[Callable[..., Any], tuple[Any, ...]]


# Who ends without its pool leaves semaphores, which a process of Python's removes; that is no news for people.
_UNSAID = "ignore::UserWarning:multiprocessing.resource_tracker"


def run_all(work: Sequence[Work], workers: int | None = None, tell: Callable[[int], None] | None = None) -> list[Any]:
    """Return the results in the order of `work`. `workers`: number of processes, one per processor if None; with one
    worker or one task, everything runs in this process. `tell` is called with the number of finished tasks. Raises the
    exception of a task. The processes end at once when a task fails, and when this process is interrupted or ends."""
    count = min(len(work), workers or os.cpu_count() or 1)
    if count <= 1:
        return [_told(_do(piece), index + 1, tell) for index, piece in enumerate(work)]
    if _UNSAID not in sys.warnoptions:  # that process gets them, too
        sys.warnoptions.append(_UNSAID)
    others = active_children()
    with ProcessPoolExecutor(count, get_context("spawn"), live_with_parent, (os.getpid(),)) as pool:
        try:
            with without_interrupts():
                futures = [pool.submit(_do, piece) for piece in work]
            for done, future in enumerate(as_completed(futures), 1):
                _told(future.result(), done, tell)
        except BaseException:
            for process in active_children():
                if process not in others:
                    process.kill()
            raise
        return [future.result() for future in futures]


def _do(piece: Work) -> Any:
    function, arguments = piece
    return function(*arguments)


def _told(result: Any, done: int, tell: Callable[[int], None] | None) -> Any:
    if tell is not None:
        tell(done)
    return result
