"""The power driver that does nothing: nodes leave scheduling and stay on."""

from __future__ import annotations

from collections.abc import Sequence

from daemons.config.controller import PowerKeys
from shared.base.errors import ContractViolation
from shared.ports.controller import PowerAnswer
from shared.values.nodes import PowerOperation


class NoPower:
    """Implements `shared.ports.controller.PowerDriver` for nodes that nothing can wake."""

    name = "none"
    does: frozenset[PowerOperation] = frozenset()

    def __init__(self, keys: PowerKeys) -> None:
        del keys

    def operate(self, operation: PowerOperation, node: str, mac_addresses: Sequence[str]) -> PowerAnswer:
        """Raises ContractViolation: there is nothing that it could be asked for."""
        del node, mac_addresses
        raise ContractViolation(f"{self.name} does not {operation}")
