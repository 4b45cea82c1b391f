"""Wakes nodes by magic packets on the local network. They go to sleep through their agents."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from daemons.config.controller import PowerKeys
from shared.base.errors import ContractViolation, InvalidInput, Problem, TransientError
from shared.ports.controller import PowerAnswer
from shared.values.nodes import PowerOperation
from shared.values.texts import is_mac, mac_bytes

PORT = 9  # discard: what receives the packets is the network card
SENT_TIMES = 3  # they may get lost and nobody answers


class WakeOnLan:
    """Implements `shared.ports.controller.PowerDriver`; the next report of a node's agent shows whether it has woken.

    Raises InvalidInput when `power.broadcast` is not an address.
    """

    name = "wake-on-lan"
    does = frozenset({PowerOperation.WAKE})

    def __init__(self, keys: PowerKeys) -> None:
        self._family, self._target = _resolve(keys.broadcast)

    def operate(self, operation: PowerOperation, node: str, mac_addresses: Sequence[str]) -> PowerAnswer:
        """Send packets for each of the node's addresses. Not ok where it has none that can be used."""
        if operation not in self.does:
            raise ContractViolation(f"{self.name} does not {operation}")
        good = [mac for mac in mac_addresses if is_mac(mac)]
        if not good:
            bad = f"; not an address of a network card: {', '.join(mac_addresses)}" if mac_addresses else ""
            return PowerAnswer(False, f"no hardware address of {node} is known{bad}")
        try:
            self._send(good)
        except OSError as error:
            raise TransientError(f"no packet could be sent to {self._target[0]}: {error.strerror or error}") from error
        return PowerAnswer(True, f"{SENT_TIMES} packets for {', '.join(good)}")

    def _send(self, macs: Sequence[str]) -> None:
        with socket.socket(self._family, socket.SOCK_DGRAM) as sender:
            if self._family == socket.AF_INET:
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            for packet in map(magic_packet, macs):
                for _ in range(SENT_TIMES):
                    sender.sendto(packet, self._target)


def magic_packet(mac: str) -> bytes:
    """Return the packet that a network card waits for while its host sleeps: six bytes 0xff, then its own address
    sixteen times."""
    return b"\xff" * 6 + mac_bytes(mac) * 16


def _resolve(broadcast: str) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Return the address and port of `address`, `address:port` (IPv4 only) or an IPv6 address."""
    address, colon, port = broadcast.partition(":")
    if ":" in port:
        address, colon, port = broadcast, "", ""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        socket.inet_pton(family, address)
        number = int(port) if colon else PORT
        if not 0 < number < 1 << 16:
            raise ValueError(f"port {number}")
    except (OSError, ValueError) as error:
        problem = Problem("power.broadcast", f"{broadcast!r}: {error}", "an address, or address:port")
        raise InvalidInput(problem) from error
    return family, (address, number)
