"""Fault runs with a deadline window, a provisioning policy and nodes that sleep; `tests/simulation/test_faults.py`
plays some of these seeds with all the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from shared.values.nodes import NodeService
from sim_backend.bus.faults import BusFaults
from sim_backend.fakes.power import HostPower
from sim_backend.faults.clocks import SHARE as CLOCKS_SHARE
from sim_backend.faults.clocks import TURN as CLOCKS_TURN
from sim_backend.faults.clocks import ClockChange, FaultWindow, changed_window
from sim_backend.faults.power import POLICIES, ROTATED, SHARE, TURN, PowerFault, draw_power
from sim_backend.faults.run import FaultRun, loop_settings, run_seed
from sim_backend.faults.script import write_script
from tests.extent import first

KINDS = len(PowerFault)


def power_seeds(turns: Iterable[int]) -> list[int]:
    """The seeds with power of these turns."""
    return [turn * SHARE + TURN for turn in turns]


def calm_run(seed: int, window: FaultWindow | None = None, zone: str = "", longer: float = 1.0) -> FaultRun:
    """A run of a seed in which nothing goes wrong. `window`: in place of its own; `zone`: which the controller takes it
    to be in; `longer`: so much more work than drawn are the jobs of the window."""
    script = write_script(seed)
    power = draw_power(seed, script.nodes, window)
    assert power is not None
    factors = {job: factor * longer for job, factor in power.work_factors.items()}
    quiet = replace(
        script,
        incidents=(),
        bus=BusFaults(seed),
        power=replace(power, incidents=(), work_factors=factors),
        drains=(),
    )
    settings = loop_settings(quiet)
    if zone:
        planted = [replace(each, periods=replace(each.periods, zone=zone)) for each in settings.controller.windows]
        settings = replace(settings, controller=replace(settings.controller, windows=tuple(planted)))
    return FaultRun(quiet, settings)


def last_end_s(run: FaultRun) -> float:
    """When the last job of the window was done."""
    assert run.script.power is not None
    return max(run.loop.world.completions[job.name][0][1] for job in run.script.power.jobs)


@pytest.mark.accept
@pytest.mark.parametrize("seed", power_seeds(turn for turn in range(4, 10) if turn % CLOCKS_SHARE != CLOCKS_TURN))
def test_every_invariant_holds(seed: int) -> None:
    outcome = run_seed(seed)

    assert (outcome.violations, outcome.crash) == ((), ""), f"trimtab sim faults --seeds {seed}-{seed}"


@pytest.mark.accept
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


@pytest.mark.accept
def test_in_calm_nodes_sleep_and_wake_and_the_deadline_is_kept() -> None:
    run = calm_run(power_seeds(range(8))[5])
    run.run()

    states = Counter(state for _, _, state in run.loop.fake_power.changes)
    assert run.outcome().violations == ()
    assert states[HostPower.FALLING] > 2
    assert run.loop.fake_power.starts > 0
    power = run.script.power
    assert power is not None
    assert last_end_s(run) <= power.window.deadline_s
    services = {run.loop.store.get(("node", name)).service for name in run.loop.agents}
    assert NodeService.FAILED not in services


# --- the clocks are changed -----------------------------------------------------------------------------------------


def shown(window: FaultWindow, at_s: int) -> datetime:
    """What the local clock shows so long after the run has begun."""
    return datetime.fromtimestamp(window.epoch_s + at_s, ZoneInfo(window.zone))


def seconds_of_day(clock: datetime) -> int:
    return clock.hour * 3_600 + clock.minute * 60 + clock.second


@pytest.mark.parametrize("change", ClockChange)
def test_what_is_configured_is_what_clocks_show_when_it_truly_happens(change: ClockChange) -> None:
    for seed in range(100):
        window = changed_window(change, seed)
        deadline = shown(window, window.deadline_s)
        moved = shown(window, window.change_s).utcoffset() != shown(window, window.change_s - 1).utcoffset()

        assert moved
        assert seconds_of_day(shown(window, window.opens_s)) == window.opens_local_s
        assert seconds_of_day(shown(window, window.closes_s)) == window.closes_local_s
        assert not shown(window, window.closes_s).fold
        assert window.opens_s + 400 < window.closes_s < window.deadline_s
        if change is ClockChange.LEFT_OUT:
            left_out_s = seconds_of_day(shown(window, window.deadline_s - 1)), seconds_of_day(deadline)
            assert left_out_s[0] < window.deadline_local_s < left_out_s[1]
        else:
            assert (seconds_of_day(deadline), deadline.fold) == (window.deadline_local_s, 0)
        if change is ClockChange.TWICE:
            again = shown(window, window.deadline_s + 3_600)
            assert (seconds_of_day(again), again.fold) == (window.deadline_local_s, 1)


def test_one_window_in_four_has_a_change_and_each_comes_up() -> None:
    windows = [write_script(seed).power for seed in power_seeds(range(CLOCKS_SHARE * len(ClockChange)))]
    changes = [power.window.change for power in windows if power is not None]

    assert changes[CLOCKS_TURN::CLOCKS_SHARE] == list(ClockChange)
    assert changes.count(None) == len(changes) - len(ClockChange)


@pytest.mark.accept
@pytest.mark.parametrize("number", range(len(ClockChange)))
def test_among_other_faults_the_promise_is_kept_or_told(number: int) -> None:
    (seed,) = power_seeds([CLOCKS_TURN + CLOCKS_SHARE * number])

    outcome = run_seed(seed)

    assert (outcome.violations, outcome.crash) == ((), ""), f"trimtab sim faults --seeds {seed}-{seed}"
    assert outcome.faults[list(ClockChange)[number].value] == 1


@pytest.mark.accept
@pytest.mark.parametrize("change", first(list(ClockChange)))
def test_in_calm_a_change_of_the_clocks_does_no_harm(change: ClockChange) -> None:
    (seed,) = power_seeds([2])
    window = changed_window(change, seed)
    run = calm_run(seed, window)
    run.run()

    assert run.outcome().violations == ()
    assert last_end_s(run) <= window.deadline_s


@pytest.mark.accept
@pytest.mark.parametrize(
    ("change", "zone", "longer", "invariant"),
    [
        (ClockChange.FORWARD, "Etc/GMT-1", 3.0, "promise-silent"),  # winter time all day: the deadline an hour late
        (ClockChange.LEFT_OUT, "Etc/GMT-1", 3.0, "promise-silent"),
        (ClockChange.BACK, "Etc/GMT-1", 1.0, "queue-closed"),
        (ClockChange.TWICE, "Etc/GMT-1", 1.0, "queue-closed"),
    ],
)
def test_a_calendar_that_ignores_the_change_is_found(
    change: ClockChange, zone: str, longer: float, invariant: str
) -> None:
    (seed,) = power_seeds([2])
    right, wrong = (calm_run(seed, changed_window(change, seed), how, longer) for how in ("", zone))
    for run in (right, wrong):
        run.run()

    assert found(right) == set()
    assert found(wrong) == {invariant}


# --- the checks can fail --------------------------------------------------------------------------------------------


def found(run: FaultRun) -> set[str]:
    """The invariants that did not hold."""
    return {violation.invariant for violation in run.checker.violations}


@pytest.mark.accept
def test_a_host_that_sleeps_with_a_vm_on_it_is_found() -> None:
    run = calm_run(TURN)
    run.loop.run_until(600.0)
    busy = next(name for name, host in run.loop.cluster.hypervisors.items() if host.domains)

    run.loop.fake_power.sleep(busy, run.loop.settings.controller.power.sleep, lambda _why: None)
    run.loop.run_until(660.0)

    assert run.power is not None
    run.power.check()
    assert "asleep-with-vm" in found(run)


@pytest.mark.accept
@pytest.mark.parametrize("silent", first([True, False]))
def test_a_deadline_missed_in_silence_is_found(silent: bool) -> None:
    """With every host gone from the middle of the window on."""
    run = calm_run(TURN)
    assert run.power is not None
    run.loop.run_until(2_000.0)
    run.loop.on_host_death = None
    for name in run.loop.agents:
        run.loop.host_dies(name)
    run.loop.run_until(run.power.power.window.deadline_s + 400.0)

    if silent:
        run.power.alarms_s.clear()
    run.power.check()
    assert ("promise-silent" in found(run)) is silent
