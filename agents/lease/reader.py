"""How an agent sees the leases of other nodes: for how long each has been the same, as far as it has looked itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from agents.lease.folder import FolderUnusable, Found, read_all
from shared.base import clock as clocks
from shared.runtime import logs
from shared.values.lease import Lease, SeenLease

LEASES_MAX = 1_000  # of one report
GAP_RENEWALS = 2.0
OVERDUE_FRAC = 0.6
"""Of proof_s: proof_s is at least 5 renewals and MARGIN_S (`agents.lease.keeper`), so that this is more than 3 of the
node's own renewals, and less than proof."""
SUSPENDED_MIN_S = 0.5  # the two clocks that tell are not read at one instant


class SteadyClock(Protocol):
    """Time that nobody sets."""

    def monotonic_s(self) -> float:
        """Return the seconds since some fixed moment, without the time in which the host was suspended."""
        ...


@dataclass(frozen=True, slots=True)
class _Since:
    lease: Lease
    from_s: float


class Watch:
    """What has been seen of leases. After a gap of more than `gap_s` in looking, nothing is known of their age."""

    def __init__(self, gap_s: float) -> None:
        self._gap_s = gap_s
        self._seen: dict[str, _Since] = {}
        self._looked_s = 0.0
        self._suspended_s = 0.0

    def forget(self) -> None:
        """Begin again: nothing has been seen."""
        self._seen = {}

    def look(
        self, found: Mapping[str, Lease], begun_s: float, done_s: float, suspended_s: float = 0.0
    ) -> tuple[SeenLease, ...]:
        """Take what a look that began at `begun_s` and ended at `done_s` has found, and how long the host has been
        suspended in all. Return the leases that are overdue, by node; at most LEASES_MAX."""
        slept = suspended_s - self._suspended_s >= SUSPENDED_MIN_S
        if slept or begun_s - self._looked_s > self._gap_s or done_s - begun_s > self._gap_s:
            self.forget()
        self._looked_s, self._suspended_s = done_s, suspended_s
        # A file was read somewhere between the two moments: it is as old as the end of the look that saw it first, and
        # was the same until the beginning of this one.
        self._seen = {node: self._since(node, lease, done_s) for node, lease in found.items()}
        overdue = []
        for node, since in sorted(self._seen.items()):
            lease, unchanged_s = since.lease, begun_s - since.from_s
            if not lease.released and unchanged_s > OVERDUE_FRAC * lease.proof_s:
                overdue.append(
                    SeenLease(
                        node=node,
                        boot_id=lease.boot_id,
                        number=lease.number,
                        unchanged_s=unchanged_s,
                        proof_s=lease.proof_s,
                    )
                )
        return tuple(overdue[:LEASES_MAX])

    def _since(self, node: str, lease: Lease, now_s: float) -> _Since:
        before = self._seen.get(node)
        if before is None or before.lease.boot_id != lease.boot_id or before.lease.number < lease.number:
            return _Since(lease, now_s)
        # A lower number of the same boot is a write that arrived late: the newer one holds, released or not.
        return before


class LeaseReader:
    """Reads the folder of the leases: `look` in a thread of its own, since it may hang; `read` in any."""

    def __init__(
        self,
        folder: str,
        node: str,
        renew_s: float,
        clock: SteadyClock | None = None,
        suspended_s: Callable[[], float] = clocks.suspended_s,
        read_folder: Callable[[str], Found] = read_all,
    ) -> None:
        self._folder, self._node, self._renew_s = folder, node, renew_s
        self._clock: SteadyClock = clock or clocks.SystemClock()
        self._suspended_s, self._read_folder = suspended_s, read_folder
        self._watch = Watch(GAP_RENEWALS * renew_s)
        self._log = logs.get_logger("leases")
        self._next_s = 0.0
        self._looking_s: float | None = None
        self._hang_noted = False
        self._trouble = ""
        self._invalid: frozenset[str] = frozenset()
        self._result: tuple[float, tuple[SeenLease, ...]] | None = None

    def due_in_s(self) -> float:
        """Return in how many seconds to look again."""
        return self._next_s - self._clock.monotonic_s()

    def look(self) -> None:
        """Look at the folder once. What cannot be read is logged once."""
        begun_s, suspended_s = self._clock.monotonic_s(), self._suspended_s()
        self._next_s = begun_s + self._renew_s
        self._looking_s = begun_s
        try:
            found = self._read_folder(self._folder)
        except FolderUnusable as error:
            self._looking_s = None
            self._watch.forget()
            self._result = None
            if self._trouble != str(error):
                self._trouble = str(error)
                self._log.error("the leases cannot be read: none is reported", error=self._trouble)
            return
        others = {node: lease for node, lease in found.leases.items() if node != self._node}
        overdue = self._watch.look(others, begun_s, self._clock.monotonic_s(), suspended_s)
        self._result, self._looking_s = (begun_s, overdue), None
        self._tell(found)

    def read(self, now_s: float) -> tuple[SeenLease, ...]:
        """Return the leases of other nodes that are overdue, by node, as of the last look; none while that is older
        than GAP_RENEWALS renewals: an agent that cannot see the storage proves nothing."""
        gap_s = GAP_RENEWALS * self._renew_s
        result, looking_s = self._result, self._looking_s
        hangs = looking_s is not None and now_s - looking_s > gap_s
        if hangs and not self._hang_noted:
            self._log.error("the storage of the leases does not answer: none is reported")
        self._hang_noted = hangs
        return () if result is None or now_s - result[0] > gap_s else result[1]

    def _tell(self, found: Found) -> None:
        if self._trouble:
            self._trouble = ""
            self._log.info("the leases can be read again")
        for node in sorted(found.invalid.keys() - self._invalid):
            self._log.warning("a lease cannot be read, and is ignored", node=node, error=found.invalid[node])
        self._invalid = frozenset(found.invalid)
