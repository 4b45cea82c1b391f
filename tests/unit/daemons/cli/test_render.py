"""The operator's commands, run against a real controller over the in-process bus in virtual time."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from daemons.cli.connection import Access, NoAnswer
from daemons.cli.main import OWN, main
from daemons.cli.render import shown
from daemons.values.settings import Automation
from shared.base.clock import ManualClock, perf_s
from shared.protocol.operator_messages import SubmitJob
from shared.values.jobs import Job, JobPhase, Stage
from tests.support.operator_harness import URL, Rig, lines

JOB = """
name = "render"
[[stages]]
work_mcycles = 100_000
max_mhz = 1_000
memory_mib = 1_000
"""


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.run(30.0)
    return made


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


def controller(rig: Rig) -> Any:
    """The core that leads."""
    return rig.loop.controllers["a"].core


def submit(rig: Rig, job: Path, name: str = "render") -> None:
    """Submit the job and tell the world what its guests really do."""
    rig.loop.world.add_task(name, [(100_000.0, 1_000.0)], 1, 0.0)
    rig.asked("jobs", "submit", job, "--name", name)


# --- nodes ---------------------------------------------------------------------------------------------------------


def test_nodes_are_added_drained_and_removed(rig: Rig) -> None:
    """Each command changes what the controller wants, and only that."""
    assert rig.asked("nodes", "add", "n8", "n9") == {"done": ["n8", "n9"], "refused": []}
    assert {"n1", "n2", "n8", "n9"} == set(controller(rig).cluster.nodes)
    rig.asked("nodes", "drain", "n1")
    assert controller(rig).cluster.nodes["n1"].service == "draining"
    rig.asked("nodes", "undrain", "n1")
    assert controller(rig).cluster.nodes["n1"].service == "in-service"
    rig.asked("nodes", "remove", "n8", "n9")
    assert {"n1", "n2"} == set(controller(rig).cluster.nodes)


def test_of_several_names_each_is_answered(rig: Rig) -> None:
    """Given one name that is unknown, then the others are done, it is named with its code, and the status is 1."""
    outcome = rig.trimtab("nodes", "drain", "n1", "n7", "n2", "n1", "--output", "json")

    assert outcome.exit_code == 1
    found = json.loads(outcome.stdout)
    assert found["done"] == ["n1", "n2"]
    (refused,) = found["refused"]
    assert (refused["name"], refused["code"]) == ("n7", "unknown-node")
    assert "error: n7: unknown-node: " in outcome.stderr
    assert outcome.stderr.endswith("hint: Look up its name. Run: trimtab nodes list\n")


def test_confirm_off_asks_first(rig: Rig, job: Path) -> None:
    """Given a silent node, then nothing is said of it without a yes; with one its VM starts elsewhere."""
    submit(rig, job)
    rig.run(30.0)
    (allotment,) = controller(rig).cluster.jobs["render"].allotments
    rig.loop.host_dies(allotment.node)
    rig.run(60.0)
    published = rig.published
    declined = rig.trimtab("nodes", "confirm-off", allotment.node, input="n\n")
    assert (declined.exit_code, rig.published) == (1, published)
    agreed = rig.trimtab("nodes", "confirm-off", allotment.node, input="y\n")
    assert agreed.exit_code == 0, agreed.output
    assert controller(rig).cluster.nodes[allotment.node].condition == "off"
    rig.run(60.0)
    assert controller(rig).cluster.jobs["render"].allotments[0].node != allotment.node
    other = controller(rig).cluster.jobs["render"].allotments[0].node
    outcome = rig.trimtab("nodes", "confirm-off", "--yes", other)
    assert outcome.exit_code == 1
    assert "node-up" in outcome.stderr


@pytest.mark.parametrize("words", [("add",), ("add", "a.b"), ("drain", "x" * 200), ("remove", "#")])
def test_names_that_cannot_be(rig: Rig, words: tuple[str, ...]) -> None:
    assert rig.trimtab("nodes", *words).exit_code == 2
    assert rig.published == 0


# --- jobs ----------------------------------------------------------------------------------------------------------


def test_a_job_is_submitted_runs_and_is_cancelled(rig: Rig, job: Path) -> None:
    submit(rig, job)
    submit(rig, job, "other")
    rig.run(60.0)
    phases = {name: entry.phase for name, entry in controller(rig).cluster.jobs.items()}
    assert phases == {"render": JobPhase.RUNNING, "other": JobPhase.RUNNING}
    assert rig.asked("jobs", "cancel", "other")["done"] == ["other"]
    rig.run(100.0)
    phases = {name: entry.phase for name, entry in controller(rig).cluster.jobs.items()}
    assert phases == {"render": JobPhase.COMPLETED, "other": JobPhase.CANCELLED}


def test_a_refusal_brings_the_code_and_the_text(rig: Rig, job: Path) -> None:
    submit(rig, job)
    error = rig.refused("jobs", "submit", job)
    assert error["code"] == "duplicate-name"
    assert "there is a job 'render' already" in error["message"]
    job.write_text(JOB.replace("memory_mib = 1_000", "memory_mib = 9_000"))
    assert rig.refused("jobs", "submit", job, "--name", "big")["code"] == "fits-no-node"


def test_a_dry_run_sends_nothing(job: Path) -> None:
    """Not even a broker is needed."""
    rig = Rig()
    rig.unreachable = "there is no broker"
    found = rig.asked("jobs", "submit", job, "--dry-run")
    assert (found["done"], found["request"], found["job"]["name"]) == (False, "", "render")
    assert found["job"]["shortest_run_s"] == 100.0
    assert "as Trimtab reads it" in rig.trimtab("jobs", "submit", job, "--dry-run").stdout
    assert rig.connections == 0


def test_every_problem_of_a_file_is_told(rig: Rig, job: Path) -> None:
    job.write_text(JOB.replace("name", "nam") + "min_mhz = 2_000\n")
    error = rig.refused("jobs", "submit", job, status=2)
    assert error["code"] == "invalid-input"
    assert [problem["expected"] for problem in error["problems"]] == [
        "name",
        "1 to 128 ASCII letters, digits, '-' or '_'",
        "at least stages[0].min_mhz = 2000",
    ]
    assert rig.published == 0


# --- deciding ------------------------------------------------------------------------------------------------------


def test_pause_and_unpause(rig: Rig, job: Path) -> None:
    rig.asked("pause")
    submit(rig, job)
    rig.run(60.0)
    assert controller(rig).cluster.jobs["render"].phase is JobPhase.WAITING
    assert "deciding is resumed" in rig.trimtab("unpause").stdout
    rig.run(60.0)
    assert controller(rig).cluster.jobs["render"].phase is JobPhase.RUNNING


def test_a_held_plan_is_approved_by_its_number(job: Path) -> None:
    rig = Rig(automation=Automation.CONFIRM, hold_starts=True, decide_s=60.0, decide_limit_s=5.0)
    rig.run(30.0)
    submit(rig, job)
    rig.run(120.0)
    assert controller(rig).cluster.jobs["render"].phase is JobPhase.WAITING
    number = controller(rig).deciding.pending.number
    assert rig.refused("plan", "approve", number + 1)["code"] == "no-such-plan"
    rig.asked("plan", "approve", number)
    assert controller(rig).cluster.jobs["render"].phase is JobPhase.RUNNING


@pytest.mark.parametrize("words", [("plan", "approve"), ("plan", "approve", "0")])
def test_what_must_be_said(rig: Rig, words: tuple[str, ...]) -> None:
    assert rig.trimtab(*words).exit_code == 2


def test_decide_is_a_dry_run(rig: Rig, job: Path) -> None:
    """Given a job that waits, then with and without the flag it is shown what would be decided, and nothing starts."""
    rig.asked("pause")
    submit(rig, job)
    found = [rig.asked("decide", *words)["decision"]["changes"] for words in ((), ("--dry-run",))]
    assert [[change["workload"] for change in changes] for changes in found] == [["render"], ["render"]]
    assert controller(rig).cluster.jobs["render"].phase is JobPhase.WAITING


# --- events --------------------------------------------------------------------------------------------------------


def test_events_are_followed_line_by_line(rig: Rig) -> None:
    """Given a job that is submitted meanwhile, then its life comes as one object per line, in order."""
    rig.loop.world.add_task("render", [(100_000.0, 1_000.0)], 1, 0.0)
    at_s = rig.now_s() + 5.0
    rig.loop.engine.at(at_s, 0, lambda: _submit_from_afar(rig))

    outcome = rig.trimtab("events", "--follow", "--count", 3, "--output", "json")

    assert outcome.exit_code == 0, outcome.output
    found = list(lines(outcome))
    assert (found[0]["what"], found[0]["subject"]) == ("job-submitted", "render")
    assert len(found) == 3
    assert [each["at_s"] for each in found] == sorted(each["at_s"] for each in found)
    assert found[0]["at_s"] >= at_s


def _submit_from_afar(rig: Rig) -> None:
    rig.loop.operator.send(SubmitJob("afar", Job("render", (Stage(100_000.0, 1_000.0, memory_mib=1_000),))))


def test_a_follower_that_loses_its_connection_comes_back(rig: Rig) -> None:
    rig.lose_connection = True
    rig.loop.engine.at(rig.now_s() + 5.0, 0, lambda: _submit_from_afar(rig))

    outcome = rig.trimtab("events", "--follow", "--count", 1)

    assert "job-submitted  render" in outcome.stdout
    assert "pulled the plug" in outcome.stderr
    assert "reconnected; events in between are missing" in outcome.stderr
    assert rig.connections == 2


# --- the line ------------------------------------------------------------------------------------------------------


def test_a_lost_request_is_sent_again_with_its_id(rig: Rig, job: Path) -> None:
    """Given two lost messages, then the third is answered, a quarter of the time limit after the second."""
    rig.lose_publishes = 2
    begun_s = rig.now_s()
    rig.asked("jobs", "submit", job, "--timeout", 40)
    assert rig.published == 3
    assert 20.0 <= rig.now_s() - begun_s < 21.0
    assert controller(rig).deciding.submissions == 1


def test_a_request_twice_is_once(rig: Rig, job: Path) -> None:
    """Given a connection lost before the answer came, then the same request is sent again and done once."""
    rig.lose_connection = True
    assert rig.asked("jobs", "submit", job)["done"] is True
    assert (rig.published, rig.connections) == (2, 2)
    assert controller(rig).deciding.submissions == 1


def test_a_connection_that_breaks_at_the_sending(rig: Rig, job: Path) -> None:
    rig.cut_publishes = 1
    rig.asked("jobs", "submit", job)
    assert rig.connections == 2


def test_without_a_controller_the_command_ends_in_time(rig: Rig) -> None:
    rig.loop.controllers["a"].supervised = False
    rig.loop.controllers["a"].kill()
    begun_s = rig.now_s()
    error = rig.refused("nodes", "drain", "n1", "--timeout", 8)
    assert (error["code"], rig.now_s() - begun_s) == (NoAnswer.code, 8.0)
    assert "may still be carried out" in error["message"]
    assert rig.published == 4


def test_a_broker_that_is_not_there(rig: Rig) -> None:
    rig.unreachable = "nobody listens there"
    error = rig.refused("nodes", "drain", "n1")
    assert (error["code"], error["message"]) == ("bus-unavailable", "nobody listens there")


def test_a_broker_that_goes_away_for_good(rig: Rig) -> None:
    """Given connections that are made and break at once, then the command waits between them and ends in time."""
    rig.cut_publishes = 10**6
    begun_s = rig.now_s()
    assert rig.refused("nodes", "drain", "n1", "--timeout", 5)["code"] == NoAnswer.code
    assert 5.0 <= rig.now_s() - begun_s <= 5.5
    assert 2 <= rig.connections <= 12


def test_only_operators_may_ask() -> None:
    rig = Rig(user="agent.n1")
    error = rig.refused("nodes", "drain", "n1", status=2)
    assert "agent.n1" in error["message"]
    assert "operator.NAME" in error["problems"][0]["expected"]


def test_where_the_broker_is_looked_for(rig: Rig, tmp_path: Path) -> None:
    """Given a file, then it is used; the option goes before it; without either the command says what to do."""
    env = {"TRIMTAB_URL": "", "HOME": str(tmp_path)}
    nowhere = rig.trimtab("pause", env=env)
    assert nowhere.exit_code == 2
    assert "TRIMTAB_URL" in nowhere.stderr
    file = tmp_path / ".config" / "trimtab" / "operator.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'[bus]\nurl = "{URL}"\n')
    file.chmod(0o600)
    assert rig.trimtab("pause", env=env).exit_code == 0
    file.write_text('timeout_s = 0\n[bus]\nurl = "http://x"\ntls.ca = "x"\n')
    wrong = rig.trimtab("pause", env=env)
    assert wrong.exit_code == 2
    assert [line.split(": ")[2] for line in wrong.stderr.splitlines()] == ["timeout_s", "bus.url", "bus.tls.ca"]
    assert "http://x" not in wrong.output
    assert rig.trimtab("pause", "--config", tmp_path / "none.toml").exit_code == 2


@pytest.mark.parametrize(
    ("variable", "place"),
    [("{}/own", "own/trimtab"), ("", ".config/trimtab"), ("relative", ".config/trimtab"), (None, ".config/trimtab")],
)
def test_the_file_is_in_the_configuration_folder_of_the_user(
    rig: Rig, tmp_path: Path, variable: str | None, place: str
) -> None:
    """That of XDG_CONFIG_HOME, if it is an absolute path, else ~/.config."""
    home = None if variable is None else variable.format(tmp_path)
    env = {"TRIMTAB_URL": "", "HOME": str(tmp_path), "XDG_CONFIG_HOME": home}
    file = tmp_path / place / "operator.toml"
    assert str(file) in rig.trimtab("pause", env=env).stderr
    file.parent.mkdir(parents=True)
    file.write_text(f'[bus]\nurl = "{URL}"\n')
    file.chmod(0o600)
    assert rig.trimtab("pause", env=env).exit_code == 0


def test_the_help_says_of_each_command_what_the_command_says() -> None:
    context = click.Context(main)
    for name, (_, text) in OWN.items():
        command = main.get_command(context, name)
        assert command is not None
        assert command.help is not None
        assert _first_words(command.help) == _first_words(text), name


def _first_words(text: str) -> list[str]:
    return re.findall(r"\w+", text)[:2]


def test_help_needs_neither_numerics_nor_a_broker() -> None:
    """What makes commands slow to start is imported only where it is needed."""
    code = (
        "import sys; from click.testing import CliRunner; from daemons.cli.main import main\n"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0\n"
        "variables = {'TRIMTAB_URL': 'amqp://operator.a:b@127.0.0.1:1'}\n"
        "assert CliRunner().invoke(main, ['status'], env=variables).exit_code == 1\n"
        "print([name for name in ('numpy', 'scipy', 'matplotlib', 'sqlalchemy') if name in sys.modules])"
    )
    begun_s = perf_s()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
    assert perf_s() - begun_s < 10.0


# --- for people ----------------------------------------------------------------------------------------------------


def test_values_in_words() -> None:
    assert shown("memory_mib", 16_000) == "16,000 MiB"
    assert shown("cpu_mhz", 3_900.5) == "3,900.5 MHz"
    assert shown("progress_pct", 12.34) == "12.3 %"
    assert shown("iowait_frac", 0.25) == "25 %"
    assert shown("report_age_s", 3.0) == "3 s"
    assert shown("goal_at_s", 1_900_000_000.0) == "2030-03-17T17:46:40Z"
    assert (shown("x", None), shown("x", ""), shown("x", True), shown("x", [])) == ("-", "-", "yes", "-")
    assert shown("nodes", {"up": 2, "off": 1}) == "up 2, off 1"
    assert shown("reason", {"code": "no-memory", "text": "no-memory needed_mib=4"}) == "no-memory needed_mib=4"
    assert (shown("wait_s", 7_260), shown("wait_s", 119)) == ("2 h 1 min", "119 s")
    assert (shown("at_s", 1e15), shown("wait_s", -1e15), shown("at_s", math.inf)) == ("1e+15 s", "-1e+15 s", "-")
    assert (shown("offered_per_s", 1_234.5), shown("x", math.nan), shown("served_per_s", math.nan)) == (
        "1,234/s",
        "-",
        "-",
    )
    assert (shown("port", 8_001), shown("listen", 8_001), shown("vms", 8_001)) == ("8001", "8001", "8,001")


def test_an_access_of_its_own_gives_new_ids() -> None:
    access = Access(clock=ManualClock())
    assert access.new_id() != access.new_id()


def test_a_question_that_is_not_answered_with_yes_ends_in_words_and_in_json() -> None:
    rig = Rig()
    rig.run(30.0)

    for words in (("nodes", "confirm-off", "n1"), ("vms", "confirm-gone", "a#0"), ("env", "destroy", "night")):
        declined = rig.trimtab(*words, "--output", "json", input="n\n")

        assert declined.exit_code == 1
        assert json.loads(declined.stdout)["error"]["code"] == "aborted"
        assert declined.stderr.endswith("aborted\n")
