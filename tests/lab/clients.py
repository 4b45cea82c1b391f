"""Clients of a web application: they ask at a rate, whatever comes back, until they are told to end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from threading import Event, Lock, Thread

from shared.base.clock import SystemClock

CLIENTS_MAX = 16  # that wait for an answer at a time
ANSWER_LIMIT_S = 60.0
_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class Asked:
    """Requests sent; those answered with 200, answered with another status, and those without an answer. `mean_s`,
    `worst_s`: until the whole answer was there, of those answered with 200."""

    sent: int
    good: int
    refused: int
    lost: int
    mean_s: float
    worst_s: float


class Clients:
    """They ask for the page at an address and port `rate_per_s` times a second from now on."""

    def __init__(self, address: str, port: int, rate_per_s: float) -> None:
        self._address, self._port, self._period_s = address, port, 1.0 / rate_per_s
        self._over, self._lock = Event(), Lock()
        self._sent = self._refused = self._lost = 0
        self._took_s: list[float] = []
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def asked(self) -> Asked:
        """What they have counted so far."""
        with self._lock:
            took_s = self._took_s or [0.0]
            mean_s, good = sum(took_s) / len(took_s), len(self._took_s)
            return Asked(self._sent, good, self._refused, self._lost, mean_s, max(took_s))

    def end(self) -> Asked:
        """Ask no more; returns when every request has come to its end."""
        self._over.set()
        self._thread.join()
        return self.asked()

    def _run(self) -> None:
        with ThreadPoolExecutor(CLIENTS_MAX) as clients:
            while not self._over.wait(self._period_s):
                clients.submit(self._ask)

    def _ask(self) -> None:
        begin_s = _CLOCK.monotonic_s()
        with self._lock:
            self._sent += 1
        try:
            connection = HTTPConnection(self._address, self._port, timeout=ANSWER_LIMIT_S)
            try:
                connection.request("GET", "/")
                answer = connection.getresponse()
                answer.read()
            finally:
                connection.close()
        except (OSError, HTTPException):
            with self._lock:
                self._lost += 1
            return
        with self._lock:
            if answer.status == 200:
                self._took_s.append(_CLOCK.monotonic_s() - begin_s)
            else:
                self._refused += 1
