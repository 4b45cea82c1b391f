"""Power drivers, found among the entry points `trimtab.power`: each is called with
`daemons.config.controller.PowerKeys`."""

from __future__ import annotations

from daemons.config.controller import PowerKeys
from shared.ports import plugins
from shared.ports.controller import PowerDriver


def make_driver(keys: PowerKeys) -> PowerDriver:
    """Return the driver that the configuration names. Raises InvalidInput when there is none of that name, or when its
    keys cannot work."""
    driver: PowerDriver = plugins.find_driver(plugins.POWER, "power.driver", keys.driver)(keys)
    return driver
