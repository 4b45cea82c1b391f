"""The page of metrics as Prometheus reads it, and the server before whoever connects."""

from __future__ import annotations

import gzip
import http.client
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric as Read
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read

from agents.service.metrics import AgentFacts, AgentMeter
from daemons.cli.commands.doctor import metrics
from daemons.service.main import ControllerShell, serve_metrics
from daemons.service.meter import ControllerMeter
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput
from shared.config.agent import AgentConfig
from shared.config.common import Metrics
from shared.config.toml import parse
from shared.metrics.book import Book
from shared.metrics.exposition import (
    CLIENTS_MAX,
    Families,
    MetricsServer,
    address_of,
    check,
    is_local,
    registry_of,
)
from shared.metrics.meter import BUILD, CONNECTED, LAG
from shared.metrics.values import Family, Metric, MetricKind, Scrape
from shared.ports import effects as fx
from shared.values.nodes import Node, NodeSample
from tests.integration.debian import need_programs
from tests.support.metrics_scene import START_S, leading, tables
from tests.support.notify_servers import Certificate, make_certificate
from tests.support.shell_harness import RealRig, wait_for

ANYWHERE = Metrics("127.0.0.1:0")
THINGS = Metric("trimtab_things_total", MetricKind.COUNTER, "things", "Things.", ("what",))
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def families() -> tuple[Family, ...]:
    """One counter."""
    return (Family(THINGS, ((("a",), 2.0),)),)


@pytest.fixture
def servers() -> Iterator[list[MetricsServer]]:
    """Servers that are stopped at the end."""
    made: list[MetricsServer] = []
    yield made
    for server in made:
        server.stop()


def serving(
    servers: list[MetricsServer],
    client_s: float = 10.0,
    settings: Metrics = ANYWHERE,
    read: Families = families,
) -> MetricsServer:
    server = MetricsServer(settings, registry_of(read), client_s=client_s)
    servers.append(server)
    server.start()
    assert server.wait(10.0)
    return server


def text(read: Families) -> bytes:
    return generate_latest(registry_of(read))


def controllers() -> tuple[Family, ...]:
    """By what a controller is known."""
    return (Family(BUILD, ((("controller", "1"), 1.0),)),)


def full_page(component: str) -> Families:
    """All that a controller or an agent tells."""
    scrape = Scrape()
    if component == "controller":
        meter: ControllerMeter | AgentMeter = ControllerMeter(tables(leading(2, 1, 1)), "1", SystemClock().monotonic_s)
    else:
        meter = AgentMeter("fake", "1", SystemClock().monotonic_s, lambda: AgentFacts("n1", 0, 1))
        meter.input(fx.Observed(NodeSample(), (), Node("n1", 4, 1000.0, memory_mib=8_000)))
    meter.read(scrape, START_S)
    return lambda: scrape.families(meter.book.families())


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
    info = Metric("trimtab_thing_info", MetricKind.INFO, "", "A thing.", ("word",))
    book, scrape = Book((LAG,)), Scrape()
    book.add(THINGS, 2.0, "a")
    book.observe(LAG, 0.02)
    scrape.put(info, 1.0, 'a "quoted"\n\\ word')

    page = text(lambda: scrape.families(book.families())).decode()

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
    page = text(full_page(component))

    command = [shutil.which("promtool") or "", "check", "metrics"]
    done = subprocess.run(command, input=page, capture_output=True, timeout=60.0, check=False)

    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_only_the_page_is_served_and_only_read(servers: list[MetricsServer]) -> None:
    port = serving(servers).port

    status, page = asked(port)
    assert status == 200
    assert b'trimtab_things_total{what="a"} 2.0\n' in page
    assert asked(port, "HEAD") == (200, b"")
    assert asked(port, path="/metrics?x=1")[0] == 200
    assert [asked(port, path=path)[0] for path in ("/", "/metrics/../etc/passwd", "/metric")] == [404] * 3
    assert [asked(port, method)[0] for method in ("POST", "PUT", "DELETE", "OPTIONS")] == [501] * 4


def test_no_other_metrics_are_asked_for_by_name(servers: list[MetricsServer]) -> None:
    port = serving(servers).port

    assert b"trimtab_things_total" in asked(port, path="/metrics?name[]=python_info")[1]


