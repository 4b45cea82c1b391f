"""What computes, in a process of its own."""

from __future__ import annotations

import asyncio
import gc
import os
import signal

import pytest

from daemons.portal.process_pool import WAITING_MAX, ProcessPool, TooBusy
from shared.base.errors import InvalidValue


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
