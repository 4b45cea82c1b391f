"""Every load balancer driver passes the suite, and the suite finds drivers that break their contract."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from daemons.config.controller import BalancerExec, BalancerKeys
from daemons.drivers.load_balancers import make_balancer
from shared.base.errors import ContractViolation, InvalidInput
from shared.ports import plugins
from shared.ports.effects import Backend, Balance, Balanced
from sim_backend.conformance.balancer_checks import CHECKS, BalancerHarness, Check
from sim_backend.fakes.load_balancer import FakeBalancer
from tests.integration.haproxy_scene import haproxy_scene

# Keeps what it is told beside it, and says of every instance that is drained, and of one more, that it is.
PROGRAM = r"""
if test -e "$3/cut"; then echo "no way through"; exit 1; fi
cp "$2" "$3/$1"
echo "drained shop#9"
tr '}' '\n' < "$2" | sed -n 's/.*"vm": "\([^"]*\)".*"drain": true.*/drained \1/p'
"""


@contextmanager
def fake(tmp_path: Path) -> Iterator[BalancerHarness]:
    del tmp_path
    driver = FakeBalancer()

    def cut() -> None:
        driver.fail_next = 1

    yield BalancerHarness(driver, driver.serving, cut)


@contextmanager
def none(tmp_path: Path) -> Iterator[BalancerHarness]:
    del tmp_path
    yield BalancerHarness(make_balancer(BalancerKeys()))


@contextmanager
def program(tmp_path: Path) -> Iterator[BalancerHarness]:
    """One that is written in a few lines."""
    script = tmp_path / "balancer.sh"
    script.write_text(PROGRAM)
    command = ("/bin/sh", str(script), "{app}", "{file}", str(tmp_path))

    def serving(app: str) -> frozenset[str]:
        rows = json.loads((tmp_path / app).read_text())["backends"]
        return frozenset(row["vm"] for row in rows if not row["drain"])

    keys = BalancerKeys("exec", exec=BalancerExec(command, 20.0))
    yield BalancerHarness(make_balancer(keys), serving, (tmp_path / "cut").touch)


@contextmanager
def haproxy(tmp_path: Path) -> Iterator[BalancerHarness]:
    """A real one, looked at by a socket of its own."""
    del tmp_path
    with haproxy_scene() as scene:
        scene.site("")
        yield BalancerHarness(scene.driver, scene.serving_now, Path(scene.keys.socket).unlink, scene.dressed)


HARNESSES = {"fake": fake, "none": none, "exec": program, "haproxy": haproxy}


@pytest.mark.parametrize("name", HARNESSES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_driver_keeps_the_contract(name: str, check: Check, tmp_path: Path) -> None:
    with HARNESSES[name](tmp_path) as harness:
        check(harness)


def test_a_program_tells_who_is_drained(tmp_path: Path) -> None:
    with program(tmp_path) as harness:
        answer = harness.tell("shop", Backend("shop#0", "n1", True), Backend("shop#1", "n2"))
    assert answer.drained == ("shop#0",)


def test_every_driver_is_tried() -> None:
    assert set(plugins.names(plugins.BALANCERS)) <= set(HARNESSES)


@pytest.mark.parametrize(
    "keys", [BalancerKeys("unheard-of"), BalancerKeys("exec")], ids=["no such driver", "no command"]
)
def test_what_cannot_work_is_refused(keys: BalancerKeys) -> None:
    with pytest.raises(InvalidInput, match="balancer"):
        make_balancer(keys)


def test_a_program_that_is_not_there_is_out_of_reach(tmp_path: Path) -> None:
    driver = make_balancer(BalancerKeys("exec", exec=BalancerExec((str(tmp_path / "nothing"),))))
    harness = BalancerHarness(driver, cut=lambda: None)
    with pytest.raises(Exception, match="cannot be run"):
        harness.tell("shop")


# --- drivers that break their contract --------------------------------------------------------------------------------


class Adds(FakeBalancer):
    """Forgets nobody."""

    def set_backends(self, order: Balance) -> Balanced:
        known = {backend.vm: backend for backend in (*self.tables.get(order.app, ()), *order.backends)}
        return super().set_backends(replace(order, backends=tuple(known.values())))


class KeepsOn(FakeBalancer):
    """Drains nobody."""

    def set_backends(self, order: Balance) -> Balanced:
        backends = tuple(replace(backend, drain=False) for backend in order.backends)
        return super().set_backends(replace(order, backends=backends))


class OneTable(FakeBalancer):
    """Knows one application."""

    def serving(self, app: str) -> frozenset[str]:
        return super().serving(self.calls[-1][0]) if app else frozenset()


class TooQuick(FakeBalancer):
    """Says that everyone is drained."""

    def set_backends(self, order: Balance) -> Balanced:
        super().set_backends(order)
        return Balanced(order.app, True, tuple(backend.vm for backend in order.backends))


class SaysYes(FakeBalancer):
    """Is never out of reach."""

    def set_backends(self, order: Balance) -> Balanced:
        failing, self.fail_next = self.fail_next, 0
        return Balanced(order.app, True) if failing else super().set_backends(order)


class Nameless(FakeBalancer):
    """Has no name."""

    name = ""


@pytest.mark.parametrize("make", [Adds, KeepsOn, OneTable, TooQuick, SaysYes, Nameless])
def test_the_suite_finds_a_driver_that_breaks_it(make: Callable[[], FakeBalancer]) -> None:
    found = []
    for check in CHECKS:
        driver = make()

        def cut(driver: FakeBalancer = driver) -> None:
            driver.fail_next = 1

        try:
            check(BalancerHarness(driver, driver.serving, cut))
        except ContractViolation:
            found.append(check.__name__)
    assert found