def test_a_page_that_cannot_be_made_is_an_error_of_ours(servers: list[MetricsServer]) -> None:
    """Given families that cannot be read, then who asks is told, and the next is answered."""
    broken = [True]

    def read() -> tuple[Family, ...]:
        if broken:
            broken.clear()
            raise ValueError("secret")
        return families()

    port = serving(servers, read=read).port

    assert asked(port) == (500, b"500 Internal Server Error\n")
    assert asked(port)[0] == 200


@pytest.mark.parametrize("component", ["controller", "agent"])
def test_the_values_are_the_same_in_each_form(tmp_path: Path, servers: list[MetricsServer], component: str) -> None:
    """Given all metrics of a process, when they are asked for as text, compressed, and as OpenMetrics, with and without
    TLS, then each is what was asked for, and says the same."""
    made = make_certificate(tmp_path)
    page = full_page(component)
    plain, secured = serving(servers, read=page), serving(servers, settings=secure(made), read=page)

    for port, trusted in ((plain.port, None), (secured.port, made.certificate)):
        kind, _, text = answer_of(port, trusted)
        packed_kind, encoding, packed = answer_of(port, trusted, {"Accept-Encoding": "gzip"})
        open_kind, _, openmetrics = answer_of(port, trusted, {"Accept": OPENMETRICS})

        assert (kind, packed_kind, encoding) == ("text/plain; version=0.0.4; charset=utf-8",) * 2 + ("gzip",)
        assert open_kind.startswith("application/openmetrics-text; version=1.0.0")
        assert len(packed) < len(text) / 3
        assert openmetrics.endswith(b"# EOF\n")
        told = values(read(text.decode()))
        assert len(told) > 50
        assert told == values(read(gzip.decompress(packed).decode()))
        assert told == values(read_openmetrics(openmetrics.decode()))  # type: ignore[no-untyped-call]


def secure(made: Certificate) -> Metrics:
    return Metrics(ANYWHERE.listen, str(made.certificate), str(made.key))


def answer_of(port: int, trusted: Path | None, headers: Mapping[str, str] | None = None) -> tuple[str, str, bytes]:
    """The kind, the encoding and the body of an answer; over TLS where there is whom to trust."""
    if trusted is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10.0)
    else:
        context = ssl.create_default_context(cafile=trusted)
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10.0, context=context)
    with closing(connection):
        connection.request("GET", "/metrics", headers=headers or {})
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.headers["Content-Type"], answer.headers.get("Content-Encoding", ""), answer.read()


def values(found: Iterable[Read]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """What our series stand at."""
    samples = (sample for family in found for sample in family.samples)
    return {(it.name, frozenset(it.labels.items())): it.value for it in samples if it.name.startswith("trimtab_")}


def test_with_a_certificate_nothing_is_served_in_plain(
    tmp_path: Path, servers: list[MetricsServer], capfd: pytest.CaptureFixture[str]
) -> None:
    """Given TLS, when clients speak without it, or go away, or say nothing, then they get no page, nobody else waits
    for them, and no error is printed."""
    made = make_certificate(tmp_path)
    port = serving(servers, settings=secure(made)).port

    with pytest.raises((http.client.HTTPException, OSError)):
        asked(port)
    socket.create_connection(("127.0.0.1", port), timeout=10.0).close()
    with socket.create_connection(("127.0.0.1", port), timeout=10.0):
        assert b"trimtab_things_total" in answer_of(port, made.certificate)[2]
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err
    assert "error" not in out


def test_who_is_too_slow_or_too_many_is_cut_off_with_tls_too(tmp_path: Path, servers: list[MetricsServer]) -> None:
    """Given as many clients as there may be, half of whom say nothing and half a piece of a request, when time is up,
    then they are cut off, so that the next is served."""
    made = make_certificate(tmp_path)
    server = serving(servers, client_s=2.0, settings=secure(made))
    context = ssl.create_default_context(cafile=made.certificate)
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=10.0) for _ in range(CLIENTS_MAX)]
    try:
        for number in range(0, CLIENTS_MAX, 2):
            idle[number] = context.wrap_socket(idle[number], server_hostname="127.0.0.1")
            idle[number].sendall(b"GET /metrics HTTP/1.1\r\nX: ")

        assert all(_ended(one) for one in idle)
        wait_for(lambda: not _turned_away(server.port, made.certificate))
    finally:
        for one in idle:
            one.close()


