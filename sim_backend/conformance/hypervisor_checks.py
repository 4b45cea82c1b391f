"""What every `shared.ports.agent.Hypervisor` must do: run each of `CHECKS` that `applies` on a harness of its own.

A check wants an empty node, with "migration" also an empty peer of the same size. It raises `ContractViolation`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.values.actions import ActionKind, GuestChange, Outcome
from shared.values.nodes import Ability
from shared.values.vms import VmState, VmStatus
from sim_backend.conformance.frozen_checks import FROZEN_CHECKS
from sim_backend.conformance.hypervisor_bench import (
    HALF_AND_MORE,
    OTHER,
    SMALL_MIB,
    VM,
    Bench,
    Body,
    expect,
    expect_near,
    relabelled,
    settled,
)
from sim_backend.conformance.hypervisor_bench import (
    Check as Check,
)

CHECKS: list[Check] = [*FROZEN_CHECKS]


def _check(*needs: str) -> Callable[[Body], Body]:
    def keep(body: Body) -> Body:
        CHECKS.append(Check(body.__name__.removeprefix("check_"), body, frozenset(needs)))
        return body

    return keep


# --- one VM ------------------------------------------------------------------------------------------------------


@_check()
def check_empty_node(bench: Bench) -> None:
    """Check that an empty node lists no VMs and reports no events."""
    expect("VMs", bench.node.vms(bench.harness.now_s()), ())
    expect("events", bench.node.poll(bench.harness.now_s()), ())


@_check()
def check_start_runs(bench: Bench) -> None:
    """Check that a started VM runs with the values of its specification, and that the answer shows them."""
    spec = bench.spec(attempt=3)
    answer = bench.must(Outcome.OK, ActionKind.START, generation=7, spec=spec)
    wanted = VmStatus(VM, VmState.RUNNING, 7, attempt=3, memory_mib=SMALL_MIB, vcpus=1, cpu_mhz=spec.cpu_mhz)
    expect("status", settled(bench.status()), wanted)
    expect("status in the answer", settled(answer.status), wanted)


@_check()
def check_start_paused(bench: Bench) -> None:
    """Check that a VM can be started paused, that UNPAUSE and PAUSE switch its state, and that both are idempotent."""
    expect("state", bench.start(paused=True).state, VmState.PAUSED)
    for kind, state in ((ActionKind.UNPAUSE, VmState.RUNNING), (ActionKind.PAUSE, VmState.PAUSED)):
        for _ in range(2):
            bench.must(Outcome.OK, kind, expects=1, generation=1)
            expect(f"state after {kind.value}", bench.status().state, state)


@_check()
def check_start_again(bench: Bench) -> None:
    """Check that repeating a start succeeds and changes nothing, and that a start with another generation is
    refused."""
    before = bench.start()
    bench.must(Outcome.OK, ActionKind.START, generation=1, spec=bench.spec())
    bench.must(Outcome.ALREADY_THERE, ActionKind.START, generation=2, spec=bench.spec())
    expect("status", settled(bench.status()), settled(before))


@_check()
def check_start_without_spec(bench: Bench) -> None:
    """Check that a start without a specification is refused and raises nothing."""
    bench.must(Outcome.REFUSED, ActionKind.START, generation=1)
    expect("VM", bench.find(), None)


@_check()
def check_memory_is_not_overcommitted(bench: Bench) -> None:
    """Check that a VM that does not fit is answered NO_ROOM and leaves no trace, and that stopping a VM frees its
    memory."""
    big_mib = int(bench.inventory.memory_mib * HALF_AND_MORE)
    bench.must(Outcome.NO_ROOM, ActionKind.START, generation=1, spec=bench.spec(VM, bench.inventory.memory_mib + 1))
    bench.start(VM, big_mib, paused=True)
    bench.must(Outcome.NO_ROOM, ActionKind.START, OTHER, generation=1, spec=bench.spec(OTHER, big_mib))
    expect("the other", bench.find(OTHER), None)
    bench.must(Outcome.OK, ActionKind.STOP, expects=1)
    bench.start(OTHER, big_mib)


@_check()
def check_memory_is_held_from_the_begin(bench: Bench) -> None:
    """Check that two concurrent starts cannot take the same memory."""
    big_mib = int(bench.inventory.memory_mib * HALF_AND_MORE)
    calls = [
        bench.begin(ActionKind.START, vm, generation=1, spec=bench.spec(vm, big_mib), paused=True) for vm in (VM, OTHER)
    ]
    expect("outcomes", [bench.answer(call).outcome for call in calls], [Outcome.OK, Outcome.NO_ROOM])


@_check()
def check_cpu_ceiling(bench: Bench) -> None:
    """Check that a VM gets up to vcpus x core_mhz, and that a larger or an invalid allotment is refused at the start
    and later."""
    most_mhz = bench.inventory.core_mhz
    for wrong_mhz in (most_mhz * 1.01, float("nan"), -1.0):
        bench.must(Outcome.REFUSED, ActionKind.START, generation=1, spec=bench.spec(cpu_mhz=wrong_mhz))
    expect("VM", bench.find(), None)
    bench.start()
    bench.must(Outcome.OK, ActionKind.SET_CPU, expects=1, generation=1, cpu_mhz=most_mhz)
    expect("allotment", bench.status().cpu_mhz, most_mhz)
    bench.must(Outcome.REFUSED, ActionKind.SET_CPU, expects=1, generation=1, cpu_mhz=most_mhz * 1.01)
    expect("allotment", bench.status().cpu_mhz, most_mhz)


@_check()
def check_stop(bench: Bench) -> None:
    """Check that a stopped VM is gone, that the answer has its last counters, and that stopping it again succeeds."""
    bench.start()
    answer = bench.must(Outcome.OK, ActionKind.STOP, expects=1)
    expect("status", answer.status, None)
    expect("whether there are last counters", answer.final is not None and answer.final.generation, 1)
    expect("VM", bench.find(), None)
    bench.must(Outcome.OK, ActionKind.STOP, expects=1)


@_check()
def check_missing_vm(bench: Bench) -> None:
    """Check that an operation that needs a VM or an image is answered NO_SUCH_VM without one; only DISCARD_IMAGE
    succeeds."""
    for kind in (ActionKind.PAUSE, ActionKind.UNPAUSE, ActionKind.SUSPEND, ActionKind.SET_CPU):
        bench.must(Outcome.NO_SUCH_VM, kind, expects=1, cpu_mhz=bench.cpu_mhz)
    bench.must(Outcome.NO_SUCH_VM, ActionKind.RESUME, expects=1, generation=2, spec=bench.spec())
    bench.must(Outcome.OK, ActionKind.DISCARD_IMAGE, expects=1)


@_check()
def check_wrong_generation(bench: Bench) -> None:
    """Check that an action that expects another generation of the VM, or of its image, changes nothing."""
    before = bench.start()
    live = (ActionKind.PAUSE, ActionKind.UNPAUSE, ActionKind.SUSPEND, ActionKind.SET_CPU, ActionKind.STOP)
    for kind in live:
        bench.must(Outcome.WRONG_GENERATION, kind, expects=2, generation=2, cpu_mhz=bench.cpu_mhz / 2)
    expect("status", settled(bench.status()), settled(before))
    bench.must(Outcome.OK, ActionKind.SUSPEND, expects=1, generation=1)
    for kind in (ActionKind.SUSPEND, ActionKind.RESUME, ActionKind.DISCARD_IMAGE):
        bench.must(Outcome.WRONG_GENERATION, kind, expects=2, generation=3, spec=bench.spec())
    expect("state", bench.status().state, VmState.SUSPENDED)


@_check()
def check_suspend_and_resume(bench: Bench) -> None:
    """Check that an image keeps the metadata, that the resumed VM has the new generation, and that both operations are
    idempotent."""
    bench.start(spec=bench.spec(attempt=4))
    for _ in range(2):
        answer = bench.must(Outcome.OK, ActionKind.SUSPEND, expects=1, generation=1)
        expect("state in the answer", answer.status and answer.status.state, VmState.SUSPENDED)
    image = bench.status()
    expect("image", (image.generation, image.attempt, image.memory_mib, image.vcpus), (1, 4, SMALL_MIB, 1))
    for _ in range(2):
        bench.must(Outcome.OK, ActionKind.RESUME, expects=1, generation=2, spec=bench.spec(attempt=4))
    wanted = VmStatus(VM, VmState.RUNNING, 2, attempt=4, memory_mib=SMALL_MIB, vcpus=1, cpu_mhz=bench.cpu_mhz)
    expect("status", settled(bench.status()), wanted)
    bench.must(Outcome.OK, ActionKind.STOP, expects=2)
    expect("what is left after a local resume and a stop", bench.find(), None)


@_check()
def check_resume_paused(bench: Bench) -> None:
    """Check that a VM can be resumed paused."""
    bench.start()
    bench.must(Outcome.OK, ActionKind.SUSPEND, expects=1, generation=1)
    bench.must(Outcome.OK, ActionKind.RESUME, expects=1, generation=2, spec=bench.spec(), paused=True)
    expect("state", bench.status().state, VmState.PAUSED)


@_check(Ability.SAVE)
def check_image_holds_no_memory(bench: Bench) -> None:
    """Check that suspending a VM frees its memory, and that a resume without enough memory fails without losing the
    VM."""
    big_mib = int(bench.inventory.memory_mib * HALF_AND_MORE)
    bench.start(VM, big_mib, paused=True)
    bench.must(Outcome.OK, ActionKind.SUSPEND, expects=1, generation=1)
    bench.start(OTHER, big_mib, paused=True)
    bench.must(Outcome.NO_ROOM, ActionKind.RESUME, expects=1, generation=2, spec=bench.spec(VM, big_mib))
    expect("state", bench.status().state, VmState.SUSPENDED)


@_check()
def check_discard_image(bench: Bench) -> None:
    """Check that a discarded image is gone, and that discarding it again succeeds."""
    bench.start()
    bench.must(Outcome.OK, ActionKind.SUSPEND, expects=1, generation=1)
    for _ in range(2):
        bench.must(Outcome.OK, ActionKind.DISCARD_IMAGE, expects=1)
    expect("VM", bench.find(), None)


@_check()
def check_forget_leaves_the_living_alone(bench: Bench) -> None:
    """Check that `forget` removes only VMs that ended or crashed."""
    bench.start()
    bench.start(OTHER)
    bench.must(Outcome.OK, ActionKind.SUSPEND, OTHER, expects=1, generation=1)
    for vm in (VM, OTHER, "absent#0"):
        bench.node.forget(vm, bench.harness.now_s())
    expect("states", (bench.status().state, bench.status(OTHER).state), (VmState.RUNNING, VmState.SUSPENDED))


@_check()
def check_abort_of_nothing(bench: Bench) -> None:
    """Check that an abort without an operation in progress does nothing and gets no answer."""
    before = bench.start()
    bench.node.abort(VM, bench.harness.now_s())
    bench.node.abort("absent#0", bench.harness.now_s())
    for kind in (ActionKind.PAUSE, ActionKind.UNPAUSE):
        bench.must(Outcome.OK, kind, expects=1, generation=1)
    expect("answers", len(bench.answers), 3)
    expect("status", settled(bench.status()), settled(before))


@_check()
def check_different_vms_side_by_side(bench: Bench) -> None:
    """Operations on different VMs do not wait for each other, each is answered once, all VMs are listed."""
    vms = [f"many#{i}" for i in range(4)]
    calls = [bench.begin(ActionKind.START, vm, generation=1, spec=bench.spec(vm, SMALL_MIB // 2)) for vm in vms]
    expect("outcomes", [bench.answer(call).outcome for call in calls], [Outcome.OK] * len(vms))
    expect("VMs", sorted(status.vm for status in bench.node.vms(bench.harness.now_s())), vms)


@_check()
def check_release_and_adopt(bench: Bench) -> None:
    """Check that a released VM keeps running unmanaged, that an adopted one is managed again, and that both operations
    are idempotent."""
    before = bench.start(spec=bench.spec(attempt=2))
    for _ in range(2):
        bench.must(Outcome.OK, ActionKind.RELEASE, expects=1)
    expect("status", settled(bench.status()), settled(relabelled(before, 0, 0, managed=False)))
    for _ in range(2):
        bench.must(Outcome.OK, ActionKind.ADOPT, generation=5, spec=bench.spec(generation=5, attempt=3))
    expect("status", settled(bench.status()), settled(relabelled(before, 5, 3)))
    bench.must(Outcome.OK, ActionKind.STOP, expects=5)


@_check()
def check_what_is_not_ours_is_left_alone(bench: Bench) -> None:
    """Check that no operation but ADOPT touches an unmanaged VM, and that its memory counts."""
    big_mib = int(bench.inventory.memory_mib * HALF_AND_MORE)
    before = relabelled(bench.start(VM, big_mib), 0, 0, managed=False)
    bench.must(Outcome.OK, ActionKind.RELEASE, expects=1)
    bench.must(Outcome.ALREADY_THERE, ActionKind.START, generation=1, spec=bench.spec())
    for kind in (ActionKind.STOP, ActionKind.PAUSE, ActionKind.SUSPEND, ActionKind.SET_CPU):
        bench.must(Outcome.REFUSED, kind, expects=0, generation=0, cpu_mhz=bench.cpu_mhz / 2)
    bench.must(Outcome.NO_ROOM, ActionKind.START, OTHER, generation=1, spec=bench.spec(OTHER, big_mib))
    expect("status", settled(bench.status()), settled(before))


@_check()
def check_adopt_refuses(bench: Bench) -> None:
    """Check that a missing or already managed VM is not adopted."""
    bench.must(Outcome.NO_SUCH_VM, ActionKind.ADOPT, generation=1, spec=bench.spec())
    before = bench.start()
    bench.must(Outcome.ALREADY_THERE, ActionKind.ADOPT, generation=2, spec=bench.spec(generation=2))
    bench.must(Outcome.WRONG_GENERATION, ActionKind.RELEASE, expects=2)
    expect("status", settled(bench.status()), settled(before))


# --- operations under way ----------------------------------------------------------------------------------------


@_check("slow")
def check_busy(bench: Bench) -> None:
    """Check that a VM has one operation at a time, and that meanwhile it is listed as busy and does not execute."""
    call = bench.begin(ActionKind.START, generation=1, spec=bench.spec())
    status = bench.status()
    expect("state and busy", (status.state, status.busy), (VmState.INCOMING, "start"))
    bench.must(Outcome.BUSY, ActionKind.STOP, expects=1)
    expect("outcome", bench.answer(call).outcome, Outcome.OK)
    suspending = bench.begin(ActionKind.SUSPEND, expects=1, generation=1)
    expect("busy", bench.status().busy, "suspend")
    bench.must(Outcome.BUSY, ActionKind.PAUSE, expects=1)
    expect("outcome", bench.answer(suspending).outcome, Outcome.OK)
    expect("state and busy", (bench.status().state, bench.status().busy), (VmState.SUSPENDED, ""))


@_check("slow")
def check_abort(bench: Bench) -> None:
    """Check that an aborted operation is answered TIMED_OUT and leaves the VM as it was."""
    call = bench.begin(ActionKind.START, generation=1, spec=bench.spec())
    bench.node.abort(VM, bench.harness.now_s())
    expect("outcome", bench.answer(call).outcome, Outcome.TIMED_OUT)
    expect("VM", bench.find(), None)
    before = bench.start()
    call = bench.begin(ActionKind.SUSPEND, expects=1, generation=1)
    bench.node.abort(VM, bench.harness.now_s())
    expect("outcome", bench.answer(call).outcome, Outcome.TIMED_OUT)
    expect("status", settled(bench.status()), settled(before))


SCRIPTED = (ActionKind.PAUSE, ActionKind.SET_CPU, ActionKind.SUSPEND, ActionKind.STOP)
SAID = {"refuse": Outcome.REFUSED, "fail-half-way": Outcome.FAILED, "hang": Outcome.TIMED_OUT}


def _fail(bench: Bench, how: str, kind: ActionKind, **fields: Any) -> None:
    """Make an operation fail as scripted; check that the VM is as before and not busy, so that the operation can be
    retried."""
    before = bench.find()
    bench.harness.fail_next(kind, how)
    call = bench.begin(kind, **fields)
    if how == "hang":
        bench.harness.wait(60.0)
        status = bench.find()
        expect("busy while it hangs", status and status.busy, kind.value)
        bench.node.abort(VM, bench.harness.now_s())
    expect(f"outcome of {kind.value}", bench.answer(call).outcome, SAID[how])
    expect(f"VM after a {kind.value} that failed ({how})", settled(bench.find()), settled(before))
    after = bench.find()
    expect("busy", after.busy if after else "", "")


@_check("scripts")
def check_failures_leave_the_vm_as_it_was(bench: Bench) -> None:
    """However an operation fails, the VM, or its image, is as before, and the next try works."""
    for how in SAID:
        _fail(bench, how, ActionKind.START, generation=1, spec=bench.spec())
    bench.start()
    for how in SAID:
        for kind in SCRIPTED:
            _fail(bench, how, kind, expects=1, generation=1, cpu_mhz=bench.cpu_mhz / 2)
    bench.must(Outcome.OK, ActionKind.SUSPEND, expects=1, generation=1)
    for how in SAID:
        _fail(bench, how, ActionKind.RESUME, expects=1, generation=2, spec=bench.spec())
        _fail(bench, how, ActionKind.DISCARD_IMAGE, expects=1)
    bench.must(Outcome.OK, ActionKind.RESUME, expects=1, generation=2, spec=bench.spec())


# --- two nodes ---------------------------------------------------------------------------------------------------


def _to_peer(bench: Bench) -> dict[str, Any]:
    return {"expects": 1, "generation": 1, "to_node": bench.peer.inventory().name}


@_check("migration")
def check_migrate(bench: Bench) -> None:
    """Check that a migrated VM is gone from the source and runs on the target with its metadata, and that the target
    reports its arrival."""
    before = bench.start(spec=bench.spec(attempt=2))
    answer = bench.must(Outcome.OK, ActionKind.MIGRATE, **_to_peer(bench))
    expect(
        "status and generation of last counters", (answer.status, answer.final and answer.final.generation), (None, 1)
    )
    expect("here", bench.find(), None)
    expect("there", settled(bench.status(on=bench.peer)), settled(before))
    arrived = bench.change(VM, bench.peer)
    expect("change", (arrived.change, arrived.status.state), (GuestChange.ARRIVED, VmState.RUNNING))
    bench.must(Outcome.OK, ActionKind.MIGRATE, **_to_peer(bench))


@_check("migration")
def check_migrate_paused(bench: Bench) -> None:
    """Check that a paused VM stays paused during a migration."""
    bench.start(paused=True)
    bench.must(Outcome.OK, ActionKind.MIGRATE, **_to_peer(bench))
    expect("there", bench.status(on=bench.peer).state, VmState.PAUSED)


@_check("migration")
def check_migrate_refused(bench: Bench) -> None:
    """Check that a target that is unknown, full, or has a VM of this name leaves the VM where it is."""
    big_mib = int(bench.inventory.memory_mib * HALF_AND_MORE)
    bench.must(Outcome.NO_SUCH_VM, ActionKind.MIGRATE, **_to_peer(bench))
    before = bench.start(VM, big_mib)
    bench.must(Outcome.FAILED, ActionKind.MIGRATE, expects=1, generation=1, to_node="nowhere")
    bench.must(Outcome.WRONG_GENERATION, ActionKind.MIGRATE, **{**_to_peer(bench), "expects": 9})
    bench.must(Outcome.OK, ActionKind.START, OTHER, on=bench.peer, generation=1, spec=bench.spec(OTHER, big_mib))
    bench.must(Outcome.NO_ROOM, ActionKind.MIGRATE, **_to_peer(bench))
    expect("here", settled(bench.status()), settled(before))
    expect("there", bench.find(on=bench.peer), None)


@_check("migration", "scripts")
def check_failed_migration_leaves_nothing(bench: Bench) -> None:
    """Check that a failed migration leaves nothing on the target, and that its memory there is free again."""
    bench.start(VM, int(bench.inventory.memory_mib * HALF_AND_MORE))
    for how in SAID:
        _fail(bench, how, ActionKind.MIGRATE, **_to_peer(bench))
        expect("there", bench.find(on=bench.peer), None)
    bench.must(Outcome.OK, ActionKind.MIGRATE, **_to_peer(bench))


@_check("migration", "slow")
def check_migration_in_progress(bench: Bench) -> None:
    """Check that during a migration the VM keeps running on the source, is INCOMING on the target, and is busy on
    both."""
    bench.start()
    call = bench.begin(ActionKind.MIGRATE, **_to_peer(bench))
    here, there = bench.status(), bench.status(on=bench.peer)
    expect("here", (here.state, here.busy), (VmState.RUNNING, "migrate"))
    expect("there", (there.state, there.busy), (VmState.INCOMING, "migrate"))
    bench.must(Outcome.BUSY, ActionKind.STOP, on=bench.peer, expects=1)
    expect("outcome", bench.answer(call).outcome, Outcome.OK)


@_check("migration")
def check_resume_elsewhere(bench: Bench) -> None:
    """Check that an image can be resumed on another node, and stays on its node until it is discarded."""
    bench.start(spec=bench.spec(attempt=2))
    bench.must(Outcome.OK, ActionKind.SUSPEND, expects=1, generation=1)
    here = bench.inventory.name
    resume: dict[str, Any] = {"expects": 1, "generation": 2, "spec": bench.spec(attempt=2), "from_node": here}
    bench.must(Outcome.OK, ActionKind.RESUME, on=bench.peer, **resume)
    there = bench.status(on=bench.peer)
    expect("there", (there.state, there.generation, there.attempt), (VmState.RUNNING, 2, 2))
    expect("image", (bench.status().state, bench.status().generation), (VmState.SUSPENDED, 1))
    bench.must(Outcome.OK, ActionKind.DISCARD_IMAGE, expects=1)
    expect("here", bench.find(), None)
    bench.must(Outcome.OK, ActionKind.RESUME, on=bench.peer, **resume)
    expect("there", settled(bench.status(on=bench.peer)), settled(there))
    bench.must(Outcome.FAILED, ActionKind.RESUME, OTHER, expects=1, generation=2, from_node="nowhere")


# --- guests ------------------------------------------------------------------------------------------------------


@_check("ends")
def check_guest_ends(bench: Bench) -> None:
    """Check that a guest that ends is reported with its counters, holds no memory, and stays listed until `forget`."""
    big_mib = int(bench.inventory.memory_mib * HALF_AND_MORE)
    bench.harness.will_end(VM, 0.5)
    bench.start(VM, big_mib)
    ended = bench.change(VM)
    expect("change", (ended.change, ended.status.state), (GuestChange.ENDED, VmState.ENDED))
    if "cpu" in bench.harness.capabilities:
        expect_near("CPU time", ended.status.cpu_time_s, 0.5, bench.harness.tolerance_frac)
    expect("state", bench.status().state, VmState.ENDED)
    bench.must(Outcome.REFUSED, ActionKind.PAUSE, expects=1)
    bench.must(Outcome.OK, ActionKind.START, generation=1, spec=bench.spec(VM, big_mib))
    expect("state after the same start again", bench.status().state, VmState.ENDED)
    bench.start(OTHER, big_mib)
    bench.node.forget(VM, bench.harness.now_s())
    expect("VM", bench.find(), None)


@_check("ends")
def check_stop_of_ended(bench: Bench) -> None:
    """STOP removes an ended VM too."""
    bench.harness.will_end(VM, 0.5)
    bench.start()
    bench.change(VM)
    bench.must(Outcome.OK, ActionKind.STOP, expects=1)
    expect("VM", bench.find(), None)


@_check("cpu", "ends")
def check_cpu_time(bench: Bench) -> None:
    """Check that CPU time is counted while the VM executes, and only then."""
    bench.harness.will_end(VM, 1e6)
    bench.start(paused=True)
    bench.harness.wait(3.0)
    expect("CPU time while paused", round(bench.status().cpu_time_s, 1), 0.0)
    bench.must(Outcome.OK, ActionKind.UNPAUSE, expects=1, generation=1)
    bench.harness.wait(4.0)
    expect_near("CPU time", bench.status().cpu_time_s, 4.0, bench.harness.tolerance_frac)


@_check("cpu", "ends")
def check_weights(bench: Bench) -> None:
    """Guests that want all CPU share it in proportion to their allotments, also after a change."""
    vms = [f"burn{i}#0" for i in range(2 * bench.inventory.cores)]
    light, heavy = vms[: bench.inventory.cores], vms[bench.inventory.cores :]
    for vm in vms:
        bench.harness.will_end(vm, 1e6)
        bench.start(spec=bench.spec(vm, SMALL_MIB // 2, cpu_mhz=bench.inventory.core_mhz / 4), vm=vm)
    for vm in heavy:
        bench.must(Outcome.OK, ActionKind.SET_CPU, vm, expects=1, generation=1, cpu_mhz=0.75 * bench.inventory.core_mhz)

    def used_s(group: list[str]) -> float:
        return sum(bench.status(vm).cpu_time_s for vm in group)

    before = used_s(light), used_s(heavy)
    bench.harness.wait(8.0)
    expect_near("share", (used_s(heavy) - before[1]) / (used_s(light) - before[0]), 3.0, bench.harness.tolerance_frac)
