"""Lists, forms and words of the pages, without a portal around them."""

from __future__ import annotations

import asyncio
from html.parser import HTMLParser
from typing import Any

import pytest

from daemons.manifests.job import JobFile
from daemons.portal.client.memo import Memo
from daemons.portal.forms import binding
from daemons.portal.forms.binding import table_of
from daemons.portal.forms.submit import JOB, KINDS, from_files, from_form, room_for
from daemons.portal.present.advice import ADVICE, Advice, page_of
from daemons.portal.present.nodes import STATES, Use, grid, state_of, use_of
from daemons.portal.present.pagination import Column, Listing, has_text, in_order, name_key, part, wanted
from daemons.portal.present.workloads import end_s, end_words, goal_words, job_troubles, waits, worst
from daemons.values.event_codes import ALARMS
from shared.base.errors import InvalidInput, StoreUnavailable
from shared.config import records
from shared.values.jobs import Job
from shared.values.web_app import WebApp

COLUMNS = (Column("size", "Size", lambda row: row), Column("", "Plain"))


# --- lists ----------------------------------------------------------------------------------------------------------


def test_a_page_of_a_list_knows_its_neighbours() -> None:
    listing = wanted({"sort": "-size", "page": "2", "q": " x "}, {"q": "", "state": "off"}, COLUMNS)

    found = part(list(range(120)), listing, COLUMNS)

    assert list(found.rows) == list(range(69, 19, -1))
    assert (found.first, found.last, found.total, found.pages) == (51, 100, 120, 3)
    assert found.before == "?q=x&state=off&sort=-size"
    assert found.after == "?q=x&state=off&sort=-size&page=3"
    assert [head.order for head in found.heads] == ["descending", ""]


@pytest.mark.parametrize("page", ["0", "-1", "nine", "99999999999999999999", "²", "4"])
def test_a_page_that_is_not_there_is_the_nearest(page: str) -> None:
    found = part(list(range(120)), wanted({"page": page}, {}, COLUMNS), COLUMNS)

    assert found.page in (1, 3)
    assert len(found.rows) > 0


def test_what_is_not_known_comes_last_whichever_way() -> None:
    rising, falling = (in_order([2, None, 1], Listing({}, "size", down), COLUMNS) for down in (False, True))

    assert rising == [1, 2, None]
    assert falling == [2, 1, None]


def test_nobody_sorts_by_what_is_no_column() -> None:
    assert wanted({"sort": "__class__"}, {}, COLUMNS, "size").sort == "size"


def test_names_are_in_the_order_of_their_numbers() -> None:
    assert sorted(["n10", "n9", "a", "n1-b", "n²"], key=name_key) == ["a", "n1-b", "n9", "n10", "n²"]


def test_every_word_is_looked_for() -> None:
    assert has_text("RENDER n1", "render-7", "n1")
    assert not has_text("render n2", "render-7", "n1")


def test_what_is_made_of_the_same_answer_is_made_once() -> None:
    kept, source = Memo(2), {"a": 1}
    made: list[int] = []

    for each in (source, source, {"a": 1}):
        kept.get("grid", (each,), lambda: made.append(1))

    assert len(made) == 2
    for each in (source, source, {"b": 2}):
        kept.get(("grid", "by size"), (each,), lambda: made.append(1))
    assert len(made) == 4
    assert kept.find("grid", (source,)) is None
    kept.put("one", (1,), "first")
    kept.put("two", (1,), "second")
    assert (kept.find("one", (1,)), kept.find("one", (2,)), kept.find("grid", (source,))) == ("first", None, None)


def test_what_takes_long_is_made_once_for_all_who_ask_meanwhile() -> None:
    """And what failed is told to all of them, and tried again by the next."""
    kept, made = Memo(2), list[int]()

    async def make() -> int:
        made.append(1)
        await asyncio.sleep(0.0)
        if len(made) == 1:
            raise StoreUnavailable("gone")
        return len(made)

    async def story() -> list[list[Any]]:
        asked = (
            asyncio.gather(*(kept.once("list", (moment,), make) for _ in range(3)), return_exceptions=True)
            for moment in (1, 1, 1, 2)
        )
        return [await each for each in asked]

    failed, first, again, later = asyncio.run(story())
    assert [type(each) for each in failed] == [StoreUnavailable] * 3
    assert (first, again, later) == ([2] * 3, [2] * 3, [3] * 3)


