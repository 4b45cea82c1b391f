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
    CheckRules,
    CheckVmFit,
    ConfirmGone,
    ConfirmOff,
    ConsentEnvironment,
    CreateEnvironment,
    DeactivateEnvironment,
    DecideNow,
    DestroyEnvironment,
    DrainNode,
    DropNotification,
    DryRun,
    HoldJob,
    MoveVm,
    PowerVm,
    ProfileNode,
    Query,
    ReconcileVm,
    ReleaseVm,
    RemoveNode,
    RemoveWeb,
    RepairNode,
    Request,
    ReserveEnvironment,
    ResizeEnvironment,
    RetryNotification,
    SetDeciding,
    SetJob,
    SetWeb,
    SharedRules,
    StopPlan,
    SubmitJob,
    SubmitWeb,
    TryChannel,
)
from shared.values.agreement import EnvironmentState
from shared.values.jobs import Rules
from shared.values.load_vector import StandardJob, StandardRun
from shared.values.new_vm import NewVm
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
def harness() -> ControllerHarness:
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


def said(harness: ControllerHarness, request: Request, sender: str) -> Reply:
    harness.say(request, sender)
    return harness.replies[-1]


def good(harness: ControllerHarness, request: Request, sender: str) -> Reply:
    reply = said(harness, request, sender)
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
            StopPlan("r"),
            DecideNow("r"),
            ConfirmGone("r", f"{names['job']}#0"),
            ReconcileVm("r", f"{names['job']}#0"),
            MoveVm("r", f"{names['job']}#0", "n2"),
            AdoptVm("r", "n1", "vm", job="adopted"),
            ReleaseVm("r", names["job"]),
            SetJob("r", names["job"], importance=2.0),
            SetWeb("r", names["app"], importance=2.0),
            PowerVm("r", names["job"], False),
            ProfileNode("r", "n1", StandardRun(StandardJob.IO, 1.0)),
            RetryNotification("r", "x"),
            DropNotification("r", "x"),
            TryChannel("r", "ops"),
            DryRun("r"),
            Assess("r", "suspend", names["job"]),
            CheckVmFit("r", NewVm(1, 100)),
            CheckRules("r", (SharedRules(Rules(), (names["job"],)),)),
        )
    }


KINDS = tuple(asks(OWN))


def known(harness: ControllerHarness) -> tuple[Any, ...]:
    """Everything that a request could have changed."""
    cluster, deciding = harness.controller.cluster, harness.controller.deciding
    return (
        [entry.record() for entry in cluster.jobs.values()],
        [node.record() for node in cluster.nodes.values()],
        {name: (web.app, web.removed) for name, web in cluster.web.items()},
        [entry.record() for entry in cluster.environments.values()],
        deciding.enabled,
        deciding.submissions,
        len(harness.computations),
    )


def test_every_kind_of_request_is_tried() -> None:
    assert set(KINDS) == {*get_args(Change), CheckReservation, CheckRules, CheckVmFit, DryRun, Assess}


def test_who_somebody_is_follows_from_the_account() -> None:
    assert who("operator.anna") == Who(Role.PROVIDER, "anna", "operator.anna")
    assert who("controller.a") == Who(Role.PROVIDER, "a", "controller.a")
    assert who("owner.kim") == Who(Role.OWNER, "kim", "owner.kim")
    assert who("user.joe-2") == Who(Role.USER, "joe-2", "user.joe-2")
    assert [who(sender) for sender in STRANGERS] == [None] * len(STRANGERS)


@pytest.mark.parametrize("sender", [KIM, JOE, "operator.test"])
def test_nothing_more_may_be_asked_through_a_portal(harness: ControllerHarness, sender: str) -> None:
    for names in (OWN, OTHERS, NOBODYS):
        for request in asks(names).values():
            before = refused(harness, request, sender)
            if before:
                harness.say(on_behalf(sender, request), "portal.p")
                assert (harness.replies[-1].done, harness.replies[-1].code) == (False, before)


# --- requests ---------------------------------------------------------------------------------------------------------


def test_the_provider_may_ask_for_everything_and_an_owner_for_what_is_hers(harness: ControllerHarness) -> None:
    for kind in KINDS:
        for names in (OWN, OTHERS, NOBODYS):
            for sender in ("operator.test", "controller.b"):
                assert refused(harness, asks(names)[kind], sender) == ""
        assert refused(harness, asks(OWN)[kind], KIM) == ("" if kind in REQUESTS[Role.OWNER] else "not-allowed")


def refused(harness: ControllerHarness, request: Request, sender: str) -> str:
    asker = who(sender)
    assert asker is not None
    return refusal(asker, request, harness.controller.cluster)[0]


