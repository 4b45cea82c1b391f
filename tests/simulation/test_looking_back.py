"""Recorded decisions computed again, and a recorded span simulated again."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import structs

from daemons.cli.commands.snapshot_replay import ReplayComparison, compare_all
from daemons.cli.main import main
from daemons.decision import pipeline
from daemons.decision.overrides import Alteration
from daemons.decision.replay import RecordedTables, differences
from daemons.decision.request_codec import from_bytes
from daemons.decision.tables.memory import MemoryTables
from daemons.store import Retention, SqlStore
from daemons.store.bodies import from_body, to_body
from daemons.store.reading import reading
from daemons.store.retention import DAY_S
from daemons.values.records.cluster import DecisionRecord
from daemons.values.settings import ControllerSettings
from shared.base.clock import ManualClock
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode, Refusal, Slowed
from sim_backend.history.log import read_log
from sim_backend.history.runs import simulate
from tests.simulation.recorded_span import EPOCH_S, record_span
from tests.support.store_samples import sqlite_url

HOURS = 1.5
TO_S = EPOCH_S + 3_600.0 * HOURS + 1.0


@pytest.fixture(scope="module")
def recorded_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four nodes, a web application and jobs that come for an hour and a half."""
    path = tmp_path_factory.mktemp("recorded") / "store.db"
    record_span(path, nodes=4, jobs=8, hours=HOURS)
    return path


