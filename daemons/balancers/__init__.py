"""Drivers of load balancers, found among the entry points `trimtab.balancers`: each is called with
`shared.config.BalancerKeys`."""

from __future__ import annotations

from shared import plugins
from shared.config import BalancerKeys
from shared.errors import InvalidInput, Problem
from shared.ports import LoadBalancer


def make_balancer(keys: BalancerKeys) -> LoadBalancer:
    """The driver that the configuration names. Raises InvalidInput when there is none of that name, or when its keys
    cannot work."""
    known = plugins.names(plugins.BALANCERS)
    if keys.driver not in known:
        raise InvalidInput(Problem("balancer.driver", f"there is no {keys.driver!r}", "one of " + ", ".join(known)))
    driver: LoadBalancer = plugins.load(plugins.BALANCERS, keys.driver)(keys)
    return driver
