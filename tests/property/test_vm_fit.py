"""Where one more VM fits, and what has to move for it: the same as an exhaustive search in plain Python finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemons.decision.vm_fit import COPY_NAMES, Fit, VmFit, VmFitTask, vm_fit
from daemons.planning.make_room import MOVES_MAX
from shared.policy_api.snapshot import MigrationColumns, Snapshot, WorkloadState
from shared.values.jobs import ConstraintKind
from shared.values.new_vm import NewVm
from sim_backend.conformance.clusters import NodeRow, WorkRow, random_cluster, rows_of, snapshot
from tests.extent import examples
from tests.simulation.constraint_judge import Instance, holds, penalty, running
from tests.simulation.place_instances import with_rules

ENOUGH = 1 - 1e-9
SEEDS = st.integers(0, 2**32)
Step = tuple[int, int, int]  # workload, index, target


@dataclass(frozen=True)
class Naive:
    """The cluster with the VM as its last workload, which waits."""

    seen: Snapshot
    vm: NewVm

    @property
    def row(self) -> int:
        return len(self.seen.workloads.names) - 1

    def need(self) -> tuple[float, float]:
        """MiB and MHz."""
        return self.vm.memory_mib + self.seen.vm_overhead_mib, self.vm.cpu_mhz

    def usable(self, node: int) -> bool:
        return bool(self.seen.nodes.schedulable[node] and not self.seen.nodes.draining[node])

    def keeps_rules(self, row: int, index: int, node: int, placed: dict[int, tuple[int, ...]]) -> bool:
        """Whether an instance may be on the node, as all are placed with it there."""
        work, name = self.seen.workloads, self.seen.workloads.names[row]
        labels = set(work.required_labels[row]) <= set(self.seen.nodes.labels[node])
        one = Instance(name, row, index, node)
        ruled = all(holds(self.seen, each, one, placed) for each in self.seen.constraints if not each.weight)
        return self.usable(node) and labels and ruled

    def could_hold(self, node: int) -> bool:
        """Whether the VM is not too large for an empty node."""
        nodes, (mib, mhz) = self.seen.nodes, self.need()
        speed = min(self.vm.vcpus * nodes.core_mhz[node], nodes.cpu_mhz[node])
        return bool(nodes.memory_mib[node] >= mib * ENOUGH and nodes.cores[node] >= self.vm.vcpus and speed >= mhz)

    def fits(self, node: int, placed: dict[int, tuple[int, ...]], free: list[tuple[float, float]]) -> bool:
        mib, mhz = self.need()
        room = free[node][0] >= mib * ENOUGH and (not mhz or free[node][1] >= mhz * ENOUGH)
        return self.could_hold(node) and room and self.keeps_rules(self.row, 0, node, {**placed, self.row: (node,)})

    def movable(self, row: int) -> bool:
        work = self.seen.workloads
        kept = {name for each in self.seen.constraints if each.kind is ConstraintKind.KEEP for name in each.members}
        running_ = work.state[row] == WorkloadState.RUNNING.value
        return bool(running_ and not work.fixed[row] and work.names[row] not in kept)

    def may_move(self, step: Step, placed: dict[int, tuple[int, ...]], free: list[tuple[float, float]]) -> bool:
        """Whether an operator's `vms migrate` would be accepted now."""
        (row, index, to), work, nodes = step, self.seen.workloads, self.seen.nodes
        mib, mhz = work.memory_mib[row] + self.seen.vm_overhead_mib, self.mhz(row, index)
        speed = min(work.max_mhz[row], work.vcpus[row] * nodes.core_mhz[to], nodes.cpu_mhz[to])
        able = self.seen.migration is None or self.seen.migration.nodes_of(row)
        others = [node for at, node in enumerate(placed[row]) if at != index]
        return bool(
            to != placed[row][index]
            and speed >= mhz * ENOUGH
            and free[to][0] >= mib * ENOUGH
            and free[to][1] >= mhz * ENOUGH
            and (able is True or able is None or able[to])
            and not (work.spread[row] and to in others)
            and self.keeps_rules(row, index, to, moved(step, placed))
        )

    def mhz(self, row: int, index: int) -> float:
        return self.seen.instances.cpu_mhz.item(self.seen.workloads.first_instance.item(row) + index)

    def freed(
        self, step: Step, placed: dict[int, tuple[int, ...]], free: list[tuple[float, float]]
    ) -> list[tuple[float, float]]:
        (row, index, to), then = step, list(free)
        mib, mhz = self.seen.workloads.memory_mib.item(row) + self.seen.vm_overhead_mib, self.mhz(row, index)
        here = placed[row][index]
        then[here] = then[here][0] + mib, then[here][1] + mhz
        then[to] = then[to][0] - mib, then[to][1] - mhz
        return then

    def free(self) -> list[tuple[float, float]]:
        nodes = self.seen.nodes
        return list(zip(nodes.free_memory_mib.tolist(), nodes.free_cpu_mhz.tolist(), strict=True))

    def ways(self, node: int, most: int) -> Iterator[tuple[Step, ...]]:
        """Every sequence of at most so many moves from a node after which the VM fits there."""
        placed = running(self.seen)
        here = [(r, i) for r, place in placed.items() if self.movable(r) for i, at in enumerate(place) if at == node]
        yield from self._ways(node, here, most, placed, self.free())

    def _ways(
        self,
        node: int,
        here: list[tuple[int, int]],
        most: int,
        placed: dict[int, tuple[int, ...]],
        free: list[tuple[float, float]],
    ) -> Iterator[tuple[Step, ...]]:
        if self.fits(node, placed, free):
            yield ()
            return
        for row, index in here if most else ():
            for to in range(len(free)):
                step = row, index, to
                if self.may_move(step, placed, free):
                    rest = [one for one in here if one != (row, index)]
                    then, freed = moved(step, placed), self.freed(step, placed, free)
                    for more in self._ways(node, rest, most - 1, then, freed):
                        yield (step, *more)

    def best(self, node: int) -> tuple[int, float] | None:
        """The fewest moves, and the least memory of so many."""
        for most in range(1, MOVES_MAX + 1):
            found = [self.size(way) for way in self.ways(node, most)]
            if found:
                return min(found)
        return None

    def size(self, way: tuple[Step, ...]) -> tuple[int, float]:
        return len(way), sum(self.seen.workloads.memory_mib.item(row) for row, _, _ in way)


