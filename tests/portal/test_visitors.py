"""What one address may hold of the portal, and what is kept for those who are logged in."""

from __future__ import annotations

from daemons.portal.throttle import network_of
from daemons.portal.visitors import ENTRIES_MAX, FAMILIAR_S, FAMILIAR_TIMES, Bounds, Familiar, Places, Rates, Visitors


def test_the_last_places_are_kept_for_those_who_are_logged_in() -> None:
    places = Places(40, 8)

    strangers = sum(places.take(f"192.0.2.{number}", familiar=False) for number in range(60))
    familiar = sum(places.take("198.51.100.1", familiar=True) for _ in range(60))

    assert (strangers, familiar) == (30, 10)
    places.free("192.0.2.1")
    assert places.taken == 39


def test_an_address_holds_its_share_and_a_familiar_one_more() -> None:
    places = Places(1000, 8)

    assert sum(places.take("2001:db8::1", familiar=False) for _ in range(20)) == 8
    assert not places.take("2001:db8::2", familiar=False)  # the same /64
    assert sum(places.take("192.0.2.1", familiar=True) for _ in range(100)) == 8 * FAMILIAR_TIMES
    assert sum(places.take("192.0.2.2", familiar=False, bounded=False) for _ in range(100)) == 100


def test_an_address_comes_as_often_as_its_rate() -> None:
    rates = Rates(2.0, 10)

    at_once = sum(rates.take("192.0.2.1", False, 0.0) for _ in range(50))
    later = sum(rates.take("192.0.2.1", False, 5.0) for _ in range(50))
    familiar = sum(rates.take("192.0.2.2", True, 0.0) for _ in range(50))

    assert (at_once, later, familiar) == (10, 10, 40)


def test_tables_are_bounded() -> None:
    rates, familiar = Rates(2.0, 10), Familiar()
    for number in range(ENTRIES_MAX + 10):
        rates.take(f"a{number}", False, 0.0)
        familiar.see(f"a{number}", 0.0)

    assert len(rates._left) == len(familiar._seen) == ENTRIES_MAX


def test_an_address_is_familiar_for_a_day() -> None:
    familiar = Familiar()
    familiar.see("192.0.2.1", 0.0)

    assert familiar.knows("192.0.2.1", FAMILIAR_S)
    assert not familiar.knows("192.0.2.1", FAMILIAR_S + 1.0)
    assert not familiar.knows("192.0.2.2", 0.0)


def test_what_has_ended_is_given_back() -> None:
    visitors = Visitors(Bounds(connections_max=100, address_max=1))

    assert visitors.connect("192.0.2.1", 0.0)
    assert not visitors.connect("192.0.2.1", 0.0)
    assert visitors.connect("192.0.2.2", 0.0, proxy=True)
    assert visitors.connect("192.0.2.2", 0.0, proxy=True)
    visitors.disconnect("192.0.2.1")
    assert visitors.connect("192.0.2.1", 0.0)
    assert visitors.ask("192.0.2.1", 0.0)
    assert not visitors.ask("192.0.2.1", 0.0)
    visitors.answered("192.0.2.1")
    assert visitors.ask("192.0.2.1", 0.0)


def test_an_ipv4_address_is_one_however_it_is_written() -> None:
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1"
