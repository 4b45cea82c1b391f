"""`trimtab-portal account`: no name or path that it was given steers the terminal on which it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemons.portal.auth.account_command import UNREADABLE, account_command


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("list", "--config", "{folder}/\x1b[31m"), "\\x1b[31m"),
        (("list", "a\u202e"), "(a\\u202e)"),
        (("lock", "a\udcff"), "is not UTF-8"),
    ],
)
def test_what_it_was_given_is_shown_as_escapes(
    words: tuple[str, ...], shown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = account_command([word.replace("{folder}", str(tmp_path)) for word in words])

    said = capsys.readouterr().err
    assert status == UNREADABLE
    assert shown in said
    assert "\x1b" not in said
    assert "\u202e" not in said
