"""Environments under faults: nothing runs where it must not, no setup is left out, no work is thrown away, no lower
bound is lent, and in the end all have what their policies say. Bugs planted in controllers are found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from daemons.controller.core.controller import Controller
from daemons.controller.environments.groups import CoordinationGroup
from daemons.controller.environments.inventory import Inventory
from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.values.settings import ControllerSettings
from shared.policy_api.coordination import Claim
from shared.protocol.operator_messages import ActivateEnvironment, CreateEnvironment
from shared.values.agreement import Agreement, OnReclaim, WorkloadType
from shared.values.host_setup import Setup
from shared.values.jobs import Stage
from shared.values.nodes import Handover, SetupStep
from sim_backend.bus.faults import BusFaults
from sim_backend.commands.faults import faults
from sim_backend.faults.environments import ACTIVATED_S, CREATED_S, LAB, VMS, Ask, HandoverFault
from sim_backend.faults.invariants.environments import settled_sizes
from sim_backend.faults.run import CONVERGE_S, FaultRun, loop_settings, run_script
from sim_backend.faults.script import HORIZON_S, REPAIRED_BY_S, FaultScript, write_environments
from sim_backend.loop.closed_loop import LoopSettings
from tests.extent import only
from tests.support import parts

STEP_S = 100.0
SEEDS_MAX = 12


@pytest.mark.full
def test_every_kind_of_fault_really_happens_and_every_run_ends_in_time() -> None:
    happened: set[str] = set()
    for seed in range(6):
        outcome = run_script(write_environments(seed))
        assert not outcome.violations, outcome.crash
        assert HORIZON_S <= outcome.ended_s <= REPAIRED_BY_S + CONVERGE_S
        happened |= set(outcome.faults)
    assert {kind.value for kind in HandoverFault} <= happened


def test_a_job_that_is_too_large_for_what_its_environment_has_become_is_turned_away() -> None:
    """Given seed 911020, in which an owner makes an environment smaller just before a job of two separate instances is
    submitted to it, then the refusal is right, and nothing is missing at the end."""
    outcome = run_script(write_environments(911_020))
    assert outcome.violations == ()


@pytest.mark.parametrize("seed", range(20))
def test_scripts_are_as_rich_as_promised(seed: int) -> None:
    script = write_environments(seed)
    assert script == write_environments(seed)
    environments = script.environments
    assert environments is not None
    homes = {job.environment for job in script.jobs} | {one.app.environment for one in script.apps}
    assert {"", "night", "front"} <= homes
    assert len(environments.incidents) >= 4
    assert any(one.batch.on_reclaim is OnReclaim.SUSPEND for one in environments.agreements)
    assert all(ask.at_s <= script.repaired_by_s for ask in environments.asks)


def test_a_longer_script_is_made_of_several() -> None:
    day = write_environments(5, hours=24)
    assert day.horizon_s == 86_400.0
    assert len({job.name for job in day.jobs}) == 6 * 20
    assert max(job.submit_s for job in day.jobs) > 72_000.0
    assert max(one.at_s for one in day.incidents) > 72_000.0
    assert max(rule.until_s for rule in day.bus.rules) <= day.repaired_by_s
    assert {*day.work_factors} == {job.name for job in day.jobs}


@pytest.mark.parametrize(
    ("model", "lowers", "uppers", "wanted", "sizes"),
    [
        ("fb", (3, 2), (None, None), 1, (4, 1)),
        ("fb", (3, 2), (None, None), 9, (0, 5)),
        ("flb-nub", (3, 2), (None, None), 1, (2, 1)),
        ("flb-nub", (3, 2), (None, None), 9, (0, 9)),
        ("flb-nub", (3, 2), (5, 4), 12, (0, 9)),
        ("dedicated", (3, 2), (None, None), 1, (3, 2)),
    ],
)
def test_what_sizes_are_in_the_end(
    model: str, lowers: tuple[int, int], uppers: tuple[int | None, int | None], wanted: int, sizes: tuple[int, int]
) -> None:
    """By phoenixcloud.txt section 5: fb leaves the batch environment what the web environment does not need, flb-nub
    refills it to the lower bounds and then gives back half of what is idle."""
    kinds = (WorkloadType.BATCH, WorkloadType.WEB)
    group = [
        Agreement(kind.value, "kim", kind, lower=lower, upper=upper, model=model)
        for kind, lower, upper in zip(kinds, lowers, uppers, strict=True)
    ]
    assert settled_sizes(group, wanted) == sizes
    assert settled_sizes(group[:1], 0) == ((lowers[0],) if model != "flb-nub" else (2,))


@pytest.mark.full
def test_the_command_runs_environments() -> None:
    answer = CliRunner().invoke(faults, ["--seeds", "0", "--environments", "--output", "json"])
    values = json.loads(answer.stdout)
    assert (answer.exit_code, values["runs"], values["violations"]) == (0, 1, [])
    assert values["faults"].keys() & {kind.value for kind in HandoverFault}


def test_only_environments_run_for_longer() -> None:
    refused = CliRunner().invoke(faults, ["--seeds", "0", "--hours", "24"])
    assert refused.exit_code == 2
    assert "--environments" in refused.output


# --- planted bugs ----------------------------------------------------------------------------------------------------


class SkippingController(Controller):
    """Takes every setup for done."""

    def __init__(self, name: str, settings: ControllerSettings) -> None:
        super().__init__(name, settings)
        handovers = parts.lifecycle(self).handovers

        def skipped(node: NodeEntry, step: SetupStep, now_s: float) -> bool:
            del step
            handovers._advance(node, now_s)
            return True

        handovers._set_up = skipped  # type: ignore[method-assign]


class HastyController(Controller):
    """Hands nodes over before they are empty."""

    def __init__(self, name: str, settings: ControllerSettings) -> None:
        super().__init__(name, settings)
        handovers = parts.lifecycle(self).handovers

        def at_once(node: NodeEntry, now_s: float) -> bool:
            del now_s
            handovers._go(node, Handover.RELEASING)
            return True

        handovers._emptying = at_once  # type: ignore[method-assign]


class MercilessController(Controller):
    """Kills the jobs that were to be suspended."""

    def __init__(self, name: str, settings: ControllerSettings) -> None:
        super().__init__(name, settings)
        preemption = parts.coordination(self).allocation.preemption

        def killed(entry: EnvironmentEntry, job: JobEntry, now_s: float) -> None:
            preemption._kill(entry, job, now_s)

        preemption._suspend = killed  # type: ignore[method-assign]


class GreedyController(Controller):
    """Lets a batch environment keep for ever what it has."""

    def __init__(self, name: str, settings: ControllerSettings) -> None:
        super().__init__(name, settings)
        give = parts.coordination(self).allocation._give

        def kept(node: NodeEntry, environment: str, now_s: float) -> None:
            entry = self.cluster.environments.get(node.given)
            if entry is None or not entry.batch:
                give(node, environment, now_s)

        parts.coordination(self).allocation._give = kept


class LendingController(Controller):
    """Lends the nodes within lower bounds to whoever asks."""

    def __init__(self, name: str, settings: ControllerSettings) -> None:
        super().__init__(name, settings)
        allocation = parts.coordination(self).allocation
        claim = allocation._claim

        def unbound(group: CoordinationGroup, stock: Inventory) -> Claim:
            return replace(claim(group, stock), lower=0, firm=0)

        allocation._claim = unbound  # type: ignore[method-assign]


def calm(script: FaultScript, **setup: Any) -> FaultScript:
    """The script without faults and whims; `setup`: what is agreed otherwise."""
    environments = script.environments
    assert environments is not None
    agreements = tuple(replace(one, **setup) for one in environments.agreements if one.template is None)
    asks = [Ask(CREATED_S, CreateEnvironment(f"create-{one.name}", one)) for one in agreements]
    asks += [Ask(ACTIVATED_S, ActivateEnvironment(f"activate-{one.name}", one.name)) for one in agreements]
    jobs = tuple(job for job in script.jobs if job.environment != VMS)
    quiet = replace(environments, agreements=agreements, asks=tuple(asks), incidents=(), destroyed="")
    return replace(script, jobs=jobs, incidents=(), bus=BusFaults(script.seed), drains=(), environments=quiet)


def tight(seed: int) -> FaultScript:
    """On just one node more than the lower bounds, a pair that leaves nodes idle, and an environment with jobs of five
    nodes each."""
    script = calm(write_environments(seed), model="flb-nub", upper=None, lease_s=300.0)
    environments = script.environments
    assert environments is not None
    nodes = script.nodes[: sum(one.lower for one in environments.agreements) + 1]
    site = replace(environments.app, rates=environments.app.rates[-1:])
    jobs = tuple(
        replace(job, environment=LAB, instances=5, spread=True, stages=(Stage(2e6, 1_000.0, 0.0, 300),))
        for job in script.jobs[:6]
    )
    return replace(
        script,
        nodes=nodes,
        jobs=jobs,
        apps=(site,),
        cancelled=("", 0.0),
        environments=replace(environments, app=site),
        speed_factors={node.name: 1.0 for node in nodes},
    )


Change = Callable[[LoopSettings], LoopSettings]


def with_controller(make: Any) -> Change:
    return lambda settings: replace(settings, make_controller=make)


def found(script: FaultScript, change: Change, invariants: set[str], until_s: float) -> set[str]:
    """Invariants that were found broken, up to the first of those expected."""
    run = FaultRun(script, change(loop_settings(script)))
    broken: set[str] = set()
    while run.loop.engine.now_s < until_s and not broken & invariants:
        run.loop.run_until(run.loop.engine.now_s + STEP_S)
        broken = {violation.invariant for violation in run.checker.violations}
    return broken


def bare(script: FaultScript) -> FaultScript:
    """Without setups, which wait by themselves until a node is empty, and with instances that fit beside a job."""
    quiet = calm(script, setup=Setup())
    environments = quiet.environments
    assert environments is not None
    site = environments.app
    small = replace(site.app, max_mhz=site.app.max_mhz / 4.0, vcpus=1)
    site = replace(site, app=small, rates=tuple((at_s, rate / 4.0) for at_s, rate in site.rates))
    return replace(quiet, apps=(*quiet.apps[:-1], site), environments=replace(environments, app=site))


PLANTED: dict[str, tuple[Any, set[str], Callable[[FaultScript], FaultScript]]] = {
    "setups are skipped": (SkippingController, {"not-acquired", "not-released"}, lambda script: script),
    "nodes are handed over before they are empty": (HastyController, {"foreign-vm"}, bare),
    "victims are killed": (MercilessController, {"work-thrown-away"}, lambda script: script),
    "sizes are not returned": (GreedyController, {"size-not-returned"}, calm),
}


@pytest.mark.parametrize("bug", only({"setups are skipped", "sizes are not returned"}, PLANTED))
def test_a_planted_bug_is_found(bug: str) -> None:
    make, invariants, script_of = PLANTED[bug]
    other: set[str] = set()
    for seed in range(SEEDS_MAX):
        broken = found(script_of(write_environments(seed)), with_controller(make), invariants, REPAIRED_BY_S)
        if broken & invariants:
            return
        other |= broken
    pytest.fail(f"{bug}: nothing of {sorted(invariants)} in {SEEDS_MAX} seeds, only {sorted(other)}")


@pytest.mark.full
@pytest.mark.parametrize(("make", "expected"), [(Controller, set()), (LendingController, {"lower-bound-lent"})])
def test_lent_lower_bounds_are_found(make: Any, expected: set[str]) -> None:
    """Given more jobs than an environment has nodes for, and nodes within the bounds of others that are idle."""
    assert found(tight(0), with_controller(make), {"lower-bound-lent"}, 2_500.0) == expected
