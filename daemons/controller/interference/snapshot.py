"""What policies see of how workloads load nodes beside the CPU, which allotments share out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daemons.controller.interference.profiles import NOTHING_SHARED, InterferenceProfiles, subject_of
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.models.loading_profiler import servers_of
from shared.policy_api.snapshot import LoadingColumns
from shared.values.load_vector import IO, NET, Loading

SHARED = (IO, NET)


def loading_columns(
    profiles: InterferenceProfiles, nodes: Sequence[NodeEntry], jobs: Sequence[JobEntry]
) -> LoadingColumns | None:
    """Return the columns of these nodes, which have inventories, and workloads; None where sharing does not count, or
    no known workload uses any of it. O(nodes + workloads), plus one profile for each distinct workload and node
    type."""
    if not profiles.settings.decisions:
        return None
    kinds: dict[str, int] = {}
    node_type = [kinds.setdefault(node.inventory.node_type if node.inventory else "", len(kinds)) for node in nodes]
    distinct: dict[tuple[str, Loading] | None, int] = {None: 0}
    rows = []
    for entry in jobs:
        subject = subject_of(entry.job)
        asked = (subject, entry.job.resource_profile) if entry.job.resource_profile or profiles.knows(subject) else None
        rows.append(distinct.setdefault(asked, len(distinct)))
    if len(distinct) == 1:
        return None
    every, nothing = tuple(kinds), [NOTHING_SHARED] * len(kinds)
    vectors = [nothing if asked is None else profiles.vectors(*asked, every) for asked in distinct]
    flat = np.array([part for of_kinds in vectors for vector in of_kinds for part in vector])
    table = flat.reshape(len(distinct), len(kinds), len(SHARED)).transpose(1, 0, 2)
    if not table.any():
        return None
    servers = [[servers_of(profiles.paces.get(kind, ()), IO), 1.0] for kind in kinds]
    return LoadingColumns(
        SHARED,
        np.ascontiguousarray(table[:, np.array(rows, dtype=np.int64), :]),
        np.array(node_type, dtype=np.int64),
        np.array(servers, dtype=np.float64),
        profiles.settings.model,
    )
