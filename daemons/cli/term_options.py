"""Options for the terms of adopted VMs and for rules, and what they change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from daemons.cli.numbers import Number, Whole
from daemons.manifests.vm_terms import read_rules
from shared.values.jobs import Rules
from shared.values.vm_terms import MOVES_PER_DAY_MAX, PAUSE_S_PER_DAY_MAX, OnShutdown, TermChanges, VmAutomation

F = TypeVar("F", bound=Callable[..., Any])
IMPORTANCE = Number(0.001, 1e6)
KEYS = ("on_shutdown", "suspend", "automation", "moves_per_day", "pause_s_per_day", "post_copy", "failover")
NO_LIMIT = "none"
CLUSTER = "cluster"

importance_option = click.option(
    "--importance", type=IMPORTANCE, help="Weight against other workloads when CPU is short."
)
rules_option = click.option(
    "--rules",
    "rules_file",
    type=click.Path(path_type=Path),
    help="TOML file with a table [rules], which replaces the rules. An empty table removes them.",
)


def _limit(of: Number | Whole) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    def convert(context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        return text if text in (None, NO_LIMIT) else of.convert(text, parameter, context)

    return convert


_OPTIONS = (
    click.option(
        "--automation",
        type=click.Choice([*(level.value for level in VmAutomation), CLUSTER]),
        help="How far decisions about it are carried out; `cluster`: use the cluster's level.",
    ),
    click.option(
        "--on-shutdown",
        type=click.Choice([each.value for each in OnShutdown]),
        help="What happens when its guest shuts itself down.",
    ),
    click.option("--suspend/--no-suspend", default=None, help="Let decisions save it to disk for others, or not."),
    click.option(
        "--moves-per-day",
        metavar="N|none",
        callback=_limit(Whole(1, MOVES_PER_DAY_MAX)),
        help="Most migrations that decisions may order within 24 hours.",
    ),
    click.option(
        "--pause-s-per-day",
        metavar="S|none",
        callback=_limit(Number(0.0, PAUSE_S_PER_DAY_MAX, above=True)),
        help="Longest time that these may pause it within 24 hours.",
    ),
    click.option("--post-copy/--no-post-copy", default=None, help="Let migrations switch to post-copy, or not."),
    click.option("--failover/--no-failover", default=None, help="Restart it elsewhere when its node is off, or not."),
)


def term_options(function: F) -> F:
    """Add the options for the terms of VMs; their values come as `KEYS`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def changed_terms(options: Mapping[str, Any]) -> TermChanges:
    """Return the changes that the options ask for; those that are not given change nothing."""
    given = {key: options[key] for key in KEYS if options[key] is not None}
    clear = tuple(key for key, value in given.items() if value in (NO_LIMIT, CLUSTER))
    for key in clear:
        del given[key]
    if "on_shutdown" in given:
        given["on_shutdown"] = OnShutdown(given["on_shutdown"])
    if "automation" in given:
        given["automation"] = VmAutomation(given["automation"])
    return TermChanges(**given, clear=clear)


def changed_rules(file: Path | None) -> Rules | None:
    """Return the rules in a file; None without one."""
    return None if file is None else read_rules(file)
