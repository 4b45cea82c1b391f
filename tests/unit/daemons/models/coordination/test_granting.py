"""The arbiter on a worked pair, who gives way, who may share with whom, and what is said of bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daemons.models.coordination.feasibility import Bound, contended, units_of, unmet
from daemons.models.coordination.granting import grant
from daemons.models.coordination.pairing import consents, entangled, objections, offer
from shared.policy_api.coordination import Claim
from shared.values.agreement import Agreement, Granularity, VmTemplate, WorkloadType

ONE = (True,)
SMALL = VmTemplate("small", vcpus=2, memory_mib=4096, max_mhz=2400.0)


def claim(name: str, bounds: tuple[int, int], held: int, idle: int, requested: int) -> Claim:
    """Of units that are all alike."""
    return Claim(name, bounds[0], bounds[1], (held,), (idle,), requested, ONE)


def test_a_lent_range_comes_back() -> None:
    """Twelve units. A (4 to 8) has 4, B (2 to 2) has 5 of the other 8; A wants all that comes first to it."""
    a, b = claim("a", (4, 8), 4, 0, 8), claim("b", (2, 2), 5, 1, 9)
    answer = grant([a, b], [3])
    assert (answer.given, answer.taken, answer.owed) == (((4,), (0,)), ((0,), (1,)), ((0,), (0,)))
    answer = grant([a, replace(b, idle=(0,))], [3])
    assert (answer.given, answer.taken, answer.owed) == (((3,), (0,)), ((0,), (0,)), ((0,), (1,)))


def test_what_is_idle_within_a_firm_range_is_lent_and_a_lower_bound_is_not() -> None:
    """A has none of its 4 to 8 units: of the ten that are free, B may have six."""
    answer = grant([claim("a", (4, 8), 0, 0, 0), claim("b", (0, 0), 0, 0, 20)], [10])
    assert answer.given == ((0,), (6,))
    assert not any(map(any, (*answer.taken, *answer.owed)))


def test_scarce_units_are_left_to_who_can_use_no_other() -> None:
    """Both bounds are met although the first one could have had the only units for the second."""
    first = Claim("a", 3, 3, (0, 0), (0, 0), 3, (True, True))
    second = Claim("b", 2, 2, (0, 0), (0, 0), 2, (True, False))
    assert grant([first, second], [2, 3]).given == ((0, 3), (2, 0))
    assert grant([first, replace(second, requested=0)], [2, 3]).given == ((0, 3), (0, 0))


def test_units_are_exchanged_for_a_lower_bound() -> None:
    """Idle units at once, others are owed and replaced afterwards; never for more than a lower bound."""
    first = Claim("a", 2, 2, (2, 0), (2, 0), 2, (True, True))
    second = Claim("b", 1, 2, (0, 0), (0, 0), 2, (True, False))
    answer = grant([first, second], [0, 2])
    assert (answer.given, answer.taken) == (((0, 1), (1, 0)), ((1, 0), (0, 0)))
    answer = grant([replace(first, idle=(0, 0)), second], [0, 2])
    assert (answer.given, answer.owed) == (((0, 0), (0, 0)), ((1, 0), (0, 0)))


def test_nobody_asks() -> None:
    assert grant([], [4]) == grant([], [])


def batch(name: str = "hpc", owner: str = "physics", lower: int = 10) -> Agreement:
    return Agreement(name, owner, WorkloadType.BATCH, lower=lower)


def web(name: str = "shop", owner: str = "physics", lower: int = 6) -> Agreement:
    return Agreement(name, owner, WorkloadType.WEB, lower=lower)


def test_a_batch_and_a_web_environment_that_agree() -> None:
    assert objections(batch(), web()) == objections(web(), batch()) == ()


def test_every_objection_is_told() -> None:
    """All at once, one sentence each."""
    other = replace(
        web(),
        model="flb-nub",
        lease_s=900.0,
        granularity=Granularity.VM,
        template=SMALL,
        os_type="debian",
        os_version="12",
    )
    assert objections(batch(), other) == (
        "'hpc' and 'shop' differ in model: fb and flb-nub",
        "'hpc' and 'shop' differ in lease_s: 3600 and 900",
        "'hpc' and 'shop' differ in granularity: node and vm",
        "'hpc' and 'shop' differ in template: none and small (2 vCPUs, 4096 MiB, 2400 MHz)",
        "'hpc' and 'shop' differ in what their nodes run: none and debian 12",
    )
    assert "both of type batch" in objections(batch(), batch("sim"))[0]
    assert "itself" in objections(batch(), batch())[0]


def test_who_consents() -> None:
    """One owner with itself; another by naming it, by sharing with all, or by word."""
    ours, theirs = batch(), web(owner="arts")
    assert consents(ours, web())
    assert not consents(ours, theirs)
    assert consents(replace(ours, shares=True), theirs)
    assert consents(replace(ours, coordinated_with="shop"), theirs)
    assert consents(ours, theirs, ("shop",))
    assert not consents(theirs, replace(ours, coordinated_with="shop"))


NAMES = "only two environments share their units"


@pytest.mark.parametrize(
    ("others", "partners", "said"),
    [
        ([], {}, ""),
        ([web()], {}, ""),
        ([replace(web(), coordinated_with="hpc")], {"shop": "hpc", "hpc": "shop"}, ""),
        (
            [replace(web(), coordinated_with="sim"), replace(batch("sim"), coordinated_with="hpc")],
            {},
            f"coordination goes round in a circle: 'hpc' names 'shop', 'shop' names 'sim', 'sim' names 'hpc'; {NAMES}",
        ),
        (
            [replace(web(), coordinated_with="sim"), replace(batch("sim"), coordinated_with="shop")],
            {},
            f"'hpc' names 'shop', which is coordinated with 'sim': {NAMES}",
        ),
        (
            [replace(web(owner="arts"), coordinated_with="sim"), replace(batch("sim"), coordinated_with="hpc")],
            {},
            f"'hpc' names 'shop', which is coordinated with another environment: {NAMES}",
        ),
        ([web()], {"shop": "sim"}, f"'hpc' names 'shop', which is coordinated with 'sim': {NAMES}"),
        ([web()], {"hpc": "mall"}, f"'hpc' names 'shop', and is coordinated with 'mall': {NAMES}"),
        (
            [web(), replace(batch("sim"), coordinated_with="shop")],
            {},
            f"'sim' names 'shop', and 'hpc' names 'shop': {NAMES}",
        ),
        ([web(), replace(batch("sim", "arts"), coordinated_with="shop")], {}, ""),
    ],
)
def test_who_stands_in_the_way(others: list[Agreement], partners: dict[str, str], said: str) -> None:
    """Of 'hpc', which names 'shop'. What another owner names stands in nobody's way and is not told."""
    assert entangled(replace(batch(), coordinated_with="shop"), others, partners) == said


