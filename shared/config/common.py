"""What the configuration files of all daemons have in common: kinds of values with their ranges, the broker, metrics,
logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from shared.config.broker_url import Tls
from shared.config.records import Form, Range

Period = Annotated[float, Range(0.1, 86_400)]
Duration = Annotated[float, Range(1, 604_800)]
Days = Annotated[float, Range(0, 36_500)]
Count = Annotated[int, Range(1, 100_000)]
Quota = Annotated[int, Range(0, 1_000_000)]
Mib = Annotated[int, Range(0, 1 << 30)]
Hour = Annotated[str, Form(r"([01][0-9]|2[0-3]):[0-5][0-9]", "a local time of day, HH:MM")]
Zone = Annotated[str, Form(r"[A-Za-z][A-Za-z0-9_+/-]{0,63}", "a time zone such as Europe/Berlin or UTC")]
Watts = Annotated[float, Range(0, 1_000_000)]
Money = Annotated[float, Range(0, 1e12)]
Command = tuple[Annotated[str, Form(r"[^\0]{1,4096}", "a program or an argument")], ...]
Name = Annotated[
    str, Form(r"([A-Za-z0-9_][A-Za-z0-9_-]{0,127})?", "at most 128 ASCII letters, digits, '-' or '_', the first no '-'")
]
Registered = Annotated[str, Form(r"[A-Za-z0-9_.-]{1,128}", "a registered name: letters, digits, '-', '_' or '.'")]
Url = Annotated[
    str, Form(r"((amqps?|unix)://\S+)?", "a URL amqp://..., amqps://... or unix://..., or nothing", secret=True)
]
StoreUrl = Annotated[
    str, Form(r"(sqlite|postgresql(\+\w+)?)://\S+", "a URL sqlite:///... or postgresql://...", secret=True)
]
Listen = Annotated[
    str,
    Form(r"((\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,253}):[0-9]{1,5})?", "HOST:PORT, [IPv6]:PORT, or nothing"),
]
FilePath = Annotated[str, Form(r"/[^\0]+", "an absolute path")]
Place = Annotated[str, Form(r"((/|credential:)[^\0]+)?", "an absolute path, credential:NAME, or nothing")]
SecretFile = Annotated[
    str, Form(r"(~?/[^\0]+|credential:[A-Za-z0-9_.-]{1,128})?", "an absolute path, ~/PATH, credential:NAME, or nothing")
]


class LogLevel(StrEnum):
    """The least serious events that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """One JSON object or one line for people per event."""

    JSON = "json"
    CONSOLE = "console"


@dataclass(frozen=True, slots=True)
class Bus:
    """The connection to the broker."""

    url: Url = field(default="", repr=False)
    """URL of the broker with the account. It may contain a password and is never shown. `unix://USER@/PATH` is a socket
    of `trimtab demo`. Example: `"amqps://ACCOUNT@HOST/"`."""
    password_file: SecretFile = ""
    """File of the broker password: a path or `credential:NAME`. Empty: the URL contains the password."""
    plain: bool = False
    """Allow `amqp://` to another machine. The connection is then not encrypted."""
    tls: Tls = field(default_factory=Tls)


@dataclass(frozen=True, slots=True)
class Metrics:
    """The endpoint of Prometheus metrics. It has no accounts: everyone who reaches it can read it."""

    listen: Listen = "127.0.0.1:9460"
    """Address and port of the endpoint. Empty: no metrics are served."""
    certificate_file: Place = ""
    """Certificate with its chain (PEM) for HTTPS: a path or `credential:NAME`. SIGHUP reads the file again. Empty:
    HTTP."""
    key_file: Place = ""
    """Private key of the certificate (PEM): a path or `credential:NAME`. SIGHUP reads the file again."""


@dataclass(frozen=True, slots=True)
class Log:
    """The log on standard error."""

    level: LogLevel = LogLevel.INFO
    """Least serious level that is logged."""
    format: LogFormat = LogFormat.JSON
    """`json`: one object per event. `console`: one line for people."""
