"""`trimtab store`: backup, restore, prune and upgrade the controller's store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from daemons.cli.output import CommandGroup, emit, output_option, two_columns
from daemons.store import Retention, SqlStore
from shared.config import ControllerConfig, load

CONFIG = "/etc/trimtab/controller.toml"
URL_VARIABLE = "TRIMTAB_STORE_URL"


@click.group(cls=CommandGroup)
def store() -> None:
    """Back up, restore, prune and upgrade the controller's store.

    The store is the one that the controller's configuration names, or the one of a URL.
    """


def _store_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say which store; it is handed the open store first."""

    @wraps(command)
    def run(config: str, url: str | None, **options: Any) -> None:
        with _opened(config, url) as opened:
            command(opened, **options)

    for option in (
        click.option("--config", default=CONFIG, show_default=True, help="The controller's configuration file."),
        click.option(
            "--url",
            envvar=URL_VARIABLE,
            help=f"The store itself; a password is safer in the variable {URL_VARIABLE} than on the command line.",
        ),
    ):
        run = option(run)
    return output_option(run)


@dataclass(frozen=True, slots=True)
class _Opened:
    """The store, and how long its history is kept: as the configuration says that names it, or as by default."""

    store: SqlStore
    keep: Retention


@contextmanager
def _opened(config: str, url: str | None) -> Iterator[_Opened]:
    if url:
        opened = _Opened(SqlStore(url), Retention())
    else:
        file = load(config, ControllerConfig).store
        opened = _Opened(SqlStore(file.url), Retention(**asdict(file.retention)))
    try:
        yield opened
    finally:
        opened.store.close()


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


def _days(name: str, what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(f"--{name.replace('_', '-')}-days", type=click.FloatRange(min=0), help=f"Days that {what}.")


@store.command()
@_days("events", "events are kept")
@_days("actions", "actions are kept")
@_days("decisions", "decisions are kept; the newest always is")
@_days("jobs", "a job is kept after it is over")
@_days("fine_samples", "samples of five minutes are kept before they become hourly")
@_days("samples", "samples are kept at all")
@_days("costs", "what cycles cost is kept")
@_store_options
def prune(opened: _Opened, **days: float | None) -> None:
    """Delete history that is older than it is to be kept.

    What no option says is as in `[store.retention]` of the configuration, or as by default for the store of a URL.
    """
    said = {name: value for name, value in days.items() if value is not None}
    pruned = asdict(opened.store.prune(replace(opened.keep, **said)))
    emit({"deleted": pruned}, lambda: two_columns("deleted", pruned))


@store.command()
@_store_options
def upgrade(opened: _Opened) -> None:
    """Make the store's tables, or bring them to this program's version."""
    before, after = opened.store.upgrade()
    emit({"from": before, "to": after}, lambda: two_columns("tables", {"before": before, "now": after}))
