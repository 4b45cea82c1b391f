"""The page that answers where a new VM would go: what fits, what would move, and why not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.portal.scene import Browser, Scene, job, scene

ASKED = {"vcpus": "2", "memory": "1GiB", "cpu_mhz": "", "count": "1", "labels": ""}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Three nodes, a job on one of them."""
    with scene(tmp_path_factory.mktemp("fit"), jobs=[job("a", 9_000.0)]) as found:
        yield found


@pytest.fixture
def jane(whole: Scene) -> Browser:
    """The provider."""
    return whole.browser("jane")


def test_a_vm_that_fits_is_shown_its_node(whole: Scene, jane: Browser) -> None:
    page = jane.post("/fit", ASKED)
    assert page.status_code == 200
    assert "1 of 1 fit" in page.text
    assert "Nodes with room for one, best first" in page.text
    assert "Nodes without room" not in page.text
    (sent,) = whole.controller_client.asked[-1:]
    assert (sent[0], sent[1].KIND) == ("operator.jane", "check-vm-fit")


def test_a_vm_that_fits_nowhere_has_a_reason_for_each_node(jane: Browser) -> None:
    page = jane.post("/fit", ASKED | {"memory": "512GiB"}).text
    assert "It fits on no node." in page
    assert page.count("memory: needs 524,288 MiB") == 3
    page = jane.post("/fit", ASKED | {"labels": "ssd, gpu"}).text
    assert page.count("lacks labels: ssd, gpu") == 3


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("memory", "lots", "such as 32GiB"),
        ("memory", "", "such as 32GiB"),
        ("vcpus", "two", "a whole number"),
        ("vcpus", "", "a whole number from 1 to 4096"),
        ("vcpus", "0", "from 1 to 4096"),
        ("cpu_mhz", "nan", "a finite number"),
        ("count", "0", "from 1 to 500"),
        ("count", "501", "from 1 to 500"),
    ],
)
def test_mistakes_are_named_beside_the_form(jane: Browser, field: str, value: str, why: str) -> None:
    page = jane.post("/fit", ASKED | {field: value})
    assert page.status_code == 422
    assert why in page.text
    assert f'value="{value}"' in page.text


def test_the_form_is_linked_and_the_providers_alone(whole: Scene, jane: Browser) -> None:
    assert 'href="/fit"' in jane.get("/nodes").text
    assert whole.browser("acme").get("/fit").status_code == 404
