"""`trimtab broker tls` and the files of accounts: what is trusted, who reads what, and no command line."""

from __future__ import annotations

import json
import os
import ssl
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from daemons.cli.broker_tls import make
from daemons.cli.main import main
from daemons.config.controller import ControllerConfig
from shared.base.errors import Infeasible
from shared.base.secrets import completed
from shared.bus.broker_setup import (
    KEYS,
    Account,
    Rabbitmqctl,
    definitions,
    differences,
    has_well_known_password,
    password_hash,
)
from shared.bus.rabbitmq.addresses import tls_advice, tls_context
from shared.config.broker_url import Address, Tls, check_encryption, parse_url
from shared.config.toml import load
from tests.integration.debian import need_programs
from tests.unit.daemons.cli.commands.test_broker import Broker, setup

NOTHING: Mapping[str, Any] = {kind: [] for kind in KEYS}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """An authority and a certificate for two names of the broker."""
    need_programs(("openssl",), ("openssl",))
    assert make(("mq.example.org", "10.0.0.7"), tmp_path / "tls", 30)
    return tmp_path / "tls"


def shaken(folder: Path, tls: Tls, host: str) -> str:
    """How a client's handshake with the broker of a folder ends: "" well, else what it is told."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "broker.pem", folder / "broker.key")
    context, name = tls_context(Address(host, 5671, "/", "u", "p", True), tls)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [context.wrap_bio(to_client, to_server, server_hostname=name)]
    ends.append(server.wrap_bio(to_server, to_client, server_side=True))
    done = 0
    while done < 2:
        done = 0
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as problem:
                return tls_advice(problem)
            done += 1
    return ""


@pytest.mark.parametrize("host", ["mq.example.org", "10.0.0.7"])
def test_clients_that_know_the_authority_trust_the_broker_under_its_names(host: str, made: Path) -> None:
    assert shaken(made, Tls(str(made / "ca.pem")), host) == ""


def test_no_other_name_and_no_other_authority_is_trusted(made: Path, tmp_path: Path) -> None:
    make(("mq.example.org",), tmp_path / "other", 30)

    assert "another name" in shaken(made, Tls(str(made / "ca.pem")), "mq2.example.org")
    assert "another name" in shaken(made, Tls(str(made / "ca.pem")), "10.0.0.8")
    assert "no authority" in shaken(made, Tls(str(tmp_path / "other" / "ca.pem")), "mq.example.org")
    assert "no authority" in shaken(made, Tls(), "mq.example.org")


def test_a_renewed_certificate_is_trusted_by_the_same_clients(made: Path) -> None:
    authority = (made / "ca.pem").read_bytes()
    certificate = (made / "broker.pem").read_bytes()

    assert make(("mq.example.org",), made, 30) is False

    assert (made / "ca.pem").read_bytes() == authority
    assert (made / "broker.pem").read_bytes() != certificate
    assert shaken(made, Tls(str(made / "ca.pem")), "mq.example.org") == ""
    assert sorted(file.name for file in made.iterdir()) == [
        "broker.key",
        "broker.pem",
        "ca.key",
        "ca.pem",
        "rabbitmq.conf",
    ]


def test_nobody_else_reads_the_keys_or_can_put_others_there(made: Path, tmp_path: Path) -> None:
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in made.iterdir()}
    assert (modes["ca.key"], modes["broker.key"], stat.S_IMODE(made.stat().st_mode)) == (0o600, 0o600, 0o700)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o777)
    open_to_all.chmod(0o777)

    said = tls("--host", "mq", "--folder", str(open_to_all))

    assert said.exit_code == 2
    assert f"chmod go-w {open_to_all}" in said.output
    assert list(open_to_all.iterdir()) == []


def tls(*words: str) -> Result:
    return CliRunner().invoke(main, ["broker", "tls", *words])


def test_it_says_what_to_do_with_what_it_made(tmp_path: Path) -> None:
    need_programs(("openssl",), ("openssl",))
    said = tls("--host", "mq.example.org, ::1", "--folder", str(tmp_path / "tls"))
    again = tls("--host", "mq.example.org", "--folder", str(tmp_path / "tls"), "--output", "json")

    assert said.exit_code == 0, said.output
    assert "rabbitmq-server" in said.output
    assert json.loads(again.output)["new_authority"] is False
    text = (tmp_path / "tls" / "rabbitmq.conf").read_text()
    assert "listeners.tcp.local = 127.0.0.1:5672" in text
    (tmp_path / "tls" / "ca.key").unlink()
    half = tls("--host", "mq", "--folder", str(tmp_path / "tls"))
    assert (half.exit_code, "other half" in half.output) == (2, True)


@pytest.mark.parametrize("host", ["", " , ", "a b", "x\nCN=y", "-x", "a..b", "a,b;c", "x" * 300, "a/b"])
def test_a_name_that_is_none_is_refused(host: str, tmp_path: Path) -> None:
    said = tls("--host", host, "--folder", str(tmp_path / "tls"))

    assert said.exit_code == 2
    assert not (tmp_path / "tls").exists()


def test_without_openssl_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Infeasible, match="apt-get install openssl"):
        make(("mq",), tmp_path / "tls", 30)


# --- the files of accounts -------------------------------------------------------------------------------------------


def test_a_daemons_password_has_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given `--password-files`, then the section can be read by all, and the unit's credential completes it."""
    words = ["--controllers", "a", "--operators", "ann", "--host", "mq:99", "--ca-file", '/etc/"x".pem']
    said = setup(Broker(), tmp_path / "new", *words, "--password-files")

    assert said.exit_code == 0, said.output
    assert {file.name: oct(file.stat().st_mode & 0o777) for file in (tmp_path / "new").iterdir()} == dict.fromkeys(
        ["controller.a.toml", "controller.a.password", "operator.ann.toml"], "0o600"
    )
    parsed = load(tmp_path / "new" / "controller.a.toml", ControllerConfig)
    assert parsed.bus.url == "amqps://controller.a@mq:99/%2F"
    assert parsed.bus.tls.ca_file == '/etc/"x".pem'
    (tmp_path / "new" / "controller.a.password").rename(tmp_path / "new" / "trimtab-controller-password")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "new"))
    assert parse_url(completed(parsed, None).bus.url).password == "pass/1"
    assert "pass%2F2" in (tmp_path / "new" / "operator.ann.toml").read_text()


