"""The file of `trimtab sim place`: what it means, every problem at once, and the JSON Schema saying the same."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it has no types of its own
import numpy as np
import pytest

from daemons.capacity.json_file import parse_file
from daemons.capacity.place.file import check, read
from daemons.capacity.place.snapshot import snapshot_of
from shared.base.errors import InvalidInput
from shared.policy_api.snapshot import WorkloadState
from shared.values.jobs import Constraint, ConstraintKind
from shared.values.operation_costs import COSTS, OperationCosts
from shared.values.web_app import ModelForm
from tests.extent import first
from tests.support import snapshot_schema
from tests.support.place_cases import EXAMPLE, case, example, job, node, snapshot, web

SCHEMA = json.loads(snapshot_schema.PATH.read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
ODD_VALUES: tuple[Any, ...] = (
    None,
    "x",
    "a b",
    "",
    -1,
    0,
    1.5,
    2.0,
    1e18,
    True,
    [],
    ["x"],
    [1],
    ["x", "x"],
    {},
    {"x": 1},
    [{}],
)


def problems(raw: Any) -> list[str]:
    """What the reader says of a parsed file, each as `place: what (expected ...)`."""
    try:
        check(raw, "f")
    except InvalidInput as error:
        return [str(problem).removeprefix("f: ") for problem in error.problems]
    return []


# --- what the file means ---------------------------------------------------------------------------------------------


def test_the_least_that_a_file_can_say() -> None:
    found = snapshot_of(check({"nodes": []}, "f"))
    assert (found.now_s, found.cycle_s, found.costs) == (0.0, 600.0, COSTS["none"])
    assert found.workloads.names == found.nodes.names == ()


def test_every_column_of_the_example() -> None:
    found = snapshot_of(read(EXAMPLE))
    work, nodes = found.workloads, found.nodes
    assert work.names[:5] == ("nightly", "report", "index", "solver", "cleanup")
    assert work.names[5:] == ("shop#0", "shop#1", "shop#2", "search#0", "search#1")
    assert work.app.tolist() == [-1] * 5 + [0] * 3 + [1] * 2
    running, waiting = WorkloadState.RUNNING.value, WorkloadState.WAITING.value
    assert work.state.tolist() == [1, 2, 0, 0, 0, running, running, waiting, waiting, waiting]
    assert work.stages.tolist() == [1, 1, 2, 1, 1] + [0] * 5
    assert work.memory_mib.tolist() == [4320, 4320, 8000, 3000, 500, 2000, 2000, 2000, 1000, 1000]
    assert work.max_mhz[2:6].tolist() == [4000, 3000, 1000, 15600]
    assert work.min_mhz[2] == 500
    assert work.work_mcycles[2] == 9_000_000
    assert work.vcpus.tolist()[:4] == [1, 1, 2, 6]
    assert work.required_labels[2] == ("ssd",)
    assert work.spread.tolist()[3]
    assert np.isinf(work.goal_s[4:]).all()
    assert work.desired_start_s[4] == found.now_s
    assert found.instances.node.tolist() == [0, 1, 0, 1]
    assert found.instances.cpu_mhz.tolist() == [3900, 0, 7000, 7000]
    assert work.first_instance[[0, 1, 5, 6]].tolist() == [0, 1, 2, 3]
    assert nodes.free_cpu_mhz.tolist() == [15600 - 3900 - 7000, 15600 - 7000, 12000]
    assert nodes.free_memory_mib.tolist() == [16000 - 4320 - 2000, 14000, 32000]
    assert nodes.core_mhz.tolist() == [3900, 3900, 2000]
    assert found.web.max_mhz.tolist() == [24_000, np.inf]
    assert (found.web.min_instances.tolist(), found.web.max_instances.tolist()) == ([1, 1], [3, 2])
    assert found.flows.app.tolist() == [0, 1, 1]
    assert found.flows.model == (ModelForm.SHIFTED_HYPERBOLA, ModelForm.PROCESSOR_SHARING, ModelForm.PROCESSOR_SHARING)
    assert found.flows.goal.tolist() == [1.0, 0.5, 0.1]
    assert found.flows.percentile.tolist() == [0.0, 0.95, 0.0]
    assert found.constraints[1] == Constraint(ConstraintKind.FORBID, ("search",), ("n3",))
    assert read(EXAMPLE).changes_max == 4


def test_without_cores_and_vcpus_only_the_speed_of_the_job_counts() -> None:
    """A VM may have all of a node; with cores and vcpus it has at most vcpus x core_mhz."""
    free = snapshot(nodes=[node(cpu_mhz=8000)], jobs=[job(max_mhz=9000)])
    assert (free.workloads.vcpus * free.nodes.core_mhz).min() >= 8000
    cored = snapshot(nodes=[node(cpu_mhz=8000, cores=4)], jobs=[job(max_mhz=9000), job("v", vcpus=1)])
    assert (cored.workloads.vcpus * cored.nodes.core_mhz[0]).tolist() == [8000, 2000]


def test_what_runs_without_a_share_divides_what_is_left_of_its_node() -> None:
    """1,000 MHz: 300 are `a`'s, `b` cannot use more than 200, `c` has the rest."""
    here = {"state": "running", "node": "n1"}
    jobs = [job("a", **here), job("b", max_mhz=200, **here), job("c", **here)]
    found = snapshot(jobs=jobs, placement={"a": {"node": "n1", "cpu_mhz": 300}})
    assert found.instances.cpu_mhz.tolist() == [300, 200, 500]
    assert found.nodes.free_cpu_mhz.tolist() == [0]


