"""What jobs took of what they declared, and how long operations take."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "8"
down_revision = "7"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two tables; existing data stay unchanged."""
    for table in ("work_ratios", "operation_times"):
        op.create_table(
            table, sa.Column("name", sa.Text, primary_key=True), sa.Column("body", sa.LargeBinary, nullable=False)
        )
