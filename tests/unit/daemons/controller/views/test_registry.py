"""What operators are told: the keys that docs/reference/views.md names, with the right numbers, and refusals that
help."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec import structs

from daemons.controller.decide.decision_log import ITEMS_MAX, KEPT_MAX, DecisionLog
from daemons.controller.views.registry import VIEWS
from daemons.values.records.cluster import DecisionRecord
from daemons.values.replies import nearest, unknown
from daemons.values.settings import Automation, PolicyChoice
from shared.policy_api.decision import Change, ChangeKind, Plan, Reason, ReasonCode
from shared.ports.effects import Compute, Computed, Received
from shared.protocol.codec import decode, encode
from shared.protocol.operator_messages import (
    QUERIES,
    ApprovePlan,
    CancelJob,
    ConfirmOff,
    CreateEnvironment,
    DrainNode,
    DryRun,
    HoldJob,
    MoveVm,
    Query,
    SubmitJob,
    SubmitWeb,
)
from shared.values.actions import ActionKind, Outcome
from shared.values.nodes import NodeSample
from shared.values.vms import VmState, VmStatus
from shared.values.web_app import Flow, WebApp
from tests.support.controller_harness import OPERATOR, ControllerHarness, job
from tests.support.environment_cases import agreement
from tests.support.paths import ROOT

PAGE = (ROOT / "docs/reference/views.md").read_text("utf-8")
STRANGER = VmStatus("web-7", VmState.RUNNING, memory_mib=500, vcpus=2, cpu_mhz=700.0, managed=False)


SHOP = WebApp(
    "shop", (Flow("browse", mean_s=0.1, work_mcycles=5.0),), 500, max_mhz=1000.0, min_instances=0, max_instances=2
)


def view(harness: ControllerHarness, what: str, subject: str = "", limit: int = 1000) -> Any:
    """The data of a view, as it comes out of the codec."""
    reply = harness.ask(Query(f"q-{what}", what, subject, limit))
    assert reply.done, (reply.code, reply.detail)
    back = decode(encode(reply))
    assert back == reply
    return reply.data


def refusal(harness: ControllerHarness, what: str, subject: str = "", limit: int = 1000) -> tuple[str, str]:
    reply = harness.ask(Query("q", what, subject, limit))
    assert not reply.done
    assert reply.data is None
    return reply.code, reply.detail


def lively(**settings: Any) -> ControllerHarness:
    """Two nodes; `a` runs on n1, `gang` on both, `big` finds no room, a stranger is on n2."""
    harness = ControllerHarness(**settings).lead()
    harness.vms["n2"]["web-7"] = STRANGER
    harness.report("n2")
    jobs = (job("a", memory_mib=1500, work=2e4), job("gang", instances=2, memory_mib=2000), job("big", memory_mib=3900))
    for number, each in enumerate(jobs):
        harness.ask(SubmitJob(f"r{number}", each))
    harness.obey()
    harness.wait(100.0, reporting=["n1", "n2"])
    harness.now_s += 5.0
    harness.change("n1", "a#0", cpu_time_s=5.0)
    sample = NodeSample(cpu_frac=0.25, memory_used_mib=1600.0, load_1min=1.5)
    harness.report("n1", sample=sample)
    harness.report("n2")
    return harness


def documented(heading: str) -> set[str]:
    """The keys in the first column of the tables under a heading."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    cells = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
    return {key for cell in cells if not cell.startswith("key of") for key in re.findall(r"`(\w+)`", cell)}


