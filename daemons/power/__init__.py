"""Power drivers, found among the entry points `trimtab.power`: each is called with `shared.config.PowerKeys`."""

from __future__ import annotations

from shared import plugins
from shared.config import PowerKeys
from shared.errors import InvalidInput, Problem
from shared.ports import PowerDriver


def make_driver(keys: PowerKeys) -> PowerDriver:
    """The driver that the configuration names. Raises InvalidInput when there is none of that name, or when its keys
    cannot work."""
    known = plugins.names(plugins.POWER)
    if keys.driver not in known:
        raise InvalidInput(Problem("power.driver", f"there is no {keys.driver!r}", "one of " + ", ".join(known)))
    driver: PowerDriver = plugins.load(plugins.POWER, keys.driver)(keys)
    return driver
