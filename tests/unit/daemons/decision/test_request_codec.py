"""Saved requests: what is read is what was written, bit for bit, decisions are the same, and what is wrong is named."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from daemons.capacity.place.file import read
from daemons.capacity.place.snapshot import snapshot_of
from daemons.decision import pipeline
from daemons.decision.pipeline import DecideRequest
from daemons.decision.request_codec import (
    PAGE_PARTS,
    SCHEMA,
    SnapshotPages,
    from_bytes,
    from_parts,
    header_bytes,
    to_bytes,
)
from daemons.values.settings import PolicyChoice
from shared.base.errors import InvalidInput, InvalidValue
from shared.policy_api.snapshot import (
    NOBODY,
    POOL,
    EnvironmentColumns,
    LoadingColumns,
    MigrationColumns,
    PowerColumns,
    PriceView,
    Snapshot,
    WindowView,
)
from shared.ports.effects import Compute
from shared.protocol.codec import encode
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import DrainNode, DryRun, Query, SubmitJob, SubmitWeb
from shared.values.jobs import Constraint, ConstraintKind, Rules
from shared.values.operation_costs import COSTS
from shared.values.vms import VmState, VmStatus
from shared.values.web_app import Flow, WebApp
from sim_backend.conformance.clusters import random_cluster
from tests.support.controller_harness import OPERATOR, ControllerHarness, job
from tests.support.place_cases import EXAMPLE

HEADER = {"program": "1.2.3", "term": 4, "at_s": 5.0}
POLICIES = ("first-fit", "edf", "apc")
SHOP = WebApp(
    "shop",
    (Flow("buy", mean_s=0.5, work_mcycles=20.0),),
    200,
    max_mhz=1000.0,
    max_instances=2,
    rules=Rules(node_anti_affinity=("n2",)),
)


def request(snapshot: Snapshot, **changes: Any) -> DecideRequest:
    made = DecideRequest(snapshot, PolicyChoice("edf", {"preempt": True}), None, PolicyChoice("static"), None)
    return replace(made, **changes)


def example() -> Snapshot:
    """Every kind of column has rows, and some numbers are odd."""
    made = snapshot_of(read(EXAMPLE))
    odd = np.array([0.1, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1e60, 1 / 3, 2.0**53 + 1, 3.0])
    work = replace(made.workloads, changed_s=odd)
    return replace(made, workloads=work, now_s=3600.1 + 0.2, costs=COSTS["paper"], at_cycle=False)


def provisioned() -> Snapshot:
    """With power, two windows and prices."""
    made = example()
    count = len(made.nodes.names)
    some, odd = np.arange(count) % 2 == 0, np.array([0.1, math.inf, -0.0])[:count] / 3
    power = PowerColumns(
        some,
        ~some,
        some,
        on=~some,
        deploy_s=odd,
        remove_s=-odd,
        idle_w=odd,
        peak_w=odd * 2,
        off_w=odd / 7,
        types=("big",) * count,
    )
    arrivals = np.linspace(0.1, 2.3, 15).reshape(5, 3)
    window = WindowView(
        *("night", 900.0, 3, 5, 0.0, 7, arrivals, 480.5, 2, 1, 1, 9, 0.9999, 0.1, 2.0),
        rate=odd,
        taken=np.array([0.0, 0.25, 1 / 3])[:count],
        phase_rates=np.array([1 / 300.0, 1 / 7e3]),
        phase_goes=np.array([0.1]),
        begun_s=np.array([1 / 3, 900.0]),
        unavoidable=0.017,
    )
    prices = PriceView(900.0, np.array([0.1, -0.3, math.nan]), np.array([0.0, -0.0, 1 / 3]), 2, "EUR")
    return replace(made, power=power, windows=(window, replace(window, name="day", opens_s=1 / 3)), prices=prices)


def parted() -> Snapshot:
    """With two environments, one of whose units are VMs, and a node on its way."""
    made = provisioned()
    nodes, work = np.arange(len(made.nodes.names)), np.arange(len(made.workloads.names))
    held = EnvironmentColumns(
        ("batch", "shop"), nodes % 4 + NOBODY, work % 3 + POOL, np.array([-1, 2]), np.array(nodes % 2 == 1)
    )
    return replace(made, environments=held)


def again(given: DecideRequest) -> DecideRequest:
    """The request as it comes back from a file."""
    saved = from_bytes(header_bytes(HEADER) + to_bytes(given), "f")
    assert saved.header == HEADER
    return saved.request


def same(one: Any, other: Any) -> None:
    """Columns of the same types with the same bits, everything else equal."""
    for each in fields(Snapshot):
        left, right = getattr(one, each.name), getattr(other, each.name)
        if each.name == "windows":
            assert len(left) == len(right)
            for first, second in zip(left, right, strict=True):
                same_columns(first, second)
        elif hasattr(left, "__dataclass_fields__") and each.name != "costs":
            same_columns(left, right)
        else:
            assert left == right, each.name


def same_columns(left: Any, right: Any) -> None:
    for column in fields(left):
        first, second = getattr(left, column.name), getattr(right, column.name)
        if isinstance(first, np.ndarray):
            told = (first.dtype, first.shape, first.tobytes())
            assert told == (second.dtype, second.shape, second.tobytes()), column.name
            assert not second.flags.writeable
        else:
            assert (type(first), first) == (type(second), second), column.name


# --- what is read is what was written --------------------------------------------------------------------------------


def test_every_bit_comes_back() -> None:
    given = request(example(), placement_state={"level": -math.inf, "seen": [1, 0.1, None, "ü", True]})
    back = again(given)
    same(given.snapshot, back.snapshot)
    assert (back.placement, back.placement_state) == (given.placement, given.placement_state)
    assert (back.provisioning, back.provisioning_state) == (given.provisioning, None)
    assert to_bytes(back) == to_bytes(given)


def test_what_provisioning_sees_comes_back() -> None:
    given = request(provisioned())
    same(given.snapshot, again(given).snapshot)
    assert to_bytes(again(given)) == to_bytes(given)


def test_parameters_of_analysers_come_back() -> None:
    given = request(provisioned(), analysers={"night": {"margin": 0.5, "of": ["a"]}})
    assert again(given).analysers == given.analysers
    assert again(request(provisioned())).analysers == {}
    assert "analysers.night: is 1" in refused(altered(lambda plain: plain.update(analysers={"night": 1})))


def test_environments_come_back() -> None:
    given = request(parted(), scheduling={"batch": PolicyChoice("edf", {"preempt": False})})
    same(given.snapshot, again(given).snapshot)
    assert again(given).scheduling == given.scheduling
    assert to_bytes(again(given)) == to_bytes(given)
    assert pipeline.run(again(given)) == pipeline.run(given)


def test_environments_that_point_nowhere_are_refused() -> None:
    held = parted().environments
    assert held is not None
    for name, wrong in (
        ("node", replace(held, node=held.node[1:])),
        ("workload", replace(held, workload=held.workload + 9)),
        ("quota", replace(held, quota=held.quota[1:])),
        ("leaving", replace(held, leaving=held.leaving[1:])),
    ):
        body = to_bytes(request(replace(parted(), environments=wrong)))
        assert f"environments.{name}" in refused(header_bytes(HEADER) + body)


def loaded() -> Snapshot:
    """With two types of nodes, on which workloads load disks and networks differently."""
    made = example()
    parts = np.linspace(0.0, 0.5, 2 * len(made.workloads.names) * 2).reshape(2, len(made.workloads.names), 2)
    servers = np.array([[1.0, 2.0], [4.0, 1.0]])
    types = np.arange(len(made.nodes.names)) % 2
    return replace(made, loading=LoadingColumns(("io", "net"), parts, types, servers, "formula"))


def test_loading_comes_back() -> None:
    given = request(loaded())
    same(given.snapshot, again(given).snapshot)
    assert to_bytes(again(given)) == to_bytes(given)


def test_loading_of_other_nodes_or_workloads_is_refused() -> None:
    held = loaded().loading
    assert held is not None
    for name, wrong in (
        ("node_type", replace(held, node_type=held.node_type[1:])),
        ("node_type", replace(held, node_type=held.node_type + 2)),
        ("parts", replace(held, parts=held.parts[:, 1:])),
        ("parts", replace(held, parts=held.parts[0])),
        ("servers", replace(held, servers=held.servers[:, :1])),
    ):
        body = to_bytes(request(replace(loaded(), loading=wrong)))
        assert f"loading.{name}" in refused(header_bytes(HEADER) + body)


def test_where_what_runs_can_be_migrated_comes_back() -> None:
    fits = np.arange(2 * len(example().nodes.names)).reshape(2, -1) % 3 > 0
    held = MigrationColumns(fits, np.arange(len(example().workloads.names)) % 3 - 1)
    given = replace(example(), migration=held)
    same(given, again(request(given)).snapshot)
    for name, wrong in (
        *(("of", replace(held, of=of)) for of in (held.of[1:], held.of + 1)),
        *(("fits", replace(held, fits=fits)) for fits in (held.fits[:, 1:], held.fits[0])),
    ):
        assert f"migration.{name}" in refused(header_bytes(HEADER) + to_bytes(request(replace(given, migration=wrong))))


def test_a_file_without_environments_is_read() -> None:
    """Given a file of schema 2, when it is read, then there are none; and there can be no policies of theirs."""

    def older(plain: dict[str, Any]) -> None:
        plain["schema"] = 2
        del plain["snapshot"]["environments"], plain["snapshot"]["loading"], plain["snapshot"]["migration"]
        del plain["snapshot"]["workloads"]["stays"]
        _without_phases(plain)
        _with_former_names(plain)
        del plain["snapshot"]["flows"]["response_factor"], plain["snapshot"]["flows"]["expected_mhz"]

    windows = tuple(
        replace(each, phase_rates=np.zeros(0), phase_goes=np.zeros(0), begun_s=np.zeros(0), unavoidable=0.0)
        for each in provisioned().windows
    )
    wanted = replace(provisioned(), windows=windows)
    same(from_bytes(altered(older, provisioned()), "f").request.snapshot, wanted)
    assert "scheduling" in refused(altered(lambda plain: plain.update(schema=2, scheduling={})))
    assert "scheduling.x.params" in refused(altered(lambda plain: plain.update(scheduling={"x": {"policy": "edf"}})))


def test_an_older_file_is_read() -> None:
    """Given a file of schema 1, when it is read, then it says nothing of power, windows, their queues, prices,
    environments, loading and migration."""

    def older(plain: dict[str, Any]) -> None:
        plain["schema"] = 1
        for part in ("power", "windows", "prices", "environments", "loading", "migration"):
            del plain["snapshot"][part]
        del plain["snapshot"]["workloads"]["queued"], plain["snapshot"]["workloads"]["stays"]
        del plain["snapshot"]["flows"]["response_factor"], plain["snapshot"]["flows"]["expected_mhz"]
        _with_former_names(plain)

    same(from_bytes(altered(older), "f").request.snapshot, example())


def _with_former_names(plain: dict[str, Any]) -> None:
    """As it was before schema 10, with the constraints of before schema 11."""
    _with_plain_constraints(plain)
    columns = plain["snapshot"]["workloads"]
    columns["needs"], columns["separate"] = columns.pop("required_labels"), columns.pop("spread")


def _with_plain_constraints(plain: dict[str, Any]) -> None:
    plain["snapshot"]["constraints"] = [each[:3] for each in plain["snapshot"]["constraints"]]


def test_constraints_of_an_older_file_are_required_of_nodes() -> None:
    """Given a file of schema 10, when it is read, then constraints are required, and about nodes."""

    def older(plain: dict[str, Any]) -> None:
        plain["schema"] = 10
        _with_plain_constraints(plain)

    given = replace(example(), constraints=(Constraint(ConstraintKind.APART, ("a", "b"), scope="rack", weight=7),))
    made = from_bytes(altered(older, given), "f").request.snapshot
    assert made.constraints == (Constraint(ConstraintKind.APART, ("a", "b")),)


def _without_phases(plain: dict[str, Any]) -> None:
    for window in plain["snapshot"]["windows"]:
        for key in ("phase_rates", "phase_goes", "begun_s", "unavoidable"):
            del window[key]


def test_windows_of_an_older_file_have_no_phases() -> None:
    """Given a file of schema 7, when it is read, then service times of windows are exponential."""

    def older(plain: dict[str, Any]) -> None:
        plain["schema"] = 7
        _without_phases(plain)
        _with_former_names(plain)
        del plain["snapshot"]["flows"]["expected_mhz"]

    for window in from_bytes(altered(older, provisioned()), "f").request.snapshot.windows:
        assert (len(window.phase_rates), len(window.begun_s), window.unavoidable) == (0, 0, 0.0)


def test_between_cycles_there_is_no_provisioning() -> None:
    back = again(request(example(), provisioning=None, provisioning_state={"kept": 3}))
    assert (back.provisioning, back.provisioning_state) == (None, {"kept": 3})


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(10))
def test_the_same_decision(policy: str, seed: int) -> None:
    """On random clusters."""
    given = request(random_cluster(np.random.default_rng(seed)), placement=PolicyChoice(policy))
    assert pipeline.run(again(given)) == pipeline.run(given)


def test_an_empty_cluster() -> None:
    harness = ControllerHarness(nodes=[]).lead()
    same(again(live(harness)).snapshot, live(harness).snapshot)
    assert ask(harness, "")["pages"] == 1


def test_only_plain_states_can_be_saved() -> None:
    for state, said in (({"a": (1,)}, "placement.state.a"), ({1: 2}, "placement.state"), ({"a": [{3}]}, "state.a[0]")):
        with pytest.raises(InvalidValue) as caught:
            to_bytes(request(example(), placement_state=state))
        assert said in str(caught.value)


FIELDS = """at_cycle constraints costs cycle_s environments flows instances loading migration nodes now_s
oldest_report_s power prices reporting_frac stages vm_overhead_mib web windows workloads
environments.leaving environments.names environments.node environments.quota environments.workload
flows.app flows.c_mhz_s flows.expected_mhz flows.goal flows.load_mhz flows.model flows.names
flows.percentile flows.rate_per_s flows.response_factor flows.t_min_s flows.throughput
flows.work_mcycles instances.cpu_mhz instances.node loading.model loading.node_type loading.parts
loading.resources loading.servers migration.fits migration.of nodes.core_mhz nodes.cores nodes.cpu_mhz
nodes.draining nodes.free_cpu_mhz nodes.free_memory_mib nodes.labels nodes.memory_mib nodes.names
nodes.schedulable power.available power.deploy_s power.idle_w power.must_stay power.off_w power.on
power.peak_w power.remove_s power.types power.wanted prices.added prices.currency prices.interval_s
prices.known prices.per_kwh stages.max_mhz stages.memory_mib stages.min_mhz stages.work_mcycles
web.importance web.max_instances web.max_mhz web.min_instances web.names windows.analyser
windows.arrivals windows.begun_s windows.confidence windows.deploy_s windows.interval windows.interval_s
windows.intervals windows.jobs windows.name windows.nodes windows.nodes_max windows.nodes_min
windows.opens_s windows.penalty windows.phase_goes windows.phase_rates windows.rate windows.remove_s
windows.service_s windows.slots windows.taken windows.unavoidable windows.weight workloads.app
workloads.changed_s workloads.desired_start_s workloads.done_mcycles workloads.first_instance
workloads.first_stage workloads.fixed workloads.goal_s workloads.importance workloads.instances
workloads.max_mhz workloads.memory_mib workloads.min_mhz workloads.names workloads.not_before_s
workloads.queued workloads.required_labels workloads.revision workloads.spread workloads.stages
workloads.state workloads.stays workloads.submit_s workloads.vcpus workloads.work_mcycles"""


def test_a_new_column_needs_a_new_schema() -> None:
    """When this fails because a snapshot has changed: raise SCHEMA by one and put the new columns here."""
    made = example()
    names = [each.name for each in fields(Snapshot)]
    parts = {part: type(getattr(made, part)) for part in ("nodes", "workloads", "instances", "stages", "web", "flows")}
    parts |= {"power": PowerColumns, "windows": WindowView, "prices": PriceView, "environments": EnvironmentColumns}
    parts |= {"loading": LoadingColumns, "migration": MigrationColumns}
    columns = [f"{part}.{each.name}" for part, kind in parts.items() for each in fields(kind)]
    assert (SCHEMA, sorted(names) + sorted(columns)) == (11, FIELDS.split())


# --- from a live controller ------------------------------------------------------------------------------------------


def lively(**settings: Any) -> ControllerHarness:
    """A full cluster: `a` and `gang` run, `big` finds no room, n2 is to be emptied, a stranger is there."""
    harness = ControllerHarness(**settings).lead()
    harness.vms["n2"]["web-7"] = VmStatus(
        "web-7", VmState.RUNNING, memory_mib=500, vcpus=2, cpu_mhz=700.0, managed=False
    )
    harness.report("n2")
    for number, each in enumerate(
        (
            job("a", memory_mib=1500, work=2e4, goal_s=500.0),
            job("gang", instances=2, memory_mib=1000),
            job("big", memory_mib=3900, goal_s=900.5),
        )
    ):
        harness.ask(SubmitJob(f"r{number}", each))
        harness.obey()
    harness.ask(SubmitWeb("web", SHOP))
    harness.obey()
    harness.wait(7.0, reporting=["n1", "n2"])
    harness.ask(DrainNode("d", "n2", True))
    return harness


def fetch(harness: ControllerHarness) -> bytes:
    """The request as an operator gets it, page by page."""
    first = ask(harness, "")
    pages = [ask(harness, f"{first['id']}.{number}") for number in range(1, first["pages"])]
    return from_parts(part for page in (first, *pages) for part in page["parts"])


def ask(harness: ControllerHarness, subject: str) -> dict[str, Any]:
    reply = harness.ask(Query("q", "snapshot", subject))
    assert reply.done, reply
    encode(reply)
    return dict(reply.data)


def live(harness: ControllerHarness) -> DecideRequest:
    """The request that the controller makes now."""
    harness.compute = False
    harness.say(DryRun("dry"), OPERATOR)
    made = harness.computations[-1]
    assert isinstance(made, Compute)
    harness.compute = True
    harness.answer(made)
    request: DecideRequest = made.request
    return request


@pytest.mark.parametrize("policy", POLICIES)
def test_a_live_decision_is_computed_again(policy: str) -> None:
    """Given a live cluster, when it is saved and decided on elsewhere, then the decision is the controller's own."""
    harness = lively(placement=PolicyChoice(policy))
    saved = from_bytes(header_bytes(HEADER) + fetch(harness), "f").request
    asked = live(harness)
    same(asked.snapshot, saved.snapshot)
    outcome = pipeline.run(saved)
    assert outcome == pipeline.run(asked)
    assert outcome.placement.refusals
    assert saved.snapshot.web.names == ("shop",)
    assert saved.snapshot.constraints


