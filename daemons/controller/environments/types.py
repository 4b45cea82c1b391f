"""The controller's calls to types of environments: their managers, autoscaling and request distribution. Answers of
types are checked here; callers make sure that a failing type changes nothing."""

from __future__ import annotations

from dataclasses import replace

from daemons.controller.environments.inventory import quiet_s, waiting_of
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.environment import EnvironmentEntry
from daemons.environment_types.registry import type_of
from shared.base.errors import InvalidValue, UnknownType
from shared.policy_api.coordination import Asked, ManagerView, Moment, Party
from shared.values.agreement import UNITS_MAX
from shared.values.nodes import Node
from shared.values.scalars import whole


def without_type(cluster: Cluster) -> dict[str, str]:
    """Environments whose type is not to be had here any more, and why, in words."""
    found = {}
    for name, entry in cluster.environments.items():
        try:
            if not entry.destroyed:
                type_of(entry.agreement)
        except UnknownType as problem:
            found[name] = f"it keeps what it has: {problem}"
    return found


# --- asking ----------------------------------------------------------------------------------------------------------


def managed(
    entry: EnvironmentEntry, party: Party, node: Node | None, moment: Moment, cluster: Cluster, now_s: float
) -> Party:
    """Return an environment with its manager's request; for jobs only at its timer. node: the unit in which its jobs
    are counted, see `queue_of`. Raises what its type raises, and `InvalidValue` for an invalid answer."""
    if entry.batch and moment is not Moment.MANAGE:
        return party
    if entry.batch:
        view = ManagerView(party, waiting_of(entry, cluster, node, now_s), quiet_s(entry, cluster, now_s))
    else:
        view = ManagerView(party)
    asked = type_of(entry.agreement).manage(view, entry.agreement.terms)
    whole("units", asked.units, 0, UNITS_MAX)
    if not isinstance(asked.reason, str):
        raise InvalidValue("reason", asked.reason, "text")
    return replace(party, asks=asked, wanted=0 if entry.batch else asked.units)


def reasons(parties: tuple[Party, ...], moment: Moment) -> str:
    """Return why the managers of web environments request what they do, at the moments at which that counts."""
    if moment not in (Moment.START, Moment.DEMAND):
        return ""
    asks: list[Asked] = [party.asks for party in parties if party.asks is not None]
    return "; ".join(asked.reason for asked in asks if asked.reason)
