"""A fake cluster behind a socket: what its guests do, what survives whom, and what it is told to do."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.base.errors import Infeasible, InvalidInput, InvalidValue, TransientError
from shared.ports.agent import Hypervisor
from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import ActionKind, GuestChange, Outcome
from shared.values.operation_costs import COSTS
from shared.values.vms import VmState
from sim_backend.fake_server.client import RemoteHypervisor, parse_uri
from sim_backend.fake_server.guests import Guest, parse_guest
from sim_backend.fake_server.server import FakeServer
from sim_backend.fake_server.wire import How
from tests.support.fake_server_harness import (
    LIMIT_S,
    NODES,
    Lab,
    act,
    news,
    outcomes,
    running,
    serving,
    short_path,
    start,
    wait_for,
)


@pytest.fixture
def path() -> Iterator[Path]:
    """Where a server may listen."""
    with short_path() as made:
        yield made


@pytest.fixture
def lab(path: Path) -> Iterator[Lab]:
    """Operations take the times of the paper."""
    with serving(path, COSTS["paper"]) as made:
        yield made


# --- templates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "guest"),
    [
        ("", None),
        ("fake:work=600000;max=1000;checkpoint=0", Guest(600_000.0, 1_000.0)),
        ("fake:work=0", Guest(0.0, math.inf)),
        ("fake:instances=3;checkpoint=2.5;work=1e3", Guest(1_000.0, math.inf, 2.5, 3)),
    ],
)
def test_template(template: str, guest: Guest | None) -> None:
    assert parse_guest(template) == guest


@pytest.mark.parametrize(
    "template",
    [
        "debian-12",
        "fake:",
        "fake:max=1000",
        "fake:work=1;work=1",
        "fake:work=1;",
        "fake:work= 1",
        "fake:work=-1",
        "fake:work=nan",
        "fake:work=1e999",
        "fake:work=1;max=0",
        "fake:work=1;instances=0",
        "fake:work=1;instances=1.5",
        "fake:work=1;speed=2",
        "FAKE:work=1",
    ],
)
def test_template_refused(template: str) -> None:
    with pytest.raises(InvalidValue, match="template"):
        parse_guest(template)


def test_guests_do_what_their_template_says(lab: Lab) -> None:
    """Two coupled instances of 1,000 Mcycles at 500 MHz end after 2 s, counted from when both run."""
    remote = lab.agent()
    for index in range(2):
        remote.begin(start(f"job#{index}", "fake:work=1000;max=500;instances=2"), 0.0)
    remote.begin(start("idle#0"), 0.0)
    remote.inventory()
    lab.control.advance(3.6)
    assert outcomes(remote) == [Outcome.OK] * 3
    lab.control.advance(1.9)
    assert news(remote) == []
    lab.control.advance(0.2)
    ended = [event for event in news(remote) if isinstance(event, GuestChanged)]
    assert [(event.change, event.status.vm) for event in ended] == [
        (GuestChange.ENDED, "job#0"),
        (GuestChange.ENDED, "job#1"),
    ]
    (task,) = lab.control.state()["tasks"]
    assert (task["job"], task["done_mcycles"], len(task["completions"])) == ("job", 1_000.0, 1)


def test_a_load_is_shared_by_the_guests_that_run(lab: Lab) -> None:
    """600 MHz for one guest, 300 each for two, none when there is nothing to do."""

    def used_mhz(seconds: float) -> list[float]:
        before = {vm["vm"]: vm["cpu_time_s"] for vm in lab.node()["domains"]}
        lab.control.advance(seconds)
        after = {vm["vm"]: vm["cpu_time_s"] for vm in lab.node()["domains"]}
        return [round(1_000.0 * (after[vm] - before[vm]) / seconds, 3) for vm in sorted(before)]

    lab.control.load("shop", 600.0)
    remote = running(lab, "shop#0")
    assert used_mhz(2.0) == [600.0]
    remote.begin(start("shop#1"), 0.0)
    remote.inventory()
    lab.control.advance(3.6)
    assert used_mhz(2.0) == [300.0, 300.0]
    lab.control.load("shop", 0.0)
    assert used_mhz(2.0) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("first", "vm", "template", "words"),
    [
        ("", "job#0", "debian-12", "template"),
        ("", "job#1", "fake:work=1", "has 1 instances"),
        ("", "odd", "fake:work=1", "workload#index"),
        ("fake:work=1", "job#0", "fake:work=2", "as job began with"),
    ],
)
def test_a_template_that_cannot_be_is_refused(lab: Lab, first: str, vm: str, template: str, words: str) -> None:
    if first:
        lab.control.work("job", first)
    remote = lab.agent()
    remote.begin(start(vm, template), 0.0)
    (answer,) = news(remote)
    assert isinstance(answer, Operated)
    assert answer.outcome is Outcome.REFUSED
    assert words in answer.detail
    assert remote.vms(0.0) == ()


def test_the_truth_of_a_job_can_be_told_beforehand(lab: Lab) -> None:
    """The same truth may be told again; another one is refused."""
    lab.control.work("job", "fake:work=100;max=1000")
    lab.control.work("job", "fake:max=1000;work=100")
    with pytest.raises(Infeasible, match="began with"):
        lab.control.work("job", "fake:work=101")
    remote = lab.agent()
    remote.begin(start(), 0.0)
    remote.inventory()
    lab.control.advance(10.0)
    assert remote.vms(0.0)[0].state is VmState.ENDED


# --- agents that come and go -------------------------------------------------------------------------------------


def test_the_driver_is_a_hypervisor(lab: Lab) -> None:
    remote = lab.agent()
    assert isinstance(remote, Hypervisor)
    assert remote.inventory() == NODES[0]
    assert remote.next_due_s() is None
    assert remote.boot_id == lab.node()["boot_id"]


def test_wake_is_called_when_there_is_something(lab: Lab) -> None:
    woken = threading.Event()
    remote = lab.agent(wake=woken.set)
    remote.begin(start(), 0.0)
    remote.inventory()
    assert not woken.is_set()
    lab.control.advance(3.6)
    assert woken.wait(LIMIT_S)
    assert [type(event) for event in remote.poll(0.0)] == [Operated]


def test_vms_and_operations_outlive_their_agent(lab: Lab) -> None:
    """The answer that the first agent waited for is dropped; the second finds its VM."""
    first = lab.agent()
    first.begin(start(), 0.0)
    first.inventory()
    first.close()
    wait_for(lambda: not lab.node()["attached"])
    lab.control.advance(3.6)
    second = lab.agent()
    assert [(status.vm, status.state) for status in second.vms(0.0)] == [("job#0", VmState.RUNNING)]
    assert news(second) == []
    second.begin(act(ActionKind.PAUSE), 0.0)
    assert outcomes(second) == [Outcome.OK]


def test_a_new_agent_takes_the_place_of_the_old(lab: Lab) -> None:
    """The old one is cut off; what it had begun goes on unanswered, what the new one begins is answered to it."""
    old = lab.agent()
    old.begin(start("old#0"), 0.0)
    old.inventory()
    new = lab.agent()
    new.begin(start("new#0"), 0.0)
    new.inventory()
    lab.control.advance(3.6)
    assert [event.call_id for event in news(new) if isinstance(event, Operated)] == ["start new#0"]
    assert old.poll(0.0) == ()
    with pytest.raises(TransientError, match="the fake server at"):
        old.vms(0.0)
    assert len(new.vms(0.0)) == 2


def test_an_unheard_event_is_not_told_later(lab: Lab) -> None:
    """A guest that ends while no agent is there shows only as state."""
    first = lab.agent()
    first.begin(start(template="fake:work=10"), 0.0)
    first.inventory()
    lab.control.advance(3.6)
    first.close()
    wait_for(lambda: not lab.node()["attached"])
    lab.control.advance(10.0)
    second = lab.agent()
    assert second.vms(0.0)[0].state is VmState.ENDED
    assert news(second) == []


def test_a_lost_server(lab: Lab) -> None:
    """Readings raise, operations are not answered, nothing else does anything, and `wake` is called."""
    woken = threading.Event()
    remote = lab.agent(wake=woken.set)
    lab.server.stop()
    assert woken.wait(LIMIT_S)
    for ask in (remote.inventory, lambda: remote.vms(0.0)):
        with pytest.raises(TransientError, match="fake server"):
            ask()
    remote.begin(start(), 0.0)
    remote.abort("job#0", 0.0)
    remote.forget("job#0", 0.0)
    assert remote.poll(0.0) == ()
    with pytest.raises(TransientError, match="no fake server"):
        lab.agent()
    with pytest.raises(TransientError):
        lab.control.state()


def test_a_silent_server(path: Path) -> None:
    """A server that does not answer is not waited for longer than agreed."""
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()
        with pytest.raises(TransientError, match=r"did not answer within 0\.05 s"):
            RemoteHypervisor(f"unix://{path}?node=n1", reply_within_s=0.05)


def test_a_server_that_goes_while_it_is_asked(path: Path) -> None:
    """Who waits for a reply hears of it at once."""
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()

        def leave() -> None:
            link, _ = door.accept()
            link.recv(1)
            link.close()

        leaving = threading.Thread(target=leave)
        leaving.start()
        with pytest.raises(TransientError, match="the fake server at"):
            RemoteHypervisor(f"unix://{path}?node=n1", reply_within_s=1_000.0 * LIMIT_S)
        leaving.join()


def test_an_unknown_node(lab: Lab) -> None:
    with pytest.raises(TransientError, match="there is no node 'n9'"):
        lab.agent("n9")


def test_an_action_that_no_frame_can_carry_is_refused_with_the_state_of_its_vm(lab: Lab) -> None:
    remote = lab.agent()
    remote.begin(start(), 0.0)
    remote.inventory()
    lab.control.advance(3.6)
    assert outcomes(remote) == [Outcome.OK]
    remote.begin(act(ActionKind.SET_CPU, cpu_mhz=math.nan), 0.0)
    (answer,) = news(remote)
    assert isinstance(answer, Operated)
    assert (answer.outcome, answer.status and answer.status.state) == (Outcome.REFUSED, VmState.RUNNING)
    remote.begin(act(ActionKind.STOP, vm="x" * 5_000), 0.0)
    assert outcomes(remote) == [Outcome.REFUSED]


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "qemu:///system",
        "unix://host/path?node=n1",
        "unix:path?node=n1",
        "unix:///path",
        "unix:///path?node=",
        "unix:///path?node=n1&node=n2",
        "unix:///path?node=n1&x=1",
        "unix:///path?node=a.b",
        "unix:///path?node=n1#x",
    ],
)
def test_uri_refused(uri: str) -> None:
    with pytest.raises(InvalidInput, match=r"hypervisor\.uri"):
        parse_uri(uri)


# --- the world under orders --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "outcome"), [(How.REFUSE, Outcome.REFUSED), (How.FAIL_HALF_WAY, Outcome.FAILED)])
def test_fail_next(lab: Lab, how: How, outcome: Outcome) -> None:
    remote = running(lab)
    lab.control.fail_next("n1", ActionKind.SUSPEND, how, "job#0")
    remote.begin(act(ActionKind.SUSPEND), 0.0)
    remote.inventory()
    lab.control.advance(100.0)
    assert outcomes(remote) == [outcome]
    assert remote.vms(0.0)[0].state is VmState.RUNNING


def test_clear_failures(lab: Lab) -> None:
    remote = running(lab)
    lab.control.fail_next("n1", None, How.REFUSE)
    lab.control.clear_failures("n1")
    remote.begin(act(ActionKind.PAUSE), 0.0)
    assert outcomes(remote) == [Outcome.OK]


@pytest.mark.parametrize(("order", "left"), [("lose_vm", []), ("crash_vm", [VmState.CRASHED])])
def test_a_vm_is_lost(lab: Lab, order: str, left: list[VmState]) -> None:
    remote = running(lab)
    getattr(lab.control, order)("n1", "job#0")
    (changed,) = news(remote)
    assert isinstance(changed, GuestChanged)
    assert changed.change is GuestChange.VANISHED
    assert [status.state for status in remote.vms(0.0)] == left
    with pytest.raises(Infeasible, match="no live VM"):
        getattr(lab.control, order)("n1", "job#0")


def test_a_host_dies_and_returns(lab: Lab) -> None:
    """Its agent is cut off and cannot come back before the host does, which then has another boot id."""
    remote = running(lab)
    boot_id = remote.boot_id
    assert lab.control.host_dies("n1") == ["job#0"]
    with pytest.raises(TransientError, match="the fake server at"):
        remote.vms(0.0)
    with pytest.raises(TransientError, match="n1 is down"):
        lab.agent()
    assert lab.control.host_returns("n1") != boot_id
    again = lab.agent()
    assert again.boot_id == lab.node()["boot_id"] != boot_id
    assert again.vms(0.0) == ()


def test_fence(lab: Lab) -> None:
    """Twice is as good as once."""
    running(lab)
    assert [lab.control.fence("n1") for _ in range(2)] == [True, True]
    node = lab.node()
    assert (node["up"], node["attached"], node["domains"]) == (False, False, [])
    with pytest.raises(Infeasible, match="n9"):
        lab.control.fence("n9")


def test_hosts_that_are_parted(lab: Lab) -> None:
    """No migration while they are; afterwards it works and the target's agent hears of it."""
    remote, peer = running(lab), lab.agent("n2")
    lab.control.part("n2", "n1")
    assert lab.control.state()["parted"] == [["n1", "n2"]]
    remote.begin(act(ActionKind.MIGRATE, to_node="n2"), 0.0)
    assert outcomes(remote) == [Outcome.FAILED]
    lab.control.heal("n1", "n2")
    remote.begin(act(ActionKind.MIGRATE, to_node="n2"), 0.0)
    remote.inventory()
    lab.control.advance(100.0)
    assert outcomes(remote) == [Outcome.OK]
    (arrived,) = news(peer)
    assert isinstance(arrived, GuestChanged)
    assert arrived.change is GuestChange.ARRIVED
    lab.control.part("n1", "n2")
    lab.control.heal()
    assert lab.control.state()["parted"] == []
    with pytest.raises(Infeasible, match="another node"):
        lab.control.part("n1", "n1")


