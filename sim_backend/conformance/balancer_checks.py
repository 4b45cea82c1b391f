"""What every `shared.ports.controller.LoadBalancer` must do, checked from outside: run each of `CHECKS` on a
`BalancerHarness`.

A check that fails raises `ContractViolation`. Ours and third parties' drivers are held to the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shared.base.errors import ContractViolation, TransientError
from shared.ports.controller import LoadBalancer
from shared.ports.effects import Backend, Balance, Balanced
from sim_backend.conformance.bus_harness import expect

DETAIL_BYTES_MAX = 4096
A, B, C = Backend("shop#0", "n1"), Backend("shop#1", "n2"), Backend("shop#2", "n3")


@dataclass(frozen=True, slots=True)
class BalancerHarness:
    """A driver, and what shows of the balancer. `serving(app)`: the instances that get new requests (None: it cannot be
    seen). `cut()`: from now on it cannot be reached (None: that cannot be tried). `dressed(order)`: an order with what
    the driver needs besides instances and nodes, such as addresses (None: nothing)."""

    balancer: LoadBalancer
    serving: Callable[[str], frozenset[str]] | None = None
    cut: Callable[[], None] | None = None
    dressed: Callable[[Balance], Balance] | None = None

    def ask(self, app: str, *backends: Backend) -> Balanced:
        """Set the backends of an application and return the answer, which may be a failure."""
        order = Balance(app, backends)
        return self.balancer.set_backends(self.dressed(order) if self.dressed is not None else order)

    def tell(self, app: str, *backends: Backend) -> Balanced:
        """Set the backends of an application: it must work."""
        answer = self.ask(app, *backends)
        expect("the application answered for", answer.app, app)
        _must(answer.ok, f"not ok: {answer.detail}")
        leaving = {backend.vm for backend in backends if backend.drain}
        _must(set(answer.drained) <= leaving, f"{answer.drained} are drained, of {sorted(leaving)} that were to be")
        expect("drained ones, each once", len(set(answer.drained)), len(answer.drained))
        return answer

    def served_by(self, app: str, *backends: Backend) -> None:
        """New requests go to these."""
        if self.serving is not None:
            expect(f"who gets requests of {app}", self.serving(app), frozenset(backend.vm for backend in backends))


def check_it_has_a_name(harness: BalancerHarness) -> None:
    """Check that the driver has the name under which it is registered."""
    name = harness.balancer.name
    _must(bool(name) and isinstance(name, str), "a driver without a name")


def check_these_and_no_others(harness: BalancerHarness) -> None:
    """Check that each call replaces the whole list: an instance that is not named gets no more requests."""
    for backends in ((A,), (A, B, C), (B,), (), (C, A)):
        harness.tell("shop", *backends)
        harness.served_by("shop", *backends)


def check_twice_is_as_good_as_once(harness: BalancerHarness) -> None:
    """Check that repeating a call changes nothing, as when a controller restarts half-way or a new one takes over."""
    for _ in range(3):
        harness.tell("shop", A, B)
        harness.served_by("shop", A, B)


def check_an_instance_that_moves_is_kept(harness: BalancerHarness) -> None:
    """Another node for the same instance, and nothing else changes."""
    harness.tell("shop", A, B)
    harness.tell("shop", A, Backend(B.vm, "n9"))
    harness.served_by("shop", A, B)


def check_what_is_drained_gets_nothing_new(harness: BalancerHarness) -> None:
    """Check that a draining instance gets no new requests, also when the call is repeated. The driver may report it as
    drained at any time or never."""
    harness.tell("shop", A, B)
    for _ in range(3):
        harness.tell("shop", A, Backend(B.vm, B.node, True))
        harness.served_by("shop", A)
    harness.tell("shop", A)
    harness.served_by("shop", A)


def check_what_was_drained_can_serve_again(harness: BalancerHarness) -> None:
    """Check that an instance can serve again after draining, because its stop was cancelled or it restarted under the
    same name."""
    harness.tell("shop", A, Backend(B.vm, B.node, True))
    harness.tell("shop", A, B)
    harness.served_by("shop", A, B)


def check_applications_are_apart(harness: BalancerHarness) -> None:
    """Check that updates to one application do not change another."""
    other = Backend("wiki#0", "n1")
    harness.tell("shop", A, B)
    harness.tell("wiki", other)
    harness.tell("shop", A)
    harness.served_by("wiki", other)
    harness.tell("wiki")
    harness.served_by("shop", A)


def check_a_failure_is_told_and_changes_nothing(harness: BalancerHarness) -> None:
    """TransientError when it could not be reached, else an answer that is not ok, with a reason."""
    if harness.cut is None:
        return
    harness.tell("shop", A, B)
    harness.cut()
    try:
        answer = harness.ask("shop", A)
    except TransientError as error:
        ok, detail = False, str(error)
    else:
        ok, detail = answer.ok, answer.detail
    _must(not ok and bool(detail), f"a balancer out of reach answered {ok}, {detail!r}")
    _must(len(detail.encode()) <= DETAIL_BYTES_MAX, "a detail of more than 4 KiB")
    harness.served_by("shop", A, B)


Check = Callable[[BalancerHarness], None]
CHECKS: tuple[Check, ...] = (
    check_it_has_a_name,
    check_these_and_no_others,
    check_twice_is_as_good_as_once,
    check_an_instance_that_moves_is_kept,
    check_what_is_drained_gets_nothing_new,
    check_what_was_drained_can_serve_again,
    check_applications_are_apart,
    check_a_failure_is_told_and_changes_nothing,
)


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ContractViolation(otherwise)
