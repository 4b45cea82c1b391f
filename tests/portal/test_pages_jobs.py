"""Jobs, web applications and VMs: lists, pages, and what may be done with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from daemons.store import ActionEntry, Batch, SqlStore
from shared.base.clock import ManualClock
from shared.protocol.messages import Happened
from shared.protocol.operator_messages import (
    ActivateEnvironment,
    CreateEnvironment,
    SetJob,
    SubmitJob,
    SubmitWeb,
)
from shared.values.agreement import Agreement, WorkloadType
from shared.values.vm_terms import OnShutdown, TermChanges, VmAutomation
from shared.values.vms import VmState
from shared.values.web_app import Flow, WebApp
from tests.portal.scene import Browser, Scene, job, scene
from tests.support.store_samples import made_url

EPOCH_S = 1.7e9


def _history(folder: Path) -> str:
    """What happened to job `a`, and something of long before it."""
    url = made_url(folder / "store.db")
    with closing(SqlStore(url, ManualClock(EPOCH_S))) as store:
        store.take_lead("a")
        told = [("job-started", 20.0, ""), ("job-requeued", 10.0, "<script>"), ("job-completed", -9e3, "long ago")]
        store.append(Batch(events=(Happened(EPOCH_S + 100.0, "job-suspended", "his", detail="for a secret job"),)))
        store.append(
            Batch(events=tuple(Happened(EPOCH_S + at_s, what, "a", detail=detail) for what, at_s, detail in told))
        )
        at_s = EPOCH_S + 5.0
        sent = ActionEntry("1", at_s, "start", "a#0", "n1", 1, sent_s=at_s, done_s=at_s + 8.0, outcome="no-room")
        store.append(Batch(actions=(sent,)))
    return url


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Four nodes; jobs of nobody in particular and of an environment of acme's, where bob may submit."""
    jobs = (job("a", 9_000.0, goal_s=2_000.0), job("b", 600.0, 2))
    folder = tmp_path_factory.mktemp("jobs")
    with scene(folder, nodes=4, jobs=jobs, history=_history(folder)) as found:
        found.ask(CreateEnvironment("c", Agreement("batch", "acme", WorkloadType.BATCH, lower=1, users=("bob",))))
        found.ask(ActivateEnvironment("v", "batch"))
        found.run(60.0)
        found.ask(SubmitJob("s1", job("hers", 5_000.0, environment="batch")), "owner.acme")
        found.ask(SubmitJob("s2", job("his", 5_000.0, environment="batch")), "user.bob")
        found.run(30.0)
        yield found


@pytest.fixture
def made(whole: Scene) -> Scene:
    """The same for all tests of this file."""
    return whole


@pytest.fixture
def jane(made: Scene) -> Browser:
    """The provider."""
    return made.browser("jane")


def test_each_role_sees_its_jobs(made: Scene, jane: Browser) -> None:
    acme, bob = made.browser("acme"), made.browser("bob")

    seen = {
        name: [each for each in ("a", "b", "hers", "his") if f'id="j-{each}"' in browser.get("/workloads").text]
        for name, browser in (("jane", jane), ("acme", acme), ("bob", bob))
    }

    assert seen == {"jane": ["a", "b", "hers", "his"], "acme": ["hers", "his"], "bob": ["his"]}
    for browser, name in ((acme, "a"), (bob, "hers"), (bob, "nobody")):
        assert browser.get(f"/workloads/jobs/{name}").status_code == 404
    assert bob.get("/workloads/jobs/his").status_code == 200


def test_jobs_are_looked_through_and_sorted(jane: Browser) -> None:
    found, late, over = (
        jane.get(f"/workloads{query}").text for query in ("?environment=batch", "?sort=utility&q=a", "?phase=completed")
    )

    assert 'id="j-his"' in found
    assert 'id="j-a"' not in found
    assert 'aria-sort="ascending"' in late
    assert "No matching jobs." in over
    assert '<option value="forgotten">released</option>' in over


def test_a_job_tells_its_story(jane: Browser) -> None:
    text = jane.get("/workloads/jobs/a").text

    assert "after its goal" in text
    assert text.index("start a#0 on n1: no-room (8 s)") < text.index("job requeued") < text.index("job started")
    assert "✗ job requeued" in text
    assert "✗ job started" not in text
    assert "&lt;script&gt;" in text
    assert "long ago" not in text
    assert "accepted" in text


def test_details_of_events_are_the_providers(made: Scene) -> None:
    seen = {name: made.browser(name).get("/workloads/jobs/his").text for name in ("jane", "acme", "bob")}

    assert all("job suspended" in text for text in seen.values())
    assert [name for name, text in seen.items() if "a secret job" in text] == ["jane"]


