"""Has an operator's own programs manage power: IPMI or Redfish, a switched socket, another scheduler's queue."""

from __future__ import annotations

from collections.abc import Sequence

from daemons.config.controller import PowerExec, PowerKeys
from shared.base.errors import ContractViolation, InvalidInput, Problem
from shared.ports.controller import PowerAnswer
from shared.runtime import subprocesses
from shared.values.nodes import PowerOperation
from shared.values.texts import is_mac


class ExecPower:
    """Implements `shared.ports.controller.PowerDriver`: each command that is configured is an operation that it does.

    Programs run without a shell and without input, in a process group of their own that is killed at the time limit.
    Raises InvalidInput when no command is configured.
    """

    name = "exec"

    def __init__(self, keys: PowerKeys) -> None:
        self._limit_s = keys.exec.limit_s
        self._commands = commands(keys.exec)
        if not self._commands:
            wanted = ", ".join(operation.value for operation in PowerOperation)
            raise InvalidInput(Problem("power.exec", "has no command", f"one or more of {wanted}"))
        self.does = frozenset(self._commands)

    def operate(self, operation: PowerOperation, node: str, mac_addresses: Sequence[str]) -> PowerAnswer:
        """Run the operation's program; ok when it ends with status 0 in time. The end of what it printed is kept."""
        command = self._commands.get(operation)
        if command is None:
            raise ContractViolation(f"{self.name} does not {operation} as it is configured")
        mac = next(filter(is_mac, mac_addresses), "")  # an agent says them: a program gets nothing else of its making
        if any("{mac}" in part for part in command) and not mac:
            return PowerAnswer(False, f"no hardware address of {node} is known")
        arguments = [part.replace("{node}", node).replace("{mac}", mac) for part in command]
        ended = subprocesses.run(arguments, self._limit_s)
        return PowerAnswer(ended.ok, ended.detail)


def commands(exec_: PowerExec) -> dict[PowerOperation, tuple[str, ...]]:
    """Return the configured commands, by operation."""
    found = {operation: tuple(getattr(exec_, operation.value)) for operation in PowerOperation}
    return {operation: command for operation, command in found.items() if command}
