"""The portal's file: what is refused, and what of a URL browsers send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daemons.config.portal import PortalConfig
from daemons.portal.config import host_of, is_local, origin_of
from daemons.portal.main import check
from shared.base.errors import InvalidInput
from shared.config.records import keys
from shared.config.toml import parse
from tests.architecture.sources import ROOT

GOOD = 'public_url = "https://p.test"\n[proxy]\ntrusted = ["10.0.0.1"]\n[bus]\nurl = "amqps://portal.p:x@broker/"\n'


def problems(text: str) -> str:
    try:
        check(parse(text, PortalConfig))
    except InvalidInput as error:
        return str(error)
    return ""


def test_a_good_file_is_good() -> None:
    assert problems(GOOD) == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "public_url"),
        ('public_url = "https://p.test/path"', "HOST"),
        ('public_url = "http://p.test"\n', "not encrypted"),
        ('public_url = "https://p.test"\n', "neither a certificate nor a proxy"),
        (GOOD.replace('"10.0.0.1"', '"10.0.0.300"'), "trusted"),
        (GOOD.replace("portal.p", "operator.p"), "portal.NAME"),
        (GOOD + '[tls]\ncert_file = "/proc/none"\n', "one of two files"),
        (GOOD + '[tls]\ncert_file = "/proc/none"\nkey_file = "/proc/none"\n', "No such file"),
        ('public_url = "https://localhost"\n[proxy]\nsign_on_file = "/x"\n', "no proxy is trusted"),
        (GOOD + "[server]\nconnections_max = 50\n", "readers_max"),
        ('public_url = "http://localhost:1"\n[server]\naddress = "0.0.0.0"\n', "nothing is encrypted"),
        ('public_url = "https://localhost"\n[server]\naddress = "::"\n', "nothing is encrypted"),
        (GOOD + "[sessions]\nidle_s = 90000\n", "idle_s"),
        (GOOD + "typo = 1\n", "no such key"),
    ],
)
def test_what_is_wrong_is_told(text: str, told: str) -> None:
    assert told in problems(text)


def test_metrics_that_others_reach_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert problems(GOOD + '[metrics]\nlisten = "0.0.0.0:9462"\n') == ""
    assert "anyone who reaches it can read the metrics" in capsys.readouterr().err
    assert problems(GOOD) == ""
    assert capsys.readouterr().err == ""


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    for name in ("cert", "key"):
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(0o644)
    files = f'[tls]\ncert_file = "{tmp_path}/cert"\nkey_file = "{tmp_path}/key"\n'

    assert "every user of this machine" in problems(GOOD + files)


@pytest.mark.parametrize(
    ("url", "host", "local"),
    [
        ("https://P.test", "p.test", False),
        ("https://p.test:443", "p.test", False),
        ("https://p.test:8443", "p.test:8443", False),
        ("http://localhost:80", "localhost", True),
        ("http://localhost:8443", "localhost:8443", True),
        ("http://[::1]:8443", "[::1]:8443", True),
    ],
)
def test_hosts_are_as_browsers_send_them(url: str, host: str, local: bool) -> None:
    assert host_of(url) == host
    assert origin_of(url) == f"{url.split(':', 1)[0]}://{host}"
    assert is_local(url) is local


def test_every_key_is_documented() -> None:
    text: Any = (ROOT / "docs/reference/portal-config.md").read_text("utf-8")
    parts = {heading.strip("`[]"): rows for heading, _, rows in (part.partition("\n") for part in text.split("\n## "))}
    names = {key.name for key in keys(PortalConfig)}

    sections = {name: name.rpartition(".") for name in names}
    found = {name for name, (part, _, key) in sections.items() if f"| `{key}` |" in parts.get(part or "Top level", "")}
    assert names - found == set()


def test_the_unit_has_files_for_every_connection_and_bounds_memory() -> None:
    lines = (ROOT / "systemd/trimtab-portal.service").read_text("utf-8").splitlines()

    assert {"LimitNOFILE=65536", "MemoryMax=1G"} <= set(lines)


def test_no_version_is_admitted_that_is_known_to_be_vulnerable() -> None:
    """Why these: docs/adr/0029-supply-chain.md."""
    lines = [line.strip() for line in (ROOT / "setup.cfg").read_text("utf-8").splitlines()]
    bounds = {line for line in lines if line.startswith(("h11>", "jinja2>", "starlette>"))}

    assert bounds == {"h11>=0.16", "jinja2>=3.1.6", "starlette>=1.7"}
