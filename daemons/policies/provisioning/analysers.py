"""The objective analyser of deadline windows: the probability that the deadline is missed, by number of servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daemons.models.deadline.capacity import breach
from daemons.models.deadline.problem import DeadlineProblem
from daemons.policies.provisioning.params import check
from shared.policy_api.snapshot import WindowView


class BatchDeadline:
    """Jobs that share a deadline, exactly (batch-provisioning.txt section 4.2)."""

    name = "batch-deadline"

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` for any parameter: there is none."""
        check(self.name, params, {})

    def breach(self, window: WindowView, servers: Sequence[int], params: Mapping[str, Any]) -> tuple[float, ...]:
        """Return the probability (0..1) that a job is left at the deadline with each number of servers (>= 0) from now
        on.

        Raises `InvalidValue` for a window with unusable numbers.
        """
        self.check_params(params)
        numbers = np.maximum(np.asarray(servers, dtype=np.int64), 1)
        if not numbers.size:
            return ()
        free = np.zeros(window.intervals)
        service, most = window.service_s / window.interval_s, int(numbers.max())
        problem = DeadlineProblem(
            window.arrivals,
            service,
            1,
            servers_max=most,
            confidence=window.confidence,
            price=free,
            removal_price=free,
            slots=window.slots,
        )
        found = breach(problem, window.interval, window.jobs, numbers)
        none = 0.0 if not window.jobs and not window.arrivals[window.interval :, 0].any() else 1.0
        chances = np.clip(np.where(np.asarray(servers) < 1, none, found), 0.0, 1.0)
        return tuple(float(chance) for chance in chances)
