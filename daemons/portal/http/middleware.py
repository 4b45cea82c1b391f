"""The outer guards of the portal: hosts that it answers for, headers of every answer, bounds of every request."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import h11
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from daemons.portal.http.limits import AddressLimits

BODY_BYTES_MAX = 1 << 20
FORM_BYTES_MAX = 64 << 10  # of a form that holds no text of a file
OPEN_BYTES_MAX = 8 << 10  # for requests without a login
URL_BYTES_MAX = 8192
HEADERS_MAX = 64
HEAD_BYTES_MAX = 16 * 1024
BODY_S = 20.0  # for a whole body to arrive
SEND_S = 30.0  # for a piece of an answer to be taken

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
HSTS = "max-age=31536000"
NO_STORE = "no-store"


@dataclass(frozen=True, slots=True)
class Rules:
    """Whom the portal believes. `hosts`: names that it answers for; `origins`: where forms may come from; `trusted`:
    addresses of reverse proxies, whose X-Forwarded-For is read. `secure`: browsers reach it by https; `proxies_only`:
    by a proxy, since it has no certificate itself."""

    hosts: frozenset[str]
    origins: frozenset[str]
    trusted: tuple[str, ...] = ()
    secure: bool = True
    proxies_only: bool = False

    def trusts(self, address: str) -> bool:
        """Return whether an address is a proxy's; `trusted` holds addresses and networks."""
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in ipaddress.ip_network(each, strict=False) for each in self.trusted)

    def client(self, scope: Scope) -> str:
        """Return the address that a request came from: behind trusted proxies the last one that is not a trusted
        proxy's."""
        address: str = (scope.get("client") or ("", 0))[0]
        if not self.trusts(address):
            return address
        # A proxy may add a line of its own after those that the browser sent: together they are one list.
        lines = ",".join(Headers(scope=scope).getlist("x-forwarded-for"))
        for each in reversed(lines.split(",")):
            named = each.strip()
            try:
                ipaddress.ip_address(named)
            except ValueError:
                return address
            address = named
            if not self.trusts(named):
                return named
        return address


def is_foreign(headers: Mapping[str, str], origins: frozenset[str]) -> bool:
    """Return whether a request that changes something comes from another site, according to the browser. Without any
    sign of origin it counts as foreign."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return True
    if origin is not None:
        return origin not in origins
    referer = headers.get("referer", "")
    return site is None and not any(referer == each or referer.startswith(each + "/") for each in origins)


class TooLarge(Exception):
    """A body is longer than the `bytes_max` that are read."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"A request for this page may have at most {bytes_max} bytes.")


class TooSlow(Exception):
    """A body, or the reader of an answer, takes longer than it may, or the reader has gone."""


class HttpMiddleware:
    """Refuses what the portal does not answer before anything looks at it, and puts its headers on every answer."""

    def __init__(self, app: ASGIApp, rules: Rules, limits: AddressLimits) -> None:
        self._app, self._rules, self._limits = app, rules, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        state, address = scope.setdefault("state", {}), self._rules.client(scope)
        answer = _Answer(scope, send, self._rules)
        refused = _refusal(scope, self._rules)
        if refused is not None:
            await answer.plain(*refused)
            return
        if not self._limits.begin_request(address, asyncio.get_running_loop().time()):
            await answer.plain(429, "Too many requests from your address.", (b"retry-after", b"5"))
            return
        body = _Body(receive)
        state |= {"address": address, "body": body}
        try:
            await self._app(scope, body.receive, answer.send)
        except Exception:
            if not answer.gave_up:
                raise
            # what follows from a reader that has been given up is no defect
        finally:
            self._limits.end_request(address)
            del state["body"]  # else it and uvicorn's request refer to each other, and wait for the garbage collector