def test_vms_are_listed_and_one_is_shown(jane: Browser) -> None:
    every, of_b = jane.get("/vms").text, jane.get("/vms?q=b%23&whose=ours").text

    assert every.count('href="/vms/one?') >= 4
    assert "b#1" in of_b
    assert "a#0" not in of_b
    assert jane.get("/vms/one?vm=zz").status_code == 404
    gone = jane.post("/vms/confirm-gone", {"vm": "a#0", "typed": "a"}, "/vms/one?vm=a%230")
    assert gone.status_code == 422
    assert "as confirmation" in gone.text


def test_a_job_is_held_resumed_and_cancelled(made: Scene, jane: Browser) -> None:
    held = jane.post("/workloads/jobs/b/hold", {"why": "first the others"}, "/workloads/jobs/b")
    made.run(120.0)
    waits = jane.get("/workloads/jobs/b").text
    resumed = jane.post("/workloads/jobs/b/resume", {}, "/workloads/jobs/b")
    without = jane.post("/workloads/jobs/b/cancel", {"typed": ""}, "/workloads/jobs/b")
    cancelled = jane.post("/workloads/jobs/b/cancel", {"typed": "b"}, "/workloads/jobs/b")
    made.run(60.0)

    assert [each.status_code for each in (held, resumed, without, cancelled)] == [303, 303, 422, 303]
    assert "Suspended by an operator until it is resumed." in waits
    assert ">cancelled</span>" in jane.get("/workloads/jobs/b").text


def test_nobody_cancels_what_is_not_his(made: Scene) -> None:
    bob = made.browser("bob")

    refused = bob.post("/workloads/jobs/hers/cancel", {"typed": "hers"}, "/account")
    hold = bob.post("/workloads/jobs/his/hold", {}, "/account")
    own = bob.post("/workloads/jobs/his/cancel", {"typed": "his"}, "/workloads/jobs/his")

    assert refused.status_code == 404
    assert hold.status_code == 404
    assert own.status_code == 303


def test_a_move_by_hand_shows_what_the_policies_think_first(jane: Browser) -> None:
    url = "/by-hand?kind=migrate&subject=a%230"
    targets = jane.get(url).text
    where = next(name for name in ("n1", "n2", "n3", "n4") if f'value="{name}"' in targets)

    asked = {"kind": "migrate", "subject": "a#0", "node": where}
    opinion = jane.post("/by-hand/assess", asked, url)
    unknown = jane.post("/by-hand/assess", asked | {"subject": "zz#0"}, url)
    nowhere = jane.post("/by-hand", asked | {"node": ""}, url)

    assert "Migrate the VM to" not in targets
    assert opinion.status_code == 200
    assert '<h2 id="opinion">Predicted effect</h2>' in opinion.text
    assert f"Migrate the VM to {where}" in opinion.text
    assert [each.status_code for each in (unknown, nowhere)] == [404, 422]
    assert jane.get("/by-hand?kind=explode&subject=a").status_code == 404


def test_a_move_by_hand_is_made(made: Scene, jane: Browser) -> None:
    before = jane.get("/vms/one?vm=a%230").text
    here = next(name for name in ("n1", "n2", "n3", "n4") if f'href="/nodes/{name}"' in before)
    free = jane.get("/by-hand?kind=migrate&subject=a%230").text
    to = next(name for name in ("n1", "n2", "n3", "n4") if name != here and f'value="{name}"' in free)

    done = jane.post("/by-hand", {"kind": "migrate", "subject": "a#0", "node": to, "why": "noise"}, "/account")
    made.run(120.0)

    assert (done.status_code, done.headers["location"]) == (303, "/workloads/jobs/a")
    assert made.controller_client.asked[-1][2] == "noise"
    assert f'href="/nodes/{to}"' in jane.get("/vms/one?vm=a%230").text


def test_a_vm_that_is_not_ours_is_adopted(made: Scene, jane: Browser) -> None:
    loop, vm, evil = made.loop, "legacy#0", 'x"><script>alert(1)</script>'
    loop.world.add_task("legacy", [(1e9, 1_000.0)], 1)
    loop.jobs["legacy"] = job("legacy", 1e6)
    free = next(name for name in ("n1", "n2") if f'id="ne-{name}"' not in jane.get("/nodes").text)  # of no environment
    for name in (vm, evil):
        loop.cluster.hypervisor(free).add_stranger(name, 64, 0.0)
    made.run(30.0)

    others = jane.get("/vms?whose=others").text
    of_it, asked = f"/vms/one?vm=legacy%230&node={free}", {"vm": vm, "node": free}
    wrong = jane.post("/vms/adopt", asked | {"job": "no name"}, of_it)
    done = jane.post("/vms/adopt", asked | {"job": "kept"}, of_it)
    made.run(30.0)

    assert "<script>alert" not in others
    assert "&lt;script&gt;alert" in others
    assert others.count("<td>unmanaged</td>") == 2
    assert wrong.status_code == 422
    assert 'value="no name"' in wrong.text
    assert done.status_code == 303
    assert "adopted" in jane.get("/workloads/jobs/kept").text


