"""The application monitor of an agent: which instances are probed when, and what reports say of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from agents.core.health_monitor import PROBES_MAX, TIMER
from shared.ports.effects import (
    DeadLetter,
    Effect,
    GuestChanged,
    Operated,
    Probed,
    ProbeInstance,
    StartTimer,
    TimerFired,
)
from shared.protocol.messages import Hello, Watch
from shared.values.actions import ActionKind, GuestChange, Outcome
from shared.values.health import NO_ADDRESS, Health, Probe, ProbeKind, Target
from shared.values.vms import VmState, VmStatus
from tests.support.agent_harness import SETTINGS, Rig, action, only, report, vm

PROBE = Probe(ProbeKind.TCP, 80, period_s=2.0, fall=3, rise=2, grace_s=0.0)
HOME = "192.0.2.1"
SHOP = "shop#0"


def target(name: str = SHOP, generation: int = 1, probe: Probe = PROBE) -> Target:
    return Target(name, generation, probe)


class Scene(Rig):
    """An agent's rig whose readings, timers and probes go by themselves: `ill` are VMs that do not answer."""

    def __init__(self, *vms: VmStatus, address: str = HOME) -> None:
        super().__init__(settings=replace(SETTINGS, address=address))
        self.vms = list(vms)
        self.ill: set[str] = set()
        self.asked: list[tuple[float, str, str]] = []
        self.timer_s: float | None = None
        self.report_s = self.now_s
        self.last = report(self.observed(*self.vms))

    def take(self, effects: list[Effect]) -> list[Effect]:
        """Keep the timer for probes."""
        for timer in only(effects, StartTimer):
            if timer.name == TIMER:
                self.timer_s = timer.at_s
        return effects

    def watch(self, *targets: Target, number: int = 1, term: int = 1) -> list[Effect]:
        return self.take(self.send(Watch(term, number, targets)))

    def answer(self, effects: list[Effect]) -> None:
        """Answer what is asked for, and what is asked for then."""
        for probe in only(effects, ProbeInstance):
            name = probe.target.vm
            self.asked.append((self.now_s, name, probe.address))
            ok = name not in self.ill
            self.take(self.handle(Probed(name, probe.target.generation, ok, "" if ok else "refused")))

    def look(self) -> None:
        """A report."""
        self.handle(TimerFired("report"))
        effects = self.take(self.observed(*self.vms))
        self.last = report(effects)

    def wait(self, seconds: float) -> None:
        """Let time pass: probes when they are due, a report every 5 s."""
        until_s = self.now_s + seconds
        while True:
            at_s = min(until_s, self.report_s + 5.0, until_s if self.timer_s is None else self.timer_s)
            self.now_s = max(self.now_s, at_s)
            if self.timer_s is not None and self.timer_s <= self.now_s:
                self.timer_s = None
                self.answer(self.take(self.handle(TimerFired(TIMER))))
            elif self.report_s + 5.0 <= self.now_s:
                self.report_s = self.now_s
                self.look()
            else:
                return

    def health(self, name: str = SHOP) -> Health:
        """What the last report says of an instance."""
        self.look()
        (found,) = [row for row in self.last.health if row.vm == name]
        return found


def watched(*vms: VmStatus, probe: Probe = PROBE, address: str = HOME) -> Scene:
    """A node on which instances are watched."""
    vms = vms or (vm(SHOP),)
    scene = Scene(*vms, address=address)
    scene.watch(*(target(each.vm, each.generation, probe) for each in vms))
    return scene


def test_an_instance_is_probed_every_period_and_told_in_every_report() -> None:
    scene = watched()
    assert scene.health() == Health(SHOP, 1, True, 100.0, "", 0)
    scene.wait(20.0)
    times = [at_s for at_s, _, _ in scene.asked]
    assert len(times) == 10
    assert all(b - a == pytest.approx(2.0) for a, b in pairwise(times))
    assert {address for _, _, address in scene.asked} == {HOME}
    assert (scene.health().probes, scene.last.watch) == (10, 1)