def test_who_goes_away_does_not_take_it_from_the_others() -> None:
    kept = Memo()

    async def make() -> str:
        await asyncio.sleep(0.01)
        return "made"

    async def story() -> str:
        first = asyncio.ensure_future(kept.once("list", (), make))
        second = asyncio.ensure_future(kept.once("list", (), make))
        await asyncio.sleep(0.0)
        first.cancel()
        return await second

    assert asyncio.run(story()) == "made"


# --- nodes ----------------------------------------------------------------------------------------------------------


def node(name: str, condition: str = "up", service: str = "in-service", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "condition": condition,
        "service": service,
        "handover": "settled",
        "environment": "",
        "schedulable": True,
        "labels": ["ssd"],
        "cores": 4,
        "cpu": {"used_mhz": 1_720.0, "capacity_mhz": 4_000.0},
        "memory": {"free_mib": 1_000.0, "capacity_mib": 4_000.0},
        "iowait_frac": 0.02,
    } | more


class Cells(HTMLParser):
    """The links of a grid."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag == "a"
        self.found.append(dict(attrs))


def test_the_grid_is_small_and_says_what_it_shows() -> None:
    rows = [node(f"node-{number}") for number in range(1_000)]

    text = grid(rows)

    cells = Cells(text).found
    assert len(cells) == 1_000
    assert cells[2]["title"] == "node-2: in service, CPU 43 %, memory 75 %, I/O wait 2 %"
    assert cells[2]["class"] == "cell in-service u4"
    assert len(text) < 200_000


def test_a_name_from_the_bus_stays_a_name() -> None:
    evil = 'x"><script>alert(1)</script>'

    (cell,) = Cells(grid([node(evil, service=evil)])).found

    assert cell["id"] == f"g-{evil}"
    assert str(cell["title"]).startswith(evil)
    assert "<" not in str(cell["href"])


def test_what_is_most_in_the_way_is_the_state_of_a_node() -> None:
    said = {
        "unknown": node("a", "unknown", "failed"),
        "failed": node("a", handover="failed"),
        "off": node("a", "off"),
        "standby": node("a", "off", "standby"),
        "draining": node("a", service="draining"),
    }

    assert {state: state_of(row) for state, row in said.items()} == {state: state for state in said}
    assert set(said) < set(STATES)


def test_the_use_of_all_nodes_is_that_of_those_that_are_up() -> None:
    silent = node("c", "unknown", cpu={"used_mhz": None, "capacity_mhz": None})
    small = node("b", cpu={"used_mhz": 0.0, "capacity_mhz": 300.0}, iowait_frac=None)

    assert use_of([node("a"), small, silent]) == Use(0.4, 0.75, 0.02)
    assert use_of([silent]) == Use(None, None, None)


# --- workloads ------------------------------------------------------------------------------------------------------


def job(name: str = "a", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "phase": "running",
        "held": False,
        "instances": 2,
        "cpu_mhz": 2_000.0,
        "done_mcycles": 100_000.0,
        "work_mcycles": 400_000.0,
        "submit_at_s": 0.0,
        "goal_at_s": 1_000.0,
        "predicted_end_at_s": 500.0,
        "utility": 0.5,
        "finished_at_s": None,
        "stalled": False,
        "blocked": False,
        "reconciliation_paused": None,
        "failures": 0,
        "waits_for": None,
        "back_off_until_s": None,
    } | more


def test_a_job_ends_when_it_is_predicted_to_or_did() -> None:
    assert end_s(job()) == 500.0
    assert end_s(job(predicted_end_at_s=None)) is None
    assert end_s(job(predicted_end_at_s=None, finished_at_s=450.0)) == 450.0


def test_the_interval_of_the_end_is_told_of_a_job_beyond_its_declared_work() -> None:
    assert end_words(job()) == ""
    beyond: dict[str, Any] = {"predicted_end_early_at_s": 0.0, "predicted_end_late_at_s": 3600.0}
    assert "1970-01-01T00:00:00Z and 1970-01-01T01:00:00Z" in end_words(job(**beyond))
    assert end_words(job(**beyond, finished_at_s=9.0)) == ""


def test_a_job_that_is_starved_says_so() -> None:
    starved = {"code": "starved", "words": "next to nothing is left"}
    assert job_troubles(job(waits_for=starved)) == ["next to nothing is left"]
    assert job_troubles(job(waits_for=starved | {"code": "no-cpu"})) == []


def test_the_worst_off_come_first() -> None:
    app = {"name": "shop", "removed": False, "utility": 0.1, "running": 0, "min_instances": 1}
    rows = [
        job("late", goal_at_s=250.0, utility=-1.0),
        job("fine"),
        job("stuck", goal_at_s=None, utility=None, stalled=True),
        job("forgotten", goal_at_s=199.0, utility=None),
        job("new", goal_at_s=201.0, utility=None),
    ]

    found = worst(rows, [app], 200.0)

    assert [one.name for one in found] == ["late", "forgotten", "stuck", "shop", "fine"]
    assert (found[0].late_s, found[1].trouble) == (250.0, "goal time has passed")
    assert found[0].url == "/workloads/jobs/late"
    assert [one.name for one in worst(rows, [app], 200.0, count=1)] == ["late"]


def test_why_a_job_waits_is_said() -> None:
    reason = {"text": "no node has room for 4,096 MiB"}

    assert waits(job(phase="waiting", waits_for=reason)) == ["no node has room for 4,096 MiB"]
    assert waits(job(phase="suspended", held=True))[0].startswith("Suspended by an operator")
    assert waits(job(phase="waiting")) == ["Waiting for the next decision."]
    assert waits(job()) == []
    assert goal_words(1_000.0, 1_090.0) == "90 s after its goal"


# --- alarms ---------------------------------------------------------------------------------------------------------


def test_every_alarm_is_explained_in_the_words_of_its_code() -> None:
    assert set(ADVICE) == set(ALARMS)
    assert all(advice.means and advice.do for advice in ADVICE.values())
    assert ADVICE["node-off"] == Advice(
        "It was fenced or confirmed off; its VMs count as lost.", "Switch it on again, or remove it."
    )
    assert "`" not in "".join(f"{advice.means}{advice.do}" for advice in ADVICE.values())


def test_an_alarm_leads_to_what_it_is_about() -> None:
    assert page_of("node-unreachable", "n/1") == "/nodes/n%2F1"
    assert page_of("job-stalled", "a") == "/workloads/jobs/a"
    assert page_of("web-too-few", "shop") == "/workloads/web/shop"
    assert page_of("moved-externally", "a#0") == "/vms/one?vm=a%230"
    assert page_of("prices-stale", "") == ""


# --- forms ----------------------------------------------------------------------------------------------------------

GOOD = {
    "name": "render",
    "instances": "2",
    "stages[0].work_mcycles": "1_200_000",
    "stages[0].max_mhz": "3.9e3",
    "stages[2].work_mcycles": "10",
    "stages[2].max_mhz": "20",
    "goal.within_s": "7200",
    "required_labels": "ssd, gpu",
    "arguments": "--fast\r\n\n--all",
    "rules.no_migration": "true",
}


def test_a_form_is_understood_as_the_file_with_the_same_keys() -> None:
    text = """
        name = "render"
        instances = 2
        required_labels = ["ssd", "gpu"]
        arguments = ["--fast", "--all"]
        goal.within_s = 7200
        rules.no_migration = true
        stages = [{work_mcycles = 1_200_000, max_mhz = 3.9e3}, {work_mcycles = 10, max_mhz = 20}]
    """

    made, wrong = from_form(KINDS["job"], GOOD, 1_000.0)
    files, problems = from_files(KINDS["job"], [("a", text)], 1_000.0)

    assert wrong.count == 0
    assert problems == []
    assert made == files[0][1]


def test_what_is_wrong_is_said_beside_each_field_in_the_words_of_the_file() -> None:
    bad = GOOD | {"name": "", "instances": "many", "stages[2].max_mhz": "", "goal.at": "2030-01-31T12:00:00Z"}

    made, wrong = from_form(KINDS["job"], bad, 1_000.0)

    with pytest.raises(InvalidInput) as caught:
        records.read(table_of(JOB, bad)[0], JobFile, "job.toml", {})
    said = [text for texts in wrong.beside.values() for text in texts]
    assert made is None
    assert wrong.above == []
    assert set(wrong.beside) == {"name", "instances", "stages[2].max_mhz", "goal.within_s"}
    assert wrong.beside["instances"] == ["instances is 'many' (expected a whole number from 1 to 65536)"]
    assert sorted(f"job.toml: {text}" for text in said) == sorted(
        str(one).replace(": is", " is") for one in _of(caught)
    )


def _of(caught: pytest.ExceptionInfo[InvalidInput]) -> list[str]:
    return [f"{one.where} {binding.in_words(one)}" for one in caught.value.problems]


def test_a_form_without_anything_says_what_is_missing() -> None:
    _, wrong = from_form(KINDS["job"], {}, 0.0)
    _, web = from_form(KINDS["web"], {}, 0.0)

    assert set(wrong.beside) == {"name", "stages[0].work_mcycles"}
    assert {"name", "memory_mib", "max_mhz"} <= set(web.beside)


def test_times_that_do_not_fit_are_said_beside_the_goal() -> None:
    late = {key: text for key, text in GOOD.items() if key != "goal.within_s"} | {"goal.at": "2001-01-31T12:00:00Z"}

    _, wrong = from_form(KINDS["job"], late, 1.7e9)

    assert wrong.beside == {"goal.at": ["goal.at has passed (expected a time to come)"]}


def test_a_web_application_from_a_form() -> None:
    values = {
        "name": "shop",
        "memory_mib": "2048",
        "max_mhz": "4000",
        "max_instances": "3",
        "flows[0].name": "browse",
        "flows[0].mean_s": "0.25",
        "serving.port": "8080",
        "serving.listen": "8001",
    }

    made, wrong = from_form(KINDS["web"], values, 0.0)
    _, without = from_form(KINDS["web"], values | {"flows[0].mean_s": ""}, 0.0)

    assert wrong.count == 0
    assert isinstance(made, WebApp)
    assert made.serving is not None
    assert (made.flows[0].mean_s, made.serving.port) == (0.25, 8080)
    assert list(without.beside) == ["flows[0].name"]


def test_several_files_each_say_what_is_wrong_with_them() -> None:
    stage = "[[stages]]\nwork_mcycles = 1\nmax_mhz = 1\n"
    text = f'name = "a"\n{stage}---\nname = "b c"\n{stage}---\n\n]\n'

    made, problems = from_files(KINDS["job"], [("pasted", text)], 0.0)

    assert [(where, one.name) for where, one in made] == [("pasted, part 1", "a")]
    assert [problem.where for problem in problems] == ["pasted, part 2:1: name", "pasted, part 3:2:1"]


def test_the_preview_counts_nodes_with_labels_cpu_and_memory() -> None:
    made, _ = from_form(KINDS["job"], GOOD | {"required_labels": "ssd", "stages[0].memory_mib": "900"}, 0.0)
    rows = [
        node("a"),
        node("b", labels=[]),
        node("c", memory={"free_mib": 800.0, "capacity_mib": 4_000.0}),
        node("d", schedulable=False),
        node("e", environment="theirs"),
    ]

    assert isinstance(made, Job)
    assert room_for(made, rows) == (1, 3)
    made, _ = from_form(KINDS["job"], GOOD | {"required_labels": "", "rules.label_affinity": "ssd"}, 0.0)
    assert isinstance(made, Job)
    assert room_for(made, rows) == (2, 3)
