"""What the RabbitMQ bus says to the broker, as plain values: addresses, shapes of queues, headers of dead letters."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from shared.base.errors import InvalidValue, PermanentError
from shared.base.secrets import fault_of, path_of
from shared.config.broker_url import TLS_PORT, Address, Tls
from shared.protocol.dead_letter import DeadMessage, bury
from shared.protocol.topology import QueueSpec

NAME_BYTES_MAX = 255  # of names, routing keys and user ids in AMQP
REASON_LENGTH_MAX = 1024


def tls_context(address: Address, tls: Tls) -> tuple[ssl.SSLContext, str]:
    """Return the TLS context that verifies the broker, and the name that the broker must have. Raises InvalidValue for
    files that cannot be used, and for a key that others can read or change; InvalidInput for credentials that were not
    passed."""
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
    """Return why a broker is not trusted, or what else went wrong, and what to do about it."""
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
    """Return the optional arguments of a queue's declaration: durable queues are quorum queues, others are classic.
    Raises PermanentError for a durable exclusive queue: RabbitMQ cannot replicate it."""
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
    """Return the headers of a dead letter that describe its origin; `dead_message` reads them."""
    return {
        "reason": dead.reason[:REASON_LENGTH_MAX],
        "queue": dead.queue,
        "routing_key": dead.routing_key,
        "sender": dead.sender,
        "size_bytes": dead.size_bytes,
    }


def dead_message(headers: Mapping[str, Any], routing_key: str, sender: str, body: bytes) -> DeadMessage:
    """Return a message of the dead queue with its origin; a message that was sent there directly has no reason."""
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
