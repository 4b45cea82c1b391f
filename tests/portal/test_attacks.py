"""What is sent to the portal to make it do what it should not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest

from daemons.portal.auth.audit_log import Entry
from daemons.portal.auth.refusals import KINDS_MAX, Refusals
from daemons.portal.http.limits import REQUESTS_BURST, AddressLimits, Bounds
from daemons.portal.http.middleware import BODY_BYTES_MAX, FORM_BYTES_MAX, OPEN_BYTES_MAX, POLICY, Rules, is_foreign
from daemons.portal.threads import Threads
from tests.portal.scene import PASSWORD, URL, Browser, Scene

SCRIPT = "<script>alert(1)</script>"
SAME = {"origin": URL, "sec-fetch-site": "same-origin"}
LOCK = "/accounts/acme/lock"


def locked(cluster: Scene) -> bool:
    found = cluster.portal.authentication.accounts.find("acme")
    assert found is not None
    return found.state.value == "locked"


def send(browser: Browser, path: str, data: Any, headers: dict[str, str]) -> int:
    return int(browser.client.post(path, data=data, headers=headers, follow_redirects=False).status_code)


# --- cross-site -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.test", "sec-fetch-site": "cross-site"},
        {"origin": "https://sub.portal.test", "sec-fetch-site": "same-site"},
        {"origin": "null"},
        {"origin": "http://portal.test"},
        {"referer": "https://portal.test.evil.test/accounts"},
        {},
    ],
    ids=["cross-site", "sibling", "null", "unencrypted", "referer", "nothing"],
)
def test_forms_of_others_are_refused(cluster: Scene, headers: dict[str, str]) -> None:
    """Even with the right word."""
    jane = cluster.browser("jane")
    data = {"csrf": jane.csrf("/accounts")}

    assert send(jane, LOCK, data, headers) == 403
    assert not locked(cluster)
    assert send(jane, LOCK, data, SAME) == 303
    assert locked(cluster)


def test_forms_without_the_word_of_the_session_are_refused(cluster: Scene) -> None:
    jane, acme = cluster.browser("jane"), cluster.browser("acme")
    theirs = acme.csrf("/account")

    statuses = [
        send(jane, LOCK, data, SAME) for data in ({}, {"csrf": ""}, {"csrf": "x"}, {"csrf": theirs}, {"csrf": "é"})
    ]
    json = jane.client.post(LOCK, json={"csrf": jane.csrf("/accounts")}, headers=SAME)

    assert statuses == [400, 403, 403, 403, 403]
    assert json.status_code == 400
    assert not locked(cluster)


def test_nobody_is_logged_in_by_another_site(cluster: Scene) -> None:
    """The form of the login has a word too, which goes with a cookie of the browser."""
    attacker, victim = cluster.browser(), cluster.browser()
    data = {"csrf": attacker.csrf("/login"), "name": "acme", "password": PASSWORD}

    assert send(victim, "/login", data, SAME) == 403
    assert send(victim, "/login", data, {"origin": "https://evil.test"}) == 403


def test_what_browsers_say_of_where_a_request_comes_from() -> None:
    origins = frozenset({URL})

    assert not is_foreign({"origin": URL}, origins)
    assert not is_foreign({"referer": URL + "/x"}, origins)
    assert not is_foreign({"sec-fetch-site": "same-origin"}, origins)
    assert is_foreign({"sec-fetch-site": "cross-site", "origin": URL}, origins)
    assert is_foreign({"referer": URL + ".evil/x"}, origins)


def test_what_is_refused_is_noted_under_the_account(cluster: Scene) -> None:
    """Pages of other roles and forged forms; many of a minute as one entry, and each is counted."""
    counted: list[str] = []
    authentication = cluster.portal.authentication
    authentication.on_refused = counted.append
    acme = cluster.browser("acme")
    for _ in range(15):
        acme.get("/accounts")
    send(acme, "/logout", {"csrf": "guess"}, SAME)
    send(cluster.browser(), "/login", {"csrf": "guess"}, SAME)  # of nobody
    cluster.wait(61.0)
    acme.get("/audit")

    noted = [each for each in authentication.log.entries(0.0, cluster.now_s + 1.0) if not each.done]

    assert [(each.account, each.what, each.subject, each.detail) for each in noted[::-1]] == [
        ("owner.acme", "refused-page", "/accounts", ""),
        ("owner.acme", "refused-form", "/logout", ""),
        ("owner.acme", "refused-page", "/accounts", "14 more within 60 s"),
        ("owner.acme", "refused-page", "/audit", ""),
    ]
    assert counted == ["refused-page"] * 15 + ["refused-form"] + ["refused-page"]


def test_refusals_are_bounded_and_told_at_the_end() -> None:
    refusals = Refusals()
    told = [
        refusals.add(Entry(0.0, f"user.u{n}", "a", what="refused-page")) for n in range(KINDS_MAX) for _ in range(2)
    ]
    early = refusals.add(Entry(1.0, "user.new", "a", what="refused-page"))

    assert sum(map(len, told)) == KINDS_MAX
    assert [(each.account, each.detail) for each in early] == [("user.u0", "one more within 60 s"), ("user.new", "")]
    assert len(refusals.due(59.0)) == 0
    assert len(refusals.due()) == KINDS_MAX - 1


# --- script ---------------------------------------------------------------------------------------------------------


def test_script_in_text_fields_stays_text(cluster: Scene) -> None:
    asker, jane = cluster.browser(), cluster.browser("jane")
    form = {
        "name": "x1",
        "role": SCRIPT,
        "password": PASSWORD,
        "again": PASSWORD,
        "contact": SCRIPT,
        "why": SCRIPT + "'\"",
    }

    wrong = asker.post("/ask", form | {"name": SCRIPT})
    asker.post("/ask", form)
    listed = jane.get("/accounts")
    login = asker.login(SCRIPT, SCRIPT)
    to = asker.get('/login?to=/"><script>alert(1)</script>')
    missing = jane.get("/<script>alert(1)</script>")

    for answer in (wrong, listed, login, to, missing):
        assert SCRIPT not in answer.text
        assert answer.headers["content-security-policy"] == POLICY
    assert "&lt;script&gt;" in listed.text


def test_no_page_has_script_or_style_inline(shared_cluster: Scene) -> None:
    for path in ("/login", "/ask", "/account", "/accounts", "/nowhere"):
        text = (
            shared_cluster.browser("jane").get(path).text
            if path not in ("/login", "/ask")
            else shared_cluster.browser().get(path).text
        )
        assert "<style" not in text
        assert " style=" not in text
        assert " onclick=" not in text
        assert text.count("<script") == text.count("<script src=")


# --- headers, hosts, paths ------------------------------------------------------------------------------------------


def test_every_answer_has_the_headers(shared_cluster: Scene) -> None:
    browser = shared_cluster.browser()
    for path, status in (("/login", 200), ("/nowhere", 404), ("/static/portal.css", 200), ("/account", 303)):
        answer = browser.client.get(path, follow_redirects=False)
        assert answer.status_code == status
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert "max-age" in answer.headers["strict-transport-security"]
        stored = answer.headers["cache-control"]
        assert stored == ("public, max-age=3600" if path.startswith("/static") else "no-store")


@pytest.mark.parametrize(
    "host", ["evil.test", "portal.test:444", "portal.test.evil.test", "localhost", "portal.test@evil.test"]
)
def test_other_hosts_are_not_answered_for(shared_cluster: Scene, host: str) -> None:
    answer = shared_cluster.browser().client.get("/login", headers={"host": host})

    assert answer.status_code == 421
    assert "password" not in answer.text


def test_without_a_certificate_proxies_alone_are_answered(cluster: Scene) -> None:
    """And of these what they got by https alone, which they must say."""
    cluster.portal.rules = replace(cluster.portal.rules, trusted=("10.0.0.1",), proxies_only=True)

    def asked(peer: str, **headers: str) -> int:
        client = cluster.client(client=(peer, 1))
        client.base_url = client.base_url.copy_with(scheme="http")
        return int(
            client.get("/login", headers={each.replace("_", "-"): headers[each] for each in headers}).status_code
        )

    assert asked("192.0.2.1") == asked("192.0.2.1", x_forwarded_proto="https") == 421
    assert asked("10.0.0.1") == asked("10.0.0.1", x_forwarded_proto="http") == 400
    assert asked("10.0.0.1", x_forwarded_proto="https") == 200


def test_headers_of_proxies_are_believed_of_proxies_alone() -> None:
    def client(peer: str, *forwarded: str) -> str:
        rules = Rules(frozenset(), frozenset(), ("10.0.0.0/8",))
        lines = [(b"x-forwarded-for", line.encode()) for line in forwarded]
        return rules.client({"client": (peer, 1), "headers": lines})

    assert client("192.0.2.1", "1.1.1.1") == "192.0.2.1"
    assert client("10.0.0.1", "1.1.1.1") == "1.1.1.1"
    assert client("10.0.0.1", "6.6.6.6, 1.1.1.1") == "1.1.1.1"  # what the browser made up stands before
    assert client("10.0.0.1", "1.1.1.1, 10.0.0.2") == "1.1.1.1"
    assert client("10.0.0.1", "nonsense") == "10.0.0.1"
    assert client("10.0.0.1", "") == "10.0.0.1"
    assert client("10.0.0.1", "6.6.6.6", "1.1.1.1") == "1.1.1.1"  # HAProxy adds a line of its own
    assert client("10.0.0.1", "1.1.1.1", "10.0.0.2, 10.0.0.3") == "1.1.1.1"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "//evil.test/",
        "/account/",
        "/account%00",
        "/./account",
        "/account\\..",
        "/link/../accounts",
        "/" + "a" * 9000,
    ],
)
def test_paths_lead_nowhere_else(shared_cluster: Scene, path: str) -> None:
    async def send_raw() -> int:
        statuses: list[int] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def take(message: Any) -> None:
            statuses.extend([message["status"]] if message["type"] == "http.response.start" else [])

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "https",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"host", b"portal.test")],
            "client": ("192.0.2.1", 1),
            "server": ("portal.test", 443),
            "state": {},
        }
        await jane.client.app(scope, receive, take)
        return statuses[0]

    jane = shared_cluster.browser("jane")
    assert jane.client.portal is not None
    assert jane.client.portal.call(send_raw) in (400, 404, 414)


def test_other_methods_are_refused(shared_cluster: Scene) -> None:
    client = shared_cluster.browser("jane").client

    assert {client.request(method, "/account").status_code for method in ("PUT", "DELETE", "OPTIONS", "TRACE")} == {405}
    assert client.get("/logout").status_code == 405


# --- sizes ----------------------------------------------------------------------------------------------------------


def test_large_bodies_are_refused(cluster: Scene) -> None:
    """Told by their length or not; nothing of them is kept."""
    jane = cluster.browser("jane")
    large = b"csrf=" + b"x" * BODY_BYTES_MAX
    headers = SAME | {"content-type": "application/x-www-form-urlencoded"}

    told = jane.client.post(LOCK, content=large, headers=headers)
    untold = jane.client.post(LOCK, content=iter([large[:1000], large[1000:]]), headers=headers)
    many = jane.client.post(LOCK, content="&".join(f"f{n}=1" for n in range(2000)), headers=headers)
    lines = jane.client.get("/account", headers={f"x-{number}": "y" for number in range(100)})
    long = jane.client.get("/account", headers={"x": "y" * 20_000})

    assert (told.status_code, untold.status_code) == (413, 413)
    assert many.status_code == 400
    assert (lines.status_code, long.status_code) == (431, 431)
    assert not locked(cluster)


def test_bodies_are_small_before_the_login(cluster: Scene) -> None:
    """Told by their length or not, with the cookie of a form or without; where a form has no file it is small too."""
    stranger, jane = cluster.browser(), cluster.browser("jane")
    headers = SAME | {"content-type": "application/x-www-form-urlencoded"}
    large, larger = b"csrf=" + b"x" * OPEN_BYTES_MAX, b"csrf=" + b"x" * FORM_BYTES_MAX

    def sent(browser: Browser, path: str, content: Any) -> int:
        return int(browser.client.post(path, content=content, headers=headers).status_code)

    stranger.csrf("/login")
    pages = [sent(stranger, path, large) for path in ("/login", "/ask", "/link/x")]
    untold = sent(stranger, "/login", iter([large[:1000], large[1000:]]))

    assert [*pages, untold] == [413] * 4
    assert sent(jane, LOCK, large) == 403
    assert sent(jane, LOCK, larger) == 413
    assert sent(jane, "/workloads/submit", larger) == 403


def test_nothing_of_a_form_is_read_without_its_cookie(cluster: Scene) -> None:
    headers = SAME | {"content-type": "application/x-www-form-urlencoded"}

    answer = cluster.browser().client.post("/login", content=b"&".join([b"a=1"] * 600), headers=headers)

    assert answer.status_code == 403  # 400 were that there are too many fields


class CountingThreads(Threads):
    """Counts what it does."""

    done = 0

    async def do(self, call: Callable[..., Any], *values: Any) -> Any:
        self.done += 1
        return await super().do(call, *values)


def test_a_large_form_is_taken_apart_beside_the_event_loop(cluster: Scene) -> None:
    """340,000 percent signs took half a second, in which nobody was answered."""
    acme = cluster.browser("acme")
    cluster.portal.forms = beside = CountingThreads(1, "forms")
    word = acme.csrf("/workloads/submit")
    headers = SAME | {"content-type": "application/x-www-form-urlencoded"}

    sent = [
        acme.client.post("/workloads/submit", content=f"csrf={word}&toml=".encode() + b"%41" * number, headers=headers)
        for number in (1000, 340_000)
    ]

    assert [answer.status_code for answer in sent] == [422, 422]
    assert all("A" * 1000 in answer.text for answer in sent)
    assert beside.done == 1


def test_requests_of_one_address_are_bounded(cluster: Scene) -> None:
    """Given an address that asks without end, then it is told to wait, and others are answered."""
    cluster.portal.limits = AddressLimits(Bounds(requests_per_s=0.001))
    attacker, other = cluster.client(client=("192.0.2.66", 1)), cluster.client(client=("192.0.2.7", 1))

    statuses = [attacker.get("/login").status_code for _ in range(REQUESTS_BURST + 5)]
    told = attacker.get("/login")

    assert statuses.count(429) == 5
    assert told.headers["retry-after"] == "5"
    assert other.get("/login").status_code == 200


def test_a_form_that_is_none_is_refused(cluster: Scene) -> None:
    jane = cluster.browser("jane")
    headers = SAME | {"content-type": "multipart/form-data; boundary=x"}

    assert jane.client.post(LOCK, content=b"nonsense", headers=headers).status_code in (400, 403)
    assert (
        jane.client.post(LOCK, content=b"", headers=SAME | {"content-type": "multipart/form-data"}).status_code == 400
    )
