"""What a cache of tables may hold: its name, how it is computed, how much it holds."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import Any

import numpy as np

from daemons.models.deadline.breaches import BreachSpec, BreachTable
from daemons.models.deadline.phase_sizes import PhaseSizeTable
from daemons.models.deadline.risks import RiskSpec, RiskTable
from daemons.models.deadline.rules import SizeTable, TableSpec
from daemons.models.deadline.tables import build

FORMAT = 1  # goes up when the same inputs make another table, or it is written otherwise
Spec = TableSpec | BreachSpec | RiskSpec
Table = SizeTable | BreachTable | RiskTable | PhaseSizeTable


def name_of(spec: Spec) -> str:
    """Return a file name for everything that a table depends on."""
    if isinstance(spec, TableSpec):
        since = [str(spec.begin)] if spec.begin else []
        words = [spec.method, str(spec.guarded), spec.problem.digest(), *since]
    else:
        words = [spec.digest()]
    return hashlib.sha256(" ".join([str(FORMAT), type(spec).__name__, *words]).encode()).hexdigest()


def made(spec: Spec) -> Table:
    """Build the table. Raises `InvalidValue` if the spec has none."""
    return build(spec) if isinstance(spec, TableSpec) else spec.build()


def size_bytes(table: Any) -> int:
    """Return the approximate memory of a table in bytes."""
    values = (getattr(table, field.name) for field in fields(table))
    return 1000 + sum(value.nbytes for value in values if isinstance(value, np.ndarray))
