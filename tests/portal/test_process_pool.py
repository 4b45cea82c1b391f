"""What computes, in a process of its own."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from daemons.portal.process_pool import WAITING_MAX, ProcessPool, TooBusy
from shared.base.errors import InvalidValue
from tests.support.paths import ROOT
from tests.support.shell_harness import wait_for

PORTAL = """
import asyncio, os
from daemons.portal.process_pool import ProcessPool

async def story():
    drawings, reports = ProcessPool("drawings", 0), ProcessPool("reports", 0)
    print(await drawings.do(os.getpid), await reports.do(os.getpid), flush=True)
    await asyncio.sleep(600.0)

if __name__ == "__main__":
    asyncio.run(story())
"""


def _refuse() -> None:
    raise InvalidValue("x", 1, "2")


def test_it_is_another_process_that_gives_way_and_is_begun_again_when_it_was_killed() -> None:
    async def story(process_pool: ProcessPool) -> tuple[int, int, int]:
        first = await process_pool.do(os.getpid)
        nice = await process_pool.do(os.nice, 0)
        with pytest.raises(InvalidValue, match="expected 2"):
            await process_pool.do(_refuse)
        os.kill(first, signal.SIGKILL)
        return first, nice, await process_pool.do(os.getpid)

    process_pool = ProcessPool("drawings", 3)
    try:
        first, nice, second = asyncio.run(story(process_pool))
    finally:
        process_pool.close()

    assert len({os.getpid(), first, second}) == 3
    assert nice == min(19, os.nice(0) + 3)


def test_none_outlives_a_portal_that_was_killed(tmp_path: Path) -> None:
    program = tmp_path / "portal.py"
    program.write_text(PORTAL, "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, env=environment, text=True) as portal:
        assert portal.stdout is not None
        computing = [psutil.Process(int(pid)) for pid in portal.stdout.readline().split()]
        portal.kill()
        wait_for(lambda: not any(map(_runs, computing)))
    assert len(computing) == 2


def _runs(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


def test_who_is_one_too_many_is_told_so() -> None:
    async def story(process_pool: ProcessPool) -> None:
        process_pool.waiting = WAITING_MAX
        await process_pool.do(os.getpid)

    with pytest.raises(TooBusy, match=f"{WAITING_MAX} drawings are already queued"):
        asyncio.run(story(ProcessPool("drawings", 0)))


def test_what_its_first_call_has_made_is_looked_through_no_more() -> None:
    async def story(process_pool: ProcessPool) -> tuple[int, int]:
        return await process_pool.do(gc.get_freeze_count), await process_pool.do(gc.get_freeze_count)

    process_pool = ProcessPool("drawings", 0)
    try:
        before, after = asyncio.run(story(process_pool))
    finally:
        process_pool.close()

    assert before == 0 < after
