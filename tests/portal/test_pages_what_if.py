"""What-ifs: in the background, one at a time, bounded in number and time, kept, compared."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from daemons.portal.process_pool import TooBusy
from daemons.portal.what_if.comparison import of_replay, of_simulation
from daemons.portal.what_if.runs import STOPPED, RunRequest, Runs, RunState, WhatIfKind
from daemons.store import SqlStore
from shared.base.clock import ManualClock
from tests.portal.scene import Scene, scene
from tests.support.store_samples import made_url

FIGURES = {"mean_utility": 0.5, "cost": 10.0, "jobs": 4, "actions_by_kind": {"start": 4}}
SERIES = {"at_s": [1.0, 2.0], "mean_utility": [0.5, None], "cost_at_s": [1.0], "nodes_in_service": [3.0]}
SIDE = {"figures": FIGURES, "series": SERIES, "refused": {"submit-job: no-memory": 2}}
CHANGED = SIDE | {"figures": FIGURES | {"cost": 5.0}}
SIMULATED = {"measured": SIDE, "baseline": SIDE, "changed": CHANGED, "log": {"nodes": 3}, "not_reproduced": {"e": "x"}}
SEEN = {"mean_utility": 0.25, "in_service": 3}
TOTALS = {"mean_utility": 0.25, "changes": {"start": 2}, "refusals": {}}
ONE = {"part": "change", "subject": "a", "recorded": "start", "replayed": "nothing"}
REPLAYED = {
    "altered": None,
    "decisions": 3,
    "replayed": 1,
    "equal": 0,
    "missing": [1],
    "damaged": [{"decision": 2, "detail": "cut off"}],
    "different": [{"decision": 3, "differences": [ONE]}],
    "recorded_totals": TOTALS,
    "replayed_totals": TOTALS | {"changes": {"start": 1, "stop": 1}},
    "rows": [{"decision": 3, "at_s": 1.0, "recorded": SEEN, "replayed": SEEN}],
}
PROGRESS = 'print(\'{"run":"baseline","done":1,"of":2}\',file=sys.stderr,flush=True);'
SAYS = f"import sys;{PROGRESS}print('''{json.dumps(SIMULATED)}''')"
SLEEPS = f"import sys,time;{PROGRESS}time.sleep(60)"
WAITS_TO_BE_FIRST = """
import json, pathlib, time
score = 0
while score == 0:
    time.sleep(0.01)
    score = int(pathlib.Path("/proc/self/oom_score_adj").read_text())
