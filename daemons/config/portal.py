"""What the portal's configuration file may say: every key with its unit, range and default; see
`daemons.config.controller`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar

from shared.config.common import Bus, FilePath, Listen, Log, Metrics, Period, Place, SecretFile, StoreUrl
from shared.config.records import AtLeast, Form, IsAddress, Range, Rule

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


@dataclass(frozen=True, slots=True)
class Server:
    """Where the portal listens, and how much it serves at a time."""

    address: Annotated[str, Form(r"[0-9A-Fa-f.:]{2,64}", "an IP address")] = "127.0.0.1"
    """IP address on which the portal listens."""
    port: Annotated[int, Range(0, 65_535)] = 8443
    """Port on which the portal listens. 0: any free port."""
    connections_max: Annotated[int, Range(10, 60_000)] = 500
    """Most connections at a time. Further connections are closed."""
    address_max: Annotated[int, Range(4, 60_000)] = 32
    """Most connections, and most requests, of one address at a time. In IPv6, of one /64 network."""
    readers_max: Annotated[int, Range(1, 100_000)] = 200
    """Most browsers that follow changes at a time. One account may have 50 of them."""
    request_s: Period = 10.0
    """Time within which the head of a request must arrive."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The TLS certificate of the portal. Leave it out if a reverse proxy has it."""

    cert_file: Place = ""
    """Certificate with its chain (PEM): a path or `credential:NAME`. SIGHUP reads the file again."""
    key_file: Place = ""
    """Private key of the certificate (PEM): a path or `credential:NAME`. SIGHUP reads the file again."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """Reverse proxies in front of the portal."""

    trusted: tuple[Network, ...] = ()
    """Addresses or networks of the proxies whose headers are trusted."""
    sign_on_file: SecretFile = ""
    """File of the secret with which a trusted proxy logs people in (single sign-on). Empty: proxies may not."""


@dataclass(frozen=True, slots=True)
class Staying:
    """How long a login lasts."""

    idle_s: Seconds = 1800.0
    """Time without a request after which a session ends."""
    absolute_s: Seconds = 43_200.0
    """Longest duration of a session."""


class SecondFactor(StrEnum):
    """Who must have a second factor to log in with a password."""

    PROVIDERS = "providers"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Login:
    """What a login needs."""

    second_factor: SecondFactor = SecondFactor.PROVIDERS
    """Accounts that must use a second factor with a password. An account that has one is always asked for it."""


@dataclass(frozen=True, slots=True)
class PortalStore:
    """The portal's own database of accounts and sessions."""

    url: StoreUrl = field(default="sqlite:////var/lib/trimtab-portal/portal.db", repr=False)
    """URL of the database, SQLite or PostgreSQL. It may contain a password and is never shown."""
    password_file: SecretFile = ""
    """File of the database password: a path or `credential:NAME`. Empty: the URL contains the password, or needs
    none."""
    log_days: Annotated[float, Range(1, 36_500)] = 400.0
    """Days that logins and changes of accounts are kept in the log."""


@dataclass(frozen=True, slots=True)
class HistoryStore:
    """The database of the controller, which the portal only reads."""

    url: HistoryUrl = field(default="", repr=False)
    """URL of the controller's database. It may contain a password and is never shown. Empty: pages of the past are
    missing."""
    password_file: SecretFile = ""
    """File of the database password: a path or `credential:NAME`. Empty: the URL contains the password, or needs
    none."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Simulations of the page "What if"."""

    folder: FilePath = "/var/lib/trimtab-portal/what-if"
    """Folder in which simulations are kept."""
    at_once: Annotated[int, Range(1, 16)] = 1
    """Most simulations that run at a time."""
    limit_s: Annotated[float, Range(10, 86_400)] = 3600.0
    """Time limit of one simulation."""


@dataclass(frozen=True, slots=True)
class PortalMetrics(Metrics):
    """The endpoint of Prometheus metrics. It has no accounts: everyone who reaches it can read it."""

    listen: Listen = "127.0.0.1:9462"
    """Address and port of the endpoint. Empty: no metrics are served."""


@dataclass(frozen=True, slots=True)
class PortalConfig:
    """The configuration of the portal."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        IsAddress("server.address"),
        AtLeast("server.connections_max", "server.readers_max"),
        AtLeast("server.connections_max", "server.address_max"),
        AtLeast("sessions.absolute_s", "sessions.idle_s"),
    )

    public_url: PublicUrl
    """URL at which browsers reach the portal. Requests for another host name are refused. `http://` is for this machine
    alone. Example: `"https://trimtab.example.org:8443"`."""
    read_only: bool = False
    """Show the cluster, but change nothing."""
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
