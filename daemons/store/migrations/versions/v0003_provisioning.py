"""Deadline windows, how long nodes take into service and out of it, and what cycles cost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Three tables more; what is there stays as it is."""
    for name in ("windows", "durations"):
        op.create_table(
            name,
            sa.Column("name", sa.Text, primary_key=True),
            sa.Column("body", sa.LargeBinary, nullable=False),
        )
    op.create_table(
        "costs",
        sa.Column("at_s", sa.Double, primary_key=True, autoincrement=False),
        sa.Column("span_s", sa.Double, nullable=False),
        sa.Column("currency", sa.Text, nullable=False),
        *(
            sa.Column(name, sa.Double, nullable=False)
            for name in ("kwh", "cost", "static_kwh", "static_cost", "in_service_node_s", "node_s")
        ),
        *(sa.Column(name, sa.Integer, nullable=False) for name in ("node_starts", "misses")),
        sa.Column("penalty", sa.Double, nullable=False),
    )
