"""Has instances of web applications fall ill in a closed loop, and checks that unhealthy ones are replaced as they may:
none that was well, and no more in an hour than their application's probe says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from shared.ports import effects as fx
from shared.protocol.messages import Happened
from shared.values.jobs import workload_of
from shared.values.vms import VmState
from sim_backend.faults.health import IllKind, Illness
from sim_backend.faults.invariants.apps import vms_of
from sim_backend.loop.closed_loop import ClosedLoop

HOUR_S = 3_600.0
PRIORITY = 5


class Illnesses:
    """Carries out the illnesses of applications, each when its time has come; `done` counts them."""

    def __init__(self, loop: ClosedLoop, done: Counter[str]) -> None:
        self._loop, self._done = loop, done

    def schedule(self, app: str, illnesses: tuple[Illness, ...]) -> None:
        """Have an application's instances fall ill."""
        for illness in illnesses:
            self._at(illness.at_s, partial(self._begin, app, illness))

    def repair(self) -> None:
        """Everybody is well again."""
        monitor = self._loop.fake_monitor
        monitor.apps.clear()
        monitor.lives.clear()
        monitor.hangs.clear()

    def _at(self, at_s: float, call: Callable[[], None]) -> None:
        self._loop.engine.at(at_s, PRIORITY, call)

    def _begin(self, app: str, illness: Illness) -> None:
        monitor = self._loop.fake_monitor
        if illness.kind is IllKind.APP:
            monitor.app_falls_ill(app)
            self._at(illness.until_s, lambda: monitor.apps.discard(app))
        else:
            running = sorted(vm for vm, _, state in vms_of(self._loop, app) if state is VmState.RUNNING)
            if not running:
                return
            vm = running[illness.number % len(running)]
            monitor.fall_ill(vm)
            if illness.kind is IllKind.HANGS:
                monitor.hangs.add(vm)
        self._done[illness.kind.value] += 1


class HealthChecks:
    """What must hold for replacements, by what leading controllers make known once it is stored."""

    def __init__(self, loop: ClosedLoop, report: Callable[[str, str], None]) -> None:
        self._loop, self._report = loop, report
        self._replaced_s: dict[str, list[float]] = {}

    def on_effect(self, effect: fx.Effect) -> None:
        """Check an effect that a controller is about to carry out."""
        if type(effect) is not fx.Publish or type(effect.message) is not Happened:
            return
        event = effect.message
        if event.what == "web-instance-replaced":
            self._look(event.subject, event.at_s)

    def _look(self, vm: str, at_s: float) -> None:
        app = workload_of(vm)[0]
        if not self._loop.fake_monitor.was_ill(vm):
            self._report("well-replaced", f"{vm} was never ill")
        times_s = self._replaced_s.setdefault(app, [])
        times_s.append(at_s)
        probe = self._loop.apps[app].probe
        most = probe.replace_max if probe is not None else 0
        recent = sum(one_s > at_s - HOUR_S for one_s in times_s)
        if recent > most:
            self._report("replaced-too-often", f"{app}: {recent} within an hour, may be {most}")
