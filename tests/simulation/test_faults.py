"""Fault runs of the real controller and agents: nothing is doubled, lost or forgotten, whatever breaks."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from click.testing import CliRunner

from shared.ports.effects import Effect, Operate
from shared.protocol import topology
from shared.protocol.operator_messages import ConfirmGone
from shared.values.actions import Action, ActionKind
from shared.values.jobs import workload_of
from shared.values.vms import VmState
from sim_backend.bus.faults import BusFaults, FaultKind
from sim_backend.commands.faults import faults
from sim_backend.fakes.host import Domain
from sim_backend.fakes.hypervisor import FakeHypervisor
from sim_backend.faults.adopted import OwnerFault
from sim_backend.faults.drift import CONFIRM_EVERY_S
from sim_backend.faults.run import (
    CONVERGE_S,
    MOVING_NOTHING,
    FaultRun,
    RunKind,
    loop_settings,
    replay_command,
    run_script,
    run_seed,
)
from sim_backend.faults.script import (
    BUS_KINDS,
    FAULTS_MIN,
    HORIZON_S,
    JOBS,
    JOBS_BESIDE,
    NODES_MIN,
    REPAIRED_BY_S,
    Fault,
    write_existing_vms,
    write_script,
)
from sim_backend.loop.agent_shell import AgentShell
from tests.extent import first

SEEDS = range(20)


@pytest.mark.full
def test_a_seed_always_gives_the_same_run() -> None:
    assert write_script(7) == write_script(7)
    assert run_seed(7) == run_seed(7)


@pytest.mark.parametrize("first", [0, 13, 100])
def test_every_kind_is_scripted_within_twenty_seeds(first: int) -> None:
    scripted = {incident.kind for seed in range(first, first + 20) for incident in write_script(seed).incidents}

    assert scripted == set(Fault)


@pytest.mark.full
def test_every_invariant_holds_and_every_kind_really_happens_within_twenty_seeds() -> None:
    happened: set[str] = set()
    for seed in SEEDS:
        outcome = run_seed(seed)
        assert not outcome.violations, (seed, outcome.crash)
        assert HORIZON_S <= outcome.ended_s <= REPAIRED_BY_S + CONVERGE_S
        assert sum(outcome.faults.values()) >= 10
        happened |= set(outcome.faults)

    assert {fault.value for fault in Fault} <= happened


@pytest.mark.full
def test_every_fault_of_existing_vms_really_happens_within_twenty_seeds() -> None:
    happened: set[str] = set()
    for seed in SEEDS:
        outcome = run_script(RunKind(existing_vms=True).script(seed))
        assert not outcome.violations, (seed, outcome.crash)
        happened |= set(outcome.faults)
    assert {fault.value for fault in OwnerFault} <= happened


@pytest.mark.parametrize("seed", [793, 1044, 4380])
def test_a_policy_that_moves_nothing_lets_a_job_wait_for_the_node_of_an_adopted_vm(seed: int) -> None:
    """One that is suspended, one that has never run, and one whose rules leave it no other node."""
    script = RunKind(existing_vms=True).script(seed)
    assert script.policy in MOVING_NOTHING

    assert run_script(script).violations == ()


def test_a_job_of_several_instances_starts_beside_adopted_vms() -> None:
    """It waited for CPU that they have and do not use."""
    script = RunKind(existing_vms=True).script(4277)
    assert script.policy == "apc"

    assert run_script(script).violations == ()


def test_an_instance_does_not_follow_another_that_was_moved_by_hand() -> None:
    """They must be separate, and both were wanted on the node where the other one now is."""
    assert run_script(RunKind(existing_vms=True).script(5333)).violations == ()


@pytest.mark.parametrize("seed", [1215, 1527])
def test_an_owner_who_starts_an_adopted_vm_is_named(seed: int) -> None:
    """It has crashed and is to be restarted; the owner is first."""
    assert run_script(RunKind(existing_vms=True).script(seed)).violations == ()


@pytest.mark.parametrize("seed", [1577, 1974, 2325, 4426])
def test_no_vm_is_started_whose_hugepages_are_taken(seed: int) -> None:
    """By one that was moved there while it was off, and by one that started with its host; where they may be free it is
    tried (4426)."""
    assert run_script(RunKind(existing_vms=True).script(seed)).violations == ()


@pytest.mark.parametrize("seed", [3122, 3305])
def test_a_vm_whose_host_dies_while_it_is_started_or_moved_runs_again(seed: int) -> None:
    assert run_script(RunKind(existing_vms=True).script(seed)).violations == ()


def test_a_host_that_starts_a_vm_as_it_boots_uses_up_what_was_saved_of_it() -> None:
    assert run_script(RunKind(existing_vms=True).script(5766)).violations == ()


def test_vms_that_an_owner_has_brought_together_stay_while_neither_has_another_host() -> None:
    """The only other host with the disk of one is being drained, and has no hugepages for the other."""
    assert run_script(RunKind(existing_vms=True).script(1073)).violations == ()


def test_an_operator_confirms_what_an_external_mover_took_to_a_host_that_died() -> None:
    """The agent there died before it could tell of the VM."""
    run = FaultRun(script := RunKind(existing_vms=True).script(3468), loop_settings(script))
    run.run()

    assert run.outcome().violations == ()
    confirmed = [one for one in run.loop.operator.answered.values() if isinstance(one, ConfirmGone)]
    assert [(one.vm, run.loop.operator.replies[one.request].done) for one in confirmed] == [("j01#1", True)]


@pytest.mark.parametrize("lives", [True, False])
def test_an_operator_confirms_only_what_lives_nowhere(lives: bool) -> None:
    run, _, _ = run_to_first_vm()
    loop, chosen = run.loop, []

    def lose() -> None:
        hosts = loop.cluster.hypervisors.values()
        host, vm = next((each, vm) for each in hosts for vm in each.domains if "#" in vm)
        chosen.append(vm)
        record = loop.store.get(("job", workload_of(vm)[0]))
        lost = tuple(replace(one, left="from n1") for one in record.instances)
        loop.store.write(loop.store.term, (replace(record, instances=lost),))
        if not lives:
            host.lose_vm(vm, loop.engine.now_s)

    due_s = loop.engine.now_s + CONFIRM_EVERY_S
    loop.engine.at(due_s, 1, lose)
    run.drift.repair()
    loop.run_until(due_s)

    sent = {*loop.operator.answered.values(), *loop.operator.pending.values()}
    assert [one.vm for one in sent if isinstance(one, ConfirmGone)] == ([] if lives else chosen)


def test_scripts_with_existing_vms_have_no_application_and_few_jobs() -> None:
    script = write_existing_vms(3)
    assert (len(script.jobs), script.apps, script.power, script.environments) == (JOBS_BESIDE, (), None, None)
    assert script.incidents == write_script(3).incidents
    assert replay_command(3, RunKind(existing_vms=True)) == ("trimtab sim faults --seeds 3-3 --nodes 5 --existing-vms")


@pytest.mark.parametrize("seed", range(40))
def test_scripts_are_as_rich_as_promised(seed: int) -> None:
    script = write_script(seed)
    jobs = script.jobs

    assert len(script.nodes) >= NODES_MIN
    assert len(jobs) == JOBS
    assert any(job.instances == 3 for job in jobs)
    assert any(job.instances == 1 for job in jobs)
    assert any(job.checkpoint_mcycles > 0 for job in jobs)
    assert any(job.checkpoint_mcycles == 0 for job in jobs)
    assert len(script.incidents) >= FAULTS_MIN
    assert all(incident.at_s < incident.until_s <= REPAIRED_BY_S for incident in script.incidents)
    assert all(earlier.at_s <= later.at_s for earlier, later in pairwise(script.incidents))


def test_more_nodes_and_another_policy_may_be_asked_for() -> None:
    script = write_script(3, nodes=8, policy="edf")

    assert (len(script.nodes), script.policy) == (8, "edf")
    assert write_script(3, nodes=2).nodes == write_script(3, nodes=NODES_MIN).nodes


def test_bus_faults_are_all_over_when_the_rest_is_repaired() -> None:
    for seed in range(40):
        plan = write_script(seed).bus
        assert all(rule.until_s <= REPAIRED_BY_S for rule in plan.rules)
        assert all(partition.until_s <= REPAIRED_BY_S for partition in plan.partitions)
        assert {rule.kind for rule in plan.rules} <= {*BUS_KINDS.values(), FaultKind.REORDER}


def calm_run(seed: int) -> FaultRun:
    script = write_script(seed)
    well = tuple(replace(app, illnesses=()) for app in script.apps)
    quiet = replace(script, incidents=(), apps=well, bus=BusFaults(seed))
    return FaultRun(quiet, loop_settings(quiet))


@pytest.mark.full
def test_without_faults_nothing_is_found_either() -> None:
    run = calm_run(1)
    run.run()

    assert run.outcome().violations == ()
    assert set(run.outcome().faults) <= {"balancer-away", "balancer-restarted"}  # those follow from the seed alone


@pytest.mark.full
def test_a_vm_that_the_script_does_not_own_up_to_is_found_lost() -> None:
    run = calm_run(2)
    loop = run.loop

    def steal() -> None:
        for name, hypervisor in loop.cluster.hypervisors.items():
            for vm, domain in hypervisor.domains.items():
                if domain.state == "running":
                    run.checker.guests.touch()
                    hypervisor.lose_vm(vm, loop.engine.now_s)
                    return
            assert name

    loop.engine.at(1_000.0, 5, steal)
    loop.run_until(1_100.0)

    assert [violation.invariant for violation in run.checker.violations] == ["vm-lost"]


def run_to_first_vm() -> tuple[FaultRun, FakeHypervisor, Domain]:
    run = calm_run(1)
    run.loop.run_until(700.0)
    hypervisor = next(h for h in run.loop.cluster.hypervisors.values() if h.domains)
    return run, hypervisor, next(iter(hypervisor.domains.values()))


def found_after_a_look(run: FaultRun) -> set[str]:
    run.checker.guests.touch()
    run.checker.guests.look_if_touched()
    return {violation.invariant for violation in run.checker.violations}


def test_an_image_that_goes_without_an_order_is_found_lost() -> None:
    run, hypervisor, domain = run_to_first_vm()
    hypervisor.images["j19#0"] = domain.copy(VmState.SUSPENDED)
    assert found_after_a_look(run) == set()

    del hypervisor.images["j19#0"]

    assert found_after_a_look(run) == {"image-lost"}


def test_a_vm_on_two_nodes_is_found() -> None:
    run, hypervisor, domain = run_to_first_vm()
    other = next(h for h in run.loop.cluster.hypervisors.values() if h is not hypervisor)

    other.domains[domain.vm] = domain.copy(VmState.PAUSED)

    assert "vm-on-two-nodes" in found_after_a_look(run)


def test_a_node_that_is_overcommitted_is_found() -> None:
    run, hypervisor, domain = run_to_first_vm()

    hypervisor.domains["j19#0"] = extra = domain.copy(VmState.PAUSED)
    extra.memory_mib, extra.cpu_mhz = hypervisor.node.usable_mib, hypervisor.node.cpu_mhz

    assert found_after_a_look(run) == {"memory-over", "cpu-over"}


def test_instances_that_must_be_separate_and_labels_that_a_node_lacks_are_found() -> None:
    run, hypervisor, domain = run_to_first_vm()
    jobs = run.loop.jobs
    jobs["j00"] = replace(jobs["j00"], required_labels=("no-such-label",))
    small = domain.copy(VmState.PAUSED)
    small.memory_mib, small.cpu_mhz = 0, 0.0
    hypervisor.domains |= {"j00#0": small, "j00#1": small}

    assert found_after_a_look(run) == {"labels-ignored", "not-separate"}


def test_stopping_a_vm_that_is_wanted_is_found() -> None:
    run, hypervisor, domain = run_to_first_vm()
    action = Action(
        "1-999",
        ActionKind.STOP,
        hypervisor.node.name,
        vm=domain.vm,
        term=1,
        boot_id="boot-1",
        expires_at_s=1e9,
        expects=domain.generation,
    )

    agent = run.loop.agents[hypervisor.node.name]
    assert agent.on_effect is not None
    agent.on_effect(agent, Operate(action))

    assert {violation.invariant for violation in run.checker.violations} == {"stopped-while-wanted", "not-ordered"}


@pytest.mark.full
@pytest.mark.parametrize("cut", first(range(12)))
def test_however_many_effects_an_agent_carries_out_before_it_dies_nothing_is_doubled(cut: int) -> None:
    run = calm_run(4)
    loop = run.loop
    cut_short: list[AgentShell] = []

    def watch(shell: AgentShell, effect: Effect) -> None:
        if isinstance(effect, Operate) and not cut_short:
            cut_short.append(shell)
            shell.die_after_effects = cut
        hooks[shell.node](shell, effect)

    def bring_back(shell: AgentShell) -> None:
        loop.engine.at(loop.engine.now_s + 5.0, 5, shell.restart)

    hooks = {name: agent.on_effect for name, agent in loop.agents.items() if agent.on_effect is not None}
    for agent in loop.agents.values():
        agent.on_effect, agent.on_death = watch, bring_back
    run.run()

    assert [shell.lives for shell in cut_short] == [2]
    assert run.checker.violations == []


@pytest.mark.full
def test_command_prints_one_object_and_names_the_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    answer = CliRunner().invoke(faults, ["--seeds", "3-3", "--output", "json"])

    values = json.loads(answer.stdout)
    assert answer.exit_code == 0
    assert (values["runs"], values["violations"]) == (1, [])
    assert sum(values["faults"].values()) >= 10
    assert values["wall_s"] > 0


@pytest.mark.parametrize("seeds", ["", "5-3", "-3", "a-b", "1-2-3", "0-999999999"])
def test_command_refuses_ranges_that_are_none(seeds: str) -> None:
    answer = CliRunner().invoke(faults, ["--seeds", seeds])

    assert answer.exit_code == 2
    assert topology.DEAD not in answer.output
