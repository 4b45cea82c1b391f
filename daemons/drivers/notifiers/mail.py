"""Sends messages by e-mail, through a server of one's own (SMTP)."""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from enum import StrEnum
from typing import Annotated, Any

from daemons.drivers.notifiers.text import body_text, subject_line
from daemons.drivers.notifiers.webhook import ID, CaFile, Limit, context_of
from shared.base import secrets
from shared.base.addresses import is_loopback
from shared.base.deadline import Deadline, connected, received, send_all
from shared.base.errors import InvalidInput, PermanentError, Problem, TransientError
from shared.config import records
from shared.config.common import SecretFile
from shared.config.records import Form, Range
from shared.ports.notices import Notify
from shared.runtime.startup import host_name

DEFAULT_PORTS = {"starttls": 587, "tls": 465, "none": 25}
_WORD = r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}"
_HOST = r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}"

Address = Annotated[str, Form(f"{_WORD}@{_HOST}", "an address NAME@HOST")]
MailHost = Annotated[str, Form(rf"{_HOST}|[0-9A-Fa-f:]{{2,45}}", "the name or address of a host")]


class Tls(StrEnum):
    """How the connection is encrypted."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class EmailKeys:
    """A channel that sends e-mail."""

    host: MailHost
    """Name or address of the mail server. Example: `"mail.example.org"`."""
    from_: Address
    """Address of the sender. Example: `"trimtab@example.org"`."""
    to: tuple[Address, ...]
    """Addresses of the recipients. Example: `["oncall@example.org"]`."""
    port: Annotated[int, Range(0, 65_535)] = 0
    """Port of the mail server. 0: 587, 465 or 25, as `tls` is."""
    tls: Tls = Tls.STARTTLS
    """Encryption: `starttls`, `tls` from the first byte, or `none`."""
    user: Annotated[str, Form(r"[^\0\r\n]{0,256}", "a user, or nothing")] = ""
    """User at the mail server. Empty: no login."""
    password_file: SecretFile = ""
    """File of the user's password: a path or `credential:NAME`. It is read for each message."""
    ca_file: CaFile = ""
    """Certificates of the trusted authorities (PEM). Empty: the system's."""
    timeout_s: Limit = 20.0
    """Time limit of one message."""
    plain: bool = False
    """Allow a connection without TLS to another machine. No password is sent then."""


class Email:
    """Implements `shared.ports.controller.NotifyChannel`: one mail to all for each message. It has arrived when the
    server has taken it for one of them at least. Raises InvalidInput with everything that is wrong with the keys."""

    def __init__(self, where: str, table: Mapping[str, Any]) -> None:
        self._where = where
        self._keys = keys = records.read(table, EmailKeys, where, {})
        problems = list(_problems(where, keys))
        if problems:
            raise InvalidInput(*problems)
        self._context = None if keys.tls is Tls.NONE else context_of(where, keys.ca_file)
        if keys.user and not secrets.is_absent(keys.password_file):
            self._password()

    def _password(self) -> str:
        """Read the password each time: it may be changed while the controller runs."""
        return secrets.secret_of(f"{self._where}.password_file", self._keys.password_file)

    def send(self, message: Notify) -> str:
        """Send the message; return the refused recipients if others were accepted. TransientError: it may work later;
        PermanentError: the server rejects it."""
        keys, mail = self._keys, self._mail(message)
        deadline = Deadline(keys.timeout_s)
        server = _Server(deadline, self._context if keys.tls is Tls.TLS else None)
        try:
            server.connect(keys.host, keys.port or DEFAULT_PORTS[keys.tls.value])
            if keys.tls is Tls.STARTTLS:
                server.starttls(context=self._context)
            if keys.user:
                server.login(keys.user, self._password())
            refused = server.send_message(mail, keys.from_, list(keys.to))
            server.end()
        except InvalidInput as error:
            raise TransientError(str(error)) from error
        except smtplib.SMTPRecipientsRefused as error:
            raise _refused(min(code for code, _ in error.recipients.values()), _people(error.recipients)) from error
        except smtplib.SMTPAuthenticationError as error:
            raise TransientError(f"{keys.host} does not let {keys.user} in ({error.smtp_code})") from error
        except smtplib.SMTPResponseException as error:
            raise _refused(error.smtp_code, f"{keys.host}: {error.smtp_code} {_words(error.smtp_error)}") from error
        except (OSError, ValueError) as error:  # what smtplib raises is an OSError
            if not deadline.is_ahead:
                raise TransientError(f"{keys.host}: no answer within {keys.timeout_s:g} s") from error
            raise TransientError(f"{keys.host}: {type(error).__name__}: {error}"[:500]) from error
        finally:
            server.close()
        return f"not taken for {_people(refused)}" if refused else ""

    def _mail(self, message: Notify) -> EmailMessage:
        mail = EmailMessage(SMTP)
        mail["From"], mail["To"] = self._keys.from_, ", ".join(self._keys.to)
        mail["Subject"] = subject_line(message)
        mail["Date"] = format_datetime(datetime.fromtimestamp(message.notices[-1].at_s, UTC))
        mail["Message-ID"] = f"<{message.message}@{message.cluster}.trimtab>"
        mail["Auto-Submitted"] = "auto-generated"
        mail[ID] = message.message
        mail.set_content(body_text(message), cte="quoted-printable")
        return mail


