"""Who may ask what of the controller, tried: every request and every view, by provider, owners, users, strangers."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from daemons.access.delegation import on_behalf
from daemons.access.identity import Role, Who, who
from daemons.controller.requests.authorization import REQUESTS, VIEWS, refusal, seen
from daemons.controller.state.environment import EnvironmentEntry
from shared.ports.effects import Received
from shared.protocol.account_messages import Assess, RejectPlan
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import (
    QUERIES,
    ActivateEnvironment,
    AddNode,
    AdoptVm,
    ApprovePlan,
    CancelJob,
    Change,
    CheckReservation,
    ConfirmGone,
    ConfirmOff,
    ConsentEnvironment,
    CreateEnvironment,
    DeactivateEnvironment,
    DestroyEnvironment,
    DrainNode,
    DropNotification,
    DryRun,
    ForgetVm,
    HandsOn,
    HoldJob,
    MoveVm,
    ProfileNode,
    Query,
    RemoveNode,
    RemoveWeb,
    RepairNode,
    Request,
    ReserveEnvironment,
    ResizeEnvironment,
    RetryNotification,
    SetDeciding,
    SubmitJob,
    SubmitWeb,
    TryChannel,
)
from shared.values.agreement import EnvironmentState
from shared.values.load_vector import StandardJob, StandardRun
from tests.support.controller_harness import ControllerHarness, job
from tests.support.environment_cases import agreement
from tests.unit.daemons.controller.web.test_apps import shop

KIM, LEE, JOE, ANN = "owner.kim", "owner.lee", "user.joe", "user.ann"
FOREIGN = ("lee", "ann")  # what is in every name that kim and joe must never read
STRANGERS = ("agent.n1", "web.kimshop", "owner.", "owner.kim.x", "user.", "user.a b", "kim", "")

# By owner: her environments, a job and an application in them, and the job of a user.
OWN = {"batch": "kimbatch", "web": "kimweb", "job": "kimjob", "app": "kimshop", "user": "joejob", "owner": "kim"}
OTHERS = {"batch": "leebatch", "web": "leeweb", "job": "leejob", "app": "leeshop", "user": "annjob", "owner": "lee"}
NOBODYS = {"batch": "nobatch", "web": "noweb", "job": "nojob", "app": "noshop", "user": "nojob2", "owner": "nobody"}


def environment(name: str, owner: str, workload: str, users: tuple[str, ...]) -> EnvironmentEntry:
    terms = agreement(name, workload, owner=owner, users=users)
    running = EnvironmentState.RUNNING
    return EnvironmentEntry(terms, f"create-{name}", 0, created_s=0.0, state=running, wanted=running)


@pytest.fixture
def desk() -> ControllerHarness:
    """Two owners with an environment of each kind, a user each, and what all of them have submitted."""
    made = ControllerHarness().lead()
    for names, users in ((OWN, ("joe",)), (OTHERS, ("ann",))):
        for kind in ("batch", "web"):
            entry = environment(names[kind], names["owner"], kind, users)
            made.controller.cluster.environments[entry.name] = entry
        owner, user = f"owner.{names['owner']}", f"user.{users[0]}"
        good(made, SubmitJob(names["job"], job(names["job"], environment=names["batch"])), owner)
        good(made, SubmitJob(names["user"], job(names["user"], environment=names["batch"])), user)
        good(made, SubmitWeb(names["app"], shop(names["app"], environment=names["web"])), owner)
    good(made, SubmitJob("poolleejob", job("poolleejob")), "operator.test")
    return made


def said(desk: ControllerHarness, request: Request, sender: str) -> Reply:
    desk.say(request, sender)
    return desk.replies[-1]


def good(desk: ControllerHarness, request: Request, sender: str) -> Reply:
    reply = said(desk, request, sender)
    assert reply.done, reply
    return reply


def asks(names: dict[str, str]) -> dict[type[Any], Request]:
    """One request of every kind, for what has these names."""
    batch = names["batch"]
    return {
        type(each): each
        for each in (
            SubmitJob("r", job("fresh", environment=batch)),
            CancelJob("r", names["job"]),
            HoldJob("r", names["job"], True),
            SubmitWeb("r", shop("freshapp", environment=names["web"])),
            RemoveWeb("r", names["app"]),
            CreateEnvironment("r", agreement("another", owner=names["owner"])),
            ActivateEnvironment("r", batch),
            DeactivateEnvironment("r", batch),
            DestroyEnvironment("r", batch),
            ResizeEnvironment("r", batch, 2),
            ConsentEnvironment("r", batch, "leeweb", True),
            ReserveEnvironment("r", batch),
            CheckReservation("r", agreement("another", owner=names["owner"])),
            AddNode("r", "n9"),
            RemoveNode("r", "n1"),
            DrainNode("r", "n1", True),
            RepairNode("r", "n1"),
            ConfirmOff("r", "n1"),
            ApprovePlan("r", 1),
            RejectPlan("r", 1),
            SetDeciding("r", False),
            ConfirmGone("r", f"{names['job']}#0"),
            HandsOn("r", f"{names['job']}#0"),
            MoveVm("r", f"{names['job']}#0", "n2"),
            AdoptVm("r", "n1", "vm", "adopted"),
            ForgetVm("r", names["job"]),
            ProfileNode("r", "n1", StandardRun(StandardJob.IO, 1.0)),
            RetryNotification("r", "x"),
            DropNotification("r", "x"),
            TryChannel("r", "ops"),
            DryRun("r"),
            Assess("r", "suspend", names["job"]),
        )
    }


KINDS = tuple(asks(OWN))


def known(desk: ControllerHarness) -> tuple[Any, ...]:
    """Everything that a request could have changed."""
    cluster, deciding = desk.controller.cluster, desk.controller.deciding
    return (
        [entry.record() for entry in cluster.jobs.values()],
        [node.record() for node in cluster.nodes.values()],
        {name: (web.app, web.removed) for name, web in cluster.web.items()},
        [entry.record() for entry in cluster.environments.values()],
        deciding.enabled,
        deciding.submissions,
        len(desk.computations),
    )


def test_every_kind_of_request_is_tried() -> None:
    assert set(KINDS) == {*get_args(Change), CheckReservation, DryRun, Assess}


def test_who_somebody_is_follows_from_the_account() -> None:
    assert who("operator.anna") == Who(Role.PROVIDER, "anna", "operator.anna")
    assert who("controller.a") == Who(Role.PROVIDER, "a", "controller.a")
    assert who("owner.kim") == Who(Role.OWNER, "kim", "owner.kim")
    assert who("user.joe-2") == Who(Role.USER, "joe-2", "user.joe-2")
    assert [who(sender) for sender in STRANGERS] == [None] * len(STRANGERS)


@pytest.mark.parametrize("sender", [KIM, JOE, "operator.test"])
def test_nothing_more_may_be_asked_through_a_portal(desk: ControllerHarness, sender: str) -> None:
    for names in (OWN, OTHERS, NOBODYS):
        for request in asks(names).values():
            before = refused(desk, request, sender)
            if before:
                desk.say(on_behalf(sender, request), "portal.p")
                assert (desk.replies[-1].done, desk.replies[-1].code) == (False, before)


# --- requests ---------------------------------------------------------------------------------------------------------


def test_the_provider_may_ask_for_everything_and_an_owner_for_what_is_hers(desk: ControllerHarness) -> None:
    for kind in KINDS:
        for names in (OWN, OTHERS, NOBODYS):
            for sender in ("operator.test", "controller.b"):
                assert refused(desk, asks(names)[kind], sender) == ""
        assert refused(desk, asks(OWN)[kind], KIM) == ("" if kind in REQUESTS[Role.OWNER] else "not-allowed")


def refused(desk: ControllerHarness, request: Request, sender: str) -> str:
    asker = who(sender)
    assert asker is not None
    return refusal(asker, request, desk.controller.cluster)[0]


CODES = {
    SubmitJob: "unknown-environment",
    SubmitWeb: "unknown-environment",
    CancelJob: "unknown-job",
    HoldJob: "unknown-job",
    RemoveWeb: "unknown-web-app",
    CreateEnvironment: "not-allowed",
    CheckReservation: "not-allowed",
    **dict.fromkeys(
        (
            ActivateEnvironment,
            DeactivateEnvironment,
            DestroyEnvironment,
            ResizeEnvironment,
            ConsentEnvironment,
            ReserveEnvironment,
        ),
        "unknown-environment",
    ),
}


@pytest.mark.parametrize("sender", [KIM, JOE])
def test_what_is_somebody_elses_looks_as_if_it_did_not_exist(desk: ControllerHarness, sender: str) -> None:
    """The answer is the same but for the name that was asked for, nothing changes, and it is told."""
    before = known(desk)
    role = Role.OWNER if sender == KIM else Role.USER
    for kind in KINDS:
        refused = desk.controller.screening.count(sender)

        theirs, nothing = (said(desk, asks(names)[kind], sender) for names in (OTHERS, NOBODYS))

        expected = CODES[kind] if kind in REQUESTS[role] else "not-allowed"
        assert (theirs.done, theirs.code, theirs.data) == (False, expected, None)
        assert (nothing.done, nothing.code) == (False, expected)
        assert _anonymous(theirs.detail) == _anonymous(nothing.detail)
        assert known(desk) == before
        assert desk.controller.screening.count(sender) == refused + 2
    assert desk.dead == []


def _anonymous(text: str) -> str:
    for names in (OTHERS, NOBODYS):
        for name in sorted(names.values(), key=len, reverse=True):
            text = text.replace(f"'{name}'", "it")
    return text


def test_a_user_submits_where_an_agreement_names_it_and_cancels_its_own(desk: ControllerHarness) -> None:
    assert refused(desk, asks(OWN)[SubmitJob], JOE) == ""
    assert refused(desk, asks(OWN)[CancelJob], JOE) == "unknown-job"  # it is the owner's
    desk.controller.cluster.environments["kimbatch"].agreement = agreement("kimbatch", owner="kim")
    assert said(desk, SubmitJob("r1", job("late", environment="kimbatch")), JOE).code == "unknown-environment"
    good(desk, CancelJob("r2", "joejob"), JOE)  # submitted while it could
    assert desk.controller.cluster.jobs["joejob"].over


def test_who_submitted_a_job_outlives_the_controller(desk: ControllerHarness) -> None:
    users = {name: entry.record().user for name, entry in desk.controller.cluster.jobs.items() if not entry.job.app}
    assert users == {"kimjob": KIM, "joejob": JOE, "leejob": LEE, "annjob": ANN, "poolleejob": "operator.test"}


def test_jobs_of_an_earlier_environment_of_the_name_are_not_the_new_owners(desk: ControllerHarness) -> None:
    environments = desk.controller.cluster.environments
    environments["leebatch"] = environment("leebatch", "kim", "batch", ())
    environments["leebatch"].order = 1_000
    assert said(desk, Query("q", "job", "leejob"), KIM).code == "unknown-job"
    assert said(desk, CancelJob("r", "leejob"), KIM).code == "unknown-job"


def test_an_owner_is_no_user_of_the_name(desk: ControllerHarness) -> None:
    desk.controller.cluster.environments["leebatch"].agreement = agreement("leebatch", owner="lee", users=("kim",))
    assert refused(desk, asks(OTHERS)[SubmitJob], KIM) == "unknown-environment"
    assert refused(desk, asks(OTHERS)[SubmitJob], "user.kim") == ""


def test_the_pool_is_the_providers(desk: ControllerHarness) -> None:
    for sender in (KIM, JOE):
        assert said(desk, SubmitJob("r", job("mine")), sender).code == "not-allowed"
    assert said(desk, SubmitWeb("r", shop("mine")), KIM).code == "not-allowed"
    assert said(desk, CancelJob("r", "poolleejob"), KIM).code == "unknown-job"


def test_an_instance_of_an_application_is_no_job(desk: ControllerHarness) -> None:
    reply = said(desk, CancelJob("r", "kimshop#0"), KIM)
    assert (reply.code, reply.detail.count("kimshop#0")) == ("unknown-job", 1)


def test_an_application_does_not_take_the_place_of_somebody_elses(desk: ControllerHarness) -> None:
    before = known(desk)
    reply = said(desk, SubmitWeb("r", shop("leeshop", most=9, environment="kimweb")), KIM)
    assert (reply.done, reply.code) == (False, "duplicate-name")
    assert known(desk) == before
    assert refused(desk, SubmitWeb("r", shop("kimshop", environment="leeweb")), KIM) == "unknown-environment"


def test_a_job_waits_for_no_job_of_others(desk: ControllerHarness) -> None:
    theirs, nothing = (
        said(desk, SubmitJob("r", job("next", environment="kimbatch", after=(name,))), KIM)
        for name in ("leejob", "nojob")
    )
    assert (theirs.code, nothing.code) == ("unknown-job", "unknown-job")
    assert _anonymous(theirs.detail) == "after: there is no job it; nearest: 'joejob'; submit that one first"
    good(desk, SubmitJob("r", job("next", environment="kimbatch", after=("joejob",))), KIM)


# --- views ------------------------------------------------------------------------------------------------------------

SUBJECTS = {"environment": "batch", "assurance": "batch", "job": "job", "web-app": "app"}


@pytest.mark.parametrize("sender", [KIM, JOE])
def test_a_view_shows_what_is_ones_own_or_nothing(desk: ControllerHarness, sender: str) -> None:
    views = VIEWS[Role.OWNER if sender == KIM else Role.USER]
    for what in (*QUERIES, "nonsense"):
        own = OWN["user"] if (what, sender) == ("job", JOE) else OWN.get(SUBJECTS.get(what, ""), "")

        reply = said(desk, Query("q", what, own), sender)

        assert (reply.done, reply.code) == ((True, "") if what in views else (False, "not-allowed"))
        if reply.done:
            assert not any(name in str(reply.data) for name in FOREIGN), reply.data
            assert (own or ("joejob" if what == "jobs" else "kim")) in str(reply.data)
        else:
            assert reply.data is None


@pytest.mark.parametrize("sender", [KIM, JOE])
def test_a_view_of_somebody_elses_thing_is_one_of_nothing(desk: ControllerHarness, sender: str) -> None:
    for what, kind in SUBJECTS.items():
        theirs, nothing = (said(desk, Query("q", what, names[kind]), sender) for names in (OTHERS, NOBODYS))
        assert not theirs.done
        assert theirs.code == nothing.code
        assert _anonymous(theirs.detail) == _anonymous(nothing.detail)
        assert not any(name in _anonymous(theirs.detail) for name in FOREIGN)


def test_lists_count_what_is_ones_own(desk: ControllerHarness) -> None:
    jobs = good(desk, Query("q", "jobs", limit=1), KIM).data
    assert (jobs["total"], [row["name"] for row in jobs["jobs"]]) == (2, ["kimjob"])
    jobs = good(desk, Query("q", "jobs"), JOE).data
    assert (jobs["total"], [row["name"] for row in jobs["jobs"]]) == (1, ["joejob"])
    apps = good(desk, Query("q", "web-apps"), KIM).data
    assert (apps["total"], [row["name"] for row in apps["apps"]]) == (1, ["kimshop"])
    environments = good(desk, Query("q", "environments"), KIM).data
    assert [row["name"] for row in environments["environments"]] == ["kimbatch", "kimweb"]
    mine = good(desk, Query("q", "environments"), JOE).data
    assert mine["environments"] == [{"name": name, "state": "running"} for name in ("kimbatch", "kimweb")]


def test_an_owner_does_not_learn_whose_a_node_was_or_will_be(desk: ControllerHarness) -> None:
    coming, going = desk.controller.cluster.nodes["n1"], desk.controller.cluster.nodes["n2"]
    coming.environment, coming.given, coming.detail = "leebatch", "kimbatch", "release for leebatch"
    going.environment, going.given = "kimbatch", "leebatch"
    view = good(desk, Query("q", "environment", "kimbatch"), KIM).data["environment"]
    assert [(node["environment"], node["given"]) for node in view["nodes"]] == [("", "kimbatch"), ("kimbatch", "")]
    assert not any(name in str(view) for name in FOREIGN)
    view = good(desk, Query("q", "environment", "kimbatch"), "operator.test").data["environment"]
    assert [node["environment"] for node in view["nodes"]] == ["leebatch", "kimbatch"]


def test_the_provider_sees_the_cluster_itself(desk: ControllerHarness) -> None:
    """Nothing is copied for it: views of all cost what they cost."""
    asker = who("operator.test")
    assert asker is not None
    for what in QUERIES:
        assert seen(asker, desk.controller.cluster, what) is desk.controller.cluster


# --- the controller ---------------------------------------------------------------------------------------------------


def test_a_sender_of_no_role_is_not_answered(desk: ControllerHarness) -> None:
    """Its requests are dead letters; those of a role that may not ask are acknowledged and answered."""
    before, answers = known(desk), len(desk.replies)
    for sender in STRANGERS:
        number = desk.say(CancelJob("r", "kimjob"), sender)
        assert desk.dead[-1][0] == number
        assert number not in desk.acknowledged
    assert (len(desk.replies), known(desk)) == (answers, before)
    number = desk.say(CancelJob("r", "leejob"), KIM)
    assert number in desk.acknowledged
    assert len(desk.replies) == answers + 1


def test_answers_go_to_the_askers_own_queue_alone(desk: ControllerHarness) -> None:
    """The controller may write where the asker may not: it is not to be made to."""
    answers = len(desk.replies)
    for queue in ("controller", "agent.n1", "reply.owner.lee.1", "reply.owner.kimmy", "reply.operator.x"):
        for request in (Query("q", "jobs"), CancelJob("r", "leejob"), CancelJob("r", "kimjob")):
            number = desk.delivery()
            desk.feed(Received(number, KIM, request, queue))
            assert desk.dead[-1] == (number, f"{KIM} may not have answers sent to {queue}")
    assert len(desk.replies) == answers
    assert not desk.controller.cluster.jobs["kimjob"].over
    desk.feed(Received(desk.delivery(), KIM, Query("q", "jobs"), "reply.owner.kim.77"))
    assert len(desk.replies) == answers + 1