def test_instances_of_a_job_may_be_anywhere() -> None:
    places = {"g#0": {"node": "n2", "cpu_mhz": 10}, "g#1": {"node": "n1", "cpu_mhz": 20}}
    nodes = [node("n1"), node("n2")]
    found = snapshot(nodes=nodes, jobs=[job("g", instances=2, state="running")], placement=places)
    assert found.instances.node.tolist() == [1, 0]
    assert found.instances.cpu_mhz.tolist() == [10, 20]


def test_web_instances_may_be_told_by_placement_alone() -> None:
    found = snapshot(web_apps=[web()], placement={"w@n1": {"node": "n1", "cpu_mhz": 250}})
    assert found.workloads.state.tolist() == [WorkloadState.RUNNING]
    assert found.instances.cpu_mhz.tolist() == [250]


def test_jobs_come_in_order_of_submission() -> None:
    jobs = [job("late", submit_s=5), job("early", submit_s=-5), job("also", desired_start_s=-3), job("now")]
    assert snapshot(jobs=jobs).workloads.names == ("early", "also", "now", "late")


@pytest.mark.parametrize(
    ("given", "costs"),
    [
        ("none", OperationCosts()),
        ("paper", COSTS["paper"]),
        (
            {"start_s": 1, "suspend_s_per_mib": 2, "resume_s_per_mib": 3, "migrate_s_per_mib": 4},
            OperationCosts(start_s=1, suspend_s_per_mib=2, resume_s_per_mib=3, migrate_s_per_mib=4),
        ),
    ],
)
def test_costs(given: Any, costs: OperationCosts) -> None:
    assert snapshot(operation_costs=given).costs == costs


def test_loads_become_columns_by_type_of_node() -> None:
    nodes = [node("n1"), node("n2", servers={"io": 4}), node("n3", servers={"net": 1})]
    jobs = [job("a", loading={"io": 0.4, "cpu": 0.6}), job("b"), job("c", loading={"net": 0.2, "io": 0.1})]
    seen = snapshot(nodes=nodes, jobs=jobs, web_apps=[web()], interference="formula")
    assert seen.loading is not None
    assert (seen.loading.resources, seen.loading.model) == (("io", "net"), "formula")
    assert seen.loading.node_type.tolist() == [0, 1, 0]
    assert seen.loading.servers.tolist() == [[1.0, 1.0], [4.0, 1.0]]
    assert seen.loading.parts.tolist() == [[[0.4, 0.0], [0.0, 0.0], [0.1, 0.2], [0.0, 0.0]]] * 2
    assert snapshot(nodes=nodes, jobs=jobs, interference="off").loading is None
    assert snapshot(nodes=nodes, jobs=[job("b", loading={"cpu": 1.0})]).loading is None


def test_a_draining_node_takes_nothing() -> None:
    nodes = snapshot(nodes=[node("a", draining=True), node("b")]).nodes
    assert (nodes.draining.tolist(), nodes.schedulable.tolist()) == ([True, False], [False, True])


# --- what can be wrong -----------------------------------------------------------------------------------------------

