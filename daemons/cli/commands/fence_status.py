"""`trimtab nodes fence-status`: asks fence devices for the power state of nodes, on the controller's machine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import click

from daemons.cli import complete
from daemons.cli.commands.store import CONFIG, CREDSTORE
from daemons.cli.output import REFUSED, emit, output_option
from daemons.cli.render import listing
from daemons.config.controller import ControllerConfig
from daemons.config.fencing import FencingKeys, FencingMethod
from daemons.drivers.fencing import Method, PowerState, make_methods
from shared.base.errors import InvalidInput, Problem
from shared.base.secrets import CREDENTIAL, is_absent
from shared.config.toml import load
from shared.values.scalars import check_name
from shared.values.texts import is_mac

COLUMNS = ("node", "method", "power", "detail")
AT_A_TIME = 16  # programs that run beside one another


def _nodes(_: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        check_name(parameter.human_readable_name, name)
    return tuple(dict.fromkeys(value))


@click.command("fence-status")
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True, callback=_nodes, shell_complete=complete.nodes)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    default=CONFIG,
    show_default=True,
    help="Configuration file of the controller.",
)
@click.option("--mac", default="", metavar="ADDRESS", help="Hardware address of the node, for options with {mac}.")
@output_option
def fence_status(nodes: tuple[str, ...], config: Path, mac: str) -> None:
    """Read the power state of nodes by each method of `fencing.methods`. Cuts no power, and needs no controller.

    Run it as root or as the controller's user on the controller's machine. Exit status 1 when a method fails.

    \b
    Example:
      trimtab nodes fence-status n1 n2
    """
    if mac and (len(nodes) > 1 or not is_mac(mac)):
        raise InvalidInput(Problem("--mac", f"is {mac!r} for {len(nodes)} nodes", "the hardware address of one node"))
    methods = make_methods(_readable(load(config, ControllerConfig).fencing))
    if not methods:
        raise InvalidInput(Problem(f"{config}: fencing.methods", "is empty", "one or more methods"))
    rows = list(_read(nodes, methods, mac))
    emit({"nodes": rows}, lambda: listing("fencing", rows, COLUMNS))
    if any(row["power"] == PowerState.ERROR for row in rows):
        click.get_current_context().exit(REFUSED)


def _read(nodes: Sequence[str], methods: Sequence[Method], mac: str) -> Iterator[dict[str, str]]:
    """Yield a row for each node and method, in this order."""
    pairs = list(itertools.product(nodes, methods))
    with ThreadPoolExecutor(min(AT_A_TIME, len(pairs))) as pool:
        readings = pool.map(lambda pair: pair[1].read_power(pair[0], mac), pairs)
        for (node, method), reading in zip(pairs, readings, strict=True):
            power, detail = reading.state.value, reading.detail
            yield {"node": node, "method": method.name, "power": power, "detail": detail}


def _readable(keys: FencingKeys) -> FencingKeys:
    """Return the keys with the credentials of the unit as files, where this process was passed none."""
    return replace(keys, method={name: _with_file(method) for name, method in keys.method.items()})


def _with_file(method: FencingMethod) -> FencingMethod:
    if not is_absent(method.password_file):
        return method
    return replace(method, password_file=f"{CREDSTORE}/{method.password_file.removeprefix(CREDENTIAL)}")
