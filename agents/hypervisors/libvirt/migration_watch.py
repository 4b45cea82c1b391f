"""Looks at a migration in progress, in a thread of its own: switches it to post-copy, or aborts it."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace

from agents.hypervisors.libvirt.binding import Connection
from agents.hypervisors.libvirt.codes import JOB_STATS_COMPLETED
from agents.hypervisors.libvirt.convergence import Convergence, JobSample, Step, sample_of
from agents.hypervisors.libvirt.errors import NotConverging, Unavailable, telling
from agents.hypervisors.libvirt.site import Site
from shared.base.clock import SystemClock
from shared.base.errors import TrimtabError
from shared.config.agent import LibvirtMigration
from shared.values.migration_terms import NOT_MEASURED, MigrationFigures, MigrationMethod, MigrationTerms

JOIN_S = 2.0  # a call that libvirt never answers keeps the thread


def bounded(terms: MigrationTerms | None, keys: LibvirtMigration) -> MigrationTerms:
    """Return the terms of a migration within the bounds of the node's configuration, which also fills in what they
    leave open. Its bandwidth is 0 where there is no limit."""
    terms = terms or MigrationTerms()
    rates = [rate for rate in (terms.bandwidth_mib_per_s, keys.bandwidth_mib_per_s) if rate]
    return replace(
        terms,
        bandwidth_mib_per_s=min(rates, default=0),
        downtime_ms=min(terms.downtime_ms or keys.downtime_ms, keys.downtime_ms),
        limit_s=min(terms.limit_s or keys.limit_s, keys.limit_s),
    )


class MigrationWatch:
    """Watches the migration of a VM from `start` to `stop`. `terms` are bounded; `may_switch`: to post-copy."""

    def __init__(self, site: Site, vm: str, terms: MigrationTerms, may_switch: bool) -> None:
        self._site, self._vm, self._terms = site, vm, terms
        self._convergence = Convergence(terms, terms.limit_s, may_switch)
        self._clock = SystemClock()
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._begun_s = self._clock.monotonic_s()
        self._took_s = 0.0
        self._last: JobSample | None = None
        self._throttle_frac = 0.0
        self._aborted: Step | None = None
        self._thread = threading.Thread(target=self._run, name="libvirt-migration", daemon=True)
        self.switched = False

    def start(self) -> None:
        """Begin to look."""
        self._begun_s = self._clock.monotonic_s()
        self._thread.start()

    def stop(self) -> None:
        """End, and raise the error that has ended the thread."""
        self._took_s = self._clock.monotonic_s() - self._begun_s
        self._over.set()
        self._thread.join(JOIN_S)
        if self._failure is not None:
            raise self._failure

    def explained(self, error: TrimtabError) -> TrimtabError:
        """Return the error of a migration that failed; where it was aborted here, why."""
        text = f"given up after {self._terms.limit_s:g} s: {error}"
        if self._aborted is Step.ABORT_STUCK:
            return NotConverging(f"{self._describe()}; {text}" if self._is_late() else self._describe())
        return Unavailable(text) if self._aborted is Step.ABORT_LATE else error

    def figures(self, completed: JobSample | None = None) -> MigrationFigures:
        """Return how it went. `completed`: libvirt's statistics of the whole."""
        last = completed or self._last or JobSample(0.0, 0, 0.0, 0.0)
        seen = self._last or last
        method = MigrationMethod.AUTO_CONVERGE if self._throttle_frac > 0.0 else MigrationMethod.PRE_COPY
        return MigrationFigures(
            MigrationMethod.POST_COPY if self.switched else method,
            duration_s=last.elapsed_s if completed is not None else max(self._took_s, last.elapsed_s),
            downtime_s=last.downtime_s if completed is not None else NOT_MEASURED,
            transferred_mib=last.sent_mib,
            rounds=max(last.rounds, seen.rounds),
            dirty_mib_per_s=seen.dirty_mib_per_s,
            throttle_frac=self._throttle_frac,
        )

    # --- its thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._over.wait(self._site.watch_s):
                self._look()
        except BaseException as error:  # noqa: BLE001  handed on: `stop` raises it
            self._failure = error

    def _look(self) -> None:
        sample: JobSample | None = None
        with suppress(TrimtabError), self._site.link.use(f"look at the migration of {self._vm}") as conn:
            sample = sample_of(conn.lookupByName(self._vm).jobStats(0))
        if sample is not None and self._aborted is None:  # while it is aborted, QEMU reports zeros
            self._last = sample
            self._throttle_frac = max(self._throttle_frac, sample.throttle_frac)
        if self.switched:
            return  # from there is no way back
        elapsed_s = self._clock.monotonic_s() - self._begun_s
        step = self._convergence.judge(sample, elapsed_s if sample is None else max(elapsed_s, sample.elapsed_s))
        if step is Step.SWITCH:
            with suppress(TrimtabError), self._site.link.use(f"switch {self._vm} to post-copy") as conn:
                conn.lookupByName(self._vm).migrateStartPostCopy(0)
                self.switched = True
        elif step is not Step.GO_ON:
            self._aborted = self._aborted or step
            with suppress(TrimtabError), self._site.link.use(f"give up migrating {self._vm}") as conn:
                conn.lookupByName(self._vm).abortJob()

    def _is_late(self) -> bool:
        return self._last is not None and self._last.elapsed_s >= self._terms.limit_s

    def _describe(self) -> str:
        last = self._last
        if last is None:
            return "libvirt has given no statistics of it"
        rate = f", the guest changes {last.dirty_mib_per_s:.0f} MiB/s" if last.dirty_mib_per_s >= 0.0 else ""
        return f"{last.remaining_mib:.0f} MiB left after {last.rounds} rounds{rate}"


def completed_at(conn: Connection, errors: type[Exception], vm: str) -> JobSample | None:
    """Return libvirt's statistics of the last job that ended on a domain; None where it has none to tell."""
    try:
        with telling(errors, f"read how {vm} was migrated"):
            return sample_of(conn.lookupByName(vm).jobStats(JOB_STATS_COMPLETED))
    except TrimtabError:
        return None
