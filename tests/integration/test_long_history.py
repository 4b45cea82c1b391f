"""Real daemons on a store of ninety days: a controller leads, prunes and forgets while everybody goes on asking."""

from __future__ import annotations

import math
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from shared.ports.bus import Delivery
from shared.protocol import topology
from shared.protocol.codec import decode, encode
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import Query, SubmitJob
from shared.protocol.topology import QueueSpec
from shared.runtime import startup
from shared.values.jobs import Job, Stage
from tests.integration.harness import CLOCK, OPERATOR, Process, user_url
from tests.integration.long_history import DAY_S, Size, job_name, make
from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import LIMIT_S, Scene, log_lines, says, scene

SIZES = {"small": Size(40, 10, 100, 100), "whole": Size(90, 100, 1_000, 2_096)}
HURRIED = Path(__file__).with_name("hurried_controller.py")
FIRST_PRUNE_S = 60.0
PRUNE_LIMIT_S = 1_200.0
PROBE_S = 2.0  # the default
PAUSE_S = 0.3
WAIT_MAX_S = 1.0
CPU_MAX_S = 15.0
MEMORY_MAX = 1.1
SETTLE_S = 15.0
VIEWS = ("status", "jobs", "plan", "plan-history", "nodes")
STAGES = (Stage(100.0, 1_000.0, memory_mib=100),)
TEMPLATE = "fake:work=100;max=1000;instances=1"
TICKS = os.sysconf("SC_CLK_TCK")


class Crowd:
    """Who asks for many views and sends each request again, as the portal does while it has no answer."""

    def __init__(self, url: str, requests: int) -> None:
        self._bus = startup.broker(url)()
        self._queue = f"reply.{self._bus.user}.crowd"
        self._bus.declare(QueueSpec(self._queue, (), durable=False, exclusive=True))
        self._bus.consume(self._queue, 1_000, acknowledged=False)
        self._requests = [Query(f"q{at}", VIEWS[at % len(VIEWS)]) for at in range(requests)]
        self.replies: list[Reply] = []

    def send(self) -> None:
        """Each request once."""
        for request in self._requests:
            self._bus.publish(topology.REQUESTS, topology.CONTROLLER_QUEUE, encode(request), None, self._queue)

    def answered(self) -> bool:
        """Whether every request has been."""
        for event in self._bus.poll(0.05):
            message = decode(event.body) if isinstance(event, Delivery) else None
            if isinstance(message, Reply):
                self.replies.append(message)
        return {reply.request for reply in self.replies} == {request.request for request in self._requests}

    def close(self) -> None:
        self._bus.close()


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> Size:
    return SIZES[request.param]


@pytest.fixture
def town(broker: PrivateBroker, size: Size) -> Iterator[Scene]:
    """Two nodes, and a controller that was not started yet, on a long history."""
    nodes = ",".join(f"n{at}:16x1000:64000" for at in (1, 2))
    periods = {"periods": {"probe_s": PROBE_S}}
    with scene(broker, begin=False, nodes=nodes, controller=periods, supervised=False) as made:
        begun_s = CLOCK.monotonic_s()
        rows = make(_database(made), size, CLOCK.now_s())
        print(
            f"\nmade in {CLOCK.monotonic_s() - begun_s:.0f} s: {rows}, {_database(made).stat().st_size >> 20} MiB",
            flush=True,
        )
        yield made


@pytest.mark.full
@pytest.mark.alone
def test_a_long_history(town: Scene, size: Size) -> None:
    """Given a hundred and fifty requests that wait, two of three sent before, when a controller takes the lead, then it
    leads in its first life, soon, and answers each; while it prunes neither a submission nor an order waits for long;
    afterwards it knows no more, and takes up hardly more memory, than a controller that begins on what was kept."""
    controller = town.lab.controllers["c1"]
    plain = controller.command
    controller.command = [sys.executable, "-P", str(HURRIED), f"{FIRST_PRUNE_S:g}", *plain[plain.index("--config") :]]
    cpu_s = _lead_with_a_crowd(town, controller)
    started_s = CLOCK.monotonic_s() - _age_s(controller)
    _join(town)
    full_kib, known = _rss_kib(controller), _jobs_known(town)
    assert known < size.jobs

    submits_s, began_s = _submit_until_pruned(town, controller)
    pruned_s = CLOCK.monotonic_s()
    orders_s = _orders_s(town, began_s)
    print(f"pruned {_pruned(controller)} in {pruned_s - started_s - FIRST_PRUNE_S:.0f} s", flush=True)
    for what, waits_s in (("submission", submits_s), ("order", orders_s)):
        print(f"{len(waits_s)} of {what}: median {median(waits_s):.3f} s, longest {max(waits_s):.3f} s")
    known, known_s = _jobs_known(town), CLOCK.monotonic_s()
    assert known == _jobs_stored(town) < size.jobs

    CLOCK.sleep(SETTLE_S)
    pruned_kib = _rss_kib(controller)
    assert controller.lives == 1
    assert controller.stop() == 0
    controller.command = plain
    controller.start()
    town.lab.wait_for(lambda: _leads(controller, 2), LIMIT_S, "the next life to lead")
    aged = 1 + math.ceil(size.jobs_a_day * (CLOCK.monotonic_s() - known_s) / DAY_S)  # the next prune deletes them
    assert known - aged <= _jobs_known(town) <= known
    CLOCK.sleep(SETTLE_S)
    again_kib = _rss_kib(controller)
    more = pruned_kib / again_kib
    print(f"memory: {full_kib} KiB before the prune, {pruned_kib} after it, {again_kib} in the next life: {more:.3f}")
    assert town.lab.ask(lambda request: SubmitJob(request, _job(job_name(0)))).done

    assert len(submits_s) > 10
    assert cpu_s <= CPU_MAX_S
    assert max(submits_s) <= WAIT_MAX_S
    assert max(orders_s) <= WAIT_MAX_S
    assert more <= MEMORY_MAX