def test_saving_changes_nothing() -> None:
    harness = lively()
    effects, orders, records = len(harness.computations), list(harness.orders), harness.store.records()
    fetch(harness)
    assert (len(harness.computations), harness.orders, harness.store.records()) == (effects, orders, records)


def test_the_same_question_again_is_the_same_answer() -> None:
    """A request is sent again when its answer is slow: the pages still belong together."""
    harness = lively()
    first = ask(harness, "")
    harness.wait(60.0, reporting=["n1", "n2"])
    assert ask(harness, "")["parts"] == first["parts"]


def test_a_page_that_is_gone_is_refused() -> None:
    harness = lively()
    for subject in ("q.0", "x.1", "q.", "q", "0", "q.²", "q.99999999999999999999"):
        refused = harness.ask(Query("other", "snapshot", subject))
        assert (refused.done, refused.code) == (False, "invalid-value"), subject
    ask(harness, "")
    assert harness.ask(Query("other", "snapshot", "q.0")).done
    assert not harness.ask(Query("other", "snapshot", "q.1")).done


def test_many_pages_fit_the_bus_and_come_back() -> None:
    body = np.random.default_rng(1).bytes(6_000_000)
    pages = SnapshotPages()
    pages.put("id", lambda: body)
    first = pages.page(0)
    assert (first["pages"], len(first["parts"])) == (4, PAGE_PARTS)
    for number in range(4):
        assert len(encode(Reply("r", True, data={"at_s": 0.0, "term": 1} | pages.page(number)))) < 3_000_000
    assert from_parts(part for number in range(4) for part in pages.page(number)["parts"]) == body
    assert [pages.has(f"id.{number}") for number in (3, 4)] == [True, False]


