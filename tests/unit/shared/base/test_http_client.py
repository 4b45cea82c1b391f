"""One exchange over HTTP against real servers on loopback: what is asked, what bounds it, where it goes, words."""

from __future__ import annotations

import socket
import ssl

import pytest

from shared.base.clock import SystemClock
from shared.base.deadline import Deadline
from shared.base.http_client import HttpError, Request, exchange
from tests.ports import free_port
from tests.support.notify_servers import Certificate, make_certificate
from tests.support.tcp_server import Serve, server

CLOCK = SystemClock()
LIMIT_S = 0.3


def head_of(connection: socket.socket) -> list[str]:
    """The lines of a request's head."""
    said = b""
    while b"\r\n\r\n" not in said and (some := connection.recv(1)):
        said += some
    return said.decode().split("\r\n")[:-2]


def says(*answers: bytes, heard: list[list[str]] | None = None) -> Serve:
    """Answer one request after the other so, the last one again and again."""
    left = list(answers)

    def serve(connection: socket.socket) -> None:
        head = head_of(connection)
        if heard is not None:
            heard.append(head)
        connection.sendall(left.pop(0) if len(left) > 1 else left[0])

    return serve


def answer(content: bytes, status: str = "200 OK", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + content


def drips(connection: socket.socket, begin: bytes = b"") -> None:
    """Say something, then a byte now and then."""
    head_of(connection)
    connection.sendall(begin)
    for _ in range(60):
        connection.sendall(b"x")
        CLOCK.sleep(0.05)


def got(request: Request, limit_s: float = 5.0, bytes_max: int = 1000) -> tuple[int, bytes]:
    with exchange(request, Deadline(limit_s)) as found:
        return found.status, found.read(bytes_max)


def refused(request: Request, limit_s: float = 5.0, bytes_max: int = 1000) -> HttpError:
    with pytest.raises(HttpError) as wrong:
        got(request, limit_s, bytes_max)
    return wrong.value


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def trusting(certificate: Certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate.certificate))


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


# --- an exchange ----------------------------------------------------------------------------------------------------


def test_what_is_asked_and_answered() -> None:
    heard: list[list[str]] = []
    with server(says(answer(b"some words", "404 Not here", Xy="z"), heard=heard)) as port:
        request = Request(f"http://127.0.0.1:{port}?a=b#c", "PUT", {"A": "1"}, body=b"body")
        with exchange(request, Deadline(5.0)) as found:
            assert (found.status, found.reason, found.headers["xY"]) == (404, "Not here", "z")
            assert b"".join(found.chunks(10)) == b"some words"

    assert heard[0][0] == "PUT /?a=b HTTP/1.1"
    wanted = {f"Host: 127.0.0.1:{port}", "User-Agent: trimtab", "Connection: close", "A: 1", "Content-Length: 4"}
    assert wanted <= set(heard[0])


def test_the_beginning_of_an_endless_body_is_enough() -> None:
    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 500 no\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65_536)

    with server(serve) as port, exchange(Request(f"http://127.0.0.1:{port}/"), Deadline(5.0)) as found:
        assert (found.status, found.beginning(7)) == (500, b"x" * 7)


# --- its bounds -----------------------------------------------------------------------------------------------------


def holds(connection: socket.socket) -> None:
    """Take nothing, say nothing."""
    del connection
    CLOCK.sleep(3 * LIMIT_S)


