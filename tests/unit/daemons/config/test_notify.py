"""`[notify]` of the controller's file: what it comes to, and everything that is wrong with it at once."""

from __future__ import annotations

import pytest

from daemons.config.controller import ControllerConfig
from daemons.drivers.notifiers import make_channels
from daemons.service.main import check
from daemons.service.settings_from_config import settings_of
from daemons.values.event_codes import ALARMS, EVENTS
from daemons.values.settings import NotifyRule, QuietHours
from shared.base.errors import InvalidInput
from shared.config.toml import parse
from tests.architecture.sources import ROOT

HOOK = '[notify.channels.hook]\nkind = "webhook"\nurl = "https://hooks.example/token-abc"\n'


def config(text: str) -> ControllerConfig:
    return parse(text, ControllerConfig, "controller.toml")


def wrong(text: str) -> str:
    with pytest.raises(InvalidInput) as told:
        check(config(HOOK + text))
    return str(told.value)


def test_the_example_of_the_page_works() -> None:
    page = (ROOT / "docs/how-to/notifications.md").read_text("utf-8")
    keys = config(page.split("```toml\n", 1)[1].split("```", 1)[0])
    settings = settings_of(keys).notify

    assert set(make_channels(keys.notify)) == {"pager", "mail"} == set(settings.channels)
    assert settings.channels["mail"] == "email"
    assert settings.cluster == "berlin"
    assert settings.rules[1] == NotifyRule(
        ("alarm:*", "plan-*"), ("mail",), digest_s=600.0, quiet=QuietHours(22 * 3_600, 7 * 3_600, "Europe/Berlin")
    )
    check(keys)


def test_a_code_that_nothing_has_is_refused_with_the_nearest() -> None:
    told = wrong('[[notify.rules]]\nevents = ["node-faild", "alarm:node-unreachble", "web-*"]\nchannels = ["hook"]\n')

    assert "notify.rules[0].events: nothing has the code 'node-faild' (expected one of 'node-failed'" in told
    assert "nothing has the code 'alarm:node-unreachble' (expected one of 'alarm:node-unreachable'" in told
    assert "web-" not in told.replace("web-instance", "")


def test_everything_that_is_wrong_is_told_at_once() -> None:
    told = wrong(
        '[notify.channels.mail]\nkind = "emale"\n'
        '[[notify.rules]]\nevents = []\nchannels = ["hok"]\nquiet_from = "22:00"\n'
        '[[notify.rules]]\nevents = ["alarm:*"]\nchannels = ["hook"]\ntimezone = "Mars/Olympus"\n'
        'quiet_from = "07:00"\nquiet_until = "07:00"\n'
    )

    assert "notify.channels.mail.kind: there is no 'emale' (expected one of command, email, webhook)" in told
    assert "rules[0].events: is empty" in told
    assert "rules[0].channels: there is no channel 'hok' (expected one of 'hook', 'mail')" in told
    assert "rules[0].quiet_until: goes with quiet_from" in told
    assert "rules[1].timezone: is 'Mars/Olympus'" in told
    assert "rules[1].quiet_until: is '07:00'" in told
    assert "token" not in told


def test_a_rules_keys_have_lines_and_forms() -> None:
    with pytest.raises(InvalidInput) as told:
        config('[[notify.rules]]\nevents = ["Node Failed"]\nchannel = ["x"]\nquiet_from = "25:00"\n')

    assert "controller.toml:2: notify.rules[0].events[0]" in str(told.value)
    assert "notify.rules[0].channel: no such key" in str(told.value)
    assert "quiet_from" in str(told.value)


def test_the_codes_that_rules_may_name_are_sorted() -> None:
    assert [*EVENTS, *ALARMS] == [*sorted(EVENTS), *sorted(ALARMS)]
