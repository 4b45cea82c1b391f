"""Environments whose agents, controllers and broker die in the middle, and what operators do at odd moments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.environment_scene import BATCH, BUSY_MHZ, CALM_MHZ, JOE, KIM, LEE, WEB, Estate, estate
from tests.integration.private_broker import PrivateBroker, wait_until
from tests.integration.scene import LIMIT_S, SOON_S

pytestmark = pytest.mark.full
SHORT_S = 2.0


@pytest.fixture
def town(broker: PrivateBroker, tmp_path: Path) -> Iterator[Estate]:
    """Three nodes, and nothing of anybody."""
    with estate(broker, tmp_path) as made:
        yield made


def ask(town: Estate, *words: str) -> str:
    """A command of Kim's that must succeed; what it says to people."""
    said = town.here(KIM, *words)
    assert said.status == 0, (words, said)
    return said.out


def held(town: Estate, *nodes: str) -> list[str]:
    """Wait until setups on all of these are held; what is being done there."""

    def lines() -> list[str]:
        found = [town.setups.lines(node)[-1:] for node in nodes]
        return [line[0].removeprefix("begin ") for line in found if line and line[0].startswith("begin")]

    town.wait_for(lambda: len(lines()) == len(nodes), SOON_S, f"setups of {nodes}")
    return lines()


def test_an_agent_that_dies_in_a_setup(town: Estate) -> None:
    """What it began is waited for and done again by its next life; the node is in hand only then."""
    town.setups.hold("n1", "n2", "n3")
    ask(town, "env", "create", town.agreement(BATCH, lower=3))
    ask(town, "env", "activate", "night")
    assert held(town, "n1", "n2", "n3") == ["acquire night wipe"] * 3
    agent = town.lab.agents["n1"]
    agent.kill()
    town.setups.release("n2", "n3")
    town.until_environment("night", owned=3, state="created")
    agent.start()
    town.until_heard("node-up", "n1")
    town.watch(SHORT_S, lambda: town.environment("night")["state"] == "created", "waiting for n1")
    assert town.setups.lines("n1") == ["begin acquire night wipe"]  # the first run has not ended
    town.setups.release("n1")
    town.until_environment("night", state="running")
    assert town.setups.lines("n1") == ["begin acquire night wipe", "end acquire night wipe"] * 2
    assert [town.setups.done(node) for node in ("n2", "n3")] == [["acquire night wipe"]] * 2
    assert [one["detail"] for one in town.heard("node-acquired", "n1")] == ["night"]


def test_a_host_that_is_started_anew_in_a_setup(town: Estate) -> None:
    """That is no failure of the setup, even where the first one counts: it is carried out anew."""
    town.setups.hold("n1", "n2", "n3")
    ask(town, "env", "create", town.agreement(BATCH, lower=3))
    ask(town, "env", "activate", "night")
    held(town, "n1", "n2", "n3")
    town.lab.power_off("n1")
    town.setups.release("n1", "n2", "n3")
    town.until_environment("night", owned=3, state="created")
    town.lab.power_on("n1")
    town.until_environment("night", state="running")
    assert town.setups.done("n1")[-1] == "acquire night wipe"
    assert len([line for line in town.setups.lines("n1") if line.startswith("begin")]) == 2
    assert not town.heard("setup-failed")


def given_over(town: Estate, count: int) -> list[str]:
    """Wait until so many nodes have been on their way from the batch to the web environment; which, in order."""

    def nodes() -> list[str]:
        told = [one["subject"] for one in town.heard("node-evacuating") if one["detail"] == "night to front"]
        return list(dict.fromkeys(told))

    return town.wait_for(lambda: nodes() if len(nodes()) >= count else [], LIMIT_S, f"{count} nodes for the web")


