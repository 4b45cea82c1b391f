"""`trimtab config`: what configuration and other files may hold."""

from __future__ import annotations

import json
from importlib import metadata

import click

from daemons.cli.output import CommandGroup, put
from daemons.cli.reference.example import example_of
from daemons.cli.reference.files import FILES, ConfigFile
from daemons.cli.reference.manpage import manual_of
from daemons.cli.reference.markdown import page_of
from daemons.cli.reference.plain import object_of, text_of

FORMS = ("text", "json", "markdown", "man", "toml")


@click.group(cls=CommandGroup)
def config() -> None:
    """Show what configuration files may hold."""


@config.command()
@click.argument("file", type=click.Choice(tuple(FILES)), default="controller", metavar="[FILE]")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(FORMS),
    default="text",
    show_default=True,
    help="Output format; toml is a file with every key in a comment, man a manual page.",
)
def reference(file: str, form: str) -> None:
    """Print every key of a file: type, unit, range, default and meaning.

    FILE is controller (if left out), agent, portal, job, web, agreement, load or operator. For the three daemons, each
    key says whether a reload (SIGHUP) is enough after a change, or a restart is needed.

    \b
    Example:
      trimtab config reference agent -o toml > agent.toml
    """
    put(_rendered(FILES[file], form))


def _rendered(file: ConfigFile, form: str) -> str:
    if form == "json":
        return json.dumps(object_of(file), indent=2, allow_nan=False) + "\n"
    if form == "man":
        return manual_of(file, metadata.version("trimtab"))
    return {"text": text_of, "markdown": page_of, "toml": example_of}[form](file)
