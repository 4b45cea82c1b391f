"""Codes beside passwords: made at the first login, asked for at the next, used once."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from daemons.portal.auth.account_command import account
from daemons.portal.auth.authentication import SignOn
from daemons.portal.auth.totp import STEP_S, code_of, step_of, uri_of
from tests.portal.scene import PASSWORD, Browser, Scene, scene

PAGE = "/account/second-factor"
RFC_SECRET = base64.b32encode(b"12345678901234567890").decode()


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path, nodes=0, run_s=1.0, second_factor=True) as made:
        yield made


def code_now(cluster: Scene, secret: str) -> str:
    return code_of(secret, int(cluster.now_s // STEP_S))


def begun(browser: Browser, code: str = "") -> str:
    """The secret that is shown to somebody who begins."""
    shown = browser.post(PAGE + "/begin", {"password": PASSWORD, "code": code}, PAGE)
    assert shown.status_code == 200, shown.text
    found = re.search(r"<code>([A-Z2-7]{32})</code>", shown.text)
    assert found is not None
    assert f"otpauth://totp/Trimtab%20portal.test%3Ajane?secret={found[1]}" in shown.text
    return found[1]


def enrolled(cluster: Scene, browser: Browser) -> str:
    """A secret that is in use."""
    secret = begun(browser)
    done = browser.post(PAGE + "/confirm", {"code": code_now(cluster, secret)}, PAGE)
    assert done.status_code == 303, done.text
    return secret


def login(browser: Browser, code: str, name: str = "jane") -> int:
    return int(browser.post("/login", {"name": name, "password": PASSWORD, "code": code}).status_code)


@pytest.mark.parametrize(
    ("at_s", "code"), [(59, "287082"), (1_111_111_109, "081804"), (1_234_567_890, "005924"), (20_000_000_000, "353130")]
)
def test_codes_are_those_of_the_rfc(at_s: int, code: str) -> None:
    assert code_of(RFC_SECRET, int(at_s // STEP_S)) == code
    assert step_of(RFC_SECRET, f" {code[:3]} {code[3:]}", at_s, 0) == at_s // 30


def test_clocks_may_be_a_step_apart() -> None:
    code = code_of(RFC_SECRET, 100)

    assert [step_of(RFC_SECRET, code, step * STEP_S, 0) for step in (98, 99, 100, 101, 102)] == [
        None,
        100,
        100,
        100,
        None,
    ]
    assert step_of(RFC_SECRET, code, 3_000.0, 100) is None
    assert uri_of("A", "j/x", "h:1") == "otpauth://totp/Trimtab%20h%3A1%3Aj%2Fx?secret=A&issuer=Trimtab%20h%3A1"


def test_a_provider_makes_a_secret_at_the_first_login(strict: Scene) -> None:
    """And reaches nothing else before; then logs in with a code."""
    jane, other = strict.browser("jane"), strict.browser("jane")
    before = jane.client.get("/accounts", follow_redirects=False)
    forced = jane.post("/accounts/acme/lock", {}, PAGE)
    first = jane.get(PAGE)

    secret = enrolled(strict, jane)
    strict.wait(STEP_S)

    assert (before.status_code, before.headers["location"]) == (303, PAGE)
    assert forced.headers["location"] == PAGE
    assert "Create your secret first" in first.text
    assert 'href="/accounts"' not in first.text
    assert jane.get("/accounts").status_code == 200
    assert other.client.get(PAGE, follow_redirects=False).headers["location"].startswith("/login")
    assert secret not in jane.get(PAGE).text
    assert login(strict.browser(), "") == 401
    assert login(strict.browser(), "000000") == 401
    new = strict.browser()
    assert login(new, code_now(strict, secret)) == 303
    assert new.get("/accounts").status_code == 200
    noted = {
        (each.what, each.done, each.detail)
        for each in strict.portal.authentication.log.entries(0.0, strict.now_s + 1.0)
    }
    assert {("second-factor-set", True, ""), ("login", False, "the code is wrong")} <= noted


def test_a_code_is_used_once(strict: Scene) -> None:
    """Nor is one of an earlier moment taken after it, nor the one that confirmed the secret."""
    secret = enrolled(strict, strict.browser("jane"))

    assert login(strict.browser(), code_now(strict, secret)) == 401
    strict.wait(2 * STEP_S)
    earlier, code = code_of(secret, int(strict.now_s // STEP_S) - 1), code_now(strict, secret)
    assert [login(strict.browser(), each) for each in (code, code, earlier)] == [303, 401, 401]


def test_wrong_codes_are_held_up_as_wrong_passwords(strict: Scene) -> None:
    enrolled(strict, strict.browser("jane"))
    strict.wait(STEP_S)
    attacker = strict.browser(client=("198.51.100.1", 1))

    assert [login(attacker, f"{number:06}") for number in range(8)] == [401] * 5 + [429] * 3


def test_a_secret_is_not_used_before_a_code_of_it_was_given(strict: Scene) -> None:
    jane = strict.browser("jane")
    wrong = jane.post(PAGE + "/begin", {"password": "a wrong password"}, PAGE)
    secret = begun(jane)
    refused = jane.post(PAGE + "/confirm", {"code": "000000"}, PAGE)

    assert (wrong.status_code, refused.status_code) == (422, 422)
    assert secret not in refused.text
    assert login(strict.browser(), "") == 303
    assert jane.client.get("/accounts", follow_redirects=False).status_code == 303


def test_another_secret_needs_a_code_of_the_old_one(strict: Scene) -> None:
    jane = strict.browser("jane")
    old = enrolled(strict, jane)
    strict.wait(STEP_S)

    refused = jane.post(PAGE + "/begin", {"password": PASSWORD, "code": ""}, PAGE)
    new = begun(jane, code_now(strict, old))
    done = jane.post(PAGE + "/confirm", {"code": code_now(strict, new)}, PAGE)
    strict.wait(STEP_S)

    assert (refused.status_code, done.status_code) == (422, 303)
    assert login(strict.browser(), code_now(strict, old)) == 401
    assert login(strict.browser(), code_now(strict, new)) == 303


def test_others_may_have_one(strict: Scene) -> None:
    """Owners and users are not asked to make a secret; who has one gives codes."""
    assert strict.browser("acme").get("/environments").status_code == 200


def test_whom_a_proxy_logs_in_the_proxy_answers_for(tmp_path: Path) -> None:
    named = {"x-remote-user": "jane", "x-portal-secret": "proxy secret", "x-forwarded-proto": "https"}
    with scene(
        tmp_path, nodes=0, run_s=1.0, second_factor=True, sign_on=SignOn("proxy secret"), trusted=("127.0.0.1",)
    ) as it:
        jane = it.browser(client=("127.0.0.1", 1))
        jane.client.get("/login", headers=named, follow_redirects=False)
        shown = jane.client.get("/accounts", headers=named, follow_redirects=False)

    assert shown.status_code == 200


def test_a_new_password_leaves_the_session_as_good_as_it_was(strict: Scene) -> None:
    jane, new = strict.browser("jane"), "another good password"
    enrolled(strict, jane)

    done = jane.post("/account/password", {"old": PASSWORD, "new": new, "again": new}, "/account")

    assert done.status_code == 303
    assert jane.get("/accounts").status_code == 200


def test_a_lost_secret_is_reset_on_the_portals_machine(strict: Scene, tmp_path: Path) -> None:
    config = tmp_path / "portal.toml"
    config.write_text(f'public_url = "https://p.test"\n[store]\nurl = "{strict.base.url}"\n')
    jane = strict.browser("jane")
    enrolled(strict, jane)

    done = CliRunner().invoke(account, ["reset-second-factor", "jane", "--config", str(config)])
    strict.wait(3.0)

    assert done.exit_code == 0, done.output
    assert jane.client.get("/account", follow_redirects=False).headers["location"].startswith("/login")
    assert login(jane, "") == 303
    assert jane.client.get("/", follow_redirects=False).headers["location"] == PAGE
