"""The samples of all nodes together, kept beside those of the nodes: whole months are then read at once."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, Double, cast, func, select

from daemons.store import schema
from daemons.store.samples import COARSE_S
from daemons.store.upsert import put

_SUMS = ("memory_used_mib", "disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes")


def put_cluster_use(connection: Connection, slots: Collection[float]) -> None:
    """Sum up what nodes used in the five minutes that begin at `slots`, in seconds since the epoch; what was summed up
    of them before is replaced."""
    table = schema.samples.c
    wanted = select(
        table.from_s,
        func.max(table.span_s).label("span_s"),
        func.count().label("nodes"),
        func.avg(table.cpu_frac).label("cpu_frac"),
        func.max(table.cpu_frac_max).label("cpu_frac_max"),
        func.avg(table.iowait_frac).label("iowait_frac"),
        # as numbers that only lose digits: an agent may say what it likes, and a sum of integers would fail
        *(func.sum(cast(table[name], Double)).label(name) for name in _SUMS),
    )
    # what has become hourly meanwhile was summed up when it was not
    wanted = wanted.where(table.from_s.in_(sorted(slots)), table.span_s < COARSE_S).group_by(table.from_s)
    put(connection, schema.cluster_use, [dict(row) for row in connection.execute(wanted).mappings()])
