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
    "warning: the broker's user guest has its well-known password: every program on its machine can administer the "
    "broker. Remove the user: rabbitmqctl delete_user guest"
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
    """Create accounts, queues and permissions on the broker."""


broker.add_command(tls)


@broker.command()
@_list_option("--nodes", "Create an account and a queue for the agents of these nodes.")
@_list_option("--controllers", "Create accounts for these controllers.")
@_list_option("--operators", "Create accounts for these operators.")
@_list_option("--owners", "Create accounts for these owners of environments.")
@_list_option("--users", "Create accounts for these users of environments.")
@_list_option("--portals", "Create accounts for these portals, which ask on behalf of their users.")
@_list_option("--web", "Create accounts for the load balancers of these web applications.")
@click.option("--vhost", default="/", show_default=True, help="Virtual host; created if missing.")
@click.option("--host", default="localhost", show_default=True, help="HOST[:PORT] of the broker in the URLs.")
@click.option("--plain", is_flag=True, help="Write URLs without TLS (amqp:// instead of amqps://).")
@click.option("--ca-file", default="", metavar="PATH", help="Path of the certificate authority on every machine.")
@click.option(
    "--password-files",
    is_flag=True,
    help="Write the passwords of daemons into separate files, for systemd credentials.",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("trimtab-accounts"),
    show_default=True,
    help="Folder for the files of new accounts, which only you can read.",
)
@click.option(
    "--management",
    metavar="URL",
    help=f"Management interface, with USER:PASSWORD in {ADMIN_VARIABLE}.  [default: rabbitmqctl on this machine]",
)
@click.option("--new-passwords", is_flag=True, help="Also change the passwords of the named accounts that exist.")
@click.option("--dry-run", is_flag=True, help="Show what is missing or different; change nothing.")
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
    """Create exchanges, queues, accounts and permissions. What exists stays, with all its messages.

    The URL of each new account is written into a file of its own in --folder.

    \b
    Example:
      trimtab broker setup --nodes n1,n2 --controllers a --operators anna --host broker.example
    """
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
        say("error: the broker did not change something that differs; remove it there, then run this again")
        context.exit(1)


@broker.command()
@click.option("--vhost", default="/", show_default=True, help="Virtual host whose queues are checked.")
@output_option
@click.pass_context
def limits(context: click.Context, vhost: str) -> None:
    """List accounts that are at a limit of the broker. Run it as root on the broker's machine.

    Exit status 1 when one is.

    \b
    Example:
      trimtab broker limits
    """
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
        """Return a section for the configuration of the account's daemon, or an operator's file."""
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
        """Return whether the password is in a separate file."""
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
    lines = [Text(line) for line in values["differences"]] or [Text("the broker has everything that is needed")]
    accounts = [listing("new passwords", values["accounts"], ("user", "file"))] if values["accounts"] else []
    return Group(*lines, *accounts)
