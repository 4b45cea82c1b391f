"""Agreements and records of environments that several tests use."""

from __future__ import annotations

from typing import Any

from daemons.values.records.cluster import EnvironmentRecord
from shared.values.agreement import Agreement, EnvironmentState, WorkloadType


def agreement(name: str = "batch", workload: str = "batch", lower: int = 1, **fields: Any) -> Agreement:
    """An agreement of owner `anna` under FB."""
    return Agreement(name, fields.pop("owner", "anna"), WorkloadType(workload), lower=lower, **fields)


def environment_record(name: str = "batch", **fields: Any) -> EnvironmentRecord:
    """What the store keeps of an environment that runs."""
    given: dict[str, Any] = {
        "agreement": agreement(name),
        "request": "r",
        "order": 1,
        "created_s": 10.0,
        "state": EnvironmentState.RUNNING,
        "wanted": EnvironmentState.RUNNING,
    }
    return EnvironmentRecord(**(given | fields))
