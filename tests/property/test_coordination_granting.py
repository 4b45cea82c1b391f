"""The provider's arbiter against a plain restatement for one class of units, and what must hold for several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from daemons.models.coordination.feasibility import shortfall
from daemons.models.coordination.granting import grant
from shared.policy_api.coordination import Claim, Grants
from tests.extent import examples

Bounds = Sequence[tuple[int, tuple[bool, ...]]]


@st.composite
def markets(draw: st.DrawFn, classes: int) -> tuple[list[Claim], tuple[int, ...]]:
    """Groups of any bounds, holdings and requests, and what is free."""
    claims = []
    for number in range(draw(st.integers(1, 5))):
        fits = tuple(draw(st.booleans()) for _ in range(classes)) if classes > 1 else (True,)
        held = tuple(draw(st.integers(0, 4)) * fit for fit in fits)
        idle = tuple(draw(st.integers(0, units)) for units in held)
        lower = draw(st.integers(0, 5))
        firm = lower + draw(st.sampled_from([0, 0, 1, 3]))
        claims.append(Claim(f"g{number}", lower, firm, held, idle, draw(st.integers(0, 10)), fits))
    return claims, tuple(draw(st.integers(0, 6)) for _ in range(classes))


def plain(claims: Sequence[Claim], free: int) -> tuple[list[int], list[int], list[int]]:
    """The rules for units that are all alike, one unit after the other."""
    given_to, reserved = [0] * len(claims), [0] * len(claims)
    gone = {"idle": [0] * len(claims), "busy": [0] * len(claims)}
    took_lower, took_firm = [0] * len(claims), [0] * len(claims)
    left = free
    indices = range(len(claims))

    def back(kind: str, keeps: Sequence[int]) -> bool:
        for index in reversed(indices):
            claim = claims[index]
            stock = claim.idle[0] if kind == "idle" else claim.held[0] - claim.idle[0]
            kept = claim.held[0] - gone["idle"][index] - gone["busy"][index]
            if kept > keeps[index] and gone[kind][index] < stock:
                gone[kind][index] += 1
                return True
        return False

    lowers = [claim.lower for claim in claims]
    firms = [claim.firm for claim in claims]
    wanted = [max(0, min(claim.requested, claim.lower) - claim.held[0]) for claim in claims]
    unused = [max(0, claim.lower - max(claim.requested, claim.held[0])) for claim in claims]
    within = [max(0, min(claim.requested, claim.firm) - max(claim.lower, claim.held[0])) for claim in claims]
    beyond = [max(0, claim.requested - max(claim.firm, claim.held[0])) for claim in claims]
    for asked, got in ((wanted, took_lower), (unused, reserved)):
        for index in indices:
            while left and got[index] < asked[index]:
                left, got[index] = left - 1, got[index] + 1
    for keeps in (firms, lowers):
        for index in indices:
            while took_lower[index] < wanted[index] and back("idle", keeps):
                took_lower[index] += 1
    for index in indices:
        while reserved[index] < unused[index] and back("idle", firms):
            reserved[index] += 1
    for index in indices:
        while left and took_firm[index] < within[index]:
            left, took_firm[index] = left - 1, took_firm[index] + 1
    for index in indices:
        while took_firm[index] < within[index] and back("idle", firms):
            took_firm[index] += 1
    for index in indices:
        more = min(left, beyond[index])
        left -= more
        given_to[index] = took_lower[index] + took_firm[index] + more
    for asked, got, kept in (
        (wanted, took_lower, firms),
        (wanted, took_lower, lowers),
        (unused, reserved, firms),
        (within, took_firm, firms),
    ):
        for index in indices:
            while got[index] < asked[index] and back("busy", kept):
                got[index] += 1
    return given_to, gone["idle"], gone["busy"]


@settings(max_examples=examples(300))
@given(markets(1))
def test_one_class_as_the_plain_rules(market: tuple[list[Claim], tuple[int, ...]]) -> None:
    """Every number of the answer."""
    claims, free = market
    answer = grant(claims, free)
    found = [[row[0] for row in part] for part in (answer.given, answer.taken, answer.owed)]
    assert tuple(found) == plain(claims, free[0])


def most(bounds: Bounds, supply: Sequence[int]) -> int:
    """How many units of the bounds can be met at once: unit by unit, by Kuhn's algorithm."""
    units = [kind for kind, number in enumerate(supply) for _ in range(number)]
    owner: dict[int, int] = {}
    asking = [fits for number, fits in bounds for _ in range(number)]

    def place(who: int, seen: set[int]) -> bool:
        for unit, kind in enumerate(units):
            if asking[who][kind] and unit not in seen:
                seen.add(unit)
                if unit not in owner or place(owner[unit], seen):
                    owner[unit] = who
                    return True
        return False

    return sum(place(who, set()) for who in range(len(asking)))


