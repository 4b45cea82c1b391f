"""A store with a month of history, made at once: for measuring what reads it.

`python -m benchmarks.history_store sqlite:////folder/history.db` makes one of 1,000 nodes, 5,000 workloads and 30 days;
what is in it comes from a seed. Nodes and workloads are those of `wire_load`, samples are as retention leaves them:
five minutes of the last week, hours before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import click
import numpy as np
from sqlalchemy import Connection, Table, insert

from benchmarks.wire_load import Load
from daemons.decision.gains import Gains
from daemons.store import SqlStore, schema
from daemons.store.rows import to_row
from daemons.values.records.cluster import ControlRecord, CostRecord, DecisionRecord, JobRecord, Provisioned
from shared.base.clock import ManualClock
from shared.policy_api.decision import Change, ChangeKind, Plan, Reason, ReasonCode, Refusal
from shared.policy_api.snapshot import Floats
from shared.values.jobs import Allotment, JobPhase

DAY_S, HOUR_S, FINE_S, CYCLE_S = 86_400.0, 3_600.0, 300.0, 900.0
FINE_DAYS = 7
NOW_S = 1_790_000_000.0 - 1_790_000_000.0 % DAY_S
AT_ONCE = 10_000
KINDS = ("start", "suspend", "resume", "migrate", "stop")
EVENTS = (
    "decided",
    "job-submitted",
    "job-completed",
    "vm-migrated",
    "node-in-service",
    "node-unreachable",
    "action-failed",
)
REASONS = (ReasonCode.NO_MEMORY, ReasonCode.NO_CPU, ReasonCode.NO_GAIN, ReasonCode.MIGRATION_LIMIT, ReasonCode.KEEP)


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is. Of each node 5 workloads run; the `_a_day` are of all nodes together; changes, refusals: of a
    decision."""

    nodes: int = 1_000
    days: int = 30
    jobs_a_day: int = 1_000
    events_a_day: int = 6_000
    actions_a_day: int = 3_000
    requests_a_day: int = 100
    changes: int = 20
    refusals: int = 500
    seed: int = 0

    @property
    def load(self) -> Load:
        """What runs now."""
        return Load(self.nodes)


WHOLE = Size()


def make(url: str, size: Size = WHOLE, now_s: float = NOW_S) -> dict[str, int]:
    """Fill the empty store of `url` with `size.days` before `now_s` (a whole day); rows by table. A generator of the
    given seed says everything, so that the same size is the same store."""
    chance = np.random.default_rng(size.seed)
    counts: dict[str, int] = {}
    with closing(SqlStore(url, ManualClock(now_s))) as store:
        term = store.take_lead("history").term
        decisions = int(size.days * DAY_S / CYCLE_S)
        store.write(term, (*size.load.records(now_s), ControlRecord(True, decisions, size.load.workloads)))
        for table, rows in _tables(size, now_s, chance):
            with store.writing() as connection:
                counts[table.name] = counts.get(table.name, 0) + _insert(connection, table, rows)
    return counts


def _tables(size: Size, now_s: float, chance: np.random.Generator) -> Iterator[tuple[Table, Iterable[dict[str, Any]]]]:
    yield schema.samples, _samples(size, now_s, chance)
    yield schema.cluster_use, _cluster_use(size, now_s, chance)
    yield schema.jobs, _jobs(size, now_s, chance)
    yield schema.decisions, _decisions(size, now_s, chance)
    yield schema.costs, _costs(size, now_s, chance)
    yield schema.events, _events(size, now_s, chance)
    yield schema.actions, _actions(size, now_s, chance)
    yield schema.audit, _audit(size, now_s, chance)
    yield schema.notifications, _notifications(size, now_s)


def _insert(connection: Connection, table: Table, rows: Iterable[dict[str, Any]]) -> int:
    pending, count = iter(rows), 0
    while batch := list(islice(pending, AT_ONCE)):
        connection.execute(insert(table), batch)
        count += len(batch)
    return count


def _slots(size: Size, now_s: float) -> Iterator[tuple[float, float]]:
    """Begin and length of every slot of which nodes' samples are kept."""
    for days, step_s in ((range(size.days, FINE_DAYS, -1), HOUR_S), (range(min(size.days, FINE_DAYS), 0, -1), FINE_S)):
        for day in days:
            yield from ((now_s - day * DAY_S + at * step_s, step_s) for at in range(int(DAY_S / step_s)))


def _samples(size: Size, now_s: float, chance: np.random.Generator) -> Iterator[dict[str, Any]]:
    names = size.load.names
    for from_s, span_s in _slots(size, now_s):
        cpu = np.clip(_daily(from_s) + 0.1 * chance.standard_normal(size.nodes), 0.0, 1.0).tolist()
        for name, used in zip(names, cpu, strict=True):
            yield _sample(name, from_s, span_s, used)


