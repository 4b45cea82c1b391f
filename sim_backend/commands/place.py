"""`trimtab sim place`: one decision on a cluster that someone wrote down."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from daemons.capacity.place.file import PlaceFile, read, replica_name
from daemons.capacity.place.snapshot import snapshot_of
from daemons.cli.numbers import Number, Whole
from daemons.cli.output import REFUSED, emit, output_option
from daemons.cli.tables import Fitted, stacked
from daemons.controller.views.decisions import slowed_view
from daemons.models.outlook import Target, after, outlook_of, slowed_by, unchanged
from daemons.policies.placement.sharers import CHOICES
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput, Problem
from shared.policy_api.decision import ChangeKind, PlacementDecision
from shared.policy_api.snapshot import Snapshot, WorkloadState
from shared.ports.plugins import find_policy
from shared.values.jobs import instance_name

DEFAULT_POLICY = "apc"
TUNABLE = "apc"  # the policy that the options and limits below are for
GUARDS = ("on", "off", "equal")
Row = dict[str, Any]
Where = dict[int, list[tuple[str, float]]]


@click.command()
@click.argument("file", metavar="SNAPSHOT.json", type=click.Path(path_type=Path))
@click.option("--policy", default=DEFAULT_POLICY, show_default=True, help="Placement policy.")
@click.option("--heads", type=Whole(1, 1_000_000), help="apc: number of jobs that are tried first.")
@click.option("--tolerance", type=Number(0.0, 1e9), metavar="X", help="apc: ignore smaller gains of utility.")
@click.option("--guard", type=click.Choice(GUARDS), help="apc: whether only a more urgent job may preempt another.")
@click.option("--sharing", type=click.Choice(CHOICES), help="first-fit, edf: how the node is chosen where disks count.")
@output_option
def place(
    file: Path, policy: str, heads: int | None, tolerance: float | None, guard: str | None, sharing: str | None
) -> None:
    """Show what a placement policy would do with the cluster in SNAPSHOT.json, and the utilities that it predicts.

    Exit status 1 when nothing can be placed.

    \b
    Example:
      trimtab sim place examples/snapshot.json --policy edf
    """
    chosen = find_policy("placement", policy)
    given = read(file)
    params = _params(policy, {"heads": heads, "tolerance": tolerance, "guard": guard}, given, file)
    params |= {} if sharing is None else {"sharing": sharing}
    chosen.check_params(params)
    snapshot = snapshot_of(given)
    clock = SystemClock()
    begun_s = clock.monotonic_s()
    decision, _ = chosen.decide(snapshot, None, params)
    report = report_of(snapshot, decision, clock.monotonic_s() - begun_s)
    emit(report.to_json(), lambda: _for_people(report))
    if report.nothing_placed:
        click.get_current_context().exit(REFUSED)


def _params(policy: str, options: dict[str, Any], file: PlaceFile, path: Path) -> dict[str, Any]:
    """Return the parameters for the policy. Raises `InvalidInput` if they belong to another one."""
    params = {name: value for name, value in options.items() if value is not None}
    if policy != TUNABLE:
        problems = [Problem(f"--{name}", f"policy {policy} has no such parameter", TUNABLE) for name in params]
        if file.changes_max is not None:
            what = f"policy {policy} cannot keep a limit on changes"
            problems.append(Problem(f"{path}: limits.changes_max", what, TUNABLE))
        if problems:
            raise InvalidInput(*problems)
    return params if file.changes_max is None else params | {"changes_max": file.changes_max}


def _for_people(report: PlaceReport) -> RenderableType:
    level = "" if report.level is None else f"level of the jobs {report.level:.4f}, "
    parts: list[RenderableType] = [_utilities(report)]
    parts += [Text(row["text"]) for row in report.slowed or ()]
    for title, rows, columns in (
        ("changes", report.changes, ("action", "name", "from", "to", "cpu_mhz", "reason")),
        ("refused", report.refusals, ("name", "code", "detail")),
    ):
        parts.append(_listing(title, rows, columns) if rows else Text(f"{title}: none"))
    parts.append(Text(f"{level}{report.evaluations} placements tried in {report.wall_s:.3f} s"))
    return stacked(*parts)


def _utilities(report: PlaceReport) -> RenderableType:
    """Return every workload: its nodes under the decision and its expected utility."""
    homes: dict[str, list[str]] = {}
    for vm, held in report.placement.items():
        name = vm if vm in report.utilities else vm.partition("@")[0].rpartition("#")[0] or vm.partition("@")[0]
        homes.setdefault(name, []).append(f"{held['node']} {held['cpu_mhz']:,.0f} MHz")
    rows = []
    for name, utility in report.utilities.items():
        shown = ["-" if value is None else f"{value:.4f}" for value in utility.values()]
        rows.append([name, *shown, ", ".join(homes.get(name, [])) or "-"])
    return Fitted("utilities at the end of the cycle", ("name", "predicted", "best", "runs on"), rows)


def _listing(title: str, rows: list[Row], columns: tuple[str, ...]) -> RenderableType:
    return Fitted(title, columns, [[_cell(row[column]) for column in columns] for row in rows])


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:,.0f}" if isinstance(value, float) else str(value)


# --- the report -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlaceReport:
    """A decision for people and for JSON. An utility or a level without bounds (no CPU is given to any job) is None.
    slowed: whom sharing slows (None: no loads are known)."""

    placement: dict[str, Row]
    utilities: dict[str, dict[str, float | None]]
    level: float | None
    changes: list[Row]
    refusals: list[Row]
    slowed: list[Row] | None
    evaluations: int
    wall_s: float
    empty: bool

    @property
    def nothing_placed(self) -> bool:
        """Nothing runs although there is something that could."""
        return not self.placement and not self.empty

    def to_json(self) -> Row:
        """Return the keys of the output."""
        return {
            "placement": self.placement,
            "utilities": self.utilities,
            "level": self.level,
            "changes": self.changes,
            "refusals": self.refusals,
            "evaluations": self.evaluations,
            "wall_s": self.wall_s,
        } | ({} if self.slowed is None else {"slowed": self.slowed})


def report_of(snapshot: Snapshot, decision: PlacementDecision, wall_s: float) -> PlaceReport:
    """Return the results of the decision; `wall_s`: the time it took."""
    changes = tuple(decision.changes)
    outlook = outlook_of(snapshot, changes)
    rows = zip(outlook.names, outlook.predicted, outlook.best, outlook.aims(), strict=True)
    then = _where(snapshot, after(snapshot, changes))
    return PlaceReport(
        dict(_placement(snapshot, then)),
        {
            name: {"predicted": _bounded(predicted) if aims else None, "best": _bounded(best) if aims else None}
            for name, predicted, best, aims in rows
        },
        None if outlook.level is None else _bounded(outlook.level),
        changes=list(_changes(snapshot, decision, then)),
        refusals=_refusals(snapshot, decision),
        slowed=None if snapshot.loading is None else [slowed_view(one) for one in slowed_by(snapshot, changes)],
        evaluations=decision.evaluations,
        wall_s=wall_s,
        empty=not snapshot.workloads.names,
    )


def _bounded(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _where(snapshot: Snapshot, target: Target) -> Where:
    """Node and MHz of every instance, by row of its workload."""
    found: Where = {}
    for owner, node, mhz in zip(target.owner.tolist(), target.node.tolist(), target.cpu_mhz.tolist(), strict=True):
        found.setdefault(owner, []).append((snapshot.nodes.names[node], mhz))
    return found


def _names(snapshot: Snapshot, row: int, nodes: list[str]) -> list[str]:
    """Return the names of the instances of a workload."""
    work = snapshot.workloads
    app = work.app.item(row)
    if app >= 0:
        return [replica_name(snapshot.web.names[app], node) for node in nodes]
    if work.instances.item(row) == 1:
        return [work.names[row]]
    return [instance_name(work.names[row], index) for index in range(len(nodes))]


def _placement(snapshot: Snapshot, then: Where) -> Iterator[tuple[str, Row]]:
    for row in sorted(then):
        names = _names(snapshot, row, [node for node, _ in then[row]])
        for name, (node, mhz) in zip(names, then[row], strict=True):
            yield name, {"node": node, "cpu_mhz": mhz}


def _changes(snapshot: Snapshot, decision: PlacementDecision, then: Where) -> Iterator[Row]:
    """Yield one entry for each instance that a change affects; for a migration, only for those that move or get another
    share."""
    work = snapshot.workloads
    before = _where(snapshot, unchanged(snapshot))
    rows = {name: row for row, name in enumerate(work.names)}
    for change in decision.changes:
        row = rows[change.workload]
        old = _homes(snapshot, row) if work.state.item(row) == WorkloadState.SUSPENDED else before.get(row, [])
        new = then.get(row, [])
        count = max(len(old), len(new))
        nodes = [_at(new, index) or _at(old, index) or "" for index in range(count)]
        named = (
            [snapshot.web.names[work.app.item(row)]] * count
            if work.app.item(row) >= 0
            else _names(snapshot, row, nodes)
        )
        for index, name in enumerate(named):
            if change.kind is ChangeKind.MIGRATE and old[index] == new[index]:
                continue
            yield {
                "action": change.kind.value,
                "name": name,
                "from": _at(old, index),
                "to": _at(new, index),
                "reason": str(change.reason),
                "cpu_mhz": new[index][1] if index < len(new) else None,
            }


def _homes(snapshot: Snapshot, row: int) -> list[tuple[str | None, float]]:
    """Return the nodes that hold the images of a suspended workload."""
    first = snapshot.workloads.first_instance.item(row)
    nodes = snapshot.instances.node[first : first + snapshot.workloads.instances.item(row)].tolist()
    return [(snapshot.nodes.names[node] if node >= 0 else None, 0.0) for node in nodes]


def _at(places: Any, index: int) -> str | None:
    found: str | None = places[index][0] if index < len(places) else None
    return found


def _refusals(snapshot: Snapshot, decision: PlacementDecision) -> list[Row]:
    """Return the refusals, one for all instances of a web application that are refused for the same reason."""
    work = snapshot.workloads
    apps = {name: app for name, app in zip(work.names, work.app.tolist(), strict=True) if app >= 0}
    found: dict[tuple[str, str], Row] = {}
    for refusal in decision.refusals:
        app = apps.get(refusal.workload, -1)
        name = refusal.workload if app < 0 else snapshot.web.names[app]
        row = {"name": name, "code": refusal.reason.code.value, "detail": str(refusal.reason)}
        found.setdefault((name, row["code"]), row)
    return list(found.values())
