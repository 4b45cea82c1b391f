"""What the controller asks of types of environments: their managers, how instances are adjusted and requests
distributed. What a type answers is checked here; callers see to it that one that fails changes nothing."""

from __future__ import annotations

import math
from dataclasses import replace

from daemons.environment_entry import EnvironmentEntry
from daemons.state import Cluster
from daemons.unit_views import quiet_s, waiting_of
from shared.agreement import UNITS_MAX, Agreement
from shared.coordination import Asked, InstancesView, ManagerView, Moment, Party
from shared.errors import InvalidInput, InvalidValue, Problem, UnknownType
from shared.model import Node, whole
from shared.plugins import ENVIRONMENTS, find_environment_type, names
from shared.ports import EnvironmentType
from shared.webapp import Distribution, WebApp


def type_of(agreement: Agreement) -> EnvironmentType:
    """The type of an environment; raises `UnknownType` where it is not registered here, cannot be loaded, or is for the
    other workload."""
    found: EnvironmentType = find_environment_type(agreement.type_name)
    if found.workload is not agreement.workload:
        what = f"is for {found.workload.value} workloads, not {agreement.workload.value}"
        others = "one of " + ", ".join(names(ENVIRONMENTS))
        raise UnknownType(Problem(f"type of environment {agreement.type_name!r}", what, others))
    return found


def refuse_type(agreement: Agreement) -> tuple[str, str]:
    """A code and a text where an agreement is of no type that there is here, or has terms that the type refuses; two
    empty ones where it may be."""
    try:
        type_of(agreement).check_terms(agreement.terms)
    except UnknownType as problem:
        return "unknown-type", str(problem)
    except (InvalidInput, InvalidValue) as problem:
        return "invalid-value", str(problem)
    except Exception as problem:  # noqa: BLE001 - a type may raise anything: it takes no agreement then
        return "invalid-value", f"type {agreement.type_name!r} cannot check its terms: {problem!r}"
    return "", ""


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
    """An environment with what its manager asks for: for jobs at its timer alone. node: what its jobs are counted in,
    see `queue_of`. Raises what its type raises, and `InvalidValue` for an answer that cannot be."""
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
    """Why the managers of web environments ask for what they do, at the moments at which that counts."""
    if moment not in (Moment.START, Moment.DEMAND):
        return ""
    asks: list[Asked] = [party.asks for party in parties if party.asks is not None]
    return "; ".join(asked.reason for asked in asks if asked.reason)


def adjusted(agreement: Agreement, view: InstancesView) -> int:
    """One instance more (1), one less (-1), or as many as there are (0). Raises what the type raises, and
    `InvalidValue` for an answer that cannot be."""
    if math.isnan(view.utilisation):
        return 0
    step = type_of(agreement).adjust(view, agreement.terms)
    whole("adjust", step, -1, 1)
    if step:
        whole("instances", view.instances + step, min(view.instances, view.least), max(view.instances, view.most))
    return step


def distribution_of(app: WebApp, cluster: Cluster) -> Distribution:
    """How requests of an application are distributed: as its file says, else as the type of its environment does, else
    to the instance with the fewest under way."""
    said = app.serving.distribution if app.serving is not None else None
    entry = cluster.environments.get(app.environment)
    if said is not None or entry is None:
        return said or Distribution.LEAST_CONNECTIONS
    try:
        return type_of(entry.agreement).distribution
    except UnknownType:  # `without_type` tells of it
        return Distribution.LEAST_CONNECTIONS
