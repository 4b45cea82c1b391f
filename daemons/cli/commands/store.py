"""`trimtab store`: backup, restore, prune and upgrade the controller's store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from daemons.cli.numbers import Number
from daemons.cli.output import CommandGroup, emit, output_option, two_columns
from daemons.cli.secret_options import without_password
from daemons.config.controller import ControllerConfig
from daemons.store import Retention, SqlStore
from shared.base.errors import InvalidInput, Problem
from shared.base.secrets import CREDENTIAL, is_absent, with_password
from shared.config.toml import load

CONFIG = "/etc/trimtab/controller.toml"
CREDSTORE = "/etc/credstore"  # where systemd looks for a unit's credentials
URL_VARIABLE = "TRIMTAB_STORE_URL"


@click.group(cls=CommandGroup)
def store() -> None:
    """Back up, restore, prune and upgrade the controller's store.

    The store is the one that the controller's configuration names, or the one of a URL.
    """


def store_options(*url: str, metavar: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that say which store: `config`, `url` (by these names) and `password_file`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in (
            click.option("--config", default=CONFIG, show_default=True, help="The controller's configuration file."),
            click.option(
                *url,
                envvar=URL_VARIABLE,
                metavar=metavar,
                callback=without_password,
                help=f"The store itself; a URL with a password only as the variable {URL_VARIABLE}.",
            ),
            click.option(
                "--password-file",
                metavar="FILE",
                help="Where the store's password is, instead of where the configuration says.",
            ),
        ):
            command = option(command)
        return command

    return decorate


def _store_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say which store; it is handed the open store first."""

    @wraps(command)
    def run(config: str, url: str | None, password_file: str | None, **options: Any) -> None:
        with _opened(config, url, password_file) as opened:
            command(opened, **options)

    return output_option(store_options("--url")(run))


@dataclass(frozen=True, slots=True)
class _Opened:
    """The store, and how long its history is kept: as the configuration says that names it, or as by default."""

    store: SqlStore
    keep: Retention


@contextmanager
def _opened(config: str, url: str | None, password_file: str | None) -> Iterator[_Opened]:
    if url:
        opened = _Opened(SqlStore(whole_url(url, password_file or "")), Retention())
    else:
        file = load(config, ControllerConfig).store
        whole = whole_url(file.url, password_file or file.password_file)
        opened = _Opened(SqlStore(whole), Retention(**asdict(file.retention)))
    try:
        yield opened
    finally:
        opened.store.close()


def whole_url(url: str, place: str) -> str:
    """A store's URL with the password of a place ("": it is whole). Raises InvalidInput; for a credential that nobody
    has passed to this process it says what to do by hand."""
    if is_absent(place):
        by_hand = f"as root: --password-file {CREDSTORE}/{place.removeprefix(CREDENTIAL)}"
        raise InvalidInput(Problem("store.password_file", f"is {place}, which only units are passed", by_hand))
    return with_password("store", url, place)


@store.command()
@click.argument("file", type=click.Path(path_type=Path))
@_store_options
def backup(opened: _Opened, file: Path) -> None:
    """Write everything that the store holds into the new FILE, while it is in use.

    FILE is a SQLite database, of a PostgreSQL store too, and can be restored into either.
    """
    counts = opened.store.backup(file)
    emit({"file": str(file), "rows": counts}, lambda: two_columns(f"{file}: rows", counts))


@store.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace everything that the store holds.")
@_store_options
def restore(opened: _Opened, file: Path, force: bool) -> None:
    """Put the backup FILE into an empty store; the controller then only observes until it is told to act."""
    restored = opened.store.restore(file, force)
    shown = {**restored.rows, "term": restored.term}
    emit({"rows": restored.rows, "term": restored.term}, lambda: two_columns(f"restored from {file}", shown))


_snapshots_mib = click.option(
    "--snapshots-mib", type=Number(0.0, 1e9), help="MiB of what decisions were computed from; 0: any number."
)


def _days(name: str, what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(f"--{name.replace('_', '-')}-days", type=Number(0.0, 1e6), help=f"Days that {what}.")


@store.command()
@_days("events", "events are kept")
@_days("actions", "actions are kept")
@_days("decisions", "decisions are kept; the newest always is")
@_days("jobs", "a job is kept after it is over")
@_days("fine_samples", "samples of five minutes are kept before they become hourly")
@_days("samples", "samples are kept at all")
@_days("costs", "what cycles cost is kept")
@_days("snapshots", "what decisions were computed from is kept")
@_snapshots_mib
@_days("audit", "who asked for what is kept")
@_days("notifications", "what was told to somebody is kept")
@_store_options
def prune(opened: _Opened, **kept: float | None) -> None:
    """Delete history that is older or more than is to be kept.

    What no option says is as in `[store.retention]` of the configuration, or as by default for the store of a URL.
    """
    said = {name: value for name, value in kept.items() if value is not None}
    pruned = asdict(opened.store.prune(replace(opened.keep, **said)))
    emit({"deleted": pruned}, lambda: two_columns("deleted", pruned))


@store.command()
@click.option(
    "--backup-folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where a backup is written before tables change; none otherwise.",
)
@_store_options
def upgrade(opened: _Opened, backup_folder: Path | None) -> None:
    """Make the store's tables, or bring them to this program's version.

    Where that changes tables, whoever leads has lost the lead: a controller of the older version writes nothing more.
    """
    made = opened.store.backup_before_upgrade(backup_folder) if backup_folder else None
    before, after = opened.store.upgrade()
    shown = {"backup": str(made)} if made else {}
    emit(
        {"from": before, "to": after, **shown}, lambda: two_columns("tables", {"before": before, "now": after, **shown})
    )