@pytest.mark.parametrize(("host", "consents"), [("mq:99", True), ("localhost:99", False), ("127.0.0.1", False)])
def test_plain_is_a_word_that_travels_with_the_account(host: str, consents: bool, tmp_path: Path) -> None:
    setup(Broker(), tmp_path, "--controllers", "a", "--host", host, "--plain", "--ca-file", "/unused.pem")

    config = load(tmp_path / "controller.a.toml", ControllerConfig)

    assert (config.bus.plain, config.bus.tls) == (consents, Tls())
    check_encryption(config.bus.url, config.bus.plain)


def test_no_link_is_followed_and_no_folder_of_others_taken(tmp_path: Path) -> None:
    """Given somebody who waits for passwords where they are to be written, then none is, and no account is made."""
    broker, target = Broker(), tmp_path / "target"
    (tmp_path / "operator.ann.toml").symlink_to(target)
    linked = setup(broker, tmp_path, "--operators", "ann")
    tmp_path.chmod(0o777)
    opened = setup(broker, tmp_path, "--operators", "ben")

    assert (linked.exit_code, opened.exit_code) == (2, 2)
    assert not target.exists()
    assert broker.held["users"] == []


def test_an_administrators_password_is_sent_to_no_other_machine_without_tls(tmp_path: Path) -> None:
    words = ["broker", "setup", "--folder", str(tmp_path), "--management", "http://mq.example.org:15672"]

    said = CliRunner().invoke(main, words, env={"TRIMTAB_BROKER_ADMIN": "admin:hunter2"})

    assert said.exit_code == 2
    assert "--plain" in said.stderr
    assert "hunter2" not in said.output


def test_the_password_that_everybody_knows_is_told(tmp_path: Path) -> None:
    broker = Broker()
    hashed = password_hash("guest", b"salt")
    broker.held["users"] = [
        {"name": "guest", "hashing_algorithm": "rabbit_password_hashing_sha256", "password_hash": hashed}
    ]

    assert "delete_user guest" in setup(broker, tmp_path, "--nodes", "n1").stderr
    broker.held["users"][0]["password_hash"] = password_hash("other", b"salt")
    assert not has_well_known_password(broker.held)
    assert "guest" not in setup(broker, tmp_path, "--nodes", "n1").stderr


@pytest.mark.parametrize("tags", ["administrator", ["management", "administrator"]])
def test_an_account_that_administers_the_broker_is_told(tags: object) -> None:
    """With it an agent could make itself a controller."""
    wanted = definitions("/", [Account("agent.n1", "p")], ["n1"])
    present = {**wanted, "users": [{**wanted["users"][0], "tags": tags}]}

    (told,) = differences(wanted, present)

    assert told.startswith("users: agent.n1: may also do what administrator")
    assert differences(wanted, {**wanted, "users": [{**wanted["users"][0], "tags": []}]}) == ()


def test_no_password_is_on_a_command_line_or_in_a_file_of_rabbitmqctls(tmp_path: Path) -> None:
    """Given a program in its place that notes what it is called with, what it finds there, and who can see that."""
    ctl = tmp_path / "rabbitmqctl"
    ctl.write_text(
        f"#!/bin/sh\nexec >>{tmp_path}/noted\ntr '\\0' ' ' </proc/$$/cmdline\nenv\n"
        '[ "$2" = import_definitions ] && cat "$3"\nexit 0\n'
    )
    ctl.chmod(0o755)
    tool = Rabbitmqctl((str(ctl),), {"PATH": os.environ["PATH"]})

    tool.apply(definitions("/", [Account("agent.n1", "hunter2")], ["n1"]))
    tool.remove_user("agent.n1")

    noted = (tmp_path / "noted").read_text()
    assert "import_definitions" in noted
    assert "password_hash" in noted
    assert "hunter2" not in noted
