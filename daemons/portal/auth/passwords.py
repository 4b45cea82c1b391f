"""Passwords: hashes by scrypt (RFC 7914), computed in a few threads, since each takes 32 MiB and a good part of a
second."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import heapq
import hmac
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from daemons.portal.auth.password_strength import is_guessed_soon
from daemons.portal.threads import Threads
from shared.base.errors import InvalidInput, Problem, TransientError

LENGTH_MIN = 12  # characters
BYTES_MAX = 256
SALT_BYTES = 16
HASH_BYTES = 32
WORKERS = 2
WAITING_MAX = 32
OF_ADDRESS_MAX = 4

T = TypeVar("T")


class TooBusy(TransientError):
    """More passwords wait to be checked than are checked in reasonable time."""

    code = "too-busy"


@dataclass(frozen=True, slots=True)
class Work:
    """What a hash costs: 128 * r * 2**log2_n bytes of memory, p times over."""

    log2_n: int = 15
    r: int = 8
    p: int = 3


def weakness(password: str, name: str = "") -> Problem | None:
    """Return why a password is rejected; None for a good one."""
    if len(password) < LENGTH_MIN:
        return Problem("password", f"is {len(password)} characters long", f"at least {LENGTH_MIN}")
    if len(password.encode("utf-8", "replace")) > BYTES_MAX:
        return Problem("password", "is too long", f"at most {BYTES_MAX} bytes")
    if name and name.lower() in password.lower():
        return Problem("password", "is easy to guess", "one without the account's name")
    if is_guessed_soon(password):
        what = "is a common password"
        return Problem("password", what, "one without common words, keyboard rows, years and repetitions")
    return None


def check(password: str, name: str = "") -> None:
    """Raises `InvalidInput` for a weak password."""
    wrong = weakness(password, name)
    if wrong is not None:
        raise InvalidInput(wrong)


def _scrypt(password: str, salt: bytes, work: Work) -> bytes:
    return hashlib.scrypt(
        password.encode("utf-8", "replace")[: 4 * BYTES_MAX],
        salt=salt,
        n=1 << work.log2_n,
        r=work.r,
        p=work.p,
        maxmem=256 * work.r * (1 << work.log2_n) + (1 << 20),
        dklen=HASH_BYTES,
    )


def hashed(password: str, work: Work = Work()) -> str:  # a frozen value
    """Return a hash that names its own parameters: scrypt$log2_n$r$p$salt$hash."""
    salt = os.urandom(SALT_BYTES)
    made = _scrypt(password, salt, work)
    text = [base64.b64encode(each).decode() for each in (salt, made)]
    return f"scrypt${work.log2_n}${work.r}${work.p}${text[0]}${text[1]}"


def fits(password: str, stored: str) -> bool:
    """Return whether a password matches a hash; takes as long for a wrong one. False for an invalid hash."""
    parts = stored.split("$")
    if len(parts) != 6 or parts[0] != "scrypt":
        return False
    work = Work(int(parts[1]), int(parts[2]), int(parts[3]))
    salt, made = base64.b64decode(parts[4]), base64.b64decode(parts[5])
    return hmac.compare_digest(_scrypt(password, salt, work), made)


class Hasher:
    """Computes hashes beside the event loop, a few at a time, for addresses that are known before others. Raises
    `TooBusy` when too many wait: `waiting_max` in all, three quarters of that for unknown addresses, and
    `OF_ADDRESS_MAX` for one of these."""

    def __init__(self, work: Work | None = None, waiting_max: int = WAITING_MAX) -> None:
        self.waiting_max = waiting_max
        self.work = work or Work()
        self._threads = Threads(WORKERS, "scrypt")
        self._nobodys = hashed("nobody has this password", self.work)
        self._busy = 0
        self._queue: list[tuple[bool, int, asyncio.Future[None]]] = []
        self._turns = count()
        self._of: Counter[str] = Counter()

    async def make(self, password: str, address: str = "", known: bool = False) -> str:
        """Return the hash of a password."""
        return await self._do(address, known, hashed, password, self.work)

    async def check(self, password: str, stored: str, address: str = "", known: bool = False) -> bool:
        """Return whether the password matches a hash; without one ("": nobody has the name) it takes as long and
        returns false. `address`: the network that asks; `known`: the account has been used from there."""
        right = await self._do(address, known, fits, password, stored or self._nobodys)
        return bool(right and stored)

    async def _do(self, address: str, known: bool, function: Callable[..., T], *values: object) -> T:
        waiting = self._of.total()
        if waiting >= (self.waiting_max if known else self.waiting_max * 3 // 4):
            raise TooBusy("Too many logins at the moment. Try again in a few seconds.")
        if address and not known and self._of[address] >= OF_ADDRESS_MAX:
            raise TooBusy("Too many logins from your address at the moment. Try again in a few seconds.")
        self._of[address] += 1
        try:
            await self._turn(known)
            try:
                return await self._threads.do(function, *values)
            finally:
                self._pass_on()
        finally:
            self._of[address] -= 1
            self._of += Counter()  # drops who has none

    async def _turn(self, known: bool) -> None:
        """Wait for a free thread; `_pass_on` must follow."""
        if self._busy < WORKERS:
            self._busy += 1
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, (not known, next(self._turns), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._queue:
            turn = heapq.heappop(self._queue)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._busy -= 1

    def close(self) -> None:
        """End the threads."""
        self._threads.close()
