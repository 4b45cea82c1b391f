"""The load balancer in a fault run. The seed determines the applications that it serves and when it is unreachable or
restarts. After convergence it must serve the running instances."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from shared.values.vms import VmState
from shared.values.web_app import Distribution, Serving
from sim_backend.faults.apps import FaultApp
from sim_backend.faults.invariants.apps import vms_of
from sim_backend.loop.closed_loop import ClosedLoop

TOLD = 0.6  # share of seeds with a balancer that is told
FROM_S, UNTIL_S = 300.0, 4_500.0
PRIORITY = 5
AWAY, RESTARTED = "balancer-away", "balancer-restarted"


def balancer_of(seed: int) -> dict[str, Any]:
    """Return the controllers' settings for the balancer of a seed; {} if the seed has none."""
    rng = Random(f"balancer:{seed}")
    if rng.random() >= TOLD:
        return {}
    drain_limit_s, resend_s = rng.choice((0.0, 30.0, 60.0)), rng.choice((5.0, 30.0, 120.0))
    return {"driver": "fake", "drain_limit_s": drain_limit_s, "resend_s": resend_s, "measures": True}


def served(seed: int, number: int, drawn: FaultApp) -> FaultApp:
    """Return an application, served and measured by the balancer if the seed says so, which is half of them."""
    rng = Random(f"serving:{seed}:{drawn.app.name}")
    if rng.random() < 0.5:
        return drawn
    serving = Serving(8080, 8000 + number, rng.choice((None, *Distribution)), rng.choice((None, 20)))
    changed = replace(serving, distribution=Distribution.WEIGHTED, queue_max=50)
    return replace(
        drawn,
        app=replace(drawn.app, serving=serving),
        changed=replace(drawn.changed, serving=changed) if drawn.changed is not None else None,
    )


class BalancerFaults:
    """Has the balancer of a run fail now and then; `done` counts how often."""

    def __init__(self, loop: ClosedLoop, done: Counter[str], seed: int) -> None:
        self._loop, self._done = loop, done
        self._tells = loop.settings.controller.balancer.tells
        rng = Random(f"balancer-fails:{seed}")
        for _ in range(rng.randint(1, 4) if self._tells else 0):
            calls = rng.randint(1, 30)
            begin = self._restart if rng.random() < 0.5 else self._away
            loop.engine.at(rng.uniform(FROM_S, UNTIL_S), PRIORITY, partial(begin, calls))

    def repair(self) -> None:
        """Make the balancer reachable again."""
        self._loop.fake_balancer.fail_next = 0

    def unsettled(self) -> list[str]:
        """Return why the balancer does not serve exactly the running instances."""
        if not self._tells:
            return []
        loop, why = self._loop, []
        for name, balancer in loop.balancers.items():
            running = {vm for vm, _, state in vms_of(loop, name) if state is VmState.RUNNING}
            serving = loop.fake_balancer.serving(name)
            if serving != running:
                why.append(f"{name} is served by {sorted(serving)}, and {sorted(running)} run")
            order = loop.fake_balancer.orders.get(name)
            if balancer.stopped and order is not None and (order.serving is not None or order.backends):
                why.append(f"{name} was removed, and the balancer knows of it")
        return why

    def _away(self, calls: int) -> None:
        self._loop.fake_balancer.fail_next = calls
        self._done[AWAY] += 1

    def _restart(self, _calls: int) -> None:
        self._loop.fake_balancer.restart()
        self._done[RESTARTED] += 1
