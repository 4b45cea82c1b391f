"""Secrets in files: which are taken, which are refused and how, and that none is ever shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from agents.service import main as agents_main
from daemons.cli.commands.store import whole_url
from daemons.cli.connection import Access, OperatorBus, operator_config
from daemons.cli.main import main
from daemons.config.controller import ControllerConfig
from daemons.service import main as daemons_main
from shared.base.addresses import is_loopback
from shared.base.errors import InvalidInput, InvalidValue
from shared.base.secrets import SECRET_BYTES_MAX, completed, fault_of, secret_of, with_password
from shared.bus.rabbitmq.addresses import tls_context
from shared.config.broker_url import Address, Tls, check_encryption, parse_url
from shared.config.toml import parse
from shared.ports.bus import Bus
from shared.runtime import startup
from tests.integration.debian import need_programs
from tests.integration.private_broker import write_certificates

SECRET = "hunt/er2 @ö"


def kept(folder: Path, content: str | bytes = SECRET + "\n", mode: int = 0o640) -> Path:
    file = folder / "password"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    file.chmod(mode)
    return file


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640, 0o440])
def test_a_file_that_only_its_owner_and_group_read_is_taken(mode: int, tmp_path: Path) -> None:
    assert secret_of("bus.password_file", str(kept(tmp_path, mode=mode))) == SECRET


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o601, 0o660, 0o620, 0o666, 0o777])
def test_a_file_that_others_can_reach_is_refused_with_what_mends_it(mode: int, tmp_path: Path) -> None:
    """Given a file of this user, then its name and the command are told, and nothing of what is in it."""
    file = kept(tmp_path, mode=mode)
    expected = f"chmod {'0640' if os.geteuid() == 0 else '0600'} {file}"

    with pytest.raises(InvalidInput) as refused:
        secret_of("bus.password_file", str(file))

    (problem,) = refused.value.problems
    assert problem.where == f"bus.password_file: {file}"
    assert problem.expected == expected
    assert "hunt" not in str(refused.value)
    file.chmod(0o640)
    assert secret_of("bus.password_file", str(file)) == SECRET


def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Whoever owns it can change it."""
    values = list(os.stat(kept(tmp_path)))
    values[4] = os.geteuid() + 1

    wrong = fault_of("/etc/x", os.stat_result(values))

    assert (wrong is None) is (os.geteuid() == 0)
    assert wrong is None or "another user" in wrong.what


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"two\nlines\n", b"a\0b", b"\xff\xfe", b"tab\tbed", b"x" * (SECRET_BYTES_MAX + 1), b"\n\n"],
)
def test_what_is_no_password_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is not a password"):
        secret_of("store.password_file", str(kept(tmp_path, content)))


@pytest.mark.parametrize("content", [b"x" * SECRET_BYTES_MAX, b"x" * SECRET_BYTES_MAX + b"\r\n", b" spaces \n"])
def test_only_the_end_of_the_line_is_cut(content: bytes, tmp_path: Path) -> None:
    assert secret_of("k", str(kept(tmp_path, content))) == content.decode().rstrip("\r\n")


def test_no_file_a_folder_or_a_pipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"bus\.password_file: .*nothing: No such file"):
        secret_of("bus.password_file", str(tmp_path / "nothing"))
    with pytest.raises(InvalidInput, match="directory"):
        secret_of("bus.password_file", str(tmp_path))
    wrong = fault_of("/dev/null")
    assert wrong is not None
    assert "no regular file" in wrong.what


def test_a_file_of_the_users_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    kept(tmp_path, mode=0o600)

    assert secret_of("bus.password_file", "~/password") == SECRET


def test_a_credential_is_found_where_systemd_put_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path, mode=0o400)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    with pytest.raises(InvalidInput, match="CREDENTIALS_DIRECTORY is not set"):
        secret_of("bus.password_file", "credential:password")

    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))

    assert secret_of("bus.password_file", "credential:password") == SECRET


