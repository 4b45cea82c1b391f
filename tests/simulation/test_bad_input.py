"""Bad input to a running system: a clear refusal, nothing changed, everything else goes on."""

from __future__ import annotations

from dataclasses import replace

import msgpack  # type: ignore[import-untyped]
import pytest

from shared.protocol import topology
from shared.protocol.codec import encode
from shared.protocol.operator_messages import SubmitJob
from shared.values.jobs import Job, Stage
from shared.values.nodes import Node
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings

NODES = [Node(f"n{index}", 4, 1000.0, memory_mib=4000) for index in range(3)]
MIB = 1024 * 1024


def small(name: str) -> Job:
    return Job(name, (Stage(600_000.0, 1000.0, memory_mib=500),), submit_s=10.0)


def stored(loop: ClosedLoop) -> list[tuple[str, str]]:
    return sorted(record.key for record in loop.store.records() if record.key[0] in ("job", "node"))


@pytest.mark.full
@pytest.mark.parametrize(
    ("exchange", "routing_key"),
    [(topology.REQUESTS, topology.CONTROLLER_QUEUE), (topology.ACTIONS, "n0"), (topology.REPORTS, "report.n0")],
)
@pytest.mark.parametrize("size", [1, 100, 10 * MIB])
def test_garbage_is_dead_lettered_with_its_reason_and_the_loop_goes_on(
    exchange: str, routing_key: str, size: int
) -> None:
    loop = ClosedLoop(NODES, LoopSettings())
    loop.submit(small("before"))
    loop.run_until(100.0)
    before = stored(loop)
    connection = loop.broker.connect("controller.garbage", allow_oversize=True)
    connection.publish(exchange, routing_key, b"\x93" * size)
    loop.run_until(101.0)
    found = loop.broker.dead_letters()
    assert len(found) == (exchange != topology.ACTIONS)  # agents write none
    for dead in found:
        assert dead.reason
        assert dead.size_bytes == size
        assert len(dead.body) <= topology.DEAD_BODY_BYTES_MAX
    assert stored(loop) == before
    loop.submit(replace(small("after"), submit_s=110.0))
    loop.run_until(1_000.0)
    assert set(loop.world.completions) == {"before", "after"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"stages": [{"work_mcycles": -5.0, "max_mhz": 1.0}]},
        {"stages": [{"work_mcycles": float("nan"), "max_mhz": 1.0}]},
        {"stages": [{"work_mcycles": "12", "max_mhz": 1.0}]},
        {"desired_start_s": 50.0, "goal_s": 20.0},
        {"colour": "blue"},
    ],
)
def test_a_submission_with_a_bad_job_is_dead_lettered_and_stores_nothing(wrong: dict[str, object]) -> None:
    loop = ClosedLoop(NODES, LoopSettings())
    loop.run_until(50.0)
    before = stored(loop)
    message = msgpack.unpackb(encode(SubmitJob("r", small("j"))))
    message["b"]["job"] |= wrong
    connection = loop.broker.connect("operator.clumsy")
    connection.publish(topology.REQUESTS, topology.CONTROLLER_QUEUE, msgpack.packb(message))
    loop.run_until(100.0)
    (dead,) = loop.broker.dead_letters()
    assert any(key in dead.reason for key in wrong)
    assert stored(loop) == before


def test_a_job_that_fits_no_node_is_refused_and_stores_nothing() -> None:
    loop = ClosedLoop(NODES, LoopSettings())
    loop.run_until(50.0)
    before = stored(loop)
    loop.submit(Job("huge", (Stage(1.0, 1000.0, memory_mib=4001),), submit_s=60.0))
    loop.submit(Job("wide", (Stage(1.0, 1000.0, memory_mib=1),), submit_s=60.0, instances=4, spread=True))
    refused: dict[str, str] = {}
    loop.operator.on_reply = lambda _request, reply: refused.update({reply.request: reply.code})
    loop.run_until(100.0)
    assert refused == {"submit-huge": "fits-no-node", "submit-wide": "fits-no-node"}
    assert stored(loop) == before
