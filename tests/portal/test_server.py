"""The server itself, on a socket: slow clients, too many of them, long heads."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from daemons.portal.http.limits import AddressLimits, Bounds
from daemons.portal.http.middleware import HttpMiddleware, Rules
from daemons.portal.http.server import listening, server
from shared.base.errors import PermanentError

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
async def served(
    connections_max: int = 500, request_s: float = 5.0, address_max: int = 32, rules: Rules | None = None
) -> AsyncIterator[int]:
    """The port of a server with these bounds; with `rules` behind the portal's middleware."""
    sock = listening("127.0.0.1", 0)
    limits = AddressLimits(Bounds(connections_max, address_max))
    made = server(app if rules is None else HttpMiddleware(app, rules, limits), limits, request_s=request_s)
    task = asyncio.create_task(made.serve([sock]))
    try:
        yield int(sock.getsockname()[1])
    finally:
        made.should_exit = True
        await task


async def said(port: int, *parts: bytes, pause_s: float = 0.0, source: str = "127.0.0.1") -> bytes:
    """What the server says to what is sent in parts from an address, until it hangs up."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    except ConnectionError:
        return b"hung up"
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
        async with served(50, 0.3) as port:
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
        async with served(50, 0.3) as port:
            again = HEAD + b"Connection: close\r\n\r\n"
            return await said(port, HEAD + b"\r\n", again, pause_s=0.5)

    assert asyncio.run(story()).count(b"HTTP/1.1 200") == 2


def test_too_many_connections_are_turned_away() -> None:
    async def story() -> tuple[bytes, bytes]:
        async with served(7) as port:
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
            turned_away = await said(port, HEAD + b"\r\n")
            for _, writer in held:
                writer.close()
                await writer.wait_closed()
            await asyncio.sleep(0.05)
            return turned_away, await said(port, HEAD + b"Connection: close\r\n\r\n")

    turned_away, after = asyncio.run(story())
    assert turned_away.startswith(b"HTTP/1.1 503") or turned_away == b"hung up"
    assert after.startswith(b"HTTP/1.1 200")


def test_one_address_does_not_hold_every_connection() -> None:
    """Given an address that holds all that it may, then it gets no more, and another is answered."""

    async def story() -> tuple[bytes, bytes]:
        async with served(address_max=4) as port:
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
            await asyncio.sleep(0.05)
            same = await said(port, HEAD + b"\r\n")
            other = await said(port, HEAD + b"Connection: close\r\n\r\n", source="127.0.0.2")
            for _, writer in held:
                writer.close()
            return same, other

    same, other = asyncio.run(story())
    assert b" 200 " not in same
    assert other.startswith(b"HTTP/1.1 200")


def test_connections_that_wait_for_files_are_told_once() -> None:
    """Given a process that has no file left, then it says so about once a second, and goes on when there are some."""

    async def story() -> tuple[list[Any], bytes]:
        async with served() as port:
            await said(port, HEAD + b"Connection: close\r\n\r\n")  # all that it imports is imported
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            clients = [socket.socket() for _ in range(20)]
            next_file = os.dup(clients[0].fileno())
            os.close(next_file)
            resource.setrlimit(resource.RLIMIT_NOFILE, (next_file, hard))
            try:
                with capture_logs() as logged:
                    for each in clients:
                        each.connect(("127.0.0.1", port))
                    await asyncio.sleep(0.5)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                for each in clients:
                    each.close()
            await asyncio.sleep(1.0)
            return logged, await said(port, HEAD + b"Connection: close\r\n\r\n")

    logged, after = asyncio.run(story())
    assert [each["event"] for each in logged] == ["no connection can be taken"]
    assert after.startswith(b"HTTP/1.1 200")


def test_a_head_that_is_too_long_is_refused() -> None:
    async def story() -> bytes:
        async with served() as port:
            return await said(port, HEAD + b"X: " + b"y" * 20_000, b"y" * 20_000 + b"\r\n\r\n", pause_s=0.1)

    assert b" 200 " not in asyncio.run(story())


def test_a_port_that_is_taken_is_told() -> None:
    with listening("127.0.0.1", 0) as taken, pytest.raises(PermanentError, match="port"):
        listening("127.0.0.1", taken.getsockname()[1])


def test_requests_that_are_over_leave_nothing_to_the_garbage_collector() -> None:
    """It may come only after thousands of them."""

    async def story() -> tuple[set[bytes], int]:
        async with served(rules=Rules(frozenset({"portal.test"}), frozenset(), secure=False)) as port:
            gc.collect()
            gc.disable()
            try:
                answers = {await said(port, HEAD + b"Connection: close\r\n\r\n") for _ in range(20)}
                await asyncio.sleep(0.1)
                left = sum(type(one).__name__ == "RequestResponseCycle" for one in gc.get_objects())
            finally:
                gc.enable()
            return {answer.split(b"\r\n")[0] for answer in answers}, left

    answers, left = asyncio.run(story())
    assert answers == {b"HTTP/1.1 200 OK"}
    assert left <= 1
