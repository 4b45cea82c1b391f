"""`trimtab-portal account`: creates and repairs accounts on the machine of the portal's store."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from daemons.access.identity import Role
from daemons.config.portal import PortalConfig
from daemons.portal.auth.accounts import LINK_S, PREFIX, Accounts, State
from daemons.portal.auth.audit_log import Entry, Log
from daemons.portal.auth.passwords import check, hashed
from daemons.portal.auth.schema import Base
from daemons.portal.config import origin_of
from shared.base import secrets
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput, PermanentError, Problem, TransientError
from shared.base.printable import lines
from shared.config import toml
from shared.runtime.logs import configure

DEFAULT_CONFIG = "/etc/trimtab-portal/portal.toml"
REFUSED, UNREADABLE = 1, 2
HERE = "this machine"

config_option = click.option(
    "--config", type=click.Path(path_type=Path), default=DEFAULT_CONFIG, show_default=True, help="The portal's file."
)


def _text(_: click.Context, __: click.Parameter, value: str) -> str:
    """Reject an argument that is not UTF-8: it is not a name, and no store accepts it."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise click.BadParameter(f"{value!r} is not UTF-8") from error
    return value


name_argument = click.argument("name", callback=_text)


@dataclass(frozen=True, slots=True)
class _Open:
    config: PortalConfig
    accounts: Accounts
    log: Log

    def note(self, what: str, subject: str) -> None:
        """Keep in the portal's log what was done."""
        self.log.note(Entry(SystemClock().now_s(), HERE, "", what=what, subject=subject))


@contextmanager
def _opened(file: Path) -> Iterator[_Open]:
    # run by hand, the command gets no credentials, and it needs no broker and no history
    config = secrets.completed(toml.load(file, PortalConfig), file, sections=("store",))
    base = Base(config.store.url)
    try:
        base.open()
        yield _Open(config, Accounts(base), Log(base, config.store.log_days * 86_400.0))
    finally:
        base.close()


def _password(name: str, file: Path | None) -> str:
    if file is not None:
        password = secrets.secret_of("--password-file", str(file.absolute()))
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    check(password, name)
    return str(password)


@click.group()
def account() -> None:
    """Create and repair accounts of the portal."""


@account.command()
@name_argument
@click.option("--role", type=click.Choice([role.value for role in PREFIX]), required=True, help="Role of the account.")
@click.option(
    "--password-file",
    type=click.Path(path_type=Path),
    help="File with the password. Without it, the command asks for one.",
)
@config_option
def add(name: str, role: str, password_file: Path | None, config: Path) -> None:
    """Create an account that can log in immediately."""
    with _opened(config) as it:
        password = hashed(_password(name, password_file))
        it.accounts.add(name, Role(role), password, State.ACTIVE, SystemClock().now_s())
        it.note("account-add", name)
    click.echo(f"{name} can log in as {role}.")


@account.command(name="list")
@config_option
def show(config: Path) -> None:
    """List the accounts."""
    with _opened(config) as it:
        for each in it.accounts.all():
            click.echo(f"{each.name}\t{each.role.value}\t{each.state.value}")


@account.command()
@name_argument
@config_option
def link(name: str, config: Path) -> None:
    """Print a link that sets a new password once."""
    with _opened(config) as it:
        word = it.accounts.make_link(name, SystemClock().now_s())
        it.note("account-link", name)
        click.echo(f"{origin_of(it.config.public_url)}/link/{word}")
    click.echo(f"It works once, within {LINK_S / 3600:g} hours.", err=True)


@account.command()
@name_argument
@config_option
def lock(name: str, config: Path) -> None:
    """End all sessions of an account and block logins until it is unlocked."""
    _set(name, State.LOCKED, config, "account-lock")


@account.command()
@name_argument
@config_option
def unlock(name: str, config: Path) -> None:
    """Allow a locked account, or a requested one, to log in."""
    _set(name, State.ACTIVE, config, "account-unlock")


@account.command()
@name_argument
@config_option
def reset_second_factor(name: str, config: Path) -> None:
    """Delete the second factor of an account and end its sessions. A provider sets up a new one at the next login."""
    with _opened(config) as it:
        if not it.accounts.forget_factor(name):
            raise _unknown(name)
        it.note("second-factor-reset", name)


@account.command()
@name_argument
@config_option
def remove(name: str, config: Path) -> None:
    """Delete an account."""
    with _opened(config) as it:
        if not it.accounts.remove(name):
            raise _unknown(name)
        it.note("account-remove", name)


def _set(name: str, state: State, config: Path, what: str) -> None:
    with _opened(config) as it:
        if not it.accounts.set_state(name, state):
            raise _unknown(name)
        it.note(what, name)


def _unknown(name: str) -> InvalidInput:
    return InvalidInput(Problem("NAME", f"account {name!r} does not exist", "one that `account list` shows"))


def account_command(arguments: Sequence[str]) -> int:
    """Run it; the exit status: 0 done, 1 refused, 2 the configuration or an argument cannot be used."""
    configure("warning", json=False)
    try:
        account.main(list(arguments), "trimtab-portal account", standalone_mode=False)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        click.echo(lines(shown.getvalue()), nl=False, err=True)
        return UNREADABLE
    except click.Abort:
        return REFUSED
    except InvalidInput as error:
        print(lines(str(error)), file=sys.stderr)
        return UNREADABLE
    except (PermanentError, TransientError) as error:
        print(lines(str(error)), file=sys.stderr)
        return REFUSED
    return 0
