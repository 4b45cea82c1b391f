"""Reads a file for `trimtab sim place`: a cluster as someone wrote it by hand, checked as a whole.

What is known of one thing at a time is checked by `place_fields`; here is what must hold between them. `read` raises
`InvalidInput` with every problem of the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemons.capacity.json_file import Checker, Row, number, parse_file, whole
from daemons.capacity.place import fields as keys
from shared.base.errors import InvalidValue
from shared.values.jobs import STAGES_MAX, Constraint, ConstraintKind, instance_name
from shared.values.load_vector import CPU, Loading
from shared.values.operation_costs import COSTS, OperationCosts
from shared.values.web_app import ModelForm

GOALS = ("mean_s", "percentile_s", "throughput_per_s")
SAME_WORK = 1e-6  # how far a job's work may be from the sum of its stages


@dataclass(frozen=True, slots=True)
class PlaceFile:
    """A file whose every part is known to be good: rows with the keys of `place_fields`.

    Of a job, `stages` are filled in (work, most and least speed, memory) and `held` has (node, MHz or None) of every
    instance that runs, or (node or None, None) of every image; of a web application, `held` is that of the instances
    that run and `flows` are filled in. changes_max: the limit on changes of running workloads, None: no limit.
    interference: the model of what sharing costs, "off": none.
    """

    now_s: float
    cycle_s: float
    costs: OperationCosts
    vm_overhead_mib: float
    nodes: tuple[Row, ...]
    jobs: tuple[Row, ...]
    web_apps: tuple[Row, ...]
    constraints: tuple[Constraint, ...]
    changes_max: int | None
    interference: str


def read(path: Path) -> PlaceFile:
    """The file at `path`. Raises `InvalidInput` naming each problem with its place in the file."""
    return check(parse_file(path), str(path))


def check(raw: Any, name: str) -> PlaceFile:
    """What a parsed file says; `name` is where problems are said to be. Raises `InvalidInput`."""
    reader = _Reader(Checker(name), raw)
    found = reader.read()
    reader.checker.done()
    return found


def vm_names(job: Row) -> list[str]:
    """What the VMs of a job are called in `placement`."""
    count = job.get("instances", 1)
    name = job["name"]
    return [name] if count == 1 else [instance_name(name, index) for index in range(count)]


def seat_name(app: str, node: str) -> str:
    """What the instance of a web application on a node is called in `placement`."""
    return f"{app}@{node}"


class _Reader:
    """Walks through one file. Goes on after a problem, so what it returns counts only where there was none."""

    def __init__(self, checker: Checker, raw: Any) -> None:
        self.checker = checker
        self._top = checker.row("", raw, keys.FILE)
        self._nodes: set[str] = set()
        self._placed: dict[str, Row] = {}
        self._used: set[str] = set()

    def read(self) -> PlaceFile:
        """The whole file."""
        top = self._top
        nodes = tuple(self._node(at, row) for at, row in self._named("nodes", keys.NODE, {}))
        self._nodes = {row["name"] for row in nodes if "name" in row}
        self._placement()
        names: dict[str, str] = {}
        jobs = list(self._named("jobs", keys.JOB, names))
        apps = list(self._named("web_apps", keys.WEB, names))
        for at, row in jobs:
            self._job(at, row)
        for at, row in apps:
            self._web(at, row)
        for name in self._placed.keys() - self._used:
            self._wrong(f"placement.{name}", "runs nowhere by the rest of the file", "a job or app@node that runs")
        return PlaceFile(
            top.get("now_s", 0.0),
            top.get("cycle_s", 0.0),
            self._costs(),
            top.get("vm_overhead_mib", 0.0),
            nodes,
            tuple(row for _, row in jobs),
            tuple(row for _, row in apps),
            self._constraints(names),
            self._changes_max(),
            top.get("interference", "off"),
        )

    def _wrong(self, path: str, what: str, expected: str) -> None:
        self.checker.wrong(path, what, expected)

    def _named(self, key: str, fields: keys.Fields, names: dict[str, str]) -> Iterable[tuple[str, Row]]:
        """The objects of a list, none of which has the name of another."""
        found = []
        for at, row in self.checker.rows(key, self._top.get(key), fields):
            name = row.get("name")
            if name in names:
                self._wrong(f"{at}.name", f"{name!r} is the name of {names[name]} too", "names that differ")
            elif name is not None:
                names[name] = at
            found.append((at, row))
        return found

    # --- what is not a list -----------------------------------------------------------------------------------------

    def _costs(self) -> OperationCosts:
        raw = self._top.get("operation_costs", "none")
        if isinstance(raw, str):
            if raw not in COSTS:
                self._wrong("operation_costs", f"is {raw!r}", " or ".join(COSTS) + " or an object of four numbers")
            return COSTS.get(raw, OperationCosts())
        good = self.checker.row("operation_costs", raw, keys.COST)
        return OperationCosts(**good)

    def _changes_max(self) -> int | None:
        raw = self._top.get("limits")
        found: int | None = self.checker.row("limits", raw, keys.LIMITS).get("changes_max") if raw else None
        return found

    def _placement(self) -> None:
        for name, raw in (self._top.get("placement") or {}).items():
            row = self.checker.row(f"placement.{name}", raw, keys.ALLOTMENT)
            self._known(f"placement.{name}.node", row.get("node"))
            self._placed[name] = row

    def _known(self, at: str, node: str | None) -> None:
        if node is not None and node not in self._nodes:
            self._wrong(at, f"there is no node {node!r}", "the name of a node of the file")

    # --- what is shared -----------------------------------------------------------------------------------------------

    def _node(self, at: str, row: Row) -> Row:
        servers = row.get("servers") or {}
        shared = {name: whole(1, keys.SERVERS_MAX) for name in servers if not self._reserved(f"{at}.servers", name)}
        row["servers"] = self.checker.row(f"{at}.servers", {name: servers[name] for name in shared}, shared)
        return row

    def _loading(self, at: str, row: Row) -> None:
        """What the job loads, its CPU left out: allotments share that out."""
        parts = row.get("loading") or {}
        fields = {name: number(0.0, 1.0) for name in parts}
        good = self.checker.row(f"{at}.loading", parts, fields)
        try:
            found = Loading(tuple(good.items()))
        except InvalidValue as problem:
            self._wrong(f"{at}.loading", str(problem), "parts of a job's time alone, by resource")
            found = Loading()
        row["loading"] = {name: part for name, part in found.parts if name != CPU and part > 0.0}

    def _reserved(self, at: str, name: str) -> bool:
        if name == CPU:
            self._wrong(f"{at}.{name}", "is shared out by allotments", "another resource, such as io")
        return name == CPU

    # --- jobs -------------------------------------------------------------------------------------------------------

    def _job(self, at: str, row: Row) -> None:
        self._stages(at, row)
        self._loading(at, row)
        start_s = row.get("desired_start_s")
        if start_s is None and "desired_start_s" in row:
            row["desired_start_s"] = start_s = self._top.get("now_s", 0.0)
        goal_s = row.get("goal_s")
        if goal_s is not None and start_s is not None and goal_s <= start_s:
            self._wrong(f"{at}.goal_s", f"is {goal_s:g}", f"more than desired_start_s = {start_s:g}")
        self._known(f"{at}.node", row.get("node"))
        self._known(f"{at}.image_node", row.get("image_node"))
        where = {"waiting": self._waits, "running": self._runs, "suspended": self._saved}
        if "name" in row and "instances" in row and row.get("state") in where:
            row["held"] = where[row["state"]](at, row)

    def _stages(self, at: str, row: Row) -> None:
        """Give the job a list of whole stages: what a stage leaves out, the job's own keys say."""
        raw = row.get("stages")
        if raw is None:
            for key in ("work_mcycles", "max_mhz", "memory_mib"):
                if key in row and row[key] is None:
                    self._wrong(f"{at}.{key}", "is missing", keys.STAGE[key].words)
            if "stages" in row:
                row["stages"] = [self._stage(at, row, row)]
        elif not 1 <= len(raw) <= STAGES_MAX:
            self._wrong(f"{at}.stages", f"is a list of {len(raw)}", f"1 to {STAGES_MAX} stages")
        else:
            each = self.checker.rows(f"{at}.stages", raw, keys.STAGE)
            row["stages"] = [self._stage(place, stage, row, True) for place, stage in each]
        self._work(at, row, raw is not None)

    def _stage(self, at: str, stage: Row, job: Row, own: bool = False) -> Row:
        whole = {"work_mcycles": stage.get("work_mcycles")}
        for key, default in (("max_mhz", None), ("min_mhz", 0.0), ("memory_mib", None)):
            value = stage.get(key)
            if value is None and key in stage:
                value = default if job.get(key) is None else job[key]
                if value is None and own and key in job:
                    self._wrong(f"{at}.{key}", "is missing here and in the job", keys.STAGE[key].words)
            whole[key] = value
        most, least = whole["max_mhz"], whole["min_mhz"]
        if most is not None and least is not None and least > most:
            self._wrong(f"{at}.min_mhz", f"is {least:g}", f"at most max_mhz = {most:g}")
        return whole

    def _work(self, at: str, row: Row, several: bool) -> None:
        works = [stage["work_mcycles"] for stage in row.get("stages") or [{"work_mcycles": None}]]
        if None in works:
            return
        total, stated, done = math.fsum(works), row.get("work_mcycles"), row.get("done_mcycles")
        if several and stated is not None and abs(stated - total) > SAME_WORK * total:
            self._wrong(f"{at}.work_mcycles", f"is {stated:g}", f"{total:g}, the sum of the stages, or nothing")
        elif done is not None and done > total:
            self._wrong(f"{at}.done_mcycles", f"is {done:g}", f"at most the job's work, {total:g}")

    def _waits(self, at: str, row: Row) -> list[Any]:
        for key in ("node", "image_node"):
            if row.get(key) is not None:
                self._wrong(f"{at}.{key}", "is given for a waiting job", "null, or another state")
        return []

    def _runs(self, at: str, row: Row) -> list[Any]:
        if row.get("image_node") is not None:
            self._wrong(f"{at}.image_node", "is given for a running job", "null, or the state suspended")
        vms = vm_names(row)
        if any(vm in self._placed for vm in vms):
            return [self._held(at, row, vm) for vm in vms]
        if row.get("node") is None and "node" in row:
            self._wrong(f"{at}.node", "is missing", f"where it runs, here or as {vms[0]} in placement")
        return [(row.get("node"), None)] * len(vms)

    def _held(self, at: str, row: Row, vm: str) -> Any:
        self._used.add(vm)
        placed = self._placed.get(vm)
        if placed is None:
            self._wrong(f"placement.{vm}", "is missing", "every instance of a job that runs, or none")
            return None, None
        node, stated = placed.get("node"), row.get("node")
        if stated is not None and node is not None and stated != node:
            self._wrong(f"{at}.node", f"is {stated!r}", f"{node!r} as in placement.{vm}, or nothing")
        return node, placed.get("cpu_mhz")

    def _saved(self, at: str, row: Row) -> list[Any]:
        image, node = row.get("image_node"), row.get("node")
        if image is not None and node is not None and image != node:
            self._wrong(f"{at}.image_node", f"is {image!r}", f"{node!r} as in node, or only one of the two")
        return [(image or node, None)] * int(row["instances"])

    # --- web applications -------------------------------------------------------------------------------------------

    def _web(self, at: str, row: Row) -> None:
        least, most = row.get("min_instances"), row.get("max_instances")
        if least is not None and most is not None and least > most:
            self._wrong(f"{at}.min_instances", f"is {least}", f"at most max_instances = {most}")
        if "name" in row:
            self._seats(at, row)
        given = [key for key in ("goal_relative", "flows") if row.get(key) is not None]
        if len(given) != 1 and {"goal_relative", "flows"} <= row.keys():
            self._wrong(at, f"has {' and '.join(given) or 'no goal'}", "either goal_relative or flows")
        elif given == ["goal_relative"]:
            self._goal_relative(at, row)
        elif given == ["flows"]:
            self._flows(at, row)

    def _seats(self, at: str, row: Row) -> None:
        nodes = row.get("placed_on")
        parts = {vm: vm.partition("@") for vm in self._placed}
        by_vm = {vm: node for vm, (app, at_sign, node) in parts.items() if at_sign and app == row["name"]}
        self._used |= by_vm.keys()
        if nodes is None:
            nodes = list(by_vm.values())
        for index, node in enumerate(nodes):
            self._known(f"{at}.placed_on[{index}]", node)
            if by_vm and seat_name(row["name"], node) not in by_vm:
                self._wrong(
                    f"placement.{seat_name(row['name'], node)}", "is missing", "every instance that runs, or none"
                )
        for vm, node in by_vm.items():
            stated = self._placed[vm].get("node")
            if node not in nodes or (stated is not None and stated != node):
                self._wrong(f"placement.{vm}", "does not fit placed_on or its node", "app@node, on that node")
        most = row.get("max_instances")
        if most is not None and len(nodes) > most:
            self._wrong(f"{at}.placed_on", f"names {len(nodes)} nodes", f"at most max_instances = {most}")
        row["held"] = [(node, self._placed.get(seat_name(row["name"], node), {}).get("cpu_mhz")) for node in nodes]

    def _goal_relative(self, at: str, row: Row) -> None:
        goal = self.checker.row(f"{at}.goal_relative", row["goal_relative"], keys.GOAL_RELATIVE)
        if goal.get("t_min", 0.0) >= 1.0:
            self._wrong(f"{at}.goal_relative.t_min", f"is {goal['t_min']:g}", "less than 1, the goal")
        flow = {
            "name": "all",
            "goal": 1.0,
            "percentile": 0.0,
            "throughput": False,
            "model": ModelForm.SHIFTED_HYPERBOLA,
            "t_min_s": goal.get("t_min"),
            "c_mhz_s": goal.get("c_mhz"),
            "load_mhz": goal.get("load_mhz"),
            "rate_per_s": 0.0,
            "work_mcycles": 0.0,
        }
        row["flows"] = [flow]
        if goal.get("max_mhz") is not None:
            if row.get("total_max_mhz") is not None:
                self._wrong(f"{at}.total_max_mhz", "is given in goal_relative too", "one of the two")
            row["total_max_mhz"] = goal["max_mhz"]

    def _flows(self, at: str, row: Row) -> None:
        names: set[str] = set()
        flows = []
        for place, flow in self.checker.rows(f"{at}.flows", row["flows"], keys.FLOW):
            if flow.get("name") in names:
                self._wrong(f"{place}.name", f"{flow['name']!r} is the name of another flow too", "names that differ")
            names.add(flow.get("name", ""))
            flows.append(self._flow(place, flow))
        if not flows:
            self._wrong(f"{at}.flows", "is empty", "at least one flow")
        row["flows"] = flows

    def _flow(self, at: str, flow: Row) -> Row:
        given = [key for key in GOALS if flow.get(key) is not None]
        if len(given) != 1 and flow.keys() >= set(GOALS):
            self._wrong(at, f"has {len(given)} goals", "exactly one of " + ", ".join(GOALS))
        if ("percentile_s" in given) != (flow.get("percentile") is not None) and "percentile" in flow:
            self._wrong(f"{at}.percentile", "and percentile_s go together", "both or neither")
        form = ModelForm(flow["model"]) if "model" in flow else None
        for key in _needed(form, given):
            if key in flow and flow[key] is None:
                self._wrong(f"{at}.{key}", "is missing", f"{keys.FLOW[key].words}, for this goal and model")
        rate, work = flow.get("rate_per_s") or 0.0, flow.get("work_mcycles") or 0.0
        return {
            "name": flow.get("name"),
            "goal": flow.get(given[0]) if given else None,
            "percentile": flow.get("percentile") or 0.0,
            "throughput": given == ["throughput_per_s"],
            "model": form,
            "t_min_s": flow.get("t_min_s"),
            "c_mhz_s": flow.get("c_mhz_s") or 0.0,
            "load_mhz": flow.get("load_mhz") or 0.0,
            "rate_per_s": rate,
            "work_mcycles": work,
        }

    # --- constraints ------------------------------------------------------------------------------------------------

    def _constraints(self, names: Mapping[str, str]) -> tuple[Constraint, ...]:
        found = self.checker.rows("constraints", self._top.get("constraints"), keys.CONSTRAINT)
        made = [self._constraint(at, row, names) for at, row in found]
        return tuple(each for each in made if each is not None)

    def _constraint(self, at: str, row: Row, names: Mapping[str, str]) -> Constraint | None:
        members: Sequence[str] = row.get("members", ())
        nodes: Sequence[str] = row.get("nodes", ())
        for index, member in enumerate(members):
            if member not in names:
                self._wrong(f"{at}.members[{index}]", f"there is no {member!r}", "the name of a job or web application")
        for index, node in enumerate(nodes):
            self._known(f"{at}.nodes[{index}]", node)
        if "members" in row and not members:
            self._wrong(f"{at}.members", "is empty", "at least one name")
        kind = row.get("kind")
        if kind in (ConstraintKind.PIN, ConstraintKind.FORBID) and "nodes" in row and not nodes:
            self._wrong(f"{at}.nodes", "is missing", "the nodes that the constraint is about")
        elif kind not in (ConstraintKind.PIN, ConstraintKind.FORBID, None) and nodes:
            self._wrong(f"{at}.nodes", f"is given for {kind}", "nothing: only pin and forbid name nodes")
        return Constraint(ConstraintKind(kind), tuple(members), tuple(nodes)) if kind is not None else None


def _needed(form: ModelForm | None, goals: Sequence[str]) -> tuple[str, ...]:
    """The figures without which the response time, or the rate that CPU can answer, is not known."""
    if form is None:
        return ()
    if "throughput_per_s" in goals:
        return ("work_mcycles",)
    return ("c_mhz_s",) if form is ModelForm.SHIFTED_HYPERBOLA else ("rate_per_s", "work_mcycles")
