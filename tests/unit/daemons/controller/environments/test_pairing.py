"""Who is coordinated with whom: named, consented, offered, parted with notice; over the death of a controller too."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.environment_harness import EnvironmentHarness

NOTICE_S = 600.0


def harness() -> EnvironmentHarness:
    made = EnvironmentHarness(4)
    made.lead()
    return made


def activated(hpc: dict[str, Any], web: dict[str, Any]) -> EnvironmentHarness:
    """`hpc` of anna and `web` of whom its fields say, both activated, the web environment last."""
    made = harness()
    made.create("hpc", lower=1, **hpc)
    made.create("web", "web", lower=1, **web)
    made.activate("hpc")
    made.activate("web")
    made.finish()
    return made


EVE = {"owner": "eve"}
TOGETHER, APART = {"hpc": "web", "web": "hpc"}, {"hpc": "", "web": ""}


@pytest.mark.parametrize(
    ("hpc", "web", "partners"),
    [
        ({"coordinated_with": "web"}, {}, TOGETHER),  # one owner: naming once is enough
        ({}, {"coordinated_with": "hpc"}, TOGETHER),
        ({}, {}, APART),  # nobody asks for it
        ({}, {"shares": True}, TOGETHER),  # offered, and of one owner
        ({"coordinated_with": "web"}, EVE, APART),  # its owner has not consented
        ({"coordinated_with": "web"}, EVE | {"shares": True}, TOGETHER),
        ({"coordinated_with": "web"}, EVE | {"coordinated_with": "hpc"}, TOGETHER),
        ({"shares": True}, EVE | {"coordinated_with": "hpc"}, TOGETHER),
        ({"shares": True}, EVE | {"shares": True}, TOGETHER),
        ({}, EVE | {"shares": True}, APART),  # offered
        ({"shares": True}, EVE, APART),
        ({"coordinated_with": "web", "lease_s": 60.0}, EVE | {"shares": True}, APART),  # they do not go together
    ],
)
def test_who_comes_together(hpc: dict[str, Any], web: dict[str, Any], partners: dict[str, str]) -> None:
    made = activated(hpc, web)
    assert made.partners() == partners
    assert made.states() == {"hpc": "running", "web": "running"}
    assert made.successor().partners() == partners


def test_they_come_together_when_the_second_is_activated_and_say_until_then_why_not() -> None:
    made = harness()
    made.create("hpc", lower=1, coordinated_with="web")
    made.activate("hpc")
    assert made.shown("environment", "hpc")["environment"]["not_coordinated"] == "no environment 'web' shares with it"
    made.create("web", "web", lower=1)
    assert made.shown("environment", "hpc")["environment"]["not_coordinated"] == "'web' is not activated"
    made.activate("web")
    assert made.partners() == TOGETHER
    assert made.shown("environment", "hpc")["environment"]["not_coordinated"] == ""
    assert [made.entry(name).started_s for name in ("hpc", "web")] == [0.0, 0.0]


def test_an_offer_stands_until_its_owner_consents() -> None:
    made = activated({}, EVE | {"shares": True})
    assert made.entry("hpc").offered == "web"
    (event,) = made.happenings("partner-offered")
    assert (event.subject, event.detail) == ("hpc", "web: consent to be coordinated with it")
    later = made.successor()
    assert (later.entry("hpc").offered, later.happenings("partner-offered")) == ("web", [])
    assert later.consent("hpc", "web").done
    assert (later.partners(), later.entry("hpc").offered) == (TOGETHER, "")


def test_an_offer_ends_when_the_other_is_not_there_any_more() -> None:
    made = activated({}, EVE | {"shares": True})
    made.deactivate("web")
    assert made.entry("hpc").offered == ""


def test_both_consents_are_needed_across_owners_in_any_order() -> None:
    made = activated({}, EVE)
    assert made.consent("web", "hpc").done
    assert made.partners() == APART
    assert made.consent("hpc", "web").done
    assert made.consent("hpc", "web").done
    assert made.partners() == TOGETHER
    assert len(made.happenings("environment-consented")) == 2


def test_a_withdrawn_consent_holds_until_the_notice_is_over() -> None:
    made = activated({"coordinated_with": "web"}, EVE | {"shares": True, "notice_s": NOTICE_S})
    assert made.consent("web", "hpc", on=False).done
    made.wait(10.0, made.nodes)
    assert made.consent("web", "hpc", on=False).done  # no later for being said twice
    assert made.partners() == TOGETHER
    assert made.shown("environment", "hpc")["environment"]["parts_s"] == NOTICE_S
    later = made.successor()
    later.wait(NOTICE_S - 20.0, later.nodes)
    assert later.partners() == TOGETHER
    later.wait(20.0, later.nodes)
    later.finish()
    assert later.partners() == APART
    assert later.states() == {"hpc": "running", "web": "running"}
    assert [event.at_s for event in later.happenings("environment-separated")] == [NOTICE_S, NOTICE_S]
    why = later.shown("environment", "hpc")["environment"]["not_coordinated"]
    assert why == "the consent between 'hpc' and 'web' was withdrawn"
    assert later.successor().partners() == APART


@pytest.mark.parametrize("first", ["hpc", "web"])
def test_where_both_withdraw_the_notice_that_ends_first_counts(first: str) -> None:
    """Also when the side with the longer one consents again."""
    made = activated(
        {"coordinated_with": "web", "notice_s": 50.0 * NOTICE_S}, EVE | {"shares": True, "notice_s": NOTICE_S}
    )
    second = {"hpc": "web", "web": "hpc"}[first]
    made.consent(first, second, on=False)
    made.consent(second, first, on=False)
    assert (made.entry("hpc").parts_s, made.entry("web").parts_s) == (NOTICE_S, NOTICE_S)
    made.consent("hpc", "web")
    made.wait(NOTICE_S, made.nodes)
    assert made.partners() == APART


def test_a_controller_that_was_dead_when_the_notice_ended_parts_them_at_once() -> None:
    made = activated({"coordinated_with": "web"}, {"notice_s": NOTICE_S})
    made.consent("web", "hpc", on=False)
    made.now_s = NOTICE_S + 100.0
    assert made.successor().partners() == APART


def test_a_consent_that_is_given_again_keeps_them_together() -> None:
    made = activated({"coordinated_with": "web"}, {"notice_s": NOTICE_S})
    made.consent("web", "hpc", on=False)
    made.consent("web", "hpc")
    made.wait(NOTICE_S + 10.0, made.nodes)
    assert (made.partners(), made.entry("hpc").parts_s) == (TOGETHER, None)


def test_without_notice_they_part_at_once_and_come_together_again_when_both_consent() -> None:
    made = activated({"coordinated_with": "web"}, EVE | {"shares": True, "notice_s": 0.0})
    made.consent("web", "hpc", on=False)
    assert made.partners() == APART
    made.consent("hpc", "web")
    assert made.partners() == APART
    made.consent("web", "hpc")
    assert made.partners() == TOGETHER


@pytest.mark.parametrize("how", ["deactivate", "destroy"])
def test_the_partner_of_one_that_goes_down_goes_on_alone_with_its_own_units(how: str) -> None:
    made = activated({"coordinated_with": "web"}, {})
    assert len(made.held_by("hpc")) == 2  # nothing is asked of the web environment: its unit works for the other
    getattr(made, how)("web")
    made.finish()
    assert (made.partners(), made.states()["hpc"]) == (APART, "running")
    assert len(made.held_by("hpc")) == 1


def test_one_that_was_down_finds_its_partner_again() -> None:
    made = activated({"coordinated_with": "web"}, {})
    made.deactivate("hpc")
    made.finish()
    made.activate("hpc")
    made.finish()
    assert made.partners() == TOGETHER


def test_two_owners_pairs_stay_apart() -> None:
    made = harness()
    for name, owner in (("a", "anna"), ("b", "eve")):
        made.create(name, lower=1, owner=owner, coordinated_with=f"{name}-web")
        made.create(f"{name}-web", "web", lower=0, owner=owner)
        made.activate(name)
        made.activate(f"{name}-web")
    assert made.partners() == {"a": "a-web", "a-web": "a", "b": "b-web", "b-web": "b"}


def test_a_consent_is_not_for_another_environment_of_the_same_name() -> None:
    made = activated({}, EVE)
    made.consent("hpc", "web")
    made.consent("web", "hpc")
    assert made.partners() == TOGETHER
    made.destroy("web")
    made.finish()
    made.create("web", "web", lower=1, owner="mallory", coordinated_with="hpc")
    made.activate("web")
    made.finish()
    assert made.partners() == APART
    assert made.entry("hpc").consents == set()
