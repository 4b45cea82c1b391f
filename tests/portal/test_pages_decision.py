"""Decisions: the plan that waits is seen, approved by two or rejected, followed; reasons are told in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from daemons.access.identity import Role
from daemons.portal.pages.decision import PAST_S
from daemons.portal.present.plan_graph import BOX_WIDTH, STEPS_MAX, graph
from daemons.portal.present.reasons import WORDS, Words, words_of
from daemons.store import SqlStore
from daemons.values.settings import Automation
from shared.base.clock import ManualClock
from shared.policy_api.decision import ReasonCode
from tests.portal.scene import Browser, Scene, job, scene
from tests.support.store_samples import decision_record, made_url

CONFIRM = {"hold_starts": True, "decide_s": 60.0, "approvals": 2}


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Scene]:
    """Decisions of two jobs that wait for two accounts' approval."""
    url = made_url(tmp_path / "store.db")
    jobs = [job("a", instances=2), job("b", 900.0)]
    with (
        closing(SqlStore(url, ManualClock(1.7e9))) as store,
        scene(tmp_path, automation=Automation.CONFIRM, settings=CONFIRM, jobs=jobs, history=url, run_s=100.0) as found,
    ):
        (shell,) = found.loop.controllers.values()
        store.write(store.take_lead("a").term, tuple(shell.core.deciding.history))  # type: ignore[union-attr]
        found.account("joan", Role.PROVIDER)
        yield found


def waiting(browser: Browser) -> str:
    """The address of the decision that waits."""
    found = re.search(r'id="waits" href="([^"]+)"', browser.get("/decision").text)
    assert found is not None
    return found[1]


def test_two_accounts_approve_a_plan_and_watch_it_run(made: Scene) -> None:
    jane, joan = made.browser("jane"), made.browser("joan")
    url = waiting(jane)

    before = jane.get(url).text
    first = jane.post(f"{url}/approve", {"why": "room enough"}, url)
    between = joan.get(url).text
    again = jane.post(f"{url}/approve", {}, url)
    last = joan.post(f"{url}/approve", {"why": "agreed"}, url)
    made.run(50.0)
    after = jane.get(url).text

    assert "2 approvals are missing" in before
    assert before.count('class="step held"') == 3
    assert (first.status_code, last.status_code) == (303, 303)
    assert "operator.jane" in between
    assert "room enough" in between
    assert "1 approval is missing" in between
    assert again.status_code == 409
    assert "approved it already" in again.text
    assert f'hx-get="{url}"' in again.text
    assert after.count('class="step done"') == 3
    assert "Waiting for approval" not in after
    assert '<th scope="row"><a href="/workload/a">a</a></th>' in after
    assert re.search(r'<a href="/nodes/n\d">n\d</a> \(', after)
    assert re.search(r'<a href="/nodes/n\d" id="node-0">', after)
    assert 'href="/vms/one?vm=a%230"' in after


def test_a_plan_is_rejected_with_a_reason(made: Scene) -> None:
    jane = made.browser("jane")
    url = waiting(jane)

    without = jane.post(f"{url}/reject", {"why": " "}, url)
    done = jane.post(f"{url}/reject", {"why": "<b>not at noon</b>"}, url)
    after = jane.get(url).text

    assert without.status_code == 422
    assert "a reason for the rejection" in without.text
    assert done.status_code == 303
    assert "&lt;b&gt;not at noon&lt;/b&gt;" in after
    assert 'id="waits"' not in jane.get("/decision").text


def test_decisions_are_told_from_the_history_while_nobody_answers(made: Scene) -> None:
    jane = made.browser("jane")
    made.controller_client.away = "the broker is away"

    listed, one, none = jane.get("/decision"), jane.get("/decision/1"), jane.get("/decision/77")

    assert 'id="d-1"' in listed.text
    assert "the broker is away" in listed.text
    assert one.status_code == 200
    assert "showing the stored decision" in one.text
    assert none.status_code == 404


def test_for_a_decision_of_the_past_the_controller_is_asked_once_in_a_while(made: Scene) -> None:
    jane = made.browser("jane")
    assert made.portal.reading is not None
    with closing(SqlStore(made.portal.reading.url, ManualClock(1.7e9))) as store:
        store.write(store.take_lead("b").term, (decision_record(500, 1.6e9),))

    pages = [jane.get("/decision/500") for _ in range(3)]
    asked = [subject for _, what, subject in made.controller_client.views if what == "plan"].count("500")
    made.wait(PAST_S)
    later = jane.get("/decision/500")

    assert [page.status_code for page in (*pages, later)] == [200] * 4
    assert len({re.sub(r'value="[^"]*"', "", page.text) for page in pages}) == 1
    assert asked == 1
    assert [subject for _, what, subject in made.controller_client.views if what == "plan"].count("500") == 2


def test_a_word_about_a_decision_that_is_gone_says_so(made: Scene) -> None:
    """Also where no history keeps it: its page is not there to show."""
    jane = made.browser("jane")
    url = waiting(jane)

    late = jane.post("/decision/77/approve", {"why": "room enough"}, url)

    assert late.status_code == 409
    assert "Decision 77 does not exist" in late.text


def test_only_the_provider_sees_decisions(made: Scene) -> None:
    acme = made.browser("acme")

    assert [acme.get(path).status_code for path in ("/decision", "/decision/1", "/what-if", "/audit")] == [404] * 4
    assert acme.post("/decision/1/approve", {}, "/account").status_code == 404


def test_a_graph_has_its_steps_in_columns_and_is_bounded() -> None:
    step = {"kind": "start", "vm": "x" * 60, "node": "n1", "to_node": "", "wave": 0, "state": "done"}
    chain = [step | {"after": [at - 1] if at else []} for at in range(3)]

    drawn = graph([*chain, step | {"after": [0], "state": "odd", "to_node": "n2"}])
    large = graph([step | {"after": []}] * (STEPS_MAX + 5))

    assert [box.x for box in drawn.boxes] == [*sorted(box.x for box in drawn.boxes[:3]), drawn.boxes[1].x]
    assert drawn.boxes[1].x - drawn.boxes[0].x > BOX_WIDTH
    assert drawn.boxes[3].y > drawn.boxes[1].y
    assert len(drawn.arrows) == 3
    assert (drawn.boxes[3].state, drawn.boxes[3].foot) == ("unknown", "n1 → n2")
    assert large.left_out == 5


def test_every_reason_is_told_in_the_words_of_its_code() -> None:
    """As parts of sentences: what it means, and what would lift it where it hinders something."""
    assert set(WORDS) == {code.value for code in ReasonCode}
    assert WORDS["no-nodes"] == Words("no node is in service and known", "a node comes into service and reports")
    assert WORDS["no-cpu"].lifts == "CPU becomes free, or one more node is in service"
    assert WORDS["held"].means == "the automation level is advise or confirm, or deciding is paused"
    assert WORDS["keep"].lifts == ""
    assert words_of("of-a-plug-in").means == "a reason of the policy's own"
