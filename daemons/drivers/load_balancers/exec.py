"""Has an operator's own program update the load balancer: HAProxy's runtime API, keepalived, a cloud's own."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict
from typing import Any

from daemons.config.controller import BalancerKeys
from shared.base.errors import ContractViolation, InvalidInput, Problem, TransientError
from shared.ports.effects import Balance, Balanced
from shared.runtime import subprocesses
from shared.values.web_app import FlowSample

DRAINED = "drained "


class ExecBalancer:
    """Implements `shared.ports.controller.LoadBalancer`: the program is run with `{app}` and `{file}` in its arguments
    filled in.

    The file is JSON: {"app": NAME, "backends": [{"vm": NAME, "node": NAME, "drain": BOOL, "address": IP or "",
    "weight": above 0, at most 1}, ...], "serving": every field of `shared.values.web_app.Serving` or null, "limits":
    {"instance_max", "queue_max"}, whole numbers or null}; all backends that there are. Exit status 0: it serves these
    and no others. For each that is drained it prints a line `drained VM`. Raises InvalidInput when no command is
    configured.
    """

    name = "exec"
    measures = False

    def __init__(self, keys: BalancerKeys) -> None:
        self._command, self._limit_s = keys.exec.command, keys.exec.limit_s
        if not self._command:
            raise InvalidInput(Problem("balancer.exec.command", "is empty", "a program and its arguments"))

    def set_backends(self, order: Balance) -> Balanced:
        """Run the program. Raises TransientError when it cannot be run; one that fails is an answer."""
        try:
            ended = self._run(order)
        except OSError as error:
            raise TransientError(f"no file for {self._command[0]}: {error.strerror or error}") from error
        if not ended.ok:
            return Balanced(order.app, False, (), ended.detail)
        leaving = {backend.vm for backend in order.backends if backend.drain}
        told = (line.removeprefix(DRAINED).strip() for line in ended.detail.splitlines() if line.startswith(DRAINED))
        return Balanced(order.app, True, tuple(dict.fromkeys(vm for vm in told if vm in leaving)))

    def measure(self, app: str, now_s: float) -> FlowSample | None:
        """Raise ContractViolation: the program does not measure."""
        raise ContractViolation(f"{app} at {now_s:g} s: this driver does not measure")

    def _run(self, order: Balance) -> subprocesses.Ended:
        handle, path = tempfile.mkstemp(prefix="trimtab-balancer-", suffix=".json")
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(_table(order), file)
            arguments = [part.replace("{app}", order.app).replace("{file}", path) for part in self._command]
            return subprocesses.run(arguments, self._limit_s)
        finally:
            os.unlink(path)


def _table(order: Balance) -> dict[str, Any]:
    """Return the order in the form that the program reads."""
    return {
        "app": order.app,
        "backends": [asdict(backend) for backend in order.backends],
        "serving": asdict(order.serving) if order.serving is not None else None,
        "limits": asdict(order.limits),
        "probe": asdict(order.probe) if order.probe is not None else None,
    }
