"""Inputs of decisions, the audit log, and notifications sent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "7"
down_revision = "6"
branch_labels = None
depends_on = None

BIG_KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Tables more, indexes and columns that reports ask by; what is there stays as it is."""
    _more_of_decisions()
    _cluster_use()
    op.create_index("events_what", "events", ["what", "at_s"])
    op.create_index("actions_node", "actions", ["node", "at_s"])
    op.create_index("jobs_accepted_s", "jobs", ["accepted_s"])
    op.create_table(
        "snapshots",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("term", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("snapshots_at_s", "snapshots", ["at_s"])
    op.create_table(
        "audit",
        sa.Column("id", BIG_KEY, primary_key=True),
        sa.Column("at_s", sa.Double, nullable=False),
        *(_text(name) for name in ("account", "via", "request", "kind", "subject", "why")),
        sa.Column("done", sa.Boolean, nullable=False),
        *(_text(name) for name in ("code", "detail")),
    )
    op.create_index("audit_at_s", "audit", ["at_s"])
    op.create_table(
        "notifications",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("at_s", sa.Double, nullable=False),
        *(_text(name) for name in ("channel", "what", "subject", "detail", "state")),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("next_s", sa.Double),
        _text("error"),
    )
    op.create_index("notifications_at_s", "notifications", ["at_s"])
    op.create_index("notifications_state", "notifications", ["state", "at_s"])


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _more_of_decisions() -> None:
    """Plain columns for what reports show. In SQLite they must be before the body to be read without it."""
    first = ("number", "at_s", "term", "policy", "changes", "refusals", "dropped", "held", "gains")
    figures = ("now_min", "now_mean", "predicted_min", "predicted_mean", "measured_min", "measured_mean")
    with op.batch_alter_table(
        "decisions", partial_reordering=[(*first, *figures, "nodes_wanted", "reasons", "body")]
    ) as table:
        for name in figures:
            table.add_column(sa.Column(name, sa.Double))
        table.add_column(sa.Column("nodes_wanted", sa.Integer))
        table.add_column(sa.Column("reasons", sa.Text))


def _cluster_use() -> None:
    sums = ("memory_used_mib", "disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes")
    op.create_table(
        "cluster_use",
        sa.Column("from_s", sa.Double, primary_key=True, autoincrement=False),
        sa.Column("span_s", sa.Double, nullable=False),
        sa.Column("nodes", sa.Integer, nullable=False),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("cpu_frac", "cpu_frac_max", "iowait_frac", *sums)),
    )
    summed = ", ".join(f"sum({name})" for name in sums)
    op.execute(
        f"INSERT INTO cluster_use (from_s, span_s, nodes, cpu_frac, cpu_frac_max, iowait_frac, {', '.join(sums)})"
        " SELECT from_s, max(span_s), count(*), avg(cpu_frac), max(cpu_frac_max), avg(iowait_frac),"
        f" {summed} FROM samples GROUP BY from_s"
    )
