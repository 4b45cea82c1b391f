"""What views are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from daemons.controller.contract.feature_set import FeatureSet
from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.measure.screening import Screening
from daemons.controller.reconcile.reconciler import Reconciler
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.decision.request_codec import SnapshotPages
from daemons.values.settings import ControllerSettings


class Leader(Protocol):
    """Whether a controller leads, and in which term."""

    @property
    def role(self) -> Enum:
        """What it is to the others."""
        ...

    @property
    def term(self) -> int:
        """The number of its lead; 0 for a standby."""
        ...


@dataclass(frozen=True, slots=True)
class ViewContext:
    """What views are made of. `in_hand`: what the controller waits for, by name. `dry_running`: a dry run is under
    way. `pages`: what was saved last. `troubles`: of the process beside its core, which the shell notes between two
    inputs: since when and what, by code of the alarm."""

    controller: str
    leadership: Leader
    settings: ControllerSettings
    cluster: Cluster
    unit_of_work: UnitOfWork
    deciding: DecisionCycle
    reconciler: Reconciler
    features: FeatureSet
    screening: Screening
    in_hand: Callable[[], dict[str, int]]
    dry_running: Callable[[], bool]
    pages: SnapshotPages = field(default_factory=SnapshotPages)
    troubles: dict[str, tuple[float, str]] = field(default_factory=dict)

    def note(self, what: str, detail: str, now_s: float) -> None:
        """Note a problem of the process outside its core, or ("") its end."""
        if detail:
            self.troubles[what] = (self.troubles.get(what, (now_s, ""))[0], detail)
        else:
            self.troubles.pop(what, None)
