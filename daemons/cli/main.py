"""The main group of the `trimtab` command. Other packages add commands by entry point (group `trimtab.commands`)."""

from __future__ import annotations

import click

from daemons.cli.doctor import doctor
from daemons.cli.output import CommandGroup
from shared import plugins


class MainGroup(CommandGroup):
    """Its own commands and those registered by entry point, which are imported only when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, sorted."""
        return sorted({*super().list_commands(ctx), *plugins.names(plugins.COMMANDS)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; ClickException when a registered one cannot be imported."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in plugins.names(plugins.COMMANDS):
            return own
        try:
            command = plugins.load(plugins.COMMANDS, cmd_name)
        except (ImportError, AttributeError) as error:
            reason = f"the command {cmd_name!r} cannot be loaded: {error} (see `trimtab doctor`)"
            raise click.ClickException(reason) from error
        if not isinstance(command, click.Command):
            raise click.ClickException(f"the command {cmd_name!r} is not a click command (see `trimtab doctor`)")
        return command


@click.group(cls=MainGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trimtab", prog_name="trimtab")
def main() -> None:
    """Keeps a cluster of libvirt hosts on its service goals at the lowest cost.

    Exit status: 0 done, 1 refused or infeasible, 2 wrong usage or unreadable input.
    """


main.add_command(doctor)
