"""How a load balancer is told off the core's thread, and what the controller's file says of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from daemons.balancers.calling import NO_BALANCER, Caller
from daemons.main import check, settings_of
from daemons.settings import BalancerSettings
from shared.config import ControllerConfig, parse
from shared.effects import Backend, Balance, Balanced
from shared.errors import InvalidInput, TransientError
from shared.lanes import Lane
from tests.unit.shell_rig import wait_for

BACKENDS = (Backend("shop#0", "n1"), Backend("shop#1", "n2", True))


class Slow:
    """A balancer that says nothing about `shop` until it is let go, and cannot be reached about `gone`."""

    name = "slow"

    def __init__(self) -> None:
        self.free = threading.Event()
        self.told: list[tuple[str, tuple[Backend, ...]]] = []

    def set_backends(self, app: str, backends: Sequence[Backend]) -> Balanced:
        if app == "gone":
            raise TransientError("no way there")
        if app == "shop":
            self.free.wait(20.0)
        self.told.append((app, tuple(backends)))
        return Balanced(app, True, ("shop#1",))


class Lanes:
    """Makes lanes and ends them."""

    def __init__(self) -> None:
        self.made: list[Lane] = []
        self.failures: list[BaseException] = []

    def make(self, name: str) -> Lane:
        self.made.append(Lane(name, self.failures.append))
        return self.made[-1]


@pytest.fixture
def lanes() -> Iterator[Lanes]:
    made = Lanes()
    yield made
    assert all(lane.close(20.0) for lane in made.made)
    assert not made.failures


def test_none_waits_for_another(lanes: Lanes) -> None:
    """Given a balancer that hangs about one application, then another is told meanwhile, a third is out of reach, and
    the first is told in the end, once for each time it was asked, in order."""
    balancer, answers = Slow(), list[Balanced]()
    call = Caller(balancer, lanes.make, answers.append)
    call(Balance("shop", BACKENDS))
    call(Balance("shop", BACKENDS[:1]))
    call(Balance("wiki", ()))
    call(Balance("gone", ()))
    wait_for(lambda: len(answers) == 2)
    assert {(answer.app, answer.ok, answer.detail) for answer in answers} == {
        ("wiki", True, ""),
        ("gone", False, "no way there"),
    }
    balancer.free.set()
    wait_for(lambda: len(answers) == 4)
    assert balancer.told == [("wiki", ()), ("shop", BACKENDS), ("shop", BACKENDS[:1])]
    assert [lane.name for lane in lanes.made] == ["balance shop", "balance wiki", "balance gone"]


def test_without_a_balancer_that_is_the_answer(lanes: Lanes) -> None:
    answers: list[Balanced] = []
    Caller(None, lanes.make, answers.append)(Balance("shop", BACKENDS))
    assert answers == [Balanced("shop", False, (), NO_BALANCER)]


def test_the_file_names_the_driver() -> None:
    text = '[balancer]\ndriver = "exec"\ndrain_limit_s = 5.0\nexec.command = ["tell", "{file}"]\n'
    config = parse(text + "[periods]\nweb_adjust_s = 30\n", ControllerConfig)
    settings = settings_of(config)
    assert settings.balancer == BalancerSettings("exec", 5.0)
    assert settings.balancer.tells
    assert settings.web_adjust_s == 30.0
    assert not settings_of(parse("", ControllerConfig)).balancer.tells
    check(config)


@pytest.mark.parametrize("text", ['driver = "unheard-of"', 'driver = "exec"', "drain_limit_s = -1"])
def test_what_cannot_work_is_told_at_the_start(text: str) -> None:
    with pytest.raises(InvalidInput, match="balancer"):
        check(parse(f"[balancer]\n{text}\n", ControllerConfig))
