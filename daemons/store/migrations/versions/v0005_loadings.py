"""How jobs load nodes, and how fast standard jobs run there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "5"
down_revision = "4"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two tables; existing data stay unchanged."""
    for table in ("loadings", "paces"):
        op.create_table(
            table, sa.Column("name", sa.Text, primary_key=True), sa.Column("body", sa.LargeBinary, nullable=False)
        )