GANG: dict[str, Any] = {"instances": 2, "state": "running"}
WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"nodes": [node(), node()]}, "nodes[1].name: 'n1' is the name of nodes[0] too (expected names that differ)"),
    ({"jobs": [job(), job()]}, "jobs[1].name: 'j' is the name of jobs[0] too (expected names that differ)"),
    ({"jobs": [job()], "web_apps": [web("j")]}, "web_apps[0].name: 'j' is the name of jobs[0] too"),
    ({"jobs": [job(node="n1")]}, "jobs[0].node: is given for a waiting job (expected null, or another state)"),
    ({"jobs": [job(state="running")]}, "jobs[0].node: is missing (expected where it runs, here or as j in placement)"),
    ({"jobs": [job(state="running", node="n9")]}, "jobs[0].node: there is no node 'n9'"),
    ({"jobs": [job(state="running", node="n1", image_node="n1")]}, "jobs[0].image_node: is given for a running job"),
    (
        {"nodes": [node(), node("n2")], "jobs": [job(state="suspended", node="n1", image_node="n2")]},
        "jobs[0].image_node: is 'n2' (expected 'n1' as in node",
    ),
    ({"jobs": [job(goal_s=0)]}, "jobs[0].goal_s: is 0 (expected more than desired_start_s = 0)"),
    ({"jobs": [job(min_mhz=1001)]}, "jobs[0].min_mhz: is 1001 (expected at most max_mhz = 1000)"),
    ({"jobs": [job(done_mcycles=10_001)]}, "jobs[0].done_mcycles: is 10001 (expected at most the job's work, 10000)"),
    ({"jobs": [{"name": "j"}]}, "jobs[0].max_mhz: is missing (expected a number from 0.001"),
    (
        {"jobs": [{"name": "j", "stages": [{"work_mcycles": 1}]}]},
        "stages[0].memory_mib: is missing here and in the job",
    ),
    (
        {"jobs": [job(stages=[{"work_mcycles": 1}])]},
        "jobs[0].work_mcycles: is 10000 (expected 1, the sum of the stages, or nothing)",
    ),
    ({"jobs": [job(**GANG)], "placement": {"j#0": {"node": "n1", "cpu_mhz": 1}}}, "placement.j#1: is missing"),
    (
        {"nodes": [node(), node("n2")], "jobs": [job(state="running", node="n1")]}
        | {"placement": {"j": {"node": "n2", "cpu_mhz": 1}}},
        "jobs[0].node: is 'n1' (expected 'n2' as in placement.j, or nothing)",
    ),
    ({"placement": {"x": {"node": "n1", "cpu_mhz": 1}}}, "placement.x: runs nowhere by the rest of the file"),
    ({"web_apps": [web(min_instances=2)]}, "web_apps[0].min_instances: is 2 (expected at most max_instances = 1)"),
    ({"web_apps": [web(placed_on=["n1", "n9"])]}, "web_apps[0].placed_on: names 2 nodes"),
    ({"web_apps": [web(flows=[{"name": "f"}])]}, "web_apps[0]: has goal_relative and flows"),
    ({"web_apps": [web(goal_relative=None)]}, "web_apps[0]: has no goal (expected either goal_relative or flows)"),
    (
        {"web_apps": [web(goal_relative=None, flows=[])]},
        "web_apps[0].flows: is a list of 0 (expected a list of 1 or more",
    ),
    ({"web_apps": [web(goal_relative={"c_mhz": 1, "t_min": 1})]}, "goal_relative.t_min: is 1 (expected less than 1"),
    (
        {"web_apps": [web(goal_relative={"c_mhz": 1, "max_mhz": 1}, total_max_mhz=2)]},
        "web_apps[0].total_max_mhz: is given in goal_relative too",
    ),
    (
        {"web_apps": [web(placed_on=["n1"])], "placement": {"w@n2": {"node": "n1", "cpu_mhz": 1}}},
        "placement.w@n2: does",
    ),
    ({"constraints": [{"kind": "keep", "members": ["x"]}]}, "constraints[0].members[0]: there is no 'x'"),
    ({"constraints": [{"kind": "pin", "members": ["j"]}], "jobs": [job()]}, "constraints[0].nodes: is missing"),
    (
        {"constraints": [{"kind": "keep", "members": ["j"], "nodes": ["n1"]}], "jobs": [job()]},
        "constraints[0].nodes: is given for keep",
    ),
    (
        {"constraints": [{"kind": "apart", "members": ["j"], "about": ["x"]}], "jobs": [job()]},
        "constraints[0].about[0]: there is no 'x'",
    ),
    (
        {"constraints": [{"kind": "apart", "members": ["j"], "labels": ["ssd"]}], "jobs": [job()]},
        "constraints[0].labels: is given for apart",
    ),
    (
        {"constraints": [{"kind": "pin", "members": ["j"], "labels": ["ssd"], "scope": "rack"}], "jobs": [job()]},
        "constraints[0].scope: is given for pin",
    ),
    (
        {"constraints": [{"kind": "keep", "members": ["j"], "weight": 3}], "jobs": [job()]},
        "constraints[0].weight: is given for keep",
    ),
    ({"operation_costs": "papers"}, "operation_costs: is 'papers' (expected one of none, paper or an object"),
    ({"operation_costs": {"start_s": 1}}, "operation_costs.migrate_s_per_mib: is missing"),
    ({"limits": {"changes": 1}}, "limits.changes: no such key (expected limits.changes_max)"),
    ({"cycles": 5}, "cycles: no such key (expected cycle_s)"),
    ({"cycle_s": float("nan")}, "cycle_s: is NaN (expected a number from 0.001 to"),
    ({"now_s": -float("inf")}, "now_s: is -Infinity"),
    ({"jobs": [job(loading={"io": 1.5})]}, "jobs[0].loading.io: is 1.5 (expected a number from 0 to 1)"),
    ({"jobs": [job(loading={"io": 0.7, "net": 0.7})]}, "jobs[0].loading: loading = 1.4"),
    ({"nodes": [node(servers={"io": 0})]}, "nodes[0].servers.io: is 0 (expected a whole number from 1 to 1024)"),
    ({"nodes": [node(servers={"cpu": 2})]}, "nodes[0].servers.cpu: is shared out by allotments"),
    ({"interference": "exact"}, "interference: is 'exact' (expected one of off, formula, product-form, auto)"),
)


