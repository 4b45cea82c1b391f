"""Web applications, and how much is predicted in a decision."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table and a column; existing data stay unchanged."""
    op.add_column("decisions", sa.Column("gains", sa.Integer, nullable=False, server_default="0"))
    op.create_table(
        "web",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("accepted_s", sa.Double, nullable=False),
        sa.Column("removed", sa.Boolean, nullable=False),
        sa.Column("min_instances", sa.Integer, nullable=False),
        sa.Column("max_instances", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
