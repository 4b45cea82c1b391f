"""The main group of the `trimtab` command. Other packages add commands by entry point (group `trimtab.commands`)."""

from __future__ import annotations

from importlib import import_module

import click

from daemons.cli.output import SUMMARY_MAX
from daemons.cli.plugged import PluggedGroup
from shared.ports import plugins

# Where each of our own commands is, and its line in `trimtab --help`: it is imported only when it runs.
OWN = {
    "assurance": (
        "daemons.cli.commands.assurance",
        "Show service probabilities beside the measured service; check reservations.",
    ),
    "broker": ("daemons.cli.commands.broker", "Create accounts, queues and permissions on the broker."),
    "config": ("daemons.cli.commands.config", "Show what configuration files may hold."),
    "costs": ("daemons.cli.commands.costs", "Show what the energy of the nodes costs, day by day."),
    "decide": ("daemons.cli.commands.plan", "Show what the controller would decide now, and why."),
    "doctor": ("daemons.cli.commands.doctor", "Check the installation and print how to repair it."),
    "env": ("daemons.cli.commands.env", "Create, activate, resize and destroy environments."),
    "events": ("daemons.cli.commands.events", "Print events: past ones, or new ones as they happen."),
    "explain": ("daemons.cli.commands.explain", "Explain a code: event, alarm, reason, refusal, outcome or error."),
    "forecast": (
        "daemons.cli.commands.forecast",
        "Show deadline windows: forecast, size, and the chance to miss the deadline.",
    ),
    "jobs": ("daemons.cli.commands.jobs", "Submit, list and cancel jobs."),
    "load": ("daemons.cli.commands.load", "Submit jobs that arrive by a profile."),
    "nodes": ("daemons.cli.commands.nodes", "List, add, drain and remove nodes."),
    "notifications": ("daemons.cli.commands.notifications", "Show notifications; retry or drop them; test channels."),
    "pause": ("daemons.cli.commands.plan", "Pause deciding."),
    "plan": ("daemons.cli.commands.plan", "Show, approve and reject plans."),
    "profile": ("daemons.cli.commands.profile", "Measure and show how jobs use nodes."),
    "report": ("daemons.cli.commands.report", "Report service, cost and decisions over a span of time."),
    "snapshot": ("daemons.cli.commands.snapshot", "Save the input of a decision, and decide on it again."),
    "status": ("daemons.cli.commands.status", "Show leader, nodes, jobs, operations in progress and alarms."),
    "store": ("daemons.cli.commands.store", "Back up, restore, prune and upgrade the controller's store."),
    "unpause": ("daemons.cli.commands.plan", "Resume deciding; after a restored backup, act again."),
    "vms": ("daemons.cli.commands.vms", "List VMs; migrate, suspend, adopt or release them."),
    "web": ("daemons.cli.commands.web", "Submit, list and remove web applications."),
}


class MainGroup(PluggedGroup):
    """Its own commands and those registered by entry point, which are imported only when they are needed."""

    entry_points = plugins.COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted({*super().list_commands(ctx), *OWN})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name; ClickException if a registered one cannot be imported."""
        if cmd_name in OWN:
            own: click.Command = getattr(import_module(OWN[cmd_name][0]), cmd_name)
            return own
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in the help, ours without importing them."""
        rows = []
        for name in self.list_commands(ctx):
            command = None if name in OWN else self.get_command(ctx, name)
            rows.append((name, OWN[name][1] if command is None else command.get_short_help_str(SUMMARY_MAX)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(cls=MainGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trimtab", prog_name="trimtab")
def main() -> None:
    """Schedule and rebalance VMs on a cluster of libvirt hosts.

    Exit status: 0 done, 1 refused or infeasible, 2 wrong usage or unreadable input, 130 interrupted, 143 terminated.

    \b
    Example:
      trimtab status
    """
