"""The main group of the `trimtab` command. Other packages add commands by entry point (group `trimtab.commands`)."""

from __future__ import annotations

from importlib import import_module

import click

from daemons.cli.output import CommandGroup
from shared import plugins

# Where each command of our own is, imported only when it is needed.
OWN = {
    "broker": "daemons.cli.broker",
    "decide": "daemons.cli.plan",
    "doctor": "daemons.cli.doctor",
    "events": "daemons.cli.events",
    "jobs": "daemons.cli.jobs",
    "nodes": "daemons.cli.nodes",
    "pause": "daemons.cli.plan",
    "plan": "daemons.cli.plan",
    "status": "daemons.cli.status",
    "unpause": "daemons.cli.plan",
    "vms": "daemons.cli.vms",
}


class MainGroup(CommandGroup):
    """Its own commands and those registered by entry point, which are imported only when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, sorted."""
        return sorted({*super().list_commands(ctx), *OWN, *plugins.names(plugins.COMMANDS)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; ClickException when a registered one cannot be imported."""
        if cmd_name in OWN:
            own: click.Command = getattr(import_module(OWN[cmd_name]), cmd_name)
            return own
        if cmd_name not in plugins.names(plugins.COMMANDS):
            return super().get_command(ctx, cmd_name)
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
