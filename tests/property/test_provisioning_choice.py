"""Which nodes and how many, on random clusters, against what can be said by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog  # type: ignore[import-untyped]

from daemons.models import node_choice
from daemons.policies.provisioning.broker import Claim, share
from daemons.policies.provisioning.outlay import averages
from shared.policy_api.snapshot import Snapshot
from tests.extent import examples
from tests.support.provisioning_cases import cluster, power, window

RATES = st.sampled_from([0.0, 0.5, 1.0, 2.0])


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Snapshot, list[int]]:
    nodes = draw(st.integers(1, 8))

    def flags(share_of: float) -> list[bool]:
        return [draw(st.floats(0, 1)) < share_of for _ in range(nodes)]

    available = flags(0.8)
    powers = power(
        nodes,
        wanted=flags(0.5),
        available=available,
        must_stay=[a and b for a, b in zip(available, flags(0.2), strict=True)],
        peak_w=[draw(st.sampled_from([100.0, 200.0, 300.0])) for _ in range(nodes)],
        deploy_s=[draw(st.sampled_from([0.0, 30.0, 900.0])) for _ in range(nodes)],
    )
    windows = [
        window(f"w{index}", rate=np.array([draw(RATES) for _ in range(nodes)]))
        for index in range(draw(st.integers(0, 3)))
    ]
    return cluster(*windows, nodes=nodes, powers=powers), [draw(st.integers(0, 5)) for _ in windows]


def can_serve(seen: Snapshot, rows: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether the nodes can be split so that every window has its size: a linear program."""
    if not sizes or not any(sizes):
        return True
    rates = np.array([view.rate[list(rows)] for view in seen.windows])
    windows, nodes = rates.shape
    if not nodes:
        return False
    needs = np.zeros((windows, windows * nodes))
    for index in range(windows):
        needs[index, index * nodes : (index + 1) * nodes] = -rates[index]
    whole = np.tile(np.eye(nodes), windows)
    found = linprog(
        np.zeros(windows * nodes),
        A_ub=np.vstack([needs, whole]),
        b_ub=np.concatenate([-np.array(sizes, dtype=float), np.ones(nodes)]),
        bounds=(0, 1),
    )
    return bool(found.status == 0)


@settings(max_examples=examples(150))
@given(clusters())
def test_chosen_nodes_serve_the_windows(case: tuple[Snapshot, list[int]]) -> None:
    """Only available nodes, all that must stay, and what is said to be enough is; with one window also the reverse."""
    seen, sizes = case
    chosen, enough = node_choice.for_windows(seen, sizes)
    assert seen.power is not None
    assert not (chosen & ~seen.power.available).any()
    assert chosen[seen.power.must_stay].all()
    usable = np.flatnonzero(seen.power.available).tolist()
    if enough:
        assert can_serve(seen, np.flatnonzero(chosen).tolist(), sizes)
    elif len(sizes) == 1:
        assert not can_serve(seen, usable, sizes)
    again, _ = node_choice.for_windows(seen, sizes)
    assert (again == chosen).all()
    rest = node_choice.others(seen, chosen).tolist()
    assert sorted(rest + np.flatnonzero(chosen).tolist()) == usable


@settings(max_examples=examples(150))
@given(clusters())
def test_sizes_that_grow_only_add_nodes(case: tuple[Snapshot, list[int]]) -> None:
    """For one window: a node in service for a size is in service for the next one too."""
    seen, _ = case
    if len(seen.windows) != 1:
        return
    before = np.zeros(len(seen.nodes.names), dtype=np.bool_)
    for size in range(8):
        chosen, enough = node_choice.for_windows(seen, [size])
        if not enough:
            return
        assert not (before & ~chosen).any()
        before = chosen


@st.composite
def claims(draw: st.DrawFn) -> list[Claim]:
    made = []
    for _ in range(draw(st.integers(1, 4))):
        wanted = draw(st.integers(0, 6))
        falls = sorted((draw(st.integers(0, 64)) for _ in range(wanted)), reverse=True)
        chances = np.concatenate([[1.0], 1.0 - np.cumsum(falls) / 512.0])
        made.append(Claim(wanted, draw(st.sampled_from([0.5, 1.0, 4.0])), tuple(np.maximum(chances, 0.0).tolist())))
    return made


def one_by_one(asked: Sequence[Claim], nodes: int) -> tuple[int, ...]:
    """The next node where the weighted probability falls most, as it is said."""
    given_nodes = [0] * len(asked)
    for _ in range(nodes):
        falls = [
            claim.weight * (claim.at(have) - claim.at(have + 1)) if have < claim.wanted else -1.0
            for claim, have in zip(asked, given_nodes, strict=True)
        ]
        best = max(range(len(asked)), key=lambda index: falls[index])
        if falls[best] < 0.0:
            break
        given_nodes[best] += 1
    return tuple(given_nodes)


@settings(max_examples=examples(200))
@given(claims(), st.integers(0, 20))
def test_convex_probabilities_are_shared_one_by_one(asked: list[Claim], nodes: int) -> None:
    found = share(asked, lambda sizes: sum(sizes) <= nodes)
    assert sum(found) == min(nodes, sum(claim.wanted for claim in asked))
    assert found == one_by_one(asked, nodes)


@settings(max_examples=examples(100))
@given(
    st.lists(st.floats(-10, 10), min_size=1, max_size=6),
    st.floats(0.5, 100),
    st.floats(0, 300),
    st.floats(0.5, 100),
    st.integers(1, 6),
)
def test_averages_are_those_of_many_samples(
    values: list[float], step_s: float, begin_s: float, length_s: float, count: int
) -> None:
    found = averages(np.array(values), step_s, begin_s, length_s, count)
    moments = begin_s + length_s * (np.arange(count * 4_000) + 0.5) / 4_000
    sampled = np.array(values)[np.minimum((moments / step_s).astype(int), len(values) - 1)]
    assert np.abs(found - sampled.reshape(count, -1).mean(axis=1)).max() < 0.05
