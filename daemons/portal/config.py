"""What the portal's configuration file may say: every key with its unit, range and default; see
`daemons.config.controller`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from shared.base.addresses import is_loopback
from shared.base.errors import Problem
from shared.config.common import Bus, FilePath, Listen, Log, Metrics, Period, Place, SecretFile, StoreUrl
from shared.config.records import AtLeast, Form, IsAddress, Range, Rule
from shared.runtime.server_tls import file_problems

PublicUrl = Annotated[
    str,
    Form(
        r"https?://[A-Za-z0-9.\-]+(:[0-9]{1,5})?|https?://\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?",
        "https://HOST or https://HOST:PORT",
    ),
]
HistoryUrl = Annotated[
    str,
    Form(r"((sqlite|postgresql(\+\w+)?)://\S+)?", "a URL sqlite:///... or postgresql://..., or nothing", secret=True),
]
Network = Annotated[str, Form(r"[0-9A-Fa-f.:/]{2,64}", "an IP address or network")]
Seconds = Annotated[float, Range(60, 2_592_000)]
LOCAL = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class Server:
    """Where it listens, and how much at a time. `connections_max` of browsers, `address_max` of one address,
    `readers_max` that listen for changes; `request_s` for the head of a request to arrive."""

    address: Annotated[str, Form(r"[0-9A-Fa-f.:]{2,64}", "an IP address")] = "127.0.0.1"
    port: Annotated[int, Range(0, 65_535)] = 8443
    connections_max: Annotated[int, Range(10, 60_000)] = 500
    address_max: Annotated[int, Range(4, 60_000)] = 32
    readers_max: Annotated[int, Range(1, 100_000)] = 200
    request_s: Period = 10.0


@dataclass(frozen=True, slots=True)
class Certificate:
    """The server's certificate (with its chain) and key, PEM; none: a reverse proxy has them."""

    cert_file: Place = ""
    key_file: Place = ""


@dataclass(frozen=True, slots=True)
class Proxy:
    """Reverse proxies that are believed: `trusted` addresses. `sign_on_file`: holds the secret with which they may say
    who logs in (nothing: they may not)."""

    trusted: tuple[Network, ...] = ()
    sign_on_file: SecretFile = ""


@dataclass(frozen=True, slots=True)
class Staying:
    """How long somebody stays logged in: without a request, and at most."""

    idle_s: Seconds = 1800.0
    absolute_s: Seconds = 43_200.0


class SecondFactor(StrEnum):
    """Who must have a second factor to log in with a password."""

    PROVIDERS = "providers"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Login:
    """What a login needs. `second_factor`: who must give a code beside the password; whoever has made a secret for
    codes is asked for one in any case."""

    second_factor: SecondFactor = SecondFactor.PROVIDERS


@dataclass(frozen=True, slots=True)
class PortalStore:
    """Where accounts and sessions are. The URL may hold a password and is shown nowhere; `password_file`: where the
    password is instead. `log_days`: how long it is kept who logged in."""

    url: StoreUrl = field(default="sqlite:////var/lib/trimtab-portal/portal.db", repr=False)
    password_file: SecretFile = ""
    log_days: Annotated[float, Range(1, 36_500)] = 400.0


@dataclass(frozen=True, slots=True)
class HistoryStore:
    """The controller's store, which is only read (nothing: the pages of the past are not there)."""

    url: HistoryUrl = field(default="", repr=False)
    password_file: SecretFile = ""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Simulations of the page "What if": where they are kept, how many run at a time, how long one may take."""

    folder: FilePath = "/var/lib/trimtab-portal/what-if"
    at_once: Annotated[int, Range(1, 16)] = 1
    limit_s: Annotated[float, Range(10, 86_400)] = 3600.0


@dataclass(frozen=True, slots=True)
class PortalMetrics(Metrics):
    """Where the portal's metrics are served, as `shared.config.common.Metrics` says."""

    listen: Listen = "127.0.0.1:9462"


@dataclass(frozen=True, slots=True)
class PortalConfig:
    """The portal's file. `public_url`: where browsers reach it; it answers for no other host name. `read_only`: nothing
    of the cluster is changed through it."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        IsAddress("server.address"),
        AtLeast("server.connections_max", "server.readers_max"),
        AtLeast("server.connections_max", "server.address_max"),
        AtLeast("sessions.absolute_s", "sessions.idle_s"),
    )

    public_url: PublicUrl
    read_only: bool = False
    server: Server = field(default_factory=Server)
    tls: Certificate = field(default_factory=Certificate)
    proxy: Proxy = field(default_factory=Proxy)
    login: Login = field(default_factory=Login)
    sessions: Staying = field(default_factory=Staying)
    store: PortalStore = field(default_factory=PortalStore)
    history: HistoryStore = field(default_factory=HistoryStore)
    what_if: WhatIf = field(default_factory=WhatIf)
    bus: Bus = field(default_factory=Bus)
    metrics: PortalMetrics = field(default_factory=PortalMetrics)
    log: Log = field(default_factory=Log)


def host_of(url: str) -> str:
    """The host of a public URL as browsers send it in `Host`: with the port unless that is the usual one."""
    parts = urlsplit(url)
    usual = {"https": 443, "http": 80}[parts.scheme]
    name = (parts.hostname or "").lower()
    name = f"[{name}]" if ":" in name else name
    return name if parts.port in (None, usual) else f"{name}:{parts.port}"


def origin_of(url: str) -> str:
    """The origin of a public URL as browsers send it."""
    return f"{urlsplit(url).scheme}://{host_of(url)}"


def is_local(url: str) -> bool:
    """Whether only browsers of this machine reach a URL."""
    return host_of(url).rsplit(":", 1)[0] in LOCAL or host_of(url) in LOCAL


def problems_of(config: PortalConfig) -> list[Problem]:
    """What the keys do not tell one by one: see docs/portal.md."""
    wrong: list[Problem] = []
    https = config.public_url.startswith("https://")
    has_tls = bool(config.tls.cert_file)
    if not https and not is_local(config.public_url):
        wrong.append(Problem("public_url", "is not encrypted", "https://..., or a URL of this machine alone"))
    if https and not has_tls and not config.proxy.trusted and not is_local(config.public_url):
        what = "is https, but there is neither a certificate nor a proxy"
        wrong.append(Problem("public_url", what, "tls.cert_file and tls.key_file, or proxy.trusted"))
    if not has_tls and not config.proxy.trusted and not is_loopback(config.server.address):
        what = f"is {config.server.address}, which others reach, and nothing is encrypted"
        expected = "an address of this machine alone, tls.cert_file and tls.key_file, or proxy.trusted"
        wrong.append(Problem("server.address", what, expected))
    if config.proxy.sign_on_file and not config.proxy.trusted:
        wrong.append(Problem("proxy.sign_on_file", "is given, but no proxy is trusted", "proxy.trusted"))
    for each in config.proxy.trusted:
        try:
            ipaddress.ip_network(each, strict=False)
        except ValueError:
            wrong.append(Problem("proxy.trusted", f"is {each!r}", "IP addresses or networks"))
    return wrong + file_problems("tls", "cert_file", config.tls.cert_file, config.tls.key_file)