# --- what is wrong ---------------------------------------------------------------------------------------------------


def refused(body: bytes) -> str:
    with pytest.raises(InvalidInput) as caught:
        from_bytes(body, "f")
    return str(caught.value)


def altered(change: Callable[[dict[str, Any]], Any], of: Snapshot | None = None) -> bytes:
    """A file whose JSON was changed."""
    plain = json.loads(gzip.decompress(to_bytes(request(example() if of is None else of))))
    change(plain)
    return header_bytes(HEADER) + gzip.compress(json.dumps(plain).encode())


def test_numbers_whose_products_are_not_finite_are_refused() -> None:
    """Found by the fuzzer: a cost times a memory."""
    made = example()
    many = replace(made, workloads=replace(made.workloads, memory_mib=made.workloads.memory_mib * 1e300))
    said = refused(header_bytes(HEADER) + to_bytes(request(many)))
    assert "workloads.memory_mib: has a larger number" in said
    assert "1e+60" in said
    for number in (2e60, -2e60, 10**400):
        said = refused(altered(partial(_with_start_s, number)))
        assert "snapshot.costs.start_s: is a larger number" in said


def _with_start_s(number: float, plain: dict[str, Any]) -> None:
    plain["snapshot"]["costs"]["start_s"] = number


def test_another_schema_is_refused_by_name() -> None:
    said = refused(altered(lambda plain: plain.update(schema=12)))
    known = " or ".join(map(str, range(1, 12)))
    assert said == f"f: has schema 12, saved by program 1.2.3 (expected schema {known})"


