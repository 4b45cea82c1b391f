"""The names that others see: on the wire, on disk, in files, in metrics and on the command line.

They are taken from what declares them, and kept in `names.json`. A change that is to change one writes it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from configparser import ConfigParser
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click

from agents.core.journal import RECORDS
from agents.service import metrics as agent_metrics
from daemons.cli.main import main
from daemons.config.controller import ControllerConfig
from daemons.config.portal import PortalConfig
from daemons.manifests.agreement import AgreementFile
from daemons.manifests.job import JobFile
from daemons.manifests.load import LoadFile
from daemons.manifests.web_app import WebFile
from daemons.portal import metrics as portal_metrics
from daemons.portal.auth import schema as portal_tables
from daemons.service import metrics as controller_metrics
from daemons.store import schema
from daemons.store.rows import KINDS
from daemons.values import event_codes
from shared.config.agent import AgentConfig
from shared.metrics import meter
from shared.policy_api.decision import ReasonCode
from shared.protocol import topology
from shared.protocol.messages import MESSAGES
from shared.protocol.operator_messages import QUERIES

NAMES = Path(__file__).with_name("names.json")
SETUP = Path(__file__).parents[2] / "setup.cfg"
METRICS = (*meter.METRICS, *controller_metrics.METRICS, *agent_metrics.METRICS, *portal_metrics.METRICS)


def names() -> dict[str, Any]:
    """Return every name by its place."""
    return {
        "messages": {f"{message.KIND} {message.VERSION}": fields_of(message) for message in MESSAGES},
        "queries": sorted(QUERIES),
        "topology": sorted(
            {value for name, value in vars(topology).items() if name.isupper() and isinstance(value, str)}
        ),
        "journal": {record.__name__: fields_of(record) for record in RECORDS},
        "records": {kind: fields_of(of.cls) for kind, of in KINDS.items()},
        "tables": columns(schema.metadata),
        "portal tables": columns(portal_tables.metadata),
        "controller.toml": keys(ControllerConfig),
        "agent.toml": keys(AgentConfig),
        "portal.toml": keys(PortalConfig),
        "job file": keys(JobFile),
        "load file": keys(LoadFile),
        "web file": keys(WebFile),
        "agreement file": keys(AgreementFile),
        "events": sorted(event_codes.EVENTS),
        "alarms": sorted(event_codes.ALARMS),
        "reasons": sorted(code.value for code in ReasonCode),
        "metrics": {metric.name: list(metric.labels) for metric in METRICS},
        "commands": dict(commands(main, "trimtab")),
        "entry points": entry_points(),
    }


def fields_of(kind: type) -> list[str]:
    """Return the fields of a value, and those of the values in it."""
    return sorted(keys(kind))


def keys(kind: type, before: str = "", within: tuple[type, ...] = ()) -> list[str]:
    """Return the keys of a value as `table.key`; an enumeration's values are after its key."""
    found: list[str] = []
    hints = get_type_hints(kind)
    for field in fields(kind):
        inside = [each for each in _types(hints[field.name]) if each not in within]
        values = [repr(one.value) for each in inside if issubclass(each, Enum) for one in each]
        found.append(f"{before}{field.name}" + (f" = {' | '.join(values)}" if values else ""))
        for each in inside:
            if is_dataclass(each):
                found += keys(each, f"{before}{field.name}.", (*within, kind, each))
    return found


def _types(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and not get_args(hint):
        yield hint
    for inside in get_args(hint):
        yield from _types(inside)


def columns(metadata: Any) -> dict[str, list[str]]:
    """Return the columns of each table."""
    return {table.name: [column.name for column in table.columns] for table in metadata.sorted_tables}


def commands(command: click.Command, path: str) -> Iterator[tuple[str, list[str]]]:
    """Give every command with its arguments and options."""
    yield path, [" ".join((*parameter.opts, *parameter.secondary_opts)) for parameter in command.params]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inside = command.get_command(context, name)
            if inside is not None:
                yield from commands(inside, f"{path} {name}")


def entry_points() -> dict[str, list[str]]:
    """Return what is registered in each group; where it is may change."""
    parser = ConfigParser()
    parser.read(SETUP)
    groups = parser["options.entry_points"]
    return {
        group: sorted(line.partition("=")[0].strip() for line in lines.splitlines() if line)
        for group, lines in groups.items()
    }