def _refusal(scope: Scope, rules: Rules) -> tuple[int, str] | None:
    headers = Headers(scope=scope)
    if len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > URL_BYTES_MAX:
        return 414, "The address is too long."
    if (
        len(scope["headers"]) > HEADERS_MAX
        or sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD_BYTES_MAX
    ):
        return 431, "There are too many headers."
    if len(headers.getlist("host")) != 1 or headers["host"].lower() not in rules.hosts:
        return 421, "The portal does not serve this host name (see public_url in its configuration)."
    if scope["method"] not in ("GET", "HEAD", "POST"):
        return 405, "Only GET, HEAD and POST are supported."
    if "content-length" in headers and "transfer-encoding" in headers:
        # what follows could be a smuggled request (RFC 9112 6.3)
        return 400, "A request must have exactly one length."
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()) or int(length[:20]) > BODY_BYTES_MAX:
        return 413, f"A request may have at most {BODY_BYTES_MAX} bytes."
    if scope["path"] != _plain_path(scope["path"]):
        return 400, "The path is invalid."
    trusted = rules.trusts((scope.get("client") or ("", 0))[0])
    if rules.proxies_only and not trusted:
        return 421, "The portal accepts connections only from its proxy."
    by_https = scope.get("scheme") == "https" and "x-forwarded-proto" not in headers
    if trusted and rules.secure and not by_https and headers.get("x-forwarded-proto") != "https":
        return 400, "The portal requires HTTPS (X-Forwarded-Proto)."
    return None


def _plain_path(path: str) -> str:
    """Return the path without parts that no page of the portal has: parts "." and "..", empty ones, control
    characters."""
    parts = path.split("/")[1:]
    last = len(parts) - 1
    good = [part for index, part in enumerate(parts) if part not in (".", "..") and (part or index == last)]
    return "/" + "/".join("".join(char for char in part if char.isprintable() and char != "\\") for part in good)


class _Body:
    """Counts what arrives, and how long it takes. `bytes_max`: so much is read; who knows who asks may raise it."""

    def __init__(self, receive: Receive) -> None:
        self.bytes_max = OPEN_BYTES_MAX
        self._receive = receive
        self._bytes = 0
        self._complete = False
        self._deadline_s: float | None = None

    async def receive(self) -> Message:
        """Receive the next piece. Raises `TooLarge` and `TooSlow`."""
        if self._complete:
            return await self._receive()  # that the reader has gone is all that can come
        loop = asyncio.get_running_loop()
        if self._deadline_s is None:
            self._deadline_s = loop.time() + BODY_S
        try:
            async with asyncio.timeout_at(self._deadline_s):
                message = await self._receive()
        except TimeoutError as error:
            raise TooSlow from error
        self._bytes += len(message.get("body", b""))
        if self._bytes > self.bytes_max:
            raise TooLarge(self.bytes_max)
        self._complete = not message.get("more_body", False)
        return message


class _Answer:
    """Sends an answer with the headers that all have; gives a reader that takes nothing up."""

    def __init__(self, scope: Scope, send: Send, rules: Rules) -> None:
        self._scope, self._send, self._rules = scope, send, rules
        self.gave_up = False

    async def send(self, message: Message) -> None:
        """Send one piece. Raises `TooSlow`."""
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message["headers"]))
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if self._rules.secure:
                headers.setdefault("strict-transport-security", HSTS)
            headers.setdefault("cache-control", NO_STORE)
            message = {**message, "headers": headers.raw}
        try:
            async with asyncio.timeout(SEND_S):
                await self._send(message)
        except (TimeoutError, h11.LocalProtocolError) as error:  # the latter: what it sent was refused meanwhile
            self.gave_up = self._scope["state"]["gave_up"] = True
            raise TooSlow from error

    async def plain(self, status: int, text: str, *more: tuple[bytes, bytes]) -> None:
        """Send a refusal in words, before anything has processed the request."""
        headers: Sequence[tuple[bytes, bytes]] = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(text.encode())).encode()),
            (b"connection", b"close"),
            *more,
        ]
        with suppress(TooSlow):
            await self.send({"type": "http.response.start", "status": status, "headers": headers})
            await self.send({"type": "http.response.body", "body": text.encode()})
