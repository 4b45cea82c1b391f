"""Logging in and out, sessions, and what comes of wrong passwords."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from daemons.access.identity import Role
from daemons.portal.auth.accounts import State
from daemons.portal.auth.authentication import SignOn
from daemons.portal.auth.passwords import OF_ADDRESS_MAX, WAITING_MAX, Hasher, TooBusy, hashed
from daemons.portal.auth.sessions import COOKIE
from daemons.portal.auth.throttle import ENTRIES_MAX, Throttle, Tries
from tests.portal.scene import PASSWORD, URL, WORK, Browser, Scene, scene

NEW = "another good password"


def is_in(browser: Browser) -> bool:
    return browser.client.get("/account", follow_redirects=False).status_code == 200


def test_somebody_logs_in_and_out(cluster: Scene) -> None:
    jane = cluster.browser()

    before = is_in(jane)
    answer = jane.login("jane")
    inside = jane.get("/account")
    old = jane.client.cookies[COOKIE]
    out = jane.post("/logout", {}, "/account")

    assert not before
    assert answer.status_code == 303
    assert "operator.jane" in inside.text
    assert out.status_code == 303
    assert not is_in(jane)
    jane.client.cookies.set(COOKIE, old, domain="portal.test")
    assert not is_in(jane)  # the session is over, not only the cookie


def test_the_cookie_is_for_this_host_and_no_script(cluster: Scene) -> None:
    set_cookie = [
        each for each in cluster.browser().login("jane").headers.get_list("set-cookie") if COOKIE + "=" in each
    ]

    assert len(set_cookie) == 1
    assert all(word in set_cookie[0] for word in ("__Host-", "Secure", "HttpOnly", "SameSite=lax", "Path=/"))
    assert "Domain" not in set_cookie[0]


def test_each_login_begins_a_new_session(cluster: Scene) -> None:
    """A session that somebody planted beforehand is worth nothing."""
    jane = cluster.browser("jane")
    first = jane.client.cookies[COOKIE]
    jane.client.cookies.delete(COOKIE)
    jane.client.cookies.set(COOKIE, "planted", domain="portal.test", path="/")

    jane.login("jane")

    assert len({first, "planted", *(each.value for each in jane.client.cookies.jar if each.name == COOKIE)}) == 3


def test_a_page_that_was_asked_for_is_shown_after_the_login(cluster: Scene) -> None:
    bob = cluster.browser()

    asked = bob.client.get("/account?x=1", follow_redirects=False)
    page = bob.get(asked.headers["location"])
    answer = bob.post("/login", {"name": "bob", "password": PASSWORD, "to": "/account?x=1"})
    elsewhere = cluster.browser().post("/login", {"name": "bob", "password": PASSWORD, "to": "//evil.test/"})

    assert asked.headers["location"] == "/login?to=%2Faccount%3Fx%3D1"
    assert 'value="/account?x=1"' in page.text
    assert answer.headers["location"] == "/account?x=1"
    assert elsewhere.headers["location"] == "/"


@pytest.mark.full
def test_sessions_end(cluster: Scene) -> None:
    """After an hour without a request, and after twelve in any case; a page that follows by itself is no request."""
    idle, busy, open_page = (cluster.browser("jane") for _ in range(3))

    for _ in range(13):  # more than twelve hours
        cluster.wait(3500.0)
        if is_in(busy):
            open_page.get("/account", **{"x-live": "1"})

    assert not is_in(idle)
    assert not is_in(open_page)
    assert not is_in(busy)


def test_a_new_password_ends_the_other_sessions(cluster: Scene) -> None:
    here, there = cluster.browser("jane"), cluster.browser("jane")

    wrong = here.post("/account/password", {"old": "nonsense", "new": NEW, "again": NEW}, "/account")
    weak = here.post("/account/password", {"old": PASSWORD, "new": "short", "again": "short"}, "/account")
    done = here.post("/account/password", {"old": PASSWORD, "new": NEW, "again": NEW}, "/account")
    cluster.wait(3.0)

    assert (wrong.status_code, weak.status_code, done.status_code) == (422, 422, 303)
    assert is_in(here)
    assert not is_in(there)
    assert there.login("jane").status_code == 401
    assert there.login("jane", NEW).status_code == 303


def test_somebody_sees_and_ends_her_sessions(cluster: Scene) -> None:
    """One alone, all but this one, and none of others; logins and changes are seen there too."""
    here, there, third, bob = (cluster.browser(client=(f"192.0.2.{number}", 1)) for number in range(1, 5))
    for each in (there, third, here):
        cluster.wait(1.0)
        each.login("jane")
    cluster.browser().login("jane", "a wrong password")
    bob.login("bob")
    page = here.get("/account").text
    ids = re.findall(r'name="id" value="(\w+)"', page)

    one = here.post("/account/sessions", {"id": ids[-1]}, "/account")
    again = here.post("/account/sessions", {"id": ids[-1]}, "/account")
    mine = bob.post("/account/sessions", {"id": ids[0]}, "/account")
    after = [is_in(each) for each in (here, there, third, bob)]
    others = here.post("/account/sessions", {}, "/account")

    assert len(ids) == 2
    assert all(f"<td>192.0.2.{number}</td>" in page for number in (1, 2, 3))
    assert "<td>login</td><td>testclient</td>" in page
    assert [answer.status_code for answer in (one, again, mine, others)] == [303, 409, 409, 303]
    assert after == [True, False, True, True]
    assert [is_in(each) for each in (here, there, third, bob)] == [True, False, False, True]


def test_a_locked_account_is_out_at_once(cluster: Scene) -> None:
    acme = cluster.browser("acme")

    cluster.portal.authentication.accounts.set_state("acme", State.LOCKED)
    cluster.wait(3.0)

    assert not is_in(acme)
    assert acme.login("acme").status_code == 401


def test_a_wrong_password_and_an_unknown_name_look_alike(cluster: Scene) -> None:
    cluster.account("new", Role.USER, State.ASKED)

    answers = [
        cluster.browser().login(name, password)
        for name, password in (("jane", "wrong"), ("nobody", PASSWORD), ("new", PASSWORD), ("no\0body", PASSWORD))
    ]

    texts = {answer.text.split('name="csrf"')[0] for answer in answers}
    assert {answer.status_code for answer in answers} == {401}
    assert len(texts) == 1


# --- wrong passwords ------------------------------------------------------------------------------------------------


def test_a_hundred_wrong_passwords_cost_time_and_lock_nobody_out(cluster: Scene) -> None:
    """Given an owner who is known at her address, when somebody elsewhere tries a hundred passwords, then he waits, and
    she logs in at once; from an address that is not known she waits a minute at most."""
    cluster.browser("jane", client=("192.0.2.7", 1))
    attacker = cluster.browser(client=("198.51.100.1", 1))
    word = attacker.csrf("/login")

    statuses = []
    for number in range(100):
        fields = {"csrf": word, "name": "jane", "password": f"guess number {number}"}
        sent = attacker.client.post("/login", data=fields, headers={"origin": URL}, follow_redirects=False)
        statuses.append(sent.status_code)

    assert statuses[:5] == [401] * 5
    assert set(statuses[6:]) == {429}
    wait_s = int(sent.headers["retry-after"])
    assert 0 < wait_s <= 300
    assert cluster.browser(client=("192.0.2.7", 2)).login("jane").status_code == 303
    traveller = cluster.browser(client=("203.0.113.9", 1))
    cluster.wait(61.0)
    assert traveller.login("jane").status_code == 303
    entries = cluster.portal.authentication.log.entries(0.0, cluster.now_s + 1.0)
    assert sum(not each.done for each in entries) < 10  # what was not even looked at fills no log


def test_failed_logins_are_noted_for_the_account_that_was_tried(cluster: Scene) -> None:
    """And under nobody's name for one that there is not: what is typed puts nothing under another account."""
    attacker, jane = cluster.browser(client=("198.51.100.1", 1)), cluster.browser("jane")
    odd = "operator.jane \u202e\x1b[31m"
    for name in ("jane", "operator.jane", odd):
        attacker.login(name, "a wrong password")

    failed = [each for each in cluster.portal.authentication.log.entries(0.0, cluster.now_s + 1.0) if not each.done]
    shown = jane.get("/audit?kind=login").text

    assert [(each.account, each.subject) for each in reversed(failed)] == [
        ("operator.jane", "jane"),
        ("", "operator.jane"),
        ("", odd),
    ]
    assert "\u202e" not in shown
    assert "\x1b" not in shown
    assert "<bdi>operator.jane \ufffd\ufffd[31m</bdi>" in shown