def _sample(name: str, from_s: float, span_s: float, used: float) -> dict[str, Any]:
    counted = int(span_s * used * 1e6)
    return {
        "node": name,
        "from_s": from_s,
        "span_s": span_s,
        "readings": int(span_s / 5),
        "cpu_frac": used,
        "cpu_frac_max": min(1.0, used + 0.2),
        "iowait_frac": 0.05 * used,
        "load_1min": 8.0 * used,
        "memory_used_mib": 16_384.0 * used,
        "memory_used_mib_max": 20_000.0 * used,
        "swap_used_mib_max": 0.0,
        "disk_free_mib_min": 100_000.0,
        "disk_busy_s": 0.1 * span_s,
        "disk_read_bytes": counted,
        "disk_write_bytes": counted // 2,
        "net_rx_bytes": counted // 3,
        "net_tx_bytes": counted // 4,
    }


def _daily(at_s: float) -> float:
    """How busy the time of day is, 0..1."""
    return 0.5 + 0.3 * math.sin(2 * math.pi * at_s / DAY_S)


def _cluster_use(size: Size, now_s: float, chance: np.random.Generator) -> Iterator[dict[str, Any]]:
    for slot in range(int(size.days * DAY_S / FINE_S)):
        from_s = now_s - size.days * DAY_S + slot * FINE_S
        row = _sample("", from_s, FINE_S, float(np.clip(_daily(from_s) + 0.02 * chance.standard_normal(), 0.0, 1.0)))
        summed = {name: row[name] * size.nodes for name in row if name.endswith("_bytes") or name == "memory_used_mib"}
        every = {**row, "nodes": size.nodes, **summed}
        yield {column.name: every[column.name] for column in schema.cluster_use.columns}


def _jobs(size: Size, now_s: float, chance: np.random.Generator) -> Iterator[dict[str, Any]]:
    pattern = next(record for record in size.load.records(now_s) if isinstance(record, JobRecord))
    for number in range(size.jobs_a_day * size.days):
        accepted_s = now_s - (number + 1) * DAY_S / size.jobs_a_day
        took_s = float(chance.exponential(2 * HOUR_S)) + 60.0
        job = replace(pattern.job, name=f"done-{number}", goal_s=accepted_s + 4 * HOUR_S, desired_start_s=accepted_s)
        phase = JobPhase.CANCELLED if number % 50 == 0 else JobPhase.COMPLETED
        ended_s = min(accepted_s + took_s, now_s)
        yield to_row(
            replace(
                pattern, job=job, phase=phase, accepted_s=accepted_s, finished_s=ended_s, allotments=(), instances=()
            )
        )


def _decisions(size: Size, now_s: float, chance: np.random.Generator) -> Iterator[dict[str, Any]]:
    names = tuple(record.job.name for record in size.load.records(now_s) if isinstance(record, JobRecord))
    for number in range(1, int(size.days * DAY_S / CYCLE_S) + 1):
        at_s = now_s - size.days * DAY_S + (number - 1) * CYCLE_S
        yield to_row(_decision(size, number, at_s, names, chance))


def _decision(
    size: Size, number: int, at_s: float, names: tuple[str, ...], chance: np.random.Generator
) -> DecisionRecord:
    predicted = _utilities(0.6 + 0.3 * chance.standard_normal(len(names)))
    measured = _utilities(predicted + 0.05 * chance.standard_normal(len(names)))
    gains = Gains(names, _utilities(predicted - 0.1), predicted, np.ones(len(names)), measured)
    asked = Reason(ReasonCode.HIGHER_UTILITY, (("utility", 0.5),))
    changes = tuple(
        Change(names[(number + at) % len(names)], 1, ChangeKind.MIGRATE, (Allotment("node-0001", 1_200.0),), asked)
        for at in range(min(size.changes, len(names)))
    )
    refusals = tuple(
        Refusal(names[(7 * number + at) % len(names)], Reason(REASONS[at % len(REASONS)], (("needed_mib", 4_096.0),)))
        for at in range(min(size.refusals, len(names)))
    )
    wanted = max(1, int(size.nodes * _daily(at_s)))
    provisioned = Provisioned((), (), False, reason=Reason(ReasonCode.NEEDED), policy="threshold", in_service=wanted)
    record = DecisionRecord(
        number,
        at_s,
        1,
        policy="apc",
        changes=changes,
        refusals=refusals,
        dropped=(),
        held=(),
        plan=Plan(()),
        gains=gains,
    )
    return replace(record, measured_s=at_s + CYCLE_S, provisioning=provisioned)


