"""Notifications through the controller: stored before they are sent, asked for by operators, seen in views; and its
shell, which a channel that hangs does not delay."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from daemons.controller.core.controller import Controller
from daemons.drivers.notifiers.webhook import Webhook
from daemons.service.main import ControllerShell, link_of
from daemons.store import SqlStore
from daemons.values.records.notifications import NotificationRecord, trial_id
from daemons.values.settings import NotifyRule, NotifySettings
from shared.base.clock import ManualClock
from shared.ports import effects as fx
from shared.ports.controller import NotifyChannel
from shared.protocol import topology
from shared.protocol.operator_messages import AddNode, DrainNode, DropNotification, Query, RetryNotification, TryChannel
from sim_backend.fakes.store import MemoryStore
from tests.support.controller_harness import ControllerHarness
from tests.support.notify_servers import web_server
from tests.support.operator_harness import Rig
from tests.support.shell_harness import FAST, InlineDecider, RealRig, wait_for
from tests.support.store_samples import sqlite_url

RULES = (NotifyRule(("node-*", "alarm:node-*"), ("ops",)),)
NOTIFY = NotifySettings({"ops": "webhook"}, RULES)


class TellingHarness(ControllerHarness):
    """A harness whose channels answer at once; `told`: what was sent, with what the store had of it at that moment."""

    def __init__(self, store: MemoryStore | None = None, notify: NotifySettings = NOTIFY) -> None:
        self.told: list[tuple[fx.Notify, list[str]]] = []
        self.fails, self.answers = "", list[fx.Notified]()
        super().__init__(store=store, notify=notify)

    def carry(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Notify):
                stored = [self.store.get(("notification", notice.id)) for notice in effect.notices]
                self.told.append((effect, [record.state for record in stored]))
                self.answers.append(fx.Notified(effect.channel, effect.message, not self.fails, True, self.fails))
            else:
                super().carry([effect])

    def settle(self) -> None:
        super().settle()
        while self.answers:
            self.carry(self.controller.handle(self.answers.pop(0), self.now_s))
            super().settle()

    def codes(self) -> list[tuple[str, str]]:
        return [(notice.what, notice.subject) for effect, _ in self.told for notice in effect.notices]

    def states(self) -> dict[str, str]:
        """By code, as stored."""
        return {it.what: it.state for it in self.store.records() if isinstance(it, NotificationRecord)}


def led(**keys: Any) -> TellingHarness:
    harness = TellingHarness(**keys)
    harness.lead()
    return harness


def test_what_happens_is_in_the_store_before_it_is_told_and_afterwards_as_sent() -> None:
    harness = led()

    assert ("node-added", "n1") in harness.codes()
    assert {state for _, states in harness.told for state in states} == {"waiting"}
    assert set(harness.states().values()) == {"sent"}


def test_a_silent_node_is_an_alarm_that_is_told_and_told_to_be_over() -> None:
    harness = led()
    harness.wait(60.0, ["n1", "n2"])
    harness.told.clear()
    harness.wait(60.0, ["n1"])
    assert ("alarm:node-unreachable", "n2") in harness.codes()
    assert ("alarm:node-unreachable", "n1") not in harness.codes()
    harness.wait(600.0, ["n1", "n2"])

    assert ("cleared:node-unreachable", "n2") in harness.codes()


def test_a_new_leader_goes_on_and_tells_no_standing_alarm_again() -> None:
    before = led()
    before.wait(120.0, ["n1"])
    assert before.codes().count(("alarm:node-unreachable", "n2")) == 1
    after = TellingHarness(store=before.store)
    after.now_s = before.now_s
    after.carry(after.controller.start(after.now_s))
    after.wait(300.0, ["n1"])

    assert ("alarm:node-unreachable", "n2") not in after.codes()


def test_what_was_given_up_is_an_alarm_a_view_and_an_operators_to_deal_with() -> None:
    harness = led()
    harness.fails = "410 gone"
    assert harness.ask(DrainNode("d", "n1", True)).done
    harness.wait(30.0, ["n1", "n2"])
    data = harness.ask(Query("q", "notifications", "dead")).data
    (row,) = [row for row in data["notifications"] if row["what"] == "node-draining"]
    alarms = {alarm["what"]: alarm for alarm in harness.ask(Query("s", "status")).data["alarms"]}
    assert (row["error"], data["channels"][0]["error"]) == ("410 gone", "410 gone")
    assert alarms["notifications-dead"]["subject"] == "ops"

    harness.fails = ""
    assert harness.ask(RetryNotification("r", row["id"])).done
    assert harness.states()["node-draining"] == "sent"
    refused = harness.ask(DropNotification("x", "nothing"))
    assert (refused.done, refused.code) == (False, "unknown-notification")
    for number, each in enumerate(harness.ask(Query("q2", "notifications", "dead")).data["notifications"]):
        assert harness.ask(DropNotification(f"drop-{number}", each["message"])).done or number
    assert harness.ask(Query("q3", "notifications", "dead")).data["total"] == 0


def test_a_view_of_a_state_that_there_is_not_is_refused() -> None:
    refused = led().ask(Query("q", "notifications", "ded"))

    assert refused.code == "invalid-value"
    assert "'dead'" in refused.detail


def test_owners_neither_see_nor_try_channels() -> None:
    harness = led()
    for request in (Query("q", "notifications"), TryChannel("t", "ops"), DropNotification("d", "x")):
        harness.say(request, topology.OWNER_USER_PREFIX + "acme")
        assert harness.replies[-1].code == "not-allowed"


# --- the store ------------------------------------------------------------------------------------------------------


def record(name: str, at_s: float, what: str, state: str = "sent") -> NotificationRecord:
    return NotificationRecord(
        name,
        at_s,
        "ops",
        what=what,
        subject="n1",
        detail="why",
        state=state,
        tries=1,
        next_s=5.0 if state == "waiting" else None,
        error="",
    )


def test_a_new_leader_is_given_what_is_open_and_what_tells_of_alarms(tmp_path: Path) -> None:
    kept = (
        record("1-1-1.0", 1.0, "node-failed", "dead"),
        record("1-2-1.0", 2.0, "node-failed", "waiting"),
        record("1-3-1.0", 3.0, "alarm:node-unreachable"),
        record("1-4-1.0", 4.0, "cleared:node-unreachable", "dropped"),
    )
    with closing(SqlStore(sqlite_url(tmp_path / "store.db"), ManualClock(10.0))) as store:
        term = store.take_lead("a").term
        store.write(term, (record("1-1-1.0", 1.0, "node-failed", "waiting"), record("1-5-1.0", 5.0, "leading")))
        store.write(term, kept)
        assert store.take_lead("b").image == kept


# --- the shell ------------------------------------------------------------------------------------------------------


class Hangs:
    """A channel that does not answer before it is let go; then it raises what no channel should."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def send(self, message: fx.Notify) -> str:
        self.begun.set()
        self.go.wait(20.0)
        raise ZeroDivisionError(f"secret {message.message}")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[RealRig]:
    made = RealRig(tmp_path)
    yield made
    made.end()


