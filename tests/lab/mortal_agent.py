"""An agent of the lab that dies by SIGKILL at a call to libvirt: `python -m tests.lab.mortal_agent`, with what it is to
do on its input. Its answer goes to its output, if it lives to give one."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from typing import cast

from agents.hypervisors.libvirt.binding import Module, real
from agents.hypervisors.libvirt.build import from_module
from shared.base.clock import SystemClock
from shared.config.agent import AgentConfig
from shared.ports.effects import Operated
from shared.values.actions import Action
from tests.conformance.mortal import MortalModule, Point

LIMIT_S = 60.0
INTO_S = 0.05  # so long after it began a call is in progress


def run(config: AgentConfig, action: Action, point: Point) -> str:
    """Have an agent carry out an action in a process of its own; its answer ("": it died at the point)."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.lab.mortal_agent"],
        input=pickle.dumps((config, action, point)),
        capture_output=True,
        timeout=2 * LIMIT_S,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return "" if done.returncode else done.stdout.decode()[-1000:]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_soon() -> None:
    threading.Timer(INTO_S, _die).start()


def main() -> None:
    """Carry it out."""
    config, action, point = pickle.load(sys.stdin.buffer)  # from the test that started this
    clock = SystemClock()
    module = MortalModule(real(), point, _die, _die_soon)
    driver = from_module(config, lambda: None, cast(Module, module))
    driver.vms(0.0)
    driver.begin(action, 0.0)
    limit_s = clock.monotonic_s() + LIMIT_S
    while clock.monotonic_s() < limit_s:
        for event in driver.poll(0.0):
            if isinstance(event, Operated) and event.call_id == action.id:
                print(event, flush=True)
                driver.close()
                return
        clock.sleep(0.01)
    sys.exit(1)


if __name__ == "__main__":
    main()
