"""The first page: what each role is shown of the cluster, alarms before everything else."""

from __future__ import annotations

from pathlib import Path

from shared.protocol.operator_messages import ActivateEnvironment, CreateEnvironment, SetDeciding
from shared.values.agreement import Agreement, WorkloadType
from tests.portal.scene import Scene, job, scene

JOBS = (job("late", 9_000.0, goal_s=2_000.0), job("fine", 300.0, goal_s=5_000.0))


def environment(made: Scene, name: str = "batch", owner: str = "acme", users: tuple[str, ...] = ("bob",)) -> None:
    """An environment of an owner, with a node, and users who may submit to it."""
    made.ask(CreateEnvironment(f"c-{name}", Agreement(name, owner, WorkloadType.BATCH, lower=1, users=users)))
    made.ask(ActivateEnvironment(f"a-{name}", name))
    made.run(60.0)


def test_the_provider_sees_the_whole_cluster(tmp_path: Path) -> None:
    with scene(tmp_path, nodes=4, jobs=JOBS, run_s=60.0) as made:
        jane = made.browser("jane")

        text = jane.get("/").text

        assert text.count('<a id="g-n') == 4
        assert "4</span> of 4" in text
        assert 'href="/workloads/jobs/late"' in text
        assert "no alarm" in text
        assert 'sse-connect="/live?views=status,nodes,jobs,web-apps,plan"' in text
        assert text.index('id="w-job-late"') < text.index('id="w-job-fine"')


def test_alarms_come_first_and_say_what_to_do(tmp_path: Path) -> None:
    with scene(tmp_path, nodes=2, jobs=JOBS) as made:
        jane = made.browser("jane")
        made.ask(SetDeciding("pause", False))
        made.loop.host_dies("n2")
        made.run(120.0)

        text = jane.get("/").text

        assert "<strong>node-unreachable</strong>" in text
        assert 'href="/nodes/n2">n2</a>' in text
        assert "If it is off, confirm that, so that its VMs start elsewhere." in text
        assert 'class="cell unknown' in text
        assert "paused" in text
        assert text.index("node-unreachable") < text.index("<h2>Scheduling</h2>")


def test_what_was_last_known_is_shown_when_nobody_answers(tmp_path: Path) -> None:
    with scene(tmp_path) as made:
        jane = made.browser("jane")
        jane.get("/")
        made.controller_client.away = "the broker is away"
        made.run(60.0)

        text = jane.get("/").text

        assert "Controller unreachable" in text
        assert 'class="age late">60 s ago' in text
        assert 'id="g-n1"' in text


def test_owners_and_users_see_what_is_theirs(tmp_path: Path) -> None:
    with scene(tmp_path, nodes=4, jobs=JOBS) as made:
        environment(made)
        environment(made, "theirs", "other", ())

        acme, bob = made.browser("acme").get("/").text, made.browser("bob").get("/").text

        for text in (acme, bob):
            assert "batch" in text
            assert "theirs" not in text
            assert "late" not in text.replace("late</", "")
            assert 'id="g-n1"' not in text
        assert "/workloads/submit-web" in acme
        assert "/workloads/submit-web" not in bob