@pytest.mark.parametrize("tls", [False, True])
def test_who_takes_nothing_is_cut_off_without_a_word(
    tmp_path: Path, servers: list[MetricsServer], capfd: pytest.CaptureFixture[str], tls: bool
) -> None:
    """Given a page of 20 MB, when a client asks for it and reads nothing, then its thread ends, and prints nothing."""
    made = make_certificate(tmp_path)
    rows = tuple(((f"{number} {'x' * 200_000}",), 1.0) for number in range(100))
    settings = secure(made) if tls else ANYWHERE
    port = serving(servers, 1.0, settings, lambda: (Family(THINGS, rows),)).port
    context = ssl.create_default_context(cafile=made.certificate)

    with closing(socket.create_connection(("127.0.0.1", port), timeout=10.0)) as plain:
        client = context.wrap_socket(plain, server_hostname="127.0.0.1") if tls else plain
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert client.recv(8) == b"HTTP/1.0"
        wait_for(lambda: not _serves_somebody())
        client.close()

    out, err = capfd.readouterr()
    assert "Traceback" not in out + err


def _serves_somebody() -> bool:
    return any("process_request_thread" in each.name for each in threading.enumerate())


def test_nobody_is_looked_up_logged_or_told_of_versions(
    servers: list[MetricsServer], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> str:
        raise AssertionError("a name was asked for")

    for name in ("getfqdn", "gethostbyaddr", "getnameinfo"):
        monkeypatch.setattr(socket, name, refuse)
    server = serving(servers)
    capfd.readouterr()

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10.0)
    with closing(connection):
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Server"]) == (200, "trimtab")
        answer.read()

    assert capfd.readouterr() == ("", "")


def test_a_new_certificate_is_shown_after_a_reload(tmp_path: Path, servers: list[MetricsServer]) -> None:
    """Given another certificate in the files, or none that can be used, when they are read again, then the other is
    shown, and the last good one."""
    made = make_certificate(tmp_path)
    server = serving(servers, settings=secure(made))
    before = made.certificate.read_text()

    make_certificate(tmp_path)
    shown = [ssl.get_server_certificate(("127.0.0.1", server.port), timeout=10.0)]
    server.reload()
    shown.append(ssl.get_server_certificate(("127.0.0.1", server.port), timeout=10.0))
    made.key.write_text("")
    server.reload()
    shown.append(ssl.get_server_certificate(("127.0.0.1", server.port), timeout=10.0))

    after = made.certificate.read_text()
    assert before != after
    assert shown == [before, after, after]


def test_a_certificate_that_cannot_be_had_is_told_and_tried_again(tmp_path: Path, servers: list[MetricsServer]) -> None:
    made = make_certificate(tmp_path)
    key = made.key.read_bytes()
    made.key.unlink()
    told: list[str] = []
    heard = threading.Event()

    def trouble(why: str) -> None:
        told.append(why)
        heard.set()

    server = MetricsServer(secure(made), registry_of(families), trouble, again_s=0.05)
    servers.append(server)
    server.start()
    assert heard.wait(10.0)
    assert not server.wait(0.2)
    made.key.write_bytes(key)

    assert server.wait(10.0)
    assert "No such file" in told[0]
    assert told[1:] == [""]


def test_what_metrics_cannot_be_served_with_is_told(tmp_path: Path) -> None:
    """Given one file of two, a file that is not there, a key that others can read, a key of another certificate, and an
    address that is none, then each is told."""
    made = make_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    other = make_certificate(tmp_path / "other")
    certificate, key = str(made.certificate), str(made.key)
    check(Metrics())
    check(Metrics("127.0.0.1:1", certificate, key))

    for settings, expected in (
        (Metrics("127.0.0.1:1", certificate), "certificate_file and key_file"),
        (Metrics("127.0.0.1:1", "", key), "certificate_file and key_file"),
        (Metrics("127.0.0.1:1", certificate, f"{key}.none"), "metrics.key_file: "),
        (Metrics("127.0.0.1:1", certificate, str(other.key)), "MISMATCH"),
        (Metrics("127.0.0.1:70000", certificate, key), "metrics.listen"),
    ):
        with pytest.raises(InvalidInput, match=expected):
            check(settings)
    made.key.chmod(0o644)
    with pytest.raises(InvalidInput, match="every user of this machine"):
        check(Metrics("127.0.0.1:1", certificate, key))


