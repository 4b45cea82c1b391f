"""Live migrations go only where the VM can go alive: planned so, asked so, and looked at again before they are sent."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from daemons.controller.decide.apply import DesiredState
from daemons.controller.requests.vms import BY_OPERATOR
from daemons.controller.state.migration_fit import free_pages_mib, lacking_on, migration_columns, misfit, why_not_on
from daemons.values.settings import ControllerSettings, PolicyChoice
from shared.policy_api.decision import Change, ChangeKind
from shared.protocol.codec import pack, unpack
from shared.protocol.operator_messages import AddNode, HoldJob, MoveVm, Query, SubmitJob, SubmitWeb
from shared.values.actions import ActionKind, Outcome
from shared.values.jobs import Allotment
from shared.values.migration import PageUse, lacks, pages_of
from shared.values.nodes import HugepagePool, Node, NumaCell
from shared.values.vms import VmState, VmStatus
from shared.values.web_app import Flow, WebApp
from tests.support import parts
from tests.support.controller_harness import ControllerHarness, job

NODES = ("n1", "n2", "n3")
NEEDS = ("machine=pc-q35-7.2", "network=default", "pool=shared")
POLICIES = ("first-fit", "edf", "apc")


def running(has: dict[str, tuple[str, ...]], policy: str = "first-fit", **fields: Any) -> ControllerHarness:
    """A job on n1 that needs something of where it is migrated to."""
    harness = ControllerHarness(NODES, placement=PolicyChoice(policy), decide_s=300.0)
    for name, what in has.items():
        harness.nodes[name] = replace(harness.nodes[name], migration_has=what)
    harness.lead()
    harness.ask(SubmitJob("s", job(**fields)))
    harness.obey()
    (home,) = [name for name in NODES if harness.vms[name]]
    assert home == "n1"
    harness.change("n1", "j#0", migration_needs=NEEDS)
    harness.wait(5.0, reporting=NODES)
    return harness


def drained(harness: ControllerHarness) -> list[tuple[ActionKind, str]]:
    """What is ordered when n1 is to be emptied."""
    parts.lifecycle(harness.controller).hold(harness.controller.cluster.nodes["n1"], True, harness.now_s)
    harness.wait(301.0, reporting=NODES)
    return [(order.kind, order.to_node) for order in harness.take_orders()][:1]


def test_what_is_lacking_is_told_by_kind() -> None:
    has = ("machine=pc-i440fx-7.2", "pool=shared", "pool=default")
    assert lacks(has, NEEDS) == ("machine=pc-q35-7.2",), "of networks nothing is known"
    assert lacks((), NEEDS) == ()
    assert lacks(has, ()) == ()
    assert lacks(NEEDS, NEEDS) == ()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_drained_job_goes_where_it_fits(policy: str) -> None:
    """Given two nodes of which the first lacks a network, when a node is drained, then its job goes to the other."""
    harness = running({"n1": NEEDS, "n2": ("machine=pc-q35-7.2", "network=other"), "n3": NEEDS}, policy)

    assert drained(harness) == [(ActionKind.MIGRATE, "n3")]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_not_known_fits(policy: str) -> None:
    assert drained(running({"n2": (), "n3": ("pool=none",)}, policy)) == [(ActionKind.MIGRATE, "n2")]


@pytest.mark.parametrize("policy", ["first-fit", "edf"])
def test_where_it_fits_nowhere_it_stays_and_the_reason_says_so(policy: str) -> None:
    harness = running(dict.fromkeys(("n2", "n3"), ("pool=other",)), policy)

    assert drained(harness) == []
    reason = harness.ask(Query("q", "job", "j")).data["job"]["waits_for"]
    assert (reason["code"], reason["numbers"]) == ("migration-fit", {"nodes": 2.0, "nodes_able": 0.0})


def test_apc_suspends_what_cannot_leave_alive_or_says_why_it_stays() -> None:
    """Suspended and resumed it fits anywhere."""
    harness = running(dict.fromkeys(("n2", "n3"), ("pool=other",)), "apc")

    ordered = drained(harness)
    assert ordered in ([], [(ActionKind.SUSPEND, "")])
    reason = harness.ask(Query("q", "job", "j")).data["job"]["waits_for"]
    assert ordered or reason["code"] == "migration-fit"


def test_what_is_suspended_is_resumed_anywhere() -> None:
    harness = running(dict.fromkeys(("n2", "n3"), ("pool=other",)))
    harness.ask(HoldJob("h", "j", True))
    harness.obey()
    assert harness.vms["n1"]["j#0"].state is VmState.SUSPENDED
    parts.lifecycle(harness.controller).hold(harness.controller.cluster.nodes["n1"], True, harness.now_s)
    harness.ask(HoldJob("h2", "j", False))

    assert [(order.kind, order.node) for order in harness.take_orders()] == [(ActionKind.RESUME, "n2")]


def test_an_operator_is_told_what_is_lacking() -> None:
    harness = running({"n2": ("pool=other", "machine=pc-q35-7.2")})
    reply = harness.ask(MoveVm("m", "j#0", "n2"))

    assert (reply.code, "pool=shared" in reply.detail, "machine" in reply.detail) == ("migration-fit", True, False)
    assert harness.ask(MoveVm("m2", "j#0", "n3")).done


def test_what_does_not_fit_any_more_when_it_is_to_be_sent_stays() -> None:
    """Given a decided move that waits for room on its way, when its target changes, then it is given up."""
    harness = running({}, vcpus=1)
    harness.ask(MoveVm("m", "j#0", "n2"))
    (order,) = harness.take_orders()
    harness.result(order, outcome=Outcome.EXPIRED, seq=0)
    harness.nodes["n2"] = replace(harness.nodes["n2"], migration_has=("network=none",))
    allotments = harness.controller.cluster.jobs["j"].allotments
    harness.controller.cluster.set_allotments(
        harness.controller.cluster.jobs["j"], (replace(allotments[0], node="n2"),)
    )
    harness.wait(60.0, reporting=NODES)

    assert harness.take_orders() == []
    assert [allotment.node for allotment in harness.controller.cluster.jobs["j"].allotments] == ["n1"]
    assert "network=default" in harness.happenings("migration-unfit")[0].detail


def test_the_columns_say_what_asking_one_by_one_says() -> None:
    """Naively: instance by instance, node by node."""
    rng = np.random.default_rng(9)
    kinds, values = ("machine", "network", "pool"), ("a", "b")
    tokens = [f"{kind}={value}" for kind, value in product(kinds, values)]
    for _ in range(20):
        harness = ControllerHarness([f"n{i}" for i in range(5)]).lead()
        for name in harness.nodes:
            has = tuple(token for token in tokens if rng.random() < 0.4)
            harness.nodes[name] = replace(harness.nodes[name], migration_has=has)
        for number in range(6):
            harness.ask(SubmitJob(f"s{number}", job(f"j{number}", instances=1 + number % 2, memory_mib=500)))
        harness.obey()
        for vms in harness.vms.values():
            for vm in list(vms):
                needs = tuple(token for token in tokens if rng.random() < 0.3)
                vms[vm] = structs.replace(vms[vm], migration_needs=needs)
        for name in harness.nodes:
            harness.report(name)
        cluster = harness.controller.cluster
        nodes, jobs = list(cluster.nodes.values()), list(cluster.jobs.values())
        columns = migration_columns(nodes, jobs, 0.0)
        for row, entry in enumerate(jobs):
            homes = {allotment.node for allotment in entry.allotments}
            needs_all = [
                status.migration_needs
                for vms in harness.vms.values()
                for status in vms.values()
                if status.vm.startswith(f"{entry.job.name}#")
            ]
            naive = [
                name in homes or all(not lacks(harness.nodes[name].migration_has, needs) for needs in needs_all)
                for name in harness.nodes
            ]
            got = columns.nodes_of(row) if columns is not None else None
            assert (got.tolist() if got is not None else [True] * 5) == naive


@pytest.mark.parametrize(
    ("has", "template", "refused"),
    [
        ((("render", "web"), ("render",)), "rendr", "there is no template 'rendr' on any node; nodes have render, web"),
        ((("render",), ("render",)), "", "it names no template; nodes have render"),
        (((), ()), "render", "there is no template 'render' on any node; no node has any"),
        ((("render",), ("web",)), "web", ""),
        ((("render",), None), "rendr", ""),  # its driver does not tell
    ],
)
def test_what_is_made_from_an_unknown_template_is_refused(
    has: tuple[tuple[str, ...] | None, ...], template: str, refused: str
) -> None:
    """Given nodes that have told their templates, then jobs and web applications from another one are refused."""
    harness = ControllerHarness(("n1", "n2"))
    for name, templates in zip(("n1", "n2"), has, strict=True):
        harness.nodes[name] = replace(harness.nodes[name], templates=templates)
    harness.lead()
    app = WebApp("shop", (Flow("all", mean_s=1.0, work_mcycles=5.0),), 100, max_mhz=500.0, template=template)
    for ask in (SubmitJob("s", job(template=template)), SubmitWeb("w", app)):
        reply = harness.ask(ask)
        assert (reply.done, reply.code) == ((False, "unknown-template") if refused else (True, ""))
        assert reply.detail.startswith(refused)


def test_a_node_that_has_not_reported_may_have_any_template() -> None:
    harness = ControllerHarness(("n1",))
    harness.nodes["n1"] = replace(harness.nodes["n1"], templates=("render",))
    harness.lead()
    harness.ask(AddNode("add", "n9"))
    assert harness.ask(SubmitJob("s", job(template="other"))).done


# --- hugepages -------------------------------------------------------------------------------------------------------

POOL = (HugepagePool(2_048, 1_000, 0), HugepagePool(2_048, 1_000, 1))
FEATURES = ("hugepages=", "hugepages-2048=2000", "numa=0-1")
PAGED = ("hugepages-2048=800",)


def paged(
    count: int, needs: tuple[str, ...] = PAGED, pools: dict[str, tuple[HugepagePool, ...]] | None = None
) -> ControllerHarness:
    """Jobs of 800 MiB that run on n1 in hugepages; nodes have 4,000 MiB, half of it in hugepages."""
    harness = ControllerHarness(NODES, decide_s=300.0)
    for name in NODES:
        own = (pools or {}).get(name, POOL)
        has = ("hugepages=", f"hugepages-2048={sum(pool.total_mib for pool in own)}", "numa=0-1")
        harness.nodes[name] = replace(harness.nodes[name], migration_has=has, hugepages=own)
    harness.lead()
    for number in range(count):
        harness.ask(SubmitJob(f"s{number}", job(f"j{number}", memory_mib=800, vcpus=1)))
        harness.obey()
        harness.change("n1", f"j{number}#0", migration_needs=needs)
        harness.report("n1")
    assert len(harness.vms["n1"]) == count
    return harness


def test_a_vm_in_hugepages_takes_no_ordinary_memory() -> None:
    """Given jobs in hugepages, then a node has the more ordinary memory for others."""
    harness = paged(2)
    node = harness.controller.cluster.nodes["n1"]
    assert (node.inventory is not None and node.inventory.usable_mib, node.room_mib()) == (2_000, 2_000.0)
    assert (node.committed_mib, node.wanted_mib, sorted(node.paged)) == (0.0, 0.0, ["j0#0", "j1#0"])
    assert free_pages_mib(node, pages_of(PAGED)) == [400]
    snapshot = harness.computations[-1].request.snapshot
    harness.change("n1", "j0#0", migration_needs=())
    harness.report("n1")
    assert (node.committed_mib, node.wanted_mib, sorted(node.paged)) == (800.0, 800.0, ["j1#0"])
    assert free_pages_mib(node, pages_of(PAGED)) == [1_200]
    assert snapshot is not None


def test_the_snapshot_shows_ordinary_memory_alone() -> None:
    harness = paged(1)
    harness.ask(SubmitJob("more", job("more", memory_mib=500)))
    snapshot = harness.computations[-1].request.snapshot
    assert snapshot.nodes.memory_mib.tolist() == [2_000.0] * 3
    assert snapshot.nodes.free_memory_mib.tolist() == [2_000.0] * 3
    assert dict(zip(snapshot.workloads.names, snapshot.workloads.memory_mib.tolist(), strict=True)) == {
        "j0": 0.0,
        "more": 500.0,
    }


def test_unmanaged_vms_hold_hugepages_too() -> None:
    harness = paged(1)
    stranger = VmStatus(
        "other", VmState.RUNNING, memory_mib=1_500, managed=False, migration_needs=("hugepages-2048=1400",)
    )
    harness.vms["n2"]["other"] = stranger
    harness.report("n2")
    node = harness.controller.cluster.nodes["n2"]
    assert (node.unmanaged_mib, free_pages_mib(node, pages_of(PAGED))) == (100.0, [600])
    reply = harness.ask(MoveVm("m", "j0#0", "n2"))
    assert (reply.code, "hugepages-2048=800" in reply.detail) == ("migration-fit", True)
    assert harness.ask(MoveVm("m2", "j0#0", "n3")).done


def test_moves_of_one_decision_do_not_overcommit_a_pool() -> None:
    """Given two VMs and room for one of them, then one is moved and the other stays."""
    harness = paged(2, pools={"n1": (HugepagePool(2_048, 3_000),), "n2": POOL[:1], "n3": ()})
    cluster, unit_of_work = harness.controller.cluster, harness.controller.unit_of_work
    changes = [
        Change(f"j{n}", cluster.jobs[f"j{n}"].revision, ChangeKind.MIGRATE, (Allotment("n2", 500.0),), BY_OPERATOR)
        for n in range(2)
    ]
    dropped = DesiredState(cluster, unit_of_work, ControllerSettings()).apply(changes, harness.now_s)
    harness.report("n1")  # what has happened is told with the next message
    assert [(one.workload, one.reason.code.value) for one in dropped] == [("j1", "migration-fit")]
    assert [cluster.jobs[name].allotments[0].node for name in ("j0", "j1")] == ["n2", "n1"]
    assert "needs 800 MiB of 2 MiB hugepages; n2 has 200 MiB free" in harness.happenings("migration-unfit")[-1].detail


def test_instances_of_one_job_share_what_is_free() -> None:
    harness = ControllerHarness(NODES, decide_s=300.0)
    for name in NODES:
        own = POOL if name == "n1" else POOL[:1]
        harness.nodes[name] = replace(harness.nodes[name], migration_has=FEATURES, hugepages=own)
    harness.lead()
    harness.ask(SubmitJob("s", job("gang", instances=2, memory_mib=800, vcpus=1)))
    harness.obey()
    homes = [name for name in NODES for _ in harness.vms[name]]
    for name in NODES:
        for vm in harness.vms[name]:
            harness.change(name, vm, migration_needs=PAGED)
        harness.report(name)
    cluster = harness.controller.cluster
    entry = cluster.jobs["gang"]
    there = tuple(Allotment("n3", 500.0) for _ in homes)
    change = Change("gang", entry.revision, ChangeKind.MIGRATE, there, BY_OPERATOR)
    assert "gang#1: needs 800 MiB of 2 MiB hugepages; n3 has 200 MiB free" in misfit(cluster, entry, change)
    one = Change("gang", entry.revision, ChangeKind.MIGRATE, (there[0], entry.allotments[1]), BY_OPERATOR)
    assert misfit(cluster, entry, one) == ""


def test_pages_of_a_cell_are_counted_against_those_that_may_be_in_it() -> None:
    """Given a VM that is bound to cell 1 and one that may be in any, then cell 1 has what both leave."""
    harness = paged(1)
    held = {"a": ("hugepages-2048=300", "numa=1"), "b": ("hugepages-2048=400",), "c": ("hugepages-2048=500", "numa=0")}
    for vm, needs in held.items():
        harness.vms["n2"][vm] = VmStatus(vm, VmState.RUNNING, managed=False, migration_needs=needs)
    harness.report("n2")
    node = harness.controller.cluster.nodes["n2"]
    for cells, free, lax in (((), 800, 800), ((0,), 100, 500), ((1,), 300, 700), ((0, 1), 800, 800), ((7,), 0, 0)):
        use = PageUse(((2_048, 1),), frozenset(cells))
        assert free_pages_mib(node, use) == [free], cells
        assert free_pages_mib(node, use, is_lax=True) == [lax], cells


def test_a_vm_that_is_bound_to_cells_goes_where_these_have_its_memory() -> None:
    """Given 1,200 MiB in cell 0, and others that must be in it, or may be; what is in hugepages is not for it."""
    harness = paged(1, needs=("numa=0",))
    node, cells = harness.nodes["n2"], (NumaCell(0, "0-1", 2_200), NumaCell(1, "2-3", 1_300))
    harness.nodes["n2"] = replace(node, numa_cells=cells)  # 1,000 MiB of each cell are in hugepages
    held = {"a": ("numa=0",), "b": ("numa=1",), "c": (), "d": ("hugepages-2048=300", "numa=0")}
    for vm, needs in held.items():
        harness.vms["n2"][vm] = VmStatus(vm, VmState.RUNNING, managed=False, memory_mib=300, migration_needs=needs)
    harness.report("n2")
    cluster = harness.controller.cluster
    assert migration_columns(list(cluster.nodes.values()), [cluster.jobs["j0"]], 0.0) is None
    assert harness.ask(MoveVm("m1", "j0#0", "n2")).done

    harness = paged(2, needs=("numa=0",))
    harness.nodes["n2"] = replace(node, numa_cells=cells)
    for vm, needs in (held | {"b": ("numa=0-1",)}).items():
        harness.vms["n2"][vm] = VmStatus(vm, VmState.RUNNING, managed=False, memory_mib=300, migration_needs=needs)
    harness.report("n2")
    reply = harness.ask(MoveVm("m2", "j0#0", "n2"))
    assert (reply.code, "numa-memory=800" in reply.detail) == ("migration-fit", True)
    cluster = harness.controller.cluster
    said = why_not_on(cluster, cluster.instances["j0#0"], "n2")
    assert said == ("needs 800 MiB in its NUMA cells; n2 has 600 MiB free there",)
    columns = migration_columns(list(cluster.nodes.values()), [cluster.jobs["j0"]], 0.0)
    assert columns is not None
    assert columns.fits.tolist() == [[True, False, True]]  # of n3 it is not known


def test_a_vm_on_its_way_to_a_cell_holds_its_memory_there() -> None:
    harness = paged(2, needs=("numa=0",))
    harness.nodes["n2"] = replace(harness.nodes["n2"], numa_cells=(NumaCell(0, "0-3", 2_500),))
    harness.report("n2")
    assert harness.ask(MoveVm("m1", "j0#0", "n2")).done
    assert harness.ask(MoveVm("m2", "j1#0", "n2")).code == "migration-fit"


def test_a_vm_on_its_way_holds_its_pages_on_both_nodes() -> None:
    harness = paged(1)
    harness.ask(MoveVm("m", "j0#0", "n2"))
    harness.take_orders()
    nodes = harness.controller.cluster.nodes
    assert [free_pages_mib(nodes[name], pages_of(PAGED)) for name in NODES] == [[1_200], [1_200], [2_000]]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_bound_to_its_node_is_moved_by_nobody(policy: str) -> None:
    """Also where nodes report no features at all."""
    harness = running({}, policy)
    harness.change("n1", "j#0", migration_needs=("bound=pci-device:0000:3b:00.0",))
    harness.report("n1")
    kinds = {kind for kind, _ in drained(harness)}
    assert ActionKind.MIGRATE not in kinds
    assert harness.ask(MoveVm("m", "j#0", "n2")).code == "migration-fit" or kinds == {ActionKind.SUSPEND}


def test_random_moves_never_overcommit_a_pool() -> None:
    """Whatever moves are asked for, in whatever order, no pool has to hold more than it has."""
    rng = np.random.default_rng(4)
    answers: set[str] = set()
    for _ in range(10):
        sizes = [int(size) for size in rng.choice((100, 300, 500), size=3)]
        harness = ControllerHarness(NODES, decide_s=1e6)
        for name, size in zip(NODES, (2_000, *sizes[:2]), strict=True):
            pools = (HugepagePool(2_048, size),)
            has = ("hugepages=", f"hugepages-2048={size}")
            harness.nodes[name] = replace(harness.nodes[name], migration_has=has, hugepages=pools)
        harness.lead()
        for number in range(4):
            harness.ask(SubmitJob(f"s{number}", job(f"j{number}", memory_mib=200, vcpus=1, work=1e9)))
            harness.obey()
            pages = int(rng.choice((100, 200)))
            harness.change("n1", f"j{number}#0", migration_needs=(f"hugepages-2048={pages}",))
            harness.report("n1")
        for step in range(30):
            vm, to = f"j{rng.integers(4)}#0", str(rng.choice(NODES))
            answers.add(harness.ask(MoveVm(f"m{step}", vm, to)).code)
            if rng.random() < 0.4:
                harness.obey()
                for name in NODES:
                    harness.report(name)
            for node in harness.controller.cluster.nodes.values():
                held = {**node.claimed, **node.paged}
                assert node.inventory is not None
                used = sum(one.pages.total_mib for one in held.values())
                assert used <= node.inventory.hugepages_mib, (node.name, sorted(held))
    assert {"", "migration-fit"} <= answers


def test_masks_of_hugepages_say_what_asking_one_by_one_says() -> None:
    rng = np.random.default_rng(12)
    for _ in range(15):
        harness = ControllerHarness([f"n{i}" for i in range(5)]).lead()
        for name in harness.nodes:
            pools = tuple(HugepagePool(2_048, int(rng.choice((0, 200, 500))), cell) for cell in range(2))
            total = sum(pool.total_mib for pool in pools)
            has = ("hugepages=", f"hugepages-2048={total}", "numa=0-1") if rng.random() < 0.9 else ()
            harness.nodes[name] = replace(harness.nodes[name], migration_has=has, hugepages=pools)
        for number in range(6):
            harness.ask(SubmitJob(f"s{number}", job(f"j{number}", memory_mib=300)))
        harness.obey()
        for vms in harness.vms.values():
            for vm in list(vms):
                needs = [f"hugepages-2048={rng.choice((100, 300))}"] if rng.random() < 0.8 else []
                needs += [f"numa={rng.integers(2)}"] if needs and rng.random() < 0.5 else []
                vms[vm] = structs.replace(vms[vm], migration_needs=tuple(needs))
        for name in harness.nodes:
            harness.report(name)
        cluster = harness.controller.cluster
        nodes, jobs = list(cluster.nodes.values()), list(cluster.jobs.values())
        columns = migration_columns(nodes, jobs, 0.0)
        for row, entry in enumerate(jobs):
            (instance,) = entry.instances
            home = entry.allotments[0].node if entry.allotments else ""
            if not home:
                continue
            naive = [node.name == home or not lacking_on(cluster, instance, node.name) for node in nodes]
            got = columns.nodes_of(row) if columns is not None else None
            assert (got.tolist() if got is not None else [True] * 5) == naive


def test_a_record_of_before_numa_and_hugepages_is_still_read() -> None:
    """Given a node as an older controller stored it, then it has neither cells nor hugepages."""
    node = Node("n", 4, 1_000.0, memory_mib=4_000)
    stored = pack(node, Node)
    assert b"hugepages" not in stored
    assert unpack(stored, Node) == node
    new = replace(node, numa_cells=(NumaCell(0, "0-3", 4_000),), hugepages=POOL)
    assert unpack(pack(new, Node), Node) == new
