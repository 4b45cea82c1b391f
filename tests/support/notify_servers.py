"""Real servers on this machine that notifications are sent to: HTTP and SMTP, each in threads of its own."""

from __future__ import annotations

import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

from tests.integration.debian import need_programs


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate of `localhost` that vouches for itself, and its key."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """What a server needs."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.certificate, self.key)
        return made


def make_certificate(folder: Path, days: int = 2) -> Certificate:
    """Good for so many days; -1: it has ended. Skips the test where there is no openssl."""
    need_programs(("openssl",), ("openssl",))
    made = Certificate(folder / "server.pem", folder / "server.key")
    request = folder / "server.csr"
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    signed = ("-signkey", str(made.key), "-copy_extensions", "copy", "-days", str(days))
    for command in (
        ("req", "-new", *kind, *names, "-keyout", str(made.key), "-out", str(request)),
        ("x509", "-req", "-in", str(request), *signed, "-out", str(made.certificate)),  # bears days before now
    ):
        subprocess.run(["openssl", *command], check=True, capture_output=True, timeout=20)
    return made


@contextmanager
def _running(server: Any) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5.0)


@dataclass(slots=True)
class Web:
    """What a web server has received (path, headers, body), and what it answers: the statuses in order, the last one
    again and again, with these headers. `drips`: it sends its answer a byte at a time, without end."""

    port: int = 0
    statuses: list[int] = field(default_factory=lambda: [204])
    received: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    drips: bool = False
    ended: threading.Event = field(default_factory=threading.Event)


@contextmanager
def web_server(context: ssl.SSLContext | None = None) -> Iterator[Web]:
    """A web server on a free port."""
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            web.received.append((self.path, dict(self.headers), body))
            if web.drips:
                self._drip()
                return
            status = web.statuses.pop(0) if len(web.statuses) > 1 else web.statuses[0]
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            for name, value in web.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"said so")

        def _drip(self) -> None:
            while not web.ended.wait(0.02):
                try:
                    self.wfile.write(b"H")
                except OSError:
                    return

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            del request, client_address  # a client that does not trust us

    server = Server(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    web.port = server.server_address[1]
    with _running(server):
        try:
            yield web
        finally:
            web.ended.set()


@dataclass(slots=True)
class Mailbox:
    """What a mail server has received: sender, recipients, text, whether it was encrypted. It refuses the recipients in
    `unknown`, and with `refusal` ("451 later") every message. `logins`: what it was told to let somebody in."""

    port: int = 0
    mails: list[tuple[str, list[str], bytes, bool]] = field(default_factory=list)
    unknown: set[bytes] = field(default_factory=set)
    refusal: str = ""
    silent: bool = False
    logins: list[str] = field(default_factory=list)


@contextmanager
def mail_server(context: ssl.SSLContext | None = None) -> Iterator[Mailbox]:
    """A mail server on a free port, as much as a client needs (RFC 5321, 3207, 4954); with a context it offers
    STARTTLS, and lets nobody in before."""
    box = Mailbox()

    class Handler(StreamRequestHandler):
        encrypted = False
        sender, to = "", list[str]()

        def say(self, text: str) -> None:
            self.wfile.write(text.encode() + b"\r\n")

        def handle(self) -> None:
            if box.silent:
                self.rfile.readline()
                return
            self.say("220 here")
            try:
                while (line := self.rfile.readline()) and self.obey(line.rstrip()):
                    continue
            except OSError:
                return

        def finish(self) -> None:
            self.rfile.close()
            self.connection.close()  # the encrypted one: the server knows the other

        def obey(self, line: bytes) -> bool:
            verb = line.upper()
            if verb.startswith(b"EHLO"):
                offers = ["250-here", "250-AUTH PLAIN"]
                self.say("\r\n".join([*offers, "250-STARTTLS"] if context and not self.encrypted else offers))
                self.say("250 OK")
            elif verb == b"STARTTLS" and context is not None:
                self.say("220 go on")
                self.connection = context.wrap_socket(self.connection, server_side=True)
                self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
                self.encrypted = True
            elif verb.startswith(b"AUTH PLAIN"):
                box.logins.append(line.split()[-1].decode())
                self.say("235 come in")
            elif verb.startswith(b"MAIL FROM:"):
                self.sender, self.to = line[10:].decode(), []
                self.say("250 OK")
            elif verb.startswith(b"RCPT TO:"):
                known = not any(name in line for name in box.unknown)
                self.to += [line[8:].decode()] * known
                self.say("250 OK" if known else "550 nobody here")
            elif verb == b"DATA":
                self.take()
            else:
                self.say("221 bye" if verb == b"QUIT" else "250 OK")
            return verb != b"QUIT"

        def take(self) -> None:
            self.say("354 go on")
            text = b""
            while (line := self.rfile.readline()) not in (b".\r\n", b""):
                text += line
            if not box.refusal:
                box.mails.append((self.sender, self.to, text, self.encrypted))
            self.say(box.refusal or "250 taken")

    class Server(ThreadingTCPServer):
        allow_reuse_address, daemon_threads = True, True

    server = Server(("127.0.0.1", 0), Handler)
    box.port = server.server_address[1]
    with _running(server):
        yield box