def test_paths_of_certificates_are_absolute() -> None:
    with pytest.raises(InvalidInput, match="an absolute path"):
        parse('[metrics]\ncertificate_file = "server.pem"\nkey_file = "server.key"\n', AgentConfig)


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


def _turned_away(port: int, trusted: Path | None = None) -> bool:
    try:
        return answer_of(port, trusted)[2] == b""
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
        server = MetricsServer(Metrics(f"127.0.0.1:{port}"), registry_of(families), trouble, again_s=0.05)
        servers.append(server)
        server.start()
        assert heard.wait(10.0)
        assert not server.wait(0.2)

    assert server.wait(10.0)
    assert told == [f"127.0.0.1:{port}: Address already in use", ""]
    assert asked(port)[0] == 200


def test_a_server_that_never_had_its_port_can_be_stopped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = MetricsServer(Metrics(f"127.0.0.1:{other.getsockname()[1]}"), registry_of(families))
        server.start()
        server.stop()

    assert server.port == 0


@pytest.mark.parametrize("listen", ["9460", ":9460", "127.0.0.1:", "127.0.0.1:70000", "::1:9460", "127.0.0.1:x"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(InvalidInput):
        address_of(listen)


def test_addresses_are_understood() -> None:
    assert address_of("[::1]:9460") == ("::1", 9460)
    assert [is_local(f"{host}:1") for host in ("127.0.0.1", "[::1]", "localhost")] == [True] * 3
    assert [is_local(f"{host}:1") for host in ("0.0.0.0", "[::]", "10.0.0.1", "node-1")] == [False] * 4


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
            for settings in (Metrics(f"127.0.0.1:{other.getsockname()[1]}"), ANYWHERE):
                made = serve_metrics(shell, settings)
                assert made is not None
                servers.append(made)
            assert servers[1].wait(10.0)
            wait_for(lambda: b'trimtab_alarms{alarm="metrics-unserved"} 1.0' in asked(servers[1].port)[1])

        wait_for(lambda: b'trimtab_node_up{node="n1"} 1.0' in asked(servers[1].port)[1])
        page = asked(servers[1].port)[1].decode()
        assert f"{CONNECTED.name} 1.0" in page
        wait_for(lambda: b'trimtab_bus_received_total{kind="report"}' in asked(servers[1].port)[1])
        assert serve_metrics(shell, Metrics("")) is None
    finally:
        rig.end()


def test_the_doctor_says_who_is_at_the_address(servers: list[MetricsServer]) -> None:
    """Given a controller's page, another one, a port that is taken and one that is free, then each is told."""
    ours = serving(servers, read=controllers)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    found = [metrics(Metrics(f"127.0.0.1:{each}")) for each in (ours.port, serving(servers).port, port)]

    assert [(one.detail.split(": ")[1], one.ok, one.warning) for one in found] == [
        ("served", True, False),
        ("another program answers there", True, True),
        ("free", True, False),
    ]
    assert metrics(Metrics("192.0.2.1:1")).warning  # no address of this machine


def test_the_doctor_knows_a_controller_by_its_certificate(tmp_path: Path, servers: list[MetricsServer]) -> None:
    """Given a controller that shows the certificate of its file, and one with another, then each is told."""
    made = make_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    other = make_certificate(tmp_path / "other")
    listen = f"127.0.0.1:{serving(servers, settings=secure(made), read=controllers).port}"

    def detail(file: Path | str) -> str:
        return metrics(Metrics(listen, str(file), str(made.key))).detail

    assert detail(made.certificate) == f"{listen}: served"
    assert detail(other.certificate).startswith(f"{listen}: Address already in use")
    assert "No such file" in detail(tmp_path / "none.pem")
    assert "not checked" in detail("credential:none.pem")
