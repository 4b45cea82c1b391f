"""The power driver with fencing by methods in order."""

from __future__ import annotations

from collections.abc import Sequence

from daemons.config.fencing import FencingKeys
from daemons.drivers.fencing.method import Method, make_methods
from shared.base.errors import TransientError
from shared.ports.controller import PowerAnswer, PowerDriver
from shared.values.nodes import PowerOperation
from shared.values.texts import is_mac

DETAIL_BYTES_MAX = 4096  # of an answer, see `shared.ports.controller.PowerAnswer`
CUT = " ..."


class FencingPower:
    """Implements `shared.ports.controller.PowerDriver` around another driver: fences by the methods in order, each with
    `attempts`, then by the other driver's own fence if it has one. Everything else is the other driver's.

    A node counts as fenced only if a method's `status` said off after its `off`, or if the other driver proved it.
    """

    def __init__(self, driver: PowerDriver, methods: Sequence[Method], attempts: int) -> None:
        self._driver, self._methods, self._attempts = driver, tuple(methods), attempts
        self.name = driver.name
        self.does = driver.does | {PowerOperation.FENCE}

    def operate(self, operation: PowerOperation, node: str, mac_addresses: Sequence[str]) -> PowerAnswer:
        """Carry out one operation. The answer of a fence names every method that failed, with its last failure."""
        if operation is not PowerOperation.FENCE:
            return self._driver.operate(operation, node, mac_addresses)
        mac = next(filter(is_mac, mac_addresses), "")  # an agent says them: a program gets nothing else of its making
        own = operation in self._driver.does
        bytes_max = DETAIL_BYTES_MAX // (len(self._methods) + 1 + own) - len("; ")
        failures: list[str] = []
        for method in self._methods:
            why = self._tried(method, node, mac)
            if not why:
                return _done(f"{method.name}: off", failures)
            failures.append(_cut(f"{method.name}: {why}", bytes_max))
        if own:
            answer = self._by_driver(node, mac_addresses)
            said = _cut(f"power driver {self.name}: {answer.detail or ('off' if answer.ok else 'failed')}", bytes_max)
            if answer.ok:
                return _done(said, failures)
            failures.append(said)
        return PowerAnswer(False, "; ".join(failures))

    def _tried(self, method: Method, node: str, mac: str) -> str:
        """Return "" once the method has proved the node off, else its last failure."""
        why = ""
        for _ in range(self._attempts):
            why = method.fence(node, mac)
            if not why:
                break
        return why

    def _by_driver(self, node: str, mac_addresses: Sequence[str]) -> PowerAnswer:
        try:
            return self._driver.operate(PowerOperation.FENCE, node, mac_addresses)
        except TransientError as error:
            return PowerAnswer(False, str(error))


def with_fencing(driver: PowerDriver, keys: FencingKeys) -> PowerDriver:
    """Return the driver with the configured methods of fencing; the driver itself if there are none. Raises
    InvalidInput, see `make_methods`."""
    methods = make_methods(keys)
    return FencingPower(driver, methods, keys.attempts) if methods else driver


def _done(how: str, failures: Sequence[str]) -> PowerAnswer:
    return PowerAnswer(True, "; ".join((*failures, how)))


def _cut(text: str, bytes_max: int) -> str:
    """Return the beginning of a text, in at most `bytes_max` bytes."""
    raw = text.encode()
    if len(raw) <= bytes_max:
        return text
    return raw[: bytes_max - len(CUT)].decode(errors="ignore") + CUT