def test_what_failed_last_on_an_instance_is_told_with_the_hypervisors_words() -> None:
    harness = ControllerHarness().lead()
    harness.ask(SubmitJob("r", job("gang", instances=2)))
    first, second = harness.take_orders()
    harness.result(first, Outcome.REFUSED, detail="template = 'rendr'" + "!" * 600, status=None)
    failed, other = (row["last_failure"] for row in view(harness, "job", "gang")["job"]["instance_list"])
    assert (failed["kind"], failed["node"], failed["outcome"]) == ("start", first.node, "refused")
    assert failed["at_s"] == harness.now_s
    assert (failed["detail"][:18], len(failed["detail"])) == ("template = 'rendr'", 500)
    assert failed["text"].startswith(f"start on {first.node}: refused template = 'rendr'!")
    assert other is None
    harness.result(second, Outcome.TIMED_OUT, status=None)
    rows = view(harness, "job", "gang")["job"]["instance_list"]
    assert rows[1]["last_failure"]["text"] == f"start on {second.node}: timed-out"


def test_a_failure_is_over_when_the_same_has_gone_well() -> None:
    harness = ControllerHarness().lead()
    harness.ask(SubmitJob("r", job("j")))
    harness.obey()
    for there, outcome, failed in (("n2", Outcome.REFUSED, True), ("n2", Outcome.OK, False)):
        harness.ask(MoveVm(f"to {there} {outcome}", "j#0", there))
        (order,) = harness.take_orders()
        harness.result(order, outcome)
        harness.wait(1_000.0, reporting=["n1", "n2"])
        row = view(harness, "job", "j")["job"]["instance_list"][0]
        assert (row["last_failure"] is not None) is failed


# --- the keys --------------------------------------------------------------------------------------------------------


def test_every_view_has_its_section_and_its_time_and_term() -> None:
    harness = lively()
    harness.ask(SubmitWeb("web", SHOP))
    harness.ask(CreateEnvironment("env", agreement("hpc")))
    headings = {name for line in re.findall(r"^## (.+)$", PAGE, re.MULTILINE) for name in line.split(", ")}
    assert set(QUERIES) == VIEWS.keys() | harness.controller.features.handlers("views").keys()
    assert set(QUERIES) <= headings
    harness.controller.cluster.jobs["a"].definition = ("<domain/>",)
    subjects = {"node": "n1", "vm": "a#0", "job": "a", "definition": "a", "web-app": "shop", "environment": "hpc"}
    for what in QUERIES:
        data = view(harness, what, subjects.get(what, ""))
        assert (data["at_s"], data["term"]) == (harness.now_s, 1)


def test_rows_have_the_documented_keys() -> None:
    harness = lively()
    rest = {"at_s", "term"}
    assert set(view(harness, "status")) - rest == documented("status")
    node_keys = set(view(harness, "node", "n1")["node"])
    assert node_keys == documented("nodes, node")
    job_keys = set(view(harness, "job", "a")["job"])
    assert job_keys == documented("jobs, job")
    assert set(view(harness, "jobs")["jobs"][0]) < job_keys
    assert set(view(harness, "nodes")["nodes"][0]) < node_keys
    harness.ask(CreateEnvironment("env", agreement("hpc")))
    environment_keys = set(view(harness, "environment", "hpc")["environment"])
    assert environment_keys == documented("environments, environment")
    assert set(view(harness, "environments")["environments"][0]) < environment_keys
    assert set(view(harness, "vms")["vms"][0]) == documented("vms")
    harness.ask(SubmitWeb("web", SHOP))
    app_keys = set(view(harness, "web-app", "shop")["app"])
    assert app_keys == documented("web-apps, web-app")
    assert set(view(harness, "web-apps")["apps"][0]) < app_keys
    decision = view(harness, "plan")["decision"]
    assert set(decision) - {"counts"} == documented("plan")
    assert set(view(harness, "doctor")) - rest == documented("doctor")


# --- status and alarms -----------------------------------------------------------------------------------------------


def test_status_counts_what_is_there() -> None:
    data = view(lively(), "status")
    assert data["nodes"]["condition"] == {"unknown": 0, "up": 2, "off": 0}
    assert data["jobs"]["phase"]["running"] == 2
    assert data["jobs"]["phase"]["waiting"] == 1
    assert data["vms"] == {"managed": 3, "unmanaged": 1}
    assert (data["role"], data["acting"], data["deciding"], data["alarms"]) == ("leading", True, True, [])


