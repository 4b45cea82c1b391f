"""Hands messages to an operator's own program: a pager's, a chat's, a ticket system's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from daemons.drivers.notifiers.text import as_json
from shared.base.errors import InvalidInput, Problem, TransientError
from shared.config import records
from shared.config.common import Command
from shared.config.records import Range
from shared.ports.notices import Notify
from shared.runtime import subprocesses

PASSED_ON = ("PATH", "LANG", "LC_ALL", "HOME", "TZ")


@dataclass(frozen=True, slots=True)
class CommandKeys:
    """A channel that runs a program."""

    argv: Command
    """Program and arguments, run without a shell. It reads the message as JSON. Example: `["/usr/local/bin/page"]`."""
    timeout_s: Annotated[float, Range(0.1, 3600)] = 30.0
    """Time limit of one run. Beyond it, the program is killed."""


class CommandChannel:
    """Implements `shared.ports.controller.NotifyChannel`: the program is run for each message, which it reads as JSON.
    Exit status 0: it has arrived; anything else: it is tried again. It is killed at its time limit, with what it has
    started. Raises InvalidInput with everything that is wrong with the keys."""

    def __init__(self, where: str, table: Mapping[str, Any]) -> None:
        self._keys = records.read(table, CommandKeys, where, {})
        if not self._keys.argv:
            raise InvalidInput(Problem(f"{where}.argv", "is empty", "a program and its arguments"))

    def send(self, message: Notify) -> str:
        """Run it. Raises TransientError unless it ends with status 0 in time."""
        variables = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        variables |= {"TRIMTAB_ID": message.message, "TRIMTAB_CHANNEL": message.channel}
        ended = subprocesses.run(self._keys.argv, self._keys.timeout_s, variables, reads=as_json(message))
        if not ended.ok:
            raise TransientError(ended.detail)
        return ""
