"""Environments."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table; existing data stay unchanged."""
    op.create_table(
        "environments",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("ended_s", sa.Double),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
