"""What operators and faults do to a cluster of real processes: nothing is lost, nothing is done twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import LIMIT_S, SOON_S, Scene, scene


@pytest.fixture
def town(broker: PrivateBroker) -> Iterator[Scene]:
    """Three nodes and a controller that run, an operator, and a follower of events."""
    with scene(broker) as made:
        yield made


def test_an_operators_day(town: Scene) -> None:
    """Submit, watch, drain, cancel: what the command says comes true, and the events tell of it."""
    town.submit("short", work_s=15.0)
    town.submit("long", work_s=600.0, instances=2, separate=True)
    homes = town.running("short#0", "long#0", "long#1")
    assert homes["long#0"] != homes["long#1"]

    drained = homes["long#0"]
    town.do("nodes", "drain", drained)
    town.wait_for(lambda: drained not in town.homes().values(), LIMIT_S, f"{drained} to be empty")
    moved = town.running("long#0", "long#1")
    assert moved["long#0"] != moved["long#1"]

    town.do("jobs", "cancel", "long")
    town.wait_for(lambda: not any(vm.startswith("long#") for _, vm in town.domains()), SOON_S, "the end of long")
    town.all_done_once("short")
    assert not town.completions()["long"]
    expected = ["job-submitted", "node-draining", "job-cancelled", "job-completed"]
    town.wait_for(lambda: town.heard("job-completed", "short"), SOON_S, "word of the end")
    said = [(one["what"], one["subject"]) for one in town.happened() if one["what"] in expected]
    assert sorted(said) == sorted(
        [
            ("job-submitted", "short"),
            ("job-submitted", "long"),
            ("node-draining", drained),
            ("job-cancelled", "long"),
            ("job-completed", "short"),
        ]
    )
    assert town.run("jobs", "cancel", "long").status == 0  # it is so already
    again = town.run("jobs", "cancel", "short")
    assert (again.status, "job-over" in again.err) == (1, True)