def test_alarms_are_what_is_wrong_now() -> None:
    harness = lively(stall_after_s=300.0)
    seen_s = harness.now_s
    harness.wait(400.0, reporting=["n1"])
    found = {(alarm["what"], alarm["subject"]): alarm for alarm in view(harness, "status")["alarms"]}
    assert found["node-unreachable", "n2"]["since_s"] == seen_s
    assert ("job-stalled", "a") in found
    harness.ask(ConfirmOff("c", "n2"))
    assert ("node-off", "n2") in {(alarm["what"], alarm["subject"]) for alarm in view(harness, "status")["alarms"]}
    harness.now_s += 10.0
    harness.report("n2")
    found_now = {alarm["what"] for alarm in view(harness, "status")["alarms"]}
    assert "off-node-reports" in found_now
    assert "node-off" not in found_now


def test_a_skewed_clock_and_a_failed_decision_are_alarms() -> None:
    harness = ControllerHarness(nodes=["n1"]).lead()
    for _ in range(9):
        harness.report("n1", clock_s=harness.now_s - 5.0)
    harness.compute = False
    harness.ask(SubmitJob("r", job()))
    harness.feed(Computed(harness.computations[-1].compute_id, None, "out of time"))
    alarms = {alarm["what"]: alarm for alarm in view(harness, "status")["alarms"]}
    assert alarms["clock-skewed"]["detail"] == "5.0 s"
    assert alarms["decision-trouble"]["detail"] == "decision-failed: out of time"


def test_a_decided_start_that_finds_no_room_for_long_is_an_alarm() -> None:
    harness = ControllerHarness(nodes=["n1"], gang_timeout_s=20.0).lead()
    harness.compute = False
    harness.ask(SubmitJob("r", job(memory_mib=3000)))
    harness.vms["n1"]["web-7"] = structs.replace(STRANGER, memory_mib=2000)
    harness.report("n1")
    harness.answer(harness.computations[0])
    harness.settle()
    assert view(harness, "job", "j")["job"]["blocked"]
    assert view(harness, "status")["alarms"] == []
    harness.wait(30.0, reporting=["n1"])
    assert [(alarm["what"], alarm["subject"]) for alarm in view(harness, "status")["alarms"]] == [("job-blocked", "j")]


# --- nodes and VMs ---------------------------------------------------------------------------------------------------


def test_a_node_shows_capacity_promises_and_use() -> None:
    row = view(lively(), "nodes", "n1")["nodes"][0]
    promised = {"committed_mhz": 2000.0, "wanted_mhz": 2000.0}
    assert row["cpu"] == {"capacity_mhz": 4000.0, **promised, "unmanaged_mhz": 0.0, "used_mhz": 1000.0}
    assert row["memory"] == {
        "capacity_mib": 4000,
        "committed_mib": 3500.0,
        "wanted_mib": 3500.0,
        "unmanaged_mib": 0.0,
        "used_mib": 1600.0,
        "free_mib": 500.0,
    }
    assert (row["report_age_s"], row["load_1min"], row["vms"], row["unmanaged_vms"]) == (0.0, 1.5, 2, 0)


def test_one_node_shows_its_vms_actions_and_sample() -> None:
    harness = lively()
    harness.ask(CancelJob("c", "a"))
    harness.ask(DrainNode("d", "n1", True))
    data = view(harness, "node", "n1")["node"]
    assert data["service"] == "draining"
    assert [vm["vm"] for vm in data["vm_list"]] == ["a#0", "gang#0"]
    assert data["sample"] == structs.asdict(NodeSample(cpu_frac=0.25, memory_used_mib=1600.0, load_1min=1.5))
    assert ("stop", "a#0") in [(action["kind"], action["vm"]) for action in data["action_list"]]