print(json.dumps({"score": score}))
"""
FAILS = "import sys;print('error: the store is not there',file=sys.stderr);sys.exit(2)"
REQUEST = RunRequest(
    WhatIfKind.SIMULATE,
    1.0,
    2.0,
    placement="edf",
    provisioning="",
    values=("placement.preempt=true",),
    account="operator.jane",
    why="why not",
)


def runs(folder: Path, code: str, **named: float) -> Runs:
    """What-ifs whose command is a few lines of Python."""
    return Runs(folder, ManualClock(1e9), {}, command=(sys.executable, "-S", "-E", "-c", code), **named)  # type: ignore[arg-type]


def ended(found: Runs, id: str) -> RunState:
    """The state of one when it is over."""
    return left(found, id, RunState.QUEUED, RunState.RUNNING)


def left(found: Runs, id: str, *states: RunState) -> RunState:
    """The state of one when it is none of these any more."""
    tick = Event()
    for _ in range(2_000):
        run = found.find(id)
        assert run is not None
        if run.state not in states:
            return run.state
        tick.wait(0.01)
    raise AssertionError(f"{run} does not go on")


def test_what_comes_of_one_is_kept_and_outlives_the_portal(tmp_path: Path) -> None:
    first = runs(tmp_path, SAYS)
    id = first.start(REQUEST).id

    state = ended(first, id)
    again = runs(tmp_path, SAYS)

    assert state is RunState.DONE
    assert again.result(id) == SIMULATED
    assert again.find(id) == first.find(id)
    assert again.forget(id)
    assert again.all() == ()
    assert not list(tmp_path.iterdir())


def test_one_runs_at_a_time_and_the_others_wait(tmp_path: Path) -> None:
    found = runs(tmp_path, SLEEPS, queue_max=2)
    ids = [found.start(REQUEST).id]
    left(found, ids[0], RunState.QUEUED)
    ids += [found.start(REQUEST).id for _ in range(2)]

    states = [found.find(id).state for id in ids]  # type: ignore[union-attr]
    with pytest.raises(TooBusy, match="2 what-ifs are queued"):
        found.start(REQUEST)
    cancelled = [found.cancel(ids[1]), found.cancel(ids[0])]
    after = ended(found, ids[0]), ended(found, ids[1])
    found.close()

    assert sorted(states) == [RunState.QUEUED, RunState.QUEUED, RunState.RUNNING]
    assert cancelled == [True, True]
    assert after == (RunState.CANCELLED, RunState.CANCELLED)
    assert ended(found, ids[2]) is RunState.FAILED


def test_one_that_waits_ends_with_the_portal(tmp_path: Path) -> None:
    found = runs(tmp_path, SLEEPS)
    ids = [found.start(REQUEST).id for _ in range(2)]
    found.close()

    waited = found.find(ids[1])
    assert waited is not None
    assert (waited.state, waited.detail) == (RunState.FAILED, STOPPED)
    assert ended(found, ids[0]) is RunState.FAILED
    again = runs(tmp_path, SAYS)
    assert again.find(ids[1]) == waited


def test_one_that_takes_too_long_or_fails_says_why(tmp_path: Path) -> None:
    slow, wrong = runs(tmp_path / "s", SLEEPS, limit_s=0.1), runs(tmp_path / "w", FAILS)
    ids = slow.start(REQUEST).id, wrong.start(REQUEST).id

    assert (ended(slow, ids[0]), ended(wrong, ids[1])) == (RunState.FAILED, RunState.FAILED)
    assert "the time limit of 0.1 s" in slow.find(ids[0]).detail  # type: ignore[union-attr]
    assert "the store is not there" in wrong.find(ids[1]).detail  # type: ignore[union-attr]


def test_one_ends_before_the_portal_where_memory_is_short(tmp_path: Path) -> None:
    found = runs(tmp_path, WAITS_TO_BE_FIRST, limit_s=60.0)
    id = found.start(REQUEST).id

    assert ended(found, id) is RunState.DONE
    assert found.result(id) == {"score": 1000}


def test_only_so_many_are_kept_and_one_that_was_cut_off_is_told(tmp_path: Path) -> None:
    first = runs(tmp_path, FAILS, kept_max=2)
    for _ in range(4):
        ended(first, first.start(REQUEST).id)
    left = first.all()[0]
    about = tmp_path / left.id / "run.json"
    about.write_text(about.read_text().replace('"failed"', '"running"'))
    (tmp_path / "odd").mkdir()

    again = runs(tmp_path, FAILS, kept_max=2)

    assert len(first.all()) == 2
    assert again.find(left.id).detail == "the portal stopped before the run ended"  # type: ignore[union-attr]


def test_the_command_is_told_what_was_asked_for() -> None:
    assert REQUEST.arguments[:4] == ["sim", "what-if", "--from=1.0", "--to=2.0"]
    assert REQUEST.arguments[-2:] == ["--placement=edf", "--set=placement.preempt=true"]
    assert RunRequest(WhatIfKind.REPLAY, 1.0, 2.0).arguments[:2] == ["snapshot", "replay"]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Scene]:
    """A portal with what-ifs."""
    url = made_url(tmp_path / "store.db")
    with closing(SqlStore(url, ManualClock(1.7e9))) as store, scene(tmp_path, history=url) as found:
        store.take_lead("a")
        found.portal.runs = runs(tmp_path / "runs", SAYS)
        yield found


def test_a_what_if_is_asked_for_on_the_page_and_compared(made: Scene) -> None:
    jane = made.browser("jane")
    assert made.portal.runs is not None
    made.run(77.0)

    form = jane.get("/what-if").text
    asked = jane.post("/what-if", {"from": "24h", "placement": "edf", "values": "placement.preempt=true"})
    url = asked.headers["location"]
    ended(made.portal.runs, url.rsplit("/", 1)[1])
    page = jane.get(url).text

    assert "preempt, sharing" in form
    assert asked.status_code == 303
    assert (
        0.0 <= made.controller_client.now_s() - made.portal.runs.all()[0].wish.to_s < 1.0
    )  # what was decided just now is in it
    assert "-50.0 %" in page
    assert "/charts/" in page
    assert "Not in the simulation: e (x)." in page
    assert url in jane.get("/what-if").text
    assert "what-if-start" in jane.get("/audit").text
    assert jane.post(f"{url}/forget", {}, url).headers["location"] == "/what-if"
    assert jane.get(url).status_code == 404


def test_what_differs_leads_to_what_it_is_about(made: Scene, tmp_path: Path) -> None:
    odd = [("change", "a start"), ("in-service", "n1"), ("level", ""), ("slowed", "b on n2")]
    parts = [{"part": part, "subject": of, "recorded": "<b>x</b>", "replayed": "y"} for part, of in odd]
    said = json.dumps(REPLAYED | {"different": [{"decision": 3, "differences": parts}], "altered": {}})
    made.portal.runs = found = runs(tmp_path / "replays", f"print({said!r})")
    id = found.start(RunRequest(WhatIfKind.REPLAY, 1.0, 2.0)).id
    assert ended(found, id) is RunState.DONE

    page = made.browser("jane").get(f"/what-if/{id}").text

    assert '<a href="/decision/3">3</a>' in page
    assert '<a href="/workload/a">a</a> start</td>' in page
    assert '<a href="/workload/b">b</a> on n2</td>' in page
    assert '<a href="/nodes/n1">n1</a></td>' in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page


def test_what_cannot_be_run_is_told_at_once(made: Scene) -> None:
    jane = made.browser("jane")
    fields = {"from": "never", "placement": "edf", "values": "placement.preempt=7\nodd"}

    first = jane.post("/what-if", fields)
    second = jane.post("/what-if", fields | {"from": "7d"})
    third = jane.post("/what-if", fields | {"from": "7d", "values": "placement.preempt=7"})

    assert [answer.status_code for answer in (first, second, third)] == [422] * 3
    assert "is &#39;never&#39;" in first.text
    assert "SECTION.KEY=VALUE" in second.text
    assert "true or false" in third.text
    assert made.portal.runs is not None
    assert made.portal.runs.all() == ()


def test_a_simulated_span_is_shown_side_by_side() -> None:
    found = of_simulation(SIMULATED)
    rows = {row[0]: row[1:] for row in found.tables[0].rows}

    assert rows["cost"] == (10.0, 10.0, "0", 5.0, "-50.0 %")
    assert rows["lowest utility"] == (None, None, "-", None, "-")
    assert [chart.id for chart in found.charts if not chart.is_empty] == ["mean-utility", "nodes-in-service"]


def test_decisions_computed_again_are_shown_side_by_side() -> None:
    found = of_replay(REPLAYED)

    assert found.notes[0].startswith("3 decisions, 1 computed again: 0 exactly as recorded, 1 different.")
    assert ("changes: start", 2, 1, "-50.0 %") in found.tables[0].rows
    assert found.tables[1].rows == ((3, "change", "a", "start", "nothing"),)
    with pytest.raises(KeyError):
        of_replay({})
