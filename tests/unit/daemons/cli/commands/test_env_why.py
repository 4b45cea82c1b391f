"""What commands say beside what they ask for: why (`--why`), and only what the policies think of it (`--assess`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemons.values.settings import Automation, NotifySettings
from shared.ports.audit import Audited
from shared.protocol.account_messages import WHY_LENGTH_MAX
from shared.values.jobs import JobPhase
from tests.support.operator_harness import USER, Rig
from tests.unit.daemons.cli.test_render import JOB, controller, submit


def recorded(rig: Rig) -> list[Audited]:
    """What goes to the audit from now on."""
    kept: list[Audited] = []
    rig.loop.controllers["a"].audit = kept.append
    return kept


def refusals(rig: Rig, *words: str) -> list[str]:
    """The codes of what a command of several names is refused."""
    said = rig.trimtab(*words, "--output", "json")
    assert said.exit_code == 1
    return [one["code"] for one in json.loads(said.stdout)["refused"]]


def stands(rig: Rig) -> tuple[object, ...]:
    """What an operator could have changed."""
    cluster = controller(rig).cluster
    entry = cluster.jobs["render"]
    return entry.phase, entry.held, entry.revision, entry.allotments, cluster.nodes["n1"].service


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


@pytest.fixture
def rig(job: Path) -> Rig:
    made = Rig()
    made.run(30.0)
    submit(made, job)
    made.run(60.0)
    return made


def test_the_reason_is_recorded_with_what_is_done_and_with_what_is_refused(rig: Rig) -> None:
    audit = recorded(rig)
    rig.asked("nodes", "drain", "n2", "--why", "new disk, <b>soon</b>")
    rig.asked("nodes", "undrain", "n2")
    assert refusals(rig, "jobs", "cancel", "rendr", "--why", "typed in haste") == ["unknown-job"]
    told = [(one.account, one.via, one.kind, one.subject, one.why, one.done, one.code) for one in audit]
    assert told == [
        (USER, USER, "drain-node", "n2", "new disk, <b>soon</b>", True, ""),
        (USER, USER, "drain-node", "n2", "", True, ""),
        (USER, USER, "cancel-job", "rendr", "typed in haste", False, "unknown-job"),
    ]


def test_a_reason_that_is_too_long_is_refused_before_anybody_is_asked(rig: Rig) -> None:
    audit = recorded(rig)
    assert rig.trimtab("pause", "--why", "x" * WHY_LENGTH_MAX).exit_code == 0
    long = rig.trimtab("pause", "--why", "x" * (WHY_LENGTH_MAX + 1))
    assert (long.exit_code, f"at most {WHY_LENGTH_MAX}" in long.stderr) == (2, True)
    assert [len(one.why) for one in audit] == [WHY_LENGTH_MAX]


def test_the_reason_for_what_is_done_about_notifications_is_recorded() -> None:
    rig = Rig(notify=NotifySettings({"ops": "command"}))
    rig.run(5.0)
    audit = recorded(rig)
    rig.asked("notifications", "test", "ops", "--why", "is it back?")
    for word in ("retry", "drop"):
        assert refusals(rig, "notifications", word, "7-1-1", "--why", f"{word} it") == ["unknown-notification"]
    told = [(one.kind, one.subject, one.why, one.done) for one in audit]
    assert told == [
        ("try-channel", "ops", "is it back?", True),
        ("retry-notification", "7-1-1", "retry it", False),
        ("drop-notification", "7-1-1", "drop it", False),
    ]


@pytest.mark.parametrize(
    ("words", "operation"),
    [
        (("vms", "migrate", "render#0", "n2"), "migrate"),
        (("vms", "suspend", "render"), "suspend"),
        (("vms", "resume", "render"), "resume"),
        (("nodes", "drain", "n1"), "migrate"),
    ],
)
def test_what_is_only_assessed_changes_nothing(rig: Rig, words: tuple[str, ...], operation: str) -> None:
    audit, before = recorded(rig), stands(rig)
    (found,) = rig.asked(*words, "--dry-run")["assessments"]
    assert (found["kind"], found["subject"]) == (words[1], words[2])
    assert found["policy"] == "apc"
    assert [one["kind"] for one in found["operations"]] == [operation]
    rig.run(30.0)
    assert (stands(rig), audit) == (before, [])
    assert words[2] in rig.trimtab(*words, "--dry-run").stdout


def test_a_plan_is_rejected_by_its_number_and_its_job_waits(job: Path) -> None:
    rig = Rig(automation=Automation.CONFIRM, hold_starts=True, decide_s=60.0, decide_limit_s=5.0)
    rig.run(30.0)
    submit(rig, job)
    rig.run(120.0)
    audit, number = recorded(rig), controller(rig).deciding.pending.number
    assert rig.refused("plan", "reject", number + 1)["code"] == "no-such-plan"
    said = rig.trimtab("plan", "reject", number, "--why", "not tonight")
    assert (said.exit_code, said.stdout.strip()) == (0, f"decision {number} is rejected")
    assert controller(rig).deciding.pending is None
    shown = rig.asked("plan", "show", "--decision", number)["decision"]
    assert (shown["rejected"]["account"], shown["rejected"]["why"]) == (USER, "not tonight")
    rig.run(70.0)
    assert controller(rig).cluster.jobs["render"].phase is JobPhase.WAITING
    assert [(one.kind, one.subject, one.why) for one in audit if one.done] == [
        ("reject-plan", f"{number}", "not tonight")
    ]
