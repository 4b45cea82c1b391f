"""Tells a load balancer off the core's thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from shared.effects import Balance, Balanced
from shared.errors import TransientError
from shared.lanes import Lane
from shared.ports import LoadBalancer

NO_BALANCER = "no balancer is configured"


class Caller:
    """Carries `Balance` effects out: one lane for each application, so that none waits for another's. `post` takes the
    answers."""

    def __init__(
        self, balancer: LoadBalancer | None, lane: Callable[[str], Lane], post: Callable[[Balanced], None]
    ) -> None:
        self._balancer, self._lane, self._post = balancer, lane, post
        self._lanes: dict[str, Lane] = {}

    def __call__(self, effect: Balance) -> None:
        """Have the balancer told."""
        if self._balancer is None:
            self._post(Balanced(effect.app, False, (), NO_BALANCER))
            return
        if effect.app not in self._lanes:
            self._lanes[effect.app] = self._lane(f"balance {effect.app}")
        self._lanes[effect.app].do(partial(self._tell, self._balancer, effect))

    def _tell(self, balancer: LoadBalancer, effect: Balance) -> None:
        try:
            answer = balancer.set_backends(effect.app, effect.backends)
        except TransientError as error:
            answer = Balanced(effect.app, False, (), str(error))
        self._post(answer)
