"""A fixed number of nodes in service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from daemons.models import node_choice
from daemons.policies.provisioning.chances import chances_of
from daemons.policies.provisioning.memory import Memory
from daemons.policies.provisioning.params import COUNT, check
from daemons.policies.provisioning.sized import Sight, Wish, is_open, sights, told_of
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
        told = tuple(_told(sight, chosen, table_cache) for sight in sights(snapshot, memory) if is_open(sight.window))
        reason = Reason(ReasonCode.KEEP, numbers)
        kept = memory.state() if snapshot.windows else None
        return ProvisioningDecision(node_choice.names(snapshot, chosen), reason, windows=told), kept


def _told(sight: Sight, chosen: Bools, table_cache: TableCache) -> WindowSize:
    """A window with what the nodes in service are worth to it."""
    worth = float(node_choice.rates(sight.window.rate)[chosen].sum()) + node_choice.ENOUGH
    size = min(int(worth - node_choice.lost(float(node_choice.held(sight.window).sum()), worth)), sight.limits.most)
    chances = None if sight.posed is None else chances_of(sight.window, sight.posed, table_cache)
    return told_of(Wish(sight, max(size, sight.limits.least), ReasonCode.KEEP, chances), size)
