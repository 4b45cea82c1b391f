"""The first day of an operator with three machines of a Debian release, by the pages of docs/how-to: the commands are
those of the pages. And that of a VM that was there before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.integration.debian_root import SUITES
from tests.integration.first_day import pages, plan
from tests.integration.first_day.machines import BROKER, NODES, machines, root
from tests.integration.first_day.scene import OWN, Cluster
from tests.integration.package_build import Packages

JOB = "render-1"
TARGET = "n2"  # where the VM goes: not the machine of broker and controller, which loses no power here
UNREACHABLE_S = 180.0


@pytest.fixture
def cluster(request: pytest.FixtureRequest, built: Callable[[str], Packages]) -> Iterator[Cluster]:
    """Three machines of the release that the test names, with its packages, and a VM of the operator's own."""
    root(request.param)  # what cannot be shown need not be built
    made = list(built(request.param).values())
    with machines(request.param) as nodes:
        cluster = Cluster(nodes, made)
        cluster.make_own_vm()
        yield cluster


@pytest.mark.full
@pytest.mark.parametrize("cluster", SUITES, indirect=True)
def test_the_first_day_by_the_pages(cluster: Cluster) -> None:
    """Given three machines and a VM of the operator's own, then what the pages say makes a cluster of them, runs a job,
    empties each node, and takes care of the VM until it is released as it was."""
    before = own_definition(cluster, BROKER)
    made(cluster)
    runs_a_job(cluster)
    drained_in_turn(cluster)
    job_ended(cluster)
    adopted(cluster)
    migrated(cluster)
    shut_down_and_started(cluster)
    host_without_power(cluster)
    released(cluster)
    assert own_definition(cluster, TARGET) == before


def made(cluster: Cluster) -> None:
    """Broker, libvirt, controller and agents run, and the nodes are up."""
    cluster.follow(*plan.INSTALL, *plan.BROKER_STEPS)
    assert "the broker has everything that is needed" in cluster.follow(plan.BROKER_IS_WHOLE)[BROKER]
    cluster.follow(*plan.LIBVIRT)
    assert OWN in cluster.follow(plan.REACHES_OTHERS)["n2"]  # asked of the first machine
    assert OWN in cluster.follow(plan.REACHES_LIBVIRT)[BROKER]
    cluster.follow(plan.START_CONTROLLER, *plan.AGENTS, *plan.LET_IN)
    cluster.until("three nodes that are up", lambda: conditions(cluster) == dict.fromkeys(NODES, "up"))
    cluster.follow(*plan.CHECKS)


def runs_a_job(cluster: Cluster) -> None:
    cluster.nodes[BROKER].put_home("job.toml", pages.block("jobs.md", "Run jobs", "toml"))
    cluster.follow(*plan.JOB)
    cluster.until("work of the job", lambda: cluster.job(JOB)["done_mcycles"] > 0)


def drained_in_turn(cluster: Cluster) -> None:
    """Each node is emptied with the approval of the operator; the job runs on, on another node than before."""
    for node in NODES:
        cluster.follow(plan.DRAINS[node])

        def empty(node: str = node) -> bool:
            shown = cluster.ask("plan", "show")
            if shown["waiting_approval"]:
                cluster.say(plan.APPROVE, swaps={"N": str(shown["decision"]["number"])})
            row = cluster.node(node)
            return (row["vms"], row["actions"]) == (0, 0)

        cluster.until(f"{node} is empty", empty)
        cluster.until("the job runs elsewhere", lambda node=node: cluster.where(JOB) not in ("", node))  # type: ignore[misc]
        cluster.follow(plan.UNDRAINS[node])
    job = cluster.job(JOB)
    assert (job["phase"], job["attempt"], job["failures"]) == ("running", 1, 0)
    assert "vm-migrated" in cluster.events()


def job_ended(cluster: Cluster) -> None:
    """When its guest switches itself off, which this one does at its power button, the job is complete."""
    cluster.until("the job runs", lambda: cluster.where(JOB))
    where = cluster.where(JOB)
    cluster.nodes[where].shell(f"virsh shutdown '{JOB}#0'")
    cluster.until("the end of the job", lambda: cluster.job(JOB)["phase"] == "completed")
    cluster.until("no VM of it", lambda: f"{JOB}#0" not in cluster.nodes[where].shell("virsh list --all --name"))


