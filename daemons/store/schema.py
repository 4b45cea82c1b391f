"""The tables of the store: plain columns to ask questions by, and the packed record (`bodies.py`) beside them.

`daemons/store_migrations` makes and changes them; a test compares both. Times are UTC seconds since the epoch.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, LargeBinary, MetaData, Table, Text

SCHEMA = 4  # the number of the newest migration
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

control = Table(
    "control",
    metadata,
    Column("name", Text, primary_key=True),
    Column("deciding", Boolean, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

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
    Column("body", LargeBinary, nullable=False),
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
