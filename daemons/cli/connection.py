"""An operator's line to the controller: requests over the bus, each sent again with its id until it is answered.

How a command gets its connection is given with click's context object, an `Access`; without one it is RabbitMQ.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Protocol, TypeVar
from uuid import uuid4

import click

from daemons.cli import output
from daemons.cli.numbers import Number
from daemons.cli.secret_options import without_password
from shared.base.clock import SystemClock
from shared.base.errors import BusUnavailable, InvalidInput, InvalidValue, PermanentError, Problem, TransientError
from shared.base.secrets import completed, has_password
from shared.config import toml
from shared.config.broker_url import Tls, check_encryption
from shared.config.common import SecretFile, Url
from shared.config.records import Range
from shared.ports.bus import Bus, BusEvent, Delivery, Lost
from shared.protocol import topology
from shared.protocol.account_messages import WHY_LENGTH_MAX, OnBehalf
from shared.protocol.codec import decode, encode
from shared.protocol.messages import Happened, Reply
from shared.protocol.operator_messages import BUSY, Change, Query, Request

URL_VARIABLE = "TRIMTAB_URL"
CONFIG_VARIABLE = "TRIMTAB_CONFIG"
CONFIG_PLACES = ("~/.config/trimtab/operator.toml", "/etc/trimtab/operator.toml")
TIMEOUT_S = 10.0
TIMEOUT_MAX_S = 86_400.0
SENDS = 4  # how often a request is sent before its time is over
RECONNECT_S = 0.5
RECONNECT_MAX_S = 5.0  # somebody is looking
EVENT_POLL_S = 1.0
PREFETCH = 1000

_ASKERS = (
    topology.OPERATOR_USER_PREFIX,
    topology.OWNER_USER_PREFIX,
    topology.USER_USER_PREFIX,
    topology.CONTROLLER_USER_PREFIX,
)

Timeout = Annotated[float, Range(0.1, TIMEOUT_MAX_S)]
_Command = TypeVar("_Command", bound=Callable[..., Any])


class Refused(PermanentError):
    """The controller refused a request; `code` is the one of its reply."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code  # type: ignore[misc]  # of the one reply, where other errors have one per class


class NoAnswer(TransientError):
    """No controller answered in time; the request waits in its queue and may still be carried out."""

    code = "no-answer"


