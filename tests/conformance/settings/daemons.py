"""Keys that the files of all daemons have: the broker, metrics, logs; read as the daemon's process does."""

from __future__ import annotations

import io
import json
import shutil
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr
from functools import cache
from pathlib import Path
from typing import Any

import structlog
from pika import frame, spec  # type: ignore[import-untyped]

from shared.base import secrets
from shared.base.errors import BusUnavailable, InvalidInput
from shared.config import toml
from shared.metrics.exposition import MetricsServer, registry_of
from shared.runtime import startup
from shared.runtime.logs import configure, get_logger
from tests.conformance.settings.row import Given, Row, shown_by
from tests.support.notify_servers import Certificate, make_certificate
from tests.support.tcp_server import server

Check = Callable[[Any], object]
CONNECT_S = 5.0
_MAKING = threading.Lock()


def certificates() -> tuple[Certificate, Certificate]:
    """Two certificates of `localhost`, each of an authority of its own."""
    with _MAKING:
        return _made_certificates()


@cache
def _made_certificates() -> tuple[Certificate, Certificate]:
    folder = Path(tempfile.mkdtemp(prefix="settings-"))
    made = []
    for name in ("one", "two"):
        (folder / name).mkdir()
        made.append(make_certificate(folder / name))
    return made[0], made[1]


def filled(given: Given, **more: str) -> Given:
    """Certificates, keys and passwords are put into the folder, and named in the text."""
    words = dict(more)
    for name, each in zip(("ONE", "TWO"), certificates(), strict=True):
        for kind, path in (("CERT", each.certificate), ("KEY", each.key)):
            copy = given.folder / f"{kind}_{name}"
            shutil.copyfile(path, copy)
            copy.chmod(0o600)
            words[f"/{kind}_{name}"] = str(copy)
        password = given.folder / f"PASSWORD_{name}"
        password.write_text(f"word-{name}\n")
        password.chmod(0o600)
        words[f"/PASSWORD_{name}"] = str(password)
    text = given.text
    for word, value in words.items():
        text = text.replace(word, value)
    return Given(text, given.folder)


def read_as(given: Given, cls: type[Any]) -> Any:
    """The file as `startup.Daemon.read` reads it."""
    path = given.file()
    path.chmod(0o600)
    return secrets.completed(toml.load(path, cls), path)


# --- the broker -----------------------------------------------------------------------------------------------------


def broker(cls: type[Any]) -> Callable[[Given], object]:
    """What a broker hears of who connects as the file says, or why nobody does."""

    def shown(given: Given) -> object:
        heard: list[Any] = []
        context = certificates()[0].context()
        context.verify_mode = ssl.CERT_OPTIONAL
        for each in certificates():
            context.load_verify_locations(each.certificate)

        def plain(connection: socket.socket) -> None:
            connection.recv(8)
            start = spec.Connection.Start(0, 9, {}, "PLAIN", "en_US")
            connection.sendall(frame.Method(0, start).marshal())
            answer = connection.recv(4096)
            heard.append(answer[answer.index(b"\0operator.") :].split(b"\x05en_US")[0])

        def encrypted(connection: socket.socket) -> None:
            with context.wrap_socket(connection, server_side=True) as made:
                shown_certificate = made.getpeercert(binary_form=True)
                heard.append(shown_certificate and which(shown_certificate))
                plain(made)

        with server(plain) as port, server(encrypted) as tls_port:
            try:
                config = read_as(filled(given, AMQP_PORT=f"{port}", AMQPS_PORT=f"{tls_port}"), cls)
                startup.broker(config.bus.url, config.bus.tls, config.bus.plain)()
            except BusUnavailable as error:
                why = type(error.__cause__).__name__
            except InvalidInput as error:
                why = "; ".join(problem.where.rpartition(": ")[2] for problem in error.problems)
            else:
                raise AssertionError("nobody lets anybody in here")
        return heard, why

    return shown


def which(found: bytes) -> int:
    """Which of the certificates it is."""
    return [ssl.PEM_cert_to_DER_cert(each.certificate.read_text()) for each in certificates()].index(found)


