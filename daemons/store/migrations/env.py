"""Run by Alembic: carries the steps out on the connection, and in the transaction, that the store hands over."""

from __future__ import annotations

from alembic import context

from daemons.store.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
