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
from daemons.cli.secret_options import STORE_URL_VARIABLE, without_password
from daemons.config.controller import ControllerConfig
from daemons.store import Retention, SqlStore
from shared.base.errors import InvalidInput, Problem
from shared.base.secrets import CREDENTIAL, is_absent, with_password
from shared.config.toml import load

CONFIG = "/etc/trimtab/controller.toml"
CREDSTORE = "/etc/credstore"  # where systemd looks for a unit's credentials
URL_VARIABLE = STORE_URL_VARIABLE


@click.group(cls=CommandGroup)
def store() -> None:
    """Back up, restore, prune and upgrade the controller's store.

    The store is the one that the controller's configuration names, or that of --url.
    """


def store_options(*url: str, metavar: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that say which store: `config`, `url` (by these names) and `password_file`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in (
            click.option("--config", default=CONFIG, show_default=True, help="Configuration file of the controller."),
            click.option(
                *url,
                envvar=URL_VARIABLE,
                metavar=metavar,
                callback=without_password,
                help=f"URL of the store. Pass a URL with a password in {URL_VARIABLE} only.",
            ),
            click.option(
                "--password-file",
                metavar="FILE",
                help="File with the store's password, instead of the one that the configuration names.",
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
    """Return a store's URL with the password from `place` ("": the URL is complete). Raises InvalidInput; for a
    credential that was not passed to this process, it names the manual alternative."""
    if is_absent(place):
        by_hand = f"as root: --password-file {CREDSTORE}/{place.removeprefix(CREDENTIAL)}"
        raise InvalidInput(Problem("store.password_file", f"is {place}, which only units are passed", by_hand))
    return with_password("store", url, place)


@store.command()
@click.argument("file", type=click.Path(path_type=Path))
@_store_options
def backup(opened: _Opened, file: Path) -> None:
    """Write all rows of the store into the new FILE. The controller may keep running.

    FILE is a SQLite database, also for a PostgreSQL store, and can be restored into either.

    \b
    Example:
      trimtab store backup controller-backup.db
    """
    counts = opened.store.backup(file)
    emit({"file": str(file), "rows": counts}, lambda: two_columns(f"{file}: rows", counts))


@store.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace all rows of a store that is not empty.")
@_store_options
def restore(opened: _Opened, file: Path, force: bool) -> None:
    """Restore the backup FILE into an empty store. The controller then only observes until `trimtab unpause`.

    \b
    Example:
      trimtab store restore controller-backup.db
    """
    restored = opened.store.restore(file, force)
    shown = {**restored.rows, "term": restored.term}
    emit({"rows": restored.rows, "term": restored.term}, lambda: two_columns(f"restored from {file}", shown))


_snapshots_mib = click.option(
    "--snapshots-mib", type=Number(0.0, 1e9), help="Keep this many MiB of inputs of decisions; 0: all."
)


def _days(name: str, what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(f"--{name.replace('_', '-')}-days", type=Number(0.0, 1e6), help=f"Keep {what} this many days.")


@store.command()
@_days("events", "events")
@_days("actions", "actions")
@_days("decisions", "decisions (the newest always)")
@_days("jobs", "jobs that are over")
@_days("fine_samples", "samples of five minutes, which then become hourly,")
@_days("samples", "all samples")
@_days("costs", "costs of cycles")
@_days("snapshots", "inputs of decisions")
@_snapshots_mib
@_days("audit", "the audit record")
@_days("notifications", "notifications")
@_store_options
def prune(opened: _Opened, **kept: float | None) -> None:
    """Delete history that is older or larger than the limits.

    Limits that no option gives are those of `[store.retention]` of the configuration, or the defaults for the store of
    a URL.

    \b
    Example:
      trimtab store prune --events-days 7
    """
    said = {name: value for name, value in kept.items() if value is not None}
    pruned = asdict(opened.store.prune(replace(opened.keep, **said)))
    emit({"deleted": pruned}, lambda: two_columns("deleted", pruned))


@store.command()
@click.option(
    "--backup-folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Write a backup into this folder before tables change.  [default: no backup]",
)
@_store_options
def upgrade(opened: _Opened, backup_folder: Path | None) -> None:
    """Create the store's tables, or upgrade them to this program's version.

    An upgrade that changes tables ends the current leadership, so a controller of the older version writes no more.

    \b
    Example:
      trimtab store upgrade --backup-folder /var/backups/trimtab
    """
    made = opened.store.backup_before_upgrade(backup_folder) if backup_folder else None
    before, after = opened.store.upgrade()
    shown = {"backup": str(made)} if made else {}
    emit(
        {"from": before, "to": after, **shown}, lambda: two_columns("tables", {"before": before, "now": after, **shown})
    )
