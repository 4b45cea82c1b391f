"""The configuration of host power management, converted to the settings of the controller's core."""

from __future__ import annotations

from collections.abc import Mapping

from daemons.config.controller import ControllerConfig, PowerDraw
from daemons.values.settings import Draw, PowerSettings, from_keys
from shared.base.errors import InvalidInput, Problem
from shared.ports.controller import PowerDriver
from shared.runtime import startup
from shared.values.nodes import PowerOperation


def power_settings(config: ControllerConfig, driver: PowerDriver | None) -> PowerSettings:
    """Return how nodes are powered down and up. The controller's own node is excluded and, as far as its address shows,
    the broker's. Nodes go to sleep through their agents if the driver can only wake them."""
    keys, address = config.power, startup.broker_host(config.bus.url)
    does = frozenset(driver.does) if driver is not None else frozenset()
    own = (*keys.never_sleep, startup.host_name(), address, address.split(".", 1)[0])
    return from_keys(
        PowerSettings,
        keys,
        driver=driver.name if driver is not None else "none",
        does=does,
        through_agents=PowerOperation.WAKE in does and PowerOperation.SLEEP not in does,
        needs_mac=driver is not None and driver.name == "wake-on-lan",
        never=frozenset(own) - {""},
        draws=draws_of(keys.draw),
    )


def draws_of(tables: Mapping[str, PowerDraw]) -> dict[str, Draw]:
    """Return the power drawn by nodes; a curve ends at the values without load and at full CPU."""
    short = [name for name, table in tables.items() if len(table.curve_w) == 1]
    if short:
        raise InvalidInput(*(Problem(f"power.draw.{name}.curve_w", "has one figure", "two at least") for name in short))
    draws = {}
    for name, table in tables.items():
        curve_w = table.curve_w or (table.idle_w, table.peak_w)
        draws[name] = Draw(curve_w[0], curve_w[-1], table.off_w, table.curve_w)
    return draws
