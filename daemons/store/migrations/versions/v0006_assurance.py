"""Demand of environments, and how it was served."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "6"
down_revision = "5"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table; existing data stay unchanged."""
    op.create_table(
        "assurances", sa.Column("name", sa.Text, primary_key=True), sa.Column("body", sa.LargeBinary, nullable=False)
    )
