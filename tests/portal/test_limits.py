"""What one address may hold of the portal, and what is kept for those who are logged in."""

from __future__ import annotations

from daemons.portal.auth.throttle import network_of
from daemons.portal.http.limits import (
    ENTRIES_MAX,
    KNOWN_S,
    KNOWN_TIMES,
    AddressLimits,
    Bounds,
    ConcurrencyLimit,
    KnownAddresses,
    RateLimit,
)


def test_the_last_places_are_kept_for_those_who_are_logged_in() -> None:
    places = ConcurrencyLimit(40, 8)

    strangers = sum(places.acquire(f"192.0.2.{number}", known=False) for number in range(60))
    known = sum(places.acquire("198.51.100.1", known=True) for _ in range(60))

    assert (strangers, known) == (30, 10)
    places.release("192.0.2.1")
    assert places.taken == 39


def test_an_address_holds_its_share_and_a_familiar_one_more() -> None:
    places = ConcurrencyLimit(1000, 8)

    assert sum(places.acquire("2001:db8::1", known=False) for _ in range(20)) == 8
    assert not places.acquire("2001:db8::2", known=False)  # the same /64
    assert sum(places.acquire("192.0.2.1", known=True) for _ in range(100)) == 8 * KNOWN_TIMES
    assert sum(places.acquire("192.0.2.2", known=False, bounded=False) for _ in range(100)) == 100


def test_an_address_comes_as_often_as_its_rate() -> None:
    rates = RateLimit(2.0, 10)

    at_once = sum(rates.acquire("192.0.2.1", False, 0.0) for _ in range(50))
    later = sum(rates.acquire("192.0.2.1", False, 5.0) for _ in range(50))
    known = sum(rates.acquire("192.0.2.2", True, 0.0) for _ in range(50))

    assert (at_once, later, known) == (10, 10, 40)


def test_tables_are_bounded() -> None:
    rates, known = RateLimit(2.0, 10), KnownAddresses()
    for number in range(ENTRIES_MAX + 10):
        rates.acquire(f"a{number}", False, 0.0)
        known.add(f"a{number}", 0.0)

    assert len(rates._left) == len(known._seen) == ENTRIES_MAX


def test_an_address_is_familiar_for_a_day() -> None:
    known = KnownAddresses()
    known.add("192.0.2.1", 0.0)

    assert known.contains("192.0.2.1", KNOWN_S)
    assert not known.contains("192.0.2.1", KNOWN_S + 1.0)
    assert not known.contains("192.0.2.2", 0.0)


def test_what_has_ended_is_given_back() -> None:
    limits = AddressLimits(Bounds(connections_max=100, address_max=1))

    assert limits.connect("192.0.2.1", 0.0)
    assert not limits.connect("192.0.2.1", 0.0)
    assert limits.connect("192.0.2.2", 0.0, proxy=True)
    assert limits.connect("192.0.2.2", 0.0, proxy=True)
    limits.disconnect("192.0.2.1")
    assert limits.connect("192.0.2.1", 0.0)
    assert limits.begin_request("192.0.2.1", 0.0)
    assert not limits.begin_request("192.0.2.1", 0.0)
    limits.end_request("192.0.2.1")
    assert limits.begin_request("192.0.2.1", 0.0)


def test_an_ipv4_address_is_one_however_it_is_written() -> None:
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1"
