"""Agents that die in the middle of a migration, and hosts that nobody hears of: no VM is doubled, none is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.integration.harness import CONTROLLER, Process
from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import LIMIT_S, SOON_S, Scene, log_lines, scene
from tests.integration.wire_cutter import WireCutter

TTL_S = float(CONTROLLER["timeouts"]["action_ttl_s"])
STAYS_S = 6.0  # how long it is watched that nothing happens; the controller looks every 0.5 s


@pytest.fixture
def wire(broker: PrivateBroker) -> Iterator[WireCutter]:
    """The way of n1's agent to the broker."""
    with closing(WireCutter(broker.amqp)) as made:
        yield made


@pytest.fixture
def town(broker: PrivateBroker, wire: WireCutter) -> Iterator[Scene]:
    """Three nodes, of which n1 can be cut off; its VMs are those of the first job."""
    with scene(broker, via={"n1": wire.port}) as made:
        yield made


@pytest.mark.full
@pytest.mark.parametrize("when", ["under way", "over"])
@pytest.mark.parametrize("whose", ["source", "target"])
def test_an_agent_that_dies_during_a_migration(whose: str, when: str, town: Scene) -> None:
    """Killed in the middle and back before or after its end: how it ended is found out, and the VM is where it is."""
    town.submit("job", work_s=30.0)
    source = town.running("job#0")["job#0"]
    assert source == "n1"
    town.do("nodes", "drain", source)
    ((node, operation),) = town.wait_for(lambda: town.operations("migrate"), SOON_S, "the move")
    assert (node, operation["vm"]) == (source, "job#0")
    target = next(home for home, vm in town.domains() if home != source and vm == "job#0")
    agent = town.lab.agents[source if whose == "source" else target]
    agent.kill()
    if when == "over":
        town.wait_for(lambda: not town.operations("migrate"), SOON_S, "the end of the move")
    else:
        assert town.operations("migrate")
    agent.start()

    town.wait_for(lambda: town.homes() == {"job#0": target}, SOON_S, "the VM on its new node")
    town.wait_for(lambda: outcomes(town, operation["id"]), SOON_S, "how it ended")
    assert set(outcomes(town, operation["id"])) == {"ok"}
    assert town.begun(source, "migrate") == ["job#0"]
    town.all_done_once("job")
    assert town.completions() == {"job": [1]}


def outcomes(town: Scene, action: str) -> list[str]:
    """What the controller was told of an action."""
    lines = log_lines(town.lab.controllers["c1"])
    return [line["outcome"] for line in lines if line["event"] == "result received" and line["action"] == action]


@pytest.mark.parametrize("how", ["its wire is cut", pytest.param("its agent is frozen", marks=pytest.mark.full)])
def test_a_host_that_is_silent_for_a_while(how: str, town: Scene, wire: WireCutter) -> None:
    """Its VMs are unknown and stay where they are; a job that ended meanwhile is complete when the host is back."""
    town.submit("ends", work_s=8.0)
    town.submit("stays", work_s=25.0)
    assert town.running("ends#0", "stays#0") == {"ends#0": "n1", "stays#0": "n1"}

    agent = town.lab.agents["n1"]
    silence(agent, wire, how)
    town.wait_for(lambda: town.heard("node-unreachable", "n1"), SOON_S, "n1 to be missed")
    refused = town.run("nodes", "remove", "n1")
    assert (refused.status, "node-not-empty" in refused.err) == (1, True)
    town.wait_for(lambda: town.completions()["ends"], SOON_S, "the end of the first job")
    town.watch(STAYS_S, lambda: town.homes() == {"stays#0": "n1"}, "one VM on a silent node")
    assert not town.told("job-completed")
    wire.heal()
    if how == "its agent is frozen":
        agent.thaw()

    town.wait_for(lambda: len(town.heard("node-up", "n1")) == 2, SOON_S, "n1 to be back")
    town.all_done_once("ends", "stays")
    assert town.completions() == {"ends": [1], "stays": [1]}
    town.wait_for(lambda: town.told("job-completed") == {"ends", "stays"}, SOON_S, "word of both ends")
    assert agent.lives == 1


