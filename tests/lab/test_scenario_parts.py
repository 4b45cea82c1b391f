"""What the scenario of the lab counts with, without a lab: clients, shares, the table of what was found."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from shared.base.clock import SystemClock
from tests.lab.clients import Clients
from tests.lab.scenario import table
from tests.lab.shares import Share, shares_of
from tests.lab.verdicts import Finding
from tests.ports import free_ports

CLOCK = SystemClock()
LIMIT_S = 20.0


class Page(BaseHTTPRequestHandler):
    """Answers the first requests with what `plan` says, all others with 200; 0: not at all."""

    def do_GET(self) -> None:
        plan: list[int] = self.server.plan  # type: ignore[attr-defined]
        status = plan.pop(0) if plan else 200
        if status:
            self.send_response(status)
            self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Page) as made:
        made.plan = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_clients_count_each_request_once(server: HTTPServer) -> None:
    server.plan = [503, 0, 404]  # type: ignore[attr-defined]
    clients = Clients("127.0.0.1", server.server_port, 100.0)
    until_s = CLOCK.monotonic_s() + LIMIT_S
    while clients.asked().good < 5 and CLOCK.monotonic_s() < until_s:
        CLOCK.sleep(0.01)
    asked = clients.end()
    assert (asked.refused, asked.lost) == (2, 1)
    assert asked.sent == asked.good + 3 >= 8
    assert 0.0 < asked.mean_s <= asked.worst_s < LIMIT_S


def test_clients_that_nobody_answers_have_lost_all() -> None:
    (port,) = free_ports(1)
    clients = Clients("127.0.0.1", port, 100.0)
    until_s = CLOCK.monotonic_s() + LIMIT_S
    while not clients.asked().lost and CLOCK.monotonic_s() < until_s:
        CLOCK.sleep(0.01)
    asked = clients.end()
    assert asked.sent == asked.lost > 0
    assert asked.good == asked.mean_s == 0


def test_shares_are_parts_of_what_the_guests_of_a_host_have() -> None:
    first, second = shares_of({"a#0": 600.0, "b#0": 200.0}, {"a#0": 3.0, "b#0": 2.0})
    assert (first, second) == (Share("a#0", 0.75, 0.6), Share("b#0", 0.25, 0.4))
    assert first.off_points == pytest.approx(15.0)


def test_the_table_says_what_does_not_hold() -> None:
    rows = table([Finding("one", "as it should", True), Finding("the other", "not at all", False)]).splitlines()
    assert rows == ["ok     one        as it should", "WRONG  the other  not at all"]