def test_an_adopted_vm_is_shut_down_and_started(made: Scene, jane: Browser) -> None:
    free = next(name for name in ("n1", "n2") if f'id="ne-{name}"' not in jane.get("/nodes").text)
    host, page = made.loop.cluster.hypervisor(free), "/workloads/jobs/pet"
    host.add_stranger("pet", 64, 0.0)
    made.run(30.0)
    jane.post("/vms/adopt", {"vm": "pet", "node": free, "job": "pet"}, f"/vms/one?vm=pet&node={free}")
    made.run(30.0)
    before = jane.get(page).text

    down = jane.post(f"{page}/shutdown", {}, page)
    made.run(60.0)
    off = jane.get(page).text
    up = jane.post(f"{page}/start", {}, page)
    made.run(60.0)

    assert (down.status_code, up.status_code) == (303, 303)
    assert "Shut down" in before
    assert "running; after its guest" in before
    assert "off; after its guest" in off
    assert "From then on, Trimtab keeps it running." in off
    assert "Start" in off
    assert host.domains["pet"].state is VmState.RUNNING


def test_terms_of_an_adopted_vm_are_changed(made: Scene, jane: Browser) -> None:
    free = next(name for name in ("n1", "n2") if f'id="ne-{name}"' not in jane.get("/nodes").text)
    host, page = made.loop.cluster.hypervisor(free), "/workloads/jobs/cat"
    host.add_stranger("cat", 64, 0.0)
    made.run(30.0)
    jane.post("/vms/adopt", {"vm": "cat", "node": free, "job": "cat"}, f"/vms/one?vm=cat&node={free}")
    made.run(30.0)
    terms = {"on_shutdown": "restart", "automation": "confirm", "moves_per_day": "2", "suspend": "yes"}

    done = jane.post(f"{page}/change", terms | {"importance": "4"}, page)
    after = jane.get(page).text
    wrong = jane.post(f"{page}/change", terms | {"moves_per_day": "0"}, page)
    odd = jane.post(f"{page}/change", terms | {"automation": "never"}, page)

    assert done.status_code == 303
    assert "after its guest&#39;s shutdown: restart" in after or "after its guest's shutdown: restart" in after
    assert "automation confirm; 2 of 2 migrations left today" in after
    assert '<option value="restart" selected>' in after
    assert 'name="importance" inputmode="decimal" value="4.0"' in after
    assert (wrong.status_code, odd.status_code) == (422, 422)
    assert "moves_per_day" in wrong.text
    assert "one of off, advise, confirm, auto" in odd.text
    assert jane.get(page).text.count("automation confirm; 2 of 2") == 1


def form_on(jane: Browser, page: str) -> dict[str, str]:
    """What a browser would send of the form that changes a job, unless something is changed in it."""
    text = jane.get(page).text
    (form,) = re.findall(r'<form method="post" action="[^"]*/change".*?</form>', text, re.DOTALL)
    found = {}
    for tag in re.findall(r"<input[^>]*>", form):
        said = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        if said.get("type") != "checkbox" or tag.endswith(" checked>"):
            found[said["name"]] = said.get("value", "")
    for name, options in re.findall(r'<select[^>]* name="(\w+)">(.*?)</select>', form, re.DOTALL):
        (found[name],) = re.findall(r'<option value="([^"]*)" selected>', options)
    return {name: value for name, value in found.items() if name not in ("csrf", "why")}


def adopted(made: Scene, jane: Browser, vm: str) -> str:
    """Adopt a new VM; its page."""
    free = next(name for name in ("n1", "n2") if f'id="ne-{name}"' not in jane.get("/nodes").text)
    made.loop.cluster.hypervisor(free).add_stranger(vm, 64, 0.0)
    made.run(30.0)
    jane.post("/vms/adopt", {"vm": vm, "node": free, "job": vm}, f"/vms/one?vm={vm}&node={free}")
    made.run(30.0)
    return f"/workloads/jobs/{vm}"


