"""`python -m benchmarks.portal_readers FILE`: readers of the portal, each a page a second, and how long pages take.

FILE (JSON): `url`, `words` of sessions, `pages`: pairs of kind and path, `span_s`. Each reader has a connection for
pages, one on which it hears of changes, as a browser does, and asks for the pictures of the page that it looks at. The
result goes to standard output: times to the first byte in seconds by kind of page, and what was wrong.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from daemons.portal.auth.sessions import COOKIE
from shared.base.clock import perf_s

PERIOD_S = 1.0
ANSWER_S = 30.0
LIVE = "/live?views=status,nodes,jobs,web-apps,plan"
PICTURE = re.compile(rb'<img src="([^"]+\.svg[^"]*)"')
PICTURES_MAX = 4


@dataclass(slots=True)
class ReaderFigures:
    """What all readers have met so far."""

    times_s: dict[str, list[float]] = field(default_factory=dict)
    wrong: Counter[str] = field(default_factory=Counter)
    told: int = 0


class Connection:
    """One connection of a browser that stays."""

    def __init__(self, url: str, word: str) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._word = parts.hostname, parts.port, word
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: str) -> asyncio.StreamReader:
        """Send a request; where its answer comes."""
        if self._streams is None or self._streams[1].is_closing() or self._streams[0].at_eof():
            self._streams = await asyncio.open_connection(self._host, self._port, limit=1 << 24)
        reader, writer = self._streams
        head = f"GET {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nCookie: {COOKIE}={self._word}\r\n\r\n"
        writer.write(head.encode())
        await writer.drain()
        return reader

    async def get(self, path: str) -> tuple[float, int, bytes]:
        """Seconds to the first byte, status and body of an answer."""
        begun_s = perf_s()
        reader = await self.ask(path)
        line = await reader.readuntil(b"\r\n")
        first_s = perf_s() - begun_s
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = re.search(rb"content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1])) if length else b""
        return first_s, int(line.split()[1]), body

    def close(self) -> None:
        """End it."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def read(number: int, plan: dict[str, Any], seen: ReaderFigures) -> None:
    """One reader: the next page each second, or as soon as the one before is there."""
    connection = Connection(plan["url"], plan["words"][number])
    pages = plan["pages"]
    begun_s = perf_s() + number * PERIOD_S / len(plan["words"])
    for turn in range(int(plan["span_s"] / PERIOD_S)):
        await asyncio.sleep(max(0.0, begun_s + turn * PERIOD_S - perf_s()))
        kind, path = pages[(turn + 3 * number) % len(pages)]
        body = await _timed(connection, kind, path, seen)
        for picture in PICTURE.findall(body)[:PICTURES_MAX]:
            await _timed(connection, "picture", picture.decode().replace("&amp;", "&"), seen)
    connection.close()


async def _timed(connection: Connection, kind: str, path: str, seen: ReaderFigures) -> bytes:
    try:
        async with asyncio.timeout(ANSWER_S):
            first_s, status, body = await connection.get(path)
    except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
        seen.wrong[f"{path}: {type(error).__name__}"] += 1
        connection.close()
        return b""
    seen.times_s.setdefault(kind, []).append(first_s)
    if status != 200:
        seen.wrong[f"{path}: {status}"] += 1
    return body


async def listen(number: int, plan: dict[str, Any], seen: ReaderFigures) -> None:
    """Hear of changes, as an open page does."""
    connection = Connection(plan["url"], plan["words"][number])
    reader = await connection.ask(LIVE)
    while line := await reader.readline():
        seen.told += line.startswith(b"event: changed")


async def everything(plan: dict[str, Any]) -> ReaderFigures:
    """All readers, to the end of the span."""
    seen = ReaderFigures()
    numbers = range(len(plan["words"]))
    listening = [asyncio.create_task(listen(number, plan, seen)) for number in numbers]
    await asyncio.gather(*(read(number, plan, seen) for number in numbers))
    for task in listening:
        task.cancel()
    return seen


def main() -> None:
    """Read as the file says."""
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    seen = asyncio.run(everything(plan))
    print(json.dumps({"times_s": seen.times_s, "wrong": seen.wrong, "told": seen.told}))


if __name__ == "__main__":
    main()
