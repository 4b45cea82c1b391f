"""Values at the ends of what there is: words with the option, file or key, never a traceback."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from agents.service.main import main as agent
from daemons.cli.connection import Access, OperatorBus
from daemons.cli.main import main
from daemons.decision.request_codec import header_bytes, to_bytes
from daemons.service.main import main as controller
from daemons.store import SqlStore
from shared.base.errors import InvalidInput
from shared.config.broker_url import Tls
from tests.support.paths import ROOT
from tests.unit.daemons.decision.test_request_codec import example, request

EXAMPLES = ROOT / "examples"
DAYS = ("--prices", "x.csv", "--from", "2022-06-11")
SWF = "1 0 -1 60 1 -1 -1 1 -1 -1 1 1 -1 -1 -1 -1 -1 -1\n"


def refused(*words: object, status: int = 2) -> str:
    outcome = CliRunner().invoke(main, [str(word) for word in words])
    assert isinstance(outcome.exception, SystemExit), outcome.exception
    assert outcome.exit_code == status, outcome.output
    return " ".join(outcome.stderr.split())


@pytest.mark.parametrize("start", ["9999-12-31T23:59:59Z", "0001-01-01T00:00", "9999-12-31T23:59:59-12:00"])
def test_a_period_at_the_end_of_the_calendar(start: str, tmp_path: Path) -> None:
    """Prices never cover it."""
    scenario = tmp_path / "s.toml"
    text = (EXAMPLES / "provision-day-ahead.toml").read_text()
    (before,) = [line for line in text.splitlines() if line.startswith("start")]
    scenario.write_text(text.replace(before, f'start = "{start}"'))
    (tmp_path / "provision-day-ahead.csv").write_bytes((EXAMPLES / "provision-day-ahead.csv").read_bytes())

    said = refused("sim", "provision", scenario)

    assert "s.toml: price.start: " in said
    assert "e+" not in said  # no seconds since 1970


def test_a_price_file_with_a_null_byte(tmp_path: Path) -> None:
    """As any other name that no file has."""
    scenario = tmp_path / "s.toml"
    text = (EXAMPLES / "provision-day-ahead.toml").read_text()
    scenario.write_text(text.replace('"provision-day-ahead.csv"', '"a\\u0000b"'))

    assert "s.toml: price.file: is 'a\\x00b'" in refused("sim", "provision", scenario)


def test_tables_that_are_too_large(tmp_path: Path) -> None:
    """They are refused by the key that bounds them."""
    scenario = tmp_path / "s.toml"
    text = (EXAMPLES / "provision-thesis.toml").read_text()
    scenario.write_text("\n".join("max = 250" if line.startswith("max") else line for line in text.splitlines()))

    assert "tables of at most 512 MiB" in refused("sim", "provision", scenario)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("mean_s = 1200", "mean_s = 1"),  # many leave in an interval
        ("mean_s = 480", "mean_s = 0.05"),  # many come
        ("max = 5", "max = 5\nslots = 1000"),  # many run at a time
    ],
)
def test_a_period_that_takes_too_long_to_compute(before: str, after: str, tmp_path: Path) -> None:
    """It is refused before the work begins, by the key that bounds it, with what would help."""
    scenario = tmp_path / "s.toml"
    text = (EXAMPLES / "provision-thesis.toml").read_text()
    assert before in text
    scenario.write_text(text.replace(before, after).replace("submission_end = 64", "submission_end = 8"))

    said = refused("sim", "provision", scenario)

    assert "s.toml" in said
    assert "service.mean_s" in said
    assert "at most 2e+09 steps" in said


@pytest.mark.parametrize("end", ["1e308", "9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59Z", "1_0", "inf"])
def test_a_report_to_the_end_of_the_calendar(end: str, tmp_path: Path) -> None:
    """The option is named."""
    url = f"sqlite:///{tmp_path}/s.db"
    with closing(SqlStore(url)) as store:
        store.upgrade()

    assert "--to: is" in refused("report", "--store", url, "--to", end)


def test_a_time_zone_that_is_a_folder(tmp_path: Path) -> None:
    """Or whose name no file can have."""
    log = tmp_path / "l.swf"
    log.write_text(SWF)
    for zone in ("Europe", "x" * 300, "a\0b"):
        assert "--timezone" in refused("sim", "days", log, *DAYS, "--timezone", zone)


def test_a_first_day_without_jobs(tmp_path: Path) -> None:
    """The option is named, not something inside."""
    log, prices = tmp_path / "l.swf", tmp_path / "p.csv"
    log.write_text(SWF)
    hours = [f"2022-06-{11 + hour // 24:02}T{hour % 24:02}:00,{hour}" for hour in range(96)]
    prices.write_text("\n".join(["time,price_eur_per_mwh", *hours]))
    words = ("sim", "days", log, "--prices", prices, "--from", "2022-06-11", "--days", 1)

    assert "--first-day: is 3: the log has no jobs" in refused(*words, "--first-day", 3)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1" + "0" * 400])
def test_a_saved_request_with_odd_numbers(number: str, tmp_path: Path) -> None:
    """In its header and in the request: file and key."""
    file = tmp_path / "f.gz"
    parts = [b'{"program":"0","term":1,"at_s":%s}' % number.encode(), b'{"schema":3}']
    file.write_bytes(b"".join(map(gzip.compress, parts)))

    assert f"{file}: header.at_s" in refused("snapshot", "decide", file, "--output", "json")


def test_a_saved_request_with_an_odd_cycle(tmp_path: Path) -> None:
    """A whole number beyond every float."""
    plain = json.loads(gzip.decompress(to_bytes(request(example()))))
    plain["snapshot"]["cycle_s"] = 10**400
    file = tmp_path / "f.gz"
    file.write_bytes(header_bytes({"program": "0"}) + gzip.compress(json.dumps(plain).encode()))

    assert "snapshot.cycle_s: is a larger number" in refused("snapshot", "decide", file)


@pytest.mark.parametrize("name", ["\\ud800", "a\\u0000b", "a\\u202eb", "a\\u001b[31m"])
def test_names_that_cannot_be_printed(name: str, tmp_path: Path) -> None:
    """Neither in jobs of a dilation nor in labels of a placement."""
    file = tmp_path / "f.json"
    file.write_text(f'{{"resources":["cpu"],"jobs":[{{"name":"{name}","loading":[1],"neutral_s":5}}]}}')
    assert "printable characters" in refused("sim", "dilation", file)


@pytest.mark.parametrize("run", [controller, agent])
def test_a_url_that_is_none_in_a_daemons_file(
    run: Callable[[list[str]], int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2, with file and key."""
    secret, file = tmp_path / "secret", tmp_path / "c.toml"
    secret.write_text("x")
    secret.chmod(0o600)
    file.write_text(f'[bus]\nurl = "amqps://agent.n1@[::1/"\npassword_file = "{secret}"\n')
    assert run(["--config", str(file), "--check"]) == 2
    assert f"{file}: bus.url: cannot be used: Invalid IPv6 URL" in capfd.readouterr().err