@pytest.mark.parametrize(("keys", "said"), WRONG, ids=[said[:40] for _, said in WRONG])
def test_what_is_wrong_is_named_with_its_place(keys: dict[str, Any], said: str) -> None:
    found = problems(case(**keys))
    assert [text for text in found if said in text], found


FLOWS = (
    ({"mean_s": 1, "throughput_per_s": 1, "rate_per_s": 1, "work_mcycles": 1}, "flows[0]: has 2 goals"),
    ({"percentile_s": 1, "rate_per_s": 1, "work_mcycles": 1}, "flows[0].percentile: and percentile_s go together"),
    ({"mean_s": 1, "percentile": 0.5, "rate_per_s": 1, "work_mcycles": 1}, "flows[0].percentile: and percentile_s go"),
    ({"mean_s": 1, "rate_per_s": 1}, "flows[0].work_mcycles: is missing"),
    ({"mean_s": 1, "model": "shifted-hyperbola"}, "flows[0].c_mhz_s: is missing"),
    ({"throughput_per_s": 1, "model": "shifted-hyperbola", "c_mhz_s": 1}, "flows[0].work_mcycles: is missing"),
)


@pytest.mark.parametrize(("keys", "said"), FLOWS)
def test_a_flow_has_one_goal_and_what_its_model_needs(keys: dict[str, Any], said: str) -> None:
    flow = {"name": "f"} | keys
    found = problems(case(web_apps=[web(goal_relative=None, flows=[flow])]))
    assert [text for text in found if said in text], found
    twice = problems(case(web_apps=[web(goal_relative=None, flows=[flow, flow])]))
    assert any("'f' is the name of another flow too" in text for text in twice)


