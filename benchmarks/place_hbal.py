"""The same cluster balanced by hbal of Debian's ganeti-htools, by memory alone, and decided by a placement policy."""

from __future__ import annotations

import re
import resource
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.runner import Figure, cpu_s
from shared.policy_api.decision import ChangeKind, PlacementDecision
from shared.policy_api.snapshot import Snapshot, WorkloadState
from sim_backend.conformance.clusters import NodeRow, WorkRow, rows_of, snapshot

SIZES = (20, 50, 100)
VMS = 10
NOW_S = 100_000.0
NODE_MIB = 64_000.0
LIMIT_S = 120.0
BENCH = "hbal"
_GROUP = "default|11111111-1111-1111-1111-111111111111|preferred||"
_LIMITS = "128,1,0,1,1,1|128,1,0,1,1,1;1048576,64,1048576,16,8,12|ext|100000|100000"
_STEP = re.compile(r"^\s*\d+\. (\S+)\s+(\S+)\s+=>\s+(\S+)")


def cluster(nodes: int, seed: int = 1) -> Snapshot:
    """Ten VMs on every node, of 1 to 8 GiB: memory is used unevenly. Those of every fourth node are tight in time and
    could use a quarter more CPU than it has, the others need less than half."""
    rng = np.random.default_rng(seed)
    rows = [NodeRow(f"n{at}", 8, 3000.0, memory_mib=NODE_MIB) for at in range(nodes)]
    jobs = []
    for at in range(nodes):
        sizes = rng.integers(1, 9, VMS) * 1000.0
        while sizes.sum() > NODE_MIB:
            sizes = rng.integers(1, 9, VMS) * 1000.0
        mhz, given_mhz, factor = (3000.0, 2400.0, 1.3) if at % 4 == 0 else (1000.0, 1000.0, 2.5)
        jobs += [_job(rng, f"j{at}-{vm}", (at, given_mhz), sizes[vm], mhz, factor) for vm in range(VMS)]
    return replace(snapshot(rows, jobs, NOW_S), cycle_s=600.0)


def _job(
    rng: np.random.Generator, name: str, place: tuple[int, float], memory_mib: float, max_mhz: float, factor: float
) -> WorkRow:
    best_s = float(rng.uniform(3000.0, 30_000.0))
    return WorkRow(
        name,
        WorkloadState.RUNNING,
        memory_mib=float(memory_mib),
        max_mhz=max_mhz,
        desired_start_s=NOW_S,
        goal_s=NOW_S + factor * best_s,
        work_mcycles=best_s * max_mhz,
        places=(place,),
    )


def figures(decide: Callable[[Snapshot], PlacementDecision], say: Callable[[str], None]) -> Iterator[Figure]:
    """Times, moves and what is left of the spread of memory use (standard deviation over the nodes) for each size."""
    for nodes in SIZES:
        seen = cluster(nodes)
        yield Figure(BENCH, f"{nodes} nodes: spread of memory use before", _spread(seen, _homes(seen)), "of a node")
        begun_s = cpu_s()
        decision = decide(seen)
        yield Figure(BENCH, f"{nodes} nodes: apc", cpu_s() - begun_s, "s of CPU time")
        moves = [change for change in decision.changes if change.kind is ChangeKind.MIGRATE]
        yield Figure(BENCH, f"{nodes} nodes: moves of apc", len(moves), "")
        homes = _homes(seen) | {change.workload: change.allotments[0].node for change in moves}
        for change in decision.changes:
            if change.kind is ChangeKind.SUSPEND:
                homes.pop(change.workload)
        yield Figure(BENCH, f"{nodes} nodes: spread after apc", _spread(seen, homes), "of a node")
        try:
            used_s, ended, steps = balance(seen)
        except FileNotFoundError:
            say("left out hbal: it is not installed (Debian: ganeti-htools)")
            continue
        stopped = "" if ended else ", stopped"
        yield Figure(BENCH, f"{nodes} nodes: hbal{stopped}", used_s, "s of CPU time")
        yield Figure(BENCH, f"{nodes} nodes: moves of hbal{stopped}", len(steps), "")
        after = _homes(seen) | dict(steps)
        yield Figure(BENCH, f"{nodes} nodes: spread after hbal{stopped}", _spread(seen, after), "of a node")


def _homes(seen: Snapshot) -> dict[str, str]:
    nodes, jobs = rows_of(seen)
    return {job.name: nodes[job.places[0][0]].name for job in jobs}


def _spread(seen: Snapshot, homes: dict[str, str]) -> float:
    used = dict.fromkeys(seen.nodes.names, 0.0)
    memory = dict(zip(seen.workloads.names, seen.workloads.memory_mib.tolist(), strict=True))
    for job, node in homes.items():
        used[node] += memory[job] / NODE_MIB
    return float(np.std(list(used.values())))


def balance(seen: Snapshot) -> tuple[float, bool, Sequence[tuple[str, str]]]:
    """CPU time of hbal, whether it ended within `LIMIT_S`, and its steps until then (VM, new node). Raises
    FileNotFoundError where it is not installed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.data"
        file.write_text(as_text(seen), encoding="utf-8")
        said = Path(folder) / "said"
        begun_s, ended = cpu_s(resource.RUSAGE_CHILDREN), False
        with said.open("w") as out:
            command = ["hbal", "-t", str(file), "--ignore-dynu"]
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(command, stdout=out, stderr=subprocess.DEVNULL, check=True, timeout=LIMIT_S)
                ended = True
        used_s = cpu_s(resource.RUSAGE_CHILDREN) - begun_s
        lines = said.read_text(encoding="utf-8").splitlines()
    found = [match for line in lines if (match := _STEP.match(line))]
    return used_s, ended, [(match[1], match[3]) for match in found]


def as_text(seen: Snapshot) -> str:
    """The text format of htools: groups, nodes, instances, tags, policies. VMs on shared storage, and so much CPU that
    it does not count: only memory is left to balance."""
    nodes, jobs = rows_of(seen)
    free = seen.nodes.free_memory_mib.tolist()
    uuid = _GROUP.split("|")[1]
    node_lines = [
        f"{node.name}|{NODE_MIB:.0f}|0|{left:.0f}|1000000|1000000|100000|N|{uuid}|1||N|0|1|1.0"
        for node, left in zip(nodes, free, strict=True)
    ]
    vm_lines = [
        f"{job.name}|{job.memory_mib:.0f}|0|1|running|Y|{nodes[job.places[0][0]].name}||ext||1|1|N" for job in jobs
    ]
    policies = [f"|{_LIMITS}", f"default|{_LIMITS}"]
    blocks: tuple[list[str], ...] = ([_GROUP], node_lines, vm_lines, [], policies)
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"
