"""Whether an environment can be had, and whether a workload can be run in it: checked before anything changes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from daemons.controller.environments.inventory import share_of, slots
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.tenancy import nodes_of, runs
from daemons.environment_types.registry import refuse_type
from daemons.models.coordination.feasibility import Bound, contended, shortfall, units_of, unmet
from daemons.models.coordination.pairing import entangled, objections
from daemons.values.calendar import check_zone
from daemons.values.replies import unknown
from shared.base.errors import InvalidInput, InvalidValue, UnknownPolicy
from shared.policy_api.coordination import Asked, GroupView, Moment, Party
from shared.ports.plugins import find_policy
from shared.values.agreement import UNITS_MAX, Agreement, AssuranceTerms, WorkloadType
from shared.values.jobs import Job
from shared.values.nodes import Handover, Node, NodeCondition, NodeService
from shared.values.web_app import WebApp

Refused = tuple[str, str]
DONE: Refused = ("", "")
Known = Collection[str] | None  # names of environments that the reader may know of (None: all)


# --- agreements ------------------------------------------------------------------------------------------------------


def unknown_zone(terms: AssuranceTerms | None) -> Refused:
    """Return why the clock of a reservation is unknown here."""
    try:
        if terms is not None:
            check_zone("timezone", terms.timezone)
    except InvalidValue as problem:
        return "invalid-value", str(problem)
    return DONE


def refuse_policies(agreement: Agreement) -> Refused:
    """Check an agreement against its type, its coordination policy and its scheduling policy; return why it is
    refused."""
    refused = refuse_type(agreement)
    if refused != DONE:
        return refused
    try:
        objection = find_policy("coordination", agreement.model).objection(agreement.lower, agreement.upper)
        find_policy("placement", agreement.scheduling.policy).check_params(agreement.scheduling.params)
    except UnknownPolicy as problem:
        return "unknown-policy", str(problem)
    except (InvalidInput, InvalidValue) as problem:
        return "invalid-value", str(problem)
    return ("invalid-value", objection) if objection else DONE


def refuse_partner(agreement: Agreement, cluster: Cluster, named: Known = None) -> Refused:
    """Return why it cannot be coordinated with the environment that it names. One of another owner is no reason, which
    discloses nothing about it: the two are not paired then."""
    everyone = [one for one in cluster.environments.values() if named is None or one.name in named]
    others = [one for one in everyone if not one.over and one.name != agreement.name]
    partners = {one.name: one.partner for one in others}
    own = cluster.environments.get(agreement.name)
    if own is not None and not own.over:
        partners[own.name] = own.partner
    found = entangled(agreement, [one.agreement for one in others], partners)
    if found:
        return "coordination", found
    for other in others:
        reasons = objections(agreement, other.agreement) if other.name == agreement.coordinated_with else ()
        if reasons:
            return "coordination", "; ".join(reasons)
    return DONE


def infeasible(agreement: Agreement, cluster: Cluster, named: Known = None) -> str:
    """Return why its lower bound cannot be met beside those of all other environments ("": it can)."""
    others = [one.agreement for one in _standing(cluster) if one.name != agreement.name]
    return _short([*others, agreement], cluster, named).get(agreement.name, "")


def shortages(cluster: Cluster) -> dict[str, str]:
    """Return which activated environments can no longer have their lower bounds, and why, as text. Environments that
    have their nodes come first, then older ones."""
    held = Counter(node.given for node in cluster.nodes.values() if can_serve(node))
    serving = [one for one in _standing(cluster) if one.serves]
    serving.sort(key=lambda one: one.by_node and held[one.name] < one.agreement.lower)
    return _short([one.agreement for one in serving], cluster, None)


def _short(agreements: Sequence[Agreement], cluster: Cluster, named: Known) -> dict[str, str]:
    """Return, by name, why lower bounds cannot be met beside those before them."""
    bounds, capacity = _bounds(agreements, [one.lower for one in agreements], usable_nodes(cluster), cluster)
    lacking = shortfall([(bound.units, bound.fits) for bound in bounds], capacity)
    short = [bound.name for bound, lack in zip(bounds, lacking, strict=True) if lack]
    return dict(zip(short, unmet(bounds, capacity, named), strict=True)) if short else {}


def stretched(agreement: Agreement, cluster: Cluster, named: Known = None) -> str:
    """Return why its upper bound and those of others cannot all be reached at once ("": they can, or it has none)."""
    if agreement.upper is None:
        return ""
    others = [one.agreement for one in _standing(cluster) if one.name != agreement.name]
    bounded = [one for one in (*others, agreement) if one.upper is not None]
    bounds, capacity = _bounds(bounded, [one.upper or 0 for one in bounded], usable_nodes(cluster), cluster)
    return contended(bounds, capacity, None if named is None else {*named, agreement.name})


def usable_nodes(cluster: Cluster) -> list[Node]:
    """Return the inventories of the nodes that environments can get, now or later."""
    return [node.inventory for node in cluster.nodes.values() if node.inventory is not None and can_serve(node)]


def can_serve(node: NodeEntry) -> bool:
    """Neither has it failed, nor is it proven off against our will, nor does an operator keep it out."""
    failed = node.service is NodeService.FAILED or node.handover is Handover.FAILED
    dead = node.condition is NodeCondition.OFF and not node.asleep
    return not (node.held or failed or dead)


def _standing(cluster: Cluster) -> list[EnvironmentEntry]:
    """Environments that are there and stay, oldest first."""
    return sorted((one for one in cluster.environments.values() if not one.over), key=lambda one: one.order)


def _bounds(
    agreements: Sequence[Agreement], units: Sequence[int], nodes: Sequence[Node], cluster: Cluster
) -> tuple[list[Bound], list[int]]:
    """Return the bounds in nodes, in the order of the agreements, and the number of nodes of each class. Nodes of one
    class run the same system and hold equally many VMs of each template. VMs count as the nodes that they fill,
    together with those of earlier environments that may be on the same nodes."""
    templated = [one for one in agreements if one.template is not None]
    kinds: dict[tuple[Any, ...], list[Node]] = {}
    for node in nodes:
        held = tuple(_slots(one, node, cluster.vm_overhead_mib) for one in templated)
        kinds.setdefault((node.os_type, node.os_version, *held), []).append(node)
    examples = [group[0] for group in kinds.values()]
    bounds: list[Bound] = []
    filled: dict[tuple[bool, ...], float] = {}
    for agreement, count in zip(agreements, units, strict=True):
        fits = tuple(_fits(agreement, node, cluster.vm_overhead_mib) for node in examples)
        needed = count
        if agreement.template is not None:
            room = [_slots(agreement, node, cluster.vm_overhead_mib) for node in examples]
            before = filled.get(fits, 0.0)
            least = min((each for each, fit in zip(room, fits, strict=True) if fit), default=1)
            filled[fits] = before + count / least
            needed = math.ceil(filled[fits] - 1e-9) - math.ceil(before - 1e-9)
        bounds.append(Bound(agreement.name, needed, fits, _words(agreement, count)))
    return bounds, [len(group) for group in kinds.values()]


def _words(agreement: Agreement, count: int) -> str:
    if agreement.template is None:
        return units_of(agreement)
    return f"nodes for {count} {units_of(agreement)}"


def _fits(agreement: Agreement, node: Node, overhead_mib: float) -> bool:
    return runs(agreement, (node.os_type, node.os_version)) and _slots(agreement, node, overhead_mib) > 0


def _slots(agreement: Agreement, node: Node, overhead_mib: float) -> int:
    """Return how many units of an agreement fit on a node."""
    template = agreement.template
    return 1 if template is None else slots(node, template.memory_mib + overhead_mib, template.max_mhz)


# --- workloads -------------------------------------------------------------------------------------------------------


def refuse_environment(name: str, workload: WorkloadType, cluster: Cluster) -> Refused:
    """Return why nothing of a type can be submitted to the environment of that name."""
    entry = cluster.environments.get(name)
    if entry is None:
        known = [one.name for one in cluster.environments.values() if not one.over]
        return "unknown-environment", unknown("environment", name, known)
    if entry.destroyed:
        return "unknown-environment", f"environment {name!r} is destroyed"
    if entry.over:
        return "being-destroyed", f"environment {name!r} is being destroyed"
    if entry.agreement.workload is not workload:
        is_for = entry.agreement.workload.value
        return "wrong-workload", f"environment {name!r} is for {is_for} workloads, not {workload.value}"
    return DONE


def refuse_job(job: Job, cluster: Cluster) -> Refused:
    """Return why a job cannot be submitted to its environment."""
    refused = refuse_environment(job.environment, WorkloadType.BATCH, cluster)
    if refused != DONE:
        return refused
    entry = cluster.environments[job.environment]
    nodes = nodes_of(entry.agreement, cluster)
    node = max(nodes, key=lambda one: (one.usable_mib, one.cpu_mhz), default=None) if entry.by_node else None
    needed = math.ceil(share_of(job, node, cluster.vm_overhead_mib) - 1e-9)
    return _too_many(entry, needed, f"job {job.name!r}", cluster) or _too_large(entry, job) or DONE


def refuse_app(app: WebApp, cluster: Cluster) -> Refused:
    """Return why a web application cannot be submitted to its environment, or only to the one that it is in."""
    known = cluster.web.get(app.name)
    if known is not None and known.app.environment != app.environment:
        where = f"in environment {known.app.environment!r}" if known.app.environment else "in no environment"
        return "other-environment", f"web application {app.name!r} is {where}; remove it there first"
    if not app.environment:
        return DONE
    refused = refuse_environment(app.environment, WorkloadType.WEB, cluster)
    if refused != DONE:
        return refused
    entry = cluster.environments[app.environment]
    what = f"web application {app.name!r}"
    return _too_many(entry, app.min_instances, what, cluster) or _too_large(entry, app.replica_job(0, 0.0)) or DONE


def most_units(entry: EnvironmentEntry, cluster: Cluster) -> int:
    """Return the most units that it could ever have: the most that its group's policy grants when it requests all there
    are."""
    partner = cluster.environments.get(entry.partner or entry.agreement.coordinated_with)
    group = [entry.agreement] if partner is None or partner.over else [entry.agreement, partner.agreement]
    asking = GroupView(tuple(_asking(one, one.name == entry.name) for one in group))
    policy = find_policy("coordination", entry.agreement.model)
    sizes: list[int] = [policy.decide(asking, moment).sizes[0] for moment in Moment]
    return max(sizes)


def _asking(agreement: Agreement, for_all: bool) -> Party:
    party = Party(agreement.name, agreement.workload, agreement.lower, upper=agreement.upper, batch=agreement.batch)
    if not for_all:
        return party
    if agreement.workload is WorkloadType.WEB:
        return replace(party, wanted=UNITS_MAX)
    return replace(party, queued=UNITS_MAX, biggest=UNITS_MAX, asks=Asked(UNITS_MAX))


def _too_many(entry: EnvironmentEntry, needed: int, what: str, cluster: Cluster) -> Refused | None:
    most = most_units(entry, cluster)
    if entry.by_node:
        most = min(most, len(nodes_of(entry.agreement, cluster)))
    if needed <= most:
        return None
    units = units_of(entry.agreement)
    return "fits-no-environment", f"{what} needs {needed} {units}, environment {entry.name!r} can have {most} at most"


def _too_large(entry: EnvironmentEntry, job: Job) -> Refused | None:
    """Return why an instance exceeds one VM of the environment's template."""
    template = entry.agreement.template
    if template is None or not job.stages:
        return None
    memory_mib, mhz = job.memory_mib, job.max_mhz
    if memory_mib <= template.memory_mib and job.vcpus <= template.vcpus and mhz <= template.max_mhz:
        return None
    has = f"{template.memory_mib} MiB, {template.vcpus} vCPUs and {template.max_mhz:g} MHz"
    needs = f"{memory_mib} MiB, {job.vcpus} vCPUs and {mhz:g} MHz"
    return "fits-no-environment", f"an instance needs {needs}, a VM of template {template.name!r} has {has}"
