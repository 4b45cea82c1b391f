"""Real jobs: programs that a real controller has real agents run, freeze, find again and begin anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.environment_scene import PROVIDER
from tests.integration.harness import CLOCK
from tests.integration.private_broker import PrivateBroker
from tests.integration.process_scene import CORE_MHZ, STOP_LIMIT_S, Mill, mill

NIGHT, DAY, FRONT = "night", "day", "front"
PARTS = {"one": 1.0, "two": 2.0, "four": 4.0}  # of the node's MHz that each may have
WEIGHED_S = 8.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What the jobs of `PARTS` have used, and are allotted."""

    cpu_s: dict[str, float]
    cpu_mhz: dict[str, float]


def reading(works: Mill) -> Reading:
    """Of all three."""
    allotted = {name: float(works.job(name)["cpu_mhz"]) for name in PARTS}
    return Reading({name: works.cpu_time_s(f"{name}#0") for name in PARTS}, allotted)


@pytest.fixture(scope="module")
def works(broker: PrivateBroker) -> Iterator[Mill]:
    """Three nodes of two environments under FB, which the batch side has while nobody asks for the other, and one of
    nobody's."""
    with mill(broker, nodes=4, whole="n4") as made:
        made.found(FRONT, "web", 1, shares=True, web={"over_s": 1.5})
        made.found(NIGHT, "batch", 2, coordinated_with=FRONT)
        made.until_environment(NIGHT, size=3, owned=3, partner=FRONT)
        made.until_nodes(NIGHT, 3)
        yield made


def test_serial_and_parallel_jobs_under_first_fit(works: Mill) -> None:
    """Given three nodes of which two have jobs, when one of three processes comes, then none of these executes before
    there is room for all, all meet, and each program has one life and keeps its output."""
    wide = [f"wide#{at}" for at in range(3)]
    for name in ("first", "second"):
        works.put(name, "burn", 0.5, cpu_s=0.5, environment=NIGHT)
    homes = works.running("first#0", "second#0")
    works.put("wide", "meet", 3, 0.1, cpu_s=0.1, instances=3, environment=NIGHT, spread=True)
    works.wait_for(lambda: any(works.notes(vm).begun for vm in wide), what="the parallel job")
    assert works.notes("first#0").once
    assert works.notes("second#0").once
    at = works.running(*wide)
    assert len({at[vm] for vm in wide}) == 3
    works.completed("first", "second", "wide")
    assert all(works.notes(vm).words == ("begin", "met", "end") for vm in wide)
    assert works.job("wide")["attempt"] == 1
    assert works.lab.output(homes["first#0"], "first#0") == "begun first#0\n"


def test_standard_jobs_tell_how_fast_a_node_is(works: Mill) -> None:
    """Given a node with nothing on it, then an operator is told what the copies that its agent ran did, profiles have
    it and no file is left; and why an agent ran none."""
    told = works.look("profile", "run", "n4", "--standard", "io", "--seconds", "0.2", "--copies", "2")
    assert (told["done"], told["run"]["node"], told["run"]["ok"]) == (True, "n4", True)
    assert [kind["runs"] for kind in works.look("profile", "show")["node_types"]] == [{"cpu": 0, "io": 1}]
    assert works.until_heard("standard-job-done", "n4")["detail"] == told["run"]["detail"]
    assert list((works.lab.folder / "standard-n4").iterdir()) == []
    failed = works.here(PROVIDER, "profile", "run", "n4", "--standard", "cpu", "--copies", "9", "--output", "json")
    assert failed.status == 1
    assert failed.data["run"]["detail"] == "9 copies are more than standard_jobs.copies_max = 8"


def test_a_program_that_fails_is_begun_anew(works: Mill) -> None:
    """Exit status 3: the job has crashed, its next attempt completes it; the event and the output say why."""
    works.put("paper", "fail", 1, cpu_s=0.1, environment=NIGHT)
    (node,) = {works.running("paper#0")["paper#0"]}
    works.completed("paper")
    assert works.notes("paper#0").words == ("begin", "begin", "end")
    assert works.job("paper")["attempt"] == 2
    (crash,) = works.heard("guest-crashed", "paper#0")
    assert crash["detail"] == f"on {node}: exit status 3; it said: no more paper"
    assert works.lab.output(node, "paper#0").startswith("begun paper#0\nno more paper\n")


@pytest.mark.full
def test_a_program_that_does_not_heed_ends_when_its_job_is_cancelled(works: Mill) -> None:
    """Asked first, killed after the agent's limit."""
    works.put("deaf", "deaf", environment=NIGHT)
    works.wait_for(lambda: "deaf" in works.notes("deaf#0").words, what="the program")
    begun_s = CLOCK.monotonic_s()
    works.order("jobs", "cancel", "deaf")
    works.wait_for(lambda: "deaf#0" not in works.homes(), what="its end")
    assert CLOCK.monotonic_s() - begun_s >= STOP_LIMIT_S
    assert works.notes("deaf#0").words == ("begin", "deaf", "asked")


