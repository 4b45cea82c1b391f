"""An agent's metrics about its node and itself: every metric, and the meter that collects them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from shared.metrics.book import Timing
from shared.metrics.meter import ShellMeter
from shared.metrics.values import Metric, MetricKind, Scrape
from shared.ports import effects as fx
from shared.protocol.messages import Report
from shared.values.vms import VmState

MIB = 1024.0 * 1024.0
HZ_PER_MHZ = 1e6
_GAUGE, _COUNTER = MetricKind.GAUGE, MetricKind.COUNTER

INFO = Metric(
    "trimtab_agent_info",
    MetricKind.INFO,
    "",
    "The node, its hypervisor's driver, and the type of node and system as it reports them.",
    ("node", "driver", "node_type", "os_type", "os_version"),
)
TERM = Metric("trimtab_agent_term", _GAUGE, "terms", "The highest term of a controller that the last report echoes.")
REPORTED = Metric(
    "trimtab_agent_report_timestamp_seconds", _GAUGE, "seconds", "When the last report was made, since the epoch."
)
CPU = Metric("trimtab_agent_cpu_used_ratio", _GAUGE, "ratio", "CPU of the node in use over the last period, 0 to 1.")
IOWAIT = Metric(
    "trimtab_agent_cpu_iowait_ratio", _GAUGE, "ratio", "CPU that waited for I/O over the last period, 0 to 1."
)
LOAD = Metric("trimtab_agent_load1", _GAUGE, "processes", "Load of the node over a minute.")
CAPACITY = Metric("trimtab_agent_cpu_hertz", _GAUGE, "hertz", "CPU of the node, all cores, by its reference clock.")
MEMORY = Metric("trimtab_agent_memory_bytes", _GAUGE, "bytes", "Memory of the node.")
MEMORY_USED = Metric("trimtab_agent_memory_used_bytes", _GAUGE, "bytes", "Memory that is not available to new VMs.")
SWAP = Metric("trimtab_agent_swap_used_bytes", _GAUGE, "bytes", "Swap in use.")
DISK_FREE = Metric("trimtab_agent_disk_free_bytes", _GAUGE, "bytes", "Free space where images and disks are kept.")
DISK_BUSY = Metric("trimtab_agent_disk_busy_seconds_total", _COUNTER, "seconds", "Time that disks were busy, summed.")
DISK_READ = Metric("trimtab_agent_disk_read_bytes_total", _COUNTER, "bytes", "Read from disks.")
DISK_WRITTEN = Metric("trimtab_agent_disk_written_bytes_total", _COUNTER, "bytes", "Written to disks.")
RECEIVED = Metric("trimtab_agent_network_received_bytes_total", _COUNTER, "bytes", "Received by the network cards.")
TRANSMITTED = Metric("trimtab_agent_network_sent_bytes_total", _COUNTER, "bytes", "Sent by the network cards.")
VMS = Metric(
    "trimtab_agent_vms", _GAUGE, "VMs", "VMs and images on the node by state: ours, and others.", ("state", "managed")
)

UNDER_WAY = Metric(
    "trimtab_agent_actions_in_progress", _GAUGE, "actions", "Actions that were accepted and are not done."
)
ACTIONS = Metric(
    "trimtab_agent_actions_total",
    _COUNTER,
    "actions",
    "Actions that the hypervisor has ended, by kind and outcome.",
    ("kind", "outcome"),
)
ACTION = Metric(
    "trimtab_agent_action_seconds",
    MetricKind.HISTOGRAM,
    "seconds",
    "How long the hypervisor took for an action, by kind.",
    ("kind",),
    (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0),
)
ABORTS = Metric("trimtab_agent_aborts_total", _COUNTER, "actions", "Actions that took too long and were given up.")
GUESTS = Metric(
    "trimtab_agent_guest_events_total", _COUNTER, "events", "What guests did without being asked, by what.", ("change",)
)
PROBES = Metric("trimtab_agent_probes_total", _COUNTER, "probes", "Probes of instances, by their result.", ("result",))
CALL = Metric(
    "trimtab_agent_call_seconds",
    MetricKind.HISTOGRAM,
    "seconds",
    "How long calls took: to the hypervisor (begin, abort, forget, poll, read), the sampler (sample), the journal "
    "(write-journal).",
    ("call",),
    (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0),
)
FAILURES = Metric(
    "trimtab_agent_call_failures_total", _COUNTER, "calls", "Such calls that were not answered.", ("call",)
)
OUTBOX = Metric(
    "trimtab_agent_outbox_messages", _GAUGE, "messages", "Results and events that the broker has not taken."
)
OPEN_EVENTS = Metric(
    "trimtab_agent_open_events", _GAUGE, "events", "Guest events that no controller has said to be stored."
)
JOURNAL = Metric("trimtab_agent_journal_bytes", _GAUGE, "bytes", "How long the journal is.")

METRICS = (
    *(INFO, TERM, REPORTED),
    *(CPU, IOWAIT, LOAD, CAPACITY, MEMORY, MEMORY_USED, SWAP),
    *(DISK_FREE, DISK_BUSY, DISK_READ, DISK_WRITTEN, RECEIVED, TRANSMITTED, VMS),
    *(UNDER_WAY, ACTIONS, ACTION, ABORTS, GUESTS, PROBES),
    *(CALL, FAILURES, OUTBOX, OPEN_EVENTS, JOURNAL),
)
CALLS = ("begin", "abort", "forget", "poll", "read", "sample", "write-journal")
_READ = frozenset({DISK_BUSY, DISK_READ, DISK_WRITTEN, RECEIVED, TRANSMITTED})  # counters of the node, not of ours


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """How things stand in an agent: its node, unconfirmed messages, the length of its journal (None: not known)."""

    node: str
    outbox: int
    journal_bytes: int | None


class AgentMeter(ShellMeter):
    """The meter of an agent. `facts` is asked in the core's thread."""

    def __init__(
        self, driver: str, version: str, monotonic_s: Callable[[], float], facts: Callable[[], AgentFacts]
    ) -> None:
        super().__init__("agent", version, tuple(metric for metric in METRICS if metric not in _READ))
        self._driver, self._facts = driver, facts
        self.begin(FAILURES, *CALLS)
        self._operating = Timing(monotonic_s)
        self._seen: fx.Observed | None = None
        self._report: Report | None = None
        self.on |= {
            fx.Observed: self._observed,
            fx.Publish: self._published_message,
            fx.Operate: lambda effect: self._operating.begin(effect.action.id, effect.action.kind.value),
            fx.Operated: self._operated,
            fx.Abort: lambda _: self.book.add(ABORTS, 1.0),
            fx.GuestChanged: lambda event: self.book.add(GUESTS, 1.0, event.change.value),
            fx.Probed: lambda probed: self.book.add(PROBES, 1.0, "ok" if probed.ok else "failed"),
        }

    def called(self, what: str, took_s: float, ok: bool) -> None:
        """Count a call; from any thread."""
        self.book.observe(CALL, took_s, what)
        if not ok:
            self.book.add(FAILURES, 1.0, what)

    def read(self, scrape: Scrape, now_s: float) -> None:
        """Read the node's last reading and the state of the agent."""
        super().read(scrape, now_s)
        facts, report, seen = self._facts(), self._report, self._seen
        scrape.put(OUTBOX, float(facts.outbox))
        scrape.put(JOURNAL, facts.journal_bytes)
        if report is not None:
            scrape.put(TERM, float(report.term))
            scrape.put(REPORTED, report.clock_s)
            scrape.put(UNDER_WAY, float(len(report.in_progress)))
            scrape.put(OPEN_EVENTS, float(len(report.events)))
        if seen is not None:
            self._node(seen, facts.node, scrape)

    def _node(self, seen: fx.Observed, node: str, scrape: Scrape) -> None:
        sample, has = seen.sample, seen.inventory
        scrape.put(INFO, 1.0, node, self._driver, has.node_type, has.os_type, has.os_version)
        scrape.put(CPU, sample.cpu_frac)
        scrape.put(IOWAIT, sample.iowait_frac)
        scrape.put(LOAD, sample.load_1min)
        scrape.put(CAPACITY, has.cpu_mhz * HZ_PER_MHZ)
        scrape.put(MEMORY, has.memory_mib * MIB)
        scrape.put(MEMORY_USED, sample.memory_used_mib * MIB)
        scrape.put(SWAP, sample.swap_used_mib * MIB)
        scrape.put(DISK_FREE, sample.disk_free_mib * MIB)
        scrape.put(DISK_BUSY, sample.disk_busy_s)
        scrape.put(DISK_READ, float(sample.disk_read_bytes))
        scrape.put(DISK_WRITTEN, float(sample.disk_write_bytes))
        scrape.put(RECEIVED, float(sample.net_rx_bytes))
        scrape.put(TRANSMITTED, float(sample.net_tx_bytes))
        counts = Counter((vm.state, vm.managed) for vm in seen.vms)
        for state in VmState:
            for managed, word in ((True, "yes"), (False, "no")):
                scrape.put(VMS, float(counts[state, managed]), state.value, word)

    def _observed(self, seen: fx.Observed) -> None:
        self._seen = seen

    def _published_message(self, publish: fx.Publish) -> None:
        if isinstance(publish.message, Report):
            self._report = publish.message

    def _operated(self, operated: fx.Operated) -> None:
        ended = self._operating.end(operated.call_id)
        if ended is not None:
            took_s, kind = ended
            self.book.observe(ACTION, took_s, kind)
            self.book.add(ACTIONS, 1.0, kind, operated.outcome.value)
