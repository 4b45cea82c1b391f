"""Requests that are none: refused, the connection closed, and nothing of that is a defect."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from tests.security.server import ANSWER_S, VISITOR, Attacked, unverified

FORM = "Content-Type: application/x-www-form-urlencoded\r\n"
HIDDEN = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"


def said(portal: Attacked, *lines: str, body: str = "", cut: bool = False) -> bytes:
    """What the portal says to a request until it hangs up; `cut`: the sender hangs up instead."""
    head = f"POST /login HTTP/1.1\r\nHost: {portal.host}\r\nOrigin: https://{portal.host}\r\n"
    plain = socket.create_connection(("127.0.0.1", portal.port), ANSWER_S, (VISITOR, 0))
    with plain, unverified().wrap_socket(plain, server_hostname="localhost") as sock:
        sock.sendall((head + "".join(f"{line}\r\n" for line in lines) + FORM + "\r\n" + body).encode())
        found = b""
        while not cut and (piece := sock.recv(65_536)):
            found += piece
        return found


def test_a_request_of_two_lengths_ends_the_connection(portal: Attacked) -> None:
    body = f"0\r\n\r\n{HIDDEN}"

    answer = said(portal, f"Content-Length: {len(body)}", "Transfer-Encoding: chunked", body=body)

    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "lines",
    [
        ["Transfer-Encoding: identity"],
        ["Transfer-Encoding: chunked, chunked"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
        ["Transfer-Encoding : chunked", "Content-Length: 5"],
        ["Transfer-Encoding: \x0bchunked", "Content-Length: 5"],
        ["Content-Length: +5"],
        ["Content-Length: 0x5"],
        ["Content-Length: -1"],
        ["Content-Length: 5", "Content-Length: 6"],
    ],
    ids=" & ".join,
)
def test_a_length_that_others_may_read_otherwise_ends_the_connection(lines: list[str], portal: Attacked) -> None:
    """What a proxy and the portal take for different lengths would hide a request of somebody else's connection."""
    answer = said(portal, *lines, body=f"0\r\n\r\n{HIDDEN}")

    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("cookie", ["Cookie: __Host-trimtab-form=x", "X: y"], ids=["read", "not read"])
def test_what_is_no_request_is_no_defect(portal: Attacked, cookie: str) -> None:
    chunked = said(portal, cookie, "Transfer-Encoding: chunked", body="zz\r\nabc\r\n")
    with suppress(ConnectionError):
        said(portal, cookie, "Content-Length: 8000", body="a=", cut=True)
    assert portal.get_s() < ANSWER_S

    assert chunked.startswith(b"HTTP/1.1 400")
    assert b"Traceback" not in portal.process.log.read_bytes()
    assert b"defect" not in portal.process.log.read_bytes()
