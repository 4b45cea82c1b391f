"""The main group of the `trimtab` command. Other packages add commands by entry point (group `trimtab.commands`)."""

from __future__ import annotations

from importlib import import_module

import click

from daemons.cli.plugged import PluggedGroup
from shared.ports import plugins

# Where each command of our own is, and what `trimtab --help` says of it: it is imported only when it is run.
OWN = {
    "assurance": ("daemons.cli.commands.assurance", "Show promises beside what is served; check reservations."),
    "broker": ("daemons.cli.commands.broker", "Prepare the broker."),
    "costs": ("daemons.cli.commands.costs", "Show what the energy of the nodes costs, day by day."),
    "decide": ("daemons.cli.commands.plan", "Say what would be decided now, and why."),
    "doctor": ("daemons.cli.commands.doctor", "Check the installation."),
    "env": ("daemons.cli.commands.env", "Create, activate, resize and end environments."),
    "events": ("daemons.cli.commands.events", "Print what happens, and what has happened."),
    "forecast": (
        "daemons.cli.commands.forecast",
        "Show deadline windows: what is expected, and how their promises stand.",
    ),
    "jobs": ("daemons.cli.commands.jobs", "Submit, watch and cancel jobs."),
    "load": ("daemons.cli.commands.load", "Submit jobs by an arrival profile."),
    "nodes": ("daemons.cli.commands.nodes", "List, add, empty and remove nodes."),
    "notifications": ("daemons.cli.commands.notifications", "Show what is told, and what could not be; try channels."),
    "pause": ("daemons.cli.commands.plan", "Stop deciding."),
    "plan": ("daemons.cli.commands.plan", "Show and approve what was decided."),
    "profile": ("daemons.cli.commands.profile", "Learn and show how jobs load nodes."),
    "report": ("daemons.cli.commands.report", "Show how workloads fared, what it cost, and what was done."),
    "snapshot": ("daemons.cli.commands.snapshot", "Save what a decision sees, and decide on it again."),
    "status": ("daemons.cli.commands.status", "Show who leads, what is under way, and what is wrong."),
    "store": ("daemons.cli.commands.store", "Back up, restore, prune and upgrade the controller's store."),
    "unpause": ("daemons.cli.commands.plan", "Decide again; after a restore of the store, act again."),
    "vms": ("daemons.cli.commands.vms", "List VMs, and take single ones in hand."),
    "web": ("daemons.cli.commands.web", "Submit, watch and remove web applications."),
}


class MainGroup(PluggedGroup):
    """Its own commands and those registered by entry point, which are imported only when they are needed."""

    entry_points = plugins.COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, sorted."""
        return sorted({*super().list_commands(ctx), *OWN})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; ClickException when a registered one cannot be imported."""
        if cmd_name in OWN:
            own: click.Command = getattr(import_module(OWN[cmd_name][0]), cmd_name)
            return own
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in the help, ours without importing them."""
        rows = []
        for name in self.list_commands(ctx):
            command = None if name in OWN else self.get_command(ctx, name)
            rows.append((name, OWN[name][1] if command is None else command.get_short_help_str()))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(cls=MainGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trimtab", prog_name="trimtab")
def main() -> None:
    """Keeps a cluster of libvirt hosts on its service goals at the lowest cost.

    Exit status: 0 done, 1 refused or infeasible, 2 wrong usage or unreadable input, 130 interrupted, 143 terminated.
    """
