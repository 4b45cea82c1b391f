"""What people and programs ask: who may, dispatch, audit, queries and dry runs. Imported by the core."""