def test_controllers_and_a_broker_that_die_in_a_hand_over(town: Estate) -> None:
    """Each life goes on where the one before was: every setup is carried out once, and every job is done once."""
    town.open(WEB, setup={"policy": "exec", "command": "web-image", "limit_s": 60})
    town.open(BATCH, lower=2, coordinated_with="front")
    town.until_environment("night", size=3, owned=3)
    for job in ("one", "two", "three"):
        town.submit_to(JOE, "night", job, work_s=15.0, instances=1)
    town.submit_to(JOE, "night", "wide", work_s=25.0, instances=2)
    town.running("one#0", "two#0", "three#0", "wide#0", "wide#1")
    town.setups.hold(*town.lab.nodes)
    town.serve(BUSY_MHZ)
    (first,) = given_over(town, 1)
    assert held(town, first) == ["release night wipe"]
    controller = town.lab.controllers["c1"]
    controller.kill()
    controller.start()
    town.wait_for(lambda: len(town.heard("leading")) == 2, LIMIT_S, "the second life")
    assert town.setups.lines(first)[-1] == "begin release night wipe"
    town.setups.release(first)
    town.wait_for(lambda: town.setups.done(first)[-1] == "acquire front web-image", SOON_S, "what comes next")
    town.setups.hold(first)
    controller.kill()
    controller.start()
    town.wait_for(lambda: len(town.heard("leading")) == 3, LIMIT_S, "the third life")
    town.running("shop#0")

    second = given_over(town, 2)[1]
    assert held(town, second) == ["release night wipe"]
    town.kill_broker()
    town.setups.release(*town.lab.nodes)
    wait_until(lambda: "end release night wipe" in town.setups.lines(second), SOON_S)
    town.broker.start()
    town.running("shop#0", "shop#1")
    town.lab.fake.load("shop", CALM_MHZ)
    town.wait_for(lambda: all(town.completions()[job] for job in ("one", "two", "three", "wide")), 2 * LIMIT_S, "jobs")
    assert town.completions() == {"one": [1], "two": [1], "three": [1], "wide": [1]}
    town.nothing_doubled()
    for node in (first, second):
        done = town.setups.done(node)
        assert done[:3] == ["acquire night wipe", "release night wipe", "acquire front web-image"]
        begun = [line for line in town.setups.lines(node) if line.startswith("begin")]
        assert len(begun) == len(done), "none was carried out twice"


def test_an_environment_is_destroyed_while_its_nodes_change_hands(town: Estate) -> None:
    """Nobody has them before they are released; the name may be used again then, by a new one with no past."""
    town.setups.hold("n1", "n2", "n3")
    ask(town, "env", "create", town.agreement(BATCH, lower=2))
    ask(town, "env", "activate", "night")
    town.submit_to(JOE, "night", "job", work_s=600.0)
    town.wait_for(lambda: len([node for node in town.lab.nodes if town.setups.lines(node)]) == 2, SOON_S, "two setups")
    first = [node for node in town.lab.nodes if town.setups.lines(node)]
    waiting = town.here(KIM, "env", "destroy", "night", "--yes", "--wait", "1")
    assert (waiting.status, "not yet destroyed" in waiting.err) == (1, True)
    for words in (("env", "activate", "night"), ("env", "create", town.agreement(BATCH))):
        said = town.here(KIM, *words)
        assert (said.status, "being destroyed" in said.err) == (1, True), said
    assert town.here(JOE, "jobs", "submit", str(town.job_file("more", 1.0)), "--env", "night").status == 1
    town.setups.release("n1", "n2", "n3")
    town.until_environment("night", state="destroyed")
    for node in first:
        assert town.setups.done(node) == ["acquire night wipe", "release night wipe"]
    assert town.homes() == {}
    ask(town, "env", "create", town.agreement(BATCH))
    ask(town, "env", "activate", "night", "--wait", "30")
    assert town.here(KIM, "jobs", "list", "--output", "json").data["total"] == 0
    town.submit_to(JOE, "night", "again", work_s=1.0)
    town.wait_for(lambda: town.completions().get("again"), SOON_S, "its job")