def _problems(where: str, keys: EmailKeys) -> list[Problem]:
    found = []
    here = is_loopback(keys.host)
    if not keys.to:
        found.append(Problem(f"{where}.to", "is empty", "one or more addresses"))
    if keys.tls is Tls.NONE and not (keys.plain or here):
        expected = "starttls or tls, or plain = true where nobody can listen"
        found.append(Problem(f"{where}.tls", "is none, and the server is another machine", expected))
    if keys.user and keys.tls is Tls.NONE and not here:
        found.append(Problem(f"{where}.user", "would send its password in the clear", "tls = starttls or tls"))
    if bool(keys.user) != bool(keys.password_file):
        found.append(Problem(f"{where}.password_file", "goes with user", "both, or none"))
    return found


def _refused(code: int, told: str) -> TransientError | PermanentError:
    """Return the error for a refusal; 5xx is permanent (RFC 5321, 4.2.1)."""
    return PermanentError(told) if code >= 500 else TransientError(told)


def _people(refused: Mapping[str, tuple[int, bytes]]) -> str:
    return ", ".join(f"{who} ({code} {_words(said)})" for who, (code, said) in sorted(refused.items()))[:500]


def _words(said: bytes | str) -> str:
    return said.decode("utf-8", "replace")[:200] if isinstance(said, bytes) else said[:200]


class _Server(smtplib.SMTP):
    """A connection to a mail server that keeps to a deadline, encrypted from the beginning where there is a context."""

    def __init__(self, deadline: Deadline, context: ssl.SSLContext | None) -> None:
        super().__init__(local_hostname=host_name(), timeout=deadline.limit_s)
        self._deadline, self._wrapping = deadline, context

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        del timeout
        made = connected(host, port, self._deadline)
        self._host = host  # what starttls verifies the server by
        if self._wrapping is None:
            return made
        try:
            made.settimeout(self._deadline.wait_s())  # for the whole handshake
            return self._wrapping.wrap_socket(made, server_hostname=host)
        except BaseException:
            made.close()
            raise

    def send(self, s: Any) -> None:
        """Send it by the deadline. Raises SMTPServerDisconnected."""
        if self.sock is None:
            raise smtplib.SMTPServerDisconnected("the connection was closed")
        try:
            send_all(self.sock, s.encode(self.command_encoding) if isinstance(s, str) else s, self._deadline)
        except OSError as error:
            self.close()
            raise smtplib.SMTPServerDisconnected(f"the connection was closed: {error}") from error

    def getreply(self) -> tuple[int, bytes]:
        """Read a reply by the deadline. Raises SMTPServerDisconnected."""
        if self.file is None and self.sock is not None:
            self.file = received(self.sock, self._deadline)
        return super().getreply()

    def docmd(self, cmd: str, args: str = "") -> tuple[int, bytes]:
        """Send a command and read the reply, as `getreply`."""
        reply = super().docmd(cmd, args)
        if cmd == "STARTTLS" and self.sock is not None:
            self.sock.settimeout(self._deadline.wait_s())  # for the whole handshake
        return reply

    def end(self) -> None:
        """Close the session; the server already has the message, so errors are ignored."""
        try:
            self.quit()
        except (OSError, smtplib.SMTPException):
            self.close()
