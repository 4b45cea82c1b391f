"""`trimtab broker setup`: users, permissions, exchanges and queues on RabbitMQ."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
from rich.console import Group, RenderableType
from rich.text import Text

from daemons.cli.output import CommandGroup, emit, output_option
from daemons.cli.render import listing
from shared.bus.broker_setup import Account, Executor, ManagementApi, Rabbitmqctl, definitions, differences
from shared.bus.topology import (
    AGENT_USER_PREFIX,
    CONTROLLER_USER_PREFIX,
    OPERATOR_USER_PREFIX,
    OWNER_USER_PREFIX,
    USER_USER_PREFIX,
    WEB_USER_PREFIX,
)
from shared.errors import InvalidInput, Problem
from shared.model import check_name

ADMIN_VARIABLE = "TRIMTAB_BROKER_ADMIN"
PASSWORD_BYTES = 24


@dataclass(frozen=True, slots=True)
class Setup:
    """How the broker is reached and where passwords come from; given with click's context object by tests."""

    executor: Executor
    new_password: Callable[[], str] = lambda: secrets.token_urlsafe(PASSWORD_BYTES)


def _names(_: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    for name in names:
        check_name(f"--{parameter.name}", name)
    return names


def _list_option(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, default="", metavar="NAME,NAME", callback=_names, help=text)


@click.group(cls=CommandGroup)
def broker() -> None:
    """Prepare the broker."""


@broker.command()
@_list_option("--nodes", "Nodes whose agents get an account and a queue.")
@_list_option("--controllers", "Controllers that get an account.")
@_list_option("--operators", "Operators that get an account.")
@_list_option("--owners", "Owners of environments that get an account.")
@_list_option("--users", "Users of environments that get an account.")
@_list_option("--web", "Web applications whose balancers get an account to report with.")
@click.option("--vhost", default="/", show_default=True, help="The virtual host that holds it all; it is made.")
@click.option("--host", default="localhost", show_default=True, help="HOST[:PORT] of the broker in the URLs.")
@click.option("--plain", is_flag=True, help="URLs without TLS (amqp:// in place of amqps://).")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("trimtab-accounts"),
    show_default=True,
    help="Where the URL of each new account is kept, one TOML file each that only you can read.",
)
@click.option(
    "--management",
    metavar="URL",
    help=f"The management interface, with USER:PASSWORD in {ADMIN_VARIABLE}; without it rabbitmqctl on this machine.",
)
@click.option("--new-passwords", is_flag=True, help="Change the passwords of accounts that are there, too.")
@click.option("--dry-run", is_flag=True, help="Only say what is missing or different.")
@output_option
@click.pass_context
def setup(
    context: click.Context,
    nodes: tuple[str, ...],
    controllers: tuple[str, ...],
    operators: tuple[str, ...],
    owners: tuple[str, ...],
    users: tuple[str, ...],
    web: tuple[str, ...],
    vhost: str,
    host: str,
    plain: bool,
    folder: Path,
    management: str | None,
    new_passwords: bool,
    dry_run: bool,
) -> None:
    """Make the exchanges, queues, accounts and permissions; what is there already stays, with all its messages."""
    way = context.find_object(Setup) or Setup(_executor(management))
    people = [
        *(AGENT_USER_PREFIX + name for name in nodes),
        *(CONTROLLER_USER_PREFIX + name for name in controllers),
        *(OPERATOR_USER_PREFIX + name for name in operators),
        *(OWNER_USER_PREFIX + name for name in owners),
        *(USER_USER_PREFIX + name for name in users),
        *(WEB_USER_PREFIX + name for name in web),
    ]
    accounts = [Account(user, way.new_password()) for user in people]
    present = way.executor.present()
    there = set() if new_passwords else {user["name"] for user in present.get("users", ())}
    wanted = definitions(vhost, accounts, nodes)
    missing = differences(wanted, present)
    wanted["users"] = [user for user in wanted["users"] if user["name"] not in there]  # these keep their passwords
    fresh = [account for account in accounts if account.user not in there]
    written = []
    if not dry_run:
        written = _keep(folder, fresh, "amqp" if plain else "amqps", host, vhost)  # first: no password gets lost
        way.executor.apply(wanted)
        missing = differences(wanted, way.executor.present())
    values = {"done": not dry_run, "differences": list(missing), "accounts": written}
    emit(values, lambda: _for_people(values))
    if missing and not dry_run:
        click.echo("error: the broker kept something as it was; remove it there, then run this again", err=True)
        context.exit(1)


def _executor(management: str | None) -> Executor:
    if not management:
        return Rabbitmqctl()
    user, colon, password = os.environ.get(ADMIN_VARIABLE, "").partition(":")
    if not colon:
        raise InvalidInput(Problem(ADMIN_VARIABLE, "is not set", "USER:PASSWORD of an administrator of the broker"))
    return ManagementApi(management, user, password)


def _keep(folder: Path, accounts: Iterable[Account], scheme: str, host: str, vhost: str) -> list[dict[str, str]]:
    """Write one file per account; each holds a section for the configuration of its daemon, or an operator's file."""
    written = []
    try:
        for account in accounts:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = folder / f"{account.user}.toml"
            url = f"{scheme}://{account.user}:{quote(account.password, safe='')}@{host}/{quote(vhost, safe='')}"
            file.touch(mode=0o600)
            file.chmod(0o600)
            file.write_text(f'[bus]\nurl = "{url}"\n', "utf-8")
            written.append({"user": account.user, "file": str(file)})
    except OSError as error:
        raise InvalidInput(Problem("--folder", str(error), "a folder that can be written to")) from error
    return written


def _for_people(values: Mapping[str, Any]) -> RenderableType:
    lines = [Text(line) for line in values["differences"]] or [Text("the broker holds all that is needed")]
    accounts = [listing("new passwords", values["accounts"], ("user", "file"))] if values["accounts"] else []
    return Group(*lines, *accounts)