def moved(step: Step, placed: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """The places after a move."""
    row, index, to = step
    return {**placed, row: (*placed[row][:index], to, *placed[row][index + 1 :])}


def packed(rng: np.random.Generator) -> Snapshot:
    """Two to four nodes with little free memory, in small pieces."""
    nodes = [NodeRow(f"n{at}", memory_mib=float(rng.choice([3000.0, 5000.0]))) for at in range(int(rng.integers(2, 5)))]
    left, work = [node.memory_mib for node in nodes], []
    for at in range(int(rng.integers(4, 11))):
        mib, node = float(rng.choice([500.0, 1000.0, 1500.0])), int(rng.integers(len(nodes)))
        if left[node] >= mib:
            left[node] -= mib
            row = WorkRow(f"j{at}", WorkloadState.RUNNING, mib, places=((node, 200.0),), fixed=bool(rng.random() < 0.1))
            work.append(row)
    return snapshot(nodes, work)


def case(seed: int) -> tuple[Naive, VmFitTask]:
    """A small cluster, mostly with rules, at times with limits to where VMs can be migrated; and a question."""
    rng = np.random.default_rng(seed)
    plain = packed(rng) if seed % 2 else random_cluster(rng, int(rng.integers(1, 5)), int(rng.integers(0, 10)))
    vm = NewVm(
        int(rng.integers(1, 5)),
        int(rng.choice([500, 1000, 2000, 3000, 5000])),
        float(rng.choice([0.0, 0.0, 500.0, 2000.0])),
        ("ssd",) if rng.random() < 0.2 else (),
    )
    nodes, work = rows_of(plain)
    one = WorkRow(COPY_NAMES[0], memory_mib=vm.memory_mib, vcpus=vm.vcpus, required_labels=vm.required_labels)
    seen = snapshot(nodes, [*work, one], plain.now_s, plain.vm_overhead_mib)
    if rng.random() < 0.7:
        seen = with_rules(seen, seed)
    if rng.random() < 0.3:
        fits = rng.random((2, len(nodes))) < 0.5
        of = rng.integers(-1, 2, len(work))
        for row, place in running(plain).items():
            fits[of[row], list(place)] |= of[row] >= 0
        seen = replace(seen, migration=MigrationColumns(fits, np.append(of, -1)))
    about = tuple(each for each in seen.constraints if COPY_NAMES[0] in (*each.members, *each.about))
    before = snapshot(nodes, work, plain.now_s, plain.vm_overhead_mib)
    before = replace(before, nodes=replace(before.nodes, labels=seen.nodes.labels))
    rest = tuple(each for each in seen.constraints if each not in about)
    migration = None if seen.migration is None else MigrationColumns(seen.migration.fits, seen.migration.of[:-1])
    return Naive(seen, vm), VmFitTask(replace(before, constraints=rest, migration=migration), vm, about)


@settings(max_examples=examples(250))
@given(seed=SEEDS)
def test_the_answer_is_that_of_an_exhaustive_search(seed: int) -> None:
    naive, task = case(seed)
    found = vm_fit(task)
    names, free, placed = task.snapshot.nodes.names, naive.free(), running(naive.seen)
    now = {fit.node for fit in found.fits}
    moves = {fit.node: fit for fit in found.with_moves}
    assert sorted([*now, *moves, *(each.node for each in found.misfits)]) == sorted(names)
    for node, name in enumerate(names):
        assert (name in now) is naive.fits(node, placed, free), name
        if name in now:
            continue
        best = naive.best(node) if naive.could_hold(node) else None
        assert (name in moves) is (best is not None), name
        if best is not None:
            assert (len(moves[name].moves), sum(m.memory_mib for m in moves[name].moves)) == pytest.approx(best)
            assert not moves[name].limited
            _replay(naive, moves[name])
    _ordered(naive, found)


def _replay(naive: Naive, fit: Fit) -> None:
    """Every move is allowed when its turn comes, and the VM fits afterwards with what is said to be left."""
    seen = naive.seen
    free, placed = naive.free(), running(seen)
    node_of = {name: node for node, name in enumerate(seen.nodes.names)}
    for move in fit.moves:
        step = seen.workloads.names.index(move.workload), move.index, node_of[move.to_node]
        assert move.node == fit.node
        assert placed[step[0]][step[1]] == node_of[move.node]
        assert naive.movable(step[0])
        assert naive.may_move(step, placed, free)
        placed, free = moved(step, placed), naive.freed(step, placed, free)
    node = node_of[fit.node]
    assert naive.fits(node, placed, free)
    mib, mhz = naive.need()
    assert (fit.free_memory_mib, fit.free_cpu_mhz) == pytest.approx((free[node][0] - mib, free[node][1] - mhz))


def _ordered(naive: Naive, found: VmFit) -> None:
    """Best fit by memory, then the preferences; with moves: the fewest, then the least memory."""
    names, placed = naive.seen.nodes.names, running(naive.seen)
    keys = []
    for fit in found.fits:
        node = names.index(fit.node)
        loss = penalty(naive.seen, {**placed, naive.row: (node,)}) - penalty(naive.seen, placed)
        keys.append((fit.free_memory_mib, loss, node))
        assert not fit.moves
    assert keys == sorted(keys)
    sizes = [(len(fit.moves), sum(move.memory_mib for move in fit.moves)) for fit in found.with_moves]
    assert all(a <= b for a, b in pairwise(sizes))
    if found.fits or found.with_moves:
        assert found.placements[0] == (found.fits or found.with_moves)[0]
    else:
        assert found.placements == ()


@settings(max_examples=examples(100))
@given(seed=SEEDS)
def test_so_many_fit_as_one_after_the_other_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seen = random_cluster(rng)
    vm = NewVm(1, int(rng.choice([300, 1000, 2000])), float(rng.choice([0.0, 700.0])))
    count = int(rng.integers(1, 12))
    found = vm_fit(VmFitTask(seen, vm, count=count))
    free = list(zip(seen.nodes.free_memory_mib.tolist(), seen.nodes.free_cpu_mhz.tolist(), strict=True))
    mib, naive = vm.memory_mib + seen.vm_overhead_mib, 0
    for node, (free_mib, free_mhz) in enumerate(free):
        able = seen.nodes.schedulable[node] and not seen.nodes.draining[node]
        while able and free_mib >= mib * ENOUGH and (not vm.cpu_mhz or free_mhz >= vm.cpu_mhz * ENOUGH):
            free_mib, free_mhz, naive = free_mib - mib, free_mhz - vm.cpu_mhz, naive + 1
    assert found.how_many == naive
    assert len(found.placements) == count or (naive < count and len(found.placements) >= naive)
    assert all(not fit.moves for fit in found.placements[:naive])


def test_all_that_can_be_the_answer_occurs() -> None:
    """The random questions mean something: every kind of answer comes, also with two moves."""
    said = set()
    for seed in range(150):
        found = vm_fit(case(seed)[1])
        said |= {"fits"} if found.fits else set()
        said |= {f"moves {len(fit.moves)}" for fit in found.with_moves}
        said |= {each.obstacle.value for each in found.misfits}
    assert {"fits", "moves 1", "moves 2", "moves 3", "labels", "constraint", "no-memory", "no-cpu"} <= said
    assert "node-not-schedulable" in said