def test_nobody_named_nothing_in_the_way() -> None:
    assert entangled(batch(), [replace(web(), coordinated_with="hpc")]) == ""


def test_who_is_offered() -> None:
    """Who names it, then of the same owner, then of the nearest lower bound, then by name."""
    near, far = replace(web("near", "arts", 9), shares=True), replace(web("far", "arts", 90), shares=True)
    ours, shy = replace(web("ours", lower=50), shares=True), web("shy", lower=10)
    engaged = replace(web("engaged", lower=10), shares=True, coordinated_with="sim")
    named = replace(web("named", "arts", 400), coordinated_with="hpc")
    other = replace(web("other", lower=10), shares=True, model="flb-nub")
    assert offer(batch(), [far, near, shy, engaged, other]) == "near"
    assert offer(batch(), [far, near, ours]) == "ours"
    assert offer(batch(), [far, near, ours, named]) == "named"
    assert offer(batch(), [shy, engaged, other]) == ""
    assert offer(replace(batch(), coordinated_with="far"), [far]) == ""
    assert offer(web(), [near]) == ""


def test_what_is_said_of_bounds() -> None:
    debian = replace(batch(lower=12), os_type="debian", os_version="12")
    shop, hpc = Bound("shop", 4, (True, False)), Bound("hpc", 12, (True, False), units_of(debian))
    assert unmet([shop, hpc], [16, 0]) == ()
    assert unmet([shop, hpc], [9, 50]) == (
        "environment 'hpc' needs 12 nodes running debian 12, 9 are there, of which 4 are promised to 'shop'",
    )
    assert unmet([shop, hpc], [9, 50], named=["hpc"])[0].endswith("of which 4 are promised to others")
    assert unmet([hpc], [1, 50]) == ("environment 'hpc' needs 12 nodes running debian 12, 1 is there",)
    assert contended([shop, hpc], [16, 0]) == ""
    assert contended([shop, hpc], [9, 50]) == (
        "upper bounds cannot all be reached at once: 'shop' 4 nodes, 'hpc' 12 nodes running debian 12; "
        "7 of these cannot be had"
    )
    assert "others 4;" in contended([shop, hpc], [9, 50], named=["hpc"]).replace(
        "'hpc' 12 nodes running debian 12, ", ""
    )
    template = replace(batch(), granularity=Granularity.VM, template=SMALL)
    assert (units_of(batch()), units_of(template)) == ("nodes", "VMs of template 'small'")
    assert units_of(replace(template, os_type="debian")) == "VMs of template 'small' on nodes running debian"


def test_a_lender_gives_another_class_when_a_later_group_can_use_no_other() -> None:
    """B may lose one unit: that is the one for the second group, and the first has its own from C."""
    flexible = Claim("flexible", 0, 1, (0, 0, 0), (0, 0, 0), 1, (False, True, True))
    narrow = Claim("narrow", 0, 1, (0, 0, 0), (0, 0, 0), 1, (True, False, False))
    c = Claim("c", 0, 0, (0, 0, 1), (0, 0, 1), 1, (False, False, True))
    b = Claim("b", 1, 1, (1, 1, 0), (1, 1, 0), 2, (True, True, False))
    answer = grant([flexible, narrow, c, b], [0, 0, 0])
    assert answer.given == ((0, 0, 1), (1, 0, 0), (0, 0, 0), (0, 0, 0))
    assert answer.taken == ((0, 0, 0), (0, 0, 0), (0, 0, 1), (1, 0, 0))


def test_what_is_to_be_exchanged_stays_until_there_is_something_for_it() -> None:
    """A holds the only unit for B, idle; the one that A could have instead is in use by C, who borrowed it."""
    a = Claim("a", 1, 1, (1, 0), (1, 0), 1, (True, True))
    b = Claim("b", 1, 1, (0, 0), (0, 0), 1, (True, False))
    c = Claim("c", 0, 0, (0, 1), (0, 0), 1, (True, True))
    answer = grant([a, b, c], [0, 0])
    assert not any(map(any, (*answer.given, *answer.taken)))
    assert answer.owed == ((0, 0), (0, 0), (0, 1))
    returned = grant([a, b, replace(c, held=(0, 0))], [0, 1])
    assert (returned.given, returned.taken) == (((0, 1), (1, 0), (0, 0)), ((1, 0), (0, 0), (0, 0)))