def test_a_node_without_a_report_is_all_unknown() -> None:
    harness = ControllerHarness().lead()
    second = ControllerHarness(store=harness.store)
    second.carry(second.controller.start(0.0))
    row = view(second, "node", "n1")["node"]
    assert (row["condition"], row["report_age_s"], row["sample"], row["skew_s"]) == ("unknown", None, None, None)
    assert row["cores"] == 4  # the store remembers its inventory


def test_vms_are_listed_with_their_speed_ours_and_not_ours() -> None:
    harness = lively()
    rows = {row["vm"]: row for row in view(harness, "vms")["vms"]}
    assert list(rows) == ["a#0", "gang#0", "gang#1", "web-7"]
    assert rows["a#0"]["used_mhz"] == 500.0  # 5 s of CPU in 10 s at 1,000 MHz
    assert (rows["web-7"]["managed"], rows["web-7"]["job"], rows["a#0"]["job"]) == (False, "", "a")
    assert [row["vm"] for row in view(harness, "vms", "n2")["vms"]] == ["gang#1", "web-7"]
    assert view(harness, "vms", limit=2)["total"] == 4


def test_a_vm_of_ours_whose_job_is_not_known_says_so() -> None:
    harness = lively()
    harness.vms["n2"]["old#0"] = structs.replace(STRANGER, vm="old#0", managed=True, generation=3)
    harness.report("n2")
    (row,) = [row for row in view(harness, "vms")["vms"] if row["vm"] == "old#0"]
    assert (row["managed"], row["known"]) == (True, False)
    assert view(harness, "doctor")["facts"]["unknown_vms"] == ["old#0"]


# --- jobs ------------------------------------------------------------------------------------------------------------


def test_a_job_shows_where_it_is_and_how_far() -> None:
    data = view(lively(), "job", "a")["job"]
    assert (data["phase"], data["nodes"], data["progress_pct"], data["waits_for"]) == ("running", ["n1"], 25.0, None)
    (instance,) = data["instance_list"]
    assert (instance["state"], instance["node"], instance["may_run_on"]) == ("running", "n1", ["n1"])
    assert data["spec"]["stages"][0]["work_mcycles"] == 2e4


def test_a_waiting_job_says_why_with_the_numbers() -> None:
    data = view(lively(), "job", "big")["job"]
    waits = data["waits_for"]
    assert (waits["code"], waits["numbers"]["needed_mib"]) == ("no-memory", 3900.0)
    assert waits["text"].startswith("no-memory needed_mib=3900 ")


def test_jobs_come_in_order_and_by_phase() -> None:
    harness = lively()
    harness.ask(CancelJob("c", "a"))
    harness.obey()
    assert [row["name"] for row in view(harness, "jobs")["jobs"]] == ["gang", "big", "a"]
    assert [row["name"] for row in view(harness, "jobs", "cancelled")["jobs"]] == ["a"]
    assert view(harness, "jobs", limit=1)["total"] == 3


def test_jobs_that_are_over_come_last_submitted_first_and_may_be_left_out() -> None:
    harness = lively()
    for name in ("a", "big"):
        harness.ask(CancelJob(f"c-{name}", name))
        harness.obey()
    assert [row["name"] for row in view(harness, "jobs")["jobs"]] == ["gang", "big", "a"]
    assert [row["name"] for row in view(harness, "jobs", "not-over")["jobs"]] == ["gang"]


def test_back_off_hold_and_image_are_shown() -> None:
    harness = lively()
    harness.ask(SubmitJob("later", job("later", desired_start_s=5000.0)))
    assert view(harness, "job", "later")["job"]["back_off_until_s"] == 5000.0
    harness.ask(HoldJob("h", "a", True))
    assert view(harness, "job", "a")["job"]["instance_list"][0]["action"] == "suspend"
    harness.obey()
    data = view(harness, "job", "a")["job"]
    assert (data["held"], data["phase"], data["instance_list"][0]["images_on"]) == (True, "suspended", ["n1"])


# --- plans -----------------------------------------------------------------------------------------------------------


