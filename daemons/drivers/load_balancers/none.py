"""The balancer that nobody updates: it finds the instances without Trimtab."""

from __future__ import annotations

from daemons.config.controller import BalancerKeys
from shared.base.errors import ContractViolation
from shared.ports.effects import Balance, Balanced
from shared.values.web_app import FlowSample


class NoBalancer:
    """Implements `shared.ports.controller.LoadBalancer` for setups with their own health checks or service
    discovery."""

    name = "none"
    measures = False

    def __init__(self, keys: BalancerKeys) -> None:
        del keys

    def set_backends(self, order: Balance) -> Balanced:
        """Done: nothing is waited for."""
        return Balanced(order.app, True, tuple(backend.vm for backend in order.backends if backend.drain))

    def measure(self, app: str, now_s: float) -> FlowSample | None:
        """Raise ContractViolation: this driver does not measure."""
        raise ContractViolation(f"{app} at {now_s:g} s: this driver does not measure")
