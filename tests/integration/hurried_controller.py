"""The controller's daemon, but that its first prune comes `SECONDS` after its start: `hurried_controller.py SECONDS
--config FILE`."""

from __future__ import annotations

import sys
from pathlib import Path

from daemons.config.controller import ControllerConfig
from daemons.service.main import DAEMON, DEFAULT_CONFIG, build
from shared.runtime import startup


def main(first_prune_s: float) -> int:
    """Run it; returns the exit status."""

    def run(_: Path, config: ControllerConfig) -> int:
        connect = startup.broker(config.bus.url, config.bus.tls, config.bus.plain)
        shell = build(config, connect, startup.seed(), first_prune_s=first_prune_s)
        shell.heed_signals()
        return shell.run()

    return startup.Daemon(DAEMON.name, ControllerConfig, DEFAULT_CONFIG, run).main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
