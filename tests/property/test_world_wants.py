"""Guests without a task, which use what they are asked for, against shares worked out anew at every change."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.base.errors import ContractViolation
from shared.values.nodes import Node
from sim_backend.world.cpu_sharing import shares_few
from sim_backend.world.world import World
from tests.extent import examples

CORE_MHZ = 1_000.0


def naive_shares(guests: dict[str, dict[str, float]], ceilings: dict[str, float], capacity: float) -> dict[str, float]:
    """Shares of the guests of one host; a ceiling that is named goes before what the guest wants."""
    active = [vm for vm, guest in guests.items() if guest["running"]]
    caps = [ceilings.get(vm, min(guests[vm]["wants"], guests[vm]["vcpus"] * CORE_MHZ)) for vm in active]
    given_mhz = shares_few([guests[vm]["weight"] for vm in active], caps, capacity)
    return dict(zip(active, given_mhz, strict=True))


@settings(max_examples=examples(80))
@given(st.integers(0, 2**32))
def test_as_worked_out_anew(seed: int) -> None:
    """Shares, what is available and the work done agree, whatever is asked, paused, reweighted or moved."""
    rng = random.Random(seed)
    world, cores = World(), {"a": 2, "b": 1}
    for host, count in cores.items():
        world.add_host(Node(host, count, CORE_MHZ, memory_mib=9_999))
    hosts: dict[str, dict[str, dict[str, float]]] = {"a": {}, "b": {}}
    homes: dict[str, str] = {}
    done: dict[str, float] = {}
    for index in range(rng.randint(1, 5)):
        vm, home = f"w#{index}", rng.choice("ab")
        guest = {"wants": 0.0, "vcpus": rng.randint(1, 2), "weight": rng.choice([100.0, 900.0]), "running": 1.0}
        world.place(vm, home, 0.0, guest["weight"], math.inf, int(guest["vcpus"]), 1)
        hosts[home][vm], homes[vm], done[vm] = guest, home, 0.0
    now_s = 0.0
    for _ in range(30):
        step_s = rng.choice([0.0, 1.0, 7.0])
        for home, guests in hosts.items():
            for vm, share in naive_shares(guests, {}, cores[home] * CORE_MHZ).items():
                done[vm] += share * step_s
        now_s += step_s
        world.advance(now_s)
        change(rng, world, hosts, homes, now_s)
        for vm, home in homes.items():
            guests, capacity = hosts[home], cores[home] * CORE_MHZ
            share = naive_shares(guests, {}, capacity).get(vm, 0.0)
            ceiling = {vm: guests[vm]["vcpus"] * CORE_MHZ}
            available = naive_shares(guests, ceiling, capacity).get(vm, 0.0)
            assert world.share_mhz(vm) == pytest.approx(share, abs=1e-6)
            assert world.available_mhz(vm) == pytest.approx(available, abs=1e-6)
            assert (vm in world.executing("w#")) is bool(guests[vm]["running"])
            assert world.done_without_task_mcycles(vm, now_s) == pytest.approx(done[vm], abs=1e-3)


def change(
    rng: random.Random,
    world: World,
    hosts: dict[str, dict[str, dict[str, float]]],
    homes: dict[str, str],
    now_s: float,
) -> None:
    """One random change to both."""
    vm = rng.choice(list(homes))
    guest = hosts[homes[vm]][vm]
    what = rng.randrange(5)
    if what <= 1:
        guest["wants"] = rng.choice([0.0, 300.0, 1_500.0])
        world.ask(vm, guest["wants"], now_s)
    elif what == 2:
        guest["running"] = 1.0 - guest["running"]
        world.set_running(vm, bool(guest["running"]), now_s)
    elif what == 3:
        guest["weight"] = rng.choice([100.0, 900.0])
        world.set_weight(vm, guest["weight"], math.inf, now_s)
    else:
        del hosts[homes[vm]][vm]
        homes[vm] = "b" if homes[vm] == "a" else "a"
        hosts[homes[vm]][vm] = guest
        world.move(vm, homes[vm], now_s)
        assert world.cpu_time_s(vm, now_s) == 0.0


def test_a_guest_with_a_task_asks_for_nothing() -> None:
    world = World()
    world.add_host(Node("a", 1, CORE_MHZ, memory_mib=1_000))
    world.add_task("t", [(100.0, 1_000.0)], 1)
    world.place("t#0", "a", 0.0, 1.0, math.inf, 1, 1)
    with pytest.raises(ContractViolation):
        world.ask("t#0", 5.0, 0.0)
