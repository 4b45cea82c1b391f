"""What the RabbitMQ bus says to the broker, as plain values: addresses, shapes of queues, headers of dead letters."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from shared.bus.dead import DeadMessage, bury
from shared.bus.topology import QueueSpec
from shared.errors import InvalidInput, InvalidValue, PermanentError, Problem
from shared.private import fault_of, path_of

PORT = 5672
TLS_PORT = 5671
NAME_BYTES_MAX = 255  # of names, routing keys and user ids in AMQP
REASON_LENGTH_MAX = 1024


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
    `credential:NAME` (see `shared.private`)."""

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


def is_loopback(host: str) -> bool:
    """Whether a host is surely this machine, as its name says."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def check_encryption(url: str, plain: bool) -> None:
    """InvalidInput for a URL that leads to another machine without TLS, unless `plain` says that it may. InvalidValue
    for one that `parse_url` refuses."""
    address = parse_url(url)
    if not (address.encrypted or plain or is_loopback(address.host)):
        what = f"sends its password to {address.host} without TLS"
        expected = "amqps://..., or bus.plain = true, where nobody between can read or change what is said"
        raise InvalidInput(Problem("bus.url", what, expected))


def tls_context(address: Address, tls: Tls) -> tuple[ssl.SSLContext, str]:
    """What verifies the broker, and the name that it must have. InvalidValue for files that cannot be used, and for a
    key that others can read or change; InvalidInput for credentials that nobody has passed."""
    ca_file, cert_file, key_file = map(path_of, (tls.ca_file, tls.cert_file, tls.key_file))
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
        if cert_file:
            wrong = fault_of(key_file or cert_file)
            if wrong is not None:
                raise InvalidValue("tls", wrong.where, f"{wrong.expected}: it {wrong.what}")
            context.load_cert_chain(cert_file, key_file or None)
    except OSError as problem:
        files = ", ".join(filter(None, (ca_file, cert_file, key_file)))
        raise InvalidValue("tls", files, f"readable PEM files ({problem})") from problem
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context, tls.server_name or address.host


_EXPIRED, _NOT_YET, _OTHER_NAME = (10,), (9,), (62, 64)  # X509_V_ERR_...
_UNKNOWN = (18, 19, 20, 21)


def tls_advice(problem: ssl.SSLError) -> str:
    """Why a broker is not trusted, or what else went wrong, and what to do about it."""
    code = getattr(problem, "verify_code", 0)
    if code in _EXPIRED:
        return "its certificate has expired: renew it, unless it is this machine's clock that is wrong"
    if code in _NOT_YET:
        return "its certificate is not valid yet: see this machine's clock"
    if code in _OTHER_NAME:
        return f"its certificate is for another name ({problem.verify_message}): see the host, and `server_name`"  # type: ignore[attr-defined]
    if code in _UNKNOWN:
        return "its certificate is of no authority that is trusted here: see `ca_file`"
    if problem.reason == "WRONG_VERSION_NUMBER":
        return f"no TLS is spoken there: is it the port for it ({TLS_PORT} as a rule)?"
    return f"{problem}: see `ca_file` and the broker's certificate"


def queue_arguments(spec: QueueSpec) -> dict[str, Any]:
    """The optional arguments of a queue's declaration: quorum queues where it is durable, classic ones elsewhere.
    PermanentError for a durable exclusive queue: RabbitMQ replicates none."""
    if spec.durable and spec.exclusive:
        raise PermanentError(f"queue {spec.name!r} cannot be durable and exclusive")
    arguments: dict[str, Any] = {}
    if spec.durable:
        arguments["x-queue-type"] = "quorum"
    if spec.ttl_s is not None:
        arguments["x-message-ttl"] = round(spec.ttl_s * 1000)
    if spec.length_max is not None:
        arguments["x-max-length"] = spec.length_max
        arguments["x-overflow"] = "drop-head"
    if spec.single_active:
        arguments["x-single-active-consumer"] = True
    return arguments


def dead_headers(dead: DeadMessage) -> dict[str, Any]:
    """What a dead letter says of its origin; `dead_message` reads it."""
    return {
        "reason": dead.reason[:REASON_LENGTH_MAX],
        "queue": dead.queue,
        "routing_key": dead.routing_key,
        "sender": dead.sender,
        "size_bytes": dead.size_bytes,
    }


def dead_message(headers: Mapping[str, Any], routing_key: str, sender: str, body: bytes) -> DeadMessage:
    """A message of the dead queue as it is told there; one that was sent there directly has no reason."""
    try:
        return DeadMessage(
            str(headers["reason"]),
            str(headers["queue"]),
            str(headers["routing_key"]),
            str(headers["sender"]),
            body,
            int(headers["size_bytes"]),
        )
    except (KeyError, ValueError):
        return bury("", "", routing_key, sender, body)


def check_name(what: str, name: str) -> None:
    """PermanentError for what is too long to travel as an AMQP short string."""
    if len(name.encode("utf-8", "replace")) > NAME_BYTES_MAX:
        raise PermanentError(f"a {what} of more than {NAME_BYTES_MAX} bytes: {name[:40]!r}...")
