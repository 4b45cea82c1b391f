"""One account sends more than anybody needs: the leader stays, other nodes too, and operators are answered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shared.ports.bus import Delivery
from shared.protocol.codec import decode
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import Query
from shared.protocol.topology import CONTROLLER_QUEUE, REPORTS, REQUESTS, RESULTS, reply_queue, report_key
from tests.security.attacks import FITTING_VMS, LARGE_VMS, costly_report, query
from tests.support.shell_harness import RealRig, wait_for

ANSWER_S = 2.0
LARGE = costly_report("n1", LARGE_VMS)
FITTING = costly_report("n1", FITTING_VMS)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[RealRig]:
    made = RealRig(tmp_path, nodes=2)
    made.start()
    wait_for(lambda: all(row["schedulable"] for row in made.ask(Query("begin", "nodes")).data["nodes"]))
    yield made
    made.end()


def flood(
    rig: RealRig, user: str, count: int, exchange: str, key: str, body: Callable[[int], bytes]
) -> threading.Thread:
    """Somebody sends so many messages as fast as can be."""
    connection = rig.bus.connect(user, allow_oversize=True)

    def send() -> None:
        for number in range(count):
            connection.publish(exchange, key, body(number), None, f"reply.{user}")

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def all_is_well(rig: RealRig, culprit: str, flooding: threading.Thread) -> None:
    """While it lasts and after: the leader leads, the other node is used, answers come, the alarm names who it is."""
    leader = rig.running[0]
    for number in range(8):
        begun_s = rig.clock.monotonic_s()
        status = rig.ask(Query(f"look-{culprit}-{number}", "status")).data
        assert rig.clock.monotonic_s() - begun_s <= ANSWER_S
        rig.clock.sleep(0.25)
    flooding.join()
    assert leader.exit_status is None
    assert leader.shell.core.leadership.term == 1  # type: ignore[attr-defined]
    nodes = {row["name"]: row for row in rig.ask(Query("nodes", "nodes")).data["nodes"]}
    assert nodes["n2"]["schedulable"]
    assert not [line for line in rig.lines("happened") if line["what"] == "clock-skewed"]
    assert culprit in [alarm["subject"] for alarm in status["alarms"] if alarm["what"] == "message-refused"]


@pytest.mark.parametrize("body", [LARGE, FITTING], ids=["1.6 MB", "0.8 MB"])
@pytest.mark.parametrize(
    ("user", "exchange", "key"),
    [
        ("user.tom", REQUESTS, CONTROLLER_QUEUE),
        ("agent.n1", RESULTS, CONTROLLER_QUEUE),
        ("agent.n1", REPORTS, report_key("n1")),
    ],
)
def test_large_messages_that_cost_much_to_read(user: str, exchange: str, key: str, body: bytes, rig: RealRig) -> None:
    all_is_well(rig, user, flood(rig, user, 600, exchange, key, lambda _: body))


def test_many_small_questions(rig: RealRig) -> None:
    """Whoever asks too much learns it."""
    answers = rig.bus.connect("user.tom")
    answers.declare(reply_queue("user.tom"))
    answers.consume("reply.user.tom", 1, acknowledged=False)
    all_is_well(rig, "user.tom", flood(rig, "user.tom", 20_000, REQUESTS, CONTROLLER_QUEUE, query))
    deliveries = [event for event in answers.poll(1.0) if isinstance(event, Delivery)]
    while len(deliveries) < 1_000 and (more := answers.poll(0.1)):
        deliveries += [event for event in more if isinstance(event, Delivery)]
    replies = [decode(each.body) for each in deliveries]
    busy = [reply for reply in replies if isinstance(reply, Reply) and reply.code == "busy"]
    assert busy
    assert "beyond its share" in busy[0].detail
