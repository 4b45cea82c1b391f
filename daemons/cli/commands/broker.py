"""`trimtab broker`: users, permissions, exchanges and queues on RabbitMQ, and its certificate."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import click
from rich.console import Group, RenderableType
from rich.text import Text

from daemons.cli.broker_tls import tls
from daemons.cli.output import REFUSED, CommandGroup, emit, output_option, say
from daemons.cli.render import listing
from daemons.cli.secret_files import folder_of_ours, write_secret
from shared.base.addresses import is_loopback
from shared.base.errors import InvalidInput, Problem
from shared.bus.broker_setup import (
    Account,
    Executor,
    ManagementApi,
    Rabbitmqctl,
    at_limits,
    definitions,
    differences,
    has_well_known_password,
    keeping,
)
from shared.protocol.topology import (
    AGENT_USER_PREFIX,
    CONTROLLER_USER_PREFIX,
    OPERATOR_USER_PREFIX,
    OWNER_USER_PREFIX,
    PORTAL_USER_PREFIX,
    USER_USER_PREFIX,
    WEB_USER_PREFIX,
)
from shared.values.scalars import check_name

ADMIN_VARIABLE = "TRIMTAB_BROKER_ADMIN"
PASSWORD_BYTES = 24
# What systemd calls the password of a daemon, by what its account begins with; see its unit.
CREDENTIALS = {
    AGENT_USER_PREFIX: "trimtab-agent-password",
    CONTROLLER_USER_PREFIX: "trimtab-controller-password",
    PORTAL_USER_PREFIX: "trimtab-portal-password",
}
WELL_KNOWN = (
    "warning: the broker's user guest has the password that everybody knows: whoever can run a program on its machine "
    "administers it. Remove it: rabbitmqctl delete_user guest"
)


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


broker.add_command(tls)


@broker.command()
@_list_option("--nodes", "Nodes whose agents get an account and a queue.")
@_list_option("--controllers", "Controllers that get an account.")
@_list_option("--operators", "Operators that get an account.")
@_list_option("--owners", "Owners of environments that get an account.")
@_list_option("--users", "Users of environments that get an account.")
@_list_option("--portals", "Portals that get an account, to ask on behalf of those who use them.")
@_list_option("--web", "Web applications whose balancers get an account to report with.")
@click.option("--vhost", default="/", show_default=True, help="The virtual host that holds it all; it is made.")
@click.option("--host", default="localhost", show_default=True, help="HOST[:PORT] of the broker in the URLs.")
@click.option("--plain", is_flag=True, help="URLs without TLS (amqp:// in place of amqps://), whoever may listen.")
@click.option("--ca-file", default="", metavar="PATH", help="Where machines have the authority of its certificate.")
@click.option("--password-files", is_flag=True, help="Passwords of daemons in files of their own, as credentials.")
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
    portals: tuple[str, ...],
    web: tuple[str, ...],
    vhost: str,
    host: str,
    plain: bool,
    ca_file: str,
    password_files: bool,
    folder: Path,
    management: str | None,
    new_passwords: bool,
    dry_run: bool,
) -> None:
    """Make the exchanges, queues, accounts and permissions; what is there already stays, with all its messages."""
    way = context.find_object(Setup) or Setup(_executor(management, plain))
    people = [
        *(AGENT_USER_PREFIX + name for name in nodes),
        *(CONTROLLER_USER_PREFIX + name for name in controllers),
        *(OPERATOR_USER_PREFIX + name for name in operators),
        *(OWNER_USER_PREFIX + name for name in owners),
        *(USER_USER_PREFIX + name for name in users),
        *(PORTAL_USER_PREFIX + name for name in portals),
        *(WEB_USER_PREFIX + name for name in web),
    ]
    accounts = [Account(user, way.new_password()) for user in people]
    present = way.executor.present()
    there = set() if new_passwords else {user["name"] for user in present.get("users", ())}
    wanted = definitions(vhost, accounts, nodes)
    missing = differences(wanted, present)
    fresh = [account for account in accounts if account.user not in there]
    applied = keeping(wanted, present, vhost, [account.user for account in fresh])
    written = []
    if not dry_run:
        form = _Form(host, vhost, plain, ca_file, password_files)
        written = _keep(folder, fresh, form)  # first: no password gets lost
        way.executor.apply(applied)
        missing = differences(wanted, way.executor.present())
    values = {"done": not dry_run, "differences": list(missing), "accounts": written}
    emit(values, lambda: _for_people(values))
    if has_well_known_password(present):
        say(WELL_KNOWN)
    if missing and not dry_run:
        say("error: the broker kept something as it was; remove it there, then run this again")
        context.exit(1)


@broker.command()
@click.option("--vhost", default="/", show_default=True, help="The virtual host whose queues are looked at.")
@output_option
@click.pass_context
def limits(context: click.Context, vhost: str) -> None:
    """Name the accounts that are at a limit of the broker. For root on the broker's machine."""
    way = context.find_object(Rabbitmqctl) or Rabbitmqctl()
    found = [asdict(use) for use in at_limits(way.connections(), way.queues(vhost), way.transactions())]
    emit({"at_limits": found}, lambda: listing("at their limits", found, ("account", "what", "used", "most")))
    if found:
        context.exit(REFUSED)


