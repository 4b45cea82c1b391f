"""Instances of web applications that run and do not serve, in the closed loop: found by agents, replaced within limits
by controllers; and bugs planted in that, which fault runs must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agents.core.agent import Agent
from agents.core.settings import AgentSettings
from daemons.controller.core.controller import Controller
from daemons.controller.state.web_app import WebEntry
from daemons.controller.web.feature import WebFeature
from daemons.values.settings import ControllerSettings, PolicyChoice
from shared.ports.effects import Effect, Input, Probed, Publish
from shared.protocol.messages import Happened
from shared.values.health import Probe, ProbeKind
from shared.values.nodes import Node
from shared.values.vms import VmState
from shared.values.web_app import Flow, WebApp
from sim_backend.faults.invariants.apps import vms_of
from sim_backend.faults.run import run_script
from sim_backend.faults.script import write_environments, write_script
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from sim_backend.loop.shells import ControllerShell
from sim_backend.world.demand import constant
from sim_backend.world.web_site import TrueFlow, TrueWeb
from tests.support import parts

NODES = [Node(f"n{index}", 4, 1_000.0, memory_mib=4_000) for index in range(4)]
WORK_MCYCLES = 40.0
PROBE = Probe(ProbeKind.HTTP, 8080, period_s=5.0, fall=3, rise=2, grace_s=30.0, replace_max=2)
BEGUN_S = 600.0
SEEDS_MAX = 20


def loop(least: int = 2, probe: Probe = PROBE, controllers: tuple[str, ...] = ("a",)) -> ClosedLoop:
    """Two instances of an application that has served for ten minutes."""
    controller = ControllerSettings(decide_s=300.0, unreachable_after_s=30.0, placement=PolicyChoice("first-fit"))
    agent = AgentSettings(address="192.0.2.1")
    made = ClosedLoop(NODES, LoopSettings(controller, agent, controllers))
    flow = Flow("browse", mean_s=0.5, work_mcycles=WORK_MCYCLES, t_min_s=0.01)
    app = WebApp("shop", (flow,), 1_000, max_mhz=4_000.0, min_instances=least, max_instances=3, vcpus=4, probe=probe)
    truth = TrueWeb((TrueFlow("browse", constant(50.0), WORK_MCYCLES, 0.01),), noise_frac=0.0)
    made.submit_web(app, truth)
    made.run_until(BEGUN_S)
    return made


def serving(made: ClosedLoop) -> list[str]:
    """Instances that run and are well."""
    found = [vm for vm, _, state in vms_of(made, "shop") if state is VmState.RUNNING]
    return sorted(vm for vm in found if not made.fake_monitor.is_ill(vm))


def served_per_s(made: ClosedLoop) -> float:
    return made.balancers["shop"].site.looks[-1].served_per_s


def told(made: ClosedLoop) -> list[tuple[float, str, str]]:
    """What controllers make known of instances from now on."""
    found: list[tuple[float, str, str]] = []

    def on_effect(_shell: ControllerShell, effect: Effect) -> None:
        if isinstance(effect, Publish) and isinstance(effect.message, Happened):
            event = effect.message
            if event.what.startswith("web-instance-"):
                found.append((event.at_s, event.what.removeprefix("web-instance-"), event.subject))

    for controller in made.controllers.values():
        controller.on_effect = on_effect
    return found


def times(events: list[tuple[float, str, str]], what: str) -> list[float]:
    return [at_s for at_s, event, _ in events if event == what]


def test_an_instance_that_turns_unhealthy_is_replaced_and_serves_again() -> None:
    """Given one instance of one, which hangs: within fall x period, a report and a start another one serves."""
    made = loop(least=1)
    assert served_per_s(made) == pytest.approx(50.0, rel=0.1)
    events = told(made)
    made.fake_monitor.fall_ill("shop#0")
    made.fake_monitor.hangs.add("shop#0")
    made.run_until(BEGUN_S + 10.0)
    assert serving(made) == []
    made.run_until(BEGUN_S + 120.0)

    assert [event for _, event, _ in events] == ["unhealthy", "stopped", "replaced", "started"]
    assert times(events, "replaced")[0] - BEGUN_S <= 3 * (PROBE.period_s + PROBE.limit_s) + 5.0
    assert len(serving(made)) == 1
    assert served_per_s(made) == pytest.approx(50.0, rel=0.1)


def test_the_other_instance_goes_on_meanwhile() -> None:
    made = loop()
    made.fake_monitor.fall_ill("shop#1")
    for _ in range(24):
        made.run_until(made.engine.now_s + 5.0)
        assert "shop#0" in serving(made)
    assert len(serving(made)) == 2


@pytest.mark.full
def test_a_common_cause_does_not_churn_an_application() -> None:
    """Given an application all of whose instances are ill whatever is done, for two hours, while leaders change: at
    most two are replaced in an hour, one after the other; then all is well without anybody's doing."""
    made = loop(controllers=("a", "b"))
    events = told(made)
    made.fake_monitor.app_falls_ill("shop")
    for turn in range(8):
        made.run_until(BEGUN_S + 900.0 * (turn + 1))
        made.controllers["ab"[turn % 2]].restart()
    made.fake_monitor.apps.clear()
    made.run_until(BEGUN_S + 7_500.0)

    replaced = times(events, "replaced")
    assert 4 <= len(replaced) <= 6
    assert all(third - first >= 3_600.0 for first, third in zip(replaced, replaced[2:], strict=False))
    assert len(serving(made)) == 2
    assert served_per_s(made) == pytest.approx(50.0, rel=0.1)


