"""Views of more than fits into an answer, and of what nobody waits for."""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import Any

import pytest

from daemons.access.identity import Role
from daemons.controller.views.jobs import NOT_OVER
from daemons.portal.auth.accounts import Account
from daemons.portal.client.controller_client import Refused
from daemons.portal.client.view_cache import GROWS_AFTER, OF_PROVIDER, ROWS_MAX, ViewCache
from shared.protocol.operator_messages import Request

JANE, ACME = Account("jane", Role.PROVIDER), Account("acme", Role.OWNER)


class Full:
    """A client that refuses more than `most` rows. `now`: its clock; `took_s`: how long an answer takes by it."""

    own = "portal.p"

    def __init__(self, most: int = ROWS_MAX) -> None:
        self.most, self.now, self.took_s = most, 1000.0, 0.0
        self.asked: list[tuple[str, str, int]] = []

    def now_s(self) -> float:
        return self.now

    def new_id(self) -> str:
        return "id"

    async def view(self, account: str, what: str, subject: str = "", limit: int = 1000) -> dict[str, Any]:
        del account
        self.asked.append((what, subject, limit))
        self.now += self.took_s
        if limit > self.most:
            raise Refused("too-large", "ask for fewer rows")
        return {"at_s": self.now, "asked": len(self.asked)}

    async def ask(self, account: str, request: Request, why: str = "") -> Any:
        raise AssertionError((account, request, why))


def test_a_view_that_is_too_large_is_asked_for_with_fewer_rows_and_then_with_as_many_again() -> None:
    async def story() -> list[tuple[str, str, int]]:
        controller_client = Full(most=3_000)
        live = ViewCache(controller_client)
        await live.view(JANE, "vms")
        controller_client.now += 60.0
        await live.view(JANE, "vms")
        return controller_client.asked

    limits = [limit for _, _, limit in asyncio.run(story())]
    assert limits == [ROWS_MAX, ROWS_MAX // 2, ROWS_MAX // 4, ROWS_MAX // 4]


async def looks(live: ViewCache, controller_client: Full, count: int) -> None:
    """Somebody looks at the VMs so many times, and each time they are asked for."""
    for _ in range(count):
        controller_client.now += 60.0
        await live.view(JANE, "vms")


HALF, QUARTER = ROWS_MAX // 2, ROWS_MAX // 4


@pytest.mark.parametrize(
    ("most", "runs"),
    [
        (ROWS_MAX, [(HALF, GROWS_AFTER), (ROWS_MAX, GROWS_AFTER)]),
        (7_000, [(HALF, GROWS_AFTER), (ROWS_MAX, 1), (HALF, GROWS_AFTER)]),
        (3_000, [(HALF, 1), (QUARTER, GROWS_AFTER)] * 2),
    ],
)
def test_more_rows_are_asked_for_again_when_answers_have_fitted_for_a_while(
    most: int, runs: list[tuple[int, int]]
) -> None:
    """Given a quarter of the rows, when there may be room for more, then they double up to the limit; what still does
    not fit costs one question more, and the next one is as long in coming."""

    async def story() -> list[int]:
        controller_client = Full(most=3_000)
        live = ViewCache(controller_client)
        await looks(live, controller_client, GROWS_AFTER)
        controller_client.asked.clear()
        controller_client.most = most
        await looks(live, controller_client, 2 * GROWS_AFTER)
        return [limit for _, _, limit in controller_client.asked]

    assert [(limit, len(list(each))) for limit, each in groupby(asyncio.run(story()))] == runs


def test_what_does_not_fit_in_any_number_of_rows_is_refused() -> None:
    with pytest.raises(Refused, match="too-large"):
        asyncio.run(ViewCache(Full(most=1)).view(JANE, "vms"))


def test_the_provider_is_shown_the_jobs_that_are_not_over_and_an_owner_all_of_its_own() -> None:
    async def story() -> list[tuple[str, str, int]]:
        controller_client = Full()
        live = ViewCache(controller_client)
        await live.view(JANE, "jobs")
        await live.view(JANE, "jobs", "completed")
        await live.view(ACME, "jobs")
        return controller_client.asked

    assert [subject for _, subject, _ in asyncio.run(story())] == [NOT_OVER, "completed", ""]
    assert OF_PROVIDER == {"jobs": NOT_OVER}


def test_what_takes_the_controller_long_and_nobody_waits_for_is_asked_for_rarely() -> None:
    """Twenty times as long as the answer took, but at once when something was done."""

    async def story() -> list[int]:
        controller_client = Full()
        controller_client.took_s = 0.3
        live, counts = ViewCache(controller_client), []
        for pause_s in (0.0, 4.0, 2.0):
            controller_client.now += pause_s
            await live.view(JANE, "vms")
            counts.append(len(controller_client.asked))
        live.forget()
        seen = await live.view(JANE, "vms")
        return [*counts, len(controller_client.asked), seen.data["asked"]]

    assert asyncio.run(story()) == [1, 1, 2, 3, 3]


def test_one_answer_that_waited_for_something_else_slows_nothing_down() -> None:
    """It is by the quickest of the last three that the pause is measured."""

    async def story() -> list[int]:
        controller_client, counts = Full(), list[int]()
        live = ViewCache(controller_client)
        for took_s in (0.0, 3.0, 0.0, 3.0, 3.0, 3.0, 0.0):
            controller_client.took_s = took_s
            controller_client.now += 2.0
            await live.view(JANE, "vms")
            counts.append(len(controller_client.asked))
        return counts

    assert asyncio.run(story()) == [1, 2, 3, 4, 5, 6, 6]