def _lead_with_a_crowd(town: Scene, controller: Process) -> float:
    """Have it lead while requests wait; returns the CPU time until then."""
    with closing(Crowd(user_url(town.lab.broker, OPERATOR), 50)) as crowd:
        crowd.send()
        crowd.send()
        controller.start()
        begun_s = CLOCK.monotonic_s()
        town.lab.wait_for(lambda: says(controller, "taking the lead"), LIMIT_S, "who takes the lead")
        crowd.send()
        town.lab.wait_for(lambda: _leads(controller, 1), LIMIT_S, "a leader")
        led_s, cpu_s = CLOCK.monotonic_s(), _cpu_s(controller)
        town.lab.wait_for(crowd.answered, LIMIT_S, "the answers")
        print(f"led after {led_s - begun_s:.1f} s, {cpu_s:.1f} s of CPU time; {len(crowd.replies)} answers after")
        print(f"{CLOCK.monotonic_s() - led_s:.1f} s more, {_cpu_s(controller) - cpu_s:.1f} s of CPU time", flush=True)
        assert all(reply.done for reply in crowd.replies)
        town.lab.wait_for(lambda: CLOCK.monotonic_s() > led_s + 5 * PROBE_S, LIMIT_S)
    assert controller.alive
    assert len(_led(controller)) == 1
    return cpu_s


def _join(town: Scene) -> None:
    for agent in town.lab.agents.values():
        agent.start()
    town.do("nodes", "add", *town.lab.nodes)
    town.wait_for(lambda: town.told("node-up") >= set(town.lab.nodes), LIMIT_S, "both nodes")


def _submit_until_pruned(town: Scene, controller: Process) -> tuple[list[float], dict[str, float]]:
    """How long each submission waited for its answer, and when it was sent, by the name of the job."""
    waits_s: list[float] = []
    began_s: dict[str, float] = {}
    limit_s = CLOCK.monotonic_s() + PRUNE_LIMIT_S
    while not says(controller, '"history pruned"'):
        assert controller.alive, controller.tail()
        assert CLOCK.monotonic_s() < limit_s, controller.tail()
        name = f"new-{len(waits_s)}"
        began_s[name], sent_s = CLOCK.now_s(), CLOCK.monotonic_s()
        reply = town.lab.operator.ask(SubmitJob(f"submit-{name}", _job(name)), LIMIT_S)
        waits_s.append(CLOCK.monotonic_s() - sent_s)
        assert reply is not None
        assert reply.done, reply
        CLOCK.sleep(PAUSE_S)
    return waits_s, began_s


def _job(name: str) -> Job:
    return Job(name, STAGES, template=TEMPLATE)


def _orders_s(town: Scene, began_s: dict[str, float]) -> list[float]:
    """How long after its submission was sent the order to start each job left, all of which are to be over."""

    def sent() -> dict[str, float]:
        return {
            vm.partition("#")[0]: sent_s
            for vm, sent_s in _select(
                town, "SELECT vm, min(sent_s) FROM actions WHERE kind = 'start' AND vm LIKE 'new-%' GROUP BY vm"
            )
        }

    town.lab.wait_for(lambda: began_s.keys() <= sent().keys(), LIMIT_S, "all orders")
    over = "SELECT count(*) FROM jobs WHERE NOT is_over"
    town.lab.wait_for(lambda: _select(town, over) == [(0,)], LIMIT_S, "the end of all jobs")
    found = sent()
    return [found[name] - at_s for name, at_s in began_s.items()]


def _jobs_known(town: Scene) -> int:
    """How many jobs the controller knows."""
    return int(town.lab.ask(lambda request: Query(request, "status")).data["jobs"]["total"])


def _jobs_stored(town: Scene) -> int:
    ((count,),) = _select(town, "SELECT count(*) FROM jobs")
    return int(count)


def _database(town: Scene) -> Path:
    return town.lab.folder / "controller.db"


def _select(town: Scene, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{_database(town)}?mode=ro", uri=True)) as database:
        return database.execute(statement).fetchall()


# --- what the system says of a process ------------------------------------------------------------------------------


def _stat(process: Process) -> list[str]:
    """From the third field on: what follows the command's name."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()


def _cpu_s(process: Process) -> float:
    fields = _stat(process)
    return (int(fields[11]) + int(fields[12])) / TICKS


def _age_s(process: Process) -> float:
    return CLOCK.monotonic_s() - int(_stat(process)[19]) / TICKS


def _rss_kib(process: Process) -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1])


# --- what its log says ----------------------------------------------------------------------------------------------


def _led(process: Process) -> list[object]:
    return [line for line in log_lines(process) if line["event"] == "happened" and line["what"] == "leading"]


def _leads(process: Process, times: int) -> bool:
    assert process.alive, process.tail()
    return len(_led(process)) >= times


def _pruned(process: Process) -> object:
    (found,) = [line for line in log_lines(process) if line["event"] == "history pruned"]
    return {name: count for name, count in found.items() if isinstance(count, int) and count}
