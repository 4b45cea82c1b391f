"""What a controller's shell calls: store, power, load balancer, notification channels. `sim_backend.conformance`
checks drivers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from shared.ports.effects import Balance, Balanced, LeadTaken
from shared.ports.notices import Notify
from shared.values.nodes import PowerOperation
from shared.values.web_app import FlowSample


class Store(Protocol):
    """The controller's durable memory. Every write names the term of its writer."""

    def take_lead(self, controller: str) -> LeadTaken:
        """Raise the term by one for this controller and read everything, in one transaction."""
        ...

    def write(self, term: int, records: tuple[Any, ...]) -> None:
        """Store all records or none. Raises StaleTerm when the term was raised since, StoreUnavailable otherwise."""
        ...


@dataclass(frozen=True, slots=True)
class PowerAnswer:
    """How a power operation went: `detail` says why not, or what the driver's command printed (at most 4 KiB)."""

    ok: bool
    detail: str = ""


class PowerDriver(Protocol):
    """Brings nodes into power and out of it, and proves them off."""

    @property
    def name(self) -> str:
        """The driver's registered name: durations are learnt by it."""
        ...

    @property
    def does(self) -> frozenset[PowerOperation]:
        """The operations that it can be asked for."""
        ...

    def operate(self, operation: PowerOperation, node: str, mac_addresses: Sequence[str]) -> PowerAnswer:
        """Carry out one operation, within a time limit of the driver's own; idempotent, also after a crash half-way.

        FENCE is ok only when the node is confirmed off. The others are ok when they were done or are in progress; the
        node's agent, or its absence, shows the rest. One at a time for each node. Raises TransientError when it could
        not even be tried, ContractViolation for an operation that it does not support.
        """
        ...


class LoadBalancer(Protocol):
    """Spreads the requests to web applications over their instances."""

    @property
    def name(self) -> str:
        """The driver's registered name."""
        ...

    @property
    def measures(self) -> bool:
        """Whether it can say what requests have met with."""
        ...

    def set_backends(self, order: Balance) -> Balanced:
        """Serve an application by these instances and no others, from now on; the same again changes nothing. One that
        is drained gets no new requests and keeps those that it has. Raises TransientError when the balancer could not
        be reached: everything stays as it was."""
        ...

    def measure(self, app: str, now_s: float) -> FlowSample | None:
        """Return all requests to an application since the previous call, as a flow named "" (None: there was none, or
        the counters were reset). Raises TransientError when the balancer could not be reached, ContractViolation if it
        does not measure."""
        ...


class NotifyChannel(Protocol):
    """A notification channel. Created with the name of its keys in the configuration and a table of them; raises
    InvalidInput then for what is wrong with them. Used by one thread at a time."""

    def send(self, message: Notify) -> str:
        """Send a message within a time limit; returns what went wrong beside it ("": nothing). The same message may be
        given again after a failure. Raises TransientError when it may work later, PermanentError when it will not."""
        ...
