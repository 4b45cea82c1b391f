"""The broker's URL: what it says, and whether what goes there is encrypted."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from shared.base.addresses import is_loopback
from shared.base.errors import InvalidInput, InvalidValue, Problem

PORT = 5672
TLS_PORT = 5671


@dataclass(frozen=True, slots=True)
class Address:
    """A broker and who we are there. The password is shown nowhere."""

    host: str
    port: int
    vhost: str
    user: str
    password: str = field(repr=False)
    encrypted: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (vhost {self.vhost!r}, user {self.user!r})"


@dataclass(frozen=True, slots=True)
class Tls:
    """How `amqps://` is verified; there is no way not to. `ca_file`: PEM of the authorities ("": the system's).
    `cert_file`, `key_file`: our own certificate, where the broker asks for one, and its key, which only we may read.
    `server_name`: the name in the broker's certificate ("": the host of the URL). Files are paths, or
    `credential:NAME` (see `shared.base.secrets`)."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""


def parse_url(url: str) -> Address:
    """`amqp[s]://USER:PASSWORD@HOST[:PORT][/VHOST]`, percent-encoded; without a VHOST it is `/`. InvalidValue, which
    does not show the password."""
    expected = "amqp[s]://USER:PASSWORD@HOST[:PORT][/VHOST]"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        raise InvalidValue("url", "(hidden)", expected) from problem
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


def check_encryption(url: str, plain: bool) -> None:
    """InvalidInput for a URL that leads to another machine without TLS, unless `plain` says that it may. InvalidValue
    for one that `parse_url` refuses."""
    address = parse_url(url)
    if not (address.encrypted or plain or is_loopback(address.host)):
        what = f"sends its password to {address.host} without TLS"
        expected = "amqps://..., or bus.plain = true, where nobody between can read or change what is said"
        raise InvalidInput(Problem("bus.url", what, expected))
