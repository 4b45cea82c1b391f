"""Environments: created by form and by file, looked at, changed and ended; nobody sees another's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from daemons.access.identity import Role
from daemons.portal.forms.agreements import from_text
from daemons.portal.pages.environments import size_chart
from daemons.portal.present.spans import Span
from daemons.store import Batch, SqlStore
from daemons.store.reading_rows import EventRow
from shared.base.clock import ManualClock
from shared.base.errors import InvalidInput
from shared.protocol.messages import Happened
from tests.portal.scene import Scene, scene
from tests.support.store_samples import made_url, sqlite_url

GOOD = {
    "name": "night",
    "owner": "acme",
    "workload": "batch",
    "lower": "1",
    "upper": "2",
    "model": "flb-nub",
    "users": "bob",
}
NEW = "/new-environment"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Scene]:
    """A provider with two owners of environments and a user."""
    url = made_url(tmp_path / "store.db")
    with closing(SqlStore(url, ManualClock(1.7e9))) as store, scene(tmp_path, history=url) as found:
        store.take_lead("a")
        found.account("zeta", Role.OWNER)
        yield found


def test_three_mistakes_get_three_messages_beside_their_fields(made: Scene) -> None:
    acme = made.browser("acme")

    answer = acme.post(NEW, GOOD | {"name": "a b", "lower": "many", "lease_s": "0", "do": "create"})

    assert answer.status_code == 422
    assert re.findall(r'class="wrong" id="f-([a-z_]+)-wrong"', answer.text) == ["name", "lower", "lease_s"]
    assert answer.text.count("<li>agreement: ") == 3
    assert 'value="many"' in answer.text


def test_an_owner_creates_changes_and_ends_an_environment(made: Scene) -> None:
    acme, bob = made.browser("acme"), made.browser("bob")

    created = acme.post(NEW, GOOD | {"do": "create", "why": "a new customer"})
    made.run(5.0)
    page = acme.get("/environments/night").text
    steps = [("activate", {}), ("resize", {"lower": "2", "upper": ""}), ("destroy", {"typed": "nigth"})]
    answers = [acme.post(f"/environments/night/{step}", fields, "/environments/night") for step, fields in steps]
    made.run(5.0)
    after = acme.get("/environments/night").text
    ended = acme.post("/environments/night/destroy", {"typed": "night"}, "/environments/night")

    assert (created.status_code, created.headers["location"]) == (303, "/environments/night")
    assert made.controller_client.asked[0][0] == "owner.acme"
    assert made.controller_client.asked[0][2] == "a new customer"
    assert "guaranteed 1, maximum 2" in page
    assert "Target units" in page
    assert [answer.status_code for answer in answers] == [303, 303, 422]
    assert "guaranteed 2, maximum undefined" in after
    assert "night, as confirmation" in answers[2].text
    assert 'hx-get="/environments/night"' in answers[2].text
    assert ended.status_code == 303
    assert "night" in bob.get("/environments").text
    assert "Owner" not in bob.get("/environments").text
    assert bob.get("/environments/night").status_code == 404


def test_anothers_environment_looks_as_if_it_did_not_exist(made: Scene) -> None:
    acme, zeta, jane = made.browser("acme"), made.browser("zeta"), made.browser("jane")
    acme.post(NEW, GOOD | {"do": "create"})
    made.run(5.0)

    listed, page = zeta.get("/environments").text, zeta.get("/environments/night")
    forged = zeta.post("/environments/night/destroy", {"typed": "night"}, NEW)
    stolen = zeta.post(NEW, GOOD | {"name": "mine", "owner": "acme", "do": "create"})

    assert "night" not in listed
    assert (page.status_code, forged.status_code, stolen.status_code) == (404, 404, 403)
    assert "may only create environments of owner" in stolen.text
    assert 'id="e-night"' in jane.get("/environments").text


def test_an_agreement_is_pasted_and_asked_about_first(made: Scene) -> None:
    jane = made.browser("jane")
    text = 'name = "front"\nowner = "kim"\nworkload = "web"\nlower = 1\n'

    checked = jane.post(NEW, {"text": text, "do": "check"})
    wrong = jane.post(NEW, {"text": text + "uper = 3\n", "do": "create"})
    created = jane.post(NEW, {"text": text, "do": "create"})

    assert "no admission policy" in checked.text
    assert wrong.status_code == 422
    assert "agreement:5: uper: no such key" in wrong.text
    assert created.headers["location"] == "/environments/front"


@pytest.mark.parametrize("demand", ["/etc/passwd", "../demand.csv"])
def test_no_file_of_this_machine_is_read(demand: str) -> None:
    text = (
        'name = "front"\nowner = "kim"\nworkload = "web"\nlower = 0\n'
        f'[assurance]\ndemand = "{demand}"\n[[assurance.share]]\nclass = "predictable"\ntheta = 0.5\n'
    )

    with pytest.raises(InvalidInput, match="names a file"):
        from_text(text)


def test_sizes_over_time_are_told_from_what_was_decided() -> None:
    row = {"name": "e", "created_at_s": 100.0, "lower": 1, "upper": None, "size": 9}
    events = [
        EventRow(3, 300.0, "environment-sized", "e", 1, "4 to 2: manage"),
        EventRow(2, 200.0, "environment-sized", "e", 1, "1 to 4: provision"),
        EventRow(1, 150.0, "environment-resized", "e", 1, "7 to 8"),
    ]

    chart = size_chart(row, events, Span(0.0, 400.0, "", ""))

    assert list(chart.series[0].xs) == [100.0, 200.0, 300.0, 400.0]
    assert list(chart.series[0].ys) == [1.0, 4.0, 2.0, 2.0]
    assert [mark.name for mark in chart.marks] == ["guaranteed"]


def test_details_of_events_are_the_providers_alone(made: Scene, tmp_path: Path) -> None:
    acme, jane = made.browser("acme"), made.browser("jane")
    acme.post(NEW, GOOD | {"do": "create"})
    made.run(5.0)
    with closing(SqlStore(sqlite_url(tmp_path / "store.db"), ManualClock(made.now_s))) as store:
        store.append(Batch(events=(Happened(made.now_s - 1.0, "environment-sized", "night", 1, "0 to 1: of zeta's"),)))
    made.run(2.0)

    pages = [each.get("/environments/night").text for each in (acme, jane)]

    assert ["environment-sized" in page for page in pages] == [True, True]
    assert ["zeta" in page for page in pages] == [False, True]
