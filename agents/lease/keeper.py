"""When a host renews its lease, and when its watchdog is petted: decisions only, with the time as an argument.

The time is that since the boot, which goes on while the host is suspended: others count that time too.

A start first writes the lease as released, which shows that the storage works and is never proof; then the watchdog is
armed; then the lease is renewed. So a lease that can become proof is never of a host that nothing resets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from shared.values.lease import Lease

DONE = 0
REFUSED = 1

FRESH_RENEWALS = 2.0  # a renewal that took longer than so many intervals is followed by no pet
MARGIN_S = 5.0  # what a watchdog and a machine take beyond what was set; see `proof_s`
MS = 1_000.0


def proof_s(timeout_s: float, renew_s: float) -> float:
    """Return how long a lease must be unchanged to prove that its host has been reset, for a watchdog that fires after
    `timeout_s`."""
    # b: when the write of the renewal began that a reader of the folder sees last. The reader saw it change later than
    # b, so it calls the lease proof at b + proof_s or later, by a clock of the same rate.
    # 1. The host pets only after a write that was complete, and complete writes are seen. So the write of the last pet
    #    is the one that began at b, or an earlier one.
    # 2. The last pet is at most FRESH_RENEWALS x renew_s after the beginning of its write: by the keeper's look at the
    #    clock before the pet. A write that took longer gets no pet, whatever it took; the watchdog keeps on counting
    #    from the pet before, and the next write, which begins at once, is given its own chance.
    # 3. A pet gives the host timeout_s. Until these are over the keeper may be killed or fail, and the kernel pets once
    #    more when it closes the device of a process that has not written "V" (watchdog_release): another timeout_s. A
    #    keeper that is started after that opens the device only once its own write is complete, which makes a later b.
    # 4. MARGIN_S is for what is not exact: watchdogs count whole seconds (1 s), the time between the keeper's look at
    #    the clock and the pet, that from the firing until the machine stands still, and clocks of different rates.
    # Together: b + FRESH_RENEWALS x renew_s + 2 x timeout_s + MARGIN_S is later than anything that the host executes.
    return round(2.0 * timeout_s + FRESH_RENEWALS * renew_s + MARGIN_S, 3)


@dataclass(frozen=True, slots=True)
class Terms:
    """Whose lease it is, how often it is renewed and how long it lasts."""

    node: str
    boot_id: str
    renew_s: float
    expires_s: float


# --- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Looked:
    """Answer to `Look`: the folder can be used. `found`: the lease of this node that is in it."""

    found: Lease | None


@dataclass(frozen=True, slots=True)
class Wrote:
    """Answer to `Write`: other hosts see the lease."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Answer to `Look` or `Write`: the storage does not work, or is not there. Others may see a lease all the same."""

    why: str


@dataclass(frozen=True, slots=True)
class Armed:
    """Answer to `Arm`: the watchdog fires that long after the last pet."""

    timeout_s: float


@dataclass(frozen=True, slots=True)
class Due:
    """The moment of `next_due_s` has come."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The operator stops the keeper."""


Event = Looked | Wrote | Failed | Armed | Due | Stop

# --- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """Find out whether the folder can be used. May take long; comes back as `Looked` or `Failed`."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write the lease. May take long, for ever too; comes back as `Wrote` or `Failed`. There is one at a time: an older
    one that arrived after a newer one would undo it."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Arm:
    """Open the watchdog. Comes back as `Armed` at once; a watchdog that cannot be used ends the keeper."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The host has a lease and a watchdog."""


@dataclass(frozen=True, slots=True)
class Pet:
    """Let the watchdog count from the beginning."""


@dataclass(frozen=True, slots=True)
class Fire:
    """Have the watchdog reset the host as soon as it can."""


@dataclass(frozen=True, slots=True)
class Disarm:
    """Stop the watchdog and close it."""


@dataclass(frozen=True, slots=True)
class End:
    """End the process with that status."""

    status: int


@dataclass(frozen=True, slots=True)
class Note:
    """Log a line."""

    level: str
    event: str
    fields: Mapping[str, Any] = field(default_factory=dict)


Effect = Look | Write | Arm | Ready | Pet | Fire | Disarm | End | Note


