"""Has an operator's own program tell the load balancer: HAProxy's runtime API, keepalived, a cloud's own."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence

from shared import programs
from shared.config import BalancerKeys
from shared.effects import Backend, Balanced
from shared.errors import InvalidInput, Problem, TransientError

DRAINED = "drained "


class ExecBalancer:
    """Implements `shared.ports.LoadBalancer`: the program is run with `{app}` and `{file}` in its arguments filled in.

    The file is JSON: {"app": NAME, "backends": [{"vm": NAME, "node": NAME, "drain": BOOL}, ...]}, all that there are.
    Exit status 0: it serves these and no others. For each that is drained it prints a line `drained VM`. Raises
    InvalidInput when no command is configured.
    """

    name = "exec"

    def __init__(self, keys: BalancerKeys) -> None:
        self._command, self._limit_s = keys.exec.command, keys.exec.limit_s
        if not self._command:
            raise InvalidInput(Problem("balancer.exec.command", "is empty", "a program and its arguments"))

    def set_backends(self, app: str, backends: Sequence[Backend]) -> Balanced:
        """Run the program. Raises TransientError when it cannot be run; one that fails is an answer."""
        try:
            ended = self._run(app, backends)
        except OSError as error:
            raise TransientError(f"no file for {self._command[0]}: {error.strerror or error}") from error
        if not ended.ok:
            return Balanced(app, False, (), ended.detail)
        leaving = {backend.vm for backend in backends if backend.drain}
        told = (line.removeprefix(DRAINED).strip() for line in ended.detail.splitlines() if line.startswith(DRAINED))
        return Balanced(app, True, tuple(dict.fromkeys(vm for vm in told if vm in leaving)))

    def _run(self, app: str, backends: Sequence[Backend]) -> programs.Ended:
        rows = [{"vm": backend.vm, "node": backend.node, "drain": backend.drain} for backend in backends]
        handle, path = tempfile.mkstemp(prefix="trimtab-balancer-", suffix=".json")
        try:
            with os.fdopen(handle, "w") as file:
                json.dump({"app": app, "backends": rows}, file)
            arguments = [part.replace("{app}", app).replace("{file}", path) for part in self._command]
            return programs.run(arguments, self._limit_s)
        finally:
            os.unlink(path)
