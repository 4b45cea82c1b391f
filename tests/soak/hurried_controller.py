"""`trimtab-controller` in a hurry: as the daemon, but it decides and prunes history more often than a file may say.

python -P tests/soak/hurried_controller.py DECIDE_S PRUNE_S THREADS --config FILE

On SIGUSR2 it adds to the file THREADS what its threads are at.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from daemons.config.controller import ControllerConfig
from daemons.drivers.power import make_driver
from daemons.service.main import DAEMON, ControllerShell, build, check, serve_metrics
from shared.runtime import startup
from shared.runtime.lanes import Lane


class Pruner:
    """Has history pruned every `period_s`: the daemon itself does it once a day."""

    def __init__(self, shell: ControllerShell, period_s: float) -> None:
        self._shell, self._period_s = shell, period_s
        self._due_s = shell.clock.monotonic_s() + period_s

    def start(self) -> Lane:
        """Have a thread of the shell's look after it."""
        return self._shell.lane("soak", self._wait_s, self._ask)

    def _wait_s(self) -> float:
        return max(0.0, self._due_s - self._shell.clock.monotonic_s())

    def _ask(self) -> None:
        self._due_s += self._period_s
        self._shell.ask(self._prune)

    def _prune(self) -> None:
        self._shell._prune_s = self._shell.clock.monotonic_s()


def run(decide_s: float, prune_s: float, path: Path, config: ControllerConfig) -> int:
    """As `trimtab-controller` runs."""
    hurried = replace(config, periods=replace(config.periods, decide_s=decide_s))
    connect, power = startup.broker(config.bus.url, config.bus.tls, config.bus.plain), make_driver(config.power)
    shell = build(hurried, connect, startup.seed(), power=power)
    shell.on_reload = lambda: startup.relog(lambda: DAEMON.read(path), config)
    serve_metrics(shell, config.metrics)
    shell.heed_signals()
    Pruner(shell, prune_s).start()
    return shell.run()


def main(decide_s: str, prune_s: str, threads: str, *arguments: str) -> int:
    """The command; returns its exit status."""
    act = partial(run, float(decide_s), float(prune_s))
    with Path(threads).open("a") as file:
        faulthandler.register(signal.SIGUSR2, file)
        return startup.Daemon("trimtab-controller", ControllerConfig, "", act, check).main(arguments)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
