"""The broker's URL: what it says, and whether what goes there is encrypted."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from shared.base.addresses import is_loopback
from shared.base.errors import InvalidInput, InvalidValue, Problem

PORT = 5672
TLS_PORT = 5671
UNIX = "unix"


@dataclass(frozen=True, slots=True)
class Address:
    """A broker and who we are there. The password is shown nowhere."""

    host: str
    port: int
    vhost: str
    user: str
    password: str = field(repr=False)
    encrypted: bool = False
    socket: str = ""  # the path of a Unix socket on this machine, which has no host, port, vhost or password

    def __str__(self) -> str:
        if self.socket:
            return f"{self.socket} (user {self.user!r})"
        return f"{self.host}:{self.port} (vhost {self.vhost!r}, user {self.user!r})"


@dataclass(frozen=True, slots=True)
class Tls:
    """How `amqps://` is verified. Verification cannot be switched off.

    Files are paths, or `credential:NAME` (see `shared.base.secrets`).
    """

    ca_file: str = ""
    """Certificates of the trusted authorities (PEM): a path or `credential:NAME`. Empty: the system's."""
    cert_file: str = ""
    """Client certificate (PEM), if the broker asks for one: a path or `credential:NAME`."""
    key_file: str = ""
    """Private key of the client certificate (PEM), readable by its user alone: a path or `credential:NAME`."""
    server_name: str = ""
    """Name in the broker's certificate. Empty: the host of the URL."""


def parse_url(url: str) -> Address:
    """Parse a broker URL: `amqp[s]://USER:PASSWORD@HOST[:PORT][/VHOST]`, percent-encoded; VHOST defaults to `/`. Or
    `unix://USER@/PATH` for a socket on this machine. Raises InvalidValue, which does not show the password."""
    expected = "amqp[s]://USER:PASSWORD@HOST[:PORT][/VHOST]"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        raise InvalidValue("url", "(hidden)", expected) from problem
    if parts.scheme == UNIX:
        return _socket_address(parts)
    if parts.scheme not in ("amqp", "amqps") or not parts.hostname or not parts.username or parts.password is None:
        shown = f"{parts.scheme}://{parts.username or ''}:...@{parts.hostname or ''}"
        raise InvalidValue("url", shown, expected)
    encrypted = parts.scheme == "amqps"
    return Address(
        parts.hostname,
        port or (TLS_PORT if encrypted else PORT),
        unquote(parts.path[1:]) or "/",
        unquote(parts.username),
        unquote(parts.password),
        encrypted,
    )


def _socket_address(parts: SplitResult) -> Address:
    path = unquote(parts.path)
    if parts.hostname or not parts.username or path in ("", "/"):
        raise InvalidValue("url", f"{UNIX}://{parts.username or ''}@{path}", f"{UNIX}://USER@/PATH")
    return Address("", 0, "", unquote(parts.username), "", socket=path)


def check_encryption(url: str, plain: bool) -> None:
    """InvalidInput for a URL that leads to another machine without TLS, unless `plain` says that it may. InvalidValue
    for one that `parse_url` refuses."""
    address = parse_url(url)
    if not (address.encrypted or plain or address.socket or is_loopback(address.host)):
        what = f"sends its password to {address.host} without TLS"
        expected = "amqps://..., or bus.plain = true, where nobody between can read or change what is said"
        raise InvalidInput(Problem("bus.url", what, expected))
