"""An operator's line to the controller: requests over the bus, each sent again with its id until it is answered.

How a command gets its connection is given with click's context object, an `Access`; without one it is RabbitMQ.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Protocol, TypeVar
from uuid import uuid4

import click

from daemons.cli import output
from daemons.cli.numbers import Number
from daemons.cli.secret_options import without_password
from daemons.codes.code import Kind
from shared.base.clock import SystemClock
from shared.base.errors import BusUnavailable, InvalidInput, InvalidValue, PermanentError, Problem, TransientError
from shared.base.secrets import completed, has_password
from shared.bus.buses import ANSWER_S, find_bus
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
CONFIG_FILE = "trimtab/operator.toml"
CONFIG_HOME_VARIABLE = "XDG_CONFIG_HOME"
CONFIG_PLACES = f"${CONFIG_HOME_VARIABLE}/{CONFIG_FILE} (~/.config/{CONFIG_FILE}), /etc/{CONFIG_FILE}"  # in words
TIMEOUT_S = 10.0
TIMEOUT_MAX_S = 86_400.0
WINDOW = 100  # requests that wait for their answers at a time
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

    kind = Kind.REFUSAL  # of that code; other errors of commands have codes of the kind ERROR

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code  # type: ignore[misc]  # of the one reply, where other errors have one per class


class NoAnswer(TransientError):
    """No controller answered in time; the request waits in its queue and may still be carried out."""

    code = "no-answer"


class OperatorClock(Protocol):
    """What a command needs of time; see `shared.base.clock`."""

    def now_s(self) -> float:
        """Return the seconds since the epoch."""
        ...

    def monotonic_s(self) -> float:
        """Return the seconds since some fixed moment."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait so long."""
        ...


@dataclass(frozen=True, slots=True)
class OperatorBus:
    """The connection to the broker."""

    url: Url = field(default="", repr=False)
    """URL of the broker with the account, such as `amqps://operator.NAME@HOST/`. It may contain a password and is never
    shown."""
    password_file: SecretFile = ""
    """File of the broker password: a path or `~/PATH`. Empty: the URL contains the password."""
    plain: bool = False
    """Allow `amqp://` to another machine. The connection is then not encrypted."""
    tls: Tls = field(default_factory=Tls)


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    """The configuration of the command `trimtab`: how it reaches the controller."""

    timeout_s: Timeout = TIMEOUT_S
    """Time to wait for an answer of the controller."""
    bus: OperatorBus = field(default_factory=OperatorBus)


def _opened(bus: OperatorBus, limit_s: float) -> Bus:
    try:
        check_encryption(bus.url, bus.plain)
        return find_bus(bus.url)(bus.url, bus.tls, answer_s=min(limit_s, ANSWER_S), opening_s=limit_s)
    except InvalidValue as error:
        if error.field != "url":
            raise InvalidInput(Problem("bus.tls", f"names {error.got!r}", error.expected)) from error
        expected = error.expected.replace("USER:PASSWORD@", "USER@")
        raise InvalidInput(Problem("--url", f"is {error.got}", expected)) from error


@dataclass(frozen=True, slots=True)
class Access:
    """What commands reach the world with. `connect`, within the seconds given, raises BusUnavailable; `new_id` never
    gives the same twice."""

    connect: Callable[[OperatorBus, float], Bus] = _opened
    clock: OperatorClock = field(default_factory=SystemClock)
    new_id: Callable[[], str] = lambda: uuid4().hex


