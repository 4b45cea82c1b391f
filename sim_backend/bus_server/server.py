"""Serves the in-process bus (`sim_backend.bus`) to other processes of this machine, in real time.

It has the semantics and the permissions of RabbitMQ, but keeps everything in memory: what was queued is gone with the
process. The account of a connection is the one that it names. So the socket must be in a folder that only its owner can
enter.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from shared.base.clock import SystemClock
from shared.base.errors import BusUnavailable, CodecError, InvalidInput, PermanentError, Problem
from shared.ports.bus import BusEvent, Confirm, Delivery, Lost
from shared.protocol.dead_letter import DeadMessage
from shared.protocol.permissions import Grant, grant_of
from shared.protocol.topology import DEAD, DEAD_QUEUE
from sim_backend.bus.memory import MemoryBroker, MemoryConnection, Message
from sim_backend.bus_server.wire import (
    CLIENT_DECODER,
    HEAD,
    Acknowledge,
    Answered,
    Bury,
    Confirmed,
    Consume,
    Declare,
    Delivered,
    Ended,
    FromClient,
    FromServer,
    Hello,
    Publish,
    decoded,
    length_of,
    to_frame,
)

UNSENT_BYTES_MAX = 64 << 20  # what a client may leave unread before it is cut off
PATH_BYTES_MAX = 107  # what the address of a Unix socket holds
SOCKET_MODE = 0o600


class BusServer:
    """One broker behind the Unix socket `path` (mode 0600), for the event loop in which it is started.

    Accounts are those of `shared.protocol.permissions.grant_of`: any name that it grants something to. A client that
    sends what is no frame, or publishes what it may not, is cut off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._clock = SystemClock()
        self.broker = MemoryBroker(self._clock.monotonic_s(), permissions=grant_of)
        self._writers: dict[MemoryConnection, asyncio.StreamWriter] = {}
        self._loose: dict[MemoryConnection, set[str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. A socket that is there already is replaced. Raises InvalidInput for a path that cannot be used."""
        if len(os.fsencode(self.path)) > PATH_BYTES_MAX:
            raise InvalidInput(Problem(str(self.path), "too long for a socket", f"at most {PATH_BYTES_MAX} bytes"))
        try:
            self._server = await asyncio.start_unix_server(self._accept, self.path)
            self.path.chmod(SOCKET_MODE)
        except OSError as error:
            problem = Problem(str(self.path), f"cannot listen: {error.strerror}", "a path to write")
            raise InvalidInput(problem) from error

    async def stop(self) -> None:
        """Close every connection and remove the socket."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.path.unlink(missing_ok=True)

    def restart(self) -> None:
        """Lose every connection, and all queues that are not durable, as a restart of RabbitMQ does."""
        self.broker.restart()
        self._hand_out()

    # --- one connection ----------------------------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection in a task that `stop` can cancel."""
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection: MemoryConnection | None = None
        try:
            connection = self._admit(await _received(reader), writer)
            while connection is not None and not connection.ended:
                self._take(connection, await _received(reader))
                self._hand_out()
        except (EOFError, OSError, BusUnavailable):
            pass  # the client is gone, or has been cut off
        except (CodecError, PermanentError) as error:
            _send(writer, Ended(f"{error.code}: {error}"))
        finally:
            if connection is not None:
                self._leave(connection)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _admit(self, hello: FromClient, writer: asyncio.StreamWriter) -> MemoryConnection | None:
        """Return the connection of the account that is named; None, and the client knows why, if there is none."""
        if not isinstance(hello, Hello):
            raise CodecError("the first frame names no account")
        if grant_of(hello.user) == Grant():
            _send(writer, Answered(0, f"there is no account {hello.user!r}"))
            return None
        self.broker.advance(self._clock.monotonic_s())
        connection = self.broker.connect(hello.user)
        self._writers[connection] = writer
        self._loose[connection] = set()
        _send(writer, Answered(0))
        return connection

    def _leave(self, connection: MemoryConnection) -> None:
        connection.close()
        self._writers.pop(connection, None)
        self._loose.pop(connection, None)
        self._hand_out()

    def _take(self, connection: MemoryConnection, call: FromClient) -> None:
        self.broker.advance(self._clock.monotonic_s())
        match call:
            case Publish():
                connection.publish(call.exchange, call.routing_key, call.body, call.publish_id, call.reply_to)
            case Acknowledge():
                connection.acknowledge(call.tag)
            case Bury():
                self._bury(connection, call.dead)
                if call.tag is not None:
                    connection.acknowledge(call.tag)
            case Declare() | Consume():
                _send(self._writers[connection], Answered(call.call, self._refusal(connection, call)))
            case Hello():
                raise CodecError("an account is named twice")

    def _refusal(self, connection: MemoryConnection, call: Declare | Consume) -> str:
        """Carry out a call; return why it is refused ("": it is done)."""
        try:
            if isinstance(call, Declare):
                connection.declare(call.queue)
                return ""
            connection.consume(call.queue, call.prefetch, call.acknowledged)
        except PermanentError as error:
            return str(error)
        if not call.acknowledged:
            self._loose[connection].add(call.queue)
        return ""

    def _bury(self, connection: MemoryConnection, dead: DeadMessage | None) -> None:
        if dead is not None and self.broker.may_bury(connection.user):
            for queue in self.broker.find_route(connection.user, DEAD, DEAD_QUEUE):
                queue.arrive(Message(connection.user, DEAD_QUEUE, dead.body, "", dead))

    # --- what the broker hands out -----------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        """Send every event that the broker has by now."""
        now_s = self._clock.monotonic_s()
        while (handed := self.broker.step(now_s)) is not None:
            connection, event = handed
            writer = self._writers.get(connection)
            if writer is None:
                continue  # it is gone; what it was handed comes again
            frame = self._frame(connection, event)
            if frame is not None:
                _send(writer, frame)
            if isinstance(event, Lost) or writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
                self._writers.pop(connection)
                connection.close()
                writer.close() if isinstance(event, Lost) else writer.transport.abort()

    def _frame(self, connection: MemoryConnection, event: BusEvent) -> FromServer | None:
        match event:
            case Delivery():
                return Delivered(
                    event.tag,
                    event.queue,
                    event.routing_key,
                    sender=event.sender,
                    body=event.body,
                    redelivered=event.redelivered,
                    reply_to=event.reply_to,
                    loose=event.queue in self._loose[connection],
                )
            case Confirm():
                return Confirmed(event.publish_id, event.ok)
            case Lost():
                return Ended(event.reason)
            case _:
                return None


async def _received(reader: asyncio.StreamReader) -> FromClient:
    """Return the next frame. Raises IncompleteReadError (an EOFError) at the end, CodecError for what is no frame."""
    length = length_of(await reader.readexactly(HEAD.size))
    return decoded(CLIENT_DECODER, await reader.readexactly(length))


def _send(writer: asyncio.StreamWriter, value: FromServer) -> None:
    if not writer.is_closing():
        writer.write(to_frame(value))
