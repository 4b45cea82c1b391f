"""Job files: what is understood, and that every problem of a file is told with its place and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemons.manifests.job import read_job, understood
from shared.base.errors import InvalidInput, Problem
from shared.values.jobs import Job, Rules
from shared.values.load_vector import Loading
from tests.architecture.sources import ROOT

NOW_S = 1_900_000_000.0  # 2030-03-17 17:46:40 UTC
STAGE = "[[stages]]\nwork_mcycles = 100_000\nmax_mhz = 1_000\n"


def read(tmp_path: Path, text: str, name: str = "") -> Job:
    path = tmp_path / "job.toml"
    path.write_text(text)
    return read_job(path, NOW_S, name)


def problems(tmp_path: Path, text: str) -> dict[str, Problem]:
    """By key."""
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, text)
    return {problem.where.rpartition(": ")[2]: problem for problem in caught.value.problems}


def test_the_least_that_a_job_needs(tmp_path: Path) -> None:
    job = read(tmp_path, f'name = "a"\n{STAGE}')
    assert (job.name, job.instances, job.goal_s, job.submit_s, job.desired_start_s) == ("a", 1, None, NOW_S, NOW_S)
    assert (job.work_mcycles, job.max_mhz, job.memory_mib) == (100_000.0, 1_000.0, 0)
    assert read(tmp_path, f'name = "a"\n{STAGE}', "b").name == "b"


@pytest.mark.parametrize(
    ("goal", "goal_s"),
    [
        ("at = 2030-03-17T18:46:40Z", NOW_S + 3_600),
        ("at = 2030-03-17T20:46:40+02:00", NOW_S + 3_600),
        ('at = "2030-03-17T18:46:40Z"', NOW_S + 3_600),
        ("within_s = 500", NOW_S + 500),
        ("factor = 2.5", NOW_S + 60 + 250),
    ],
)
def test_goals(tmp_path: Path, goal: str, goal_s: float) -> None:
    """A factor counts from the desired start, in times of 100 s at full speed."""
    job = read(tmp_path, f'name = "a"\n{STAGE}[start]\nafter_s = 60\n[goal]\n{goal}\n')
    assert (job.goal_s, job.desired_start_s) == (goal_s, NOW_S + 60)


def test_what_its_program_is_given(tmp_path: Path) -> None:
    job = read(tmp_path, f'name = "a"\narguments = ["-n", "3"]\n{STAGE}')
    assert job.arguments == ("-n", "3")
    assert understood(job)["arguments"] == ["-n", "3"]
    found = problems(tmp_path, f'name = "a"\narguments = ["\\u0000", 5]\n{STAGE}')
    assert set(found) == {"arguments[0]", "arguments[1]"}
    assert set(problems(tmp_path, f'name = "a"\narguments = {["x"] * 101}\n{STAGE}')) == {"arguments"}


def test_a_job_declares_how_it_loads_a_node(tmp_path: Path) -> None:
    job = read(tmp_path, f'name = "a"\nresource_profile = {{cpu = 0.6, io = 0.4}}\n{STAGE}')
    assert job.resource_profile == Loading((("cpu", 0.6), ("io", 0.4)))
    assert understood(job)["resource_profile"] == {"cpu": 0.6, "io": 0.4}
    assert not read(tmp_path, f'name = "a"\n{STAGE}').resource_profile
    assert set(problems(tmp_path, f'name = "a"\nresource_profile = {{cpu = 0.6, io = 0.5}}\n{STAGE}')) == {
        "resource_profile.cpu"
    }
    assert set(problems(tmp_path, f'name = "a"\nresource_profile = {{io = 1.5, disk = 0.1}}\n{STAGE}')) == {
        "resource_profile.disk",
        "resource_profile.io",
    }


def test_a_job_of_a_class_may_leave_its_stages_out(tmp_path: Path) -> None:
    job = read(tmp_path, 'name = "a"\nclass = "render"\n[goal]\nwithin_s = 60\n')
    assert (job.job_class, job.stages, job.goal_s) == ("render", (), NOW_S + 60.0)
    told = understood(job)
    assert (told["class"], told["work_mcycles"], told["memory_mib"], told["stages"]) == ("render", None, None, [])


def test_where_a_job_may_run(tmp_path: Path) -> None:
    rules = (
        '[rules]\nnode_affinity = ["n1", "n2"]\nnode_anti_affinity = ["n3"]\n'
        'affinity = "db"\nanti_affinity = "web"\nno_migration = true\n'
    )
    job = read(tmp_path, f'name = "a"\n{STAGE}{rules}')
    assert job.rules == Rules(("n1", "n2"), ("n3",), "db", anti_affinity="web", no_migration=True)
    assert understood(job)["rules"]["node_affinity"] == ["n1", "n2"]


def test_the_shortest_run_time_is_that_of_all_stages(tmp_path: Path) -> None:
    second = "[[stages]]\nwork_mcycles = 500\nmax_mhz = 10\n"
    job = read(tmp_path, f'name = "a"\n{STAGE}{second}[goal]\nfactor = 1\n')
    assert job.goal_s == NOW_S + 100 + 50
    assert understood(job)["shortest_run_s"] == 150.0


def test_the_examples_can_be_submitted() -> None:
    jobs = {path.stem: read_job(path, NOW_S) for path in (ROOT / "examples").glob("*.toml") if path.stem in FILES}
    assert set(jobs) == FILES
    assert (jobs["gang"].instances, jobs["gang"].spread) == (4, True)
    assert jobs["job"].goal_s is not None


FILES = {"job", "gang"}


def test_every_problem_at_once(tmp_path: Path) -> None:
    text = (
        'nam = "a b"\nvcpus = 0\nrequired_labels = ["ok", "not ok"]\nimportance = "high"\n'
        '[goal]\nat = "tomorrow"\nwithin_s = 3\n[start]\nat = 2030-01-01T00:00:00\n'
        "[[stages]]\nwork_mcycles = nan\nmax_mhz = 3\nmin_mhz = 5\nmemry_mib = 3\n"
    )
    found = problems(tmp_path, text)
    assert {key: problem.expected.split(",")[0] for key, problem in found.items()} == {
        "nam": "name",
        "name": "1 to 128 ASCII letters",
        "vcpus": "a whole number from 1 to 4096",
        "required_labels[1]": "1 to 128 characters without spaces",
        "importance": "a number from 0.001 to 1000000",
        "goal.at": "a time with its offset from UTC",
        "goal.within_s": "it or goal.at",
        "start.at": "a time with its offset from UTC",
        "stages[0].work_mcycles": "a number from 0 to 1e+15",
        "stages[0].memry_mib": "stages[0].memory_mib",
        "stages[0].max_mhz": "at least stages[0].min_mhz = 5",
    }
    assert found["vcpus"].where.endswith("job.toml:2: vcpus")


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ('name = "a"\nstages = []\n', "stages", "1 to 1000 tables [[stages]]"),
        ('name = "a"\n', "stages", "1 to 1000 tables [[stages]], or a class"),
        ('name = "a"\nclass = "x y"\n', "class", "at most 128 ASCII letters"),
        ('name = "a"\nclass = "x"\n[goal]\nfactor = 2\n', "goal.factor", "goal.at or goal.within_s"),
        (
            f'name = "a"\n{STAGE}[rules]\nnode_affinity = ["n1", "n2"]\nnode_anti_affinity = ["n2"]\n',
            "rules.node_anti_affinity",
            "nothing that rules.",
        ),
        (
            f'name = "a"\n{STAGE}[rules]\naffinity = "x"\nanti_affinity = "x"\n',
            "rules.anti_affinity",
            "nothing that rules.affinity",
        ),
        ('name = "a"\nstages = 3\n', "stages", "an array, each a table"),
        (f'name = "a#0"\n{STAGE}', "name", "1 to 128 ASCII letters, digits, '-' or '_'"),
        (f'name = "a"\ninstances = 70_000\n{STAGE}', "instances", "a whole number from 1 to 65536"),
        (f'name = "a"\n{STAGE}[goal]\nat = 2030-03-17T17:46:00Z\n', "goal.at", "a time to come"),
        (f'name = "a"\n{STAGE}[goal]\nwithin_s = 5\n[start]\nafter_s = 9\n', "goal.within_s", "a time after the"),
        (f'name = "a"\n{STAGE}[goal]\nfactor = 0.5\n', "goal.factor", "a number from 1 to 1000000"),
        (
            'name = "a"\n[[stages]]\nwork_mcycles = 0\nmax_mhz = 1\n[goal]\nfactor = 2\n',
            "goal.factor",
            "a job with",
        ),
        (f'name = "a"\n{STAGE}max_mhz = 2\n', "", "TOML"),
    ],
)
def test_single_problems(tmp_path: Path, text: str, key: str, expected: str) -> None:
    found = problems(tmp_path, text)
    (problem,) = found.values() if not key else [found[key]]
    assert problem.expected.startswith(expected), problem


def test_a_job_of_a_queue_and_one_after_others(tmp_path: Path) -> None:
    job = read(tmp_path, f'name = "a"\nqueue = "night"\ndepends_on = ["b", "c"]\n{STAGE}')
    assert (job.queue, job.depends_on) == ("night", ("b", "c"))
    assert (understood(job)["queue"], understood(job)["depends_on"]) == ("night", ["b", "c"])


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('queue = "night"\n{stage}[goal]\nwithin_s = 60\n', "goal.within_s"),
        ('queue = "no dots."\n{stage}', "queue"),
        ('depends_on = ["a"]\n{stage}', "depends_on"),
        ('depends_on = ["b", "b"]\n{stage}', "depends_on"),
    ],
)
def test_queues_and_predecessors_that_cannot_be(tmp_path: Path, text: str, key: str) -> None:
    """A goal beside a queue, a queue that is no name, a job after itself, one named twice."""
    assert list(problems(tmp_path, 'name = "a"\n' + text.format(stage=STAGE))) == [key]


def test_a_job_goes_to_an_environment_by_file_or_by_command(tmp_path: Path) -> None:
    """What the command says goes before the file; a queue of the provider's is of no use there."""
    path = tmp_path / "job.toml"
    text = 'name = "j"\n[[stages]]\nwork_mcycles = 1\nmax_mhz = 1\n'
    path.write_text('environment = "night"\n' + text, "utf-8")
    assert read_job(path, NOW_S).environment == "night"
    assert read_job(path, NOW_S, environment="day").environment == "day"
    assert understood(read_job(path, NOW_S))["environment"] == "night"
    path.write_text('environment = "night"\nqueue = "q"\n' + text, "utf-8")
    with pytest.raises(InvalidInput, match="nothing beside environment"):
        read_job(path, NOW_S)
    path.write_text('queue = "q"\n' + text, "utf-8")
    with pytest.raises(InvalidInput, match="nothing for environment 'day'"):
        read_job(path, NOW_S, environment="day")
