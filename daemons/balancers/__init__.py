"""Drivers of load balancers, found among the entry points `trimtab.balancers`: each is called with
`shared.config.BalancerKeys`."""

from __future__ import annotations

from shared import plugins
from shared.config import BalancerKeys
from shared.ports import LoadBalancer


def make_balancer(keys: BalancerKeys) -> LoadBalancer:
    """The driver that the configuration names. Raises InvalidInput when there is none of that name, or when its keys
    cannot work."""
    driver: LoadBalancer = plugins.find_driver(plugins.BALANCERS, "balancer.driver", keys.driver)(keys)
    return driver
