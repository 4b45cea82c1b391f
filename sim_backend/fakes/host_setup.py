"""Setups of the fake hosts: they take their true time, fail on request, and end with the agent that runs them.

What was done to a host is known here and nowhere else; controllers hear of it from agents.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from shared.ports.effects import HostSetUp, SetUpHost
from shared.values.host_setup import SetupPolicy
from shared.values.nodes import SetupStep
from shared.values.vms import HOLDING_STATES
from sim_backend.fakes.hypervisor import FakeCluster


@dataclass(frozen=True, slots=True)
class SetupTimes:
    """True times in seconds of wiping a host and of a command. Each differs by a factor exp(noise x a normal
    variate); none exceeds the limit of the setup, at which it fails."""

    wipe_s: float = 30.0
    exec_s: float = 20.0
    noise: float = 0.2


@dataclass(frozen=True, slots=True)
class SetupRun:
    """One setup of a host: what it was, when it began and ended. `ok` None: it was interrupted."""

    node: str
    environment: str
    step: SetupStep
    policy: SetupPolicy
    command: str
    request: str
    begun_s: float
    ended_s: float
    ok: bool | None


@dataclass(slots=True)
class _Fault:
    """The next `times` setups of a host fail, saying `output`."""

    times: float
    output: str


class FakeSetups:
    """Carries out setups of a fake cluster's hosts.

    `clock()` gives the time; `later(at_s, call)` schedules a call. `runs` are the completed setups, in order.
    `set_up_with` lists (at_s, node, vm) for each managed VM that was alive on a host when a setup of it began or ended;
    `doubled` lists (at_s, node) for each setup that began while another was in progress. Both must stay empty.
    """

    def __init__(
        self,
        cluster: FakeCluster,
        clock: Callable[[], float],
        later: Callable[[float, Callable[[], None]], None],
        times: SetupTimes | None = None,
        seed: int = 0,
    ) -> None:
        self.cluster, self._clock, self._later = cluster, clock, later
        self.times = times or SetupTimes()
        self.runs: list[SetupRun] = []
        self.set_up_with: list[tuple[float, str, str]] = []
        self.doubled: list[tuple[float, str]] = []
        self._seed = seed
        self._chance: dict[str, Random] = {}
        self._in_progress: dict[str, tuple[SetUpHost, float]] = {}
        self._faults: dict[str, _Fault] = {}
        self._hanging: dict[str, int] = {}

    def fail_next(self, node: str, times: float = 1, output: str = "failed by the script") -> None:
        """Let the next `times` setups of a host fail (0: none any more)."""
        self._faults[node] = _Fault(times, output)

    def hang_next(self, node: str, times: int = 1) -> None:
        """Let the next `times` setups of a host last until their limit, and fail (0: none any more)."""
        self._hanging[node] = times

    def in_progress(self, node: str) -> SetUpHost | None:
        """Return the setup in progress on a host, None when there is none."""
        found = self._in_progress.get(node)
        return None if found is None else found[0]

    def begin(self, node: str, effect: SetUpHost, done: Callable[[HostSetUp], None]) -> None:
        """Begin a setup; `done` is called when it has ended, unless it is interrupted."""
        now_s = self._clock()
        if node in self._in_progress:
            self.doubled.append((now_s, node))
        self._look(node, now_s)
        self._in_progress[node] = (effect, now_s)
        took_s = math.inf if self._hangs(node) else self._time_s(node, effect.setup.policy)
        late = took_s > effect.setup.limit_s

        def ends() -> None:
            if self.in_progress(node) is effect:
                why = f"killed after {effect.setup.limit_s:g} s" if late else self._fault(node)
                self._end(node, not why)
                done(HostSetUp(effect.request, not why, why))

        self._later(now_s + min(took_s, effect.setup.limit_s), ends)

    def interrupt(self, node: str) -> None:
        """End the setup in progress on a host because the agent or the host has died."""
        if node in self._in_progress:
            self._end(node, None)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _end(self, node: str, ok: bool | None) -> None:
        effect, begun_s = self._in_progress.pop(node)
        now_s, setup = self._clock(), effect.setup
        self._look(node, now_s)
        self.runs.append(
            SetupRun(
                node,
                effect.environment,
                effect.step,
                policy=setup.policy,
                command=setup.command,
                request=effect.request,
                begun_s=begun_s,
                ended_s=now_s,
                ok=ok,
            )
        )

    def _look(self, node: str, now_s: float) -> None:
        """Record the managed VMs that are alive while a host is set up; there must be none."""
        domains = self.cluster.hypervisor(node).domains
        alive = [vm for vm, domain in domains.items() if domain.managed and domain.state in HOLDING_STATES]
        self.set_up_with += [(now_s, node, vm) for vm in alive]

    def _fault(self, node: str) -> str:
        fault = self._faults.get(node)
        if fault is None or fault.times <= 0:
            return ""
        fault.times -= 1
        return fault.output

    def _hangs(self, node: str) -> bool:
        left = self._hanging.get(node, 0)
        self._hanging[node] = max(0, left - 1)
        return left > 0

    def _time_s(self, node: str, policy: SetupPolicy) -> float:
        base_s = {SetupPolicy.WIPE: self.times.wipe_s, SetupPolicy.EXEC: self.times.exec_s}.get(policy, 0.0)
        chance = self._chance.setdefault(node, Random(f"{self._seed} setup {node}"))
        return base_s * math.exp(self.times.noise * chance.gauss(0.0, 1.0))