def test_state_tells_what_is_true(lab: Lab) -> None:
    remote = running(lab)
    remote.begin(act(ActionKind.SUSPEND), 0.0)
    remote.begin(start("other#0"), 0.0)
    remote.inventory()
    node = lab.node()
    assert node["memory_used_mib"] == 2_000
    assert {vm["vm"]: (vm["state"], vm["busy"]) for vm in node["domains"]} == {
        "job#0": ("paused", "suspend"),
        "other#0": ("incoming", "start"),
    }
    assert {op["kind"] for op in node["operations"]} == {"suspend", "start"}
    lab.control.advance(100.0)
    node = lab.node()
    assert [vm["vm"] for vm in node["images"]] == ["job#0"]
    assert node["operations"] == []


def test_time_that_runs_is_not_moved(path: Path) -> None:
    with serving(path, COSTS["none"], factor=1_000.0) as lab:
        with pytest.raises(Infeasible, match="time factor 0"):
            lab.control.advance(1.0)
        woken = threading.Event()
        remote = lab.agent(wake=woken.set)
        remote.begin(start(template="fake:work=100000;max=1000"), 0.0)
        wait_for(lambda: remote.vms(0.0)[0].state is VmState.ENDED)
        assert woken.is_set()


@pytest.mark.parametrize("factor", [-1.0, math.nan, 1e6])
def test_time_factor_refused(path: Path, factor: float) -> None:
    with pytest.raises(InvalidValue, match="time_factor"):
        FakeServer(path, NODES, time_factor=factor)