def test_the_plan_that_waits_is_shown_until_it_is_approved() -> None:
    harness = lively(automation=Automation.CONFIRM)
    harness.ask(CancelJob("c", "gang"))
    harness.obey()
    harness.ask(DrainNode("d", "n1", True))
    data = view(harness, "plan")
    assert data["waiting_approval"]
    number = data["decision"]["number"]
    (step,) = [step for step in data["decision"]["steps"] if step["vm"] == "a#0"]
    assert (step["kind"], step["node"], step["to_node"]) == ("migrate", "n1", "n2")
    assert view(harness, "status")["waiting_approval"] == number
    harness.ask(ApprovePlan("a", number))
    assert not view(harness, "plan")["waiting_approval"]
    assert view(harness, "plan", f"{number}")["decision"]["number"] == number


def test_history_outlives_the_controller() -> None:
    harness = lively()
    rows = view(harness, "plan-history")["decisions"]
    assert [row["kinds"] for row in rows] == [{"start": 1}, {"start": 1}]
    second = ControllerHarness(store=harness.store)
    second.carry(second.controller.start(harness.now_s))
    assert view(second, "plan-history")["decisions"] == rows


def decision(number: int, changes: int = 0) -> DecisionRecord:
    """A record with so many changes."""
    change = Change("j", 1, ChangeKind.START, (), Reason(ReasonCode.ARRIVAL_ORDER))
    return DecisionRecord(
        number, 0.0, 1, policy="first-fit", changes=(change,) * changes, refusals=(), dropped=(), held=(), plan=Plan(())
    )


def test_history_is_bounded_by_number_and_by_size() -> None:
    history = DecisionLog()
    for number in range(KEPT_MAX + 5):
        history.add(decision(number))
    assert (len(history), next(iter(history)).number) == (KEPT_MAX, KEPT_MAX + 4)
    history.add(decision(1000, ITEMS_MAX))
    history.add(decision(1001, 1))
    assert [record.number for record in history] == [1001]
    history.add(decision(1002, ITEMS_MAX + 1))
    assert [record.number for record in history] == [1002]


# --- what cannot be answered -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "subject", "code", "said"),
    [
        ("statu", "", "unknown-query", "nearest: 'status'"),
        ("job", "gagn", "unknown-job", "nearest: 'gang'"),
        ("environment", "hpc", "unknown-environment", "there is no environment 'hpc'"),
        ("node", "n3", "unknown-node", "nearest: "),
        ("vms", "n3", "unknown-node", "nearest: "),
        ("jobs", "runing", "invalid-value", "nearest: 'running'"),
        ("plan", "77", "no-such-plan", "not kept"),
        ("plan", "²", "no-such-plan", "not kept"),
    ],
)
def test_a_wrong_question_is_refused_with_what_was_meant(what: str, subject: str, code: str, said: str) -> None:
    got, detail = refusal(lively(), what, subject)
    assert got == code
    assert said in detail


@pytest.mark.parametrize("limit", [0, -1, 10_001])
def test_a_limit_is_bounded(limit: int) -> None:
    assert refusal(lively(), "jobs", limit=limit)[0] == "invalid-value"


def test_an_answer_that_is_too_large_asks_for_fewer_rows() -> None:
    harness = ControllerHarness().lead()
    harness.vms["n1"] = {f"s{i}": structs.replace(STRANGER, vm=f"s{i}" + "x" * 900) for i in range(5000)}
    harness.report("n1")
    code, detail = refusal(harness, "vms", limit=10_000)
    assert (code, "fewer rows" in detail) == ("too-large", True)
    assert len(view(harness, "vms", limit=100)["vms"]) == 100


def test_questions_write_nothing_and_are_acknowledged() -> None:
    harness = lively()
    harness.store_fails = (False, "nothing may be written")
    number = harness.say(Query("q", "status"), OPERATOR)
    assert number in harness.acknowledged
    assert harness.exits == []
    stranger = harness.say(Query("q", "status"), "agent.n1")
    assert harness.dead == [(stranger, "agent.n1 may not ask for query")]