def test_it_is_unhealthy_after_so_many_failures_and_healthy_after_so_many_answers() -> None:
    scene = watched()
    scene.wait(10.0)
    scene.ill.add(SHOP)
    scene.wait(4.0)
    assert (scene.health().healthy, scene.health().detail) == (True, "refused")
    scene.wait(2.0)
    told = scene.health()
    assert (told.healthy, told.detail, told.since_s > 110.0) == (False, "refused", True)
    scene.ill.clear()
    scene.wait(2.0)
    assert not scene.health().healthy
    scene.wait(2.0)
    assert (scene.health().healthy, scene.health().detail) == (True, "")


def test_failures_in_its_first_time_do_not_count() -> None:
    scene = watched(probe=replace(PROBE, grace_s=30.0))
    scene.ill.add(SHOP)
    scene.wait(29.0)
    assert (scene.health().healthy, scene.health().detail) == (True, "refused")
    scene.wait(7.0)
    assert not scene.health().healthy


def test_one_answer_ends_the_first_time() -> None:
    scene = watched(probe=replace(PROBE, grace_s=1_000.0))
    scene.wait(4.0)
    scene.ill.add(SHOP)
    scene.wait(6.0)
    assert not scene.health().healthy


@pytest.mark.parametrize(
    "change",
    [
        {"state": VmState.PAUSED},
        {"state": VmState.INCOMING},
        {"generation": 2},
        {"busy": "migrate"},
        {"managed": False},
    ],
)
def test_only_a_vm_of_that_life_that_runs_is_probed(change: dict[str, Any]) -> None:
    scene = Scene(vm(SHOP, **change))
    scene.watch(target())
    scene.wait(30.0)
    assert (scene.asked, scene.last.health, scene.last.watch) == ([], (), 1)


def test_failures_before_and_after_a_pause_are_not_in_a_row() -> None:
    scene = watched()
    scene.ill.add(SHOP)
    scene.wait(3.0)
    scene.vms = [vm(SHOP, VmState.PAUSED)]
    scene.look()
    scene.wait(10.0)
    assert scene.last.health == ()
    scene.vms = [vm(SHOP)]
    scene.look()
    scene.wait(3.9)
    assert scene.health().healthy
    scene.wait(2.0)
    assert not scene.health().healthy


def test_nothing_is_asked_or_counted_while_an_action_is_in_progress() -> None:
    """Given a stop that takes long: its instance does not answer any more, and that says nothing."""
    scene = watched()
    scene.wait(10.0)
    asked = len(scene.asked)
    scene.ill.add(SHOP)
    scene.order(action(1, ActionKind.STOP, SHOP, expects=1))
    scene.wait(30.0)
    assert (len(scene.asked), scene.health().healthy) == (asked, True)


def test_after_an_action_or_an_event_the_next_reading_tells() -> None:
    scene = watched()
    scene.wait(10.0)
    stop = action(1, ActionKind.STOP, SHOP, expects=1)
    scene.now_s = 110.5
    scene.order(stop)
    scene.handle(Operated(stop.id, Outcome.OK))
    asked = len(scene.asked)
    scene.vms = []
    scene.wait(20.0)
    assert (len(scene.asked), scene.last.health) == (asked, ())

    other = watched()
    other.handle(GuestChanged(GuestChange.ENDED, vm(SHOP, VmState.ENDED)))
    other.watch(target(), number=2)  # a list that comes before the next reading does not bring it back
    other.vms = []
    other.wait(20.0)
    assert other.asked == []


def test_a_probe_that_is_in_progress_is_not_asked_for_again() -> None:
    scene = watched()
    scene.now_s = scene.timer_s or 0.0
    (first,) = only(scene.handle(TimerFired(TIMER)), ProbeInstance)
    scene.now_s += 10.0
    assert only(scene.handle(TimerFired(TIMER)), ProbeInstance) == []
    scene.take(scene.handle(Probed(first.target.vm, 1, True)))
    assert scene.timer_s == scene.now_s


def test_no_more_than_so_many_at_a_time_and_those_that_waited_longest_first() -> None:
    names = [f"shop#{index}" for index in range(20)]
    scene = watched(*(vm(name) for name in names))
    scene.now_s += 10.0
    first = [probe.target.vm for probe in only(scene.handle(TimerFired(TIMER)), ProbeInstance)]
    assert len(first) == PROBES_MAX
    scene.handle(Probed(first[0], 1, True))
    (ninth,) = only(scene.handle(TimerFired(TIMER)), ProbeInstance)
    assert ninth.target.vm not in first


