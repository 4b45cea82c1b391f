"""The rate of password attempts: a wrong one delays its sender, and never locks anybody out permanently."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass

FREE = 5  # wrong passwords that cost nothing
ADDRESS_FREE = 20
WAIT_MAX_S = 300.0
ACCOUNT_WAIT_MAX_S = 60.0
FORGET_S = 3600.0
ENTRIES_MAX = 10_000


@dataclass(slots=True)
class _Tries:
    wrong: int = 0
    last_s: float = 0.0
    before_s: float = 0.0  # the one before that, for what is taken back


class Tries:
    """Counts what was wrong by key: after `free` of them the next must wait 1, 2, 4 ... up to `wait_max_s` seconds. The
    table is bounded: of too many keys those are forgotten that were wrong longest ago."""

    def __init__(self, free: int, wait_max_s: float) -> None:
        self._free, self._wait_max_s = free, wait_max_s
        self._tries: OrderedDict[str, _Tries] = OrderedDict()

    def wait_s(self, key: str, now_s: float) -> float:
        """Return how long a key must still wait; 0 when it need not."""
        tries = self._tries.get(key)
        if tries is None or tries.wrong < self._free:
            return 0.0
        wait_s = min(2.0 ** min(tries.wrong - self._free, 30), self._wait_max_s)
        return max(tries.last_s + wait_s - now_s, 0.0)

    def wrong(self, key: str, now_s: float) -> None:
        """Count one more wrong attempt."""
        tries = self._tries.get(key)
        if tries is None or now_s - tries.last_s > FORGET_S:
            tries = self._tries[key] = _Tries()
        tries.wrong, tries.before_s, tries.last_s = tries.wrong + 1, tries.last_s, now_s
        self._tries.move_to_end(key)
        while len(self._tries) > ENTRIES_MAX:
            self._tries.popitem(last=False)

    def right(self, key: str) -> None:
        """Reset a key after a correct attempt."""
        self._tries.pop(key, None)

    def undo(self, key: str) -> None:
        """Undo the last count, which was not wrong. A key with no more counts is removed: otherwise requests rejected
        under 10,000 names could make all others forgotten."""
        tries = self._tries.get(key)
        if tries is None:
            return
        if tries.wrong <= 1:
            del self._tries[key]
        else:
            tries.wrong, tries.last_s = tries.wrong - 1, tries.before_s

    def __len__(self) -> int:
        return len(self._tries)


class Throttle:
    """Logins by account and by address. An address from which the account has been used is held to its own counts
    alone: somebody else's wrong passwords do not keep the account's owner out."""

    def __init__(self) -> None:
        self._accounts = Tries(FREE, ACCOUNT_WAIT_MAX_S)
        self._addresses = Tries(ADDRESS_FREE, WAIT_MAX_S)
        self._both = Tries(FREE, WAIT_MAX_S)

    def wait_s(self, account: str, address: str, trusted: bool, now_s: float) -> float:
        """Return how long the next attempt must wait, in seconds. `trusted`: the account has been used from there."""
        near = network_of(address)
        waits = [self._addresses.wait_s(near, now_s), self._both.wait_s(f"{account} {near}", now_s)]
        if not trusted:
            waits.append(self._accounts.wait_s(account, now_s))
        return max(waits)

    def wrong(self, account: str, address: str, now_s: float) -> None:
        """Count a wrong password."""
        near = network_of(address)
        self._accounts.wrong(account, now_s)
        self._addresses.wrong(near, now_s)
        self._both.wrong(f"{account} {near}", now_s)

    def unchecked(self, account: str, address: str) -> None:
        """Undo a wrong count for an attempt that was not even checked."""
        near = network_of(address)
        self._accounts.undo(account)
        self._addresses.undo(near)
        self._both.undo(f"{account} {near}")

    def right(self, account: str, address: str) -> None:
        """Note a correct password. Other attempts from the address still count."""
        near = network_of(address)
        self._accounts.right(account)
        self._addresses.undo(near)
        self._both.right(f"{account} {near}")


def network_of(address: str) -> str:
    """Return the network of an address: the address itself, for IPv6 the /64 of one customer."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False).network_address)
    return str(parsed)
