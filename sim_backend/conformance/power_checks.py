"""What every `shared.ports.controller.PowerDriver` must do, checked from outside: run each of `CHECKS` on a
`PowerHarness`.

A check that fails raises `ContractViolation`. Ours and third parties' drivers are held to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shared.base.errors import ContractViolation, TransientError
from shared.ports.controller import PowerAnswer, PowerDriver
from shared.values.nodes import PowerOperation
from sim_backend.conformance.bus_harness import expect

DETAIL_BYTES_MAX = 4096
MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")


@dataclass(frozen=True, slots=True)
class PowerHarness:
    """A driver and the nodes to test it on.

    `node` is reachable. The operations fail for `unreachable` ("" if the driver cannot detect failures).
    `done(operation, node)` returns whether an operation has completed, as far as that can be observed.
    """

    driver: PowerDriver
    node: str = "n1"
    unreachable: str = ""
    macs: Sequence[str] = MACS
    done: Callable[[PowerOperation, str], bool] = field(default=lambda _operation, _node: True)

    def operate(self, operation: PowerOperation, node: str = "", macs: Sequence[str] | None = None) -> PowerAnswer:
        """Ask for one operation on `node`."""
        return self.driver.operate(operation, node or self.node, self.macs if macs is None else macs)


def check_name_and_operations(harness: PowerHarness) -> None:
    """Check that the driver has a name and always declares the same operations."""
    driver = harness.driver
    _must(bool(driver.name) and isinstance(driver.name, str), "a driver without a name")
    _must(isinstance(driver.does, frozenset), "`does` is not a frozenset")
    _must(all(isinstance(operation, PowerOperation) for operation in driver.does), "`does` holds something else")
    expect("does, asked again", driver.does, driver.does)


def check_what_it_does_is_done(harness: PowerHarness) -> None:
    """Check that each operation answers ok and is done or in progress."""
    for operation in _in_order(harness):
        answer = harness.operate(operation)
        _must(answer.ok, f"{operation}: {answer.detail}")
        _must(harness.done(operation, harness.node), f"{operation} is ok and was not done")


def check_twice_is_as_good_as_once(harness: PowerHarness) -> None:
    """Check that each operation can be repeated, as when a controller restarts half-way."""
    for operation in _in_order(harness):
        for _ in range(3):
            _must(harness.operate(operation).ok, f"{operation}, again")
        _must(harness.done(operation, harness.node), f"{operation} is ok and was not done")


def check_what_it_does_not_do_is_a_contract_violation(harness: PowerHarness) -> None:
    """Never a quiet success: a node would be taken for what it is not."""
    for operation in PowerOperation:
        if operation in harness.driver.does:
            continue
        try:
            answer = harness.operate(operation)
        except ContractViolation:
            continue
        raise ContractViolation(f"{operation} is not among what it does, and was answered {answer}")


def check_a_failure_is_told(harness: PowerHarness) -> None:
    """Check that an operation that cannot be done is answered not ok with a reason, or raises TransientError when it
    could not be tried."""
    if not harness.unreachable:
        return
    for operation in _in_order(harness):
        try:
            answer = harness.operate(operation, harness.unreachable)
        except TransientError:
            continue
        _must(not answer.ok, f"{operation} on a node out of reach is ok")
        _must(bool(answer.detail), f"{operation} failed and does not say why")


def check_details_are_short_text(harness: PowerHarness) -> None:
    """They go into records and events."""
    for operation in _in_order(harness):
        answer = harness.operate(operation)
        _must(type(answer.ok) is bool, f"{operation}: ok is {answer.ok!r}")
        _must(len(answer.detail.encode()) <= DETAIL_BYTES_MAX, f"{operation}: more than 4 KiB of detail")


def check_a_node_without_addresses_is_no_defect(harness: PowerHarness) -> None:
    """Check that an operation on a node without addresses is answered, ok or with a reason: its agent may never have
    reported any."""
    for operation in _in_order(harness):
        answer = harness.operate(operation, macs=())
        _must(answer.ok or bool(answer.detail), f"{operation} without addresses failed and does not say why")


def check_addresses_are_left_as_they_are(harness: PowerHarness) -> None:
    """Check that the driver does not change the caller's list of addresses."""
    macs = list(harness.macs)
    for operation in _in_order(harness):
        harness.operate(operation, macs=macs)
    expect("addresses", macs, list(harness.macs))


def _in_order(harness: PowerHarness) -> list[PowerOperation]:
    """Return the driver's operations in an order in which each makes sense after the previous one."""
    order = (
        PowerOperation.DELINK,
        PowerOperation.SLEEP,
        PowerOperation.WAKE,
        PowerOperation.LINK,
        PowerOperation.FENCE,
    )
    return [operation for operation in order if operation in harness.driver.does]


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ContractViolation(otherwise)


Check = Callable[[PowerHarness], None]
CHECKS: tuple[Check, ...] = (
    check_name_and_operations,
    check_what_it_does_is_done,
    check_twice_is_as_good_as_once,
    check_what_it_does_not_do_is_a_contract_violation,
    check_a_failure_is_told,
    check_details_are_short_text,
    check_a_node_without_addresses_is_no_defect,
    check_addresses_are_left_as_they_are,
)
