"""Fault runs with a deadline window, a provisioning policy and nodes that sleep; `tests/simulation/test_faults.py`
plays some of these seeds with all the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from shared.bus.faults import BusFaults
from shared.model import NodeService
from sim_backend.fake_power import HostPower
from sim_backend.fault_power import DEADLINE_S, POLICIES, ROTATED, SHARE, TURN, PowerFault
from sim_backend.fault_runs import FaultRun, loop_settings, run_seed
from sim_backend.fault_script import write_script

KINDS = len(PowerFault)


def power_seeds(turns: range) -> list[int]:
    """The seeds with power of these turns."""
    return [turn * SHARE + TURN for turn in turns]


def calm_run(seed: int) -> FaultRun:
    """A run of a seed in which nothing goes wrong."""
    script = write_script(seed)
    assert script.power is not None
    power = replace(script.power, incidents=())
    quiet = replace(script, incidents=(), bus=BusFaults(seed), power=power, drains=())
    return FaultRun(quiet, loop_settings(quiet))


@pytest.mark.parametrize("seed", power_seeds(range(4, 10)))
def test_every_invariant_holds(seed: int) -> None:
    outcome = run_seed(seed)

    assert (outcome.violations, outcome.crash) == ((), ""), f"trimtab sim faults --seeds {seed}-{seed}"


def test_every_kind_is_scripted_and_happens() -> None:
    seeds = power_seeds(range(4, 4 + KINDS // ROTATED))
    scripted: set[str] = set()
    happened: Counter[str] = Counter()
    for seed in seeds:
        power = write_script(seed).power
        assert power is not None
        scripted |= {incident.kind.value for incident in power.incidents}
        happened.update(run_seed(seed).faults)

    every = {kind.value for kind in PowerFault}
    assert scripted == every
    assert every - set(happened) <= {"node-dies-while-draining"}  # only where a node is emptied just then


def test_one_seed_in_five_has_it_and_every_policy_has_its_turn() -> None:
    scripts = [write_script(seed).power for seed in range(SHARE * len(POLICIES))]

    assert [seed for seed, power in enumerate(scripts) if power is not None] == power_seeds(range(len(POLICIES)))
    assert {power.policy for power in scripts if power is not None} == set(POLICIES)


def test_in_calm_nodes_sleep_and_wake_and_the_deadline_is_kept() -> None:
    run = calm_run(power_seeds(range(8))[5])
    run.run()

    states = Counter(state for _, _, state in run.loop.fake_power.changes)
    assert run.outcome().violations == ()
    assert states[HostPower.FALLING] > 2
    assert run.loop.fake_power.starts > 0
    power = run.script.power
    assert power is not None
    ends = {job.name: run.loop.world.completions[job.name][0][1] for job in power.jobs}
    assert max(ends.values()) <= DEADLINE_S
    services = {run.loop.store.get(("node", name)).service for name in run.loop.agents}
    assert NodeService.FAILED not in services


# --- the checks can fail --------------------------------------------------------------------------------------------


def found(run: FaultRun) -> set[str]:
    """The invariants that did not hold."""
    return {violation.invariant for violation in run.checker.violations}


def test_a_host_that_sleeps_with_a_vm_on_it_is_found() -> None:
    run = calm_run(TURN)
    run.loop.run_until(600.0)
    busy = next(name for name, host in run.loop.cluster.hypervisors.items() if host.domains)

    run.loop.fake_power.sleep(busy, run.loop.settings.controller.power.sleep, lambda _why: None)
    run.loop.run_until(660.0)

    assert run.power is not None
    run.power.check()
    assert "asleep-with-vm" in found(run)


@pytest.mark.parametrize("silent", [True, False])
def test_a_deadline_missed_in_silence_is_found(silent: bool) -> None:
    """With every host gone from the middle of the window on."""
    run = calm_run(TURN)
    run.loop.run_until(2_000.0)
    run.loop.on_host_death = None
    for name in run.loop.agents:
        run.loop.host_dies(name)
    run.loop.run_until(DEADLINE_S + 400.0)

    assert run.power is not None
    if silent:
        run.power.events.clear()
    run.power.check()
    assert ("promise-silent" in found(run)) is silent