@pytest.mark.parametrize(
    "url",
    ["amqps://agent.n1@broker:99/v%2Fh", "amqp://agent.n1@[::1]/", "postgresql+psycopg://agent.n1@/db?host=/run/pg"],
)
def test_a_password_joins_its_url(url: str, tmp_path: Path) -> None:
    whole = with_password("bus", url, str(kept(tmp_path)))

    quoted = "hunt%2Fer2%20%40%C3%B6"
    assert whole == url.replace("agent.n1@", f"agent.n1:{quoted}@")
    if url.startswith("amqp"):
        assert parse_url(whole).password == SECRET


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("amqps://agent.n1:other@broker/", "bus.url: has a password, and bus.password_file is given"),
        ("amqps://broker/", "bus.url: names no user"),
        ("", "bus.url: names no user"),
    ],
)
def test_a_url_that_wants_no_password_is_refused(url: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=told) as refused:
        with_password("bus", url, str(kept(tmp_path)))

    assert "other@" not in str(refused.value)


def test_every_section_is_completed_and_every_problem_told(tmp_path: Path) -> None:
    file = kept(tmp_path)
    text = '[bus]\nurl = "amqps://controller.a@b/"\npassword_file = "{0}"\n'
    text += '[store]\nurl = "postgresql://t@db/x"\npassword_file = "{0}"\n'

    config = completed(parse(text.format(file), ControllerConfig), None)

    assert (config.bus.password_file, config.store.password_file) == ("", "")
    assert parse_url(config.bus.url).password == SECRET
    assert config.store.url == "postgresql://t:hunt%2Fer2%20%40%C3%B6@db/x"
    assert "hunt" not in repr(config)
    with pytest.raises(InvalidInput) as refused:
        completed(parse(text.format("/nowhere"), ControllerConfig), None)
    wheres = [problem.where for problem in refused.value.problems]
    assert wheres == ["bus.password_file: /nowhere", "store.password_file: /nowhere"]


def test_only_the_sections_that_are_named_are_completed(tmp_path: Path) -> None:
    text = '[bus]\nurl = "amqps://controller.a@b/"\npassword_file = "/nowhere"\n'
    text += f'[store]\nurl = "postgresql://t@db/x"\npassword_file = "{kept(tmp_path)}"\n'

    config = completed(parse(text, ControllerConfig), None, sections=("store",))

    assert config.store.url == "postgresql://t:hunt%2Fer2%20%40%C3%B6@db/x"
    assert (config.bus.url, config.bus.password_file) == ("amqps://controller.a@b/", "/nowhere")


@pytest.mark.parametrize("place", ["password", "credential:", "credential:../x", "../x", "credential:a/b"])
def test_a_place_is_a_path_or_the_name_of_a_credential(place: str) -> None:
    with pytest.raises(InvalidInput, match=r"bus\.password_file"):
        parse(f'[bus]\npassword_file = "{place}"\n', ControllerConfig)