def test_an_old_form_leaves_what_others_have_changed_since(made: Scene, jane: Browser) -> None:
    """Given a form that was opened before somebody else changed other terms, then only its own change is sent."""
    dog = adopted(made, jane, "dog")
    made.ask(SetJob("before", "dog", terms=TermChanges(moves_per_day=2, suspend=True)))
    old = form_on(jane, dog)
    assert (old["importance"], old["moves_per_day"], old["suspend"]) == ("1.0", "2", "yes")
    others = TermChanges(automation=VmAutomation.OFF, pause_s_per_day=5.0, failover=True)
    made.ask(SetJob("others", "dog", importance=3.0, terms=others))

    sent = jane.post(f"{dog}/change", old | {"moves_per_day": "", "on_shutdown": "restart"}, dog)
    unchecked = jane.post(f"{dog}/change", {k: v for k, v in old.items() if k != "suspend"}, dog)
    asked = [request for _, request, _ in made.controller_client.asked[-2:] if isinstance(request, SetJob)]

    assert (sent.status_code, unchecked.status_code) == (303, 303)
    assert [(each.importance, each.terms) for each in asked] == [
        (None, TermChanges(on_shutdown=OnShutdown.RESTART, clear=("moves_per_day",))),
        (None, TermChanges(suspend=False)),
    ]
    now = form_on(jane, dog)
    assert "suspend" not in now
    assert {name: now[name] for name in ("importance", "automation", "pause_s_per_day", "failover")} == {
        "importance": "3.0",
        "automation": "off",
        "pause_s_per_day": "5.0",
        "failover": "yes",
    }
    assert (now["moves_per_day"], now["on_shutdown"]) == ("", "restart")


def test_a_wrong_form_keeps_what_was_entered(made: Scene, jane: Browser) -> None:
    """Given a mistake, or a refusal of the controller, then the form is open with all that was entered, and what it
    showed at first."""
    owl = adopted(made, jane, "owl")
    shown = form_on(jane, owl)
    assert "<details><summary>Change importance and terms" in jane.get(owl).text
    assert "Rules are changed by <code>trimtab vms set</code>." in jane.get(owl).text
    assert "Decisions use the new values from now on." in jane.get(owl).text
    entered = shown | {"moves_per_day": "0", "automation": "off", "failover": "yes", "importance": "7"}
    entered["why"] = "tests"

    answers = [
        jane.post(f"{owl}/change", entered, owl),
        jane.post(f"{owl}/change", entered | {"moves_per_day": "2", "importance": "1e9"}, owl),
        jane.post(f"{owl}/change", entered | {"moves_per_day": "2", "importance": ""}, owl),
    ]

    assert [each.status_code for each in answers] == [422, 409, 422]
    for answer, problem in zip(answers, ("moves_per_day", "importance is 1e+09", "importance"), strict=True):
        head, _, change = answer.text.partition("<details open><summary>Change importance and terms")
        assert problem in head
        assert problem in change.partition("<form")[0]
        assert '<option value="off" selected>' in change
        assert 'name="failover" value="yes" checked' in change
        assert 'name="why" maxlength="500" value="tests"' in change
        assert f'name="shown_importance" value="{shown["importance"]}"' in change
    assert 'name="moves_per_day" inputmode="numeric" placeholder="no limit" value="0"' in answers[0].text
    assert 'name="importance" inputmode="decimal" value="1e9"' in answers[1].text
    assert form_on(jane, owl) == shown


def test_importance_of_a_job_is_changed(jane: Browser) -> None:
    page = "/workloads/jobs/a"
    done = jane.post(f"{page}/change", {"importance": "3"}, page)
    wrong = jane.post(f"{page}/change", {"importance": "much"}, page)
    text = jane.get(page).text
    assert (done.status_code, wrong.status_code) == (303, 422)
    assert 'value="3.0"' in text
    assert "on_shutdown" not in text


def test_a_web_application_from_its_list_to_its_end(made: Scene, jane: Browser) -> None:
    flows = (Flow("browse", mean_s=0.25, work_mcycles=60.0), Flow("buy", percentile=0.95, percentile_s=1.0))
    made.ask(SubmitWeb("w", WebApp("shop", flows, 256, max_mhz=1_000.0)))
    made.run(60.0)

    every, text = jane.get("/workloads/web").text, jane.get("/workloads/web/shop").text
    removed = jane.post("/workloads/web/shop/remove", {"typed": "shop"}, "/workloads/web/shop")

    assert 'id="a-shop"' in every
    assert "answered within 0.25 s on average" in text
    assert "95 % answered within 1 s" in text
    assert "shop#" in text
    assert removed.status_code == 303
    assert made.browser("acme").get("/workloads/web/shop").status_code == 404


def test_a_name_leads_to_the_page_of_what_has_it(made: Scene, jane: Browser) -> None:
    made.ask(SubmitWeb("w", WebApp("shop", (Flow("browse", mean_s=0.25, work_mcycles=60.0),), 256, max_mhz=1_000.0)))
    names = ("shop", "shop%230", "any", "//evil.test", "%0d%0aX:1")
    led = [jane.client.get(f"/workload/{name}", follow_redirects=False) for name in names]

    places = [each.headers.get("location", "") for each in led[:3]]
    assert places == ["/workloads/web/shop", "/workloads/web/shop", "/workloads/jobs/any"]
    assert [each.status_code for each in led] == [303, 303, 303, 400, 400]
    assert made.browser("acme").get("/workload/shop").status_code == 404
