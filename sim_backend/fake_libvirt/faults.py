"""Scripted failures of calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sim_backend.fake_libvirt.codes import Err, From

How = Literal["raise", "hang", "break", "lose-answer", "answer-late", "die", "die-after"]
LATE_S = 10.0


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` calls of a name (empty: any) on a host and a domain or volume (empty: any).

    "raise": an error before anything is done. "hang": until `Cluster.release`, or abortJob, or its end; what takes no
    time hangs before anything is done. "break": what takes time fails half-way and is taken back. "lose-answer": it is
    done, then the connection breaks. "answer-late": it is done, and the answer takes `LATE_S`. "die", "die-after":
    libvirtd dies before or after it; "die" in the middle of what takes time.
    """

    call: str
    how: How
    code: int = Err.OPERATION_FAILED
    domain: int = From.QEMU
    times: int = 1
    host: str = ""
    subject: str = ""

    def fits(self, call: str, host: str, subject: str) -> bool:
        """Return whether the fault applies to this call."""
        wanted = ((self.call, call), (self.host, host), (self.subject, subject))
        return self.times > 0 and all(mine in ("", theirs) for mine, theirs in wanted)


class Script:
    """Faults that are still to come."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Behind those that are there."""
        self.faults.append(fault)

    def take(self, call: str, host: str, subject: str) -> Fault | None:
        """Return the first fault that fits and use up one of its times; None if none fits."""
        for fault in self.faults:
            if fault.fits(call, host, subject):
                fault.times -= 1
                return fault
        return None

    def pending(self) -> int:
        """Return the number of calls that have yet to fail."""
        return sum(fault.times for fault in self.faults)

    def clear(self) -> None:
        """Remove all faults."""
        self.faults.clear()
