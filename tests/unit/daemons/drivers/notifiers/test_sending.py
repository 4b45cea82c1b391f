"""The channels of notifications against real servers and programs of this machine."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import socket
import sys
import threading
from contextlib import suppress
from email import message_from_bytes
from email.header import decode_header, make_header
from pathlib import Path
from typing import Any

import pytest

from daemons.drivers.notifiers.command import CommandChannel
from daemons.drivers.notifiers.later import LATER_MAX_S, TryLater, retry_after_s
from daemons.drivers.notifiers.mail import Email
from daemons.drivers.notifiers.text import as_json, body_text, subject_line
from daemons.drivers.notifiers.webhook import Webhook
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput, PermanentError, TransientError
from shared.ports.notices import Notice, Notify
from tests.support.notify_servers import Certificate, mail_server, make_certificate, web_server
from tests.support.shell_harness import wait_for

AT_S = 1_792_324_800.0  # 2026-10-18T12:00:00Z
SECRET = "s3cret of the hook"
MESSAGE = Notify(
    "ops",
    "7-1792324800-3",
    "berlin",
    (
        Notice("7-1792324800-3.0", AT_S, "alarm:node-unreachable", "n1", "2 VMs"),
        Notice("7-1792324800-3.1", AT_S + 1.0, "node-failed", "n2"),
    ),
)


@pytest.fixture
def secret(tmp_path: Path) -> str:
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    file.chmod(0o600)
    return str(file)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def refused(make: Any, **table: Any) -> str:
    with pytest.raises(InvalidInput) as wrong:
        make("notify.channels.ops", table)
    return str(wrong.value)


# --- the message ----------------------------------------------------------------------------------------------------


def test_a_message_in_words_and_in_json() -> None:
    assert subject_line(MESSAGE) == "[berlin] alarm: node-unreachable n1 and 1 more"
    assert body_text(MESSAGE) == (
        "2026-10-18T12:00:00Z  alarm: node-unreachable n1  2 VMs\n2026-10-18T12:00:01Z  node-failed n2\n"
    )
    table = json.loads(as_json(MESSAGE))
    assert (table["version"], table["id"], table["cluster"], table["channel"]) == (1, MESSAGE.message, "berlin", "ops")
    assert (table["subject"], table["text"]) == (subject_line(MESSAGE), body_text(MESSAGE))
    assert table["notices"][0] == {
        "id": "7-1792324800-3.0",
        "at": "2026-10-18T12:00:00Z",
        "at_s": AT_S,
        "kind": "alarm",
        "what": "node-unreachable",
        "subject": "n1",
        "detail": "2 VMs",
    }
    assert [notice["kind"] for notice in table["notices"]] == ["alarm", "event"]


def test_a_hostile_name_stays_one_line() -> None:
    hostile = Notify("ops", "1", "c", (Notice("1.0", AT_S, "node-failed", "n1\r\nBcc: all@example.org\x1b[2J" * 20),))

    assert "\r" not in subject_line(hostile)
    assert subject_line(hostile).isprintable()
    assert len(subject_line(hostile)) <= 150
    assert body_text(hostile).count("\n") == 1


# --- webhook --------------------------------------------------------------------------------------------------------


def test_a_webhook_posts_json_that_the_receiver_can_verify(secret: str) -> None:
    now_s = SystemClock().now_s()
    with web_server() as web:
        channel = Webhook("w", {"url": f"http://127.0.0.1:{web.port}/hook?to=ops", "secret_file": secret})
        assert channel.send(MESSAGE) == ""
        ((path, headers, body),) = web.received

    assert path == "/hook?to=ops"
    assert body == as_json(MESSAGE)
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Trimtab-Id"] == MESSAGE.message
    assert abs(int(headers["X-Trimtab-Timestamp"]) - now_s) < 60
    signed = headers["X-Trimtab-Timestamp"].encode() + b"." + body
    digest = hmac.HMAC(SECRET.encode(), signed, hashlib.sha256).digest()
    assert headers["X-Trimtab-Signature"] == "sha256=" + digest.hex()


def test_a_changed_secret_counts_at_once_and_one_that_cannot_be_read_is_tried_again(secret: str) -> None:
    with web_server() as web:
        channel = Webhook("w", {"url": f"http://127.0.0.1:{web.port}/", "secret_file": secret})
        channel.send(MESSAGE)
        Path(secret).write_text("another")
        channel.send(MESSAGE)
        signatures = [headers["X-Trimtab-Signature"] for _, headers, _ in web.received]
        Path(secret).chmod(0o644)
        with pytest.raises(TransientError, match="every user of this machine") as wrong:
            channel.send(MESSAGE)

    assert signatures[0] != signatures[1]
    assert "another" not in str(wrong.value)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (500, TransientError),
        (503, TransientError),
        (429, TransientError),
        (408, TransientError),
        (400, PermanentError),
        (410, PermanentError),
        (302, PermanentError),
    ],
)
def test_what_a_status_means(status: int, error: type[Exception]) -> None:
    with web_server() as web:
        web.statuses = [status]
        channel = Webhook("w", {"url": f"http://localhost:{web.port}/token-abc"})
        with pytest.raises(error, match=f"localhost answers {status}: said so") as told:
            channel.send(MESSAGE)

    assert len(web.received) == 1  # a redirect is not followed
    assert "token" not in str(told.value)


@pytest.mark.parametrize(
    ("status", "asked", "after_s"),
    [
        (429, "30", 30.0),
        (503, "Sun, 18 Oct 2026 12:00:30 GMT", 30.0),
        (503, "99999999999999999999999", LATER_MAX_S),
        (503, "-5", 0.0),
        (429, "soon", 0.0),
        (500, "30", 0.0),
    ],
)
def test_a_receiver_may_say_when_it_wants_to_be_tried_again(status: int, asked: str, after_s: float) -> None:
    with web_server() as web:
        web.statuses, web.headers = [status], {"Retry-After": asked}
        with pytest.raises(TryLater) as told:
            Webhook("w", {"url": f"http://127.0.0.1:{web.port}/"}).send(MESSAGE)

    if not asked.endswith("GMT"):
        assert told.value.after_s == after_s
    assert retry_after_s(asked, AT_S) == (after_s if status != 500 else 30.0)
    assert retry_after_s("Sun, 18 Oct 2026 11:00:00 GMT", AT_S) == 0.0


def test_a_server_that_sends_a_byte_at_a_time_is_cut_off() -> None:
    clock = SystemClock()
    with web_server() as web:
        web.drips = True
        channel = Webhook("w", {"url": f"http://127.0.0.1:{web.port}/", "timeout_s": 0.3})
        begun_s = clock.monotonic_s()
        with pytest.raises(TransientError, match=r"no answer within 0\.3 s"):
            channel.send(MESSAGE)

    assert clock.monotonic_s() - begun_s < 5.0


def test_nobody_there_is_tried_again() -> None:
    with web_server() as web:
        port = web.port
    with pytest.raises(TransientError, match=r"127\.0\.0\.1: ConnectionRefusedError"):
        Webhook("w", {"url": f"http://127.0.0.1:{port}/token"}).send(MESSAGE)


def test_a_webhook_verifies_who_answers(certificate: Certificate) -> None:
    with web_server(certificate.context()) as web:
        url = f"https://localhost:{web.port}/"
        with pytest.raises(TransientError, match="CERTIFICATE_VERIFY_FAILED"):
            Webhook("w", {"url": url}).send(MESSAGE)
        Webhook("w", {"url": url, "ca_file": str(certificate.certificate)}).send(MESSAGE)

    assert len(web.received) == 1


def test_what_is_wrong_with_a_webhook_is_told_without_its_url(tmp_path: Path) -> None:
    assert "not encrypted" in refused(Webhook, url="http://hooks.example/token-abc")
    assert "token" not in refused(Webhook, url="http://hooks.example/token-abc")
    assert "token" not in refused(Webhook, url="ftp://hooks.example/token-abc")
    assert "names a user" in refused(Webhook, url="https://me:token@hooks.example/")
    assert "url: is missing" in refused(Webhook)
    assert "no such key" in refused(Webhook, url="https://h/", urll="x")
    assert "is not valid" in refused(Webhook, url="https://h:99999/")
    assert "ca_file" in refused(Webhook, url="https://h/", ca_file=str(tmp_path / "none.pem"))
    assert "secret_file" in refused(Webhook, url="https://h/", secret_file=str(tmp_path / "none"))
    Webhook("w", {"url": "http://hooks.example/", "plain": True})


# --- e-mail ---------------------------------------------------------------------------------------------------------


def mail_keys(port: int, **more: Any) -> dict[str, Any]:
    return {"host": "localhost", "port": port, "from": "trimtab@example.org", "to": ["a@example.org"], **more}


def test_a_mail_goes_out_encrypted_and_with_a_password(secret: str, certificate: Certificate) -> None:
    with mail_server(certificate.context()) as box:
        keys = mail_keys(box.port, to=["a@example.org", "b@example.org"], user="me", password_file=secret)
        assert Email("m", keys | {"ca_file": str(certificate.certificate)}).send(MESSAGE) == ""
        ((sender, to, text, encrypted),) = box.mails

    mail = message_from_bytes(text)
    assert encrypted
    assert base64.b64decode(box.logins[0]) == b"\0me\0" + SECRET.encode()
    assert (sender.partition(" ")[0], to) == ("<trimtab@example.org>", ["<a@example.org>", "<b@example.org>"])
    assert str(make_header(decode_header(mail["Subject"]))) == subject_line(MESSAGE)
    assert mail["X-Trimtab-Id"] == MESSAGE.message
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Date"] == "Sun, 18 Oct 2026 12:00:01 +0000"
    content = mail.get_payload(decode=True)
    assert isinstance(content, bytes)
    assert content.decode().replace("\r\n", "\n") == body_text(MESSAGE)


def test_a_mail_server_that_cannot_prove_who_it_is_gets_no_password(secret: str, certificate: Certificate) -> None:
    with mail_server(certificate.context()) as box:
        keys = mail_keys(box.port, user="me", password_file=secret)
        with pytest.raises(TransientError, match="CERTIFICATE_VERIFY_FAILED"):
            Email("m", keys).send(MESSAGE)
    with mail_server() as plain, pytest.raises(TransientError, match="STARTTLS"):
        Email("m", mail_keys(plain.port, user="me", password_file=secret)).send(MESSAGE)

    assert (box.mails, box.logins, plain.mails, plain.logins) == ([], [], [], [])


def test_hostile_names_make_no_headers_and_no_lines_of_smtp() -> None:
    name = "n1\r\nBcc: all@example.org\r\n.\r\nMAIL FROM:<x@y>"
    hostile = Notify("ops", "1-2-3", "c", (Notice("1-2-3.0", AT_S, "node-failed", name, "ä.\r\n.\r\nQUIT"),))
    with mail_server() as box:
        Email("m", mail_keys(box.port, tls="none")).send(hostile)
        ((_, to, text, _),) = box.mails

    assert to == ["<a@example.org>"]
    assert message_from_bytes(text)["Bcc"] is None
    assert len(box.mails) == 1


def test_who_of_several_is_refused_is_told_and_nobody_left_is_for_good() -> None:
    with mail_server() as box:
        box.unknown = {b"gone@example.org"}
        both = Email("m", mail_keys(box.port, tls="none", to=["a@example.org", "gone@example.org"]))
        assert both.send(MESSAGE) == "not taken for gone@example.org (550 nobody here)"
        alone = Email("m", mail_keys(box.port, tls="none", to=["gone@example.org"]))
        with pytest.raises(PermanentError, match="550 nobody here"):
            alone.send(MESSAGE)


@pytest.mark.parametrize(("refusal", "error"), [("451 later", TransientError), ("554 no", PermanentError)])
def test_what_a_refusal_of_the_mail_means(refusal: str, error: type[Exception]) -> None:
    with mail_server() as box:
        box.refusal = refusal
        with pytest.raises(error, match=refusal):
            Email("m", mail_keys(box.port, tls="none")).send(MESSAGE)


def test_a_mail_server_that_says_nothing_is_cut_off() -> None:
    with mail_server() as box:
        box.silent = True
        with pytest.raises(TransientError, match=r"no answer within|timed out"):
            Email("m", mail_keys(box.port, tls="none", timeout_s=0.2)).send(MESSAGE)


@pytest.mark.parametrize(
    ("tls", "sent"), [("none", b"220-wait\r\n"), ("tls", b"")], ids=["lines without end", "handshake"]
)
def test_the_time_of_a_mail_is_for_all_of_it(tls: str, sent: bytes) -> None:
    """Given a server that never says nothing for long, or nothing of TLS, then the limit holds for the whole of it."""
    clock, ended = SystemClock(), threading.Event()

    def serve(listening: socket.socket) -> None:
        with listening.accept()[0] as connection, suppress(OSError):
            while not ended.wait(0.05):
                connection.sendall(sent)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        begun_s = clock.monotonic_s()
        with pytest.raises(TransientError, match=r"localhost: no answer within 0\.3 s"):
            Email("m", mail_keys(listening.getsockname()[1], tls=tls, timeout_s=0.3)).send(MESSAGE)
        took_s = clock.monotonic_s() - begun_s
        ended.set()
        thread.join()

    assert took_s < 1.2


def test_what_is_wrong_with_a_mail_channel_is_told(tmp_path: Path, secret: str) -> None:
    keys = mail_keys(25, host="mail.example")
    assert "m.tls: is none" in refused(lambda _, table: Email("m", table), **keys, tls="none")
    clear = refused(Email, **keys, tls="none", plain=True, user="me", password_file=secret)
    assert "in the clear" in clear
    assert "password_file: goes with user" in refused(Email, **keys, user="me")
    assert "to: is empty" in refused(Email, **(keys | {"to": []}))
    assert "an address" in refused(Email, **(keys | {"from": "x\r\ny@example.org"}))
    assert "password_file" in refused(Email, **keys, user="me", password_file=str(tmp_path / "none"))
    Email("m", {**keys, "user": "me", "password_file": "credential:mail"})  # a unit will have it


def is_alive(process: int) -> bool:
    """Whether it is there and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# --- command --------------------------------------------------------------------------------------------------------


