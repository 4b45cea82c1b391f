"""Fencing, against what it must be: proof if and only if some method's status said off after its off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from daemons.config.fencing import FencingMethod
from daemons.drivers.fencing import FencingPower, Method, Reading
from daemons.drivers.fencing.agent import FenceAgent, PowerState
from shared.base.errors import TransientError
from shared.ports.controller import PowerAnswer
from shared.runtime.subprocesses import Ended
from shared.values.nodes import PowerOperation


@dataclass(frozen=True)
class Try:
    """What an agent does at one attempt: how `off` ends (None: killed), and what `status` says. `missing`:
    the program cannot be run."""

    off: int | None
    status: PowerState
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Scripted(FenceAgent):
    """An agent that follows a script; `log` keeps what it was asked and what its status said."""

    tries: list[Try] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def run(self, action: str, options: Mapping[str, str], password: str = "") -> Ended:
        del options, password
        assert action == "off"
        if self.tries[0].missing:
            self.tries.pop(0)
            raise TransientError("it cannot be run")
        self.log.append("switched")
        status = self.tries[0].off
        if status is not None and status > 1:
            self.tries.pop(0)
        return Ended(status == 0, f"exit status {status}", status)

    def read_power(self, options: Mapping[str, str], password: str = "") -> Reading:
        del options, password
        said = self.tries.pop(0).status
        self.log.append(said.value)
        return Reading(said, "no answer" if said is PowerState.ERROR else "")


class Inner:
    """A power driver that fences or not."""

    name = "inner"

    def __init__(self, fences: bool, ok: bool) -> None:
        self.does = frozenset({PowerOperation.FENCE}) if fences else frozenset()
        self.ok, self.calls = ok, 0

    def operate(self, operation: PowerOperation, node: str, mac_addresses: Sequence[str]) -> PowerAnswer:
        del operation, node, mac_addresses
        self.calls += 1
        return PowerAnswer(self.ok, "said so")


OFFS = (0, 0, 1, None, -9, 2, 127)
TRIES = st.builds(Try, st.sampled_from(OFFS), st.sampled_from(PowerState), st.sampled_from((False, False, True)))


@given(st.lists(st.lists(TRIES, min_size=3, max_size=3), max_size=4), st.integers(1, 3), st.booleans(), st.booleans())
def test_ok_if_and_only_if_a_status_said_off_after_its_off(
    scripts: list[list[Try]], attempts: int, fences: bool, ok: bool
) -> None:
    agents = [Scripted("/fence", 1.0, list(tries)) for tries in scripts]
    methods = [Method(f"m{index}", FencingMethod("fence"), agent) for index, agent in enumerate(agents)]
    inner = Inner(fences, ok)

    answer = FencingPower(inner, methods, attempts).operate(PowerOperation.FENCE, "n1", ())

    proofs = [agent.log[-2:] == ["switched", "off"] for agent in agents]
    assert answer.ok is (any(proofs) or (fences and ok))
    assert inner.calls == (fences and not any(proofs))
    # naively: the first method with a good attempt among those that it has, and nothing is asked after it
    good = [any(_proves(one) for one in tries[:attempts]) for tries in scripts]
    assert proofs == [each and not any(good[:index]) for index, each in enumerate(good)]
    asked = good.index(True) + 1 if True in good else len(good)
    assert [bool(agent.log) for agent in agents[asked:]] == [False] * (len(agents) - asked)
    failed = [f"m{index}: " in answer.detail for index in range(asked)]
    assert all(failed)


def _proves(one: Try) -> bool:
    return not one.missing and one.off in (0, 1, None, -9) and one.status is PowerState.OFF