def _executor(management: str | None, plain: bool) -> Executor:
    if not management:
        return Rabbitmqctl()
    user, colon, password = os.environ.get(ADMIN_VARIABLE, "").partition(":")
    if not colon:
        raise InvalidInput(Problem(ADMIN_VARIABLE, "is not set", "USER:PASSWORD of an administrator of the broker"))
    parts = urlsplit(management)
    if parts.scheme != "https" and not (plain or is_loopback(parts.hostname or "")):
        what = "sends an administrator's password to another machine without TLS"
        raise InvalidInput(Problem("--management", what, "https://..., or --plain, where nobody between can listen"))
    return ManagementApi(management, user, password)


@dataclass(frozen=True, slots=True)
class _Form:
    """What the files of accounts say beside the account."""

    host: str
    vhost: str
    plain: bool
    ca_file: str
    password_files: bool

    def text(self, account: Account) -> str:
        """A section for the configuration of the account's daemon, or an operator's file."""
        apart = self.keeps_apart(account)
        secret = "" if apart else ":" + quote(account.password, safe="")
        scheme = "amqp" if self.plain else "amqps"
        lines = ["[bus]", f'url = "{scheme}://{account.user}{secret}@{self.host}/{quote(self.vhost, safe="")}"']
        if apart:
            lines.append(f'password_file = "credential:{CREDENTIALS[account.user.partition(".")[0] + "."]}"')
        if self.plain and not is_loopback(urlsplit(f"//{self.host}").hostname or ""):
            lines.append("plain = true")
        if self.ca_file and not self.plain:
            lines += ["", "[bus.tls]", f"ca_file = {json.dumps(self.ca_file)}"]
        return "\n".join(lines) + "\n"

    def keeps_apart(self, account: Account) -> bool:
        """Whether the password has a file of its own."""
        return self.password_files and account.user.startswith(tuple(CREDENTIALS))


def _keep(folder: Path, accounts: Sequence[Account], form: _Form) -> list[dict[str, str]]:
    """Write what each account needs to know, in files that only their owner reads."""
    written = []
    if accounts:
        folder_of_ours("--folder", folder)
    for account in accounts:
        file = folder / f"{account.user}.toml"
        write_secret("--folder", file, form.text(account))
        if form.keeps_apart(account):
            write_secret("--folder", folder / f"{account.user}.password", account.password + "\n")
        written.append({"user": account.user, "file": str(file)})
    return written


def _for_people(values: Mapping[str, Any]) -> RenderableType:
    lines = [Text(line) for line in values["differences"]] or [Text("the broker holds all that is needed")]
    accounts = [listing("new passwords", values["accounts"], ("user", "file"))] if values["accounts"] else []
    return Group(*lines, *accounts)
