"""What is known and wanted of an environment: the row of `daemons.controller.state.cluster`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from daemons.controller.state.kept import kept_in, record_of
from daemons.values.records.cluster import EnvironmentRecord
from shared.values.agreement import Agreement, EnvironmentState, Granularity, WorkloadType

NOT_BEGUN = -1.0  # of a group's timers


@dataclass(slots=True, eq=False)
class EnvironmentEntry:
    """An environment's agreement and life; the fields are those of EnvironmentRecord. `started_s` is `NOT_BEGUN` from
    its activation until its group's policy has been asked for its size."""

    agreement: Agreement
    request: str
    order: int
    created_s: float
    state: EnvironmentState = EnvironmentState.UNINITIALISED
    wanted: EnvironmentState = EnvironmentState.CREATED
    detail: str = ""
    consents: set[str] = field(default_factory=set)
    partner: str = ""
    parts_s: float | None = None
    size: int = 0
    started_s: float = NOT_BEGUN
    provisioned_s: float = 0.0
    managed_s: float = 0.0
    adjustments: int = 0
    killed: int = 0
    suspended: int = 0
    lost_node_hours: float = 0.0
    setups: int = 0
    offered: str = ""
    ended_s: float = 0.0
    declined: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, record: EnvironmentRecord) -> EnvironmentEntry:
        """Return the environment as a store knew it."""
        sets: dict[str, Any] = {"consents": set(record.consents), "declined": set(record.declined)}
        return cls(**kept_in(record, *sets), **sets)

    def record(self) -> EnvironmentRecord:
        """Return the environment as the store keeps it."""
        consents, declined = tuple(sorted(self.consents)), tuple(sorted(self.declined))
        return record_of(EnvironmentRecord, self, consents=consents, declined=declined)

    @property
    def name(self) -> str:
        """Its name."""
        return self.agreement.name

    @property
    def owner(self) -> str:
        """Its owner: the part of a broker user `owner.NAME` after the dot."""
        return self.agreement.owner

    @property
    def batch(self) -> bool:
        """It is made for batch jobs, not for web applications."""
        return self.agreement.workload is WorkloadType.BATCH

    @property
    def by_node(self) -> bool:
        """Its units are nodes, not VMs."""
        return self.agreement.granularity is Granularity.NODE

    @property
    def running(self) -> bool:
        """Its workloads may run."""
        return self.state is EnvironmentState.RUNNING and self.wanted is EnvironmentState.RUNNING

    @property
    def serves(self) -> bool:
        """It is activated: it has units, or they are on their way to it."""
        return self.wanted is EnvironmentState.RUNNING

    @property
    def begun(self) -> bool:
        """Its group's policy has been asked: its size counts, its timers run."""
        return self.started_s >= 0.0

    @property
    def destroyed(self) -> bool:
        """Nothing of it is left but its history."""
        return self.state is EnvironmentState.DESTROYED

    @property
    def over(self) -> bool:
        """It is destroyed, or on its way there: nothing may be asked of it any more."""
        return self.wanted is EnvironmentState.DESTROYED
