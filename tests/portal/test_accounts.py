"""Asking for an account, approving it, links, and what a provider may do to accounts."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import ModuleType

import pytest
from click.testing import CliRunner
from sqlalchemy import text, update
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from structlog.testing import capture_logs

from daemons.access.identity import Role
from daemons.portal.auth.account_command import account
from daemons.portal.auth.accounts import ASKED_OF_ADDRESS_MAX, Accounts, LastProvider, State
from daemons.portal.auth.passwords import fits, hashed, weakness
from daemons.portal.auth.schema import SINCE_2, Base, schema
from daemons.portal.auth.schema import accounts as table
from daemons.portal.context import for_everybody
from shared.base.errors import InvalidInput
from tests.portal.scene import PASSWORD, URL, WORK, Scene
from tests.support.paths import ROOT

FORM = {
    "name": "newco",
    "role": "owner",
    "contact": "a@b.test",
    "why": "hosting",
    "password": PASSWORD,
    "again": PASSWORD,
}


def test_an_account_is_asked_for_approved_and_used(cluster: Scene) -> None:
    newco, jane = cluster.browser(), cluster.browser("jane")

    asked = newco.post("/ask", FORM)
    early = newco.login("newco")
    cluster.wait(11.0)
    listed = jane.get("/accounts")
    approved = jane.post("/accounts/newco/approve", {"why": "known to us"}, "/accounts")
    late = newco.login("newco")

    assert asked.status_code == 200
    assert early.status_code == 401
    assert "1 to approve" in listed.text
    assert "hosting" in listed.text
    assert approved.status_code == 303
    assert late.status_code == 303
    assert "owner.newco" in newco.get("/account").text
    notes = cluster.portal.authentication.log.entries(0.0, cluster.now_s + 1.0)
    approval = next(each for each in notes if each.what == "account-approve")
    assert (approval.account, approval.subject, approval.why) == ("operator.jane", "newco", "known to us")


def test_an_account_is_refused(cluster: Scene) -> None:
    cluster.browser().post("/ask", FORM)
    jane = cluster.browser("jane")

    refused = jane.post("/accounts/newco/refuse", {"why": "unknown"}, "/accounts")
    again = jane.post("/accounts/newco/refuse", {}, "/accounts")

    assert refused.status_code == 303
    assert again.status_code == 409
    assert cluster.portal.authentication.accounts.find("newco") is None


def test_what_is_wrong_with_what_is_asked_for_is_said(cluster: Scene) -> None:
    answers = {
        field: cluster.browser().post("/ask", FORM | {field: text})
        for field, text in (("name", "a b"), ("password", "short"), ("again", "different"), ("why", "x" * 501))
    }

    assert {field: answer.status_code for field, answer in answers.items()} == dict.fromkeys(answers, 422)
    assert cluster.portal.authentication.accounts.asked() == 0


def test_asking_does_not_tell_which_names_there_are(cluster: Scene) -> None:
    """The provider is told."""
    answers = [cluster.browser().post("/ask", FORM | {"name": name}) for name in ("jane", "newco")]

    texts = [answer.text.replace(name, "NAME") for answer, name in zip(answers, ("jane", "newco"), strict=True)]
    assert {answer.status_code for answer in answers} == {200}
    assert texts[0].split("<footer")[0] == texts[1].split("<footer")[0]
    noted = [(each.subject, each.done) for each in cluster.portal.authentication.log.entries(0.0, cluster.now_s + 1.0)]
    assert {("jane", False), ("newco", True)} <= set(noted)


def test_nobody_asks_to_be_a_provider(cluster: Scene) -> None:
    cluster.browser().post("/ask", FORM | {"role": "provider"})

    found = cluster.portal.authentication.accounts.find("newco")
    assert found is not None
    assert found.role is Role.USER


def test_one_address_asks_for_few_accounts(cluster: Scene) -> None:
    statuses = [cluster.browser().post("/ask", FORM | {"name": f"n{number}"}).status_code for number in range(6)]

    assert statuses == [200, 200, 200, 422, 422, 422]


def test_accounts_that_wait_are_bounded(tmp_path: Path) -> None:
    base = Base(f"sqlite:///{tmp_path}/portal.db")
    base.open()
    accounts = Accounts(base, 3)
    for number in range(3):
        accounts.add(f"n{number}", Role.USER, "x", State.ASKED, 0.0)

    with pytest.raises(InvalidInput, match="too many"):
        accounts.add("more", Role.USER, "x", State.ASKED, 0.0)
    base.close()


def test_one_network_does_not_fill_the_places_of_those_who_wait(cluster: Scene) -> None:
    """Given a network that asks again and again over hours, then a few wait, and all of them go by one button."""
    jane = cluster.browser("jane")
    for number in range(8):
        cluster.browser(client=("192.0.2.66", 1)).post("/ask", FORM | {"name": f"n{number}"})
        cluster.wait(3_601.0)
    cluster.browser(client=("192.0.2.7", 1)).post("/ask", FORM)
    waiting = cluster.portal.authentication.accounts.asked_from()
    jane.login("jane")

    refused = jane.post("/refuse-accounts", {"address": "192.0.2.66", "why": "noise"}, "/accounts")

    assert waiting == {"192.0.2.66": ASKED_OF_ADDRESS_MAX, "192.0.2.7": 1}
    assert refused.status_code == 303
    assert cluster.portal.authentication.accounts.asked_from() == {"192.0.2.7": 1}
    assert jane.post("/refuse-accounts", {"address": "192.0.2.66"}, "/accounts").status_code == 409
    assert cluster.browser("acme").post("/refuse-accounts", {"address": ""}, "/account").status_code == 404


def test_a_store_of_the_version_before_is_brought_up(tmp_path: Path) -> None:
    base = Base(f"sqlite:///{tmp_path}/portal.db")
    base.open()
    Accounts(base).add("jane", Role.PROVIDER, "x", State.ACTIVE, 0.0)
    with base.writing() as connection:
        for column in SINCE_2:
            connection.execute(text(f"ALTER TABLE {column.table.name} DROP COLUMN {column.name}"))
        connection.execute(update(schema).values(version=1))

    base.open()

    found = Accounts(base).find("jane")
    assert found is not None
    assert (found.address, found.has_factor) == ("", False)
    base.open()
    base.close()


def test_others_do_not_see_the_accounts(cluster: Scene) -> None:
    for name in ("acme", "bob"):
        browser = cluster.browser(name)
        assert browser.get("/accounts").status_code == 404
        assert browser.post("/accounts/jane/lock", {}, "/account").status_code == 404
    assert cluster.portal.authentication.accounts.find("jane").state is State.ACTIVE  # type: ignore[union-attr]


def test_a_provider_is_not_locked_out_by_mistake(cluster: Scene) -> None:
    cluster.account("joe", Role.PROVIDER)
    jane = cluster.browser("jane")

    own = jane.post("/accounts/jane/lock", {}, "/accounts")
    other = jane.post("/accounts/joe/lock", {}, "/accounts")

    assert own.status_code == 409
    assert other.status_code == 303


def test_two_who_lock_each_other_at_once_leave_one(cluster: Scene) -> None:
    """Given two providers, when each locks or removes the other at the same moment, then one can still log in."""
    accounts = cluster.portal.authentication.accounts
    cluster.account("joe", Role.PROVIDER)
    together = Barrier(2)

    def lock(name: str) -> bool:
        together.wait()
        try:
            return accounts.set_state(name, State.LOCKED, State.ACTIVE, spare_last=True)
        except LastProvider:
            return False

    with ThreadPoolExecutor(2) as pool:
        locked = list(pool.map(lock, ("jane", "joe")))
    left = "joe" if locked[0] else "jane"

    assert sorted(locked) == [False, True]
    with pytest.raises(LastProvider, match="only provider"):
        accounts.remove(left, spare_last=True)
    assert accounts.remove("acme", spare_last=True)


def test_the_last_provider_is_told_to_make_another_first(cluster: Scene) -> None:
    """Given a provider who was locked while her request was on its way."""
    cluster.account("joe", Role.PROVIDER)
    jane = cluster.browser("jane")
    word = {"csrf": jane.csrf("/accounts")}
    with cluster.base.writing() as connection:
        connection.execute(update(table).where(table.c.name == "jane").values(state=State.LOCKED.value))

    answers = [
        jane.client.post(f"/accounts/joe/{what}", data=word, headers={"origin": URL}) for what in ("lock", "remove")
    ]

    assert [answer.status_code for answer in answers] == [409, 409]
    assert "only provider" in answers[0].text


def test_a_link_sets_a_password_once(cluster: Scene) -> None:
    jane, acme, other = cluster.browser("jane"), cluster.browser(), cluster.browser()
    new = {"new": "quite another password", "again": "quite another password"}

    shown = jane.post("/accounts/acme/link", {}, "/accounts")
    path = re.search(r"https://portal\.test(/link/[\w-]+)", shown.text)[1]  # type: ignore[index]
    used = acme.post(path, new)
    again = other.get(path)

    assert used.status_code == 303
    assert again.status_code == 404
    assert acme.login("acme").status_code == 401
    assert acme.login("acme", new["new"]).status_code == 303


def test_a_link_ends_sessions_when_it_is_made(cluster: Scene) -> None:
    acme, jane = cluster.browser("acme"), cluster.browser("jane")

    jane.post("/accounts/acme/link", {}, "/accounts")

    assert acme.client.get("/account", follow_redirects=False).status_code == 303


def test_a_link_is_good_for_a_day(cluster: Scene) -> None:
    word = cluster.portal.authentication.accounts.make_link("acme", cluster.now_s)

    assert cluster.browser().get(f"/link/{word}").status_code == 200
    cluster.wait(86_401.0)
    assert cluster.browser().get(f"/link/{word}").status_code == 404
    assert cluster.browser().get("/link/").status_code == 404


def test_a_defect_is_logged_without_the_word_of_a_link(cluster: Scene) -> None:
    """Given a page that fails, then the log says which, and not what its address held."""

    @for_everybody
    async def failing(_: Request) -> Response:
        raise ZeroDivisionError

    cluster.pages = (ModuleType("failing"),)
    cluster.pages[0].ROUTES = [Route("/link/{word}", failing)]  # type: ignore[attr-defined]
    with capture_logs() as logged:
        answer = cluster.client(raise_server_exceptions=False).get("/link/5ecret", headers={"host": "portal.test"})

    assert answer.status_code == 500
    assert [each["route"] for each in logged if each["event"] == "defect"] == ["/link/{word}"]
    assert "5ecret" not in str(logged)


def test_passwords_are_hashed_with_salt_and_parameters() -> None:
    first, second = hashed(PASSWORD, WORK), hashed(PASSWORD, WORK)

    assert first != second
    assert first.startswith("scrypt$4$8$1$")
    assert fits(PASSWORD, first)
    assert not fits(PASSWORD + "x", first)
    assert not fits(PASSWORD, "")
    assert PASSWORD not in first


def test_weak_passwords_are_named() -> None:
    for password in ("short", "aaaaaaaaaaaaaaaa", "jane's password", "x" * 300):
        assert weakness(password, "jane") is not None, password
    assert weakness("correct horse staple", "jane") is None


@pytest.mark.parametrize(
    "password",
    [
        "123456789012",
        "password1234",
        "Password12345",
        "P@ssw0rd2024!",
        "qwertyuiop12",
        "abcdabcdabcd",
        "trimtabtrimtab",
        "1qaz2wsx3edc",
        "asdfghjkl;123",
        "dragonmonkey12",
        "aaaaaaaaaaab",
        "ab" * 100,
    ],
)
def test_passwords_that_are_tried_first_are_refused(password: str) -> None:
    assert "is a common password" in str(weakness(password, "jane"))


@pytest.mark.parametrize(
    "password", ["summer dragon monkey", "k3#vQ9x!mm2L", "the rain in spain falls", "x7" + "qv9" * 40 + "pk2u"]
)
def test_other_passwords_are_taken(password: str) -> None:
    assert weakness(password, "jane") is None


def test_the_command_makes_and_mends_accounts(tmp_path: Path) -> None:
    config, password = tmp_path / "portal.toml", tmp_path / "password"
    config.write_text(f'public_url = "https://p.test"\n[store]\nurl = "sqlite:///{tmp_path}/portal.db"\n')
    password.write_text(PASSWORD + "\n")
    password.chmod(0o600)
    run = CliRunner().invoke

    made = run(
        account, ["add", "jane", "--role", "provider", "--password-file", str(password), "--config", str(config)]
    )
    linked = run(account, ["link", "jane", "--config", str(config)])
    locked = run(account, ["lock", "jane", "--config", str(config)])
    listed = run(account, ["list", "--config", str(config)])
    unknown = run(account, ["lock", "joe", "--config", str(config)])

    assert made.exit_code == linked.exit_code == locked.exit_code == 0, (made.output, linked.output, locked.output)
    assert "https://p.test/link/" in linked.output
    assert "jane\tprovider\tlocked" in listed.output
    assert "account 'joe' does not exist" in str(unknown.exception)


def test_the_command_run_by_hand_reads_the_secret_of_the_store_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given the documented portal.toml, whose credentials are passed to the unit alone, then accounts can be created; a
    store that needs a credential itself is refused."""
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    documented = (ROOT / "docs/how-to/portal.md").read_text("utf-8").split("```toml\n")[1].split("```")[0]
    config, other, password = (tmp_path / name for name in ("portal.toml", "other.toml", "password"))
    config.write_text(f'{documented}\n[store]\nurl = "sqlite:///{tmp_path}/portal.db"\n')
    store = '[store]\nurl = "postgresql://p@db/x"\npassword_file = "credential:store-password"\n'
    other.write_text(f"{documented}\n{store}")
    password.write_text(PASSWORD + "\n")
    password.chmod(0o600)
    words = ["add", "jane", "--role", "provider", "--password-file", str(password), "--config"]
    run = CliRunner().invoke

    made = run(account, [*words, str(config)])
    refused = run(account, [*words, str(other)])

    assert 'password_file = "credential:' in documented
    assert (made.exit_code, made.output.splitlines()[-1]) == (0, "jane can log in as provider.")
    assert "credential:store-password: CREDENTIALS_DIRECTORY is not set" in str(refused.exception)
