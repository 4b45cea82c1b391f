"""How much of the portal one address may hold, and what is kept for addresses at which somebody is logged in.

Pure: callers say what time it is, in monotonic seconds. IPv6 addresses are taken together by /64 (`network_of`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from daemons.portal.auth.throttle import network_of

KNOWN_S = 86_400.0  # for so long after a request of somebody logged in
KNOWN_TIMES = 4  # so many times as much as any other address
KEPT_FRAC = 0.25  # of all places, for known addresses
ENTRIES_MAX = 10_000
CONNECTIONS_PER_S, CONNECTIONS_BURST = 20.0, 150
REQUESTS_PER_S, REQUESTS_BURST = 50.0, 300


class KnownAddresses:
    """Networks from which somebody who was logged in has asked for a page."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, float] = OrderedDict()

    def add(self, address: str, now_s: float) -> None:
        """Note an address from which a logged-in user sends requests."""
        near = network_of(address)
        self._seen[near] = now_s
        self._seen.move_to_end(near)
        while len(self._seen) > ENTRIES_MAX:
            self._seen.popitem(last=False)

    def contains(self, address: str, now_s: float) -> bool:
        """Return whether that was within `KNOWN_S`."""
        seen_s = self._seen.get(network_of(address))
        return seen_s is not None and now_s - seen_s <= KNOWN_S


class ConcurrencyLimit:
    """`in_all` places, of which one address holds at most `of_address`, a known one `KNOWN_TIMES` as many. The
    last `KEPT_FRAC` of all are for known addresses."""

    def __init__(self, in_all: int, of_address: int) -> None:
        self._in_all, self._of_address = in_all, of_address
        self._held: Counter[str] = Counter()
        self.taken = 0

    def acquire(self, address: str, known: bool, bounded: bool = True) -> bool:
        """Take a place; False where there is none. Who is not `bounded` is held to the bound for all alone."""
        near = network_of(address)
        in_all = self._in_all if known or not bounded else self._in_all - int(self._in_all * KEPT_FRAC)
        of_address = self._of_address * (KNOWN_TIMES if known else 1)
        if self.taken >= in_all or (bounded and self._held[near] >= of_address):
            return False
        self.taken += 1
        self._held[near] += 1
        return True

    def release(self, address: str) -> None:
        """Give a place back that `acquire` gave."""
        near = network_of(address)
        self.taken -= 1
        self._held[near] -= 1
        if not self._held[near]:
            del self._held[near]


class RateLimit:
    """How often each address may come: `burst` times at once, then `per_s` times a second (a token bucket); a known
    one `KNOWN_TIMES` as often. The table is bounded: those are forgotten that came longest ago."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s, self._burst = per_s, burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def acquire(self, address: str, known: bool, now_s: float) -> bool:
        """Come once more; False for too often."""
        near, times = network_of(address), KNOWN_TIMES if known else 1
        left, at_s = self._left.pop(near, (float(self._burst), now_s))
        left = min(left + (now_s - at_s) * self._per_s, self._burst)
        good = left >= 1.0 / times
        self._left[near] = (left - 1.0 / times if good else left, now_s)
        while len(self._left) > ENTRIES_MAX:
            self._left.popitem(last=False)
        return good


@dataclass(frozen=True, slots=True)
class Bounds:
    """`connections_max` at a time, `address_max` of one address, which opens `connections_per_s` and asks for
    `requests_per_s` in the long run."""

    connections_max: int = 500
    address_max: int = 32
    connections_per_s: float = CONNECTIONS_PER_S
    requests_per_s: float = REQUESTS_PER_S


class AddressLimits:
    """Limits per address: connections from the first packet on, and requests, the only way to distinguish addresses
    behind a proxy."""

    def __init__(self, bounds: Bounds = Bounds()) -> None:  # a frozen value
        self.known = KnownAddresses()
        self.on_refused: Callable[[str], None] = lambda _: None
        self._connections = ConcurrencyLimit(bounds.connections_max, bounds.address_max)
        self._requests = ConcurrencyLimit(bounds.connections_max, bounds.address_max)
        self._arrivals = RateLimit(bounds.connections_per_s, CONNECTIONS_BURST)
        self._asking = RateLimit(bounds.requests_per_s, REQUESTS_BURST)

    def connect(self, address: str, now_s: float, proxy: bool = False) -> bool:
        """Return whether a connection is accepted; `disconnect` must follow. Connections of a `proxy` are bounded in
        total only."""
        known = self.known.contains(address, now_s)
        good = proxy or self._arrivals.acquire(address, known, now_s)
        good = good and self._connections.acquire(address, known, bounded=not proxy)
        if not good:
            self.on_refused("connection")
        return good

    def disconnect(self, address: str) -> None:
        """Note the end of an accepted connection."""
        self._connections.release(address)

    def begin_request(self, address: str, now_s: float) -> bool:
        """Return whether a request is answered; `end_request` must follow."""
        known = self.known.contains(address, now_s)
        good = self._asking.acquire(address, known, now_s) and self._requests.acquire(address, known)
        if not good:
            self.on_refused("request")
        return good

    def end_request(self, address: str) -> None:
        """Note the end of an accepted request."""
        self._requests.release(address)
