"""The controller's metrics about itself and its cluster: every metric, and the readings of its tables.

Pure: readings are taken from the tables between two inputs. There is little about single nodes, since their own agents
report the rest, and only the number of jobs.
"""

from __future__ import annotations

from collections import Counter

from daemons.controller.admission import metrics as admission
from daemons.controller.core.leadership import Role
from daemons.controller.energy import metrics as energy
from daemons.controller.environments import metrics as environments
from daemons.controller.state.jobs import OVER
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.views.alarms import alarms
from daemons.controller.views.context import ViewContext
from daemons.controller.views.nodes import vms_on
from daemons.controller.web import metrics as web
from daemons.decision.gains import columns_of
from shared.metrics.values import Metric, MetricKind, Scrape
from shared.values.jobs import JobPhase
from shared.values.nodes import NodeCondition, NodeService

MIB = 1024.0 * 1024.0
HZ_PER_MHZ = 1e6
NODES_MAX = 2_000  # series of each metric with the label `node`
_GAUGE = MetricKind.GAUGE
_TENTHS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)

LEADING = Metric(
    "trimtab_controller_leading", _GAUGE, "0 or 1", "Whether this controller leads. Only a leader reports tables."
)
TERM = Metric("trimtab_controller_term", _GAUGE, "terms", "The term of this controller, 0 for a standby.")
ACTING = Metric("trimtab_controller_acting", _GAUGE, "0 or 1", "Whether orders may be issued; not so after a restore.")
POLICIES = Metric(
    "trimtab_policy_info",
    MetricKind.INFO,
    "",
    "The policies of placement, provisioning and admission, and the automation level.",
    ("placement", "provisioning", "admission", "automation"),
)

NODES = Metric("trimtab_nodes", _GAUGE, "nodes", "Nodes by what is known of them.", ("condition",))
SERVICES = Metric("trimtab_nodes_service", _GAUGE, "nodes", "Nodes by how far they are in service.", ("service",))
NODE_UP = Metric(
    "trimtab_node_up", _GAUGE, "0 or 1", "Whether the node reports, to this leader.", ("node",), series_max=NODES_MAX
)
NODE_SERVES = Metric(
    "trimtab_node_in_service", _GAUGE, "0 or 1", "Whether the node is in service.", ("node",), series_max=NODES_MAX
)
NODE_REPORT = Metric(
    "trimtab_node_report_timestamp_seconds",
    _GAUGE,
    "seconds",
    "When the node's last report was received, since the epoch.",
    ("node",),
    series_max=NODES_MAX,
)
CPU = Metric(
    "trimtab_cluster_cpu_hertz",
    _GAUGE,
    "hertz",
    "CPU of all nodes that are up: what they have, what VMs are promised, what is used.",
    ("part",),
)
MEMORY = Metric(
    "trimtab_cluster_memory_bytes",
    _GAUGE,
    "bytes",
    "Memory of all nodes that are up: what VMs may take, and what they are promised.",
    ("part",),
)
VMS = Metric("trimtab_vms", _GAUGE, "VMs", "VMs and images on nodes that are up: ours, and others.", ("managed",))

JOBS = Metric("trimtab_jobs", _GAUGE, "jobs", "Jobs that are not over, by phase.", ("phase",))
JOBS_HELD = Metric("trimtab_jobs_held", _GAUGE, "jobs", "Jobs that an operator holds back.")
JOBS_STALLED = Metric("trimtab_jobs_stalled", _GAUGE, "jobs", "Jobs that should make progress and do not.")


