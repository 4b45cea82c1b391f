"""Web applications and rules in fault runs: what scripts have of them, and that the checks find what is broken."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from daemons.values.records.cluster import Deleted, JobRecord, ReconciliationPause
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import RemoveWeb, SubmitWeb
from shared.values.jobs import Allotment, JobPhase, Rules
from sim_backend.bus.faults import BusFaults
from sim_backend.faults.invariants.apps import STAYED_S, unsettled_apps, vms_of
from sim_backend.faults.run import FaultRun, loop_settings, run_seed
from sim_backend.faults.script import HORIZON_S, write_script

SEED = 1
Plant = Callable[[FaultRun, JobRecord], None]


def calm_run(until_s: float, policy: str = "first-fit") -> FaultRun:
    script = write_script(SEED, policy=policy)
    quiet = replace(script, incidents=(), drains=(), bus=BusFaults(SEED), cancelled=("", 0.0))
    run = FaultRun(quiet, loop_settings(quiet))
    run.loop.run_until(until_s)
    return run


@pytest.fixture
def run() -> FaultRun:
    """A run without faults in which an application has an instance and a job runs."""
    made = calm_run(700.0)
    assert made.checker.violations == []
    return made


def record_of(run: FaultRun, replica: bool) -> JobRecord:
    """A record of something that is wanted to run."""
    return next(
        record
        for record in run.loop.store.records()
        if isinstance(record, JobRecord) and record.phase is JobPhase.RUNNING and bool(record.job.app) is replica
    )


def found(run: FaultRun) -> set[str]:
    return {violation.invariant for violation in run.checker.violations}


def store(run: FaultRun, *records: JobRecord) -> None:
    """As if its rules had always been those."""
    for record in records:
        run.checker.apps.job_stored(record)
    run.checker.apps.ruled_s.clear()
    run.checker.apps.all_stored()


# --- scripts ---------------------------------------------------------------------------------------------------------


def test_scripts_have_applications_of_every_kind() -> None:
    scripts = [write_script(seed, policy="apc") for seed in range(60)]
    apps = [each for script in scripts for each in script.apps]
    rules = [job.rules for script in scripts for job in script.jobs] + [each.app.rules for each in apps]

    assert all(script.apps[0].removed_s == math.inf for script in scripts)
    assert {len(script.apps) for script in scripts} == {1, 2}
    assert any(each.changed is not None for each in apps)
    assert {bool(each.app.metrics_url) for each in apps} == {True, False}
    assert {each.app.flows[0].work_mcycles is None for each in apps} == {True, False}
    kinds = ("node_affinity", "node_anti_affinity", "affinity", "anti_affinity", "no_migration")
    for kind in (*kinds, "label_affinity", "label_anti_affinity", "vm_anti_affinity", "preferred"):
        assert any(getattr(each, kind) for each in rules), kind
    assert {each.anti_affinity_scope for each in rules} == {"node", "rack"}


@pytest.mark.parametrize("seed", range(30))
def test_every_rule_can_be_kept(seed: int) -> None:
    """Alone, each workload has nodes enough; the same for every policy."""
    script = write_script(seed, policy="apc")
    names = {node.name for node in script.nodes}
    for job in script.jobs:
        barred, wanted = {*job.rules.label_anti_affinity}, {*job.rules.label_affinity}
        allowed = {*(job.rules.node_affinity or names)} - {*job.rules.node_anti_affinity}
        allowed -= {node.name for node in script.nodes if barred & {*node.labels} or not wanted <= {*node.labels}}
        assert len(allowed) >= (job.instances if job.spread else 1)
        assert job.rules == Rules() or not job.required_labels
    for each in script.apps:
        assert (
            len({*(each.app.rules.node_affinity or names)} - {*each.app.rules.node_anti_affinity})
            >= each.app.min_instances
        )
    assert replace(write_script(seed, policy="first-fit"), policy="apc") == script


# --- what the checks find --------------------------------------------------------------------------------------------


def elsewhere(record: JobRecord) -> JobRecord:
    """Wanted on another node."""
    nodes = [f"n{index}" for index in range(5)]
    node = next(name for name in nodes if name != record.allotments[0].node)
    return replace(record, allotments=tuple(Allotment(node, each.cpu_mhz) for each in record.allotments))


def ruled(record: JobRecord, **rules: object) -> JobRecord:
    return replace(record, job=replace(record.job, rules=Rules(**rules)))  # type: ignore[arg-type]


def test_rules_of_one_workload(run: FaultRun) -> None:
    job = record_of(run, replica=False)
    home = job.allotments[0].node
    away = elsewhere(job).allotments[0].node
    store(run, ruled(job, node_affinity=(home,), node_anti_affinity=(away,), no_migration=True))
    assert found(run) == set()
    store(run, ruled(elsewhere(replace(job, attempt=job.attempt + 1)), no_migration=True))  # begun anew: it may
    assert found(run) == set()

    for broken in (ruled(job, node_affinity=(away,)), ruled(job, node_anti_affinity=(home,))):
        run.checker.violations.clear()
        store(run, broken)
        assert found(run) == {"rule-broken"}


def test_rules_about_labels_racks_and_named_workloads(run: FaultRun) -> None:
    """n0 and n1 are in one rack, n2 in another."""

    def on(name: str, node: str, **rules: object) -> JobRecord:
        job = record_of(run, replica=False)
        where = tuple(Allotment(node, each.cpu_mhz) for each in job.allotments[:1])
        return replace(job, job=replace(job.job, name=name, rules=Rules(**rules)), allotments=where)  # type: ignore[arg-type]

    near: dict[str, object] = {"vm_affinity": ("a",), "affinity_scope": "rack"}
    far: dict[str, object] = {"vm_anti_affinity": ("a",), "anti_affinity_scope": "rack"}
    barred: dict[str, object] = {"label_anti_affinity": ("rack=r0",)}
    held: dict[str, object] = {"label_affinity": ("rack=r0",)}
    good = (on("a", "n0"), on("b", "n1", **near), on("c", "n2", **far), on("d", "n2", **barred), on("e", "n0", **held))
    for number, bad in enumerate(
        (on("b", "n2", **near), on("c", "n1", **far), on("d", "n1", **barred), on("e", "n2", **held))
    ):
        run.checker.violations.clear()
        store(run, *good)
        assert found(run) == set(), number
        store(run, bad)
        assert found(run) == {"rule-broken"}, number


def test_changed_rules_have_until_the_next_cycle(run: FaultRun) -> None:
    job = record_of(run, replica=False)
    away = elsewhere(job).allotments[0].node
    store(run, ruled(job, node_anti_affinity=(away,)))
    run.checker.apps.job_stored(ruled(job, node_affinity=(away,)))
    run.checker.apps.all_stored()
    assert found(run) == set()
    store(run, ruled(job, node_affinity=(away,)))
    assert found(run) == {"rule-broken"}


def test_a_workload_that_is_kept_is_not_moved(run: FaultRun) -> None:
    job = record_of(run, replica=False)
    store(run, ruled(job, no_migration=True))
    store(run, ruled(elsewhere(job), no_migration=True))
    assert found(run) == {"rule-broken"}


@pytest.mark.parametrize("kind", ["affinity", "anti_affinity"])
def test_rules_of_groups(run: FaultRun, kind: str) -> None:
    """An application and a job: on one node they are together, on two apart; waiting they are neither."""
    replica, job = record_of(run, replica=True), record_of(run, replica=False)
    if len({each.node for each in job.allotments}) > 1:
        job = replace(job, allotments=job.allotments[:1])
    beside = ruled(replace(job, allotments=replica.allotments), **{kind: "g"})
    apart = ruled(elsewhere(replace(job, allotments=replica.allotments)), **{kind: "g"})
    good, bad = (beside, apart) if kind == "affinity" else (apart, beside)
    store(run, ruled(replica, **{kind: "g"}), good)
    assert found(run) == set()
    store(run, replace(bad, phase=JobPhase.WAITING))
    assert found(run) == set()
    store(run, bad)
    assert found(run) == {"rule-broken"}


@pytest.mark.parametrize(("since_s", "expected"), [(10.0, set()), (STAYED_S + 1.0, {"rule-broken"})])
def test_what_somebody_else_has_brought_together_is_parted_by_the_next_decision(
    run: FaultRun, since_s: float, expected: set[str]
) -> None:
    """As in seed 910013 with 5 nodes: 16 s after a job was no longer left alone, and 123 s before the next decision."""
    replica, job = record_of(run, replica=True), record_of(run, replica=False)
    now_s = run.loop.engine.now_s
    reconciliation_paused = ReconciliationPause("moved-externally", "v", "", at_s=0.0, until_s=now_s - since_s, count=1)
    beside = replace(
        job, allotments=replica.allotments[:1] * len(job.allotments[:1]), reconciliation_paused=reconciliation_paused
    )
    store(run, ruled(replica, anti_affinity="g"), ruled(beside, anti_affinity="g"))
    assert found(run) == expected


def test_two_instances_on_one_node_and_more_than_there_may_be(run: FaultRun) -> None:
    replica = record_of(run, replica=True)
    app = replica.job.app
    indices = range(run.loop.apps[app].max_instances + 1)
    others = [replace(replica, job=replace(replica.job, name=f"{app}#{index}")) for index in indices]
    store(run, *others)
    assert found(run) == {"instances-together", "too-many-instances"}


def test_an_instance_that_is_suspended(run: FaultRun) -> None:
    store(run, replace(record_of(run, replica=True), phase=JobPhase.SUSPENDED))
    assert found(run) == {"instance-phase"}


def test_an_application_that_is_forgotten(run: FaultRun) -> None:
    name = next(name for name in run.loop.apps if vms_of(run.loop, name))
    run.checker.apps.deleted(("web", name))
    assert found(run) == {"web-lost", "forgotten-early"}


def test_an_application_that_was_accepted_and_is_not_there(run: FaultRun) -> None:
    other = replace(next(iter(run.loop.apps.values())), name="other")
    run.checker.apps.on_reply(SubmitWeb("r", other), Reply("r", True))
    run.checker.apps.on_reply(SubmitWeb("s", other), Reply("s", False, "no-memory"))
    assert found(run) == {"web-lost", "web-refused"}


def test_what_is_left_of_an_application(run: FaultRun) -> None:
    """Given an instance too few, or something of an application that was removed, then it has not converged."""
    loop = run.loop
    assert unsettled_apps(loop) == []
    name = next(name for name in loop.apps if vms_of(loop, name))
    loop.apps[name] = replace(loop.apps[name], min_instances=4, max_instances=4)
    assert len(unsettled_apps(loop)) == 1
    loop.balancers[name].stop()
    assert len(unsettled_apps(loop)) == 2
    loop.operator.send(RemoveWeb("remove", name))
    loop.run_until(loop.engine.now_s + 120.0)
    assert [why for why in unsettled_apps(loop) if why.startswith(name)] == []
    assert vms_of(loop, name) == []
    assert Deleted(("web", name)).key[1] == name
    assert loop.store.get(("web", name)) is None


def test_a_domain_beside_another_of_its_application_is_found(run: FaultRun) -> None:
    hypervisor = next(h for h in run.loop.cluster.hypervisors.values() if any(vm.startswith("web") for vm in h.domains))
    replica = next(domain for vm, domain in hypervisor.domains.items() if vm.startswith("web"))
    twin = replica.copy(replica.state)
    twin.memory_mib, twin.cpu_mhz, twin.attempt = 0, 0.0, replica.attempt + 1
    hypervisor.domains[replica.vm.replace("#", "#9")] = twin
    run.checker.guests.touch()
    run.checker.guests.look_if_touched()
    assert "not-separate" in found(run)


@pytest.mark.full
def test_without_faults_everything_converges() -> None:
    run = calm_run(0.0)
    run.run()
    assert run.outcome().violations == ()
    assert run.loop.engine.now_s >= HORIZON_S
    assert all(balancer.site.looks for balancer in run.loop.balancers.values())


def test_a_job_waits_for_a_node_that_an_application_has_under_a_policy_that_moves_nothing() -> None:
    """Given seed 90, in which two separate instances of a job must be on two nodes, and an application has one of them:
    the job ends after the application is gone."""
    assert run_seed(90).violations == ()
