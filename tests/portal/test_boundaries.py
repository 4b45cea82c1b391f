"""What the roles must not learn or do by ways around: names that are shared, forms, links, odd requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from click.testing import CliRunner
from starlette.types import Message

from daemons.access.identity import Role
from daemons.portal.auth.account_command import account
from daemons.portal.context import Settings
from daemons.portal.forms.submit import KINDS, from_files
from daemons.portal.forms.texts import Texts
from daemons.portal.pages.stream import OF_ACCOUNT_MAX
from daemons.store import Batch, SqlStore
from shared.base.clock import ManualClock
from shared.config.records import PROBLEMS_MAX
from shared.protocol.messages import Happened
from shared.protocol.operator_messages import ActivateEnvironment, CreateEnvironment, SubmitJob
from shared.values.agreement import Agreement, WorkloadType
from tests.portal.scene import PASSWORD, URL, Scene, job, scene
from tests.support.store_samples import made_url, sqlite_url

EPOCH_S = 1.7e9


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Two nodes; acme has named an environment and a job as they are named."""
    folder = tmp_path_factory.mktemp("boundaries")
    url = made_url(folder / "store.db")
    with scene(folder, nodes=2, history=url) as made, closing(SqlStore(url, ManualClock(EPOCH_S))) as store:
        store.take_lead("a")
        made.ask(CreateEnvironment("c", Agreement("n1", "acme", WorkloadType.BATCH, lower=1)), "owner.acme")
        made.ask(ActivateEnvironment("v", "n1"), "owner.acme")
        made.run(60.0)
        made.ask(SubmitJob("s", job("n2", 5_000.0, environment="n1")), "owner.acme")
        made.run(10.0)
        at_s = made.now_s - 1.0
        told = [
            ("node-unreachable", "n1"),
            ("environment-sized", "n1"),
            ("node-unreachable", "n2"),
            ("job-suspended", "n2"),
        ]
        store.append(Batch(events=tuple(Happened(at_s, what, subject) for what, subject in told)))
        made.run(2.0)
        yield made


@pytest.fixture
def made(whole: Scene) -> Scene:
    """The same for all tests of this file."""
    return whole


def test_a_provider_makes_no_link_for_another_provider(made: Scene) -> None:
    made.account("joe", Role.PROVIDER)
    jane = made.browser("jane")

    refused = jane.post("/accounts/joe/link", {}, "/accounts")

    assert refused.status_code == 409
    assert "/link/" not in refused.text.replace("/accounts/acme/link", "").replace("/accounts/bob/link", "")
    assert jane.post("/accounts/acme/link", {}, "/accounts").status_code == 200


def test_forms_for_everybody_work_for_whoever_is_logged_in(made: Scene) -> None:
    word = made.portal.authentication.accounts.make_link("bob", made.now_s)
    fields = {"name": "zed", "password": PASSWORD, "again": PASSWORD, "new": PASSWORD}
    jane = made.browser("jane")

    assert jane.post("/ask", fields).status_code == 200
    assert jane.post(f"/link/{word}", fields).status_code == 303


@pytest.mark.parametrize("number", ["9" * 5_000, "0", "-1", "1.5", "x", "\u0661"])
def test_what_is_no_number_is_no_decision(made: Scene, number: str) -> None:
    assert made.browser("jane").get(f"/decision/{number}").status_code == 404


def test_forms_are_read_in_one_encoding(made: Scene) -> None:
    acme = made.browser("acme")
    part = '--x\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    body = part.format("csrf", acme.csrf("/workloads/submit")) + part.format("why", "\\ud800") + "--x--\r\n"
    kind = "multipart/form-data; boundary=x"

    def sent(encoding: str) -> int:
        headers = {"content-type": f"{kind}{encoding}", "origin": URL, "sec-fetch-site": "same-origin"}
        return int(acme.client.post("/workloads/submit", content=body, headers=headers).status_code)

    assert [sent(each) for each in ("; charset=unicode_escape", "; charset=UTF-8", "")] == [400, 422, 422]


def test_a_store_without_tables_is_told_as_one_that_is_away(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "store.db")
    with closing(SqlStore(url, ManualClock(EPOCH_S))) as store:
        store.make_file()
    with scene(tmp_path, nodes=1, jobs=(job("a"),), run_s=30.0, history=url) as made:
        jane = made.browser("jane")
        found = {path: jane.get(path).status_code for path in ("/reports", "/audit", "/decision")}
        beside = [jane.get(path) for path in ("/nodes/n1", "/workloads/jobs/a")]

    assert set(found.values()) == {503}
    assert [each.status_code for each in beside] == [200, 200]
    assert all("The history is unavailable" in each.text for each in beside)


def test_nobody_is_asked_again_and_again_when_nobody_answers(made: Scene) -> None:
    acme, before = made.browser("acme"), len(made.controller_client.asked)
    text = "\n---\n".join(f'name = "m{n}"\nenvironment = "n1"\nclass = "x"\n' for n in range(3))
    word = acme.csrf("/workloads/submit")
    made.controller_client.away = "gone"

    answer = acme.client.post("/workloads/submit", data={"csrf": word, "toml": text}, headers={"origin": URL})
    made.controller_client.away = ""

    assert answer.status_code == 503
    assert len(made.controller_client.asked) == before + 1
    assert answer.text.count("Not sent: the controller did not respond") == 2


def test_one_account_does_not_take_every_line(made: Scene) -> None:
    acme, jane = made.browser("acme"), made.browser("jane")
    made.portal.readers_of["acme"] = OF_ACCOUNT_MAX
    made.portal.settings = replace(made.portal.settings, readers_max=OF_ACCOUNT_MAX)
    refused = acme.get("/live?views=jobs").status_code
    made.portal.readers_of.clear()
    made.portal.readers = OF_ACCOUNT_MAX
    full = jane.get("/live?views=jobs").status_code
    made.portal.readers, made.portal.settings = 0, Settings(URL)

    assert (refused, full) == (503, 503)


