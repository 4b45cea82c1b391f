"""The tables of the store: plain columns to ask questions by, and the packed record (`bodies.py`) beside them.

`daemons/store/migrations` makes and changes them; a test compares both. Times are UTC seconds since the epoch.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, LargeBinary, MetaData, Table, Text

SCHEMA = 8  # the number of the newest migration
VERSION_TABLE = "trimtab_schema"

metadata = MetaData()

# One row, locked by every conditional write and changed by every change of leader.
lead = Table(
    "lead",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("term", BigInteger, nullable=False),
    Column("controller", Text, nullable=False),
    Column("taken_s", Double, nullable=False),
)

# Every lead there was.
terms = Table(
    "terms",
    metadata,
    Column("term", BigInteger, primary_key=True, autoincrement=False),
    Column("controller", Text, nullable=False),
    Column("taken_s", Double, nullable=False),
)

nodes = Table(
    "nodes",
    metadata,
    Column("name", Text, primary_key=True),
    Column("service", Text, nullable=False),
    Column("boot_id", Text, nullable=False),
    Column("off", Boolean, nullable=False),
    Column("cores", Integer),
    Column("memory_mib", BigInteger),
    Column("body", LargeBinary, nullable=False),
)

# `idle`: no VM or image of it is or may be anywhere. `is_over`: nothing is wanted of it any more.
jobs = Table(
    "jobs",
    metadata,
    Column("name", Text, primary_key=True),
    Column("phase", Text, nullable=False),
    Column("is_over", Boolean, nullable=False),
    Column("idle", Boolean, nullable=False),
    Column("request", Text, nullable=False),
    Column("submission", BigInteger, nullable=False),
    Column("accepted_s", Double, nullable=False),
    Column("goal_s", Double),
    Column("finished_s", Double),
    Column("instances", Integer, nullable=False),
    Column("memory_mib", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("jobs_phase", "phase"),
    Index("jobs_accepted_s", "accepted_s"),
    Index("jobs_finished_s", "finished_s"),
)

# `removed`: it goes when nothing of its instances, which are rows of `jobs`, is anywhere any more.
web = Table(
    "web",
    metadata,
    Column("name", Text, primary_key=True),
    Column("accepted_s", Double, nullable=False),
    Column("removed", Boolean, nullable=False),
    Column("min_instances", Integer, nullable=False),
    Column("max_instances", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

# `ended_s`: when it was destroyed.
environments = Table(
    "environments",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("ended_s", Double),
    Column("body", LargeBinary, nullable=False),
)

# What is kept of a deadline window, and how long bringing nodes into service and out of it has taken.
windows = Table(
    "windows", metadata, Column("name", Text, primary_key=True), Column("body", LargeBinary, nullable=False)
)
durations = Table(
    "durations", metadata, Column("name", Text, primary_key=True), Column("body", LargeBinary, nullable=False)
)

# What was measured of how jobs load nodes, and how fast standard jobs ran there.
loadings = Table(
    "loadings", metadata, Column("name", Text, primary_key=True), Column("body", LargeBinary, nullable=False)
)
paces = Table("paces", metadata, Column("name", Text, primary_key=True), Column("body", LargeBinary, nullable=False))

# What jobs took of what they declared, and how long operations take.
work_ratios = Table(
    "work_ratios", metadata, Column("name", Text, primary_key=True), Column("body", LargeBinary, nullable=False)
)
operation_times = Table(
    "operation_times", metadata, Column("name", Text, primary_key=True), Column("body", LargeBinary, nullable=False)
)

# What is known of environments' demand, and of how it was served.
assurances = Table(
    "assurances", metadata, Column("name", Text, primary_key=True), Column("body", LargeBinary, nullable=False)
)

control = Table(
    "control",
    metadata,
    Column("name", Text, primary_key=True),
    Column("deciding", Boolean, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

# The smallest and the mean utility over the workloads as they were, were predicted and were measured, the nodes that
# provisioning wanted, and how often each reason was given, as JSON: see `DecisionRow`.
decisions = Table(
    "decisions",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at_s", Double, nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("policy", Text, nullable=False),
    Column("changes", Integer, nullable=False),
    Column("refusals", Integer, nullable=False),
    Column("dropped", Integer, nullable=False),
    Column("held", Integer, nullable=False),
    Column("gains", Integer, nullable=False, server_default="0"),
    Column("now_min", Double),
    Column("now_mean", Double),
    Column("predicted_min", Double),
    Column("predicted_mean", Double),
    Column("measured_min", Double),
    Column("measured_mean", Double),
    Column("nodes_wanted", Integer),
    Column("reasons", Text),
    Column("body", LargeBinary, nullable=False),  # last: SQLite reads the columns before it without it
    Index("decisions_at_s", "at_s"),
)

events = Table(
    "events",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at_s", Double, nullable=False),
    Column("what", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("detail", Text, nullable=False),
    Index("events_at_s", "at_s"),
    Index("events_subject", "subject", "at_s"),
    Index("events_what", "what", "at_s"),
)

actions = Table(
    "actions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("at_s", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("vm", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("to_node", Text),
    Column("sent_s", Double),
    Column("done_s", Double),
    Column("outcome", Text),
    Column("detail", Text),
    Index("actions_at_s", "at_s"),
    Index("actions_vm", "vm", "at_s"),
    Index("actions_node", "node", "at_s"),
)

samples = Table(
    "samples",
    metadata,
    Column("node", Text, primary_key=True),
    Column("from_s", Double, primary_key=True, autoincrement=False),
    Column("span_s", Double, nullable=False),
    Column("readings", Integer, nullable=False),
    Column("cpu_frac", Double, nullable=False),
    Column("cpu_frac_max", Double, nullable=False),
    Column("iowait_frac", Double, nullable=False),
    Column("load_1min", Double, nullable=False),
    Column("memory_used_mib", Double, nullable=False),
    Column("memory_used_mib_max", Double, nullable=False),
    Column("swap_used_mib_max", Double, nullable=False),
    Column("disk_free_mib_min", Double, nullable=False),
    Column("disk_busy_s", Double, nullable=False),
    Column("disk_read_bytes", BigInteger, nullable=False),
    Column("disk_write_bytes", BigInteger, nullable=False),
    Column("net_rx_bytes", BigInteger, nullable=False),
    Column("net_tx_bytes", BigInteger, nullable=False),
    Index("samples_from_s", "from_s"),
)

# The samples of all nodes together, one row for each five minutes also when those of the nodes have become hourly.
# Means over nodes; memory and what was read, written and sent: their sums.
cluster_use = Table(
    "cluster_use",
    metadata,
    Column("from_s", Double, primary_key=True, autoincrement=False),
    Column("span_s", Double, nullable=False),
    Column("nodes", Integer, nullable=False),
    Column("cpu_frac", Double, nullable=False),
    Column("cpu_frac_max", Double, nullable=False),
    Column("iowait_frac", Double, nullable=False),
    Column("memory_used_mib", Double, nullable=False),
    Column("disk_read_bytes", Double, nullable=False),
    Column("disk_write_bytes", Double, nullable=False),
    Column("net_rx_bytes", Double, nullable=False),
    Column("net_tx_bytes", Double, nullable=False),
)

# One row per cycle; it has no body.
costs = Table(
    "costs",
    metadata,
    Column("at_s", Double, primary_key=True, autoincrement=False),
    Column("span_s", Double, nullable=False),
    Column("currency", Text, nullable=False),
    Column("kwh", Double, nullable=False),
    Column("cost", Double, nullable=False),
    Column("static_kwh", Double, nullable=False),
    Column("static_cost", Double, nullable=False),
    Column("in_service_node_s", Double, nullable=False),
    Column("node_s", Double, nullable=False),
    Column("node_starts", Integer, nullable=False),
    Column("misses", Integer, nullable=False),
    Column("penalty", Double, nullable=False),
)

# What a decision was computed from: a saved request (`daemons/decision/request_codec.py`), by the decision's number.
snapshots = Table(
    "snapshots",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at_s", Double, nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("snapshots_at_s", "at_s"),
)

# Who asked for what and why, and what became of it. `via`: the broker's user that sent it.
audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at_s", Double, nullable=False),
    Column("account", Text, nullable=False),
    Column("via", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("done", Boolean, nullable=False),
    Column("code", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Index("audit_at_s", "at_s"),
)

# What is told to somebody. `state`: waiting, sent, dead or dropped; `next_s`: when it is tried again.
notifications = Table(
    "notifications",
    metadata,
    Column("id", Text, primary_key=True),
    Column("at_s", Double, nullable=False),
    Column("channel", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("next_s", Double),
    Column("error", Text, nullable=False),
    Index("notifications_at_s", "at_s"),
    Index("notifications_state", "state", "at_s"),
)
