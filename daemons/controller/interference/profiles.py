"""How jobs load nodes, learnt from what agents report, kept by job class and node type
(docs/explanation/interference.md).

Consecutive reports of a node, half a minute apart or more, make a window, and windows of one VM make an observation.
What is learnt of a class is a record that outlives the controller, stored at cycles; a job without a class, or a web
application, learns for itself and in memory only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from daemons.controller.interference.observations import Meter, Window, window_of
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.models import loading_history as history_of
from daemons.models.loading_history import CopyTime, LoadingHistory, PaceSample, ProbePart
from daemons.models.loading_profiler import Demand, Profile, Status, converted, declared, profile_of, servers_of
from daemons.values.records.cluster import Deleted, LoadingRecord, PaceRecord
from daemons.values.settings import ControllerSettings
from shared.protocol.messages import Report
from shared.values.jobs import Job, JobPhase
from shared.values.load_vector import IO, Loading

OBSERVED_S = 300.0  # of a VM's time make an observation; what is left at its end counts from OBSERVED_MIN_S on
OBSERVED_MIN_S = 30.0
COPIES_MIN_S = 60.0  # copies that ran together for less say little
ASKED_MAX = 1_000  # answers kept of one subject: what jobs declare may differ from job to job
KEYS_MAX = 500  # classes times node types; those that were not used for longest go
NOTHING_DECLARED = Loading()
PART_MIN = 0.01  # who uses less of a resource than this is taken to use none
Key = tuple[str, str]
"""A subject, see `subject_of`, and a node type."""
ProfileKey = tuple[str, Loading]
"""A node type, and what was declared."""
Vector = tuple[float, float]
"""The parts at disk and network that decisions count with."""
ProfileAnswer = tuple[Profile | None, Vector]
NOTHING_SHARED: Vector = (0.0, 0.0)


def subject_of(job: Job) -> str:
    """Whose profile is a job's: its class, its web application's, or its own. Only the first is stored."""
    if job.app:
        return f"app/{job.app}"
    return job.job_class or f"job/{job.name}"


def is_stored(subject: str) -> bool:
    """Return whether what is learned of it is stored beyond the controller's lifetime: no class name has a slash."""
    return "/" not in subject


@dataclass(slots=True)
class _Known:
    """What is known of one subject on one node type."""

    history: LoadingHistory = field(default_factory=LoadingHistory)
    used_s: float = 0.0
    dirty: bool = False


