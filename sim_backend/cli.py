"""The `trimtab sim` group: everything that runs in virtual time. Reached by entry point, so that nothing imports us."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import click

from daemons.cli.output import CommandGroup
from sim_backend import commands


class FolderGroup(CommandGroup):
    """The commands are the modules of `sim_backend.commands`, imported when needed: a new file is a new command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted; `two_words.py` is the command `two-words`."""
        found = [module.name.replace("_", "-") for module in pkgutil.iter_modules(commands.__path__)]
        return sorted({*super().list_commands(ctx), *found})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name, None if there is none."""
        if cmd_name not in self.list_commands(ctx):
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(import_module(f"{commands.__name__}.{name}"), name)
        if not isinstance(command, click.Command):
            raise click.ClickException(f"{commands.__name__}.{name} holds no click command called {name!r}")
        return command


@click.group(cls=FolderGroup)
def sim() -> None:
    """Simulate: replay logs, try policies and compare what-ifs in virtual time."""
