"""The page of metrics as Prometheus reads it, and the server before whoever connects."""

from __future__ import annotations

import http.client
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as read

from agents.service.metrics import AgentFacts, AgentMeter
from daemons.cli.commands.doctor import metrics
from daemons.service.main import ControllerShell, serve_metrics
from daemons.service.meter import ControllerMeter
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput
from shared.metrics.book import Book
from shared.metrics.exposition import CLIENTS_MAX, MetricsServer, Page, address_of, is_loopback
from shared.metrics.meter import CONNECTED, LAG
from shared.metrics.values import Kind, Metric, Scrape
from shared.ports import effects as fx
from shared.values.nodes import Node, NodeSample
from tests.integration.debian import need_programs
from tests.support.metrics_scene import START_S, leading, tables
from tests.support.shell_harness import RealRig, wait_for

ANYWHERE = "127.0.0.1:0"


@pytest.fixture
def servers() -> Iterator[list[MetricsServer]]:
    """Servers that are stopped at the end."""
    made: list[MetricsServer] = []
    yield made
    for server in made:
        server.stop()


def serving(servers: list[MetricsServer], client_s: float = 10.0) -> MetricsServer:
    server = MetricsServer(ANYWHERE, lambda: b"x 1\n", client_s=client_s)
    servers.append(server)
    server.start()
    assert server.wait(10.0)
    return server


def asked(port: int, method: str = "GET", path: str = "/metrics") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10.0)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_page_says_what_was_counted() -> None:
    """Given a histogram, a counter and an info with text that must be escaped, then a parser reads it all back."""
    count = Metric("trimtab_things_total", Kind.COUNTER, "things", "Things.", ("what",))
    info = Metric("trimtab_thing_info", Kind.INFO, "", "A thing.", ("word",))
    book, scrape = Book((LAG,)), Scrape()
    book.add(count, 2.0, "a")
    book.observe(LAG, 0.02)
    scrape.put(info, 1.0, 'a "quoted"\n\\ word')

    page = Page(lambda: scrape.families(book.families()))().decode()

    found = {(one.name, *one.labels.values()): one.value for it in read(page) for one in it.samples}
    assert found["trimtab_things_total", "a"] == 2.0
    assert found["trimtab_thing_info", 'a "quoted"\n\\ word'] == 1.0
    assert (found["trimtab_loop_lag_seconds_bucket", "0.01"], found["trimtab_loop_lag_seconds_bucket", "0.05"]) == (
        0,
        1,
    )
    assert found["trimtab_loop_lag_seconds_bucket", "+Inf"] == found["trimtab_loop_lag_seconds_count",] == 1.0
    assert "process_cpu_seconds_total" in page
    assert "python_info" in page


@pytest.mark.parametrize("component", ["controller", "agent"])
def test_promtool_finds_nothing_wrong_with_a_page(component: str) -> None:
    need_programs(["promtool"], ["prometheus"])
    scrape = Scrape()
    if component == "controller":
        meter: ControllerMeter | AgentMeter = ControllerMeter(tables(leading(2, 1, 1)), "1", SystemClock().monotonic_s)
    else:
        meter = AgentMeter("fake", "1", SystemClock().monotonic_s, lambda: AgentFacts("n1", 0, 1))
        meter.input(fx.Observed(NodeSample(), (), Node("n1", 4, 1000.0, 8_000)))
    meter.read(scrape, START_S)
    page = Page(lambda: scrape.families(meter.book.families()))()

    command = [shutil.which("promtool") or "", "check", "metrics"]
    done = subprocess.run(command, input=page, capture_output=True, timeout=60.0, check=False)

    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_only_the_page_is_served_and_only_read(servers: list[MetricsServer]) -> None:
    port = serving(servers).port

    assert asked(port) == (200, b"x 1\n")
    assert asked(port, "HEAD") == (200, b"")
    assert asked(port, path="/metrics?x=1")[0] == 200
    assert [asked(port, path=path)[0] for path in ("/", "/metrics/../etc/passwd", "/metric")] == [404] * 3
    assert [asked(port, method)[0] for method in ("POST", "PUT", "DELETE", "OPTIONS")] == [501] * 4