@pytest.fixture
def path(recorded_store: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    copy = tmp_path / "copy.db"
    copyfile(recorded_store, copy)
    return copy


def replayed(path: Path, other: Alteration | None = None, to_s: float = TO_S) -> ReplayComparison:
    said: list[dict[str, Any]] = []
    with reading(sqlite_url(path)) as reader:
        found = compare_all(reader, EPOCH_S, to_s, other or Alteration(), said.append)
    assert said[-1] == {"done": found.decisions, "of": found.decisions}
    return found


def changed_decision(path: Path) -> int:
    """The number of a decision of a policy with changes."""
    with closing(sqlite3.connect(path)) as raw:
        (number,) = raw.execute("SELECT max(number) FROM decisions WHERE changes > 0 AND policy = 'apc'").fetchone()
    return int(number)


def test_every_recorded_decision_is_computed_again_exactly(recorded_store: Path) -> None:
    found = replayed(recorded_store)
    assert found.decisions >= 8
    assert (found.replayed, found.equal) == (found.decisions, found.decisions)
    assert (found.missing, found.damaged, found.different) == ([], {}, {})
    assert found.before.to_json() == found.after.to_json()


def test_a_tampered_decision_is_found(path: Path) -> None:
    """Given a decision whose reason for a change somebody has rewritten, the replay names workload and both reasons."""
    number = changed_decision(path)
    with closing(sqlite3.connect(path)) as raw:
        (body,) = raw.execute("SELECT body FROM decisions WHERE number = ?", (number,)).fetchone()
        record = from_body(body, DecisionRecord)
        first = replace(record.changes[0], reason=Reason(ReasonCode.OPERATOR))
        other = to_body(replace(record, changes=(first, *record.changes[1:])))
        raw.execute("UPDATE decisions SET body = ? WHERE number = ?", (other, number))
        raw.commit()
    found = replayed(path)
    assert list(found.different) == [number]
    (odd,) = found.different[number]
    assert (odd.part, odd.subject) == ("change", f"{first.workload} {first.kind.value}")
    assert odd.recorded.startswith(f"{first.kind.value} ")
    assert odd.recorded.endswith(" MHz: operator")
    assert odd.replayed == odd.recorded.replace("operator", f"{record.changes[0].reason}")


def test_whatever_is_rewritten_in_a_decision_is_found(recorded_store: Path) -> None:
    """Each part that a policy answers for is compared: one that is left out, changed or added is a difference."""
    with reading(sqlite_url(recorded_store)) as reader:
        rows = [row for row in reader.decisions(EPOCH_S, TO_S) if row.nodes_wanted and row.predicted_mean is not None]
        number = max(rows, key=lambda row: row.changes).number
        record, body = reader.decision(number), reader.snapshot(number)
    assert record is not None
    assert body is not None
    assert record.provisioning is not None
    saved = from_bytes(body, "snapshot")
    outcome = pipeline.run(saved.request, RecordedTables(MemoryTables(), saved.header))
    gains = tuple(record.gains)
    gain, nodes = gains[0], record.provisioning
    change = Change("z", 1, ChangeKind.SUSPEND, (), Reason(ReasonCode.OPERATOR))
    refusal, slowed = Refusal("z", Reason(ReasonCode.NO_MEMORY)), Slowed("z", "n1", 2.0, "cpu", ())
    planted: list[dict[str, Any]] = [
        {"number": number + 1},
        {"at_s": record.at_s + 1.0},
        {"term": record.term + 1},
        {"policy": "other"},
        {"changes": (*record.changes, change)},
        {"refusals": (*record.refusals, refusal)},
        {"slowed": (*record.slowed, slowed)},
        {"gains": (structs.replace(gain, predicted=gain.predicted + 1e-9), *gains[1:])},
        {"gains": gains[1:]},
        {"level": -7.0},
        {"provisioning": None},
        {"provisioning": replace(nodes, in_service=nodes.in_service + 1)},
        {"provisioning": replace(nodes, policy="other")},
        {"provisioning": replace(nodes, reason=Reason(ReasonCode.OPERATOR))},
        {"provisioning": replace(nodes, refused=((1, 0.5),))},
        {"provisioning": replace(nodes, predicted_cost=-1.0)},
        {"provisioning": replace(nodes, added=("none",))},
    ]

    assert differences(record, saved.header, saved.request, outcome) == ()
    for each in planted:
        assert differences(replace(record, **each), saved.header, saved.request, outcome), each


def test_snapshots_that_are_exchanged_damaged_or_gone_are_told(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw:
        (foreign,) = raw.execute("SELECT body FROM snapshots WHERE number = 1").fetchone()
        raw.execute("UPDATE snapshots SET body = ? WHERE number = 2", (foreign,))
        raw.execute("UPDATE snapshots SET body = substr(body, 1, 200) WHERE number = 3")
        raw.execute("DELETE FROM snapshots WHERE number = 4")
        raw.commit()
    found = replayed(path)
    assert "number" in {each.part for each in found.different[2]}
    assert list(found.damaged) == [3]
    assert found.missing == [4]
    assert found.equal == found.decisions - 3


def test_pruned_snapshots_are_missing_and_the_decisions_stay(path: Path) -> None:
    with closing(SqlStore(sqlite_url(path), ManualClock(TO_S + 2 * DAY_S))) as store:
        gone = store.prune(Retention(snapshots_days=1.0)).snapshots
    found = replayed(path)
    assert gone == found.decisions == len(found.missing)


def test_another_policy_is_told_beside_what_was_decided(recorded_store: Path) -> None:
    found = replayed(recorded_store, Alteration("edf", values=(("operation_costs.start_s", 20.0),)))
    assert found.replayed == found.decisions
    sides = [(before.policy, after.policy) for _, _, before, after in found.rows]
    assert set(sides) == {("apc", "edf")}
    assert found.after.to_json()["mean_utility"] is not None


@pytest.mark.parametrize(
    ("given", "status", "text"),
    [
        ((), 0, "exactly as recorded"),
        (("--placement", "nobody"), 2, "there is no 'nobody'"),
        (("--set", "placement.tolerance=x"), 2, "tolerance"),
        (("--set", "power.keep_nodes=2"), 2, "cannot be set here"),
        (("--set", "tolerance"), 2, "SECTION.KEY=VALUE"),
        (("--to", "1"), 2, "a later time"),
        (("--to", "2026-09-22T00:00:00"), 2, "without an offset"),
    ],
)
def test_the_command_replays_or_says_what_is_wrong(
    recorded_store: Path, given: tuple[str, ...], status: int, text: str
) -> None:
    url = sqlite_url(recorded_store)
    span = ("--store", url, "--from", f"{EPOCH_S}", "--to", f"{EPOCH_S + 900.0}")
    done = CliRunner().invoke(main, ["snapshot", "replay", *span, *given])
    assert (done.exit_code, text in done.stdout + done.stderr) == (status, True), done.stderr


@pytest.mark.accept
def test_a_recorded_span_is_simulated_beside_what_was_measured(recorded_store: Path) -> None:
    """The simulation of an undisturbed span has its jobs, ends as many of them, and says by how much it is off."""
    span = ("--store", sqlite_url(recorded_store), "--from", f"{EPOCH_S}", "--to", f"{TO_S}")
    options = ("--placement", "first-fit", "--progress", "json", "--output", "json")
    done = CliRunner().invoke(main, ["sim", "what-if", *span, *options])
    assert done.exit_code == 0, done.stderr
    shown = json.loads(done.stdout)
    was, again = shown["measured"]["figures"], shown["baseline"]["figures"]
    assert was["jobs"] == again["jobs"] >= 5
    assert (shown["log"]["nodes"], shown["log"]["web_apps"]) == (4, 1)
    assert abs(was["jobs_completed"] - again["jobs_completed"]) <= 1
    assert again["node_hours"] == pytest.approx(was["node_hours"], rel=0.2)
    assert again["mean_utility"] == pytest.approx(was["mean_utility"], abs=0.15)
    assert shown["difference"]["kwh"]["by"] == pytest.approx(again["kwh"] - was["kwh"])
    assert shown["changed"]["policies"]["placement"] == "first-fit"
    assert shown["baseline"]["refused"] == {}
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["run"] for line in lines} == {"reading", "baseline", "changed"}
    assert lines[-1]["done"] == lines[-1]["of"]


@pytest.mark.accept
def test_a_day_is_replayed_exactly_and_simulated_the_same_twice(tmp_path: Path) -> None:
    """25 nodes and 200 jobs for a day: every decision again, with the snapshots that retention leaves; and the
    simulation of half of it gives the same figures for the same seed."""
    url = record_span(tmp_path / "day.db", nodes=25, jobs=200, hours=24.0, web_load=0.3)
    with closing(SqlStore(url, ManualClock(EPOCH_S + 1.5 * DAY_S))) as store:
        gone = store.prune(Retention(snapshots_days=1.0)).snapshots
    found = replayed(tmp_path / "day.db", to_s=EPOCH_S + DAY_S + 1.0)
    assert 0 < gone == len(found.missing) < found.decisions
    assert found.equal == found.replayed == found.decisions - gone
    with reading(url) as reader:
        log = read_log(reader, EPOCH_S + DAY_S / 2, EPOCH_S + DAY_S)
    runs = [simulate(log, ControllerSettings(), Alteration(), 7, "again", lambda _: None) for _ in range(2)]
    assert runs[0] == runs[1]
