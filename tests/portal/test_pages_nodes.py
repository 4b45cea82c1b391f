"""Nodes: the list, one node, and what an operator does with one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import pytest

from daemons.report.draw import can_draw
from daemons.store import Batch, SqlStore
from shared.base.clock import ManualClock
from tests.portal.scene import Browser, Scene, job, scene
from tests.support.store_samples import made_url
from tests.unit.daemons.store.test_history import use

EPOCH_S = 1.7e9


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Three nodes, a job on one of them, and samples of n1."""
    folder = tmp_path_factory.mktemp("nodes")
    url = made_url(folder / "store.db")
    with closing(SqlStore(url, ManualClock(EPOCH_S))) as store:
        store.take_lead("a")
        store.append(Batch(uses=tuple(use("n1", EPOCH_S - 3_600.0 + 300.0 * slot, 0.25) for slot in (0, 1, 5))))
    with scene(folder, jobs=[job("a", 9_000.0)], history=url) as found:
        yield found


@pytest.fixture
def made(whole: Scene) -> Scene:
    """The same for all tests of this file, which take different nodes."""
    whole.controller_client.asked.clear()
    return whole


@pytest.fixture
def jane(made: Scene) -> Browser:
    """The provider."""
    return made.browser("jane")


def test_nodes_are_looked_through_and_sorted(jane: Browser) -> None:
    every, one, none = (jane.get(f"/nodes{query}").text for query in ("?sort=-name", "?q=N2", "?state=failed"))

    assert every.index('id="n-n3"') < every.index('id="n-n1"')
    assert 'aria-sort="descending"' in every
    assert 'id="n-n2"' in one
    assert 'id="n-n1"' not in one
    assert "No matching nodes." in none


def test_a_node_shows_its_vms_and_its_use(jane: Browser) -> None:
    pages = [jane.get(f"/nodes/n{number}").text for number in (1, 2, 3)]

    (there,) = [text for text in pages if 'id="vm-a#0"' in text]
    assert "/vms/one?node=n" in there
    assert "CPU and I/O wait (%) as a table" in pages[0]
    assert "25" in pages[0]
    assert jane.get("/nodes/nobody").status_code == 404


@pytest.mark.skipif(not can_draw(), reason="matplotlib (extra plots) is not installed")
def test_the_use_of_a_node_is_drawn_once(jane: Browser) -> None:
    first, again = (jane.get("/nodes/n1/use.dark.svg?hours=6") for _ in range(2))

    assert first.headers["content-type"].startswith("image/svg+xml")
    assert first.text.startswith("<svg")
    assert again.text == first.text
    assert jane.get("/nodes/n1/use.blue.svg").status_code == 404


@pytest.mark.skipif(not can_draw(), reason="matplotlib (extra plots) is not installed")
def test_the_use_of_a_node_is_drawn_narrow_for_narrow_windows(jane: Browser) -> None:
    page = jane.get("/nodes/n1?hours=6").text
    media, path = re.findall(r'<source media="([^"]+)" srcset="([^"]+)" width="390" height="440">', page)[1]

    assert (media, path) == ("(max-width: 40rem)", "/nodes/n1/use.narrow.svg?hours=6")
    assert re.search(r'<svg[^>]* width="390"', jane.get(path).text)


def test_a_node_is_drained_and_undrained_with_a_reason(made: Scene, jane: Browser) -> None:
    drained = jane.post("/nodes/n3/drain", {"why": "new disks"}, "/nodes/n3")
    made.run(30.0)
    held = jane.get("/nodes/n3").text
    undrained = jane.post("/nodes/n3/undrain", {}, "/nodes/n3")
    made.run(5.0)

    assert (drained.status_code, drained.headers["location"]) == (303, "/nodes/n3")
    assert made.controller_client.asked[0][0] == "operator.jane"
    assert made.controller_client.asked[0][2] == "new disks"
    assert "drained by an operator" in held
    assert undrained.status_code == 303
    assert "drained by an operator" not in jane.get("/nodes/n3").text


def test_what_cannot_be_taken_back_needs_the_name_typed(made: Scene, jane: Browser) -> None:
    made.loop.host_dies("n3")
    made.run(120.0)

    without = jane.post("/nodes/n3/confirm-off", {"typed": "n2"}, "/nodes/n3")
    asked = list(made.controller_client.asked)
    done = jane.post("/nodes/n3/confirm-off", {"typed": "n3"}, "/nodes/n3")
    refused = jane.post("/nodes/n1/remove", {"typed": "n1"}, "/nodes/n1")

    assert without.status_code == 422
    assert "n3, as confirmation" in without.text
    assert asked == []
    assert done.status_code == 303
    assert refused.status_code in (303, 409)


def test_a_node_is_added(jane: Browser) -> None:
    wrong = jane.post("/nodes", {"name": "n 9"})
    done = jane.post("/nodes", {"name": "n9"})

    assert wrong.status_code == 422
    assert "n 9" in wrong.text
    assert done.status_code == 303
    assert 'id="n-n9"' in jane.get("/nodes").text


def test_nodes_are_the_providers_alone(made: Scene) -> None:
    acme = made.browser("acme")

    for path in ("/nodes", "/nodes/n1", "/vms", "/by-hand?kind=drain&subject=n1"):
        assert acme.get(path).status_code == 404, path
    assert acme.post("/nodes/n1/drain", {}, "/account").status_code == 404
    assert made.controller_client.asked == []