@pytest.mark.parametrize(
    ("serve", "scheme", "body"),
    [
        (holds, "http", b""),
        (holds, "https", b""),
        (holds, "http", b"x" * (64 << 20)),
        (lambda connection: drips(connection, b"HTTP/1.1 200 OK\r\nX: "), "http", b""),
        (lambda connection: drips(connection, b"HTTP/1.1 200 OK\r\n\r\n"), "http", b""),
        (
            lambda connection: drips(connection, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n"),
            "http",
            b"",
        ),
    ],
    ids=["silence", "handshake", "takes nothing", "head", "body", "chunk"],
)
def test_the_limit_is_for_all_of_it(serve: Serve, scheme: str, body: bytes) -> None:
    with server(serve) as port:
        begun_s = CLOCK.monotonic_s()
        wrong = refused(Request(f"{scheme}://127.0.0.1:{port}/", "POST", body=body), LIMIT_S)
        took_s = CLOCK.monotonic_s() - begun_s

    assert str(wrong) == f"127.0.0.1:{port}: timed out: no answer within 0.3 s"
    assert LIMIT_S * 0.9 <= took_s < 4 * LIMIT_S


def test_a_deadline_that_is_over_asks_nobody() -> None:
    heard: list[list[str]] = []
    with server(says(answer(b""), heard=heard)) as port:
        refused(Request(f"http://127.0.0.1:{port}/"), 0.0)
    assert heard == []


def test_the_next_of_several_exchanges_has_what_the_first_has_left() -> None:
    with server(says(answer(b""))) as port, server(holds) as silent:
        deadline = Deadline(LIMIT_S)
        with exchange(Request(f"http://127.0.0.1:{port}/"), deadline):
            CLOCK.sleep(LIMIT_S / 2)
        begun_s = CLOCK.monotonic_s()
        with pytest.raises(HttpError, match="within"), exchange(Request(f"http://127.0.0.1:{silent}/"), deadline):
            pass
        took_s = CLOCK.monotonic_s() - begun_s
    assert took_s < LIMIT_S


def test_silence_may_have_a_limit_of_its_own() -> None:
    with server(holds) as port:
        begun_s = CLOCK.monotonic_s()
        wrong = refused(Request(f"http://127.0.0.1:{port}/", silence_s=0.2), 30.0)

    assert wrong.words == "timed out"
    assert CLOCK.monotonic_s() - begun_s < 5.0


@pytest.mark.parametrize("sent", [answer(b"x" * 1001), b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001])
def test_an_answer_that_is_too_large_is_not_taken(sent: bytes) -> None:
    with server(says(sent)) as port, exchange(Request(f"http://127.0.0.1:{port}/"), Deadline(5.0)) as found:
        taken = list[bytes]()
        with pytest.raises(HttpError, match=r"more than 1000 bytes \(a\.key\)") as wrong:
            taken.extend(found.chunks(1000, "a.key"))

    assert wrong.value.is_final
    assert sum(map(len, taken)) <= 1000


# --- words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"", "RemoteDisconnected: "),
        (b"SSH-2.0-x\r\n\r\n", "the answer is not HTTP: BadStatusLine: SSH"),
        (
            b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 101 + b"\r\n",
            "the answer is not HTTP: HTTPException: got more than 100",
        ),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "the answer is not HTTP: LineTooLong: "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n1234", "the answer ended early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n1234", "the answer ended early"),
    ],
)
def test_what_is_wrong_with_an_answer(sent: bytes, words: str) -> None:
    with server(says(sent)) as port:
        wrong = refused(Request(f"http://127.0.0.1:{port}/", named="the server"))
    assert str(wrong).startswith(f"the server: {words}")
    assert not wrong.is_final


def test_nobody_there_and_a_name_that_is_none() -> None:
    assert "ConnectionRefusedError" in refused(Request(f"http://127.0.0.1:{free_port()}/token")).words
    assert "Error" in refused(Request("http://a..b/")).words


@pytest.mark.parametrize(
    "url",
    [
        *(
            "file:///etc/passwd-token",
            "ftp://127.0.0.1/token",
            "http:///token",
            "127.0.0.1/token",
            "",
            "http://[::1/token",
        ),
        *("http://me:token@127.0.0.1/", "http://127.0.0.1:0/token", "http://127.0.0.1:99999/token"),
        *("http://127.0.0.1/token x", "http://127.0.0.1/token\r\nX: y", "http://127.0.0.1/\x7ftoken"),
    ],
)
def test_an_address_that_is_none_is_told_without_it(url: str) -> None:
    wrong = refused(Request(url))
    assert "that can be asked" in wrong.words
    assert wrong.is_final
    assert "token" not in str(wrong) + repr(Request(url, headers={"A": "token"}, body=b"token"))


def test_a_server_proves_who_it_is(certificate: Certificate) -> None:
    context = certificate.context()

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            says(answer(b"safe"))(secured)

    with server(serve) as port:
        url = f"https://localhost:{port}/"
        assert "CERTIFICATE_VERIFY_FAILED" in refused(Request(url)).words
        assert got(Request(url, context=trusting(certificate))) == (200, b"safe")
    with server(lambda connection: connection.sendall(answer(b"plain"))) as port:
        assert "SSL" in refused(Request(f"https://localhost:{port}/", context=trusting(certificate)), 1.0).words


# --- redirects ------------------------------------------------------------------------------------------------------


