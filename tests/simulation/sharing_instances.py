"""Clusters of `place_instances` whose jobs load the disks and networks of their nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shared.policy_api.snapshot import LoadingColumns, Snapshot

IO, NET = 0, 1


def with_loading(seen: Snapshot, seed: int, model: str = "formula", user_frac: float = 0.7) -> Snapshot:
    """The cluster with nodes of two types, of which the second has a disk of two servers, and jobs that use the disk
    for up to 90 % and the network for up to 10 % of their time, `user_frac` of them at all."""
    rng = np.random.default_rng([seed, 77])
    count = len(seen.workloads.names)
    io = np.where(rng.random(count) < user_frac, rng.choice([0.1, 0.4, 0.7, 0.9], count), 0.0)
    net = np.where(rng.random(count) < 0.3, 0.1, 0.0)
    parts = np.stack([np.stack([io, net], axis=1), np.stack([io * 0.8, net], axis=1)])
    loading = LoadingColumns(
        resources=("io", "net"),
        parts=parts,
        node_type=rng.integers(0, 2, len(seen.nodes.names)),
        servers=np.array([[1.0, 1.0], [2.0, 1.0]]),
        model=model,
    )
    return replace(seen, loading=loading)


def with_io(seen: Snapshot, io: dict[str, float], model: str = "formula") -> Snapshot:
    """The cluster with nodes of one type, and jobs that use the disk for such parts of their time."""
    parts = np.array([[[io.get(name, 0.0)] for name in seen.workloads.names]])
    kinds = np.zeros(len(seen.nodes.names), dtype=np.int64)
    return replace(seen, loading=LoadingColumns(("io",), parts, kinds, np.ones((1, 1)), model))
