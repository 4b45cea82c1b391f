"""The power driver that does nothing: nodes leave scheduling and stay on."""

from __future__ import annotations

from collections.abc import Sequence

from shared.config import PowerKeys
from shared.errors import ContractViolation
from shared.model import PowerOperation
from shared.ports import PowerAnswer


class NoPower:
    """Implements `shared.ports.PowerDriver` for nodes that nothing can wake."""

    name = "none"
    does: frozenset[PowerOperation] = frozenset()

    def __init__(self, keys: PowerKeys) -> None:
        del keys

    def operate(self, operation: PowerOperation, node: str, mac_addresses: Sequence[str]) -> PowerAnswer:
        """Raises ContractViolation: there is nothing that it could be asked for."""
        del node, mac_addresses
        raise ContractViolation(f"{self.name} does not {operation}")