def _utilities(values: Floats) -> Floats:
    return np.asarray(np.round(np.clip(values, -2.0, 1.0), 4), dtype=np.float64)


def _costs(size: Size, now_s: float, chance: np.random.Generator) -> Iterator[dict[str, Any]]:
    for number in range(int(size.days * DAY_S / CYCLE_S)):
        at_s = now_s - size.days * DAY_S + number * CYCLE_S
        kwh, price = 40.0 * size.nodes / 1_000 * _daily(at_s), 0.2 + 0.05 * float(chance.random())
        static_kwh, node_s = 45.0 * size.nodes / 1_000, size.nodes * CYCLE_S
        record = CostRecord(
            at_s,
            CYCLE_S,
            "EUR",
            kwh=kwh,
            cost=kwh * price,
            static_kwh=static_kwh,
            static_cost=static_kwh * price,
            in_service_node_s=node_s * _daily(at_s),
            node_s=node_s,
            node_starts=3,
        )
        yield to_row(record)


def _times(size: Size, now_s: float, a_day: int, chance: np.random.Generator) -> Sequence[float]:
    times = now_s - size.days * DAY_S * chance.random(a_day * size.days)
    found: list[float] = np.sort(times).tolist()
    return found


def _events(size: Size, now_s: float, chance: np.random.Generator) -> Iterator[dict[str, Any]]:
    for number, at_s in enumerate(_times(size, now_s, size.events_a_day, chance)):
        what = EVENTS[number % len(EVENTS)]
        subject = size.load.names[number % size.nodes] if what.startswith("node") else f"done-{number}"
        yield {"at_s": at_s, "what": what, "subject": subject, "term": 1, "detail": "as it was told"}


def _actions(size: Size, now_s: float, chance: np.random.Generator) -> Iterator[dict[str, Any]]:
    names = size.load.names
    for number, at_s in enumerate(_times(size, now_s, size.actions_a_day, chance)):
        kind, failed = KINDS[number % len(KINDS)], number % 100 == 0
        yield {
            "id": f"1-{number}",
            "at_s": at_s,
            "kind": kind,
            "vm": f"done-{number % (50 * size.nodes)}#0",
            "node": names[number % len(names)],
            "term": 1,
            "to_node": names[(number + 1) % len(names)] if kind == "migrate" else None,
            "sent_s": at_s,
            "done_s": at_s + float(chance.exponential(10.0)),
            "outcome": "failed" if failed else "ok",
            "detail": "no space left on device" if failed else "",
        }


def _audit(size: Size, now_s: float, chance: np.random.Generator) -> Iterator[dict[str, Any]]:
    for number, at_s in enumerate(_times(size, now_s, size.requests_a_day, chance)):
        yield {
            "at_s": at_s,
            "account": f"operator.person{number % 7}",
            "via": "portal.web",
            "request": f"request-{number}",
            "kind": "drain" if number % 3 else "submit-job",
            "subject": size.load.names[number % size.nodes],
            "why": "disks are to be replaced",
            "done": number % 20 != 0,
            "code": "" if number % 20 else "not-allowed",
            "detail": "",
        }


def _notifications(size: Size, now_s: float) -> Iterator[dict[str, Any]]:
    for number in range(20 * size.days):
        is_dead = number % 50 == 0
        yield {
            "id": f"notice-{number}",
            "at_s": now_s - size.days * DAY_S + number * DAY_S / 20,
            "channel": "mail",
            "what": "node-unreachable",
            "subject": size.load.names[number % size.nodes],
            "detail": "",
            "state": "dead" if is_dead else "sent",
            "tries": 8 if is_dead else 1,
            "next_s": None,
            "error": "connection refused" if is_dead else "",
        }


@click.command()
@click.argument("url")
@click.option("--nodes", type=click.IntRange(1), default=1_000, show_default=True, help="Nodes; 5 workloads on each.")
@click.option("--days", type=click.IntRange(1, 400), default=30, show_default=True, help="Days of history.")
@click.option("--now", "now_s", type=float, default=NOW_S, show_default=True, help="When it ends, in epoch seconds.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that is drawn at random.")
def main(url: str, nodes: int, days: int, now_s: float, seed: int) -> None:
    """Fill the empty store of URL; what is counted a day grows with the nodes."""
    part = nodes / 1_000
    a_day = {name: max(1, int(getattr(WHOLE, name) * part)) for name in Size.__slots__ if name.endswith("_a_day")}
    counts = make(url, Size(nodes, days, seed=seed, **a_day), now_s)
    click.echo("\n".join(f"{name}: {count:,} rows" for name, count in counts.items()))


if __name__ == "__main__":
    main()
