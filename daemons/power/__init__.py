"""Power drivers, found among the entry points `trimtab.power`: each is called with `shared.config.PowerKeys`."""

from __future__ import annotations

from shared import plugins
from shared.config import PowerKeys
from shared.ports import PowerDriver


def make_driver(keys: PowerKeys) -> PowerDriver:
    """The driver that the configuration names. Raises InvalidInput when there is none of that name, or when its keys
    cannot work."""
    driver: PowerDriver = plugins.find_driver(plugins.POWER, "power.driver", keys.driver)(keys)
    return driver
