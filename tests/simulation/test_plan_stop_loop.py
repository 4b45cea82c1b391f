"""An operator stops a plan that takes nodes out of service, in the closed loop: hosts, agents and the bus do what the
controllers say, and what is judged is what hosts and VMs truly did."""

from __future__ import annotations

import pytest

from daemons.values.records.cluster import NodeRecord
from daemons.values.settings import ControllerSettings, PolicyChoice, PowerSettings
from shared.protocol.operator_messages import StopPlan
from shared.values.jobs import Job, Stage
from shared.values.nodes import Node, NodeService, PowerOperation
from sim_backend.fakes.power import HostPower
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings

NAMES = ("n0", "n1", "n2", "n3")
DECIDE_S = 300.0
STOPPED_S = DECIDE_S + 100.0
WORK_S = 1_200.0


class Loop(ClosedLoop):
    """Three of four nodes have a job that fits nowhere else; every cycle decides that one node is enough. Jobs on the
    others are suspended 300 s later, the empty node sleeps a minute later."""

    def __init__(self) -> None:
        nodes = [
            Node(name, 4, 1_000.0, memory_mib=4_000, mac_addresses=(f"02:00:00:00:00:0{name[1]}",)) for name in NAMES
        ]
        power = PowerSettings(
            "fake",
            frozenset({PowerOperation.WAKE}),
            through_agents=True,
            needs_mac=True,
            standby_s=60.0,
            drain_limit_s=600.0,
            keep_nodes=1,
        )
        settings = ControllerSettings(
            decide_s=DECIDE_S,
            unreachable_after_s=30.0,
            placement=PolicyChoice("first-fit"),
            provisioning=PolicyChoice("static", {"nodes": 1}),
            power=power,
        )
        super().__init__(nodes, LoopSettings(settings, controllers=("a", "b")))
        for name in NAMES[:3]:
            self.submit(Job(f"on-{name}", (Stage(WORK_S * 1_000.0, 1_000.0, memory_mib=3_000),), submit_s=10.0))

    def node(self, name: str) -> NodeRecord:
        record = self.store.get(("node", name))
        assert isinstance(record, NodeRecord)
        return record

    def services(self) -> list[NodeService]:
        return [self.node(name).service for name in NAMES]


IN_SERVICE, DRAINING, OFF = NodeService.IN_SERVICE, NodeService.DRAINING, NodeService.OFF


def test_a_plan_that_nobody_stops_suspends_the_jobs() -> None:
    loop = Loop()
    loop.run_until(STOPPED_S)
    assert loop.services() == [IN_SERVICE, DRAINING, DRAINING, OFF]
    loop.run_until(WORK_S)
    assert loop.truth.actions["suspend"] == 2


@pytest.mark.parametrize("leader_dies", [False, True])
def test_what_is_stopped_serves_on_and_what_sleeps_sleeps_on(leader_dies: bool) -> None:
    loop = Loop()
    loop.run_until(STOPPED_S)
    loop.operator.send(StopPlan("stop"))
    loop.run_until(STOPPED_S + 1.0)
    assert loop.operator.replies["stop"].done
    if leader_dies:
        loop.controllers["a"].kill()
    loop.run_until(STOPPED_S + 3.0 * DECIDE_S)  # of the four cycles for which it is not proposed again
    assert loop.store.leader == ("b" if leader_dies else "a")
    assert loop.services() == [IN_SERVICE] * 3 + [OFF]
    assert [loop.fake_power.state(name) for name in NAMES] == [HostPower.UP] * 3 + [HostPower.SUSPENDED]
    assert loop.truth.actions == {"start": 3}
    assert loop.fake_power.asleep_with == []
    assert [len(loop.world.completions[job]) for job in loop.jobs] == [1, 1, 1]