def test_probes_of_one_list_are_spread_over_the_period() -> None:
    scene = watched(*(vm(f"shop#{index}") for index in range(40)), probe=replace(PROBE, period_s=40.0))
    scene.wait(40.0)
    tenths = {int((at_s - 100.0) / 4.0) for at_s, _, _ in scene.asked}
    assert len(scene.asked) == 40
    assert len(tenths) >= 8


def test_answers_that_come_too_late_or_to_another_question_say_nothing() -> None:
    scene = watched(probe=replace(PROBE, fall=1))
    scene.now_s = scene.timer_s or 0.0
    scene.handle(TimerFired(TIMER))
    scene.watch(target(probe=replace(PROBE, fall=1, port=81)), number=2)
    scene.handle(Probed(SHOP, 1, False, "refused"))
    scene.handle(Probed(SHOP, 1, False, "never asked for"))
    scene.handle(Probed("other#0", 1, False, "never asked for"))
    assert scene.health() == Health(SHOP, 1, True, 100.0 + (scene.now_s - 100.0), "", 0)


def test_the_address_is_the_vms_own_then_the_nodes() -> None:
    scene = watched(vm(SHOP, address="10.0.0.7"))
    scene.wait(4.0)
    assert {address for _, _, address in scene.asked} == {"10.0.0.7"}


def test_without_an_address_nothing_is_probed_and_the_report_says_so() -> None:
    scene = watched(address="")
    scene.wait(20.0)
    assert scene.asked == []
    assert scene.health() == Health(SHOP, 1, True, 100.0, NO_ADDRESS, 0)


def test_what_cannot_be_found_out_changes_nothing() -> None:
    scene = watched(probe=replace(PROBE, fall=1))
    for _ in range(3):
        scene.now_s += 2.0
        scene.handle(TimerFired(TIMER))
        scene.handle(Probed(SHOP, 1, True, "unknown command"))
    assert scene.health() == Health(SHOP, 1, True, 100.0, "unknown command", 3)


# --- lists -----------------------------------------------------------------------------------------------------------


def test_a_list_replaces_the_one_before_and_keeps_what_is_known() -> None:
    scene = watched(vm(SHOP), vm("shop#1"))
    scene.wait(10.0)
    scene.watch(target(), number=2)
    assert scene.health().probes >= 4
    assert [row.vm for row in scene.last.health] == [SHOP]
    asked = len(scene.asked)
    scene.wait(10.0)
    assert {name for _, name, _ in scene.asked[asked:]} == {SHOP}


@pytest.mark.parametrize(("number", "term"), [(2, 1), (1, 1), (9, 0)])
def test_a_list_that_is_not_newer_is_not_followed(number: int, term: int) -> None:
    scene = Scene(vm(SHOP))
    scene.watch(target(), number=2, term=1)
    scene.watch(number=number, term=term)
    scene.look()
    assert ([row.vm for row in scene.last.health], scene.last.watch) == ([SHOP], 2)


def test_a_new_leader_numbers_anew_and_what_it_has_not_replaced_is_not_its_own() -> None:
    """Given a list of an earlier leader: it is followed until the new one sends its own, under no number."""
    scene = watched()
    scene.send(Hello(2))
    scene.observed(*scene.vms)
    scene.wait(5.0)
    assert ([row.vm for row in scene.last.health], scene.last.watch, scene.last.term) == ([SHOP], 0, 2)
    scene.watch(number=1, term=2)
    scene.look()
    assert (scene.last.health, scene.last.watch) == ((), 1)


def test_a_term_is_heard_from_a_list_too() -> None:
    scene = Scene()
    scene.watch(number=1, term=7)
    scene.look()
    assert (scene.last.term, scene.last.watch) == (7, 1)


def test_only_controllers_say_what_to_watch() -> None:
    scene = Scene(vm(SHOP))
    refused = scene.send(Watch(1, 1, (target(),)), "operator.alice")
    scene.look()
    assert only(refused, DeadLetter)
    assert scene.last.watch == 0


def test_an_agent_that_begins_anew_watches_nothing() -> None:
    scene = watched()
    scene.restart()
    scene.last = report(scene.observed(*scene.vms))
    assert (scene.last.health, scene.last.watch) == ((), 0)