def test_logins_before_their_time_are_noted(cluster: Scene) -> None:
    attacker = cluster.browser(client=("198.51.100.1", 1))
    for _ in range(9):
        attacker.login("jane", "a wrong password")
    cluster.wait(61.0)
    attacker.login("jane", "a wrong password")
    attacker.login("jane", "a wrong password")

    noted = [
        each for each in cluster.portal.authentication.log.entries(0.0, cluster.now_s + 1.0) if each.what != "login"
    ]

    assert {(each.account, each.what) for each in noted} == {("operator.jane", "refused-login")}
    assert [each.detail for each in noted if each.detail] == ["3 more within 60 s"]


def test_known_addresses_come_first_where_passwords_wait() -> None:
    """Given one address that tries many at once, then it has few places, and who is known is served before others."""
    hasher = Hasher(WORK)
    stored, begun = hashed(PASSWORD, WORK), []

    class Noted(str):
        """A password that notes when a thread begins with it: when it ends is up to the machine."""

        address = ""

        def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
            begun.append(self.address)
            return super().encode(encoding, errors)

    async def one(address: str, known: bool) -> str:
        password = Noted(PASSWORD)
        password.address = address
        try:
            await hasher.check(password, stored, address, known)
        except TooBusy:
            return "busy"
        return "checked"

    async def story() -> list[str]:
        calls = [one("192.0.2.66", False) for _ in range(20)]
        calls += [one(f"203.0.113.{number}", False) for number in range(40)]
        return await asyncio.gather(*calls, one("198.51.100.1", True))

    said = asyncio.run(story())
    hasher.close()

    assert said[:20].count("checked") == OF_ADDRESS_MAX
    assert said[:60].count("checked") == WAITING_MAX * 3 // 4
    assert said[60] == "checked"
    assert begun.index("198.51.100.1") < len(begun) // 2  # without its turn before others it were the last


