"""What the load balancer is to know of a web application: its instances with their addresses and weights, and how many
requests each of them, and the queue before them, should take."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import Instance, JobEntry
from daemons.controller.state.web_app import WebEntry
from daemons.controller.web.snapshot import flow_now
from daemons.environment_types.registry import distribution_of
from daemons.models import overload
from shared.ports.effects import Backend, Balance
from shared.values.vms import LIVE_STATES, VmState, VmStatus
from shared.values.web_app import Distribution, Flow, Limits, Serving

WEIGHT_STEPS = 256  # weights are told in such parts of the largest
STEADY_FRAC = 0.1  # limits that differ by less are not told


def table_of(cluster: Cluster, app: str, replicas: Iterable[tuple[JobEntry, str, bool]], previous: Limits) -> Balance:
    """Return the balancer's complete table for an application whose instances are these replicas, each on a node, to be
    drained or not; `previous`: the limits that were sent last. An application of which nothing is left has no `serving`
    any more."""
    replicas = list(replicas)
    web = cluster.web.get(app)
    serving = web.app.serving if web is not None else None
    found = [_backend(cluster, replica.instances[0], node, drain) for replica, node, drain in replicas]
    if web is None or serving is None or (web.removed and not replicas):
        return Balance(app, tuple(found))
    environment = cluster.environments.get(web.app.environment)
    agreement = environment.agreement if environment is not None else None
    serving = replace(serving, distribution=distribution_of(web.app, agreement))
    if serving.distribution is Distribution.WEIGHTED:
        weights = _weights([replica for replica, _, _ in replicas])
        found = [replace(backend, weight=weight) for backend, weight in zip(found, weights, strict=True)]
    at_work = [(replica, node) for replica, node, drain in replicas if not drain]
    limits = steady(previous, _limits(cluster, web, serving, at_work))
    return Balance(app, tuple(found), serving, limits, web.app.probe)


def note_address(cluster: Cluster, instance: Instance, node: str) -> bool:
    """Remember what a node says of where an instance is reached; true: it is not what was known."""
    status = status_on(cluster, node, instance.vm)
    if status is None or not status.address:
        return False
    before = instance.address_generation, instance.address
    instance.address_generation, instance.address = status.generation, status.address
    return before != (status.generation, status.address)


def _backend(cluster: Cluster, instance: Instance, node: str, drain: bool) -> Backend:
    """Return a backend with the remembered address of its current generation: its new node may not know the address
    yet, and a new leader has received none."""
    status = status_on(cluster, node, instance.vm)
    life = status.generation if status is not None else instance.generation
    return Backend(instance.vm, node, drain, instance.address if instance.address_generation == life else "")


def _weights(replicas: list[JobEntry]) -> list[float]:
    """Return the CPU of each over that of the largest, in whole steps, at least one; 1 where it is unknown."""
    given = [
        replica.allotments[0].cpu_mhz if replica.allotments else replica.instances[0].cpu_mhz for replica in replicas
    ]
    most = max(given, default=0.0)
    return [max(1, round(WEIGHT_STEPS * mhz / most)) / WEIGHT_STEPS if mhz > 0.0 else 1.0 for mhz in given]


# --- limits ----------------------------------------------------------------------------------------------------------


def steady(previous: Limits, now: Limits) -> Limits:
    """Return the previous limits, unless one of them has changed by STEADY_FRAC or more."""
    same = _is_near(previous.instance_max, now.instance_max) and _is_near(previous.queue_max, now.queue_max)
    return previous if same else now


def _is_near(previous: int | None, now: int | None) -> bool:
    if previous is None or now is None:
        return previous is now
    return abs(now - previous) < STEADY_FRAC * previous or now == previous


def _limits(cluster: Cluster, web: WebEntry, serving: Serving, replicas: list[tuple[JobEntry, str]]) -> Limits:
    """Return the limits by the performance model, for what the application does not set."""
    if serving.instance_max is not None and serving.queue_max is not None:
        return overload.UNKNOWN
    cpus = [replica.allotments[0].cpu_mhz for replica, _ in replicas if replica.allotments]
    nodes = [cluster.nodes[name].inventory for _, name in replicas if name in cluster.nodes]
    speeds = [node.core_mhz for node in nodes if node is not None]
    flows = [_load_of(web, flow) for flow in web.app.flows]
    known = [flow for flow in flows if flow is not None]
    if not cpus or not speeds or len(known) < len(flows):
        return overload.UNKNOWN
    found = overload.limits_of(known, math.fsum(cpus) / len(cpus), min(speeds), web.app.vcpus, len(cpus))
    return Limits(
        found.instance_max if serving.instance_max is None else None,
        found.queue_max if serving.queue_max is None else None,
    )


def _load_of(web: WebEntry, flow: Flow) -> overload.FlowLoad | None:
    """Return the current load of the flow; None while the work of a request is unknown."""
    now = flow_now(web, flow)
    if now.profile == "unknown":
        return None
    goal_s = flow.mean_s if flow.mean_s is not None else flow.percentile_s
    return overload.FlowLoad(
        now.rate_per_s,
        now.work_mcycles,
        flow.t_min_s,
        goal_s,
        flow.percentile,
        form=flow.model,
        c_mhz_s=flow.c_mhz_s,
    )


# --- where they are --------------------------------------------------------------------------------------------------


def place_of(cluster: Cluster, instance: Instance) -> str:
    """Return the node on which an instance runs, as far as is known ("": on none)."""
    found = [(name, status_on(cluster, name, instance.vm)) for name in sorted(instance.copies)]
    live = [(name, status.state) for name, status in found if status is not None and status.state in LIVE_STATES]
    runs = [name for name, state in live if state is VmState.RUNNING]
    return next(iter((*runs, *(name for name, _ in live), *sorted(instance.may_run_on))), "")


def status_on(cluster: Cluster, node: str, vm: str) -> VmStatus | None:
    """Return a node's last status of a VM, None: it is not there."""
    entry = cluster.nodes.get(node)
    return entry.vms.get(vm) if entry is not None else None
