"""Views for all readers together: one question a second, what was last known, and who hears of changes."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from daemons.access.identity import Role
from daemons.portal.auth.accounts import Account
from daemons.portal.auth.sessions import COOKIE
from daemons.portal.client.controller_client import Refused, Unreachable
from daemons.portal.client.view_cache import FORGET_S, KEPT_MAX, ViewCache
from daemons.portal.context import Settings
from shared.protocol.operator_messages import Request
from tests.portal.scene import Scene

JANE, JOE = Account("jane", Role.PROVIDER), Account("joe", Role.PROVIDER)
ACME, OTHER = Account("acme", Role.OWNER), Account("other", Role.OWNER)


class Counter:
    """A client that counts what it is asked. `now`: its clock; `wait_s`: how long each answer takes, really."""

    own = "portal.p"

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.now, self.wait_s, self.value = 1000.0, 0.0, 0
        self.wrong: Exception | None = None

    def now_s(self) -> float:
        return self.now

    def new_id(self) -> str:
        return "id"

    async def view(self, account: str, what: str, subject: str = "", limit: int = 1000) -> dict[str, Any]:
        del limit
        self.asked.append((account, what, subject))
        await asyncio.sleep(self.wait_s)
        if self.wrong is not None:
            raise self.wrong
        return {"at_s": self.now, "value": self.value}

    async def ask(self, account: str, request: Request, why: str = "") -> Any:
        raise AssertionError((account, request, why))


def since(live: ViewCache) -> float | None:
    """Since when nobody answers."""
    return None if live.trouble is None else live.trouble.since_s


def test_what_nobody_looks_at_any_more_is_forgotten_but_what_the_provider_sees_stays() -> None:
    """Each owner has views of its own: there may be many."""

    async def story() -> set[tuple[str, str, str]]:
        controller_client = Counter()
        live = ViewCache(controller_client)
        for account, what, subject in ((JANE, "nodes", ""), (JANE, "node", "n1"), (ACME, "jobs", "")):
            await live.view(account, what, subject)
        controller_client.now += FORGET_S + 1.0
        await live.view(OTHER, "jobs")
        return set(live._views)

    assert asyncio.run(story()) == {("portal.p", "nodes", ""), ("owner.other", "jobs", "")}


def test_many_readers_ask_once() -> None:
    """Providers together, each owner for itself."""

    async def story() -> Counter:
        controller_client = Counter()
        controller_client.wait_s = 0.01
        live = ViewCache(controller_client)
        await asyncio.gather(*(live.view(each, "nodes") for each in (JANE, JOE) * 10))
        await asyncio.gather(*(live.view(each, "environments") for each in (ACME, ACME, OTHER)))
        controller_client.now += 0.5
        await live.view(JANE, "nodes")
        controller_client.now += 0.6
        await live.view(JANE, "nodes")
        return controller_client

    controller_client = asyncio.run(story())
    assert controller_client.asked == [
        ("portal.p", "nodes", ""),
        ("owner.acme", "environments", ""),
        ("owner.other", "environments", ""),
        ("portal.p", "nodes", ""),
    ]


def test_what_was_last_known_is_kept_with_its_age() -> None:
    async def story() -> None:
        controller_client = Counter()
        live = ViewCache(controller_client)
        controller_client.wrong = Unreachable(990.0, "away")
        with pytest.raises(Unreachable, match="away"):
            await live.view(JANE, "nodes")
        controller_client.wrong = None
        controller_client.now += 2.0
        first = await live.view(JANE, "nodes")
        assert since(live) is None
        controller_client.wrong = Unreachable(1003.0, "away again")
        controller_client.now += 60.0
        later = await live.view(JANE, "nodes")
        assert (later.data, later.age_s, later.trouble) == (first.data, 60.0, "away again")
        assert since(live) == 1003.0
        controller_client.wrong = None
        controller_client.now += 2.0
        assert (await live.view(JANE, "nodes")).age_s == 0.0
        assert since(live) is None

    asyncio.run(story())


def test_a_slow_controller_keeps_nobody_waiting_who_has_something_to_see() -> None:
    async def story() -> None:
        controller_client = Counter()
        live = ViewCache(controller_client)
        await live.view(JANE, "nodes")
        controller_client.wait_s, controller_client.value = 5.0, 1
        controller_client.now += 10.0
        async with asyncio.timeout(1.0):
            seen = await live.view(JANE, "nodes")
        assert (seen.data["value"], seen.age_s) == (0, 10.0)

    asyncio.run(story())


def test_refusals_are_passed_on() -> None:
    async def story() -> None:
        controller_client = Counter()
        controller_client.wrong = Refused("not-allowed", "no")
        with pytest.raises(Refused):
            await ViewCache(controller_client).view(ACME, "nodes")

    asyncio.run(story())


def test_what_was_done_shows_at_once() -> None:
    async def story() -> None:
        controller_client = Counter()
        live = ViewCache(controller_client)
        await live.view(JANE, "nodes")
        controller_client.value = 1
        live.forget()
        assert (await live.view(JANE, "nodes")).data["value"] == 1

    asyncio.run(story())


def test_the_table_is_bounded() -> None:
    async def story() -> int:
        live = ViewCache(Counter())
        for number in range(KEPT_MAX + 50):
            await live.view(JANE, "node", f"n{number}")
        return len(live._views)

    assert asyncio.run(story()) <= KEPT_MAX


def test_watchers_hear_of_changes_and_of_nothing_else() -> None:
    async def story() -> None:
        controller_client = Counter()
        live = ViewCache(controller_client, period_s=0.02)

        async def heard(count: int, silence_s: float = 2.0) -> list[tuple[str, ...]]:
            found: list[tuple[str, ...]] = []
            async for names in live.watch(JANE, ("nodes", "jobs"), silence_s):
                found.append(names)
                controller_client.now += 1.1
                if len(found) >= count:
                    break
            return found

        assert set((await heard(1))[0]) <= {"nodes", "jobs"}
        controller_client.now += 2.0
        task = asyncio.create_task(heard(1))
        await asyncio.sleep(0.1)
        assert not task.done()  # nothing has changed
        controller_client.value, controller_client.now = 1, controller_client.now + 2.0
        assert set((await task)[0]) & {"nodes", "jobs"}
        assert await heard(1, 0.05) == [()]  # a sign of life

    asyncio.run(story())


def test_nobody_polls_when_nobody_watches() -> None:
    async def story() -> None:
        controller_client = Counter()
        live = ViewCache(controller_client, period_s=0.01)
        watching = live.watch(JANE, ("nodes",), 0.05)
        await anext(watching)
        await watching.aclose()
        asked = len(controller_client.asked)
        controller_client.now += 100.0
        await asyncio.sleep(0.05)
        assert len(controller_client.asked) == asked

    asyncio.run(story())


def test_a_browser_is_told_only_of_what_it_may_see(cluster: Scene) -> None:
    assert cluster.browser("acme").get("/live?views=nodes,plan").status_code == 404
    assert cluster.browser("jane").get("/live?views=nonsense").status_code == 404
    assert cluster.browser("jane").get("/live").status_code == 404


def listen(cluster: Scene, cookie: str, views: str) -> tuple[int, bytes]:
    """Open `/live` until the first event, then go away; the status and what came."""
    client = cluster.client()
    found: list[Any] = []

    async def line() -> None:
        gone, begun = asyncio.Event(), False

        async def receive() -> dict[str, Any]:
            nonlocal begun
            if not begun:
                begun = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            found.append(message)
            if b"event:" in message.get("body", b"") or message.get("status", 200) != 200:
                gone.set()

        headers = [(b"host", b"portal.test"), (b"cookie", f"{COOKIE}={cookie}".encode())]
        scope = {"type": "http", "method": "GET", "path": "/live", "query_string": f"views={views}".encode()}
        rest = {"headers": headers, "client": ("192.0.2.1", 1), "scheme": "https", "root_path": "", "state": {}}
        asgi = {
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "server": ("portal.test", 443),
        }
        await asyncio.wait_for(client.app(scope | rest | asgi, receive, send), 10.0)

    assert client.portal is not None
    client.portal.call(line)
    return found[0]["status"], b"".join(each.get("body", b"") for each in found)


def test_browsers_hear_of_changes_while_they_listen(cluster: Scene) -> None:
    jane, acme = cluster.browser("jane"), cluster.browser("acme")

    status, heard = listen(cluster, jane.client.cookies[COOKIE], "nodes,status")
    asked = {account for account, _, _ in cluster.controller_client.views}
    other, theirs = listen(cluster, acme.client.cookies[COOKIE], "environments")
    cluster.portal.settings = Settings(readers_max=0)
    full, _ = listen(cluster, jane.client.cookies[COOKIE], "nodes")

    assert (status, other, full) == (200, 200, 503)
    assert b"event: nodes\n" in heard or b"event: status\n" in heard
    assert b"event: changed\n" in heard
    assert b"event: environments\n" in theirs
    assert asked == {"portal.sim"}
    assert cluster.controller_client.views[-1] == ("owner.acme", "environments", "")
    assert cluster.portal.readers == 0


def test_an_outage_is_told_and_passes(cluster: Scene) -> None:
    """Pages that need nothing of the controller are there with a banner, and without it when it is over."""
    jane = cluster.browser("jane")

    async def look() -> None:
        with pytest.raises(Unreachable):
            await cluster.portal.live.view(JANE, "nodes")

    cluster.controller_client.away = "the broker cannot be reached"
    assert jane.client.portal is not None
    jane.client.portal.call(look)
    away = jane.get("/account")
    cluster.controller_client.away = ""
    cluster.wait(2.0)
    jane.client.portal.call(lambda: cluster.portal.live.view(JANE, "nodes"))
    back = jane.get("/account")

    assert away.status_code == 200
    assert "Controller unreachable" in away.text
    assert "the broker cannot be reached" in away.text
    assert "Controller unreachable" not in back.text


def test_the_portals_own_store_may_be_away(cluster: Scene) -> None:
    """Who was just there stays, nobody else comes in, and it passes."""
    jane, bob = cluster.browser("jane"), cluster.browser("bob")
    jane.get("/account")
    file = str(cluster.base.url.database)
    aside = file + ".aside"
    cluster.base.close()
    os.rename(file, aside)
    cluster.wait(5.0)

    stays = jane.client.get("/account", headers={"x-live": "1"})
    word = bob.client.get("/static/portal.css")
    new = cluster.client().get("/login")
    os.rename(aside, file)
    cluster.wait(5.0)
    back = jane.get("/account")

    assert stays.status_code == 200
    assert "Portal store unavailable" in stays.text
    assert (word.status_code, new.status_code) == (200, 200)
    assert "Portal store unavailable" not in back.text
