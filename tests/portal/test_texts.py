"""Texts in processes that are killed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator

import pytest

from daemons.portal.forms.submit import KINDS, from_files
from daemons.portal.forms.texts import MEMORY_BYTES_MAX, NotUnderstood, Texts
from shared.base.errors import InvalidInput, Problem

LIMIT_S = 3.0


def _refuse() -> None:
    raise InvalidInput(Problem("x", "is wrong", "y"))


def _take(size: int) -> int:
    return len(bytearray(size))


@pytest.fixture(scope="module")
def texts() -> Iterator[Texts]:
    made = Texts(LIMIT_S)
    yield made
    made.close()


def test_what_takes_too_long_or_too_much_is_killed(texts: Texts) -> None:
    async def story() -> list[int]:
        pids = [await texts.do("joe", os.getpid)]
        for call, value, told in (
            (time.sleep, 60, "within 3 s"),
            (_take, MEMORY_BYTES_MAX, "512 MiB of memory"),
            (os._exit, 3, "before its process ended"),
        ):
            with pytest.raises(NotUnderstood, match=told):
                await texts.do("joe", call, value)
            pids.append(await texts.do("joe", os.getpid))
        return pids

    pids = asyncio.run(story())

    assert len({os.getpid(), *pids}) == 5
    for pid in pids[:-1]:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_it_returns_and_raises_as_the_call_does(texts: Texts) -> None:
    async def story() -> tuple[object, object]:
        with pytest.raises(InvalidInput, match="is wrong"):
            await texts.do("joe", _refuse)
        return await texts.do("joe", from_files, KINDS["job"], [("p", 'name = "a"\nclass = "x"\n')], 0.0)

    made, problems = asyncio.run(story())

    assert [where for where, _ in made] == ["p"]  # type: ignore[attr-defined]
    assert problems == []


def test_one_account_has_one_text_at_a_time(texts: Texts) -> None:
    """Given an account that sends several at once, then another's is understood beside the first of them."""
    ended: list[str] = []

    async def one(account: str, took_s: float) -> None:
        await texts.do(account, time.sleep, took_s)
        ended.append(account)

    async def story() -> None:
        await asyncio.gather(texts.do("joe", os.getpid), texts.do("kim", os.getpid))
        await asyncio.gather(*(one("joe", 0.8) for _ in range(2)), one("kim", 0.0))

    asyncio.run(story())

    assert ended == ["kim", "joe", "joe"]
