"""Posts messages to a URL, signed."""

from __future__ import annotations

import hashlib
import hmac
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import urlsplit

from daemons.drivers.notifiers.later import TryLater, retry_after_s
from daemons.drivers.notifiers.text import as_json
from shared.base import secrets
from shared.base.addresses import is_loopback
from shared.base.clock import SystemClock
from shared.base.deadline import Deadline
from shared.base.errors import InvalidInput, PermanentError, Problem, TransientError
from shared.base.http_client import Request, exchange
from shared.config import records
from shared.config.common import SecretFile
from shared.config.records import Form, Range
from shared.ports.notices import Notify

ID, TIME, SIGNATURE = "X-Trimtab-Id", "X-Trimtab-Timestamp", "X-Trimtab-Signature"
ANSWER_BYTES_MAX = 4096
SAID_MAX = 200  # characters of an answer that are told
ASKED_TO_WAIT = (408, 425, 429)  # of the refusals, those that are none for good
SAY_WHEN = (429, 503)  # statuses with which a receiver says when it may be tried again (RFC 6585, RFC 9110)
_CLOCK = SystemClock()

HttpUrl = Annotated[str, Form(r"https?://[!-~]+", "a URL https://... in printable ASCII", secret=True)]
Limit = Annotated[float, Range(0.1, 600)]
CaFile = Annotated[str, Form(r"(/[^\0]+)?", "an absolute path, or nothing")]


@dataclass(frozen=True, slots=True)
class WebhookKeys:
    """A channel that posts messages to a URL."""

    url: HttpUrl = field(repr=False)
    """URL that messages are posted to. It may contain a token and is never shown. Example:
    `"https://hooks.example.org/trimtab"`."""
    secret_file: SecretFile = ""
    """File of the secret that signs messages: a path or `credential:NAME`. Empty: messages are not signed."""
    timeout_s: Limit = 10.0
    """Time limit of one message."""
    ca_file: CaFile = ""
    """Certificates of the trusted authorities (PEM). Empty: the system's."""
    plain: bool = False
    """Allow `http://` to another machine."""


def context_of(where: str, ca_file: str) -> ssl.SSLContext:
    """Return the TLS context that verifies servers. Raises InvalidInput when the file cannot be used."""
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:  # an SSLError is one
        raise InvalidInput(
            Problem(f"{where}.ca_file", f"names {ca_file!r}", "a file of certificates in PEM")
        ) from error


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return `sha256=` and the HMAC-SHA256 of the timestamp, a dot and the body, in hexadecimal digits (RFC 2104)."""
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class Webhook:
    """Implements `shared.ports.controller.NotifyChannel`: one POST for each message. Any status 2xx: it has arrived.
    Redirects are not followed and proxies not used. Raises InvalidInput with everything that is wrong with the keys."""

    def __init__(self, where: str, table: Mapping[str, Any]) -> None:
        self._where = where
        self._keys = keys = records.read(table, WebhookKeys, where, {})
        try:
            parts = urlsplit(keys.url)
            self._host, _ = parts.hostname or "", parts.port  # which is looked at: one that is none raises
        except ValueError as error:
            raise InvalidInput(Problem(f"{where}.url", "is not valid", "https://HOST[:PORT]/PATH")) from error
        if parts.username is not None or not self._host:
            raise InvalidInput(Problem(f"{where}.url", "names a user, or no host", "https://HOST[:PORT]/PATH"))
        if parts.scheme != "https" and not (keys.plain or is_loopback(self._host)):
            expected = "https://..., or plain = true where nobody can listen"
            raise InvalidInput(Problem(f"{where}.url", "is not encrypted and leads to another machine", expected))
        self._context = context_of(where, keys.ca_file) if parts.scheme == "https" else None
        if keys.secret_file and not secrets.is_absent(keys.secret_file):
            self._secret()

    def _secret(self) -> str:
        """Read the secret each time: it may be changed while the controller runs."""
        return secrets.secret_of(f"{self._where}.secret_file", self._keys.secret_file)

    def send(self, message: Notify) -> str:
        """Post it. TransientError: it may work later; PermanentError: the server does not want it."""
        body = as_json(message)
        try:
            headers = self._headers(message, body)
        except (InvalidInput, OSError) as error:
            raise TransientError(str(error)) from error
        request = Request(self._keys.url, "POST", headers, body=body, context=self._context, named=self._host)
        with exchange(request, Deadline(self._keys.timeout_s)) as answer:
            status, said = answer.status, answer.beginning(ANSWER_BYTES_MAX)
            asked = answer.headers.get("Retry-After", "") if status in SAY_WHEN else ""
        if 200 <= status < 300:
            return ""
        told = f"{self._host} answers {status}: {said.decode('utf-8', 'replace')[:SAID_MAX]}"
        if status >= 500 or status in ASKED_TO_WAIT:
            raise TryLater(told, retry_after_s(asked, _CLOCK.now_s()))
        raise PermanentError(told)

    def _headers(self, message: Notify, body: bytes) -> dict[str, str]:
        timestamp = str(int(_CLOCK.now_s()))
        headers = {"Content-Type": "application/json", ID: message.message, TIME: timestamp}
        if self._keys.secret_file:
            headers[SIGNATURE] = signature(self._secret(), timestamp, body)
        return headers
