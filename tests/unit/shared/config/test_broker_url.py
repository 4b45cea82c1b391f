"""The broker's URL when it is a socket of this machine; `tests/unit/shared/bus/rabbitmq` has those of AMQP."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.base.errors import InvalidValue
from shared.config import toml
from shared.config.agent import AgentConfig
from shared.config.broker_url import Address, check_encryption, parse_url


def test_a_socket_has_a_user_and_a_path() -> None:
    address = parse_url("unix://agent.host1@/run/my%20demo/bus.socket")

    assert address == Address("", 0, "", "agent.host1", "", socket="/run/my demo/bus.socket")
    assert str(address) == "/run/my demo/bus.socket (user 'agent.host1')"


@pytest.mark.parametrize("url", ["unix:///bus.socket", "unix://agent.n1@", "unix://agent.n1@host/bus.socket"])
def test_a_socket_without_user_or_path_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue, match="unix://USER@/PATH"):
        parse_url(url)


def test_a_password_of_a_socket_is_not_shown() -> None:
    with pytest.raises(InvalidValue) as refusal:
        parse_url("unix://u:secret@host/bus.socket")

    assert "secret" not in str(refusal.value)


def test_a_socket_needs_no_encryption() -> None:
    check_encryption("unix://agent.n1@/bus.socket", plain=False)


def test_configuration_files_take_a_socket(tmp_path: Path) -> None:
    url = "unix://agent.n1@/bus.socket"
    file = tmp_path / "agent.toml"
    file.write_text(f'[bus]\nurl = "{url}"\n')

    assert toml.load(file, AgentConfig).bus.url == url