def test_a_file_that_is_cut_off_is_refused() -> None:
    whole = header_bytes(HEADER) + to_bytes(request(example()))
    step = max(1, len(whole) // 97)
    for length in range(0, len(whole), step):
        assert "f: is " in refused(whole[:length])
    assert "is cut off" in refused(whole[:-1])
    assert "1 bytes after its end" in refused(whole + b"x")


def test_a_broken_byte_is_found_or_changes_nothing() -> None:
    """A bit of the compressed form may be that of a code that nothing uses."""
    whole = bytearray(header_bytes(HEADER) + to_bytes(request(example())))
    found = 0
    for at in range(10, len(whole), 211):
        broken = bytes(whole[:at]) + bytes([whole[at] ^ 0x40]) + bytes(whole[at + 1 :])
        try:
            read = from_bytes(broken, "f")
        except InvalidInput:
            found += 1
        else:
            assert to_bytes(read.request) == to_bytes(request(example()))
    assert found >= len(whole) // 211 - 1


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"x" * 100, gzip.compress(b"{}"), gzip.compress(b"[]") * 2, gzip.compress(b"{") * 2],
    ids=["empty", "plain", "letters", "one line", "no header", "broken"],
)
def test_what_is_no_saved_request_is_refused(body: bytes) -> None:
    assert refused(body).startswith("f:")