def test_all_problems_are_told_at_once() -> None:
    raw = case(jobs=[job(goal_s=-1), job(max_mhz="fast")], nodes=[node(cpu_mhz=-1)], cycle_s=0)
    found = problems(raw)
    assert len(found) == 5
    assert [text.split(":")[0] for text in found] == [
        "cycle_s",
        "nodes[0].cpu_mhz",
        "jobs[1].max_mhz",
        "jobs[1].name",
        "jobs[0].goal_s",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", ":1:2: Expecting property name"),
        ('{"nodes": [}', ":1:12: Expecting value"),
        ("[" * 100_000, ": nested too deeply"),
        ("[]", ": is a list of 0 (expected an object)"),
        ('{"nodes": [], "nodes": []}', ": nodes: is there more than once"),
        ('{"nodes": [], "now_s": ' + "9" * 5000 + "}", ": Exceeds the limit"),
        ('{"nodes": [], "now_s": 1e999}', ": now_s: is Infinity"),
    ],
)
def test_what_is_not_json_or_no_object(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "case.json"
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read(path)
    assert f"{path}{said}" in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        parse_file(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b'{\n"nodes": "\xff"}')
    with pytest.raises(InvalidInput, match=r"bytes\.json:2: not UTF-8"):
        parse_file(tmp_path / "bytes.json")


# --- the schema ------------------------------------------------------------------------------------------------------

PARTS = 8
BEYOND = re.compile(
    "is the name of|there is no |is given |at most max_|at most the job's work|more than desired_start_s|less than 1, "
    "the goal|the sum of the stages|is missing here and in the job|where it runs, here|runs nowhere|does not fit|names "
    r"\d|every instance|\d goals|go together|for this goal and model|the nodes that the constraint|as in |exactly one"
    "|parts that sum|shared out"
)


def accepted_by_schema(raw: Any) -> bool:
    return bool(VALIDATOR.is_valid(raw))


def full() -> dict[str, Any]:
    """The example with every key that it leaves out."""
    raw = example()
    raw["nodes"][0] |= {"core_mhz": 3900, "labels": ["big"], "draining": False, "servers": {"io": 4}}
    raw["jobs"][1] |= {"node": "n2", "submit_s": 1, "separate": False, "needs": [], "loading": {"io": 0.4, "cpu": 0.6}}
    raw["interference"] = "formula"
    raw["jobs"][4] |= {"state": "waiting", "node": None, "done_mcycles": 0, "min_mhz": 0, "instances": 1}
    raw["web_apps"][0] |= {"vcpus": 4, "importance": 1.5, "needs": [], "max_mhz": 15600}
    raw["web_apps"][1]["flows"][0] |= {"model": "multi-server", "t_min_s": 0.01, "load_mhz": 2400, "mean_s": None}
    raw["web_apps"][1]["flows"].append({"name": "t", "throughput_per_s": 5, "work_mcycles": 5})
    raw["web_apps"][1]["flows"].append({"name": "h", "mean_s": 5, "model": "shifted-hyperbola", "c_mhz_s": 5})
    raw["web_apps"][1] |= {"total_max_mhz": 9000}
    raw["operation_costs"] = {"start_s": 1, "suspend_s_per_mib": 0, "resume_s_per_mib": 0, "migrate_s_per_mib": 0}
    raw["vm_overhead_mib"] = 50
    return raw


def places(raw: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in a document."""
    if path:
        yield path
    items = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(raw: Any, path: tuple[Any, ...], value: Any, gone: bool = False) -> Any:
    """A copy with another value at one place, or without it."""
    made = copy.deepcopy(raw)
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    if gone:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return made


def variants() -> Iterator[tuple[tuple[Any, ...], Any]]:
    whole = full()
    for path in places(whole):
        yield path, changed(whole, path, None, gone=True)
        for value in ODD_VALUES:
            yield (*path, "=", value), changed(whole, path, value)
        if isinstance(path[-1], str):
            yield (*path, "+"), changed(whole, (*path[:-1], "odd_key"), 1)


def test_the_schema_is_a_schema_and_the_examples_keep_it() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for raw in (example(), full(), case()):
        assert problems(raw) == []
        assert accepted_by_schema(raw)


@pytest.mark.full
@pytest.mark.parametrize("part", first(range(PARTS)))
def test_schema_and_reader_accept_and_refuse_the_same(part: int) -> None:
    """Thousands of documents, each with one thing changed. What no schema can say (names that must be known, numbers
    that must fit together) only the reader refuses."""
    differ = []
    count = 0
    for where, raw in islice(variants(), part, None, PARTS):
        count += 1
        by_reader, by_schema = problems(raw), accepted_by_schema(raw)
        plain = [text for text in by_reader if not BEYOND.search(text)]
        if by_schema != (not plain):
            differ.append((where, by_schema, by_reader))
    assert differ == []
    assert count > 2000 // PARTS


def test_the_schema_is_made_of_what_the_reader_goes_by() -> None:
    """`python -m tests.support.snapshot_schema` makes it anew."""
    old = snapshot_schema.PATH.read_text("utf-8")
    assert snapshot_schema.text(old) == old


def test_schema_and_reader_know_the_same_keys() -> None:
    """A key that either lacks or has more is put back by making the schema anew."""
    odd = copy.deepcopy(SCHEMA)
    del odd["properties"]["now_s"]
    odd["$defs"]["node"]["properties"]["odd"] = {"description": "Odd.", "type": "string"}
    made = snapshot_schema.schema(odd)
    assert set(made["properties"]) == set(SCHEMA["properties"])
    assert made["$defs"] == SCHEMA["$defs"]


def test_every_key_of_the_schema_is_explained() -> None:
    described = [SCHEMA, *SCHEMA["$defs"].values()]
    keys = [(name, key) for each in described for name, key in each.get("properties", {}).items()]
    assert [name for name, key in keys if not key.get("description")] == []
