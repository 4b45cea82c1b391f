"""One answer to the question whether a host is this machine: what a check of encryption goes by."""

from __future__ import annotations

import pytest

from shared.base.addresses import is_address, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "LOCALHOST", "localhost."])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example", "::ffff:10.0.0.1", "[::1]", "host"],
)
def test_any_other_may_be_anywhere(host: str) -> None:
    assert not is_loopback(host)


def test_an_address_is_told_from_a_name() -> None:
    assert [is_address(text) for text in ("10.0.0.1", "fe80::1", "::")] == [True] * 3
    assert [is_address(text) for text in ("", "[::1]", "10.0.0", "host", "10.0.0.1 ", "1")] == [False] * 6
