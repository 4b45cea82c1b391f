"""`trimtab broker setup` on a broker that takes what it is given, as the real one does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from daemons.cli.commands.broker import Setup
from daemons.cli.main import main
from shared.bus.broker_setup import KEYS, Definitions
from shared.config.broker_url import parse_url


class Broker:
    """Holds definitions; those of a name that is there replace it, except that queues stay as they are."""

    def __init__(self) -> None:
        self.held: Definitions = {kind: [] for kind in KEYS}

    def apply(self, wanted: Mapping[str, Any]) -> None:
        for kind, keys in KEYS.items():
            there = {tuple(one[key] for key in keys): one for one in self.held[kind]}
            for one in wanted[kind]:
                key = tuple(one[key] for key in keys)
                there[key] = there[key] if kind == "queues" and key in there else one
            self.held[kind] = list(there.values())

    def present(self) -> Definitions:
        return self.held

    def remove_user(self, user: str) -> None:
        self.held["users"] = [one for one in self.held["users"] if one["name"] != user]

    def remove_queue(self, vhost: str, queue: str) -> None:
        self.held["queues"] = [one for one in self.held["queues"] if (one["vhost"], one["name"]) != (vhost, queue)]


@pytest.fixture
def broker() -> Broker:
    return Broker()


def setup(broker: Broker, folder: Path, *words: str) -> Result:
    numbers = count(1)
    access = Setup(broker, lambda: f"pass/{next(numbers)}")
    arguments = ["broker", "setup", "--folder", str(folder), "--output", "json", *words]
    return CliRunner().invoke(main, arguments, obj=access)


def names(broker: Broker, kind: str) -> set[str]:
    return {one["name"] for one in broker.held[kind]}


def test_it_makes_everything_once(broker: Broker, tmp_path: Path) -> None:
    """Given an empty broker, then accounts, queues and exchanges are made; a second run changes no password."""
    words = ["--nodes", "n1, n2", "--controllers", "a", "--operators", "anna", "--vhost", "lab", "--host", "mq:5673"]
    outcome = setup(broker, tmp_path, *words)
    assert outcome.exit_code == 0, outcome.output
    assert names(broker, "users") == {"agent.n1", "agent.n2", "controller.a", "operator.anna"}
    assert names(broker, "queues") == {"agent.n1", "agent.n2", "controller", "dead"}
    users = list(broker.held["users"])
    again = setup(broker, tmp_path, *words)
    assert json.loads(again.stdout) == {"done": True, "differences": [], "accounts": []}
    assert broker.held["users"] == users
    more = setup(broker, tmp_path, "--nodes", "n1,n3", "--vhost", "lab")
    assert [account["user"] for account in json.loads(more.stdout)["accounts"]] == ["agent.n3"]
    fresh = setup(broker, tmp_path, "--nodes", "n1", "--vhost", "lab", "--new-passwords")
    assert [account["user"] for account in json.loads(fresh.stdout)["accounts"]] == ["agent.n1"]
    assert broker.held["users"] != users


def test_owners_and_users_of_environments_may_ask_and_read_their_answers_alone(broker: Broker, tmp_path: Path) -> None:
    assert setup(broker, tmp_path, "--owners", "kim", "--users", "joe,ann").exit_code == 0
    assert names(broker, "users") == {"owner.kim", "user.joe", "user.ann"}
    kim = next(one for one in broker.held["permissions"] if one["user"] == "owner.kim")
    own = r"reply\.owner\.kim(\.[^.]+)?"
    assert (kim["configure"], kim["read"]) == (f"^{own}$", f"^{own}$")
    assert kim["write"] == r"^(trimtab\.requests)$"


def test_a_web_application_gets_an_account_for_its_measurements_alone(broker: Broker, tmp_path: Path) -> None:
    assert setup(broker, tmp_path, "--web", "shop").exit_code == 0
    assert names(broker, "users") == {"web.shop"}
    assert names(broker, "queues") == {"controller", "dead"}
    (permission,) = broker.held["permissions"]
    assert (permission["configure"], permission["write"], permission["read"]) == ("^$", r"^(trimtab\.reports)$", "^$")
    (limit,) = broker.held["topic_permissions"]
    assert (limit["exchange"], limit["write"]) == ("trimtab.reports", r"^(web\.shop)$")


def test_passwords_are_kept_in_files_alone(broker: Broker, tmp_path: Path) -> None:
    outcome = setup(broker, tmp_path / "new", "--operators", "anna", "--host", "mq:5673", "--vhost", "a b")
    (account,) = json.loads(outcome.stdout)["accounts"]
    file = Path(account["file"])
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert "pass/" not in outcome.output
    url = file.read_text("utf-8").split('"')[1]
    address = parse_url(url)
    assert (address.user, address.password, address.host, address.port) == ("operator.anna", "pass/1", "mq", 5673)
    assert (address.vhost, address.encrypted) == ("a b", True)
    plain = setup(broker, tmp_path, "--operators", "ben", "--plain")
    assert 'url = "amqp://operator.ben:pass%2F1@localhost/%2F"' in (tmp_path / "operator.ben.toml").read_text("utf-8")
    assert plain.exit_code == 0


def test_a_dry_run_changes_nothing(broker: Broker, tmp_path: Path) -> None:
    outcome = setup(broker, tmp_path / "new", "--nodes", "n1", "--dry-run")
    found = json.loads(outcome.stdout)
    assert (outcome.exit_code, found["done"], found["accounts"]) == (0, False, [])
    assert "users: agent.n1 is missing" in found["differences"]
    assert not (tmp_path / "new").exists()
    assert not names(broker, "users")


def test_a_queue_of_another_shape_is_named(broker: Broker, tmp_path: Path) -> None:
    setup(broker, tmp_path, "--nodes", "n1")
    for queue in broker.held["queues"]:
        queue["arguments"] = {}
    outcome = setup(broker, tmp_path, "--nodes", "n1")
    assert outcome.exit_code == 1
    assert any("agent.n1" in line and "arguments" in line for line in json.loads(outcome.stdout)["differences"])


@pytest.mark.parametrize("words", [("--nodes", "a.b"), ("--operators", "x y"), ("--nodes",)])
def test_wrong_usage(broker: Broker, tmp_path: Path, words: tuple[str, ...]) -> None:
    assert setup(broker, tmp_path, *words).exit_code == 2


def test_the_management_interface_needs_an_administrator(tmp_path: Path) -> None:
    arguments = ["broker", "setup", "--folder", str(tmp_path), "--management", "http://127.0.0.1:1"]
    missing = CliRunner().invoke(main, arguments, env={"TRIMTAB_BROKER_ADMIN": ""})
    assert (missing.exit_code, "USER:PASSWORD" in missing.stderr) == (2, True)
    silent = CliRunner().invoke(main, arguments, env={"TRIMTAB_BROKER_ADMIN": "admin:x"})
    assert (silent.exit_code, "does not answer" in silent.stderr) == (1, True)


def test_a_folder_that_cannot_be_written(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = setup(broker, tmp_path / "file" / "below", "--operators", "anna")
    assert outcome.exit_code == 2
    assert not names(broker, "users")