def silence(agent: Process, wire: WireCutter, how: str) -> None:
    """Let nobody hear of n1 any more."""
    if how == "its agent is frozen":
        agent.freeze()
    else:
        wire.cut()


@pytest.mark.full
def test_a_host_that_dies(town: Scene, wire: WireCutter) -> None:
    """Its VMs start elsewhere on an operator's word and not before; when it is back nothing runs twice."""
    town.submit("job", work_s=12.0)
    assert town.running("job#0") == {"job#0": "n1"}
    refused = town.run("nodes", "confirm-off", "--yes", "n1")
    assert (refused.status, "node-up" in refused.err) == (1, True)

    wire.cut()
    town.lab.power_off("n1")
    town.wait_for(lambda: town.heard("node-unreachable", "n1"), SOON_S, "n1 to be missed")
    town.watch(STAYS_S, lambda: not town.homes(), "no VM anywhere")
    town.do("nodes", "confirm-off", "--yes", "n1")
    home = town.running("job#0")["job#0"]
    assert home != "n1"
    wire.heal()
    town.lab.power_on("n1")

    town.wait_for(lambda: len(town.heard("node-up", "n1")) == 2, LIMIT_S, "n1 to be back")
    assert town.homes() == {"job#0": home}
    town.all_done_once("job")
    assert town.completions() == {"job": [2]}
    town.submit("next", work_s=1.0)
    assert town.running("next#0") == {"next#0": "n1"}


@pytest.mark.full
def test_a_host_that_is_cut_off_for_long(town: Scene, wire: WireCutter) -> None:
    """Longer than both ends keep a silent connection: its agent connects anew and tells what has happened."""
    town.submit("ends", work_s=8.0)
    town.submit("stays", work_s=75.0)
    assert town.running("ends#0", "stays#0") == {"ends#0": "n1", "stays#0": "n1"}
    agent = town.lab.agents["n1"]
    before = losses(agent)

    wire.cut()
    town.wait_for(lambda: losses(agent) > before, LIMIT_S, "the agent to notice")
    town.watch(STAYS_S, lambda: town.homes() == {"stays#0": "n1"}, "one VM on a silent node")
    town.do("nodes", "drain", "n1")
    town.submit("next", work_s=1.0)
    town.wait_for(lambda: town.completions().get("next"), SOON_S, "a job on another node")
    assert not town.begun("n1", "migrate")
    wire.heal()

    town.wait_for(lambda: len(town.heard("node-up", "n1")) == 2, LIMIT_S, "n1 to be back")
    town.wait_for(lambda: town.homes().get("stays#0", "n1") != "n1", LIMIT_S, "the move that was asked for")
    town.all_done_once("ends", "stays", "next")
    assert town.completions() == {"ends": [1], "stays": [1], "next": [1]}
    assert agent.lives == 1


def losses(agent: Process) -> int:
    """How often an agent has found that it has no connection."""
    return sum(line["event"] == "not connected" for line in log_lines(agent))


@pytest.mark.full
def test_an_order_that_comes_too_late(town: Scene) -> None:
    """Given to an agent that is frozen and read after it has expired: the VM is started once, by a later order."""
    town.submit("first", work_s=2.0)
    town.all_done_once("first")
    agent = town.lab.agents["n1"]
    agent.freeze()
    town.submit("late", work_s=5.0)
    (order,) = town.wait_for(lambda: town.orders("late#0"), SOON_S, "the order")
    assert (order["node"], order["kind"]) == ("n1", "start")
    town.wait_for(lambda: town.heard("node-unreachable", "n1"), SOON_S, "n1 to be missed")
    town.watch(TTL_S, lambda: not town.homes() and len(town.orders("late#0")) == 1, "a VM that nobody starts")
    agent.thaw()

    town.all_done_once("late")
    assert {*outcomes(town, order["action"])} == {"expired"}  # said again where the order was delivered again
    assert [vm for node in town.lab.nodes for vm in town.begun(node, "start")].count("late#0") == 1