def column(name: str, **changes: Any) -> Callable[[dict[str, Any]], Any]:
    part, _, key = name.partition(".")
    return lambda plain: plain["snapshot"][part][key].update(changes)


def whole_numbers(*values: int) -> dict[str, Any]:
    data = base64.b64encode(np.array(values, dtype="<i8").tobytes()).decode()
    return {"length": len(values), "data": data}


WRONG: tuple[tuple[Callable[[dict[str, Any]], Any], str], ...] = (
    (column("nodes.cores", **whole_numbers(1)), "snapshot.nodes.cores: has 1 rows (expected 3, as names has)"),
    (column("nodes.cores", length=2), "snapshot.nodes.cores: holds 24 bytes (expected 2 values of 8 bytes)"),
    (column("nodes.cores", dtype="float64"), "snapshot.nodes.cores.dtype: is 'float64' (expected int64)"),
    (column("nodes.cores", data="?"), "snapshot.nodes.cores.data: is no base64"),
    (column("nodes.draining", data="AAIA"), "snapshot.nodes.draining: holds other bytes than 0 and 1"),
    (column("instances.node", **whole_numbers(0, 1, 0, 3)), "snapshot.instances.node: has rows from 0 to 3"),
    (lambda plain: plain["snapshot"]["nodes"].pop("cores"), "snapshot.nodes.cores: is missing"),
    (lambda plain: plain["snapshot"].update(odd=1), "snapshot.odd: no such key"),
    (lambda plain: plain["snapshot"].update(now_s="x"), "snapshot.now_s: is x (expected a number)"),
    (lambda plain: plain["snapshot"].update(at_cycle=1), "snapshot.at_cycle: is 1"),
    (lambda plain: plain["snapshot"].update(nodes=[]), "snapshot.nodes: is no object"),
    (lambda plain: plain["snapshot"]["nodes"].update(names=[1, 2, 3]), "snapshot.nodes.names: is 1 (expected strings)"),
    (lambda plain: plain["snapshot"]["nodes"].update(labels=[1, 2, 3]), "snapshot.nodes.labels: is 1"),
    (lambda plain: plain["snapshot"]["flows"].update(model=["x"] * 3), "snapshot.flows.model: has x"),
    (lambda plain: plain["snapshot"]["costs"].update(start_s=-1), "f: start_s: is -1.0"),
    (lambda plain: plain["snapshot"].update(constraints=[["x", [], []]]), "snapshot.constraints: has ['x'"),
    (
        lambda plain: plain["snapshot"].update(constraints=[["apart", ["a"], [], "", [], 101, []]]),
        "snapshot.constraints: has weight 101",
    ),
    (
        lambda plain: plain["snapshot"].update(constraints=[["apart", ["a"], [], 1, [], 0, []]]),
        "snapshot.constraints: is 1",
    ),
    (lambda plain: plain["placement"].pop("state"), "placement.state: is missing"),
    (lambda plain: plain["placement"].update(params=[]), "placement.params: is []"),
    (lambda plain: plain.pop("provisioning"), "request.provisioning: is missing"),
)


