"""`trimtab-agent` in a hurry: as the daemon, but it forgets the outcomes of actions sooner.

python -P tests/soak/hurried_agent.py OUTCOME_KEEP_S --config FILE
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from agents.service.main import build, check_config, find_hypervisor
from shared.config.agent import AgentConfig
from shared.runtime import startup


def run(outcome_keep_s: float, path: Path, config: AgentConfig) -> int:
    """As `trimtab-agent` runs."""
    connect = startup.broker(config.bus.url, config.bus.tls, config.bus.plain)
    make = find_hypervisor(config.hypervisor.driver)
    shell = build(config, connect, make, startup.seed(), outcome_keep_s)
    shell.on_reload = lambda: startup.relog(lambda: daemon(outcome_keep_s).read(path), config)
    shell.heed_signals()
    return shell.run()


def daemon(outcome_keep_s: float) -> startup.Daemon[AgentConfig]:
    """The daemon; check and file are those of the agent."""
    return startup.Daemon("trimtab-agent", AgentConfig, "", partial(run, outcome_keep_s), check_config)


if __name__ == "__main__":
    sys.exit(daemon(float(sys.argv[1])).main(sys.argv[2:]))
