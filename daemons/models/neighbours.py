"""What sharing costs the instances of a placement, beside the CPU that allotments share out (d-factor.txt, 3.2).

An instance of allotment w makes the progress of w / d, d being its dilation by the loads of who is on its node; a
workload that of its slowest instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daemons.models.dilation import choice
from daemons.models.dilation.formula import waiting
from shared.base.errors import InvalidValue
from shared.policy_api.decision import Slowed
from shared.policy_api.snapshot import Floats, Ints, LoadingColumns, Snapshot

SLOWED_MIN = 1.05  # less is not worth a word
SLOWED_MAX = 200
_NAMED = 3
_SERVERS_MAX = 1e6
_TOGETHER_MAX, _CELLS_MAX = 8, 256  # jobs of a node, terms: so few are weighed with all other such nodes at once
FORMULA = "formula"


@dataclass(frozen=True, slots=True)
class Crowd:
    """Who is where: owner (row of the workload) and node (row, -1: not known) of each instance, ragged arrays of one
    length."""

    owner: Ints
    node: Ints


def sound_parts(loading: LoadingColumns) -> Floats:
    """Return the parts, with every invalid number replaced by 0."""
    parts = np.nan_to_num(loading.parts, nan=0.0, posinf=0.0, neginf=0.0)
    return np.where((parts > 0.0) & (parts <= 1.0), parts, 0.0)


def sound_servers(loading: LoadingColumns) -> Ints:
    """Whole servers, every number that makes no sense taken for 1."""
    servers = np.nan_to_num(loading.servers, nan=1.0, posinf=1.0, neginf=1.0)
    return np.clip(np.rint(servers), 1.0, _SERVERS_MAX).astype(np.int64)


def of_instances(loading: LoadingColumns, crowd: Crowd, model: str = FORMULA) -> Floats:
    """Return the slowdown factor of each instance against running alone on its node, float64[len(crowd.owner)], 1 or
    above."""
    known = crowd.node >= 0
    slow = np.ones(len(crowd.owner))
    owner, node = crowd.owner[known], crowd.node[known]
    kind = loading.node_type[node]
    p, servers = sound_parts(loading)[kind, owner], sound_servers(loading)
    others = _of_others(p, node, len(loading.node_type))
    slow[known] = 1.0 + (p * waiting(others, servers[kind])).sum(axis=1)
    if model != FORMULA:
        slow[known] = _by_model(p, node, kind, servers, slow[known], model)
    return slow


def _of_others(p: Floats, node: Ints, nodes: int) -> Floats:
    """Return, for each instance, the summed parts of all others on its node."""
    totals = np.stack([np.bincount(node, p[:, at], nodes) for at in range(p.shape[1])], axis=1)
    return np.asarray(np.maximum(totals[node] - p, 0.0))


def _by_model(p: Floats, node: Ints, kind: Ints, servers: Ints, formula: Floats, model: str) -> Floats:
    """Compute the slowdowns by the model, node by node; the formula is exact for two jobs at single servers."""
    slow, single = formula.copy(), (servers == 1).all(axis=1)
    uses = np.flatnonzero(p.any(axis=1) & ((formula > 1.0) | ~single[kind]))
    uses = uses[node[uses].argsort(kind="stable")]
    alike: dict[int, list[Ints]] = {}
    for group in np.split(uses, np.flatnonzero(np.diff(node[uses])) + 1):
        if group.size < 2 or (group.size == 2 and single[kind[group[0]]]):
            continue
        if (group.size + 1) ** p.shape[1] <= _CELLS_MAX and group.size <= _TOGETHER_MAX:
            alike.setdefault(group.size, []).append(group)
        else:
            slow[group] = _affordable(p[group], model, servers[kind[group[0]]])
    for groups in alike.values():
        rows = np.stack(groups)
        slow[rows] = exact(p[rows], servers[kind[rows[:, 0]]])
    return slow


def exact(p: Floats, servers: Ints) -> Floats:
    """Return the product-form slowdown of many groups of n jobs each, float64[groups, n]: the values of
    `dilation.product_form`, all at once. p: float64[groups, n, m]; servers: int64[groups, m].

    The network's constant is summed over the numbers of jobs at each resource: (n + 1) ** m terms.
    """
    groups, count, m = p.shape
    places = np.arange(1, count + 1)
    steps = places / np.minimum(places, servers[:, :, None])
    factors = np.concatenate([np.ones((groups, m, 1)), steps.cumprod(axis=2)], axis=2)
    weight = np.ones((groups, *[1] * m))
    for at in range(m):
        weight = weight * factors[:, at].reshape(groups, *[count + 1 if axis == at else 1 for axis in range(m)])
    idle = np.maximum(1.0 - p.sum(axis=2), 0.0)
    axes = tuple(range(1, m + 1))
    whole, *others = (
        (_jobs_at(p, idle, [job for job in range(count) if job != out]) * weight).sum(axis=axes)
        for out in range(-1, count)
    )
    return np.stack([whole / without for without in others], axis=1)


def _jobs_at(p: Floats, idle: Floats, jobs: Sequence[int]) -> Floats:
    """Return the unweighted probability of each combination of numbers of these jobs at the resources, for each
    group."""
    groups, count, m = p.shape
    found = np.zeros((groups, *[count + 1] * m))
    found.reshape(groups, -1)[:, 0] = 1.0
    for job in jobs:
        more = found * idle[:, job].reshape(groups, *[1] * m)
        for at in range(m):
            to: list[slice] = [slice(None)] * (m + 1)
            of = list(to)
            to[at + 1], of[at + 1] = slice(1, None), slice(None, -1)
            more[tuple(to)] += found[tuple(of)] * p[:, job, at].reshape(groups, *[1] * m)
        found = more
    return found


def _affordable(p: Floats, model: str, servers: Ints) -> Floats:
    """Return the slowdowns by the model or, if it is not available, by the one chosen by size."""
    try:
        return choice.dilation(p, model, servers)
    except (InvalidValue, ValueError):
        return choice.dilation(p, choice.Model.AUTO, servers)


def of_workloads(loading: LoadingColumns, crowd: Crowd, count: int, model: str = FORMULA) -> Floats:
    """Return the slowdown of the slowest instance of each workload, float64[count]; 1 if it has none."""
    slow = np.ones(count)
    np.maximum.at(slow, crowd.owner, of_instances(loading, crowd, model))
    return slow


def slowed(snapshot: Snapshot, crowd: Crowd) -> tuple[Slowed, ...]:
    """Return the workloads that are slowed by `SLOWED_MIN` or more, by the model that the snapshot selects, the most
    slowed first, at most `SLOWED_MAX`."""
    loading = snapshot.loading
    if loading is None or not len(crowd.owner) or not loading.resources:
        return ()
    slow = of_instances(loading, crowd, loading.model)
    found = np.flatnonzero(slow >= SLOWED_MIN)
    found = found[np.lexsort((crowd.owner[found], -slow[found]))]
    parts = sound_parts(loading)
    told: dict[int, Slowed] = {}
    for at in found.tolist():
        row, node = crowd.owner.item(at), crowd.node.item(at)
        if row in told:
            continue
        if len(told) == SLOWED_MAX:
            break
        kind = loading.node_type.item(node)
        there = np.flatnonzero(crowd.node == node)
        p = parts[kind, crowd.owner[there]]
        cost = parts[kind, row] * np.maximum(p.sum(axis=0) - parts[kind, row], 0.0)
        most = int(cost.argmax())
        uses = there[(p[:, most] > 0.0) & (there != at)]
        by = crowd.owner[uses[np.argsort(-parts[kind, crowd.owner[uses], most], kind="stable")]].tolist()
        names = tuple(snapshot.workloads.names[other] for other in dict.fromkeys(by))[:_NAMED]
        told[row] = Slowed(
            snapshot.workloads.names[row],
            snapshot.nodes.names[node],
            slow.item(at),
            loading.resources[most],
            names,
        )
    return tuple(told.values())