DECIDING = Metric("trimtab_deciding", _GAUGE, "0 or 1", "Whether decisions are made; not so while they are paused.")
DECISIONS = Metric(
    "trimtab_decisions_total", MetricKind.COUNTER, "decisions", "Decisions that were recorded, over all terms."
)
DECIDED = Metric(
    "trimtab_decision_timestamp_seconds", _GAUGE, "seconds", "When the last decision was recorded, since the epoch."
)
PERIOD = Metric("trimtab_decision_period_seconds", _GAUGE, "seconds", "How often the cluster is decided on.")
TROUBLE = Metric("trimtab_decision_trouble", _GAUGE, "0 or 1", "Whether the last computation brought no decision.")
WAITING = Metric("trimtab_decision_waiting_changes", _GAUGE, "changes", "Changes that wait for an operator's word.")
GAINS = Metric(
    "trimtab_decision_utility",
    _GAUGE,
    "utility",
    "Utilities of the last decision that predicted some, the smallest and the mean over all workloads: of before it, "
    "as predicted with it, at best, and as measured a cycle later.",
    ("stat", "of"),
)
COMPUTATIONS = Metric(
    "trimtab_computations_total",
    MetricKind.COUNTER,
    "computations",
    "Computations by what was asked for and how they ended: decided, failed, skipped for want of data.",
    ("request", "outcome"),
)
COMPUTATION = Metric(
    "trimtab_computation_seconds",
    MetricKind.HISTOGRAM,
    "seconds",
    "How long computations took, waiting for the worker included.",
    ("request",),
    _TENTHS,
)

UNDER_WAY = Metric(
    "trimtab_actions_in_progress", _GAUGE, "actions", "Actions that were ordered and not answered.", ("kind",)
)
ORDERS = Metric("trimtab_orders_total", MetricKind.COUNTER, "orders", "Orders sent, by kind of action.", ("kind",))
ACTIONS = Metric(
    "trimtab_actions_total",
    MetricKind.COUNTER,
    "actions",
    "Actions that have ended, by kind and outcome.",
    ("kind", "outcome"),
)
ACTION = Metric(
    "trimtab_action_seconds",
    MetricKind.HISTOGRAM,
    "seconds",
    "From an order to its result, by kind of action.",
    ("kind",),
    (*_TENTHS, 600.0, 1800.0),
)
POWER = Metric(
    "trimtab_power_operations_total",
    MetricKind.COUNTER,
    "operations",
    "Power operations that the driver was asked for and answered.",
    ("operation", "outcome"),
)

ALARMS = Metric(
    "trimtab_alarms", _GAUGE, "alarms", "What is not as it should be now, by code of the alarm.", ("alarm",)
)
EVENTS = Metric("trimtab_events_total", MetricKind.COUNTER, "events", "Events emitted, by code.", ("event",))

WRITE = Metric(
    "trimtab_store_write_seconds",
    MetricKind.HISTOGRAM,
    "seconds",
    "How long writes to the store took, waiting for those before included.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0),
)
WRITES_FAILED = Metric(
    "trimtab_store_write_failures_total",
    MetricKind.COUNTER,
    "writes",
    "Writes that failed: the store did not answer, or another controller leads.",
    ("reason",),
)
RECORDS = Metric("trimtab_store_records_total", MetricKind.COUNTER, "records", "Records that were given to the store.")

ENERGY = Metric(
    "trimtab_energy_joules_total",
    MetricKind.COUNTER,
    "joules",
    "Energy of all nodes, added up at the end of each cycle: as it was, and with every node on.",
    ("plan",),
)
SPENT = Metric(
    "trimtab_energy_cost",
    _GAUGE,
    "currency",
    "What that energy has cost since this process began: as it was, and with every node on. Falls while prices are "
    "negative.",
    ("plan", "currency"),
)

METRICS = (
    *(LEADING, TERM, ACTING, POLICIES),
    *(NODES, SERVICES, NODE_UP, NODE_SERVES, NODE_REPORT, CPU, MEMORY, VMS),
    *(JOBS, JOBS_HELD, JOBS_STALLED),
    *environments.METRICS,
    *admission.METRICS,
    *web.METRICS,
    *(DECIDING, DECISIONS, DECIDED, PERIOD, TROUBLE, WAITING, GAINS, COMPUTATIONS, COMPUTATION),
    *(UNDER_WAY, ORDERS, ACTIONS, ACTION, POWER),
    *(ALARMS, EVENTS),
    *(WRITE, WRITES_FAILED, RECORDS),
    *(energy.WATTS, ENERGY, SPENT, energy.PRICE),
)


