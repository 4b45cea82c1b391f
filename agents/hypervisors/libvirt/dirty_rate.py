"""How fast guests change their memory, measured by QEMU on samples of its pages: of one VM at a time, in turn.

A VM is measured over 1 s and then over `LONG_S`: that the second shows less per second tells how large the working set
is. QEMU looks at 512 pages of each GiB, twice (docs/devel, calc-dirty-rate in page-sampling mode), so that 1 s of a
guest that changes less than 2 MiB of a GiB often shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agents.hypervisors.libvirt.binding import Connection
from agents.hypervisors.libvirt.codes import DIRTY_RATE_MEASURED, DIRTY_RATE_MEASURING, STATS_NOWAIT, Error, Stats
from agents.hypervisors.libvirt.errors import Declined, telling
from agents.hypervisors.libvirt.migration_size import DirtyRate, working_set_mib
from agents.hypervisors.libvirt.statistics import ObservedDomain
from shared.base.errors import TrimtabError
from shared.values.vms import VmState

SHORT_S, LONG_S = 1, 8
PATIENCE_S = 60.0  # for a result; then the next VM has its turn
_UNABLE = frozenset({Error.OPERATION_UNSUPPORTED, Error.ARGUMENT_UNSUPPORTED})  # that QEMU, or that kind of guest


@dataclass(frozen=True, slots=True)
class _Asked:
    vm: str
    uuid: str
    seconds: int
    at_s: float


class DirtyRates:
    """The dirty rates of a node's VMs, by UUID. `step` is called now and then; it never waits for a measurement."""

    def __init__(self, errors: type[Exception]) -> None:
        self._errors = errors
        self._able = True
        self._asked: _Asked | None = None
        self._measured_s: dict[str, float] = {}
        self._short_mib: dict[str, float] = {}
        self._known: dict[str, DirtyRate] = {}
        self._tried: set[str] = set()
        self._unable: set[str] = set()
        self._is_behind = False

    @property
    def is_behind(self) -> bool:
        """Whether a VM that runs has not been measured yet: `step` is to be called soon."""
        return self._able and self._is_behind

    @property
    def known(self) -> Mapping[str, DirtyRate]:
        """What was measured last of each VM."""
        return dict(self._known)

    def step(self, conn: Connection, running: Iterable[ObservedDomain], now_s: float) -> None:
        """Take in the result that is due, and begin the next measurement. `running`: VMs that run and that no operation
        is in progress on. A libvirt that cannot measure is not asked again, and neither is one VM that cannot be
        measured while it runs; what fails otherwise is, in its turn."""
        there = {seen.facts.uuid: seen for seen in running if seen.managed and seen.state is VmState.RUNNING}
        self._unable &= there.keys()
        for uuid in self._unable:
            del there[uuid]
        self._is_behind = bool(there.keys() - self._tried)
        if not self._able or not there:
            return
        asked = self._asked
        if asked is not None:
            if now_s < asked.at_s + asked.seconds:
                return
            if not self._take_in(conn, asked) and now_s < asked.at_s + PATIENCE_S:
                return
            self._asked = None
            if asked.seconds == SHORT_S and asked.uuid in self._short_mib and asked.uuid in there:
                self._begin(conn, there[asked.uuid], LONG_S, now_s)
                return
            self._tried.add(asked.uuid)
        longest_ago = min(there, key=lambda uuid: (self._measured_s.get(uuid, float("-inf")), uuid))
        self._begin(conn, there[longest_ago], SHORT_S, now_s)

    def forget_but(self, uuids: Iterable[str]) -> None:
        """Forget the VMs that are gone."""
        kept = set(uuids)
        for table in (self._measured_s, self._short_mib, self._known):
            for uuid in [uuid for uuid in table if uuid not in kept]:
                del table[uuid]
        self._tried &= kept

    def _begin(self, conn: Connection, seen: ObservedDomain, seconds: int, now_s: float) -> None:
        vm, uuid = seen.facts.name, seen.facts.uuid
        self._measured_s[uuid] = now_s
        try:
            with telling(self._errors, f"measure the dirty rate of {vm}"):
                domain = conn.lookupByName(vm)
                begin = getattr(domain, "startDirtyRateCalc", None)
                if begin is None:  # a library older than 7.2
                    self._able = False
                    return
                begin(seconds, 0)
        except TrimtabError as error:  # it has ended, or is measured by somebody else
            number = error.number if isinstance(error, Declined) else Error.OK
            self._able = number != Error.NO_SUPPORT
            if number in _UNABLE:
                self._unable.add(uuid)
            self._tried.add(uuid)
            return
        self._asked = _Asked(vm, uuid, seconds, now_s)

    def _take_in(self, conn: Connection, asked: _Asked) -> bool:
        """Return whether there will be no more to take in."""
        try:
            with telling(self._errors, f"read the dirty rate of {asked.vm}"):
                domain = conn.lookupByName(asked.vm)
                rows = conn.domainListGetStats([domain], Stats.DIRTYRATE, STATS_NOWAIT)
        except TrimtabError:
            return True
        row = rows[0][1] if rows else {}
        status = int(row.get("dirtyrate.calc_status", 0))
        if status == DIRTY_RATE_MEASURED and "dirtyrate.megabytes_per_second" in row:
            rate = float(row["dirtyrate.megabytes_per_second"])
            if rate >= 0.0:
                self._note(asked, rate * asked.seconds)
        return status != DIRTY_RATE_MEASURING

    def _note(self, asked: _Asked, changed_mib: float) -> None:
        if asked.seconds == SHORT_S:
            self._short_mib[asked.uuid] = changed_mib
            before = self._known.get(asked.uuid)
            self._known[asked.uuid] = DirtyRate(changed_mib, before.working_set_mib if before is not None else 0)
            return
        one_mib = max(self._short_mib.pop(asked.uuid), changed_mib / asked.seconds)  # samples apart
        self._known[asked.uuid] = DirtyRate(one_mib, working_set_mib(one_mib, changed_mib, float(asked.seconds)))
