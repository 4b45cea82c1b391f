"""Adopted VMs whose host dies, with the real controller and agents: restarted on another one, once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agents.core.settings import AgentSettings
from daemons.controller.core.controller import Controller
from daemons.values.records.cluster import JobRecord
from daemons.values.settings import ControllerSettings
from shared.protocol.operator_messages import AdoptVm, ReleaseVm, Request
from shared.values.actions import ActionKind
from shared.values.jobs import Job, JobPhase, Rules, Stage
from shared.values.nodes import Node
from shared.values.vm_terms import VmTerms
from shared.values.vms import LIVE_STATES, VmState
from sim_backend.fakes.leases import LeaseTimes
from sim_backend.faults.invariants.checker import Checker
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings

NODES = tuple(Node(f"n{index}", 4, 1_000.0, memory_mib=2_000) for index in range(3))
SETTINGS = replace(ControllerSettings(), fence_after_s=10.0)
GUARDED = VmTerms(failover=True)
FENCED = LoopSettings(SETTINGS, AgentSettings())


class Rig:
    """Three hosts with VMs of somebody else, and what must hold."""

    def __init__(self, nodes: tuple[Node, ...] = NODES, settings: LoopSettings = FENCED) -> None:
        self.loop = ClosedLoop(nodes, settings)
        self.checker = Checker(self.loop)

    def vm(self, vm: str, node: str = "n0", memory_mib: int = 500, shared: bool = True) -> None:
        """Somebody starts a VM that starts with its host."""
        self.loop.cluster.hypervisor(node).add_stranger(vm, memory_mib, 0.0, shared=shared, autostart=True)

    def ask(self, request: Request, wait_s: float = 30.0) -> None:
        """Send a request, let it take its effect, and see that it was done."""
        self.loop.operator.send(request)
        self.wait(wait_s)
        reply = self.loop.operator.replies[request.request]
        assert reply.done, (reply.code, reply.detail)

    def adopt(
        self, vm: str, node: str = "n0", terms: VmTerms = GUARDED, importance: float = 1.0, apart: str = ""
    ) -> None:
        rules = Rules(anti_affinity=apart)
        self.ask(AdoptVm(f"a-{vm}", node, vm, job=vm, importance=importance, terms=terms, rules=rules))

    def wait(self, seconds: float) -> None:
        self.loop.run_until(self.loop.engine.now_s + seconds)

    def record(self, vm: str) -> JobRecord:
        found = self.loop.store.get(("job", vm))
        assert isinstance(found, JobRecord)
        return found

    def defined(self, vm: str) -> dict[str, VmState]:
        """Return the state of a VM on each host that defines it."""
        hosts = self.loop.cluster.hypervisors.items()
        return {name: host.domains[vm].state for name, host in hosts if vm in host.domains}

    def alive(self, vm: str) -> list[str]:
        """Return the hosts on which the VM is live."""
        return [name for name, state in self.defined(vm).items() if state in LIVE_STATES]

    def host_dies(self, name: str) -> None:
        self.checker.guests.host_died(name)
        self.loop.host_dies(name)
        self.checker.guests.touch()

    def host_returns(self, name: str) -> None:
        self.loop.host_returns(name, "boot-2")
        self.checker.guests.touch()

    def alarms(self) -> dict[str, str]:
        return {what: detail for what, _, _, detail in self.core.features.alarms(self.loop.engine.now_s)}

    @property
    def core(self) -> Controller:
        (shell,) = self.loop.controllers.values()
        assert isinstance(shell.core, Controller)
        return shell.core


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.vm("db")
    made.wait(30.0)
    return made


def test_a_vm_whose_host_is_fenced_runs_elsewhere_and_what_it_left_is_removed(rig: Rig) -> None:
    rig.adopt("db")
    assert rig.loop.cluster.hypervisor("n0").domains["db"].failover
    rig.host_dies("n0")
    rig.wait(60.0)
    (where,) = rig.alive("db")
    assert where != "n0"
    rig.host_returns("n0")
    rig.wait(60.0)
    assert rig.defined("db") == {where: VmState.RUNNING}
    record = rig.record("db")
    assert (record.phase, record.allotments[0].node, record.failover_to) == (JobPhase.RUNNING, where, "")
    assert rig.loop.cluster.hypervisor(where).domains["db"].autostart
    rig.ask(ReleaseVm("r", "db"))
    assert not rig.loop.cluster.hypervisor(where).domains["db"].failover
    assert rig.checker.violations == []


def test_a_vm_outlives_one_host_after_the_other(rig: Rig) -> None:
    """A host that is back tells how the VM ended there, which says nothing of where it runs now."""
    rig.adopt("db")
    for turn in range(3):
        (home,) = rig.alive("db")
        rig.host_dies(home)
        rig.wait(60.0)
        (where,) = rig.alive("db")
        assert where != home
        rig.loop.host_returns(home, f"boot-{turn + 2}")
        rig.wait(60.0)
        assert rig.defined("db") == {where: VmState.RUNNING}
    assert rig.checker.violations == []


def test_a_vm_without_failover_waits_for_its_host(rig: Rig) -> None:
    rig.adopt("db", terms=VmTerms())
    rig.host_dies("n0")
    rig.wait(600.0)
    assert rig.alive("db") == []
    rig.host_returns("n0")
    rig.wait(60.0)
    assert rig.alive("db") == ["n0"]
    assert rig.checker.violations == []


def test_a_vm_on_a_local_disk_waits_for_its_host_and_says_so() -> None:
    rig = Rig()
    rig.vm("db", shared=False)
    rig.wait(30.0)
    rig.adopt("db")
    rig.host_dies("n0")
    rig.wait(300.0)
    assert rig.alive("db") == []
    assert rig.alarms()["failover-blocked"] == "db: its disk /db lies on its host alone"
    rig.host_returns("n0")
    rig.wait(60.0)
    assert (rig.alive("db"), rig.alarms()) == (["n0"], {})
    assert rig.checker.violations == []


def test_a_host_that_is_cut_off_but_not_fenced_keeps_its_vms(rig: Rig) -> None:
    rig.adopt("db")
    rig.loop.fake_power.fail_fence("n0", 1_000)
    rig.loop.agents["n0"].kill()
    rig.wait(900.0)
    assert rig.alive("db") == ["n0"]
    rig.loop.agents["n0"].restart()
    rig.wait(60.0)
    assert rig.alive("db") == ["n0"]
    assert rig.checker.violations == []


def test_the_most_important_come_first_where_there_is_not_room_for_all() -> None:
    rig = Rig()
    for vm in ("a", "b", "c"):
        rig.vm(vm, memory_mib=600)
    for node in ("n1", "n2"):
        rig.vm(f"old-{node}", node, memory_mib=1_000)
    rig.wait(30.0)
    for vm, importance in (("a", 1.0), ("b", 3.0), ("c", 2.0)):
        rig.adopt(vm, importance=importance)
    rig.host_dies("n0")
    rig.wait(120.0)
    assert (rig.alive("a"), len(rig.alive("b")), len(rig.alive("c"))) == ([], 1, 1)
    assert "no node has the memory free" in rig.alarms()["failover-blocked"]
    assert rig.loop.cluster.hypervisor("n1").owner_stops("old-n1", rig.loop.engine.now_s)
    rig.wait(60.0)
    assert rig.alive("a") == ["n1"]
    assert rig.checker.violations == []


def test_rules_hold(rig: Rig) -> None:
    rig.vm("web", "n1")
    rig.wait(30.0)
    rig.adopt("web", "n1", terms=VmTerms(), apart="g")
    rig.adopt("db", apart="g")
    rig.host_dies("n0")
    rig.wait(60.0)
    assert rig.alive("db") == ["n2"]


@pytest.mark.parametrize("after_s", [0.0, 20.0, 26.0, 27.0, 28.0, 30.0, 40.0])
def test_whoever_leads_meanwhile_it_runs_once(rig: Rig, after_s: float) -> None:
    rig.adopt("db")
    rig.host_dies("n0")
    rig.wait(after_s)
    (controller,) = rig.loop.controllers.values()
    controller.kill()
    rig.wait(5.0)
    controller.restart()
    rig.wait(120.0)
    (where,) = rig.alive("db")
    assert where != "n0"
    rig.host_returns("n0")
    rig.wait(60.0)
    assert rig.defined("db") == {where: VmState.RUNNING}
    assert rig.checker.violations == []


def test_a_target_that_refuses_is_not_asked_again_at_once(rig: Rig) -> None:
    rig.adopt("db")
    hosts = {name: rig.loop.cluster.hypervisor(name) for name in ("n1", "n2")}
    for host in hosts.values():
        host.fail_next(None, "refuse", "db")
    rig.host_dies("n0")
    rig.wait(300.0)
    asked = sorted(
        (at_s, name)
        for name, host in hosts.items()
        for at_s, method, _, action in host.calls
        if method == "begin" and action is not None and action.kind is ActionKind.START
    )
    assert {name for _, name in asked[:2]} == {"n1", "n2"}
    assert (len(asked), len(rig.alive("db"))) == (3, 1)
    assert rig.checker.violations == []


def test_a_host_that_returns_before_another_was_chosen_has_it_again() -> None:
    rig = Rig(NODES[:1])
    rig.vm("db")
    rig.wait(30.0)
    rig.adopt("db")
    rig.host_dies("n0")
    rig.wait(120.0)
    rig.host_returns("n0")
    rig.wait(60.0)
    assert rig.defined("db") == {"n0": VmState.RUNNING}
    assert rig.checker.violations == []


def test_memory_is_kept_free_for_the_vms_of_one_node() -> None:
    """Each of three nodes has 2,000 MiB; 900 MiB of n0 must find a place, so no job gets the last 900 of the others."""
    rig = Rig()
    rig.vm("db", memory_mib=900)
    rig.wait(30.0)
    rig.adopt("db")
    rig.wait(1_000.0)
    assert sorted(node.spare_mib for node in rig.core.cluster.nodes.values()) == [0.0, 0.0, 900.0]
    for name in ("j1", "j2", "j3"):
        rig.loop.submit(Job(name, (Stage(1e9, 500.0, memory_mib=1_200),)))
    rig.wait(1_000.0)
    assert sum(rig.record(name).phase is JobPhase.RUNNING for name in ("j1", "j2", "j3")) == 1
    rig.host_dies("n0")
    rig.wait(60.0)
    assert len(rig.alive("db")) == 1
    assert rig.checker.violations == []


def test_a_node_whose_vms_could_not_restart_is_named() -> None:
    rig = Rig(NODES[:2])
    rig.vm("db", memory_mib=900)
    rig.vm("old", "n1", memory_mib=1_500)
    rig.wait(30.0)
    rig.adopt("db")
    rig.wait(1_000.0)
    assert rig.alarms()["spare-capacity-short"] == "if it is lost, db cannot restart elsewhere: 900 MiB are missing"


# --- without a fence device: storage leases ---------------------------------------------------------------------------

LEASED = replace(SETTINGS, fence_after_s=None)


def leased(nodes: tuple[Node, ...] = NODES) -> Rig:
    """No power driver; hosts renew leases on the storage that all of them share."""
    rig = Rig(nodes, replace(LoopSettings(LEASED, AgentSettings()), leases=LeaseTimes()))
    rig.vm("db")
    rig.wait(30.0)
    rig.adopt("db")
    return rig


@pytest.mark.parametrize("nodes", [2, 3])
def test_an_expired_lease_is_proof(nodes: int) -> None:
    rig = leased(NODES[:nodes])
    rig.host_dies("n0")
    rig.wait(40.0)
    assert rig.alive("db") == []
    rig.wait(50.0)
    (where,) = rig.alive("db")
    assert where != "n0"
    rig.host_returns("n0")
    rig.wait(60.0)
    assert rig.defined("db") == {where: VmState.RUNNING}
    assert rig.checker.violations == []


def test_a_host_that_loses_its_network_alone_keeps_its_vms() -> None:
    rig = leased()
    rig.loop.agents["n0"].kill()
    rig.wait(900.0)
    assert rig.alive("db") == ["n0"]
    rig.loop.agents["n0"].restart()
    rig.wait(60.0)
    assert (rig.alive("db"), rig.checker.violations) == (["n0"], [])


def test_a_host_that_loses_the_storage_resets_itself_before_its_vms_run_elsewhere() -> None:
    rig = leased()
    assert rig.loop.leases is not None
    rig.checker.guests.host_died("n0")
    rig.loop.leases.lose_storage("n0", rig.loop.engine.now_s)
    rig.loop.agents["n0"].kill()
    rig.wait(29.0)
    assert rig.alive("db") == ["n0"]
    rig.wait(61.0)
    assert rig.alive("db") in (["n1"], ["n2"])
    assert rig.checker.violations == []


def test_an_agent_that_is_heard_shows_that_its_host_has_not_reset_itself() -> None:
    """A watchdog that does not work: the lease is expired, the host runs on and its agent reports."""
    rig = leased()
    assert rig.loop.leases is not None
    rig.loop.leases.host_died("n0", rig.loop.engine.now_s)
    rig.wait(300.0)
    assert (rig.alive("db"), rig.checker.violations) == (["n0"], [])


def test_one_agent_alone_is_not_believed_where_there_are_more() -> None:
    rig = leased()
    assert rig.loop.leases is not None
    rig.loop.leases.host_died("n0", rig.loop.engine.now_s)
    rig.loop.agents["n2"].leases = None
    rig.loop.agents["n0"].kill()
    rig.wait(300.0)
    assert (rig.alive("db"), rig.checker.violations) == (["n0"], [])
