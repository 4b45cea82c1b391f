"""How a reference words what a key may hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daemons.cli.reference.files import FILES
from daemons.cli.reference.words import change_of, default_of, kind_of, last, shown
from shared.config.reference import Key

KEY = Key(name="log.wait_s", type="number", values="0 to 1", unit="s", default=0.5, is_required=False, meaning="Wait.")


def test_type_range_and_unit_are_said_together() -> None:
    assert kind_of(KEY) == "number: 0 to 1 s"
    assert kind_of(replace(KEY, values="", unit="")) == "number"


@pytest.mark.parametrize(
    ("default", "is_required", "said"), [(0.5, False, "0.5"), (None, False, "none"), (None, True, "required")]
)
def test_a_default_is_as_toml_has_it(default: float | None, is_required: bool, said: str) -> None:
    assert default_of(replace(KEY, default=default, is_required=is_required)) == said


@pytest.mark.parametrize(
    ("file", "key", "change"),
    [("agent", "log.level", "reload"), ("agent", "bus.url", "restart"), ("job", "name", "")],
)
def test_a_daemon_needs_a_restart_for_all_but_its_log(file: str, key: str, change: str) -> None:
    assert change_of(FILES[file], replace(KEY, name=key)) == change


def test_names_are_shown_with_a_name_of_the_users_choice() -> None:
    assert shown("windows.*.deadline") == "windows.NAME.deadline"
    assert last("windows.*.deadline") == "deadline"
    assert last("name") == "name"