class _Phase(Enum):
    LOOKING = "looks for the folder"
    CLAIMING = "writes the first lease"
    ARMING = "arms the watchdog"
    HOLDING = "the lease is renewed"
    LOST = "the lease has expired: this host must be reset"
    OVER = "the lease is released"


class Keeper:
    """The keeper of one host. `start` once, then `handle` each event; both return what is to be done, in order."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._phase = _Phase.LOOKING
        self._timeout_s = terms.expires_s
        self._number = 0
        self._writing: Lease | None = None
        self._begun_s = 0.0
        self._busy = self._hang_noted = self._stopping = self._ready = False
        self._trouble = ""
        self._next_s: float | None = None
        self._since_s: float | None = None  # the beginning of the write that others may see as the last renewal
        self._take: dict[type, Callable[[Any, float], list[Effect]]] = {
            Looked: self._looked,
            Wrote: self._wrote,
            Failed: self._failed,
            Armed: self._armed,
            Due: self._due,
            Stop: self._stop,
        }

    @property
    def status(self) -> str:
        """The state in one line."""
        return self._trouble or ("releases the lease" if self._stopping else self._phase.value)

    @property
    def next_due_s(self) -> float | None:
        """When to handle `Due` (None: never)."""
        moments = [self._next_s, self._expires_s]
        if self._busy and not self._hang_noted:
            moments.append(self._begun_s + self._fresh_s)
        return min((moment for moment in moments if moment is not None), default=None)

    def start(self, now_s: float) -> list[Effect]:
        """Begin."""
        self._begun_s, self._busy = now_s, True
        return [Look()]

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """Take an event at `now_s`, in seconds since the boot."""
        lost: list[Effect] = []
        if self._expires_s is not None and now_s >= self._expires_s:
            lost = self._lose(now_s)
        return lost + self._take[type(event)](event, now_s)

    # --- events -----------------------------------------------------------------------------------------------------

    def _looked(self, event: Looked, now_s: float) -> list[Effect]:
        found, self._busy = event.found, False
        if found is not None and found.boot_id == self._terms.boot_id:
            age_s = now_s - found.number / MS
            if not found.released and age_s >= found.proof_s:
                # Others may have started the VMs of this host. A new lease would say that it still has them.
                return [
                    Note(
                        "error",
                        "the lease of this boot has expired, and nothing has reset the host: reboot it. If no other "
                        "host has started its VMs, remove the file of the lease instead",
                        {"unrenewed_s": round(age_s, 1), "proof_s": found.proof_s},
                    ),
                    End(REFUSED),
                ]
            self._number = found.number
        self._phase = _Phase.CLAIMING
        return self._write(now_s, released=True)

    def _wrote(self, _event: Wrote, now_s: float) -> list[Effect]:
        lease, self._writing, self._busy = self._writing, None, False
        if self._phase is _Phase.CLAIMING:
            self._phase = _Phase.ARMING
            return [Arm()]
        if lease is None or self._phase is not _Phase.HOLDING:
            return []
        if lease.released:
            self._phase, self._since_s = _Phase.OVER, None
            return [Disarm(), Note("info", "the lease is released"), End(DONE)]
        self._since_s = self._begun_s
        took_s = now_s - self._begun_s
        effects = self._late(took_s) if took_s > self._fresh_s else self._renewed()
        if self._stopping or took_s > self._fresh_s:
            return effects + self._write(now_s, self._stopping)
        self._next_s = max(self._begun_s + self._terms.renew_s, now_s)
        return effects

    def _failed(self, event: Failed, now_s: float) -> list[Effect]:
        self._writing, self._busy = None, False
        if self._phase in (_Phase.LOOKING, _Phase.CLAIMING):
            self._phase = _Phase.OVER
            return [Note("error", "this host has no lease", {"reason": event.why}), End(REFUSED)]
        if self._phase is not _Phase.HOLDING:
            return []
        self._next_s = max(self._begun_s + self._terms.renew_s, now_s)
        if self._trouble == event.why:
            return []
        self._trouble = event.why
        what = "released" if self._stopping else "renewed"
        event_name = f"the lease cannot be {what}: unless that succeeds soon, the watchdog resets this host"
        return [Note("error", event_name, {"reason": event.why, "timeout_s": self._timeout_s})]

    def _armed(self, event: Armed, now_s: float) -> list[Effect]:
        self._timeout_s = max(event.timeout_s, self._terms.expires_s)
        self._phase = _Phase.HOLDING
        return self._write(now_s, released=False)

    def _due(self, _event: Due, now_s: float) -> list[Effect]:
        if self._busy:
            if self._hang_noted or now_s < self._begun_s + self._fresh_s:
                return []
            self._hang_noted = True
            self._trouble = "the storage does not answer"
            event = "the storage does not answer: no pet until a renewal is in time again"
            return [Note("error", event, self._waited(now_s))]
        if self._next_s is None or now_s < self._next_s:
            return []
        return self._write(now_s, self._stopping)

    def _stop(self, _event: Stop, now_s: float) -> list[Effect]:
        if self._phase is not _Phase.HOLDING:  # no watchdog is armed, or nothing helps any more
            return [End(REFUSED if self._phase is _Phase.LOST else DONE)]
        if self._stopping:
            return []
        self._stopping = True
        if not self._busy:
            return self._write(now_s, released=True)
        return [Note("info", "the lease is released as soon as its last renewal is written")]

    # --- steps ------------------------------------------------------------------------------------------------------

    def _write(self, now_s: float, released: bool) -> list[Effect]:
        """Begin a write. The number is the time since the boot: it grows across processes, and says to the next one how
        old the lease is."""
        self._number = max(self._number + 1, int(now_s * MS))
        proof = proof_s(self._timeout_s, self._terms.renew_s)
        lease = Lease(self._terms.node, self._terms.boot_id, self._number, proof, released)
        self._writing, self._begun_s, self._next_s = lease, now_s, None
        self._busy, self._hang_noted = True, False
        if self._since_s is None and not released:
            self._since_s = now_s
        return [Write(lease)]

    def _renewed(self) -> list[Effect]:
        effects: list[Effect] = [Pet()]
        if self._trouble:
            self._trouble = ""
            effects.append(Note("info", "the lease is renewed again"))
        if not self._ready:
            self._ready = True
            terms = {"timeout_s": self._timeout_s, "proof_s": proof_s(self._timeout_s, self._terms.renew_s)}
            effects += [Note("info", "this host has a lease", terms), Ready()]
        return effects

    def _late(self, took_s: float) -> list[Effect]:
        noted, self._trouble = self._trouble, "the storage is too slow"
        if noted == self._trouble:
            return []
        return [Note("error", "a renewal took too long: no pet", {"took_s": round(took_s, 1), "most_s": self._fresh_s})]

    def _lose(self, now_s: float) -> list[Effect]:
        """Stop everything, and have the host reset: others may take the lease as proof from now on. A process that
        comes here was suspended with its host, or has no watchdog that works. A watchdog that slept with the host
        counts on where it was, or from the beginning: left alone, it would let the VMs run for up to a timeout more.
        The process goes on and holds the device: to close it would be a pet."""
        since_s, self._since_s = self._since_s, None
        self._phase, self._next_s, self._hang_noted = _Phase.LOST, None, True
        self._trouble = _Phase.LOST.value
        unrenewed_s = None if since_s is None else round(now_s - since_s, 1)
        return [
            Fire(),
            Note(
                "error",
                "the lease has expired, and this host runs: it was suspended, or its watchdog does not work. The "
                "lease is not renewed any more, and the watchdog is to reset the host now; if it does not, reboot it",
                {"unrenewed_s": unrenewed_s},
            ),
        ]

    def _waited(self, now_s: float) -> Mapping[str, Any]:
        return {"waited_s": round(now_s - self._begun_s, 1), "timeout_s": self._timeout_s}

    @property
    def _fresh_s(self) -> float:
        return FRESH_RENEWALS * self._terms.renew_s

    @property
    def _expires_s(self) -> float | None:
        """When a host whose keeper was not killed must have been reset, and no proof has been taken yet."""
        if self._since_s is None:
            return None
        return self._since_s + self._timeout_s + self._fresh_s + MARGIN_S