@pytest.mark.parametrize("daemon", [agents_main.main, daemons_main.main])
@pytest.mark.parametrize("more", [(), ("--check",)])
def test_a_daemon_refuses_its_own_file_where_it_holds_a_password_and_others_read_it(
    daemon: object, more: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2 and the command that mends it; a file without a password may be read by all."""
    assert callable(daemon)
    user = "agent.n1" if daemon is agents_main.main else "controller.a"
    file = tmp_path / "daemon.toml"
    file.write_text(f'[bus]\nurl = "amqps://{user}:hunter2@broker/"\n')
    file.chmod(0o644)

    assert daemon(["--config", str(file), *more]) == 2

    told = capsys.readouterr().err
    assert f" {file}" in told
    assert "chmod 06" in told
    assert "hunter2" not in told


def test_a_unit_is_looked_at_without_its_credentials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--check` by hand has none; to begin needs them."""
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    file = tmp_path / "controller.toml"
    file.write_text('[bus]\nurl = "amqps://controller.a@broker/"\npassword_file = "credential:broker"\n')

    assert daemons_main.main(["--config", str(file), "--check"]) == 0
    assert daemons_main.main(["--config", str(file)]) == 2
    assert "LoadCredential=" in capsys.readouterr().err


# --- the operator's command ------------------------------------------------------------------------------------------


def test_the_operators_file_is_held_to_the_same(tmp_path: Path) -> None:
    file = tmp_path / "operator.toml"
    file.write_text('[bus]\nurl = "amqps://operator.ann:hunter2@broker/"\n')
    file.chmod(0o644)
    with pytest.raises(InvalidInput, match=f"chmod 06.0 {file}"):
        operator_config(None, file, None)
    file.write_text(f'[bus]\nurl = "amqps://operator.ann@broker/"\npassword_file = "{kept(tmp_path)}"\n')

    assert parse_url(operator_config(None, file, None).bus.url).password == SECRET
    other = operator_config("amqps://operator.ben@elsewhere/", file, 3.0)  # its own name, the file's password
    assert (parse_url(other.bus.url).user, parse_url(other.bus.url).password) == ("operator.ben", SECRET)
    assert operator_config("amqps://a:b@c/", file, None).bus.url == "amqps://a:b@c/"


def test_the_stores_commands_by_hand_say_where_the_password_of_a_unit_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And take it from there; as a unit they find it by themselves."""
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    file = tmp_path / "controller.toml"
    file.write_text('[store]\nurl = "postgresql://t@db/x"\npassword_file = "credential:store-password"\n')
    said = CliRunner().invoke(main, ["store", "backup", str(tmp_path / "b"), "--config", str(file)])
    assert said.exit_code == 2
    assert "as root: --password-file /etc/credstore/store-password" in said.output
    secret = kept(tmp_path, b"hunt\n")
    assert whole_url("postgresql://t@db/x", str(secret)) == "postgresql://t:hunt@db/x"
    given = CliRunner().invoke(main, ["store", "backup", "b", "--config", str(file), "--password-file", "/nowhere"])
    assert "store.password_file: /nowhere" in given.output
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(secret.parent))
    assert whole_url("postgresql://t@db/x", f"credential:{secret.name}") == "postgresql://t:hunt@db/x"


@pytest.mark.parametrize("words", [["status"], ["store", "upgrade"]])
def test_a_password_on_the_command_line_is_refused(words: list[str]) -> None:
    """Before anybody is asked; the variable is for the user's own processes."""

    def nobody(_bus: OperatorBus, _limit_s: float) -> Bus:
        raise AssertionError("nobody is to be asked")

    said = CliRunner().invoke(main, [*words, "--url", "amqps://operator.a:hunter2@b/"], obj=Access(nobody))

    assert said.exit_code == 2
    assert "--url: has a password" in said.output
    assert "TRIMTAB_" in said.output
    assert "hunter2" not in said.output


# --- TLS ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "LOCALHOST.", "[::1]"])
def test_this_machine_needs_no_tls(host: str) -> None:
    check_encryption(f"amqp://agent.n1:p@{host}/", plain=False)


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "broker", "localhost.example.org", "[fe80::1]", "0.0.0.0", "127.0.0.1.nip"]
)
def test_another_machine_needs_tls_or_somebodys_word(host: str) -> None:
    """Told with the key that gives the consent."""
    url = f"amqp://agent.n1:hunter2@{host}/"

    with pytest.raises(InvalidInput, match=r"bus\.plain = true") as refused:
        startup.broker(url)

    assert "hunter2" not in str(refused.value)
    assert not is_loopback(parse_url(url).host)
    assert callable(startup.broker(url, plain=True))
    assert callable(startup.broker(url.replace("amqp:", "amqps:")))


def test_the_operator_needs_tls_too() -> None:
    with pytest.raises(InvalidInput, match=r"bus\.plain"):
        Access().connect(OperatorBus("amqp://operator.ann:hunter2@broker/"), 5.0)


def test_a_key_that_others_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_programs(("openssl",), ("openssl",))
    write_certificates(tmp_path)
    address = Address("localhost", 5671, "/", "agent.n1", "p", True)
    tls = Tls(str(tmp_path / "ca.pem"), str(tmp_path / "server.pem"), "credential:server.key")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (tmp_path / "server.key").chmod(0o644)
    with pytest.raises(InvalidValue, match=f"chmod 06.0 {tmp_path}/server.key"):
        tls_context(address, tls)
    (tmp_path / "server.key").chmod(0o600)

    assert tls_context(address, tls)[1] == "localhost"