def read_tables(tables: ViewContext, scrape: Scrape, now_s: float) -> None:
    """Take the readings of a controller's tables; of one that does not lead only that. O(nodes + jobs not over)."""
    leads = tables.leadership.role is Role.LEADING
    scrape.put(LEADING, float(leads))
    scrape.put(TERM, float(tables.leadership.term))
    if not leads:
        return
    scrape.put(ACTING, float(tables.unit_of_work.acting))
    settings = tables.settings
    admitting = settings.admission.name if settings.admission is not None else "none"
    scrape.put(POLICIES, 1.0, settings.placement.name, settings.provisioning.name, admitting, settings.automation.value)
    _nodes(tables, scrape)
    _jobs(tables, scrape)
    _decisions(tables, scrape)
    flights = Counter(
        instance.in_flight.kind.value for instance in tables.cluster.actions.values() if instance.in_flight is not None
    )
    scrape.rows(UNDER_WAY, sorted(flights.items()))
    scrape.rows(ALARMS, sorted(Counter(str(alarm["what"]) for alarm in alarms(tables, now_s)).items()))
    tables.features.read_metrics(scrape, now_s)


def _nodes(tables: ViewContext, scrape: Scrape) -> None:
    nodes = tables.cluster.nodes
    conditions = Counter(node.condition for node in nodes.values())
    services = Counter(node.service for node in nodes.values())
    scrape.rows(NODES, ((one.value, float(conditions[one])) for one in NodeCondition))
    scrape.rows(SERVICES, ((one.value, float(services[one])) for one in NodeService))
    for name, node in nodes.items():
        scrape.put(NODE_UP, float(node.condition is NodeCondition.UP), name)
        scrape.put(NODE_SERVES, float(node.service is NodeService.IN_SERVICE), name)
        scrape.put(NODE_REPORT, node.seen_s if node.seen_s > 0.0 else None, name)
    _capacity([node for node in nodes.values() if node.condition is NodeCondition.UP], scrape)


def _capacity(up: list[NodeEntry], scrape: Scrape) -> None:
    known = [(node, node.inventory) for node in up if node.inventory is not None]
    cpu_mhz = sum(facts.cpu_mhz for _, facts in known)
    used_mhz = sum(facts.cpu_mhz * node.last.sample.cpu_frac for node, facts in known if node.last is not None)
    promised_mhz = sum(node.committed_mhz for node, _ in known)
    parts_mhz = (("total", cpu_mhz), ("promised", promised_mhz), ("used", used_mhz))
    scrape.rows(CPU, ((part, mhz * HZ_PER_MHZ) for part, mhz in parts_mhz))
    usable_mib, promised_mib = sum(facts.usable_mib for _, facts in known), sum(node.committed_mib for node, _ in known)
    scrape.rows(MEMORY, (("usable", usable_mib * MIB), ("promised", promised_mib * MIB)))
    managed = Counter(vm.managed for node in up for vm in vms_on(node))
    scrape.rows(VMS, (("yes", float(managed[True])), ("no", float(managed[False]))))


def _jobs(tables: ViewContext, scrape: Scrape) -> None:
    jobs = [entry for entry in tables.cluster.active.values() if not entry.job.app and not entry.over]
    phases = Counter(entry.phase for entry in jobs)
    scrape.rows(JOBS, ((one.value, float(phases[one])) for one in JobPhase if one not in OVER))
    scrape.put(JOBS_HELD, float(sum(entry.held for entry in jobs)))
    scrape.put(JOBS_STALLED, float(sum(entry.stalled for entry in jobs)))


def _decisions(tables: ViewContext, scrape: Scrape) -> None:
    deciding = tables.deciding
    scrape.put(DECIDING, float(deciding.enabled))
    scrape.put(DECISIONS, float(deciding.decisions))
    last = deciding.history.last
    scrape.put(DECIDED, last.at_s if last is not None else None)
    scrape.put(PERIOD, tables.settings.decide_s)
    scrape.put(TROUBLE, float(deciding.trouble is not None))
    scrape.put(WAITING, float(len(deciding.pending.held)) if deciding.pending is not None else 0.0)
    predicted = next((record for record in deciding.history if len(record.gains)), None)
    if predicted is not None:
        for stat, figures in columns_of(predicted.gains).summary().items():
            for of, figure in figures.items():
                scrape.put(GAINS, figure, stat, of)