CODES = {
    SubmitJob: "unknown-environment",
    SubmitWeb: "unknown-environment",
    CancelJob: "unknown-job",
    HoldJob: "unknown-job",
    SetJob: "unknown-job",
    SetWeb: "unknown-web-app",
    RemoveWeb: "unknown-web-app",
    CreateEnvironment: "not-allowed",
    CheckReservation: "not-allowed",
    CheckRules: "unknown-job",
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
def test_what_is_somebody_elses_looks_as_if_it_did_not_exist(harness: ControllerHarness, sender: str) -> None:
    """The answer is the same but for the name that was asked for, nothing changes, and it is told."""
    before = known(harness)
    role = Role.OWNER if sender == KIM else Role.USER
    for kind in KINDS:
        refused = harness.controller.screening.count(sender)

        theirs, nothing = (said(harness, asks(names)[kind], sender) for names in (OTHERS, NOBODYS))

        expected = CODES[kind] if kind in REQUESTS[role] else "not-allowed"
        assert (theirs.done, theirs.code, theirs.data) == (False, expected, None)
        assert (nothing.done, nothing.code) == (False, expected)
        assert _anonymous(theirs.detail) == _anonymous(nothing.detail)
        assert known(harness) == before
        assert harness.controller.screening.count(sender) == refused + 2
    assert harness.dead == []


def _anonymous(text: str) -> str:
    for names in (OTHERS, NOBODYS):
        for name in sorted(names.values(), key=len, reverse=True):
            text = text.replace(f"'{name}'", "it")
    return text


def test_a_user_submits_where_an_agreement_names_it_and_cancels_its_own(harness: ControllerHarness) -> None:
    assert refused(harness, asks(OWN)[SubmitJob], JOE) == ""
    assert refused(harness, asks(OWN)[CancelJob], JOE) == "unknown-job"  # it is the owner's
    harness.controller.cluster.environments["kimbatch"].agreement = agreement("kimbatch", owner="kim")
    assert said(harness, SubmitJob("r1", job("late", environment="kimbatch")), JOE).code == "unknown-environment"
    good(harness, CancelJob("r2", "joejob"), JOE)  # submitted while it could
    assert harness.controller.cluster.jobs["joejob"].over


def test_who_submitted_a_job_outlives_the_controller(harness: ControllerHarness) -> None:
    users = {name: entry.record().user for name, entry in harness.controller.cluster.jobs.items() if not entry.job.app}
    assert users == {"kimjob": KIM, "joejob": JOE, "leejob": LEE, "annjob": ANN, "poolleejob": "operator.test"}


def test_jobs_of_an_earlier_environment_of_the_name_are_not_the_new_owners(harness: ControllerHarness) -> None:
    environments = harness.controller.cluster.environments
    environments["leebatch"] = environment("leebatch", "kim", "batch", ())
    environments["leebatch"].order = 1_000
    assert said(harness, Query("q", "job", "leejob"), KIM).code == "unknown-job"
    assert said(harness, CancelJob("r", "leejob"), KIM).code == "unknown-job"


def test_an_owner_is_no_user_of_the_name(harness: ControllerHarness) -> None:
    harness.controller.cluster.environments["leebatch"].agreement = agreement("leebatch", owner="lee", users=("kim",))
    assert refused(harness, asks(OTHERS)[SubmitJob], KIM) == "unknown-environment"
    assert refused(harness, asks(OTHERS)[SubmitJob], "user.kim") == ""


def test_the_pool_is_the_providers(harness: ControllerHarness) -> None:
    for sender in (KIM, JOE):
        assert said(harness, SubmitJob("r", job("mine")), sender).code == "not-allowed"
    assert said(harness, SubmitWeb("r", shop("mine")), KIM).code == "not-allowed"
    assert said(harness, CancelJob("r", "poolleejob"), KIM).code == "unknown-job"


def test_an_instance_of_an_application_is_no_job(harness: ControllerHarness) -> None:
    reply = said(harness, CancelJob("r", "kimshop#0"), KIM)
    assert (reply.code, reply.detail.count("kimshop#0")) == ("unknown-job", 1)


def test_an_application_does_not_take_the_place_of_somebody_elses(harness: ControllerHarness) -> None:
    before = known(harness)
    reply = said(harness, SubmitWeb("r", shop("leeshop", most=9, environment="kimweb")), KIM)
    assert (reply.done, reply.code) == (False, "duplicate-name")
    assert known(harness) == before
    assert refused(harness, SubmitWeb("r", shop("kimshop", environment="leeweb")), KIM) == "unknown-environment"


def test_a_job_waits_for_no_job_of_others(harness: ControllerHarness) -> None:
    theirs, nothing = (
        said(harness, SubmitJob("r", job("next", environment="kimbatch", depends_on=(name,))), KIM)
        for name in ("leejob", "nojob")
    )
    assert (theirs.code, nothing.code) == ("unknown-job", "unknown-job")
    assert _anonymous(theirs.detail) == "depends_on: there is no job it; nearest: 'joejob'; submit that one first"
    good(harness, SubmitJob("r", job("next", environment="kimbatch", depends_on=("joejob",))), KIM)


# --- views ------------------------------------------------------------------------------------------------------------

SUBJECTS = {"environment": "batch", "assurance": "batch", "job": "job", "web-app": "app"}


@pytest.mark.parametrize("sender", [KIM, JOE])
def test_a_view_shows_what_is_ones_own_or_nothing(harness: ControllerHarness, sender: str) -> None:
    views = VIEWS[Role.OWNER if sender == KIM else Role.USER]
    for what in (*QUERIES, "nonsense"):
        own = OWN["user"] if (what, sender) == ("job", JOE) else OWN.get(SUBJECTS.get(what, ""), "")

        reply = said(harness, Query("q", what, own), sender)

        assert (reply.done, reply.code) == ((True, "") if what in views else (False, "not-allowed"))
        if reply.done:
            assert not any(name in str(reply.data) for name in FOREIGN), reply.data
            assert (own or ("joejob" if what == "jobs" else "kim")) in str(reply.data)
        else:
            assert reply.data is None


@pytest.mark.parametrize("sender", [KIM, JOE])
def test_a_view_of_somebody_elses_thing_is_one_of_nothing(harness: ControllerHarness, sender: str) -> None:
    for what, kind in SUBJECTS.items():
        theirs, nothing = (said(harness, Query("q", what, names[kind]), sender) for names in (OTHERS, NOBODYS))
        assert not theirs.done
        assert theirs.code == nothing.code
        assert _anonymous(theirs.detail) == _anonymous(nothing.detail)
        assert not any(name in _anonymous(theirs.detail) for name in FOREIGN)


def test_lists_count_what_is_ones_own(harness: ControllerHarness) -> None:
    jobs = good(harness, Query("q", "jobs", limit=1), KIM).data
    assert (jobs["total"], [row["name"] for row in jobs["jobs"]]) == (2, ["kimjob"])
    jobs = good(harness, Query("q", "jobs"), JOE).data
    assert (jobs["total"], [row["name"] for row in jobs["jobs"]]) == (1, ["joejob"])
    apps = good(harness, Query("q", "web-apps"), KIM).data
    assert (apps["total"], [row["name"] for row in apps["apps"]]) == (1, ["kimshop"])
    environments = good(harness, Query("q", "environments"), KIM).data
    assert [row["name"] for row in environments["environments"]] == ["kimbatch", "kimweb"]
    mine = good(harness, Query("q", "environments"), JOE).data
    assert mine["environments"] == [{"name": name, "state": "running"} for name in ("kimbatch", "kimweb")]


def test_an_owner_does_not_learn_whose_a_node_was_or_will_be(harness: ControllerHarness) -> None:
    coming, going = harness.controller.cluster.nodes["n1"], harness.controller.cluster.nodes["n2"]
    coming.environment, coming.given, coming.detail = "leebatch", "kimbatch", "release for leebatch"
    going.environment, going.given = "kimbatch", "leebatch"
    view = good(harness, Query("q", "environment", "kimbatch"), KIM).data["environment"]
    assert [(node["environment"], node["given"]) for node in view["nodes"]] == [("", "kimbatch"), ("kimbatch", "")]
    assert not any(name in str(view) for name in FOREIGN)
    view = good(harness, Query("q", "environment", "kimbatch"), "operator.test").data["environment"]
    assert [node["environment"] for node in view["nodes"]] == ["leebatch", "kimbatch"]


def test_the_provider_sees_the_cluster_itself(harness: ControllerHarness) -> None:
    """Nothing is copied for it: views of all cost what they cost."""
    asker = who("operator.test")
    assert asker is not None
    for what in QUERIES:
        assert seen(asker, harness.controller.cluster, what) is harness.controller.cluster


# --- the controller ---------------------------------------------------------------------------------------------------


def test_a_sender_of_no_role_is_not_answered(harness: ControllerHarness) -> None:
    """Its requests are dead letters; those of a role that may not ask are acknowledged and answered."""
    before, answers = known(harness), len(harness.replies)
    for sender in STRANGERS:
        number = harness.say(CancelJob("r", "kimjob"), sender)
        assert harness.dead[-1][0] == number
        assert number not in harness.acknowledged
    assert (len(harness.replies), known(harness)) == (answers, before)
    number = harness.say(CancelJob("r", "leejob"), KIM)
    assert number in harness.acknowledged
    assert len(harness.replies) == answers + 1


def test_answers_go_to_the_askers_own_queue_alone(harness: ControllerHarness) -> None:
    """The controller may write where the asker may not: it is not to be made to."""
    answers = len(harness.replies)
    for queue in ("controller", "agent.n1", "reply.owner.lee.1", "reply.owner.kimmy", "reply.operator.x"):
        for request in (Query("q", "jobs"), CancelJob("r", "leejob"), CancelJob("r", "kimjob")):
            number = harness.delivery()
            harness.feed(Received(number, KIM, request, queue))
            assert harness.dead[-1] == (number, f"{KIM} may not have answers sent to {queue}")
    assert len(harness.replies) == answers
    assert not harness.controller.cluster.jobs["kimjob"].over
    harness.feed(Received(harness.delivery(), KIM, Query("q", "jobs"), "reply.owner.kim.77"))
    assert len(harness.replies) == answers + 1
