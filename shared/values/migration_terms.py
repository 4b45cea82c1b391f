"""How a VM is to be migrated, and how a migration went: what a controller chooses and an agent measures.

The methods are those of QEMU: https://www.qemu.org/docs/master/devel/migration/.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shared.values.scalars import not_negative, positive, whole

STREAMS_MAX: Final = 255  # channels of QEMU's multifd
DOWNTIME_MS_MAX: Final = 2_000_000  # of QEMU
BANDWIDTH_MIB_PER_S_MAX: Final = 1_000_000
NOT_MEASURED: Final = -1.0
LIMIT_S: Final = 300.0  # defaults of the agents' configuration
DOWNTIME_MS: Final = 300


class MigrationMethod(StrEnum):
    """How memory reaches the target, from the least to the most intrusive for the guest."""

    PRE_COPY = "pre-copy"  # copied while the guest runs at the source, again as long as it changes
    AUTO_CONVERGE = "auto-converge"  # pre-copy, with vCPUs that are slowed until the copy gets ahead of the guest
    POST_COPY = "post-copy"  # one pass, then the guest runs at the target and fetches what is missing


@dataclass(frozen=True, slots=True)
class MigrationTerms:
    """How to migrate a VM. An agent's own configuration bounds it from above, and takes the place of every 0.

    `method`: how it begins. `streams`: connections that carry memory (above 1: multifd; never together with
    post-copy). `bandwidth_mib_per_s`: of this migration. `downtime_ms`: longest stop of the guest at the end.
    `limit_s`: time after which it is aborted. `post_copy`: a migration that does not converge may switch to post-copy.
    Raises `InvalidValue`.
    """

    method: MigrationMethod = MigrationMethod.PRE_COPY
    streams: int = 1
    bandwidth_mib_per_s: int = 0
    downtime_ms: int = 0
    limit_s: float = 0.0
    post_copy: bool = False

    def __post_init__(self) -> None:
        whole("streams", self.streams, 1, STREAMS_MAX)
        whole("bandwidth_mib_per_s", self.bandwidth_mib_per_s, 0, BANDWIDTH_MIB_PER_S_MAX)
        whole("downtime_ms", self.downtime_ms, 0, DOWNTIME_MS_MAX)
        not_negative("limit_s", self.limit_s)

    @property
    def may_switch(self) -> bool:
        """Whether post-copy is allowed."""
        return self.post_copy or self.method is MigrationMethod.POST_COPY


@dataclass(frozen=True, slots=True)
class MigrationBounds:
    """What a node's agent allows of a migration from it, whatever its terms say. `limit_s`: time after which it is
    aborted; `downtime_ms`: longest stop of the guest at the end; `bandwidth_mib_per_s` (0: no limit). An agent that
    does not report them has the defaults of its configuration, as far as is known. Raises `InvalidValue`."""

    limit_s: float = LIMIT_S
    downtime_ms: int = DOWNTIME_MS
    bandwidth_mib_per_s: int = 0

    def __post_init__(self) -> None:
        positive("limit_s", self.limit_s)
        whole("downtime_ms", self.downtime_ms, 1, DOWNTIME_MS_MAX)
        whole("bandwidth_mib_per_s", self.bandwidth_mib_per_s, 0, BANDWIDTH_MIB_PER_S_MAX)


DEFAULT_BOUNDS: Final = MigrationBounds()


@dataclass(frozen=True, slots=True)
class MigrationFigures:
    """How a migration went, also of one that was aborted. `method`: the one that it ended with. `duration_s`: from its
    begin to its end; `downtime_s`: for so long the guest stood still; `transferred_mib`: memory and disks; `rounds`:
    passes over the memory; `dirty_mib_per_s`: the last rate at which the guest changed memory, and `throttle_frac` the
    part of its CPU time that was taken from it then. A negative downtime or rate was not measured."""

    method: MigrationMethod
    duration_s: float
    downtime_s: float = NOT_MEASURED
    transferred_mib: float = 0.0
    rounds: int = 0
    dirty_mib_per_s: float = NOT_MEASURED
    throttle_frac: float = 0.0
