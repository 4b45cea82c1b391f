"""Clusters of thousands of jobs for the placement benches, as columns drawn from a seed."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np

from shared.policy_api.snapshot import (
    Bools,
    EnvironmentColumns,
    Floats,
    InstanceColumns,
    Ints,
    NodeColumns,
    Snapshot,
    StageColumns,
    WorkloadColumns,
    WorkloadState,
)
from shared.values.operation_costs import COSTS

NOW_S, CYCLE_S = 200_000.0, 600.0
CORES, CORE_MHZ, NODE_MIB = 4, 3900.0, 16_000.0
SIZES_MIB = (4400.0, 4800.0, 5200.0, 5600.0)
ON_NODE = 3
FACTORS = (1.3, 1.9, 2.5, 4.0, 10.0)


def loaded(nodes: int, jobs: int, seed: int = 1) -> Snapshot:
    """Every node full by memory with three running jobs, which could use more CPU than it has; the rest waits, a tenth
    of it already late. Four memory sizes, five tightnesses, the paper's costs."""
    rng = np.random.default_rng(seed)
    running = ON_NODE * nodes
    triples = [triple for triple in combinations_with_replacement(SIZES_MIB, ON_NODE) if sum(triple) <= NODE_MIB]
    placed = np.array(triples)[rng.integers(0, len(triples), nodes)].reshape(-1)
    memory_mib = np.concatenate([placed, rng.choice(SIZES_MIB, jobs - running)])
    vcpus = rng.choice([1, 2], jobs)
    late = np.concatenate([np.zeros(running, dtype=np.bool_), rng.random(jobs - running) < 0.1])
    return _snapshot(rng, nodes, memory_mib, vcpus, np.repeat(np.arange(nodes), ON_NODE), late)


def fitting(nodes: int, running: int, waiting: int, seed: int = 1) -> Snapshot:
    """All jobs fit, at full speed: of one size and speed, three to a node."""
    rng = np.random.default_rng(seed)
    jobs = running + waiting
    memory_mib, vcpus = np.full(jobs, 4320.0), np.ones(jobs, dtype=np.int64)
    return _snapshot(rng, nodes, memory_mib, vcpus, np.arange(running) % nodes, np.zeros(jobs, dtype=np.bool_))


def parted(seen: Snapshot, count: int) -> Snapshot:
    """The cluster as so many environments of equal size: what runs is of the environment that has its node, the others
    are of each in turn."""
    nodes, work = len(seen.nodes.names), seen.workloads
    holder, owner = np.arange(nodes) * count // nodes, np.arange(len(work.names)) % count
    runs = work.state == WorkloadState.RUNNING.value
    owner[runs] = holder[seen.instances.node[work.first_instance[runs]]]
    names, quota = tuple(f"e{at}" for at in range(count)), np.full(count, -1)
    return replace(seen, environments=EnvironmentColumns(names, holder, owner, quota, np.zeros(nodes, dtype=np.bool_)))


def _snapshot(
    rng: np.random.Generator, nodes: int, memory_mib: Floats, vcpus: Ints, at: Ints, late: Floats
) -> Snapshot:
    """Jobs in row order; the first `len(at)` run on those nodes, each with its share of the node's CPU."""
    jobs, running = len(memory_mib), len(at)
    max_mhz: Floats = vcpus * np.float64(CORE_MHZ)
    best_s = rng.uniform(3000.0, 30_000.0, jobs)
    runs = np.arange(jobs) < running
    done_frac = np.where(runs, rng.uniform(0.0, 0.8, jobs), 0.0)
    factor = rng.choice(FACTORS, jobs)
    since_s = np.where(runs, done_frac * best_s * rng.uniform(1.0, 1.3, jobs), rng.uniform(0.0, 1.0, jobs) * best_s)
    since_s = np.where(late, factor * best_s * 1.05, np.minimum(since_s, 0.9 * (factor - 0.3) * best_s))
    wanted = _sums(at, max_mhz[:running], nodes)
    share = np.minimum(1.0, CORES * CORE_MHZ / np.maximum(wanted, 1.0))
    given: Floats = max_mhz[:running] * share[at]
    return Snapshot(
        NOW_S,
        CYCLE_S,
        _nodes(nodes, _sums(at, given, nodes), _sums(at, memory_mib[:running], nodes)),
        workloads=_jobs(runs, memory_mib, vcpus, NOW_S - since_s, factor * best_s, best_s * max_mhz, done_frac),
        instances=InstanceColumns(at.astype(np.int64), given),
        stages=StageColumns(best_s * max_mhz, max_mhz, np.zeros(jobs), memory_mib.copy()),
        costs=COSTS["paper"],
    )


def _sums(at: Ints, values: Floats, nodes: int) -> Floats:
    return np.bincount(at, values, nodes).astype(np.float64)


def _nodes(count: int, used_mhz: Floats, used_mib: Floats) -> NodeColumns:
    cpu_mhz, memory_mib = np.full(count, CORES * CORE_MHZ), np.full(count, NODE_MIB)
    return NodeColumns(
        tuple(f"n{at}" for at in range(count)),
        np.full(count, CORES),
        np.full(count, CORE_MHZ),
        cpu_mhz=cpu_mhz,
        memory_mib=memory_mib,
        free_cpu_mhz=cpu_mhz - used_mhz,
        free_memory_mib=memory_mib - used_mib,
        schedulable=np.ones(count, dtype=np.bool_),
        draining=np.zeros(count, dtype=np.bool_),
        labels=((),) * count,
    )


def _jobs(
    runs: Bools, memory_mib: Floats, vcpus: Ints, start_s: Floats, span_s: Floats, work: Floats, done_frac: Floats
) -> WorkloadColumns:
    count = len(memory_mib)
    ones, none = np.ones(count, dtype=np.int64), np.zeros(count)
    return WorkloadColumns(
        names=tuple(f"j{at}" for at in range(count)),
        state=np.where(runs, WorkloadState.RUNNING.value, WorkloadState.WAITING.value),
        revision=ones,
        submit_s=start_s,
        desired_start_s=start_s,
        goal_s=start_s + span_s,
        not_before_s=none,
        work_mcycles=work,
        done_mcycles=done_frac * work,
        max_mhz=vcpus * np.float64(CORE_MHZ),
        min_mhz=none,
        memory_mib=memory_mib,
        vcpus=vcpus.astype(np.int64),
        instances=ones,
        importance=np.ones(count),
        spread=none > 0.0,
        fixed=none > 0.0,
        first_instance=np.cumsum(runs, dtype=np.int64) - runs,
        required_labels=((),) * count,
        app=-ones,
        changed_s=np.full(count, -math.inf),
        first_stage=np.arange(count),
        stages=ones,
        queued=none > 0.0,
        stays=none > 0.0,
    )
