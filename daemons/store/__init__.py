"""The controller's store: its records under its term, history, retention, backup. SQLite or PostgreSQL."""

from __future__ import annotations

from daemons.store.backup import Restored
from daemons.store.history import ActionEntry, Batch, History
from daemons.store.retention import Pruned, Retention, Steps
from daemons.store.samples import NodeUse, SampleBook
from daemons.store.sql import SqlStore

__all__ = [
    "ActionEntry",
    "Batch",
    "History",
    "NodeUse",
    "Pruned",
    "Restored",
    "Retention",
    "SampleBook",
    "SqlStore",
    "Steps",
]
