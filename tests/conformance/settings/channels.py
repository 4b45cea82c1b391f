"""Keys of the tables of channels in the controller's file: what comes out of each when a message is sent."""

from __future__ import annotations

import base64
import hashlib
import hmac
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from daemons.drivers.notifiers.command import CommandChannel
from daemons.drivers.notifiers.mail import Email
from daemons.drivers.notifiers.webhook import SIGNATURE, TIME, Webhook
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput, PermanentError, TransientError
from shared.ports.controller import NotifyChannel
from shared.ports.notices import Notice, Notify
from tests.conformance.settings.daemons import certificates, filled
from tests.conformance.settings.row import Given, Row, shown_by
from tests.support.notify_servers import mail_server, web_server

MESSAGE = Notify("ops", "a", "trimtab", (Notice("a.0", 0.0, "node-failed", "n1", "it is unreachable"),))
Make = Callable[[str, Mapping[str, Any]], NotifyChannel]


def _sent(make: Make, given: Given) -> str:
    """Send a message as the text says: why it has not arrived ("": it has)."""
    table = tomllib.loads(given.text.replace("/FOLDER", str(given.folder)))
    try:
        return make("notify.channels.ops", table).send(MESSAGE)
    except InvalidInput as error:
        return "; ".join(problem.where for problem in error.problems)
    except (TransientError, PermanentError) as error:
        return type(error).__name__


def program(given: Given) -> object:
    """A program is run for it."""
    said = _sent(CommandChannel, given)
    return said, sorted(path.name for path in given.folder.iterdir())


def _signer(headers: Mapping[str, str], body: bytes) -> str:
    """With which of the secrets it is signed."""
    for word in ("word-ONE", "word-TWO"):
        made = hmac.new(word.encode(), headers[TIME].encode() + b"." + body, hashlib.sha256).hexdigest()
        if headers.get(SIGNATURE) == f"sha256={made}":
            return word
    return "nobody"


def posted(given: Given) -> object:
    """It is posted to one of two web servers, or to one with TLS."""
    with web_server() as one, web_server() as two, web_server(certificates()[0].context()) as encrypted:
        words = {"PORT1": f"{one.port}", "PORT2": f"{two.port}", "PORT3": f"{encrypted.port}"}
        said = _sent(Webhook, filled(given, **words))
        received = [[_signer(headers, body) for _, headers, body in each.received] for each in (one, two, encrypted)]
    return said, received


def hangs(given: Given) -> object:
    """It is posted to a server whose answer never ends: whether that takes long."""
    with web_server() as one:
        one.drips = True
        found: list[str] = []
        placed = Given(given.text.replace("PORT1", f"{one.port}"), given.folder)
        took_s = _timed(lambda: found.append(_sent(Webhook, placed)))
    return found, took_s > LONG_S


def mailed(given: Given) -> object:
    """It is mailed through one of two servers, or through one with TLS."""
    with mail_server() as one, mail_server() as two, mail_server(certificates()[0].context()) as encrypted:
        words = {'"PORT1"': f"{one.port}", '"PORT2"': f"{two.port}", '"PORT3"': f"{encrypted.port}"}
        said = _sent(Email, filled(given, **words))
        mails = [[(sender, to, safe) for sender, to, _, safe in each.mails] for each in (one, two, encrypted)]
        logins = [base64.b64decode(each) for each in encrypted.logins]
    return said, mails, logins


def silent(given: Given) -> object:
    """The mail server says nothing: whether that takes long."""
    with mail_server() as box:
        box.silent = True
        found: list[str] = []
        text = given.text.replace('"PORT1"', f"{box.port}")
        took_s = _timed(lambda: found.append(_sent(Email, Given(text, given.folder))))
    return found, took_s > LONG_S


def _timed(act: Callable[[], object]) -> float:
    clock = SystemClock()
    begun_s = clock.monotonic_s()
    act()
    return clock.monotonic_s() - begun_s


LONG_S = 2.0
MAIL: dict[str, Any] = {
    "host": "127.0.0.1",
    "from": "trimtab@example.org",
    "to": ["jane@example.org"],
    "port": "PORT1",
    "tls": "none",
}
SAFE = MAIL | {"host": "localhost", "port": "PORT3", "tls": "starttls", "ca_file": "/CERT_ONE"}
KNOWN = SAFE | {"user": "kim", "password_file": "/PASSWORD_ONE"}

COMMAND: tuple[Row, ...] = (
    *shown_by(program, {"argv": (["/usr/bin/touch", "/FOLDER/one"], ["/usr/bin/touch", "/FOLDER/two"])}),
    *shown_by(program, {"timeout_s": (10, 0.2)}, {"argv": ["/bin/sleep", "0.6"]}, waits=True),
)
WEBHOOK: tuple[Row, ...] = (
    *shown_by(posted, {"url": ("http://127.0.0.1:PORT1/", "http://127.0.0.1:PORT2/")}),
    *shown_by(posted, {"secret_file": ("/PASSWORD_ONE", "/PASSWORD_TWO")}, {"url": "http://127.0.0.1:PORT1/"}),
    *shown_by(posted, {"ca_file": ("/CERT_ONE", "/CERT_TWO")}, {"url": "https://localhost:PORT3/"}),
    *shown_by(hangs, {"timeout_s": (0.2, 4)}, {"url": "http://127.0.0.1:PORT1/"}, waits=True),
    *shown_by(posted, {"plain": (False, True)}, {"url": "http://nowhere.invalid/"}),
)
EMAIL: tuple[Row, ...] = (
    *shown_by(
        mailed,
        {
            "from": ("trimtab@example.org", "other@example.org"),
            "to": (["jane@example.org"], ["joe@example.org"]),
            "port": ("PORT1", "PORT2"),
            "host": ("127.0.0.1", "nowhere.invalid"),
        },
        MAIL,
    ),
    *shown_by(mailed, {"tls": ("starttls", "none"), "ca_file": ("/CERT_ONE", "/CERT_TWO")}, SAFE),
    *shown_by(mailed, {"user": ("kim", "lee"), "password_file": ("/PASSWORD_ONE", "/PASSWORD_TWO")}, KNOWN),
    *shown_by(mailed, {"plain": (False, True)}, MAIL | {"host": "nowhere.invalid"}),
    *shown_by(silent, {"timeout_s": (0.2, 4)}, MAIL, waits=True),
)