class InterferenceProfiles:
    """Histories by subject and node type, and the paces of node types. `disturbed`: nodes on which something runs that
    is no VM, or ran until so many seconds: their windows say nothing until then."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings) -> None:
        self.cluster, self.unit_of_work, self.settings = cluster, unit_of_work, settings.interference
        self.demand = Demand(self.settings.observations_min, self.settings.half_width_max)
        self.paces: dict[str, tuple[PaceSample, ...]] = {}
        self.disturbed: dict[str, float] = {}
        self._known: dict[str, dict[str, _Known]] = {}  # by subject and node type
        self._profiles: dict[str, dict[ProfileKey, ProfileAnswer]] = {}  # by subject: what was asked for
        self._kinds: tuple[str, ...] = ()  # the node types that decisions asked for
        self._meters: dict[str, Meter] = {}  # by VM
        self._dirty_paces: set[str] = set()

    # --- taking over ------------------------------------------------------------------------------------------------

    def load(self, record: LoadingRecord | PaceRecord) -> None:
        """Take over what an earlier controller has learnt."""
        if isinstance(record, PaceRecord):
            self.paces[record.node_type] = record.paces
        else:
            known = _Known(record.history, record.used_s)
            self._known.setdefault(record.job_class, {})[record.node_type] = known
        self._profiles.clear()

    # --- what is measured -------------------------------------------------------------------------------------------

    def window(self, node: NodeEntry, before: Report, last: Report, now_s: float) -> None:
        """Take in what a node's VMs did between two of its reports."""
        if not self.settings.learn or node.inventory is None or not (node.claimed or self._is_metered(last)):
            return
        node_type = node.inventory.node_type
        servers = float(servers_of(self.paces.get(node_type, ()), IO))
        meters = {status.vm: self._meter(status.vm, node) for status in (*before.vms, *last.vms)}
        if before.clock_s < self.disturbed.get(node.name, 0.0):
            for disturbed in filter(None, meters.values()):
                disturbed.together = False
            return
        window = window_of(before, last, node.inventory, meters, servers, self.settings.network_mbit_per_s)
        self._count(window, meters)
        for vm, reading in window.alone.items():
            meter = meters[vm]
            if meter is not None:
                meter.add(reading, window.alone_s[vm])
                if meter.seconds >= OBSERVED_S:
                    self._observe(meter, now_s)

    def _is_metered(self, last: Report) -> bool:
        return any(status.vm in self._meters for status in last.vms)

    def _meter(self, vm: str, node: NodeEntry) -> Meter | None:
        """Return the meter of a VM; None for a VM that is not managed."""
        node_type = node.inventory.node_type if node.inventory is not None else ""
        meter = self._meters.get(vm)
        instance = self.cluster.instances.get(vm)
        if instance is not None and (meter is None or meter.job != instance.job.job.name):
            job = instance.job.job
            meter = self._meters[vm] = Meter(
                job.name, subject_of(job), node_type, max_mhz=job.max_mhz, given=job.resource_profile
            )
        if meter is not None and meter.node_type != node_type:
            meter.begin(node_type)
        return meter

    def _count(self, window: Window, meters: dict[str, Meter | None]) -> None:
        """Count what copies of a class did together without other disturbance."""
        subjects = {meter.subject if meter is not None else "" for vm, meter in meters.items() if vm in window.running}
        undisturbed = window.whole and len(subjects) == 1 and is_stored(*subjects) and "" not in subjects
        for vm in window.running:
            meter = meters[vm]
            if meter is not None and not undisturbed:
                meter.together = False
            elif meter is not None and vm in window.work_mcycles:
                meter.count(window.elapsed_s, len(window.running), window.work_mcycles[vm])

    def _observe(self, meter: Meter, now_s: float) -> None:
        """Record what a meter has gathered as an observation."""
        shares = meter.take()
        known = self._of(meter.subject, meter.node_type)
        before = self.profile(meter.subject, meter.node_type)
        history, drifted = history_of.with_shares(known.history, shares, now_s)
        self._change(meter.subject, meter.node_type, history, now_s)
        where = f"on {meter.node_type or 'nodes of no type'}"
        if drifted and not meter.subject.startswith("app/"):
            self.unit_of_work.emit(now_s, "profile-drifted", meter.subject, f"{where}: it is learnt again")
        after = self.profile(meter.subject, meter.node_type)
        self.vectors(meter.subject, meter.given, self._kinds)  # now, so that the next decision need not
        fresh = before is None or before.status is not Status.MEASURED
        if is_stored(meter.subject) and fresh and after is not None and after.status is Status.MEASURED:
            cpu, io, net = after.vector
            self.unit_of_work.emit(
                now_s, "profile-measured", meter.subject, f"{where}: cpu {cpu:.2f}, io {io:.2f}, net {net:.2f}"
            )

    def note(self, jobs: Iterable[JobEntry], now_s: float) -> None:
        """Take in which jobs are over: what their meters have gathered counts, and of copies how long they took."""
        for entry in jobs:
            if entry.over:
                for meter in [each for each in self._meters_of(entry.job) if not each.ended]:
                    self._end(meter, entry.phase is JobPhase.COMPLETED, now_s)

    def _meters_of(self, job: Job) -> Iterator[Meter]:
        for vm in [job.name] if job.app else [f"{job.name}#{index}" for index in range(job.instances)]:
            meter = self._meters.get(vm)
            if meter is not None and meter.job == job.name:
                yield meter

    def _end(self, meter: Meter, completed: bool, now_s: float) -> None:
        meter.ended = True  # it stays for the window in which it ended
        if meter.seconds >= OBSERVED_MIN_S:
            self._observe(meter, now_s)
        if completed and meter.together and meter.covered_s >= COPIES_MIN_S and meter.work_mcycles > 0.0:
            time = CopyTime(meter.copies, meter.covered_s / meter.work_mcycles, now_s)
            history = history_of.with_copies(self._of(meter.subject, meter.node_type).history, time)
            self._change(meter.subject, meter.node_type, history, now_s)

    def probed(self, job: Job, node_type: str, probe: ProbePart) -> None:
        """Record a part of a job's profile that a calibration benchmark has measured."""
        subject = subject_of(job)
        history = history_of.with_probe(self._of(subject, node_type).history, probe)
        self._change(subject, node_type, history, probe.at_s)

    def paced(self, node_type: str, pace: PaceSample) -> None:
        """Record a run of a calibration benchmark on an otherwise idle node."""
        self.paces[node_type] = history_of.with_pace(self.paces.get(node_type, ()), pace)
        self._dirty_paces.add(node_type)
        self._profiles.clear()

    def _of(self, subject: str, node_type: str) -> _Known:
        return self._known.setdefault(subject, {}).setdefault(node_type, _Known())

    def _change(self, subject: str, node_type: str, history: LoadingHistory, now_s: float) -> None:
        known = self._of(subject, node_type)
        known.history, known.used_s, known.dirty = history, now_s, True
        self._profiles.pop(subject, None)

    # --- what is known ----------------------------------------------------------------------------------------------

    def keys(self) -> list[Key]:
        """Return all keys with measurements, sorted by name."""
        return sorted((subject, kind) for subject, kinds in self._known.items() for kind in kinds)

    def history(self, subject: str, node_type: str) -> LoadingHistory:
        """Return the measurements of a subject on a node type."""
        known = self._known.get(subject, {}).get(node_type)
        return known.history if known is not None else LoadingHistory()

    def knows(self, subject: str) -> bool:
        """Return whether there is any measurement of it."""
        return subject in self._known

    def profile(self, subject: str, node_type: str, given: Loading = NOTHING_DECLARED) -> Profile | None:
        """Return the profile of a subject on a node type: measured there, else measured on another type and converted,
        else as `given`, else from too few measurements to count; None where there is none."""
        return self._answer(subject, (node_type, given))[0]

    def vectors(self, subject: str, given: Loading, node_types: tuple[str, ...]) -> list[Vector]:
        """Return the resource profiles that decisions use, for each of the node types."""
        self._kinds = node_types
        asked = self._profiles.get(subject, {})
        return [(asked.get((kind, given)) or self._answer(subject, (kind, given)))[1] for kind in node_types]

    def _answer(self, subject: str, key: ProfileKey) -> ProfileAnswer:
        asked = self._profiles.setdefault(subject, {})
        if key not in asked:
            profile = self._profile(subject, *key)
            _cpu, io, net = profile.vector if profile is not None and profile.counts else (0.0, 0.0, 0.0)
            asked[key] = profile, (io if io >= PART_MIN else 0.0, net if net >= PART_MIN else 0.0)
        return asked[key]

    def _profile(self, subject: str, node_type: str, given: Loading) -> Profile | None:
        kinds = self._known.get(subject, {})
        own = self._measured(kinds[node_type], node_type) if node_type in kinds else None
        if own is not None and own.counts:
            return own
        others = [(self._measured(known, kind), kind) for kind, known in kinds.items() if kind != node_type]
        good = [(profile, kind) for profile, kind in others if profile.counts]
        if good:
            profile, kind = max(good, key=lambda each: (each[0].observations, each[1]))
            return converted(profile, kind, self.paces.get(kind, ()), self.paces.get(node_type, ()))
        return declared(given) if given else own

    def _measured(self, known: _Known, node_type: str) -> Profile:
        return profile_of(known.history, self.demand, float(servers_of(self.paces.get(node_type, ()), IO)))

    # --- storing ----------------------------------------------------------------------------------------------------

    def cycle(self) -> None:
        """Have what was learnt since the last cycle stored, and forget what is over."""
        self._meters = {
            vm: meter for vm, meter in self._meters.items() if vm in self.cluster.instances and not meter.ended
        }
        for subject in [subject for subject in self._known if not is_stored(subject) and not self._is_there(subject)]:
            del self._known[subject]
        self._forget()
        self._profiles = {subject: asked for subject, asked in self._profiles.items() if self._is_used(subject, asked)}
        for subject, kinds in self._known.items():
            for node_type, known in kinds.items():
                if known.dirty and is_stored(subject):
                    known.dirty = False
                    record = LoadingRecord(subject, node_type, known.history, known.used_s)
                    self.unit_of_work.records.append(record)
        for node_type in sorted(self._dirty_paces):
            self.unit_of_work.records.append(PaceRecord(node_type, self.paces[node_type]))
        self._dirty_paces.clear()

    def _is_there(self, subject: str) -> bool:
        kind, _, name = subject.partition("/")
        return name in (self.cluster.web if kind == "app" else self.cluster.active)

    def _is_used(self, subject: str, asked: Mapping[ProfileKey, ProfileAnswer]) -> bool:
        """Return whether answers about a subject may still be requested and are not too many."""
        return len(asked) <= ASKED_MAX and (subject in self._known or self._is_there(subject))

    def answers(self) -> int:
        """Return the number of cached profile answers."""
        return sum(len(asked) for asked in self._profiles.values())

    def _forget(self) -> None:
        """Drop the least recently used measurements where there are too many; those without a class are limited by the
        number of jobs."""
        stored = [
            (known.used_s, subject, node_type)
            for subject, kinds in self._known.items()
            if is_stored(subject)
            for node_type, known in kinds.items()
        ]
        for _used_s, subject, node_type in sorted(stored)[: max(0, len(stored) - KEYS_MAX)]:
            gone = LoadingRecord(subject, node_type, LoadingHistory())
            del self._known[subject][node_type]
            if not self._known[subject]:
                del self._known[subject]
            self._profiles.pop(subject, None)
            self.unit_of_work.records.append(Deleted(gone.key))