class ControllerConnection:
    """One operator's connection. Use as a context manager, within itself too: the outermost connects; every method may
    raise BusUnavailable.

    `say` hears what people should know (a connection lost and found again). `why`: the reason that goes with requests
    that change something ("": none is given). `limit_s`: the time limit on the command line (None: there is none).
    """

    why = ""
    limit_s: float | None = None

    def __init__(self, access: Access, config: OperatorConfig, say: Callable[[str], None] | None = None) -> None:
        self._access, self._config = access, config
        self._say = say or output.say
        self._clock = access.clock
        self._bus: Bus | None = None
        self._replies = ""
        self._entered = 0

    def __enter__(self) -> ControllerConnection:
        if self._entered == 0:
            self._open()
        self._entered += 1
        return self

    def _open(self) -> None:
        if not self._config.bus.url:
            where = f"here, as {URL_VARIABLE}, or as bus.url in {config_places()[0]}"
            expected = f"a URL amqp[s]://operator.NAME:PASSWORD@HOST/ {where}"
            raise InvalidInput(Problem("--url", "no broker is named", expected))
        self._connect()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered -= 1
        if self._entered == 0 and self._bus is not None:
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
        """Return an id for a new request."""
        return self._access.new_id()

    # --- requests ---------------------------------------------------------------------------------------------------

    def ask(self, request: Request) -> Any:
        """Return the data of the answer. Raises `Refused` with the reply's code, `NoAnswer` after the time limit."""
        (reply,) = self.ask_all([request])
        if not reply.done:
            raise Refused(reply.code, reply.detail)
        return reply.data

    def ask_all(self, requests: Sequence[Request]) -> list[Reply]:
        """Send all, `WINDOW` at a time: more would exceed what an account may ask for at once. Return their answers in
        the same order. Who is `busy` is asked again until the time limit. Once no controller answers any more, the rest
        is refused with `no-answer`. Raises `NoAnswer`, or BusUnavailable, when nothing at all was answered."""
        replies: dict[str, Reply] = {}
        sent = 0
        try:
            while sent < len(requests):
                window = requests[sent : sent + WINDOW]
                sent += len(window)
                self._ask_window(window, replies)
        except (NoAnswer, BusUnavailable) as error:
            if not replies:
                raise
            lost = f"{error}; it may still be carried out" if isinstance(error, BusUnavailable) else self._silence(1)
            unsent = "it was not sent, because no controller answered before"
            for number, each in enumerate(requests):
                unanswered = Reply(each.request, False, NoAnswer.code, lost if number < sent else unsent)
                replies.setdefault(each.request, unanswered)
        return [replies[request.request] for request in requests]

    def _ask_window(self, requests: Sequence[Request], replies: dict[str, Reply]) -> None:
        """Put the answers to requests that are sent together into `replies`. Raises `NoAnswer`."""
        waiting = {request.request: request for request in requests}
        busy: dict[str, Reply] = {}
        limit_s = self._clock.monotonic_s() + self._config.timeout_s
        send_s, first = 0.0, True
        while waiting:
            now_s = self._clock.monotonic_s()
            if now_s >= limit_s:
                replies |= busy
                if waiting.keys() <= busy.keys():
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

    def _silence(self, count: int) -> str:
        which = "the request waits" if count == 1 else f"{count} requests wait"
        limit = f"{self._config.timeout_s:g} s"
        return f"no controller answered within {limit}; {which} in the queue and may still be carried out"

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
        """Return the request as it is, or wrapped as on the user's own behalf, so that it can carry a reason."""
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
        """Yield every event from now on, without end; a lost connection is reestablished."""
        self._listen()
        while True:
            if self._bus is None:
                self._again(None)
                self._listen()
                self._say("reconnected; events in between are missing")
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
                self._say(f"the connection was lost ({event.reason}); reconnecting")
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
        line = ControllerConnection(access, operator_config(url, config, timeout))
        line.limit_s = timeout
        return command(line, *words, **options)

    for decorate in (_timeout, _config, _url):
        run = decorate(run)
    return run  # type: ignore[return-value]  # click reads the options that it was given, not the signature


def change_options(command: _Command) -> _Command:
    """Add the options of `bus_options` and `--why`, for a command that changes something."""

    @functools.wraps(command)
    def run(line: ControllerConnection, *words: Any, why: str, **options: Any) -> Any:
        line.why = why
        return command(line, *words, **options)

    return bus_options(_why(run))  # type: ignore[return-value]


def _reason(_: click.Context, parameter: click.Parameter, value: str) -> str:
    if len(value) > WHY_LENGTH_MAX:
        raise InvalidInput(Problem(f"--{parameter.name}", f"has {len(value)} characters", f"at most {WHY_LENGTH_MAX}"))
    return value


_why = click.option("--why", default="", metavar="TEXT", callback=_reason, help="Reason, kept with the request.")
_url = click.option(
    "--url",
    envvar=URL_VARIABLE,
    show_envvar=True,
    callback=without_password,
    help="Broker URL, amqps://operator.NAME@HOST/. Give the password in bus.password_file or in the variable.",
)
_config = click.option(
    "--config",
    envvar=CONFIG_VARIABLE,
    show_envvar=True,
    type=click.Path(path_type=Path),
    help=f"Your configuration file (TOML).  [default: the first of {CONFIG_PLACES}]",
)
_timeout = click.option(
    "--timeout",
    type=Number(0.1, TIMEOUT_MAX_S),
    metavar="S",
    help=f"Seconds to wait for an answer.  [default: timeout_s of the file, else {TIMEOUT_S:g}]",
)


def config_places() -> tuple[Path, Path]:
    """Return the places of an operator's file, in the order of search: the user's configuration folder (XDG base
    directories; a variable that is not an absolute path counts as unset), then /etc."""
    home = os.environ.get(CONFIG_HOME_VARIABLE, "")
    folder = Path(home) if home.startswith("/") else Path("~/.config").expanduser()
    return folder / CONFIG_FILE, Path("/etc") / CONFIG_FILE


def operator_config(url: str | None, file: Path | None, timeout_s: float | None) -> OperatorConfig:
    """Return the configuration from the options, else from a file, with the password. Raises `InvalidInput` for a file
    with problems."""
    if file is None:
        file = next((place for place in config_places() if place.is_file()), None)
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
    """Return the problem with the file added, if it names only a key of it."""
    named = file is None or problem.where.startswith(("/", str(file)))
    return problem if named else replace(problem, where=f"{file}: {problem.where}")