def test_an_agent_that_is_killed_finds_its_jobs_again(works: Mill) -> None:
    """Given two jobs on a node, when its agent is killed and one of them ends before the next agent comes, then both
    are completed, by the processes that began them."""
    half = {"max_mhz": CORE_MHZ / 2}
    node = works.nodes_of(NIGHT)[0]
    for name, cpu_s in (("short", 0.3), ("long", 0.6)):
        works.put(name, "burn", cpu_s, cpu_s=cpu_s, environment=NIGHT, stage=half, rules={"node_affinity": [node]})
    works.running("short#0", "long#0")
    works.wait_for(lambda: works.heard("job-started", "long"), what="the start of both")
    long = works.program("long#0")
    works.lab.agents[node].kill()
    works.wait_for(lambda: works.notes("short#0").ended, what="the end that no agent sees")
    works.lab.agents[node].start()
    works.completed("short", "long")
    assert works.notes("long#0").begun == works.notes("long#0").ended == (long,)
    assert works.notes("short#0").once
    assert [works.job(name)["attempt"] for name in ("short", "long")] == [1, 1]


@pytest.mark.full
def test_a_program_that_somebody_else_kills_is_begun_anew_with_all_of_its_job(works: Mill) -> None:
    pair = ("pair#0", "pair#1")
    works.put("pair", "meet", 2, 0.2, cpu_s=0.2, instances=2, environment=NIGHT, spread=True)
    works.wait_for(lambda: all("met" in works.notes(vm).words for vm in pair), what="both programs")
    works.kill_program("pair#0")
    works.completed("pair")
    assert all(works.notes(vm).words == ("begin", "met", "begin", "met", "end") for vm in pair)
    assert works.job("pair")["attempt"] == 2


def test_jobs_whose_nodes_are_wanted_are_frozen_and_lose_nothing(works: Mill) -> None:
    """Given a job on each node, when the web side grows to two nodes, then two jobs are frozen with their memory and
    use no CPU; when it needs them no more, these processes go on to their end."""
    jobs = ("a", "b", "c")
    for name in jobs:
        works.put(name, "burn", 1.5, cpu_s=1.5, environment=NIGHT)
    for name in jobs:
        works.until_heard("job-started", name)  # before that they would be taken back
    homes = works.homes()
    works.busy(True)
    works.open_shop(2, FRONT)
    works.running("shop#0", "shop#1")
    frozen = [f"{name}#0" for name in jobs if homes[f"{name}#0"] in works.nodes_of(FRONT)]
    assert len(frozen) == 2
    before = {vm: (works.cpu_time_s(vm), works.program(vm), memory_kib(works.program(vm))) for vm in frozen}
    CLOCK.sleep(0.5)
    after = {vm: (works.cpu_time_s(vm), works.program(vm), memory_kib(works.program(vm))) for vm in frozen}
    assert after == before
    assert all(kib > 1_000 for _, _, kib in after.values())
    assert all(works.job(vm[0])["phase"] == "suspended" for vm in frozen)
    works.order("web", "remove", "shop")
    works.completed(*jobs)
    assert all(works.notes(f"{name}#0").once for name in jobs)
    assert {works.notes(vm).ended[0] for vm in frozen} == {pid for _, pid, _ in before.values()}
    assert [works.job(name)["attempt"] for name in jobs] == [1, 1, 1]


def memory_kib(pid: int) -> int:
    """What a process has in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


@pytest.mark.full
@pytest.mark.alone
def test_the_cpu_is_shared_as_was_decided(works: Mill) -> None:
    """The shares of CPU time of three jobs on a node, over 8 s, are within 10 points of what `apc` allotted."""
    for name, part in PARTS.items():
        works.put(name, "burn", 20.0 * part, cpu_s=20.0 * part, stage={"max_mhz": CORE_MHZ * part / 7.0})
    works.wait_for(lambda: all(works.notes(f"{name}#0").begun for name in PARTS), what="all three")
    before = reading(works)
    CLOCK.sleep(WEIGHED_S)
    now = reading(works)
    works.order("jobs", "cancel", *PARTS)
    used_s = {name: now.cpu_s[name] - before.cpu_s[name] for name in PARTS}
    shares = {name: used_s[name] / sum(used_s.values()) for name in PARTS}
    assert now.cpu_mhz == before.cpu_mhz
    assert now.cpu_mhz == pytest.approx({name: CORE_MHZ * part / 7.0 for name, part in PARTS.items()})
    assert shares == pytest.approx({name: mhz / CORE_MHZ for name, mhz in now.cpu_mhz.items()}, abs=0.1)


@pytest.mark.full
def test_jobs_are_killed_by_the_rule_of_the_paper_where_an_agreement_says_so(works: Mill) -> None:
    """on_reclaim = "kill": whose node is taken begins anew, from nothing."""
    works.order("env", "destroy", NIGHT, "--yes", "--wait", "30")
    works.found(DAY, "batch", 2, coordinated_with=FRONT, batch={"on_reclaim": "kill"})
    works.until_environment(DAY, size=3, owned=3, partner=FRONT)
    for name in ("d", "e", "f"):
        works.put(name, "burn", 0.6, cpu_s=0.6, environment=DAY)
    for name in ("d", "e", "f"):
        works.until_heard("job-started", name)
    works.busy(False)
    works.open_shop(1, FRONT)
    killed = works.until_heard("job-killed-for-environment")["subject"]
    works.running("shop#0")
    works.completed("d", "e", "f")
    lives = {name: works.notes(f"{name}#0").words for name in ("d", "e", "f")}
    assert lives.pop(killed) == ("begin", "begin", "end")
    assert set(lives.values()) == {("begin", "end")}
    assert works.job(killed)["attempt"] == 2
    works.order("web", "remove", "shop")