def program(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "tell.py"
    file.write_text(text)
    return [sys.executable, "-S", str(file), str(tmp_path / "out")]


def test_a_command_reads_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/run/secret")
    argv = program(
        tmp_path, "import os, sys\nopen(sys.argv[1], 'w').write(sys.stdin.read() + '\\n' + ' '.join(os.environ))"
    )
    assert CommandChannel("c", {"argv": argv}).send(MESSAGE) == ""
    message, variables = (tmp_path / "out").read_text().split("\n")

    assert message.encode() == as_json(MESSAGE)
    assert {"PATH", "TRIMTAB_ID", "TRIMTAB_CHANNEL"} <= set(variables.split())
    assert "CREDENTIALS_DIRECTORY" not in variables


def test_a_command_that_fails_reads_nothing_or_prints_without_end_is_tried_again(tmp_path: Path) -> None:
    argv = program(tmp_path, "import sys\nprint('x' * 1_000_000, flush=True)\nsys.exit('the pager is gone')")
    large = Notify("ops", "1", "c", (Notice("1.0", AT_S, "node-failed", "n1", "x" * 300_000),))
    with pytest.raises(TransientError, match=r"(?s)exit status 1.*the pager is gone") as told:
        CommandChannel("c", {"argv": argv}).send(large)

    assert len(str(told.value)) <= 4096


def test_a_command_that_hangs_is_killed_with_what_it_has_started(tmp_path: Path) -> None:
    text = """
import os, sys, time
if child := os.fork():
    open(sys.argv[1], "w").write(f"{child}")
time.sleep(9)
"""
    argv = program(tmp_path, text)
    with pytest.raises(TransientError, match="killed after"):
        CommandChannel("c", {"argv": argv, "timeout_s": 1.0}).send(MESSAGE)

    child = int((tmp_path / "out").read_text())
    wait_for(lambda: not is_alive(child))


def test_what_is_wrong_with_a_command_is_told() -> None:
    assert "argv: is empty" in refused(CommandChannel, argv=[])
    assert "argv: is missing" in refused(CommandChannel)
    with pytest.raises(TransientError, match="cannot be run"):
        CommandChannel("c", {"argv": [f"/nowhere/{os.getpid()}"]}).send(MESSAGE)
