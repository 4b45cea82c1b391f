"""What workloads without a goal are given: compared with halving, node by node."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemons.policies.placement.apc.leftover import Claim, fair_gangs, fair_level, fair_shares, share

Row = tuple[float, float, float]  # least, most, weight


def _halving(room: float, rows: Sequence[Row]) -> list[float]:
    """The same by halving an interval of levels."""
    low, high = 0.0, max([most / weight for _, most, weight in rows], default=0.0)
    for _ in range(200):
        level = (low + high) / 2.0
        used = math.fsum(min(max(weight * level, least), most) for least, most, weight in rows)
        low, high = (level, high) if used <= room else (low, level)
    if math.fsum(most for _, most, _ in rows) <= room:
        low = high
    return [min(max(weight * low, least), most) for least, most, weight in rows]


@st.composite
def _rows(draw: st.DrawFn, most: int = 8) -> list[Row]:
    found = []
    for _ in range(draw(st.integers(0, most))):
        least = draw(st.sampled_from([0.0, 1.0, 1.0, 50.0, 400.0]))
        extra = draw(st.one_of(st.just(0.0), st.floats(0.0, 4000.0)))
        found.append((least, least + extra, draw(st.sampled_from([1.0, 1.0, 2.0, 0.5, 100.0]))))
    return found


_ROOM = st.one_of(st.just(0.0), st.floats(0.0, 20_000.0))


@given(_rows(), _ROOM)
def test_one_node_is_shared_as_by_halving(rows: list[Row], room: float) -> None:
    level = fair_level(room, [(*row, 1.0) for row in rows])
    assert [share(row, level) for row in rows] == pytest.approx(_halving(room, rows), rel=1e-9, abs=1e-6)


@given(st.lists(st.tuples(_rows(), _ROOM), max_size=6))
def test_many_nodes_at_once_are_shared_as_one_by_one(nodes: list[tuple[list[Row], float]]) -> None:
    rows = [row for held, _ in nodes for row in held]
    at = np.array([node for node, (held, _) in enumerate(nodes) for _ in held], dtype=np.int64)
    columns = [np.array([row[column] for row in rows], dtype=np.float64) for column in range(3)]
    room = np.array([room for _, room in nodes], dtype=np.float64)
    given_mhz = fair_shares(at, room, *columns)
    expected = [mhz for held, left in nodes for mhz in _halving(left, held)]
    assert given_mhz.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(st.lists(st.tuples(_rows(5), st.floats(0.0, 9000.0)), min_size=1, max_size=4), st.data())
def test_gangs_and_singles_are_shared_so_that_none_can_gain_but_from_who_has_no_more(
    nodes: list[tuple[list[Row], float]], data: st.DataObject
) -> None:
    claims: dict[int, Claim] = {}
    for node, (held, _) in enumerate(nodes):
        for least, most, weight in held:
            counts = {node: 1}
            if len(nodes) > 1 and data.draw(st.booleans()):
                counts[data.draw(st.integers(0, len(nodes) - 1))] = data.draw(st.integers(1, 2))
            claims[len(claims)] = Claim(least, most, weight, counts)
    room = [sum(claim.least * claim.counts.get(node, 0) for claim in claims.values()) for node in range(len(nodes))]
    room = [least + extra for least, (_, extra) in zip(room, nodes, strict=True)]
    found = fair_gangs(claims, room)
    assert found.keys() == claims.keys()
    used = [sum(found[row] * one.counts.get(node, 0) for row, one in claims.items()) for node in range(len(nodes))]
    for spent, had in zip(used, room, strict=True):
        assert spent <= had * (1.0 + 1e-9) + 1e-6
    for row, claim in claims.items():
        assert claim.least <= found[row] <= claim.most
        if found[row] >= claim.most - 1e-6:
            continue
        full = [node for node in claim.counts if used[node] >= room[node] * (1.0 - 1e-9) - 1e-6]
        assert full, "it could have more on all its nodes"
        mine = found[row] / claim.weight
        for node in full:  # on one full node it is among those with the highest level, or all above have their least
            above = [
                other
                for other, one in claims.items()
                if node in one.counts and found[other] / one.weight > mine * (1 + 1e-6) and found[other] > one.least
            ]
            if not above:
                break
        else:
            pytest.fail(f"{row} could gain from those that have more")


def test_without_room_or_claims_nothing_goes_wrong() -> None:
    assert fair_level(100.0, []) == math.inf
    assert fair_level(0.0, [(1.0, 10.0, 1.0, 1.0)]) == 0.0
    assert fair_gangs({}, [1.0]) == {}
    assert fair_shares(np.empty(0, dtype=np.int64), np.ones(2), *[np.empty(0)] * 3).size == 0
    one = np.array([1000.0])
    assert fair_shares(np.zeros(1, dtype=np.int64), np.array([-5.0]), one / 10, one, one / 1000) == [100.0]
    assert fair_shares(np.zeros(1, dtype=np.int64), np.array([np.inf]), one / 10, one, one / 1000) == [1000.0]


def test_ten_thousand_of_very_different_importance_take_up_all_there_is() -> None:
    rng = np.random.default_rng(1)
    nodes, weight = rng.integers(0, 100, 10_000), 10.0 ** rng.uniform(-3, 3, 10_000)
    most = rng.uniform(100.0, 8000.0, 10_000)
    room = np.full(100, 50_000.0)
    given_mhz = fair_shares(nodes, room, np.ones(10_000), most, weight)
    assert np.bincount(nodes, given_mhz) == pytest.approx(room, rel=1e-9)