def test_lines_are_counted_before_they_begin(cluster: Scene) -> None:
    """Given many lines that are asked for at the same moment, then no more are granted than one account may have."""
    bob = cluster.browser("bob")
    cookie = "; ".join(f"{name}={value}" for name, value in bob.client.cookies.items())
    statuses: list[int] = []

    async def one(number: int) -> None:
        async def receive() -> Message:
            await asyncio.sleep(60.0)
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            statuses.extend([message["status"]] if message["type"] == "http.response.start" else [])

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "scheme": "https",
            "path": "/live",
            "query_string": b"views=jobs",
            "headers": [(b"host", b"portal.test"), (b"cookie", cookie.encode())],
            "client": (f"192.0.2.{number}", 1),  # one address alone may not have so many
            "state": {},
        }
        await bob.client.app(scope, receive, send)

    async def story() -> int:
        tasks = [asyncio.create_task(one(number)) for number in range(OF_ACCOUNT_MAX + 30)]
        while len(statuses) < len(tasks):
            await asyncio.sleep(0.01)
        counted = cluster.portal.readers
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return counted

    assert bob.client.portal is not None
    counted = bob.client.portal.call(story)

    assert (Counter(statuses), counted) == ({200: OF_ACCOUNT_MAX, 503: 30}, OF_ACCOUNT_MAX)
    assert cluster.portal.readers == 0


def test_sessions_are_counted_until_they_end(cluster: Scene) -> None:
    sessions = cluster.portal.authentication.sessions
    cluster.browser("jane")
    cluster.browser("acme").post("/logout", {}, "/account")

    assert sessions.count(cluster.now_s) == 1
    assert sessions.count(cluster.now_s + 3_601.0) == 0


def test_a_password_that_was_not_looked_at_is_not_wrong(cluster: Scene) -> None:
    hasher = cluster.portal.authentication.hasher
    most, hasher.waiting_max = hasher.waiting_max, 0
    busy = [cluster.browser().login("jane").status_code for _ in range(8)]
    hasher.waiting_max = most

    assert set(busy) == {503}
    assert cluster.browser().login("jane").status_code == 303


@pytest.mark.parametrize(
    "key", ["a" + ".a" * 40, "a" + ' . "b c"' * 40, "[" + "x-1." * 40 + "y]", r'"\""' + r'."\""' * 40]
)
def test_a_key_of_many_parts_does_not_keep_the_portal_busy(key: str) -> None:
    """The time that the parser takes goes with the square of their number."""
    made, problems = from_files(KINDS["job"], [("p", f"{key} = 1" if "[" not in key else key)], 0.0)

    assert made == []
    assert [problem.what for problem in problems] == ["a key has too many parts"]


@pytest.mark.parametrize(
    "text",
    ["".join(f"a{n} = 1\n" for n in range(5_000)), f"required_labels = [{'1, ' * 5_000}]\n"],
    ids=["keys", "items"],
)
def test_a_page_does_not_tell_everything_that_is_wrong(made: Scene, text: str) -> None:
    """A megabyte of it made a page of 42."""
    answer = made.browser("acme").post("/workloads/submit", {"toml": text})

    told = answer.text.split('class="problems"')[1].split("</ul>")[0]
    assert answer.status_code == 422
    assert told.count("<li>") == PROBLEMS_MAX + 1
    assert "more" in told.rsplit("<li>", 1)[1]


def test_numbers_with_points_are_no_key_of_many_parts() -> None:
    text = f"x = [{', '.join('1.5' for _ in range(500))}]\n"

    _, problems = from_files(KINDS["job"], [("p", text)], 0.0)

    assert "a key has too many parts" not in [problem.what for problem in problems]


def test_no_account_is_a_portal(tmp_path: Path) -> None:
    run = CliRunner().invoke(account, ["add", "x", "--role", "portal", "--config", str(tmp_path / "none.toml")])

    assert "'portal' is not one of" in run.output


def test_an_environment_named_as_a_node_tells_nothing_of_the_node(made: Scene) -> None:
    page = made.browser("acme").get("/environments/n1").text

    assert "environment-sized" in page
    assert "node-unreachable" not in page


def test_a_job_named_as_a_node_tells_its_owner_nothing_of_the_node(made: Scene) -> None:
    acme, jane = (made.browser(name).get("/workloads/jobs/n2").text for name in ("acme", "jane"))

    assert "job suspended" in acme
    assert "node unreachable" not in acme
    assert "node unreachable" in jane


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/workloads/submit", {"toml": 'name = "a"\n', "do": "submit"}),
        ("/workloads/submit", {"name": "a", "do": "check"}),
        ("/new-environment", {"text": 'name = "a"\n', "do": "create"}),
        ("/environments/n1/reserve", {"text": 'name = "n1"\n'}),
    ],
    ids=["job", "form", "agreement", "reservation"],
)
def test_a_text_that_is_not_understood_in_time_is_given_up(made: Scene, path: str, form: dict[str, str]) -> None:
    """Given that there is no room for it, then the answer does not wait for that."""
    jane, done = made.browser("jane"), Event()
    whole = made.portal
    before = whole.texts
    with ThreadPoolExecutor(1) as pool:
        whole.texts = Texts(0.02, pool=pool)
        busy = pool.submit(done.wait)
        try:
            answer = jane.post(path, form, "/account")
        finally:
            done.set()
            busy.result()
            whole.texts = before

    assert answer.status_code == 422
    assert "could not be parsed within 0.02 s" in answer.text
