"""Migrations in progress between the cluster's hosts, and how they share the hosts' links."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sim_backend.world.migrating import Course, Phase

OUTGOING = 5  # virDomainJobOperation: migration out
UNBOUNDED, COMPLETED = 2, 3  # virDomainJobType
MIB = 1 << 20
PAGE_BYTES = 4096


@dataclass(slots=True, eq=False)
class Transfer:
    """One migration. `most_mib_per_s`: what it may use; `streams`: its connections; `params` and `flags`: what it was
    begun with."""

    source: str
    target: str
    course: Course
    most_mib_per_s: float
    streams: int
    total_mib: float
    all: Transfers
    params: Mapping[str, Any] = field(default_factory=dict)
    flags: int = 0

    def done(self, now_s: float) -> bool:
        """Return whether it has ended by now."""
        self.all.advance_to(now_s)
        return self.course.is_done

    @property
    def switched(self) -> bool:
        """Whether post-copy has begun."""
        return self.course.phase in (Phase.SWITCH, Phase.POST_COPY)

    def stats(self, kind: int = UNBOUNDED) -> dict[str, Any]:
        """Return what libvirt's jobStats says of it."""
        course = self.course
        remaining = 0.0 if course.phase in (Phase.DISKS, Phase.DONE) else course.left_mib
        found: dict[str, Any] = {
            "type": kind,
            "operation": OUTGOING,
            "time_elapsed": round(1e3 * course.time_s),
            "data_processed": round(course.sent_mib * MIB),
            "memory_total": round(self.total_mib * MIB),
            "memory_remaining": round(remaining * MIB),
            "memory_iteration": course.rounds,
            "memory_page_size": PAGE_BYTES,
        }
        if course.dirty_mib_per_s >= 0.0:
            found["memory_dirty_rate"] = round(course.dirty_mib_per_s * MIB / PAGE_BYTES)
        if course.throttle_frac > 0.0:
            found["auto_converge_throttle"] = round(100 * course.throttle_frac)
        if course.phase is Phase.DONE:
            found["downtime"] = round(1e3 * course.downtime_s)
        return found


class Transfers:
    """All of them, those that have ended in `history`. A host's link carries `link_mib_per_s` each way, in equal parts
    for those that use it, and one connection at most `stream_mib_per_s`."""

    def __init__(self, link_mib_per_s: float = 100.0, stream_mib_per_s: float = math.inf) -> None:
        self.link_mib_per_s, self.stream_mib_per_s = link_mib_per_s, stream_mib_per_s
        self.history: list[Transfer] = []
        self._going: list[Transfer] = []
        self._now_s = 0.0

    def begin(self, transfer: Transfer, now_s: float) -> None:
        """Take one in."""
        self.advance_to(now_s)
        self._going.append(transfer)

    def end(self, transfer: Transfer, now_s: float) -> None:
        """Let one go, done or not."""
        self.advance_to(now_s)
        self.history.append(transfer)
        if transfer in self._going:
            self._going.remove(transfer)

    def advance_to(self, now_s: float) -> None:
        """Let time pass for all of them."""
        while self._now_s < now_s:
            self._going = [one for one in self._going if not one.course.is_done]
            rates = self._rates()
            ends = [one.course.until_s(rate) for one, rate in zip(self._going, rates, strict=True)]
            step_s = min([now_s - self._now_s, *ends])
            for one, rate in zip(self._going, rates, strict=True):
                one.course.advance(step_s, rate)
            self._now_s = now_s if step_s >= now_s - self._now_s else self._now_s + step_s

    def _rates(self) -> list[float]:
        sending = Counter(one.source for one in self._going)
        receiving = Counter(one.target for one in self._going)
        return [
            min(
                one.most_mib_per_s,
                one.streams * self.stream_mib_per_s,
                self.link_mib_per_s / max(sending[one.source], receiving[one.target]),
            )
            for one in self._going
        ]