def test_nearest_names_come_nearest_first() -> None:
    assert nearest("nigthly-2", ["nightly-1", "nightly-2", "other", "nightly-22222"])[:1] == ["nightly-2"]
    assert nearest("x", []) == []
    assert set(nearest("n3", ["n1", "n2"])) == {"n1", "n2"}


def test_what_has_half_of_the_letters_is_not_near() -> None:
    assert nearest("nope", ["pet3", "pet2"]) == []
    assert unknown("VM", "nope", ["pet3"], " on node 'n2'") == "there is no VM 'nope' on node 'n2'"


# --- dry runs --------------------------------------------------------------------------------------------------------


def open_dry_run(harness: ControllerHarness, request: str = "dry") -> Compute:
    """Ask for a dry run and leave it open."""
    harness.compute = False
    harness.say(DryRun(request), OPERATOR)
    return harness.computations[-1]


def test_a_dry_run_answers_with_the_decision_and_changes_nothing() -> None:
    harness = lively(automation=Automation.ADVISE)
    harness.ask(CancelJob("c", "gang"))
    harness.obey()
    harness.ask(DrainNode("d", "n1", True))
    before = (view(harness, "jobs"), view(harness, "plan-history"), harness.store.records())
    reply = harness.ask(DryRun("dry"))
    assert reply.done
    data = reply.data
    assert [change["kind"] for change in data["decision"]["changes"]] == ["migrate"]
    assert [(step["kind"], step["to_node"]) for step in data["decision"]["steps"]] == [("migrate", "n2")]
    assert [refused["workload"] for refused in data["decision"]["refusals"]] == ["big"]
    assert (data["skipped"], data["in_service"]) == ("", ["n2"])
    assert (view(harness, "jobs"), view(harness, "plan-history"), harness.store.records()) == before
    assert harness.orders == []


def test_a_second_dry_run_is_busy_and_the_same_one_again_is_one() -> None:
    harness = lively()
    effect = open_dry_run(harness)
    count = len(harness.computations)
    harness.say(DryRun("dry"), OPERATOR)
    assert harness.ask(DryRun("other")).code == "busy"
    assert len(harness.computations) == count
    harness.answer(effect)
    assert [reply.done for reply in harness.replies if reply.request == "dry"] == [True]
    harness.compute = True
    assert harness.ask(DryRun("third")).done


def test_a_decision_goes_on_beside_a_dry_run() -> None:
    harness = lively()
    effect = open_dry_run(harness)
    harness.compute = True
    harness.ask(CancelJob("c", "gang"))
    done = [(action.kind, action.vm) for action in harness.obey()]
    assert (ActionKind.START, "big#0") not in done  # 3,900 MiB are not free on one node yet
    harness.ask(CancelJob("c2", "a"))
    assert (ActionKind.START, "big#0") in [(action.kind, action.vm) for action in harness.obey()]
    harness.answer(effect)
    assert harness.replies[-1].request == "dry"


def test_a_dry_run_that_fails_says_why() -> None:
    harness = lively(placement=PolicyChoice("edf"))
    effect = open_dry_run(harness)
    harness.feed(Computed(effect.compute_id, None, "out of time"))
    assert (harness.replies[-1].code, harness.replies[-1].detail) == ("decision-failed", "out of time")
    assert view(harness, "status")["last_trouble"] is None
    assert not view(harness, "status")["dry_run_in_progress"]


def test_nobody_is_answered_who_named_no_queue() -> None:
    harness = lively()
    count, computed = len(harness.replies), len(harness.computations)
    harness.feed(Received(harness.delivery(), OPERATOR, Query("q", "status")))
    harness.feed(Received(harness.delivery(), OPERATOR, DryRun("d")))
    assert (len(harness.replies), len(harness.computations)) == (count, computed)
