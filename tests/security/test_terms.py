"""Somebody with a controller's account forges terms: none is taken that leaves no later ones; there is a way back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.core.agent import TERMS_SKIPPED_MAX
from daemons.store.backup import TERM_STRIDE
from shared.protocol.codec import encode
from shared.protocol.messages import Hello
from shared.protocol.operator_messages import Query
from shared.protocol.topology import ACTIONS
from tests.support.shell_harness import RealRig, wait_for


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[RealRig]:
    made = RealRig(tmp_path, nodes=2)
    made.start()
    wait_for(lambda: schedulable(made) == {"n1", "n2"})
    yield made
    made.end()


def rows(rig: RealRig) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rig.ask(Query("rows", "nodes")).data["nodes"]}


def schedulable(rig: RealRig) -> set[str]:
    return {name for name, row in rows(rig).items() if row["schedulable"]}


def forge(rig: RealRig, term: int) -> None:
    """As a controller, introduce a term to n1."""
    rig.bus.connect("controller.forger").publish(ACTIONS, "n1", encode(Hello(term)))


def restore(rig: RealRig) -> None:
    """What `trimtab store restore --force` does to the term, with all controllers stopped."""
    leader = next(each for each in rig.running if hasattr(each.shell, "controller") and each.exit_status is None)
    leader.shell.stop()
    leader.join()
    rig.store.term += TERM_STRIDE
    rig.controller()


def test_a_term_that_leaves_no_later_ones_is_refused(rig: RealRig) -> None:
    forge(rig, (1 << 63) - 1)
    wait_for(lambda: [line for line in rig.lines("refused delivery") if "cannot have come about" in line["reason"]])
    assert schedulable(rig) == {"n1", "n2"}


def test_a_forged_term_is_shown_and_restoring_twice_is_the_way_back(rig: RealRig) -> None:
    """Given the highest term that an agent takes, then its node shows why it is not used, and serves again."""
    forged = 1 + TERMS_SKIPPED_MAX
    forge(rig, forged)
    wait_for(lambda: rows(rig)["n1"]["term_ahead"] == forged)
    assert schedulable(rig) == {"n2"}
    (alarm,) = [each for each in rig.ask(Query("look", "status")).data["alarms"] if each["what"] == "term-ahead"]
    assert (alarm["subject"], "restore --force" in alarm["detail"]) == ("n1", True)

    restore(rig)
    wait_for(lambda: schedulable(rig) == {"n2"})
    restore(rig)

    wait_for(lambda: schedulable(rig) == {"n1", "n2"})
    assert rows(rig)["n1"]["term_ahead"] is None
