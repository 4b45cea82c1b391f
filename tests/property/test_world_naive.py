"""The world against a naive one that works out every share anew at every event."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.values.jobs import workload_of
from shared.values.nodes import Node
from sim_backend.world.cpu_sharing import shares_few
from sim_backend.world.world import World
from tests.extent import examples

CORE_MHZ = 1_000.0
HORIZON_S = 200


@dataclass
class _Guest:
    host: str
    weight: float
    cap: float
    vcpus: int
    running: bool
    used_mcycles: float = 0.0
    at_disk_s: float = 0.0


@dataclass
class _Job:
    stages: list[tuple[float, float]]
    instances: int
    io: float = 0.0
    done: float = 0.0
    stage: int = 0
    over: bool = False


@dataclass
class _Naive:
    """Small steps from event to event; nothing is remembered between them but the work done."""

    cores: dict[str, int]
    disks: dict[str, int]
    jobs: dict[str, _Job] = field(default_factory=dict)
    guests: dict[str, _Guest] = field(default_factory=dict)
    ends: list[tuple[str, float]] = field(default_factory=list)
    now_s: float = 0.0
    waits: dict[str, float] = field(default_factory=dict)

    def rates(self) -> dict[str, float]:
        share: dict[str, float] = {}
        wanted: dict[str, float] = {}
        for host, cores in self.cores.items():
            here = {
                vm: guest
                for vm, guest in self.guests.items()
                if guest.host == host and guest.running and not self.jobs[workload_of(vm)[0]].over
            }
            caps = []
            for vm, guest in here.items():
                job = self.jobs[workload_of(vm)[0]]
                caps.append(min(guest.vcpus * CORE_MHZ, guest.cap, job.stages[job.stage][1]))
            given_mhz = shares_few([g.weight for g in here.values()], caps, cores * CORE_MHZ)
            share.update(zip(here, given_mhz, strict=True))
            wanted.update(zip(here, caps, strict=True))
        pace = share | self._at_disks(share, wanted)
        result = {}
        for name, job in self.jobs.items():
            members = [pace[vm] for vm in pace if workload_of(vm)[0] == name]
            result[name] = min(members) if len(members) == job.instances else 0.0
        return result

    def _at_disks(self, share: dict[str, float], wanted: dict[str, float]) -> dict[str, float]:
        """The paces of those that use a disk, by all sets of them that may be there at a time."""
        found = {}
        self.waits = {}
        for host, servers in self.disks.items():
            parts = {}
            for vm, mhz in share.items():
                name = workload_of(vm)[0]
                whole = sum(workload_of(other)[0] == name for other in share) == self.jobs[name].instances
                if self.guests[vm].host == host and self.jobs[name].io and whole and mhz > 0:
                    parts[vm] = self.jobs[name].io * mhz / wanted[vm]
            for vm, part in parts.items():
                slow = _weight(parts, servers) / _weight({o: p for o, p in parts.items() if o != vm}, servers)
                found[vm] = share[vm] / slow
                self.waits[vm] = (slow - (1.0 - part)) / share[vm]
        return found

    def advance(self, until_s: float) -> None:
        while True:
            rates = self.rates()
            targets = {name: math.fsum(w for w, _ in job.stages[: job.stage + 1]) for name, job in self.jobs.items()}
            ends = [
                (self.now_s + (targets[name] - job.done) / rates[name], name)
                for name, job in self.jobs.items()
                if rates[name] > 0 and not job.over
            ]
            at_s, first = min(ends, default=(math.inf, ""))
            step_to_s = min(at_s, until_s)
            for vm, guest in self.guests.items():
                name = workload_of(vm)[0]
                if not self.jobs[name].over:
                    guest.used_mcycles += rates[name] * (step_to_s - self.now_s)
                    guest.at_disk_s += self.waits.get(vm, 0.0) * rates[name] * (step_to_s - self.now_s)
            for name, job in self.jobs.items():
                if not job.over:
                    job.done += rates[name] * (step_to_s - self.now_s)
            self.now_s = step_to_s
            if at_s > until_s:
                return
            job = self.jobs[first]
            job.done = targets[first]
            if job.stage + 1 < len(job.stages):
                job.stage += 1
            else:
                job.over = True
                self.ends.append((first, self.now_s))


def _weight(parts: dict[str, float], servers: int) -> float:
    """Sum over all sets of guests at the disk, in any order in which they may be served."""
    total = 0.0
    for chosen in itertools.product((False, True), repeat=len(parts)):
        weight = 1.0
        for there, part in zip(chosen, parts.values(), strict=True):
            weight *= part if there else 1.0 - part
        for count in range(1, sum(chosen) + 1):
            weight *= count / min(count, servers)
        total += weight
    return total


def _both(rng: random.Random, io: bool) -> tuple[World, _Naive]:
    hosts = [f"h{i}" for i in range(rng.randint(1, 3))]
    world, naive = World(), _Naive({h: rng.randint(1, 2) for h in hosts}, {h: rng.randint(1, 2) for h in hosts})
    for host, cores in naive.cores.items():
        world.add_host(Node(host, cores, CORE_MHZ, memory_mib=4096), disk_servers=naive.disks[host])
    for i in range(rng.randint(1, 6)):
        stages = [(rng.uniform(1e3, 5e4), rng.choice([300.0, 1000.0, 2000.0])) for _ in range(rng.randint(1, 3))]
        instances = rng.choice([1, 1, 2, 3])
        part = rng.choice([0.0, 0.3, 0.8, 1.0]) if io else 0.0
        world.add_task(f"t{i}", stages, instances, io=part)
        naive.jobs[f"t{i}"] = _Job(stages, instances, part)
    return world, naive


def _change(rng: random.Random, world: World, naive: _Naive, now_s: float) -> None:
    """One random change to both."""
    name = rng.choice(list(naive.jobs))
    vm = f"{name}#{rng.randrange(naive.jobs[name].instances)}"
    host, weight = rng.choice(list(naive.cores)), rng.choice([100.0, 500.0, 1500.0])
    cap, guest = rng.choice([math.inf, 400.0]), naive.guests.get(vm)
    if guest is None:
        if not naive.jobs[name].over:
            vcpus, running = rng.randint(1, 2), rng.random() < 0.8
            naive.guests[vm] = _Guest(host, weight, cap, vcpus, running)
            world.place(vm, host, now_s, weight, cap, vcpus, 64, running=running)
        return
    what = rng.randrange(4)
    if what == 0:
        guest.running = not guest.running
        world.set_running(vm, guest.running, now_s)
    elif what == 1:
        guest.weight, guest.cap = weight, cap
        world.set_weight(vm, weight, cap, now_s)
    elif what == 2:
        guest.host, guest.used_mcycles, guest.at_disk_s = host, 0.0, 0.0
        world.move(vm, host, now_s)
    elif rng.random() < 0.3:
        del naive.guests[vm]
        world.remove(vm, now_s)


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32), st.booleans())
def test_as_the_naive_world(seed: int, io: bool) -> None:
    """Ends, progress, counters and where everyone is agree, whatever is done to the guests."""
    rng = random.Random(seed)
    world, naive = _both(rng, io)
    now_s, ended = 0, []
    while now_s < HORIZON_S:
        now_s += rng.choice([0, 0, 1, 3, 10])
        ended += world.advance(now_s)
        naive.advance(now_s)
        _change(rng, world, naive, float(now_s))
        for name, job in naive.jobs.items():
            assert world.done_mcycles(name, now_s) == pytest.approx(job.done, abs=1e-3)
        for vm, guest in naive.guests.items():
            assert world.where(vm) == guest.host
            assert world.cpu_time_s(vm, now_s) == pytest.approx(guest.used_mcycles / CORE_MHZ, abs=1e-6)
            assert world.disk_s(vm, now_s)[0] == pytest.approx(guest.at_disk_s, abs=1e-6)
    completions = [(name, at_s) for name, times in world.completions.items() for _, at_s in times]
    assert sorted(name for name, _ in completions) == sorted(name for name, _ in naive.ends)
    for name, at_s in naive.ends:
        assert dict(completions)[name] == pytest.approx(at_s, abs=1e-6)
    assert len(ended) == sum(naive.jobs[name].instances for name, _ in naive.ends)