def test_a_node_that_is_silent_is_not_taken_for_ill() -> None:
    """Given an agent that is dead: what it last said stands, and nothing on its node is replaced."""
    made = loop()
    events = told(made)
    node = next(node for vm, node, _ in vms_of(made, "shop") if vm == "shop#1")
    made.agents[node].kill()
    made.fake_monitor.fall_ill("shop#1")
    made.run_until(BEGUN_S + 600.0)
    assert times(events, "replaced") == []
    made.agents[node].restart()
    made.run_until(BEGUN_S + 900.0)
    assert len(times(events, "replaced")) == 1
    assert len(serving(made)) == 2


def test_an_agent_that_begins_anew_is_told_what_to_watch() -> None:
    made = loop()
    node = next(node for vm, node, _ in vms_of(made, "shop") if vm == "shop#1")
    events = told(made)
    made.agents[node].restart()
    made.run_until(BEGUN_S + 60.0)
    made.fake_monitor.fall_ill("shop#1")
    made.run_until(BEGUN_S + 120.0)
    assert len(times(events, "replaced")) == 1


# --- scripts, and bugs that are planted ------------------------------------------------------------------------------


def test_scripts_have_probes_and_illnesses_of_every_kind() -> None:
    scripts = [write(seed) for seed in range(30) for write in (write_script, write_environments)]
    apps = [each for script in scripts for each in script.apps]
    probes = [each.app.probe for each in apps if each.app.probe is not None]
    assert 0.5 < len(probes) / len(apps) < 1.0
    assert all(each.changed is None or each.changed.probe == each.app.probe for each in apps)
    assert all(bool(each.illnesses) is (each.app.probe is not None) for each in apps)
    assert {illness.kind.value for each in apps for illness in each.illnesses} == {
        "instance-ill",
        "instance-hangs",
        "application-ill",
    }
    assert {probe.replace_max for probe in probes} == {0, 1, 2, 4}


class TirelessController(Controller):
    """Replaces unhealthy instances however many there were."""

    def __init__(self, name: str, settings: ControllerSettings) -> None:
        super().__init__(name, settings)
        health = parts.feature(self, WebFeature).health
        held = health._held

        def counts_nothing(web: WebEntry, now_s: float) -> str:
            why = held(web, now_s)
            return "" if why.startswith("replacements used up") else why

        health._held = counts_nothing  # type: ignore[method-assign]


class ForgetfulController(Controller):
    """A new leader does not know what was replaced before it led."""

    def _lead(self, answer: Any, now_s: float) -> list[Effect]:
        bare = tuple(replace(one, replaced_s=()) if hasattr(one, "replaced_s") else one for one in answer.image or ())
        return super()._lead(replace(answer, image=bare) if answer.image is not None else answer, now_s)


class HypochondriacAgent(Agent):
    """Takes what has answered twenty probes for ill."""

    def handle(self, event: Input, now_s: float) -> list[Effect]:
        effects = super().handle(event, now_s)
        if isinstance(event, Probed):
            for watched in self._watching._watched.values():
                if watched.verdict is not None and watched.verdict.probes > 20:
                    watched.verdict.healthy = False
        return effects


def with_controller(make: Any) -> Callable[[LoopSettings], LoopSettings]:
    return lambda settings: replace(settings, make_controller=make)


def found(invariant: str, change: Callable[[LoopSettings], LoopSettings], ill: bool = True) -> bool:
    """Whether fault runs of a few seeds, with their illnesses or without, find what was planted."""
    for seed in range(SEEDS_MAX):
        script = write_script(seed)
        apps = script.apps if ill else tuple(replace(each, illnesses=()) for each in script.apps)
        if any(each.app.probe is not None and each.app.probe.replace_max for each in apps):
            outcome = run_script(replace(script, apps=apps), change)
            if invariant in {violation.invariant for violation in outcome.violations}:
                return True
    return False


@pytest.mark.full
def test_who_replaces_without_counting_is_found() -> None:
    assert found("replaced-too-often", with_controller(TirelessController))


@pytest.mark.full
def test_who_forgets_what_earlier_leaders_have_replaced_is_found() -> None:
    assert found("replaced-too-often", with_controller(ForgetfulController))


@pytest.mark.full
def test_who_replaces_what_is_well_is_found() -> None:
    assert found("well-replaced", lambda settings: replace(settings, make_agent=HypochondriacAgent), ill=False)
