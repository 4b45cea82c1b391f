"""The server itself, on a socket: slow clients, too many of them, long heads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.types import Receive, Scope, Send

from daemons.portal.server import Bounds, listening, server
from shared.errors import PermanentError

HEAD = b"GET /login HTTP/1.1\r\nHost: portal.test\r\n"
LIMIT_S = 10.0


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers each request with what it has read."""
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def served(bounds: Bounds) -> AsyncIterator[int]:
    """The port of a server with these bounds."""
    sock = listening("127.0.0.1", 0)
    made = server(app, bounds)
    task = asyncio.create_task(made.serve([sock]))
    try:
        yield int(sock.getsockname()[1])
    finally:
        made.should_exit = True
        await task


async def said(port: int, *parts: bytes, pause_s: float = 0.0) -> bytes:
    """What the server says to what is sent in parts, until it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause_s)
        async with asyncio.timeout(LIMIT_S):
            return await reader.read()
    except ConnectionError:
        return b"hung up"
    finally:
        writer.close()


def test_a_head_that_trickles_in_is_cut_off() -> None:
    """And one that never begins; others are answered meanwhile."""

    async def story() -> list[bytes]:
        async with served(Bounds(50, 0.3)) as port:
            trickle = asyncio.create_task(said(port, HEAD, *([b"X: y\r\n"] * 20), pause_s=0.05))
            silent = asyncio.create_task(said(port))
            good = await said(port, HEAD + b"Connection: close\r\n\r\n")
            return [good, await trickle, await silent]

    good, trickle, silent = asyncio.run(story())
    assert good.startswith(b"HTTP/1.1 200")
    assert b" 200 " not in trickle
    assert silent in (b"", b"hung up")


def test_a_connection_that_is_kept_open_may_be_used_again() -> None:
    """The time for a head does not cut off who asks again later."""

    async def story() -> bytes:
        async with served(Bounds(50, 0.3)) as port:
            again = HEAD + b"Connection: close\r\n\r\n"
            return await said(port, HEAD + b"\r\n", again, pause_s=0.5)

    assert asyncio.run(story()).count(b"HTTP/1.1 200") == 2


def test_too_many_connections_are_turned_away() -> None:
    async def story() -> tuple[bytes, bytes]:
        async with served(Bounds(5, 5.0)) as port:
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
            turned_away = await said(port, HEAD + b"\r\n")
            for _, writer in held:
                writer.close()
                await writer.wait_closed()
            await asyncio.sleep(0.05)
            return turned_away, await said(port, HEAD + b"Connection: close\r\n\r\n")

    turned_away, after = asyncio.run(story())
    assert turned_away.startswith(b"HTTP/1.1 503") or turned_away == b"hung up"
    assert after.startswith(b"HTTP/1.1 200")


def test_a_head_that_is_too_long_is_refused() -> None:
    async def story() -> bytes:
        async with served(Bounds()) as port:
            return await said(port, HEAD + b"X: " + b"y" * 20_000, b"y" * 20_000 + b"\r\n\r\n", pause_s=0.1)

    assert b" 200 " not in asyncio.run(story())


def test_a_port_that_is_taken_is_told() -> None:
    with listening("127.0.0.1", 0) as taken, pytest.raises(PermanentError, match="port"):
        listening("127.0.0.1", taken.getsockname()[1])
