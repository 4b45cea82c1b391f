"""No locked version has a known vulnerability; a database that was not asked is not taken for one that knows none."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.architecture import locks
from tests.integration.advisories import KNOWN, NotAskedError, vulnerabilities

Answer = Callable[[list[dict[str, Any]]], bytes]


@contextmanager
def database(answer: Answer, status: int = 200) -> Iterator[str]:
    """The address of a database on this machine that answers queries so."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            body = answer(queries)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def knows(*known: tuple[str, str]) -> Answer:
    """Answers with one advisory for each of these versions."""

    def answer(queries: list[dict[str, Any]]) -> bytes:
        assert {query["package"]["ecosystem"] for query in queries} == {"PyPI"}
        asked = [(query["package"]["name"], query["version"]) for query in queries]
        results = [{"vulns": [{"id": f"GHSA-{name}"}]} if (name, version) in known else {} for name, version in asked]
        return json.dumps({"results": results}).encode()

    return answer


def test_a_known_vulnerability_is_named() -> None:
    """Given two versions, one of them vulnerable, then that one is named with the advisory."""
    with database(knows(KNOWN, ("one", "1.0"))) as address:
        assert vulnerabilities({"one": "1.0", "two": "2.0"}, address) == {"one": ["GHSA-one"]}


def test_none_is_known() -> None:
    with database(knows(KNOWN)) as address:
        assert vulnerabilities({"one": "1.0"}, address) == {}


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (knows(("one", "1.0")), 200, "it has no advisories"),
        (lambda _: b'{"results": [{}]}', 200, "one result for each of 2"),
        (lambda _: b"<html>log in first</html>", 200, "does not answer as the database does"),
        (lambda _: b"{}", 200, "does not answer as the database does"),
        (knows(KNOWN), 403, "cannot be reached: HTTP Error 403"),
    ],
)
def test_what_is_no_database_has_not_been_asked(answer: Answer, status: int, reason: str) -> None:
    with database(answer, status) as address, pytest.raises(NotAskedError, match=reason):
        vulnerabilities({"one": "1.0"}, address)


def test_a_closed_network_is_said() -> None:
    with database(knows(KNOWN)) as address:
        pass

    with pytest.raises(NotAskedError, match="cannot be reached"):
        vulnerabilities({"one": "1.0"}, address)


@pytest.mark.full
def test_no_locked_version_has_a_known_vulnerability() -> None:
    """Skipped, with CI=true too, where the database cannot be asked: a closed network is no fault of the tree."""
    versions = {entry.name: entry.version for entry in locks.everything().values()}
    try:
        found = vulnerabilities(versions)
    except NotAskedError as error:
        pytest.skip(f"known vulnerabilities of {len(versions)} locked versions were NOT looked up: {error}")

    assert found == {}
