"""`trimtab doctor --config`: the certificate that the broker shows, before it ends and when it has."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from daemons.cli.commands.doctor import CERTIFICATE, DAY_S, Check, broker, doctor, judged
from shared.base.clock import SystemClock
from shared.config.broker_url import Tls
from shared.config.common import Bus
from tests.support.notify_servers import make_certificate, web_server

NOW_S = 1_800_000_000.0  # 2027-01-15 08:00:00Z


def looked_at(port: int, ca_file: Path | str, **tls: str) -> Check:
    """What is said of the broker on a port of this machine, now."""
    url = f"amqps://controller:hunter2@127.0.0.1:{port}/"
    (check,) = broker(Bus(url, tls=Tls(str(ca_file), **tls)), SystemClock().now_s())
    assert "hunter2" not in str(check)
    return check


@pytest.mark.parametrize(
    ("begins_d", "ends_d", "ok", "warning", "said"),
    [
        (-9, 365, True, False, "mq:5671: valid until 2028-01-15 08:00:00Z"),
        (-9, 30, True, False, "valid until 2027-02-14 08:00:00Z"),
        (-9, 29.5, True, True, "expires at 2027-02-13 20:00:00Z, in 29 days"),
        (-9, 0, True, True, "expires at 2027-01-15 08:00:00Z, in 0 days"),
        (-9, -1, False, False, "mq:5671: expired at 2027-01-14 08:00:00Z"),
        (1, 365, False, False, "mq:5671: not valid before 2027-01-16 08:00:00Z"),
    ],
)
def test_the_end_of_a_certificate_is_told_thirty_days_before(
    begins_d: float, ends_d: float, ok: bool, warning: bool, said: str
) -> None:
    check = judged("mq:5671", NOW_S + begins_d * DAY_S, NOW_S + ends_d * DAY_S, NOW_S)
    assert (check.name, check.ok, check.warning) == (CERTIFICATE, ok, warning)
    assert said in check.detail
    assert bool(check.fix) == (warning or not ok)


def test_it_is_the_certificate_that_the_broker_shows(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    with web_server(made.context()) as server:
        check = looked_at(server.port, made.certificate)
    assert (check.ok, check.warning) == (True, True)
    assert check.detail.startswith(f"127.0.0.1:{server.port}: expires at ")
    assert "trimtab broker tls" in check.fix


def test_one_that_has_ended_fails_and_is_told_when(tmp_path: Path) -> None:
    made = make_certificate(tmp_path, days=-1)
    with web_server(made.context()) as server:
        check = looked_at(server.port, made.certificate)
    assert not check.ok
    assert check.detail.startswith(f"127.0.0.1:{server.port}: expired at ")


def test_one_that_clients_refuse_for_another_reason_fails(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    with web_server(made.context()) as server:
        assert "authority" in looked_at(server.port, "").detail
        other = looked_at(server.port, made.certificate, server_name="mq.example.org")
    assert not other.ok
    assert "for another name" in other.detail


def test_a_broker_that_does_not_answer_is_a_warning(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    check = looked_at(port, made.certificate)
    assert (check.ok, check.warning) == (True, True)
    assert f"127.0.0.1:{port}" in check.detail


def test_what_cannot_be_looked_at_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    check = looked_at(1, "credential:ca.pem")
    assert (check.ok, check.warning) == (True, True)
    assert "credential:ca.pem" in check.detail
    assert not looked_at(1, tmp_path / "none.pem").ok


@pytest.mark.parametrize("url", ["", "amqp://controller:x@127.0.0.1/"])
def test_without_tls_there_is_no_certificate(url: str) -> None:
    assert list(broker(Bus(url), NOW_S)) == []


def test_the_command_looks_at_it(tmp_path: Path) -> None:
    made = make_certificate(tmp_path, days=-1)
    path = tmp_path / "controller.toml"
    with web_server(made.context()) as server:
        url = f"amqps://controller:x@127.0.0.1:{server.port}/"
        path.write_text(f'[metrics]\nlisten = ""\n[bus]\nurl = "{url}"\n[bus.tls]\nca_file = "{made.certificate}"\n')
        path.chmod(0o600)
        result = CliRunner().invoke(doctor, ["--config", str(path), "--output", "json"])
    checks = {check["name"]: check["ok"] for check in json.loads(result.stdout)["checks"]}
    assert result.exit_code == 1
    assert checks["configuration"]
    assert not checks[CERTIFICATE]