def unfilled(claims: Sequence[Claim]) -> Bounds:
    """What each group lacks of its lower bound."""
    return [(max(0, claim.lower - sum(claim.held)), claim.fits) for claim in claims]


def applied(
    claims: Sequence[Claim], free: Sequence[int], answer: Grants, *, owed: bool
) -> tuple[list[Claim], tuple[int, ...]]:
    """Holdings afterwards; what is new is in use."""
    after, rest = [], list(free)
    for claim, more, less, owes in zip(claims, answer.given, answer.taken, answer.owed, strict=True):
        gone = owes if owed else (0,) * len(owes)
        held = tuple(h + m - t - o for h, m, t, o in zip(claim.held, more, less, gone, strict=True))
        idle = tuple(i - t for i, t in zip(claim.idle, less, strict=True))
        after.append(replace(claim, held=held, idle=idle))
        rest = [r - m + t + o for r, m, t, o in zip(rest, more, less, gone, strict=True)]
    return after, tuple(rest)


@settings(max_examples=examples(200))
@given(markets(3))
def test_nothing_is_made_up_and_lower_bounds_are_kept(market: tuple[list[Claim], tuple[int, ...]]) -> None:
    """Units are conserved by class, go where they fit, and leave the lower bounds of all at least as near."""
    claims, free = market
    answer = grant(claims, free)
    for claim, more, less, owes in zip(claims, answer.given, answer.taken, answer.owed, strict=True):
        assert all(units >= 0 for units in (*more, *less, *owes))
        assert all(fit or not units for fit, units in zip(claim.fits, more, strict=True))
        assert all(t <= idle for t, idle in zip(less, claim.idle, strict=True))
        assert all(o <= h - i for o, h, i in zip(owes, claim.held, claim.idle, strict=True))
        assert sum(claim.held) + sum(more) - sum(less) >= min(sum(claim.held), claim.lower)
        assert sum(more) <= max(0, claim.requested - sum(claim.held)) + sum(less)  # an exchange is in both
    after, rest = applied(claims, free, answer, owed=False)
    assert min(rest) >= 0
    lacking = sum(units for units, _ in unfilled(claims)) - most(unfilled(claims), free)
    assert sum(units for units, _ in unfilled(after)) - most(unfilled(after), rest) <= lacking


@settings(max_examples=examples(200))
@given(markets(3))
@example(  # what is free will not do for the one that lacks it, but for one that holds what would
    ([Claim("a", 2, 2, (2, 0), (2, 0), 2, (True, True)), Claim("b", 2, 2, (0, 0), (0, 0), 2, (True, False))], (0, 2))
)
@example(
    ([Claim("a", 2, 2, (2, 0), (0, 0), 2, (True, True)), Claim("b", 2, 2, (0, 0), (0, 0), 2, (True, False))], (0, 2))
)
def test_answers_come_to_rest_with_every_lower_bound_met(market: tuple[list[Claim], tuple[int, ...]]) -> None:
    """Carried out again and again, with what is owed, it ends; if all lower bounds can be met, requests within are."""
    claims, free = market
    capacity = [number + sum(claim.held[kind] for claim in claims) for kind, number in enumerate(free)]
    lowers = [(claim.lower, claim.fits) for claim in claims]
    for _ in range(12):
        answer = grant(claims, free)
        if not any(any(row) for part in (answer.given, answer.taken, answer.owed) for row in part):
            break
        claims, free = applied(claims, free, answer, owed=True)
    else:
        raise AssertionError(f"never at rest: {claims}, {free}")
    short = [max(0, min(claim.requested, claim.lower) - sum(claim.held)) for claim in claims]
    if most(lowers, capacity) == sum(units for units, _ in lowers):
        assert not any(short)
    for claim in claims:  # who still lacks something within its firm bound finds nothing that is free beyond reserves
        if sum(claim.held) < min(claim.requested, claim.firm):
            reserved = unfilled(claims)
            assert most([*reserved, (1, claim.fits)], free) == most(reserved, free)


@settings(max_examples=examples(200))
@given(
    st.lists(st.tuples(st.integers(0, 5), st.tuples(st.booleans(), st.booleans(), st.booleans())), max_size=6),
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)),
)
@example(  # the first one has to move twice, to the class that is left last
    [
        (1, (True, True, True)),
        (1, (True, False, False)),
        (1, (False, True, False)),
        (0, (False, False, True)),
        (0, (False, False, True)),
    ],
    (1, 1, 1),
)
def test_shortfall_is_the_least_and_falls_on_the_last(
    lowers: list[tuple[int, tuple[bool, bool, bool]]], capacity: tuple[int, int, int]
) -> None:
    """Against Kuhn's algorithm on each beginning of the list."""
    short = shortfall(lowers, capacity)
    for count in range(len(lowers) + 1):
        first = lowers[:count]
        assert sum(short[:count]) == sum(units for units, _ in first) - most(first, capacity)
