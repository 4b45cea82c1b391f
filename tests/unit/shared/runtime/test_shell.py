"""The real shells on an in-process broker in real time: jobs run, processes come and go, and nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.disk_journal import DiskJournal
from shared.base.errors import StoreUnavailable
from shared.protocol import topology
from shared.protocol.codec import encode
from shared.protocol.messages import Hello
from shared.protocol.operator_messages import AddNode, Query, SubmitJob
from shared.values.jobs import Job, Stage
from tests.support.shell_harness import FAST, InlineDecider, RealRig, wait_for


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[RealRig]:
    made = RealRig(tmp_path)
    yield made
    made.end()


def submit(rig: RealRig, name: str, work_mcycles: float = 100.0) -> None:
    stages = (Stage(work_mcycles, 1000.0, memory_mib=100),)
    with rig.lock:
        rig.world.add_task(name, [(work_mcycles, 1000.0)], 1, 0.0)
    assert rig.ask(SubmitJob(f"submit-{name}", Job(name, stages))).done


def completed(rig: RealRig, name: str) -> bool:
    return rig.phase(name) == "completed"


def lives(rig: RealRig, vm: str) -> int:
    """On how many nodes a VM is."""
    with rig.lock:
        return sum(vm in hypervisor.inner.domains for hypervisor in rig.hypervisors.values())


def test_a_job_runs_to_its_end_and_everything_ends_in_order(rig: RealRig) -> None:
    rig.start()

    submit(rig, "j1")

    wait_for(lambda: completed(rig, "j1"))
    assert [running.stop() for running in rig.running] == [0, 0, 0]


def test_one_action_can_be_followed_by_its_id(rig: RealRig) -> None:
    rig.start()

    submit(rig, "j1")
    wait_for(lambda: rig.lines("result received"))

    sent = rig.lines("order sent")[0]
    names = [line["event"] for line in rig.lines() if line.get("action") == sent["action"]]
    assert names == [
        "order sent", "order received", "operation begun", "operation ended", "result sent", "result received",
    ]  # fmt: skip
    assert sent["controller"] == "a"
    assert sent["term"] == 1
    received = next(line for line in rig.lines("order received") if line["action"] == sent["action"])
    assert (received["component"], received["node"]) == ("agent", sent["node"])


def test_a_job_survives_its_agent_and_the_controller(rig: RealRig) -> None:
    """Given a job that runs, when the agent and the controller are killed and start again, then the very same VM ends
    its work."""
    rig.start()
    submit(rig, "j1", 2000.0)
    wait_for(lambda: lives(rig, "j1#0"))
    node = next(name for name, hypervisor in rig.hypervisors.items() if "j1#0" in hypervisor.inner.domains)
    generation = rig.hypervisors[node].inner.domains["j1#0"].generation

    for running in rig.running:
        running.kill()
    assert lives(rig, "j1#0") == 1
    rig.running.clear()
    rig.controller("b")
    for other in rig.nodes:
        rig.agent(other.name)

    wait_for(lambda: rig.store.term == 2)
    assert rig.hypervisors[node].inner.domains["j1#0"].generation == generation
    wait_for(lambda: completed(rig, "j1"))
    assert rig.cluster.doubles == []


def test_everyone_comes_back_after_the_broker(rig: RealRig) -> None:
    rig.start()
    submit(rig, "j1", 2000.0)

    rig.bus.restart()

    wait_for(lambda: completed(rig, "j1"))
    assert {line["component"] for line in rig.lines("not connected")} == {"agent", "controller"}


def test_an_agent_waits_for_a_broker_that_is_down_and_for_a_queue_that_is_not_there(rig: RealRig) -> None:
    rig.bus.down = True
    agent = rig.agent("n1")
    wait_for(lambda: rig.lines("not connected"))
    assert agent.shell.status() == "waiting for the broker"

    rig.bus.down = False

    wait_for(lambda: agent.shell.status() == "connected")


def test_what_is_no_message_goes_to_the_dead_letters_and_nothing_else_is_lost(rig: RealRig) -> None:
    rig.start()
    rogue = rig.bus.connect("operator.rogue", allow_oversize=True)
    agent = rig.bus.connect("agent.n1")

    rogue.publish(topology.REQUESTS, topology.CONTROLLER_QUEUE, b"\xc1 no message")
    agent.publish(topology.REPORTS, topology.report_key("n1"), b"\xc1 no report")
    rogue.publish(topology.REQUESTS, topology.CONTROLLER_QUEUE, encode(Hello(7)))
    submit(rig, "j1")

    wait_for(lambda: completed(rig, "j1"))
    dead = {(letter.queue, letter.sender): letter.reason for letter in rig.bus.broker.dead_letters()}
    assert dead.keys() == {("controller", "operator.rogue"), ("reports.a", "agent.n1")}
    assert len(rig.bus.broker.dead_letters()) == 3
    assert "undecodable" in dead["reports.a", "agent.n1"]
    assert dead["controller", "operator.rogue"] == "hello is not for a controller"


def test_a_controller_whose_term_was_raised_asks_to_be_started_again(rig: RealRig) -> None:
    controller = rig.controller()
    wait_for(lambda: rig.store.term == 1)

    rig.store.take_lead("another")
    rig.operator.publish(topology.REQUESTS, topology.CONTROLLER_QUEUE, encode(AddNode("add-n1", "n1")))

    assert controller.join() == 75


class TightDisk:
    """A journal whose disk can be full."""

    def __init__(self, inner: DiskJournal) -> None:
        self.inner = inner
        self.full = False
        self.appended = 0

    def append(self, record: Any) -> None:
        self.append_all((record,))

    def append_all(self, records: Any) -> None:
        if self.full:
            raise StoreUnavailable("the disk is full")
        self.inner.append_all(records)
        self.appended += len(records)

    def records(self) -> tuple[Any, ...]:
        return self.inner.records()


def test_an_agent_whose_disk_is_full_acknowledges_nothing_and_ends(tmp_path: Path) -> None:
    """Given an agent whose journal cannot grow, when an order comes, then it ends to be started again and the order
    is neither begun nor acknowledged; with room again it is carried out."""
    rig = RealRig(tmp_path, nodes=1)
    try:
        rig.start()
        wait_for(lambda: rig.lines("happened"))
        rig.running[1].kill()
        tight = TightDisk(DiskJournal(tmp_path / "second.journal"))
        agent = rig.agent("n1", tight)
        wait_for(lambda: tight.appended)
        tight.full = True

        submit(rig, "j1")

        assert agent.join() == 75
        assert not lives(rig, "j1#0")
        wait_for(lambda: rig.bus.broker.depth("agent.n1") >= 1)  # its connection may end a little later than it
        tight.full = False
        rig.agent("n1", tight)
        wait_for(lambda: completed(rig, "j1"))
    finally:
        rig.end()


def test_while_the_broker_is_blocked_reports_drop_and_orders_wait(rig: RealRig) -> None:
    rig.start()
    connection = rig.connection(topology.CONTROLLER_USER_PREFIX + "a")
    connection.block("low on disk")
    wait_for(lambda: rig.lines("the broker takes no messages: reports are dropped, orders wait"))

    with rig.lock:
        rig.world.add_task("j1", [(100.0, 1000.0)], 1, 0.0)
    request = SubmitJob("submit-j1", Job("j1", (Stage(100.0, 1000.0, memory_mib=100),)))
    rig.operator.publish(topology.REQUESTS, topology.CONTROLLER_QUEUE, encode(request))
    wait_for(lambda: rig.running[0].shell.held == 1)
    assert rig.lines("order sent") == []
    connection.block("")

    wait_for(lambda: completed(rig, "j1"))
    assert len(rig.lines("the broker takes no messages: reports are dropped, orders wait")) == 1
    assert rig.cluster.doubles == []


class StuckOnce(InlineDecider):
    """The first decision runs out of time."""

    def __init__(self) -> None:
        self.asked = 0

    def compute(self, request: Any, limit_s: float) -> tuple[Any, str]:
        self.asked += 1
        return (None, "out of time") if self.asked == 1 else super().compute(request, limit_s)


def test_a_decision_that_runs_out_of_time_costs_one_decision(tmp_path: Path) -> None:
    rig = RealRig(tmp_path)
    try:
        rig.controller(decider=StuckOnce(), settings=replace(FAST, decide_s=0.5))
        rig.agent("n1")
        assert rig.ask(AddNode("add-n1", "n1")).done

        submit(rig, "j1")

        wait_for(lambda: completed(rig, "j1"))
        assert rig.lines("decision failed")[0]["error"] == "out of time"
    finally:
        rig.end()


def silent(rig: RealRig) -> str:
    """What the alarm says of nodes that do not report ("": there is none)."""
    rows = rig.ask(Query("q", "status")).data["alarms"]
    return "; ".join(row["detail"] for row in rows if row["what"] == "node-unreachable")


def test_a_hypervisor_that_does_not_answer_costs_reports_and_nothing_else(rig: RealRig) -> None:
    rig.start()
    with rig.lock:
        rig.hypervisors["n1"].inner.up = False
    wait_for(lambda: rig.lines("the hypervisor does not answer"))
    wait_for(lambda: "n1 is down" in silent(rig))
    assert silent(rig).startswith("its agent is connected, but cannot read its hypervisor: n1 is down; ")
    assert rig.ask(Query("q", "node", "n1")).data["node"]["trouble"]["text"] == "n1 is down"

    with rig.lock:
        rig.hypervisors["n1"].inner.up = True

    wait_for(lambda: rig.lines("the hypervisor answers again"))
    wait_for(lambda: not silent(rig))
    assert rig.ask(Query("q", "node", "n1")).data["node"]["trouble"] is None
    submit(rig, "j1")
    wait_for(lambda: completed(rig, "j1"))


class Broken:
    """A hypervisor with a defect."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def vms(self, now_s: float) -> Any:
        raise ZeroDivisionError(f"at {now_s:.0f} s")


def test_a_defect_in_a_thread_ends_the_process(rig: RealRig) -> None:
    rig.hypervisors["n1"] = Broken(rig.hypervisors["n1"])  # type: ignore[assignment]

    agent = rig.agent("n1")

    agent.join()
    assert isinstance(agent.error, ZeroDivisionError)
    rig.running.remove(agent)


def test_no_thread_is_left(tmp_path: Path) -> None:
    before = {thread.name for thread in threading.enumerate()}
    rig = RealRig(tmp_path)
    rig.start()

    rig.end()

    def left() -> set[str]:
        return {thread.name for thread in threading.enumerate()} - before

    wait_for(lambda: not left())
