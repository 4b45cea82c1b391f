"""Groups to which other packages add commands by entry point."""

from __future__ import annotations

from typing import ClassVar

import click

from daemons.cli.output import CommandGroup
from shared.ports import plugins


class PluggedGroup(CommandGroup):
    """Its own commands and those of the entry points `entry_points`, which are imported only when they are needed; its
    own come first."""

    entry_points: ClassVar[str]

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted({*super().list_commands(ctx), *plugins.names(self.entry_points)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name; ClickException if a registered one cannot be imported."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in plugins.names(self.entry_points):
            return own
        try:
            command = plugins.load(self.entry_points, cmd_name)
        except (ImportError, AttributeError) as error:
            reason = f"the command {cmd_name!r} cannot be loaded: {error} (see `trimtab doctor`)"
            raise click.ClickException(reason) from error
        if not isinstance(command, click.Command):
            raise click.ClickException(f"the command {cmd_name!r} is not a click command (see `trimtab doctor`)")
        return command