@pytest.mark.parametrize(("change", "said"), WRONG, ids=[said[:40] for _, said in WRONG])
def test_what_is_wrong_inside_is_named(change: Callable[[dict[str, Any]], Any], said: str) -> None:
    assert said in refused(altered(change))


PROVISIONING: tuple[tuple[Callable[[dict[str, Any]], Any], str], ...] = (
    (column("power.wanted", length=1, data="AQ=="), "snapshot.power.wanted: has 1 rows (expected 3)"),
    (lambda plain: plain["snapshot"]["power"].update(types={}), "snapshot.power.types: is {}"),
    (lambda plain: plain["snapshot"].pop("power"), "snapshot.power: is missing"),
    (lambda plain: plain["snapshot"]["windows"][1].update(jobs=1.5), "snapshot.windows[1].jobs: is 1.5"),
    (lambda plain: plain["snapshot"]["windows"][0].update(name=1), "snapshot.windows[0].name: is 1"),
    (lambda plain: plain["snapshot"]["windows"][0].update(intervals=6), "snapshot.windows[0].arrivals: has 5 rows"),
    (
        lambda plain: plain["snapshot"]["windows"][0]["arrivals"].update(columns=2),
        "windows[0].arrivals: holds 120 bytes",
    ),
    (lambda plain: plain["snapshot"]["windows"][0]["arrivals"].update(length=-5, columns=-3), "arrivals: holds 120"),
    (lambda plain: plain["snapshot"]["prices"].update(known=True), "snapshot.prices.known: is True"),
)


@pytest.mark.parametrize(("change", "said"), PROVISIONING, ids=[said[:40] for _, said in PROVISIONING])
def test_what_is_wrong_for_provisioning_is_named(change: Callable[[dict[str, Any]], Any], said: str) -> None:
    assert said in refused(altered(change, provisioned()))


def test_constraints_come_back() -> None:
    constraints = (
        Constraint(ConstraintKind.PIN, ("a", "b"), ("n1",), labels=("ssd",), weight=3),
        Constraint(ConstraintKind.APART, ("a",), scope="rack", about=("b",)),
    )
    given = replace(example(), constraints=constraints)
    assert again(request(given)).snapshot.constraints == given.constraints
