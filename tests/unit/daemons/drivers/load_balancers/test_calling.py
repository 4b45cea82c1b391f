"""How a load balancer is told off the core's thread, and what the controller's file says of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemons.config.controller import BalancerExec, BalancerKeys, ControllerConfig
from daemons.drivers.load_balancers import make_balancer
from daemons.drivers.load_balancers.calling import LANES, NO_BALANCER, Caller
from daemons.service.main import check
from daemons.service.settings_from_config import settings_of
from daemons.values.settings import BalancerSettings
from shared.base.errors import InvalidInput, TransientError
from shared.config.toml import parse
from shared.ports.effects import Backend, Balance, Balanced, Measure, Scraped
from shared.runtime.lanes import Lane
from shared.values.web_app import Distribution, FlowSample, Limits, Serving
from tests.support.shell_harness import wait_for

BACKENDS = (Backend("shop#0", "n1"), Backend("shop#1", "n2", True))


SAMPLE = FlowSample("", 5.0, 10, served=9, rejected=1, queued=0, mean_s=0.1)


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def now_s(self) -> float:
        return 1e9 + self.at_s

    def monotonic_s(self) -> float:
        return self.at_s


class Slow:
    """A balancer that says nothing about `shop` until it is let go, and cannot be reached about `gone`."""

    name = "slow"
    measures = True

    def __init__(self) -> None:
        self.free = threading.Event()
        self.told: list[tuple[str, tuple[Backend, ...]]] = []

    def set_backends(self, order: Balance) -> Balanced:
        app = order.app
        if app == "gone":
            raise TransientError("no way there")
        if app == "shop":
            self.free.wait(20.0)
        self.told.append((app, order.backends))
        return Balanced(app, True, ("shop#1",))

    def measure(self, app: str, now_s: float) -> FlowSample | None:
        if app == "gone":
            raise TransientError(f"no way there at {now_s:g} s")
        return SAMPLE if app == "wiki" else None


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
    balancer, answers = Slow(), list[Balanced | Scraped]()
    call = Caller(balancer, lanes.make, answers.append, Clock()).tell
    call(Balance("shop", BACKENDS))
    call(Balance("shop", BACKENDS[:1]))
    call(Balance("wiki", ()))
    call(Balance("gone", ()))
    wait_for(lambda: len(answers) == 2)
    assert {answer.app: answer for answer in answers} == {
        "wiki": Balanced("wiki", True, ("shop#1",)),
        "gone": Balanced("gone", False, (), "no way there"),
    }
    balancer.free.set()
    wait_for(lambda: len(answers) == 4)
    assert balancer.told == [("wiki", ()), ("shop", BACKENDS), ("shop", BACKENDS[:1])]
    assert len(lanes.made) == 3


def test_without_a_balancer_that_is_the_answer(lanes: Lanes) -> None:
    answers: list[Balanced | Scraped] = []
    caller = Caller(None, lanes.make, answers.append, Clock())
    caller.tell(Balance("shop", BACKENDS))
    caller.measure(Measure("shop"))
    assert answers == [Balanced("shop", False, (), NO_BALANCER), Scraped("shop", 1e9, error=NO_BALANCER)]


def test_what_it_has_measured_is_asked_in_the_same_lane(lanes: Lanes) -> None:
    answers: list[Balanced | Scraped] = []
    caller = Caller(Slow(), lanes.make, answers.append, Clock())
    for number, app in enumerate(("wiki", "blog", "gone"), 1):
        caller.measure(Measure(app))
        wait_for(lambda: len(answers) == number)  # noqa: B023  it is asked at once
    assert answers == [
        Scraped("wiki", 1e9, (SAMPLE,)),
        Scraped("blog", 1e9),
        Scraped("gone", 1e9, error="no way there at 0 s"),
    ]
    assert len(lanes.made) == 3


def test_nobody_waits_to_be_measured(lanes: Lanes) -> None:
    """Given a balancer that hangs while it is told, then a question is answered at once without a reading, and as
    trouble after half a minute; when it is free again, by what it has measured."""
    balancer, clock, answers = Slow(), Clock(), list[Balanced | Scraped]()
    caller = Caller(balancer, lanes.make, answers.append, clock)
    caller.tell(Balance("shop", BACKENDS))
    for at_s, error in ((0.0, ""), (30.0, ""), (31.0, "the balancer has not answered for 31 s")):
        clock.at_s = at_s
        caller.measure(Measure("shop"))
        assert answers.pop() == Scraped("shop", 1e9 + at_s, error=error)
    balancer.free.set()
    wait_for(lambda: len(answers) == 1)
    caller.measure(Measure("shop"))
    wait_for(lambda: len(answers) == 2)
    assert answers[1] == Scraped("shop", 1e9 + 31.0)


def test_trouble_lasts_until_a_reading_says_otherwise(lanes: Lanes) -> None:
    balancer, answers = Slow(), list[Balanced | Scraped]()
    caller = Caller(balancer, lanes.make, answers.append, Clock())
    caller.measure(Measure("gone"))
    wait_for(lambda: len(answers) == 1)
    caller._line("gone").asked += 1  # as while it is being told
    caller.measure(Measure("gone"))
    assert answers[1] == answers[0]


def test_a_program_is_told_all_that_a_driver_is(tmp_path: Path) -> None:
    """Given the driver `exec`, then the file says it in the words of the web file."""
    keys = BalancerKeys("exec", exec=BalancerExec(("/bin/cp", "{file}", str(tmp_path / "told")), 20.0))
    backends = (Backend("shop#0", "n1", False, "10.0.0.1", 0.5), Backend("shop#1", "n2", True))
    order = Balance(
        "shop", backends, Serving(8080, 80, Distribution.LEAST_CONNECTIONS, instance_max=7), Limits(None, 30)
    )
    assert make_balancer(keys).set_backends(order) == Balanced("shop", True)
    assert json.loads((tmp_path / "told").read_text()) == {
        "app": "shop",
        "backends": [
            {"vm": "shop#0", "node": "n1", "drain": False, "address": "10.0.0.1", "weight": 0.5},
            {"vm": "shop#1", "node": "n2", "drain": True, "address": "", "weight": 1.0},
        ],
        "serving": {
            "port": 8080,
            "listen": 80,
            "distribution": "least-connections",
            "instance_max": 7,
            "queue_max": None,
            "queue_limit_s": 10.0,
        },
        "limits": {"instance_max": None, "queue_max": 30},
        "probe": None,
    }


def test_the_file_names_the_driver() -> None:
    text = '[balancer]\ndriver = "exec"\ndrain_limit_s = 5.0\nexec.command = ["tell", "{file}"]\n'
    config = parse(text + "[periods]\nweb_adjust_s = 30\n", ControllerConfig)
    settings = settings_of(config)
    assert settings.balancer == BalancerSettings("exec", 5.0)
    assert settings_of(
        parse("[balancer]\nresend_s = 0\n", ControllerConfig), measures=True
    ).balancer == BalancerSettings(resend_s=0.0, measures=True)
    assert settings.balancer.tells
    assert settings.web_adjust_s == 30.0
    assert not settings_of(parse("", ControllerConfig)).balancer.tells
    check(config)


@pytest.mark.parametrize("text", ['driver = "unheard-of"', 'driver = "exec"', "drain_limit_s = -1"])
def test_what_cannot_work_is_told_at_the_start(text: str) -> None:
    with pytest.raises(InvalidInput, match="balancer"):
        check(parse(f"[balancer]\n{text}\n", ControllerConfig))


def test_many_applications_share_some_lanes(lanes: Lanes) -> None:
    answers: list[object] = []
    caller = Caller(Slow(), lanes.make, answers.append, Clock())
    for number in range(500):
        caller.tell(Balance(f"app{number}", BACKENDS))
        caller.tell(Balance(f"app{number}", ()))
    wait_for(lambda: len(answers) == 1000)
    assert len(lanes.made) <= LANES
