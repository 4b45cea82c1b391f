"""Demand of environments, and how it was served."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "6"
down_revision = "5"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A table more; what is there stays as it is."""
    op.create_table(
        "assurances", sa.Column("name", sa.Text, primary_key=True), sa.Column("body", sa.LargeBinary, nullable=False)
    )