def test_a_url_that_is_none_in_the_operators_file(tmp_path: Path) -> None:
    """The same of `trimtab --config`."""
    secret, file = tmp_path / "secret", tmp_path / "c.toml"
    secret.write_text("x")
    secret.chmod(0o600)
    file.write_text(f'[bus]\nurl = "amqps://operator.n1@[::1/"\npassword_file = "{secret}"\n')

    assert f"{file}: bus.url: cannot be used" in refused("status", "--config", file)


def test_certificates_that_are_not_there_in_the_operators_file() -> None:
    """The key is named."""
    bus = OperatorBus("amqps://operator.a:x@b/", tls=Tls(ca_file="/nowhere.pem"))

    with pytest.raises(InvalidInput, match=r"bus\.tls: names '/nowhere\.pem'"):
        Access().connect(bus, 1.0)


@pytest.mark.parametrize("url", ["http://operator.x@h/", "amqps://"])
def test_a_url_of_another_kind(url: str) -> None:
    """Named as the option, without asking for a password that is refused there."""
    text = refused("status", "--url", url)
    assert "--url" in text
    assert "PASSWORD" not in text


def test_a_damaged_backup(tmp_path: Path) -> None:
    """It is said of the backup, and no store is made of it."""
    whole, cut, new = tmp_path / "whole.bak", tmp_path / "cut.bak", tmp_path / "new.db"
    url = f"sqlite:///{tmp_path}/s.db"
    with closing(SqlStore(url)) as store:
        store.upgrade()
        store.backup(whole)
    cut.write_bytes(whole.read_bytes()[:20_000])

    text = refused("store", "restore", cut, "--url", f"sqlite:///{new}")

    assert f"{cut}: is damaged" in text
    assert "put a backup" not in text
    assert not new.exists()


def test_an_empty_host() -> None:
    """It is not dropped without a word."""
    assert "--host" in refused("broker", "tls", "--host", "a,b,,c", "--folder", "/nowhere")


def test_a_demand_far_away(tmp_path: Path) -> None:
    """With the line; and digits are ASCII, without `_`."""
    (tmp_path / "a.toml").write_text(
        'name = "e"\nlower = 1\nowner = "o"\nworkload = "batch"\n[assurance]\ndemand = "d.csv"\n'
        '[[assurance.share]]\nclass = "guaranteed"\nunits = 2\n'
    )
    for time in ("1e300", "3_600", "\u0663\u0666\u0660\u0660"):
        (tmp_path / "d.csv").write_text(f"time,servers\n0,1\n{time},1\n")
        assert "d.csv:3: time" in refused("env", "create", tmp_path / "a.toml", "--dry-run")


def test_a_store_in_a_folder_that_is_gone(tmp_path: Path) -> None:
    """A relative path leads nowhere."""
    place = tmp_path / "gone"
    place.mkdir()
    program = Path(sys.executable).with_name("trimtab")
    script = f"rmdir {place}; exec {program} report --store sqlite:///x.db"
    done = subprocess.run(["sh", "-c", script], cwd=place, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2, done.stderr
    assert "which is gone" in done.stderr
    assert "Traceback" not in done.stderr