def test_who_is_too_slow_or_too_many_is_cut_off(servers: list[MetricsServer]) -> None:
    """Given as many clients as there may be, who say a little and then nothing, when one more comes, then it is turned
    away at once; and they are cut off, so that the next is served."""
    port = serving(servers, client_s=1.0).port
    idle = [socket.create_connection(("127.0.0.1", port), timeout=10.0) for _ in range(CLIENTS_MAX)]
    try:
        for one in idle:
            one.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        wait_for(lambda: _turned_away(port))

        assert all(_ended(one) for one in idle)
        wait_for(lambda: not _turned_away(port))
        assert asked(port)[0] == 200
    finally:
        for one in idle:
            one.close()


def _turned_away(port: int) -> bool:
    try:
        return asked(port)[0] != 200
    except (http.client.HTTPException, OSError):
        return True


def _ended(connection: socket.socket) -> bool:
    """Whether the other side has nothing more to say (it may say first that it was too slow)."""
    try:
        while connection.recv(4096):
            continue
    except ConnectionError:
        return True
    return True


def test_a_port_that_cannot_be_had_is_told_and_tried_again(servers: list[MetricsServer]) -> None:
    told: list[str] = []
    heard = threading.Event()

    def trouble(why: str) -> None:
        told.append(why)
        heard.set()

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = MetricsServer(f"127.0.0.1:{port}", lambda: b"x 1\n", trouble, again_s=0.05)
        servers.append(server)
        server.start()
        assert heard.wait(10.0)
        assert not server.wait(0.2)

    assert server.wait(10.0)
    assert told == [f"127.0.0.1:{port}: Address already in use", ""]
    assert asked(port)[0] == 200


def test_a_server_that_never_had_its_port_can_be_stopped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = MetricsServer(f"127.0.0.1:{other.getsockname()[1]}", bytes)
        server.start()
        server.stop()

    assert server.port == 0


@pytest.mark.parametrize("listen", ["9460", ":9460", "127.0.0.1:", "127.0.0.1:70000", "::1:9460", "127.0.0.1:x"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(InvalidInput):
        address_of(listen)


def test_addresses_are_understood() -> None:
    assert address_of("[::1]:9460") == ("::1", 9460)
    assert [is_loopback(f"{host}:1") for host in ("127.0.0.1", "[::1]", "localhost")] == [True] * 3
    assert [is_loopback(f"{host}:1") for host in ("0.0.0.0", "[::]", "10.0.0.1", "node-1")] == [False] * 4


def test_a_controller_serves_its_tables_and_a_busy_port_is_its_alarm(
    tmp_path: Path, servers: list[MetricsServer]
) -> None:
    """Given a real controller and agent, when one port is had and another is not, then the page of the first tells of
    the node, of the bus, and of the alarm that the second is."""
    rig = RealRig(tmp_path, 1)
    try:
        rig.start()
        shell = rig.running[0].shell
        assert isinstance(shell, ControllerShell)
        with socket.create_server(("127.0.0.1", 0)) as other:
            for listen in (f"127.0.0.1:{other.getsockname()[1]}", ANYWHERE):
                made = serve_metrics(shell, listen)
                assert made is not None
                servers.append(made)
            assert servers[1].wait(10.0)
            wait_for(lambda: b'trimtab_alarms{alarm="metrics-unserved"} 1.0' in asked(servers[1].port)[1])

        wait_for(lambda: b'trimtab_node_up{node="n1"} 1.0' in asked(servers[1].port)[1])
        page = asked(servers[1].port)[1].decode()
        assert f"{CONNECTED.name} 1.0" in page
        wait_for(lambda: b'trimtab_bus_received_total{kind="report"}' in asked(servers[1].port)[1])
        assert serve_metrics(shell, "") is None
    finally:
        rig.end()


def test_the_doctor_says_who_is_at_the_address(servers: list[MetricsServer]) -> None:
    """Given a controller's page, another one, a port that is taken and one that is free, then each is told."""
    ours = MetricsServer(ANYWHERE, lambda: b'trimtab_build_info{component="controller",version="1"} 1.0\n')
    servers.append(ours)
    ours.start()
    assert ours.wait(10.0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    found = [metrics(f"127.0.0.1:{each}") for each in (ours.port, serving(servers).port, port)]

    assert [(one.detail.split(": ")[1], one.ok, one.warning) for one in found] == [
        ("served", True, False),
        ("others answer there", True, True),
        ("free", True, False),
    ]
    assert metrics("192.0.2.1:1").warning  # no address of this machine
