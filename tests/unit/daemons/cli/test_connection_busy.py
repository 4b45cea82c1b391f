"""A command that is told that its account is busy asks again until its time limit."""

from __future__ import annotations

from itertools import count

import pytest

from daemons.cli.connection import Refused
from shared.base.clock import ManualClock
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import AddNode, Query, Request
from tests.support.fake_controller import FakeController, line_to


def busy_for(clock: ManualClock, times: int) -> FakeController:
    """A controller that is busy so many times."""
    number = count(1)

    def answer(request: Request) -> Reply:
        if next(number) <= times:
            return Reply(request.request, False, "busy", "beyond its share")
        return Reply(request.request, True, data={"was": "done"})

    return FakeController(clock, answer)


def test_it_asks_again_and_says_so_once() -> None:
    clock, said = ManualClock(100.0), list[str]()
    bus = busy_for(clock, 2)

    with line_to(bus, said) as line:
        assert line.ask(Query("r1", "status")) == {"was": "done"}

    assert clock.now_s() == 105.0
    assert bus.exchanges == ["trimtab.questions", "trimtab.requests", "trimtab.requests"]
    assert said == ["busy: beyond its share; asking again for 10 s"]


def test_who_is_still_busy_at_the_end_is_refused_with_that() -> None:
    clock = ManualClock(100.0)

    with line_to(busy_for(clock, 99)) as line, pytest.raises(Refused, match="busy: beyond") as caught:
        line.ask(AddNode("r1", "n1"))

    assert (caught.value.code, clock.now_s()) == ("busy", 110.0)