def adopted(cluster: Cluster) -> None:
    cluster.mark(1, BROKER)
    cluster.follow(plan.POOLS)
    cluster.follow(plan.ADOPT)
    cluster.until("the VM as a job", lambda: in_phase(cluster, "running"))
    cluster.see(1, BROKER)


def migrated(cluster: Cluster) -> None:
    cluster.mark(2, BROKER)
    cluster.until("the pools are known", lambda: all("images" in cluster.pools(node) for node in NODES))
    cluster.follow(plan.MIGRATE)
    cluster.until("the VM on its new node", lambda: cluster.where(OWN) == TARGET)
    cluster.see(2, TARGET)
    target = cluster.nodes[TARGET]
    cluster.until("its autostart", lambda: "Autostart:      enable" in target.shell(f"virsh dominfo {OWN}"))
    source = cluster.nodes[BROKER]
    cluster.until("nothing of it at the source", lambda: OWN not in source.shell("virsh list --all --name"))


def shut_down_and_started(cluster: Cluster) -> None:
    """By its guest, then by its owner: the definition stays."""
    target = cluster.nodes[TARGET]
    cluster.mark(3, TARGET)
    target.shell(f"virsh shutdown {OWN}")
    cluster.until("the VM is shut off", lambda: in_phase(cluster, "shut-off"))
    assert "adopted-vm-off" not in cluster.alarms()  # a shutdown is what its owner wants
    assert OWN in target.shell("virsh list --inactive --name")
    cluster.see(3, TARGET)

    target.shell(f"virsh start {OWN}")
    cluster.until("the VM runs", lambda: in_phase(cluster, "running"))
    cluster.see(3, TARGET)


def host_without_power(cluster: Cluster) -> None:
    """Off and said to be off: the VM is shut off, and started nowhere else. On again: it starts with its host."""
    cluster.mark(4, TARGET)
    cluster.nodes[TARGET].power_off()
    cluster.until("the node is unreachable", lambda: "node-unreachable" in cluster.alarms(), UNREACHABLE_S)
    cluster.say(plan.CONFIRM_OFF, swaps={"n1": TARGET}, text="y\n")
    cluster.until("the VM is shut off", lambda: in_phase(cluster, "shut-off"))

    cluster.nodes[TARGET].power_on()

    cluster.until("the node is up", lambda: conditions(cluster)[TARGET] == "up", UNREACHABLE_S)
    cluster.until("the VM runs there", lambda: cluster.where(OWN) == TARGET and not cluster.alarms())
    cluster.see(4, TARGET)


def released(cluster: Cluster) -> None:
    """It runs on, as it is on its disk."""
    cluster.mark(5, TARGET)
    cluster.say(plan.RELEASE, swaps={"NAME": OWN})
    cluster.until("the VM is the operator's", lambda: cluster.is_managed(OWN) is False)
    assert OWN in cluster.nodes[TARGET].shell("virsh list --name")
    for number in range(1, 6):
        cluster.see(number, TARGET)


def own_definition(cluster: Cluster, node: str) -> str:
    return cluster.say(plan.DEFINITION, node, {"--inactive": f"--inactive {OWN}"})


def in_phase(cluster: Cluster, phase: str) -> bool:
    return bool(cluster.job(OWN)["phase"] == phase)


def conditions(cluster: Cluster) -> Mapping[str, str]:
    return {row["name"]: row["condition"] for row in cluster.ask("nodes", "list")["nodes"]}


def test_every_command_of_the_pages_has_its_place() -> None:
    """What is new in a page is done by the test above, or listed with the reason why not."""
    assert list(plan.misplaced()) == []
    assert [pages.span(span.page, span.begins) for span in plan.SPANS]


def test_a_list_does_not_indent_its_commands() -> None:
    assert [one for one in pages.commands("first-node.md") if one.text.startswith(" ")] == []


def test_commands_of_a_script_are_whole() -> None:
    lines = ["# why", "one # two", "for x in 1 2; do", "    three $x", "done", "", "four \\", "    five"]

    assert list(pages.split(lines)) == ["one # two", "for x in 1 2; do\n    three $x\ndone", "four \\\n    five"]
    with pytest.raises(ValueError, match="not a whole command"):
        list(pages.split(["if true; then"]))


def test_commands_are_what_follows_prompts() -> None:
    lines = ["$ one", "printed", "# two \\", "    three", "printed"]

    assert list(pages.prompted(lines)) == ["one", "two \\\n    three"]