def test_a_channel_that_hangs_delays_neither_the_loop_nor_other_channels(rig: RealRig) -> None:
    """Given one channel that hangs and a webhook, when nodes are added, then requests are answered and the hook is
    told meanwhile; and what the first one raises in the end is an answer, without its words."""
    hangs = Hangs()
    rule = replace(RULES[0], channels=("slow", "hook"))
    settings = replace(FAST, notify=NotifySettings({"slow": "own", "hook": "webhook"}, (rule,), attempts_max=1))
    core = Controller("a", settings)
    with web_server() as web:
        channels: dict[str, NotifyChannel] = {
            "slow": hangs,
            "hook": Webhook("w", {"url": f"http://127.0.0.1:{web.port}/"}),
        }
        link = link_of("a", lambda: rig.bus.connect(topology.CONTROLLER_USER_PREFIX + "a"))
        shell = ControllerShell(core, link, rig.store, InlineDecider(), seed=1, clock=rig.clock, channels=channels)
        rig._started(shell)
        for node in ("n1", "n2"):
            rig.agent(node)
            assert rig.ask(DrainNode(f"no-{node}", node, True)).code == "unknown-node"
        assert rig.ask(AddNode("add", "n1")).done
        wait_for(hangs.begun.is_set)
        assert rig.ask(AddNode("add-2", "n2")).done
        wait_for(lambda: len(web.received) >= 2)
        assert not hangs.go.is_set()
        hangs.go.set()
        wait_for(lambda: rig.ask(Query("q", "notifications", "dead")).data["notifications"])
    dead = rig.ask(Query("q2", "notifications", "dead")).data["notifications"]

    # of what comes after the web server has gone the hook's messages may be dead, too
    assert {row["error"] for row in dead if row["channel"] == "slow"} == {"ZeroDivisionError in Hangs"}
    assert "secret" not in rig.log.getvalue()


# --- commands -------------------------------------------------------------------------------------------------------


def test_the_commands_list_retry_drop_and_test() -> None:
    rig = Rig(notify=NOTIFY)
    shell = rig.loop.controllers["a"]
    fails = True

    def notify(effect: fx.Notify) -> fx.Notified:
        return fx.Notified(effect.channel, effect.message, not fails, fails, "the pager is gone" if fails else "")

    shell.notify = notify
    rig.run(5.0)
    tried = rig.trimtab("notifications", "test", "ops", "--output", "json")
    assert tried.exit_code == 1
    assert "the pager is gone" in tried.stdout
    assert rig.refused("notifications", "test", "opps")["code"] == "unknown-channel"
    assert rig.trimtab("nodes", "drain", "n1", "n2").exit_code == 0
    rig.run(5.0)
    dead = rig.asked("notifications", "list", "--dead")["notifications"]
    assert {row["subject"] for row in dead} >= {"n1", "n2"}
    assert "the pager is gone" in rig.trimtab("notifications", "list").output

    fails = False
    assert rig.asked("notifications", "test", "ops")["done"] is True
    one = dead[0]["message"]
    assert rig.asked("notifications", "retry", one) == {"done": [one], "refused": []}
    rest = rig.asked("notifications", "drop", "--all")["done"]
    assert one not in rest
    assert rig.asked("notifications", "list", "--dead")["total"] == 0
    states = {row["message"]: row["state"] for row in rig.asked("notifications", "list")["notifications"]}
    assert (states[one], {states[each] for each in rest}) == ("sent", {"dropped"} if rest else set())
    assert rig.trimtab("notifications", "retry").exit_code == 2
    assert trial_id("id-1").startswith("test-")
