"""Drivers of load balancers, found among the entry points `trimtab.balancers`: each is called with
`daemons.config.controller.BalancerKeys`."""

from __future__ import annotations

from daemons.config.controller import BalancerKeys
from shared.ports import plugins
from shared.ports.controller import LoadBalancer


def make_balancer(keys: BalancerKeys) -> LoadBalancer:
    """Return the driver that the configuration names. Raises InvalidInput when there is none of that name, or when its
    keys cannot work."""
    driver: LoadBalancer = plugins.find_driver(plugins.BALANCERS, "balancer.driver", keys.driver)(keys)
    return driver