def broker_rows(cls: type[Any], beside: Mapping[str, Any]) -> Iterator[Row]:
    """Rows of `[bus]`."""
    user = "operator.jane"
    tls = {"bus.url": f"amqps://{user}:pw@localhost:AMQPS_PORT/", "bus.tls.ca_file": "/CERT_ONE", **beside}
    client = tls | {"bus.tls.cert_file": "/CERT_ONE", "bus.tls.key_file": "/KEY_ONE"}
    shown = broker(cls)
    yield from shown_by(
        shown,
        {"bus.url": (f"amqp://{user}:one@127.0.0.1:AMQP_PORT/", f"amqp://{user}:two@127.0.0.1:AMQP_PORT/")},
        beside,
    )
    nobody = {"bus.url": f"amqp://{user}@127.0.0.1:AMQP_PORT/", **beside}
    yield from shown_by(shown, {"bus.password_file": ("/PASSWORD_ONE", "/PASSWORD_TWO")}, nobody)
    away = {"bus.url": f"amqp://{user}:pw@nowhere.invalid:1/", **beside}
    yield from shown_by(shown, {"bus.plain": (False, True)}, away)
    yield from shown_by(
        shown,
        {"bus.tls.ca_file": ("/CERT_ONE", "/CERT_TWO"), "bus.tls.server_name": ("localhost", "elsewhere.test")},
        tls,
    )
    yield from shown_by(shown, {"bus.tls.cert_file": ("/CERT_ONE", "/CERT_TWO")}, client)
    yield from shown_by(shown, {"bus.tls.key_file": ("/KEY_ONE", "/KEY_TWO")}, client)


# --- metrics --------------------------------------------------------------------------------------------------------


def metrics(cls: type[Any], check: Check) -> Callable[[Given], object]:
    """Where metrics are served, and with which certificate; or why they could not be."""

    def shown(given: Given) -> object:
        address = given.loopback()
        ports = (_free_port(address), _free_port(address))
        words = {f":PORT_{name}": f":{port}" for name, port in zip(("ONE", "TWO"), ports, strict=True)}
        words["LOOPBACK"] = address
        config = read_as(filled(given, **words), cls)
        try:
            check(config)
        except InvalidInput as error:
            return [problem.where for problem in error.problems]
        served = MetricsServer(config.metrics, registry_of(list))
        served.start()
        try:
            assert served.wait(CONNECT_S)
            return [_answer(address, port) for port in ports]
        finally:
            served.stop()

    return shown


def _free_port(address: str) -> int:
    with socket.create_server((address, 0)) as made:
        return int(made.getsockname()[1])


def _answer(address: str, port: int) -> object:
    """Who answers there: nobody, plainly, or with which certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((address, port), CONNECT_S) as made:
            try:
                with context.wrap_socket(made) as encrypted:
                    found = encrypted.getpeercert(binary_form=True)
                    return found and which(found)
            except ssl.SSLError:
                return "plain"
    except OSError:
        return "nobody"


def metrics_rows(cls: type[Any], check: Check, beside: Mapping[str, Any]) -> Iterator[Row]:
    """Rows of `[metrics]`."""
    shown = metrics(cls, check)
    yield from shown_by(shown, {"metrics.listen": ("LOOPBACK:PORT_ONE", "LOOPBACK:PORT_TWO")}, beside, waits=True)
    files = {
        "metrics.listen": "LOOPBACK:PORT_ONE",
        "metrics.certificate_file": "/CERT_ONE",
        "metrics.key_file": "/KEY_ONE",
    }
    keys = {"metrics.certificate_file": ("/CERT_ONE", "/CERT_TWO"), "metrics.key_file": ("/KEY_ONE", "/KEY_TWO")}
    yield from shown_by(shown, keys, {**files, **beside}, waits=True)


# --- logs -----------------------------------------------------------------------------------------------------------


def logged(cls: type[Any]) -> Callable[[Given], object]:
    """What comes of an event of each level."""

    def shown(given: Given) -> object:
        said = io.StringIO()
        with redirect_stderr(said):
            startup.configure_log(read_as(given, cls).log)
            log = get_logger("test")
            for name in ("debug", "info", "warning", "error"):
                getattr(log, name)(name)
        configure()
        structlog.reset_defaults()
        return [
            json.loads(line)["event"] if line.startswith("{") else line[24:40] for line in said.getvalue().splitlines()
        ]

    return shown


def rows(cls: type[Any], check: Check, beside: Mapping[str, Any] | None = None) -> Iterator[Row]:
    """Rows of all that daemons have in common."""
    yield from broker_rows(cls, beside or {})
    yield from metrics_rows(cls, check, beside or {})
    yield from shown_by(logged(cls), {"log.level": ("info", "error"), "log.format": ("json", "console")}, beside or {})
