"""How much one account may have at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from daemons.controller.requests.quota import QuotaFeature
from daemons.controller.state.environment import EnvironmentEntry
from daemons.values.settings import Limits
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import CancelJob, CreateEnvironment, SubmitJob, SubmitWeb
from shared.values.agreement import EnvironmentState
from tests.support import parts
from tests.support.controller_harness import OPERATOR, ControllerHarness, job
from tests.support.environment_cases import agreement
from tests.unit.daemons.controller.web.test_apps import shop

JOE, KIM = "user.joe", "owner.kim"


def harness(**limits: int) -> ControllerHarness:
    """A leader with an environment of each kind, of kim, which joe may use."""
    made = ControllerHarness(limits=replace(Limits(), **limits)).lead()
    running = EnvironmentState.RUNNING
    for name, kind in (("kimbatch", "batch"), ("kimweb", "web")):
        terms = agreement(name, kind, owner="kim", users=("joe",))
        entry = EnvironmentEntry(terms, f"create-{name}", 0, created_s=0.0, state=running, wanted=running)
        made.controller.cluster.environments[name] = entry
    return made


def submit(made: ControllerHarness, name: str, sender: str = JOE) -> Reply:
    made.say(SubmitJob(f"submit-{name}", job(name, environment="kimbatch")), sender)
    return made.replies[-1]


def test_an_account_has_so_many_jobs_that_are_not_over() -> None:
    made = harness(jobs_per_account=2)
    assert [submit(made, name).code for name in ("a", "b", "c")] == ["", "", "over-quota"]
    assert "limits.jobs_per_account" in made.replies[-1].detail
    assert submit(made, "k", KIM).done  # another account
    assert submit(made, "o", OPERATOR).done  # the provider has no quota
    assert submit(made, "p", OPERATOR).done
    assert submit(made, "q", OPERATOR).done
    made.say(CancelJob("cancel", "a"), JOE)
    made.now_s += 1.0
    assert [submit(made, name).code for name in ("d", "e")] == ["", "over-quota"]


def test_a_repeated_submission_is_answered_as_before() -> None:
    made = harness(jobs_per_account=1)
    assert submit(made, "a").done
    assert submit(made, "a").done


def test_jobs_from_before_this_life_count() -> None:
    made = harness(jobs_per_account=1)
    assert submit(made, "a").done
    parts.feature(made.controller, QuotaFeature)._jobs.clear()  # as in another life
    assert submit(made, "b").code == "over-quota"


@pytest.mark.parametrize(("limits", "codes"), [({"apps_per_environment": 1}, ["", "over-quota"]), ({}, ["", ""])])
def test_an_environment_has_so_many_applications(limits: dict[str, int], codes: list[str]) -> None:
    made = harness(**limits)
    for name, code in zip(("shop-a", "shop-b"), codes, strict=True):
        made.say(SubmitWeb(name, shop(name, environment="kimweb")), KIM)
        assert made.replies[-1].code == code
    made.say(SubmitWeb("again", shop("shop-a", environment="kimweb", importance=2.0)), KIM)
    assert made.replies[-1].done  # changed, not one more


@pytest.mark.parametrize(("most", "refused"), [(2, True), (3, False), (0, False)])
def test_an_owner_has_so_many_environments(most: int, refused: bool) -> None:
    made = harness(environments_per_owner=most)
    made.say(CreateEnvironment("create", agreement("third", owner="kim")), KIM)
    assert (made.replies[-1].code == "over-quota") is refused
    made.say(CreateEnvironment("create", agreement("third", owner="kim")), OPERATOR)
    assert made.replies[-1].code != "over-quota"


def test_no_limit_is_none() -> None:
    made = harness(jobs_per_account=0, apps_per_environment=0, environments_per_owner=0)
    assert all(submit(made, f"j{number}").done for number in range(5))


def test_a_full_account_is_counted_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    made = harness(jobs_per_account=1)
    quota = parts.feature(made.controller, QuotaFeature)
    counts: list[Any] = []
    plainly = quota._count

    def count(sender: str) -> int:
        counts.append(sender)
        return plainly(sender)

    monkeypatch.setattr(quota, "_count", count)
    for number in range(50):
        submit(made, f"j{number}")
    assert counts == [JOE]
    made.now_s += 1.0
    submit(made, "late")
    assert counts == [JOE, JOE]
