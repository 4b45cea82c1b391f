"""A fixed number of nodes in service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from daemons.models import node_choice
from daemons.policies.provisioning.chances import chances_of
from daemons.policies.provisioning.memory import Memory
from daemons.policies.provisioning.params import COUNT, check
from daemons.policies.provisioning.sized import ObservedWindow, SizeRequest, is_open, observed_windows, recorded_size
from shared.policy_api.decision import ProvisioningDecision, Reason, ReasonCode, WindowSize
from shared.policy_api.policies import Needs, TableCache
from shared.policy_api.snapshot import Bools, Snapshot


class Static:
    """The first `nodes` available nodes in row order are in service, all of them when `nodes` is None or not given, and
    with them those that must stay."""

    name = "static"
    needs = Needs()
    event_driven = False
    covers_all = True  # nothing is added for jobs with goals and web applications

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` for a parameter other than `nodes`, or a `nodes` that is neither None nor a count."""
        check(self.name, params, {"nodes": COUNT})

    def decide(
        self, snapshot: Snapshot, state: Any, params: Mapping[str, Any], table_cache: TableCache
    ) -> tuple[ProvisioningDecision, Any]:
        """Name the nodes; fewer than `nodes` when there are fewer. Raises `InvalidInput` as `check_params` does."""
        self.check_params(params)
        usable = node_choice.available(snapshot)
        chosen = (
            usable & (np.cumsum(usable) <= params.get("nodes", None)) if params.get("nodes") is not None else usable
        )
        chosen = chosen | node_choice.staying(snapshot)
        numbers = (("in_service", float(chosen.sum())), ("nodes", float(len(set(snapshot.nodes.names)))))
        memory = Memory(state)
        recorded = tuple(
            _recorded(observed, chosen, table_cache)
            for observed in observed_windows(snapshot, memory)
            if is_open(observed.window)
        )
        reason = Reason(ReasonCode.KEEP, numbers)
        kept = memory.state() if snapshot.windows else None
        return ProvisioningDecision(node_choice.names(snapshot, chosen), reason, windows=recorded), kept


def _recorded(observed: ObservedWindow, chosen: Bools, table_cache: TableCache) -> WindowSize:
    """Return the record of a window, with the capacity that the nodes in service have for it."""
    worth = float(node_choice.rates(observed.window.rate)[chosen].sum()) + node_choice.ENOUGH
    size = min(
        int(worth - node_choice.lost(float(node_choice.held(observed.window).sum()), worth)), observed.limits.most
    )
    chances = None if observed.posed is None else chances_of(observed.window, observed.posed, table_cache)
    return recorded_size(SizeRequest(observed, max(size, observed.limits.least), ReasonCode.KEEP, chances), size)
