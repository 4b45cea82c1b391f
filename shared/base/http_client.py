"""One request over HTTP or HTTPS and its answer, within a time and a size: names, connection, TLS, head, body and
redirects are one exchange, and a deadline holds for all of it."""

from __future__ import annotations

import base64
import math
import socket
import ssl
import string
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, IncompleteRead
from io import BufferedReader
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from shared.base.deadline import Deadline, connected, received, send_all
from shared.base.errors import TransientError

AGENT = "trimtab"
CHUNK_BYTES = 1 << 16
WORDS_MAX = 500  # characters of what went wrong
MIB = 1 << 20
PORTS = {"http": 80, "https": 443}
REDIRECTS = (301, 302, 303, 307, 308)
OK = 200


class HttpError(TransientError):
    """There was no whole answer: whom was asked and what was wrong. `is_final`: the next attempt will not do better,
    since the answer is too large or leads where nothing may be asked for."""

    def __init__(self, named: str, words: str, *, is_final: bool = False) -> None:
        super().__init__(f"{named}: {words}")
        self.words, self.is_final = words, is_final


def _any(url: str) -> str:
    del url
    return ""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked. `named`: what errors call it, "" its host and port, since a URL may hold a token. `context`: None
    is what the machine trusts. `silence_s`: for how long the server may say nothing, beside the deadline. `proxies`:
    through those of the environment. `redirects`: how many are followed, by GET with the same `headers`, so that a
    request with a password follows none; `objection` says why an address may not be asked then, "" when it may."""

    url: str = field(repr=False)
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    context: ssl.SSLContext | None = None
    named: str = ""
    silence_s: float = math.inf
    proxies: bool = False
    redirects: int = 0
    objection: Callable[[str], str] = _any


class Answer:
    """A server's answer, of any `status`; the body is read once, in one of three ways. `headers`: names are matched in
    any case."""

    def __init__(self, named: str, deadline: Deadline, response: HTTPResponse) -> None:
        self._named, self._deadline, self._response = named, deadline, response
        self.status, self.reason = response.status, response.reason
        self.headers: HTTPMessage = response.headers

    def chunks(self, bytes_max: int, key: str = "") -> Iterator[bytes]:
        """Give the body as it comes, whole. Raises HttpError: for more than `bytes_max` bytes, with the `key` of the
        configuration that says so, before what is too much; at the deadline; when it ends early."""
        size = 0
        while chunk := self._chunk():
            size += len(chunk)
            if size > bytes_max:
                most = f"{bytes_max // MIB} MiB" if bytes_max >= MIB else f"{bytes_max} bytes"
                words = f"the answer has more than {most}" + (f" ({key})" if key else "")
                raise HttpError(self._named, words, is_final=True)
            yield chunk

    def read(self, bytes_max: int) -> bytes:
        """Read the whole body. Raises HttpError as `chunks`."""
        return b"".join(self.chunks(bytes_max))

    def beginning(self, bytes_max: int) -> bytes:
        """Read so much of the body, and leave the rest. Raises HttpError at the deadline."""
        with _told(self._named, self._deadline):
            return self._response.read(bytes_max)

    def _chunk(self) -> bytes:
        with _told(self._named, self._deadline):
            self._deadline.wait_s()  # what has come already is not taken late either
            chunk = self._response.read1(CHUNK_BYTES)
            if not chunk and self._response.length:
                raise IncompleteRead(b"", self._response.length)
            return chunk


@contextmanager
def exchange(request: Request, deadline: Deadline) -> Iterator[Answer]:
    """Ask, and give the answer while its connection is open. Raises HttpError for an address that is none, a name that
    is not known, refused connections, faults of TLS, an answer that is no HTTP or too late, and redirects that lead to
    nothing."""
    url, asked = request.url, list[str]()
    while True:
        asked.append(url)
        with _asked(request, url, deadline) as answer:
            onward = _onward(request, url, asked, answer)
            if not onward:
                yield answer
                return
        url = onward


@contextmanager
def _asked(request: Request, url: str, deadline: Deadline) -> Iterator[Answer]:
    """Yield one answer; a redirect counts as an answer."""
    parts = _parts(request.named, url)
    named = request.named or parts.netloc
    link: socket.socket | None = None
    try:
        with _told(named, deadline):
            proxy = _proxy(parts) if request.proxies else None
            link = _linked(request, parts, proxy, deadline)
            response = _response(request, parts, proxy, link, deadline)
        with response:
            yield Answer(named, deadline, response)
    finally:
        if link is not None:
            link.close()


def _response(
    request: Request, parts: SplitResult, proxy: SplitResult | None, link: socket.socket, deadline: Deadline
) -> HTTPResponse:
    """Send the request and read the head of the answer. Without TLS, a proxy gets the whole address."""
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"User-Agent": AGENT, "Connection": "close", **request.headers}
    connection = HTTPConnection(parts.hostname or "", parts.port or PORTS[parts.scheme])
    connection.default_port = PORTS[parts.scheme]  # which the header Host leaves out
    if proxy is not None and parts.scheme == "http":
        target = f"{parts.scheme}://{parts.netloc}{target}"
        headers |= _authorization(proxy)
    connection.sock = _Wire(link, deadline, request.silence_s)
    connection.request(request.method, target, request.body, headers)
    return connection.getresponse()


class _Wire:
    """What `http.client` takes for a socket; who has made the connection closes it."""

    def __init__(self, link: socket.socket, deadline: Deadline, silence_s: float) -> None:
        self._link, self._deadline, self._silence_s = link, deadline, silence_s

    def sendall(self, data: bytes) -> None:
        send_all(self._link, data, self._deadline, self._silence_s)

    def makefile(self, mode: str) -> BufferedReader:
        del mode
        return received(self._link, self._deadline, self._silence_s)

    def close(self) -> None:
        """Leave it open."""


def _linked(request: Request, parts: SplitResult, proxy: SplitResult | None, deadline: Deadline) -> socket.socket:
    """Return the connection for the request: to the server, or to a proxy, with a tunnel through it for TLS."""
    first = parts if proxy is None else proxy
    port = first.port or PORTS["https" if "https" in (first.scheme, parts.scheme) else "http"]
    link = connected(first.hostname or "", port, deadline, request.silence_s)
    try:
        if parts.scheme == "https":
            if proxy is not None:
                _tunnel(parts, proxy, _Wire(link, deadline, request.silence_s))
            context, name = request.context or _trusting(), parts.hostname
        elif first.scheme == "https":
            context, name = _trusting(), first.hostname
        else:
            return link
        link.settimeout(deadline.wait_s(request.silence_s))  # for the whole handshake
        return context.wrap_socket(link, server_hostname=name)
    except BaseException:
        link.close()
        raise


def _trusting() -> ssl.SSLContext:
    """Trust what the machine trusts."""
    made = ssl.create_default_context()
    made.set_alpn_protocols(["http/1.1"])
    return made


def _tunnel(parts: SplitResult, proxy: SplitResult, wire: _Wire) -> None:
    """Have a proxy connect us (RFC 9110 section 9.3.6)."""
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    target = f"{host}:{parts.port or PORTS['https']}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", f"User-Agent: {AGENT}"]
    lines += [f"{name}: {value}" for name, value in _authorization(proxy).items()]
    wire.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("ascii"))
    said = HTTPResponse(wire, method="CONNECT")  # type: ignore[arg-type]  # it asks a socket for its file alone
    said.begin()
    if said.status != OK:
        raise OSError(f"the proxy answers {said.status} {said.reason}")


def _authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    words = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(words.encode()).decode("ascii")}


def _proxy(parts: SplitResult) -> SplitResult | None:
    """Return the proxy that the environment names for an address (http_proxy, https_proxy, no_proxy)."""
    found = getproxies().get(parts.scheme, "")
    if not found or proxy_bypass(parts.netloc):
        return None
    return urlsplit(found if "://" in found else f"http://{found}")


def _parts(named: str, url: str) -> SplitResult:
    """Split an address of http or https, with a host and without a user. Raises HttpError for any other address."""
    try:
        parts = urlsplit(url)
        fits = parts.port != 0 and bool(parts.hostname) and parts.username is None and parts.scheme in PORTS
    except ValueError:
        fits = False
    if not fits or not url.isprintable() or " " in url:
        raise HttpError(named or "the address", "is none of http or https that can be asked", is_final=True)
    return parts


def _onward(request: Request, url: str, asked: list[str], answer: Answer) -> str:
    """Return the target of a redirect ("": the answer is taken as it is). Raises HttpError if the target may not be
    requested."""
    location = answer.headers.get("Location", "")
    if answer.status not in REDIRECTS or not location or not request.redirects or request.method != "GET":
        return ""
    onward = urljoin(url, quote(location, encoding="iso-8859-1", safe=string.punctuation))
    words = request.objection(onward)
    if urlsplit(onward).scheme not in PORTS:
        words = f"{onward} is no address of http or https"
    elif not words and onward in asked:
        words = "in an infinite loop"
    elif not words and len(asked) > request.redirects:
        words = f"more than {request.redirects} times"
    if words:
        raise HttpError(request.named or urlsplit(request.url).netloc, f"redirects: {words}", is_final=True)
    return onward


@contextmanager
def _told(named: str, deadline: Deadline) -> Iterator[None]:
    """Raise HttpError for anything that a socket, TLS or `http.client` raises."""
    try:
        yield
    except TimeoutError as error:
        over = "" if deadline.is_ahead else f": no answer within {deadline.limit_s:g} s"
        raise HttpError(named, f"timed out{over}") from error
    except IncompleteRead as error:
        raise HttpError(named, "the answer ended early") from error
    except (OSError, ValueError) as error:
        raise HttpError(named, f"{type(error).__name__}: {error}"[:WORDS_MAX]) from error
    except HTTPException as error:
        raise HttpError(named, f"the answer is not HTTP: {type(error).__name__}: {error}"[:WORDS_MAX]) from error
