"""How the tables of the store came about: Alembic's environment and its steps, numbered from 1."""