def to(place: str) -> bytes:
    return answer(b"", "302 Found", Location=place)


@pytest.mark.parametrize(("method", "redirects"), [("GET", 0), ("POST", 9)])
def test_a_redirect_is_an_answer_unless_it_is_wanted(method: str, redirects: int) -> None:
    heard: list[list[str]] = []
    with server(says(to("/other"), heard=heard)) as port:
        assert got(Request(f"http://127.0.0.1:{port}/", method, redirects=redirects))[0] == 302
    assert len(heard) == 1


def test_as_many_redirects_are_followed_as_are_wanted() -> None:
    heard: list[list[str]] = []
    with server(says(to("b"), to("/c d"), answer(b"there"), heard=heard)) as port:
        assert got(Request(f"http://127.0.0.1:{port}/x/a", redirects=2)) == (200, b"there")
    assert [head[0].split()[1] for head in heard] == ["/x/a", "/x/b", "/c%20d"]
    with server(says(to("b"), to("c"), answer(b"there"))) as port:
        wrong = refused(Request(f"http://127.0.0.1:{port}/a", redirects=1))
    assert (wrong.words, wrong.is_final) == ("redirects: more than 1 times", True)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("/a", "in an infinite loop"),
        ("file:///etc/passwd", "file:///etc/passwd is no address of http or https"),
        ("/forbidden", "not that one"),
    ],
)
def test_a_redirect_to_where_nothing_may_be_asked(place: str, words: str) -> None:
    heard: list[list[str]] = []
    with server(says(to(place), heard=heard)) as port:
        no = "not that one"
        request = Request(
            f"http://127.0.0.1:{port}/a", redirects=9, objection=lambda url: no if "forbidden" in url else ""
        )
        wrong = refused(request)
    assert (wrong.words, wrong.is_final, len(heard)) == (f"redirects: {words}", True, 1)


# --- proxies --------------------------------------------------------------------------------------------------------


def test_a_proxy_is_told_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[list[str]] = []
    with server(says(answer(b"from the proxy"), heard=heard)) as port:
        monkeypatch.setenv("http_proxy", f"http://me:a%40b@127.0.0.1:{port}")
        assert got(Request("http://far.example/x?y", proxies=True)) == (200, b"from the proxy")

    assert heard[0][0] == "GET http://far.example/x?y HTTP/1.1"
    assert {"Host: far.example", "Proxy-Authorization: Basic bWU6YUBi"} <= set(heard[0])


def test_a_proxy_connects_to_a_server_that_is_verified(
    monkeypatch: pytest.MonkeyPatch, certificate: Certificate
) -> None:
    heard: list[list[str]] = []
    context = certificate.context()

    def serve(connection: socket.socket) -> None:
        heard.append(head_of(connection))
        connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        with context.wrap_socket(connection, server_side=True) as secured:
            says(answer(b"safe"), heard=heard)(secured)

    with server(serve) as port:
        monkeypatch.setenv("https_proxy", f"me:b@127.0.0.1:{port}")
        assert got(Request("https://localhost/x", proxies=True, context=trusting(certificate))) == (200, b"safe")
        other = refused(Request("https://far.example/x", proxies=True, context=trusting(certificate)))

    assert "CERTIFICATE_VERIFY_FAILED" in other.words
    assert heard[0][:2] == ["CONNECT localhost:443 HTTP/1.1", "Host: localhost:443"]
    assert "Proxy-Authorization: Basic bWU6Yg==" in heard[0]
    assert heard[1][:2] == ["GET /x HTTP/1.1", "Host: localhost"]
    assert not any("Proxy" in line for line in heard[1])


def test_a_proxy_that_refuses_or_drips(monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request("https://far.example/", proxies=True)
    with server(says(answer(b"", "407 Who are you"))) as port:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        assert "the proxy answers 407 Who are you" in refused(request).words
    with server(lambda connection: drips(connection, b"HTTP/1.1 200 ")) as port:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        assert "within 0.3 s" in refused(request, LIMIT_S).words


def test_no_proxy_is_asked_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    with server(says(answer(b"direct"))) as port:
        assert got(Request(f"http://127.0.0.1:{port}/")) == (200, b"direct")
        assert "Refused" in refused(Request(f"http://127.0.0.1:{port}/", proxies=True)).words
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert got(Request(f"http://127.0.0.1:{port}/", proxies=True)) == (200, b"direct")
