"""Storage leases of fake hosts, in virtual time: what each host's file would say, and what others see of it.

A host renews its lease while it is up and reaches the storage. One that cannot for `expires_s` resets itself. Nothing
happens at a renewal here: only when a host stopped to renew is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shared.values.lease import SeenLease
from sim_backend.fakes.hypervisor import FakeCluster


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """renew_s: between two renewals; expires_s: after so long without one a host resets itself; proof_s: after so long
    an observer may be sure that it has."""

    renew_s: float = 5.0
    expires_s: float = 30.0
    proof_s: float = 45.0


class FakeLeases:
    """The leases of a cluster's hosts. `reset`: called with the name of a host that resets itself; `at`: calls a
    function at a time."""

    def __init__(
        self,
        cluster: FakeCluster,
        at: Callable[[float, Callable[[], None]], object],
        reset: Callable[[str], None],
        times: LeaseTimes = LeaseTimes(),
    ) -> None:
        self._cluster, self._at, self._reset, self.times = cluster, at, reset, times
        self._stopped: dict[str, tuple[float, str]] = {}  # by host: since when it does not renew, and its boot
        self._cut: dict[str, int] = {}  # hosts that do not reach the storage, with the number of the loss
        self._losses = 0

    def host_died(self, name: str, now_s: float) -> None:
        """Note that a host has lost power or was reset."""
        self._stopped.setdefault(name, (now_s, self._cluster.hypervisor(name).boot_id))
        self._cut.pop(name, None)

    def host_returned(self, name: str) -> None:
        """Note that a host is up again, and renews its lease."""
        self._stopped.pop(name, None)

    def lose_storage(self, name: str, now_s: float) -> int:
        """Cut a host off from the storage; it resets itself unless it is back in time. Return the number of the loss
        (0: it is down, or cut off already)."""
        host = self._cluster.hypervisor(name)
        if not host.up or name in self._cut:
            return 0
        self._losses += 1
        loss = self._cut[name] = self._losses
        self._stopped[name] = now_s, host.boot_id

        def expire() -> None:
            if self._cut.get(name) == loss and host.up:
                self._reset(name)

        self._at(now_s + self.times.expires_s, expire)
        return loss

    def find_storage(self, name: str, loss: int) -> None:
        """End a loss of the storage, if the host has not reset itself."""
        if self._cut.get(name) == loss:
            del self._cut[name], self._stopped[name]

    def seen_by(self, witness: str, since_s: float, now_s: float) -> tuple[SeenLease, ...]:
        """Return the leases of others that were not renewed as they should be, as a host sees them that has looked
        since `since_s`; none if it does not reach the storage."""
        if witness in self._cut:
            return ()
        late_s = 3.0 * self.times.renew_s
        found = (
            SeenLease(name, boot_id, 1, now_s - max(at_s, since_s), self.times.proof_s)
            for name, (at_s, boot_id) in sorted(self._stopped.items())
            if name != witness
        )
        return tuple(lease for lease in found if lease.unchanged_s > late_s)