def test_partners_part_with_notice_and_come_together_again(town: Estate) -> None:
    """One that names nobody is offered whom shares; consent, withdrawal and consent again, each side's own."""
    town.open(WEB)
    town.open(BATCH)
    assert town.environment("night")["partner"] == ""
    assert town.until_heard("partner-offered", "night")["detail"].startswith("front")
    ask(town, "env", "consent", "night", "front")
    town.until_environment("front", partner="night")
    assert town.here(LEE, "env", "consent", "night", "front", "--withdraw").status == 1  # not hers
    assert town.here(LEE, "env", "consent", "front", "night", "--withdraw").status == 0
    assert town.environment("night")["partner"] == "front"  # until the notice is over
    town.until_environment("night", partner="")
    parting, parted = town.heard("environment-separating")[-1], town.heard("environment-separated", "front")[-1]
    assert parted["at_s"] - parting["at_s"] == pytest.approx(WEB["notice_s"], abs=1.5)
    assert town.environment("night")["offered"] == ""
    assert town.states() == {"night": ("running",) * 2, "front": ("running",) * 2}
    assert town.here(LEE, "env", "consent", "front", "night").status == 0
    town.until_environment("front", partner="night")


def test_nodes_of_an_environment_that_an_operator_takes(town: Estate) -> None:
    """Drained by hand another takes its place, with its setups; it cannot be removed or declared off while it works."""
    town.open(BATCH, lower=1)
    (node,) = town.nodes_of("night")
    town.submit_to(JOE, "night", "job", work_s=600.0)
    town.running("job#0")
    for words, code in (
        (("nodes", "remove", node), "node-not-empty"),
        (("nodes", "confirm-off", node, "--yes"), "node-up"),
    ):
        said = town.run(*words)
        assert (said.status, code in said.err) == (1, True), said
    town.do("nodes", "drain", node)
    town.wait_for(lambda: town.nodes_of("night") not in ([], [node]), SOON_S, "another node")
    (other,) = town.nodes_of("night")
    town.wait_for(lambda: town.homes() == {"job#0": other}, SOON_S, "the job on it")
    town.wait_for(lambda: town.setups.done(node)[-1] == "release night wipe", SOON_S, "its release")
    town.do("nodes", "remove", node)
    town.lab.power_off(other)
    town.until_heard("node-unreachable", other)
    town.do("nodes", "confirm-off", other, "--yes")
    (third,) = set(town.lab.nodes) - {node, other}
    town.wait_for(lambda: town.homes() == {"job#0": third}, SOON_S, "the job on the third")
    assert town.setups.done(third) == ["acquire night wipe"]
    assert town.here(KIM, "env", "show", "night").status == 0


def test_environments_of_vms(town: Estate) -> None:
    """No node changes hands; so many VMs run as there are units, on nodes of nobody, beside one that has nodes."""
    template = {"name": "small", "vcpus": 1, "memory_mib": 1_000, "max_mhz": 1_000.0}
    quota = {"granularity": "vm", "template": template, "model": "flb-nub", "upper": 4, "setup": {"policy": "noop"}}
    town.open(BATCH, quota, lower=2)
    town.open(BATCH, name="other", lower=1)
    for number in range(3):
        file = town.job_file(f"v{number}", 600.0)
        town.done_by(JOE, "jobs", "submit", str(file), "--env", "night")
    town.running("v0#0", "v1#0")
    town.watch(SHORT_S, lambda: len(town.homes()) == 2, "two VMs at most")
    assert not set(town.homes().values()) & set(town.nodes_of("other"))
    assert (town.nodes_of("night"), [town.setups.lines(node) for node in set(town.homes().values())]) == ([], [[]])
    town.do("env", "resize", "night", "--lower", "3", "--upper", "4")
    town.running("v0#0", "v1#0", "v2#0")
    town.do("env", "resize", "night", "--lower", "1", "--upper", "1")
    town.wait_for(lambda: set(town.homes()) == {"v0#0"}, LIMIT_S, "one VM, the one that began first")
    town.do("env", "resize", "other", "--lower", "0")
    town.done_by(KIM, "env", "destroy", "night", "--yes", "--wait", "30")
    assert town.homes() == {}