def test_the_right_password_costs_nobody_anything() -> None:
    throttle = Throttle()

    for number in range(200):
        throttle.wrong("jane", "192.0.2.1", float(number))
        throttle.right("jane", "192.0.2.1")

    assert throttle.wait_s("jane", "192.0.2.1", False, 200.0) == 0.0


def test_waits_grow_and_are_bounded() -> None:
    tries, waits = Tries(3, 60.0), []
    now_s = 0.0
    for _ in range(12):
        tries.wrong("x", now_s)
        waits.append(tries.wait_s("x", now_s))
        now_s += waits[-1]

    assert waits == [0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0]


def test_what_was_not_looked_at_does_not_lengthen_the_wait() -> None:
    tries = Tries(1, 60.0)
    for now_s in (0.0, 2.0, 5.0):
        tries.wrong("x", now_s)
    before_s = tries.wait_s("x", 9.0)
    tries.wrong("x", 9.0)
    tries.undo("x")

    assert tries.wait_s("x", 9.0) == before_s == 0.0


def test_the_table_of_tries_is_bounded() -> None:
    tries = Tries(1, 60.0)
    for number in range(ENTRIES_MAX + 50):
        tries.wrong(f"{number}", float(number) / 1000.0)

    assert len(tries) == ENTRIES_MAX


def test_of_ipv6_a_whole_network_is_one_address() -> None:
    throttle = Throttle()
    for number in range(40):
        throttle.wrong(f"name{number}", f"2001:db8::{number:x}", 0.0)

    assert throttle.wait_s("another", "2001:db8::ffff", False, 0.0) > 0.0
    assert throttle.wait_s("another", "2001:db8:0:1::1", False, 0.0) == 0.0


# --- a proxy that says who it is ------------------------------------------------------------------------------------


def test_a_proxy_says_who_logs_in(tmp_path: Path) -> None:
    """Only from its address and with its secret; who is somebody else then is out."""
    with scene(tmp_path, sign_on=SignOn("proxy secret"), trusted=("127.0.0.1",)) as it:
        named = {"x-remote-user": "jane", "x-portal-secret": "proxy secret", "x-forwarded-for": "192.0.2.1"}
        inside, outside = it.browser(client=("127.0.0.1", 1)), it.browser(client=("192.0.2.1", 1))

        good = inside.client.get("/login", headers=named, follow_redirects=False)
        wrong = it.browser(client=("127.0.0.1", 1)).get("/login", **(named | {"x-portal-secret": "guess"}))
        forged = outside.get("/login", **named)
        other = inside.client.get("/account", headers=named | {"x-remote-user": "bob"}, follow_redirects=False)

    assert good.status_code == 303
    assert COOKIE in good.cookies
    assert "Password" in wrong.text
    assert "Password" in forged.text
    assert other.status_code == 303


def test_what_was_never_looked_at_makes_nobody_elses_tries_forgotten() -> None:
    """Given wrong passwords for jane, when somebody is turned away under more names than are kept, then they count."""
    throttle = Throttle()
    for number in range(10):
        throttle.wrong("jane", f"192.0.2.{number}", 0.0)
    for number in range(ENTRIES_MAX + 50):
        throttle.wrong(f"name{number}", "198.51.100.1", 1.0)
        throttle.unchecked(f"name{number}", "198.51.100.1")

    assert throttle.wait_s("jane", "203.0.113.1", False, 1.0) > 0.0
    assert throttle.wait_s("anybody", "198.51.100.1", False, 1.0) == 0.0