class OperatorClock(Protocol):
    """What a command needs of time; see `shared.base.clock`."""

    def now_s(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait so long."""
        ...


@dataclass(frozen=True, slots=True)
class OperatorBus:
    """The broker and who we are there; as in the files of the daemons. The URL is shown nowhere."""

    url: Url = field(default="", repr=False)
    password_file: SecretFile = ""
    plain: bool = False
    tls: Tls = field(default_factory=Tls)


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    """The operator's file: whom to ask, and how long to wait for an answer."""

    timeout_s: Timeout = TIMEOUT_S
    bus: OperatorBus = field(default_factory=OperatorBus)


def _rabbitmq(bus: OperatorBus, limit_s: float) -> Bus:
    try:
        check_encryption(bus.url, bus.plain)
        rabbitmq = import_module("shared.bus.rabbitmq.bus")  # loads pika: only now
        wait_s = min(limit_s, rabbitmq.ANSWER_S)
        connection: Bus = rabbitmq.connect(bus.url, bus.tls, answer_s=wait_s, opening_s=limit_s)
    except InvalidValue as error:
        if error.field != "url":
            raise InvalidInput(Problem("bus.tls", f"names {error.got!r}", error.expected)) from error
        expected = error.expected.replace("USER:PASSWORD@", "USER@")
        raise InvalidInput(Problem("--url", f"is {error.got}", expected)) from error
    return connection


@dataclass(frozen=True, slots=True)
class Access:
    """What commands reach the world with. `connect`, within the seconds given, raises BusUnavailable; `new_id` never
    gives the same twice."""

    connect: Callable[[OperatorBus, float], Bus] = _rabbitmq
    clock: OperatorClock = field(default_factory=SystemClock)
    new_id: Callable[[], str] = lambda: uuid4().hex


class ControllerConnection:
    """One operator's connection. Use as a context manager; every method may raise BusUnavailable.

    `say` hears what people should know (a connection lost and found again). `why`: the reason that goes with requests
    that change something ("": none is given).
    """

    why = ""

    def __init__(self, access: Access, config: OperatorConfig, say: Callable[[str], None] | None = None) -> None:
        self._access, self._config = access, config
        self._say = say or output.say
        self._clock = access.clock
        self._bus: Bus | None = None
        self._replies = ""

    def __enter__(self) -> ControllerConnection:
        if not self._config.bus.url:
            where = f"here, as {URL_VARIABLE}, or as bus.url in {CONFIG_PLACES[0]}"
            expected = f"a URL amqp[s]://operator.NAME:PASSWORD@HOST/ {where}"
            raise InvalidInput(Problem("--url", "no broker is named", expected))
        self._connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bus is not None:
            self._bus.close()
            self._bus = None

    @property
    def now_s(self) -> float:
        """Seconds since the epoch."""
        return self._clock.now_s()

    def sleep(self, seconds: float) -> None:
        """Wait so long, keeping the connection alive."""
        until_s = self._clock.monotonic_s() + seconds
        while (left_s := until_s - self._clock.monotonic_s()) > 0.0:
            if self._bus is None:
                self._clock.sleep(left_s)
            else:
                self._events(left_s)

    def new_id(self) -> str:
        """An id for a new request."""
        return self._access.new_id()

    # --- requests ---------------------------------------------------------------------------------------------------

    def ask(self, request: Request) -> Any:
        """The data of the answer. Raises `Refused` with the reply's code, `NoAnswer` after the time limit."""
        (reply,) = self.ask_all([request])
        if not reply.done:
            raise Refused(reply.code, reply.detail)
        return reply.data

    def ask_all(self, requests: Sequence[Request]) -> list[Reply]:
        """Send all at once; their answers in the same order. Who is `busy` is asked again until the time limit. Raises
        `NoAnswer` when none came for that long."""
        waiting = {request.request: request for request in requests}
        replies: dict[str, Reply] = {}
        busy: dict[str, Reply] = {}
        limit_s = self._clock.monotonic_s() + self._config.timeout_s
        send_s, first = 0.0, True
        while waiting:
            now_s = self._clock.monotonic_s()
            if now_s >= limit_s:
                if waiting.keys() <= busy.keys():
                    replies |= busy
                    break
                raise NoAnswer(self._silence(len(waiting)))
            if now_s >= send_s or self._bus is None:
                send_s = now_s + self._config.timeout_s / SENDS
                self._send(waiting.values(), limit_s, first)
                first = False
            for reply in self._answers(min(send_s, limit_s) - now_s):
                if reply.code == BUSY and reply.request in waiting:
                    if not busy:
                        self._say(f"{BUSY}: {reply.detail}; asking again for {self._config.timeout_s:g} s")
                    busy[reply.request] = reply
                elif waiting.pop(reply.request, None) is not None:
                    replies[reply.request] = reply
                    limit_s = self._clock.monotonic_s() + self._config.timeout_s
        return [replies[request.request] for request in requests]

    def _silence(self, count: int) -> str:
        which = "the request waits" if count == 1 else f"{count} requests wait"
        return (
            f"no controller answered within {self._config.timeout_s:g} s; {which} in the queue and may still be "
            "carried out. Is a controller running? systemctl status trimtab-controller; journalctl -u "
            "trimtab-controller says why not, a full disk too. Has the broker been set up? --timeout waits longer"
        )

    def _send(self, requests: Any, limit_s: float, first: bool) -> None:
        """Questions first go the short way, where no controller may listen; then all go the long one."""
        bus = self._bus or self._again(limit_s)
        try:
            for request in requests:
                body = encode(self._reasoned(request, bus.user))
                exchange, key = topology.asked_at(bus.user, first and isinstance(request, Query))
                bus.publish(exchange, key, body, None, self._replies)
        except BusUnavailable:
            self._bus = None  # the next round connects and sends again

    def _reasoned(self, request: Request, user: str) -> Request | OnBehalf:
        """As it is, or on the user's own behalf: so it can have a reason."""
        if not (self.why and isinstance(request, Change)):
            return request
        return OnBehalf(request.request, user, self.why, encode(request))

    def _answers(self, wait_s: float) -> Iterator[Reply]:
        for event in self._events(wait_s):
            if isinstance(event, Delivery) and event.sender.startswith(topology.CONTROLLER_USER_PREFIX):
                message = decode(event.body)
                if isinstance(message, Reply):
                    yield message

    # --- events -----------------------------------------------------------------------------------------------------

    def follow(self) -> Iterator[Happened]:
        """Everything that happens from now on, without end; a connection that is lost is made again."""
        self._listen()
        while True:
            if self._bus is None:
                self._again(None)
                self._listen()
                self._say("connected again; what happened meanwhile is missing")
            for event in self._events(EVENT_POLL_S):
                if isinstance(event, Delivery):
                    message = decode(event.body)
                    if isinstance(message, Happened):
                        yield message

    def _listen(self) -> None:
        assert self._bus is not None
        queue = topology.event_queue(f"{self._bus.user}.{self.new_id()}")
        self._bus.declare(queue)
        self._bus.consume(queue.name, PREFETCH, acknowledged=False)

    # --- the connection ---------------------------------------------------------------------------------------------

    def _events(self, wait_s: float) -> Sequence[BusEvent]:
        if self._bus is None:
            return ()
        try:
            events = self._bus.poll(max(wait_s, 0.0))
        except BusUnavailable as error:
            events = (Lost(str(error)),)
        for event in events:
            if isinstance(event, Lost):
                self._say(f"the connection was lost ({event.reason}); connecting again")
                self._bus = None
        return events

    def _connect(self) -> Bus:
        bus = self._access.connect(self._config.bus, self._config.timeout_s)
        if not bus.user.startswith(_ASKERS):
            bus.close()
            what = f"the user {bus.user!r} may not ask the controller"
            raise InvalidInput(Problem("--url", what, "a user operator.NAME, owner.NAME or user.NAME"))
        answers = topology.reply_queue(bus.user, self.new_id())
        self._replies = answers.name
        bus.declare(answers)
        bus.consume(self._replies, PREFETCH, acknowledged=False)
        self._bus = bus
        return bus

    def _again(self, limit_s: float | None) -> Bus:
        """Connect again, with longer and longer waits; BusUnavailable when that did not succeed by `limit_s`."""
        wait_s = RECONNECT_S
        while True:
            self._clock.sleep(wait_s)
            wait_s = min(2 * wait_s, RECONNECT_MAX_S)
            try:
                return self._connect()
            except BusUnavailable:
                if limit_s is not None and self._clock.monotonic_s() + wait_s >= limit_s:
                    raise


# --- options --------------------------------------------------------------------------------------------------------


def bus_options(command: _Command) -> _Command:
    """Give a command `--url`, `--config` and `--timeout`, and a `ControllerConnection` that is not connected as its
    first argument."""

    @functools.wraps(command)
    def run(*words: Any, url: str | None, config: Path | None, timeout: float | None, **options: Any) -> Any:
        access = click.get_current_context().find_object(Access) or Access()
        return command(ControllerConnection(access, operator_config(url, config, timeout)), *words, **options)

    for decorate in (_timeout, _config, _url):
        run = decorate(run)
    return run  # type: ignore[return-value]  # click reads the options that it was given, not the signature


def change_options(command: _Command) -> _Command:
    """As `bus_options`, for a command that changes something: with `--why`."""

    @functools.wraps(command)
    def run(line: ControllerConnection, *words: Any, why: str, **options: Any) -> Any:
        line.why = why
        return command(line, *words, **options)

    return bus_options(_why(run))  # type: ignore[return-value]


def _reason(_: click.Context, parameter: click.Parameter, value: str) -> str:
    if len(value) > WHY_LENGTH_MAX:
        raise InvalidInput(Problem(f"--{parameter.name}", f"has {len(value)} characters", f"at most {WHY_LENGTH_MAX}"))
    return value


_why = click.option("--why", default="", metavar="TEXT", callback=_reason, help="The reason, for the record.")
_url = click.option(
    "--url",
    envvar=URL_VARIABLE,
    show_envvar=True,
    callback=without_password,
    help="The broker: amqps://operator.NAME@HOST/. Its password is in bus.password_file, or in the variable.",
)
_config = click.option(
    "--config",
    envvar=CONFIG_VARIABLE,
    show_envvar=True,
    type=click.Path(path_type=Path),
    help=f"The operator's TOML file; without it the first of {', '.join(CONFIG_PLACES)}.",
)
_timeout = click.option(
    "--timeout",
    type=Number(0.1, TIMEOUT_MAX_S),
    metavar="S",
    help=f"Seconds to wait for an answer; {TIMEOUT_S:g} if nothing is configured.",
)


def operator_config(url: str | None, file: Path | None, timeout_s: float | None) -> OperatorConfig:
    """What the options, and else a file, say, with the password. Raises `InvalidInput` for a file with problems."""
    if file is None:
        places = (Path(place).expanduser() for place in CONFIG_PLACES)
        file = next((place for place in places if place.is_file()), None)
    config = toml.load(file, OperatorConfig) if file is not None else OperatorConfig()
    if url:
        place = "" if has_password(url) else config.bus.password_file
        config, file = replace(config, bus=replace(config.bus, url=url, password_file=place)), None
    try:
        config = completed(config, file)
    except InvalidInput as error:
        raise InvalidInput(*(_in_file(problem, file) for problem in error.problems)) from error
    return replace(config, timeout_s=timeout_s or config.timeout_s)


def _in_file(problem: Problem, file: Path | None) -> Problem:
    """With the file, where a problem names a key of it alone."""
    named = file is None or problem.where.startswith(("/", str(file)))
    return problem if named else replace(problem, where=f"{file}: {problem.where}")
