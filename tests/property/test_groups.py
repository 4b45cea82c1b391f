"""Parts of random clusters are what a naive restatement says, and decisions by part respect whose each node is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemons.decision import groups, pipeline
from daemons.decision.pipeline import DecideRequest
from daemons.values.settings import PolicyChoice
from shared.policy_api.decision import ChangeKind, PlacementDecision, ReasonCode
from shared.policy_api.snapshot import ELSEWHERE, NOBODY, POOL, EnvironmentColumns, Snapshot, WorkloadState
from sim_backend.conformance.clusters import WorkRow, rows_of
from sim_backend.conformance.verifier import verify
from tests.extent import examples
from tests.simulation.place_instances import mixed_instance
from tests.simulation.sharing_instances import with_loading

POLICIES = ("first-fit", "edf", "apc")
SEEDS = st.integers(0, 2**32)


def parted(seed: int) -> Snapshot:
    """A random cluster, mostly of several environments, some of which count VMs; some nodes are changing hands."""
    rng = np.random.default_rng(seed)
    seen = mixed_instance(int(rng.integers(0, 2**32)))
    nodes, work = len(seen.nodes.names), seen.workloads
    count = int(rng.integers(0, 4))
    quota = np.array([int(rng.integers(0, 6)) if rng.random() < 0.4 else -1 for _ in range(count)], dtype=np.int64)
    own = [POOL, *np.flatnonzero(quota < 0).tolist()]
    holder = rng.choice([NOBODY, *own, *own, *own], nodes)
    apps = rng.integers(NOBODY, count, max(1, len(seen.web.names)))
    owner = np.where(work.app >= 0, apps[work.app], rng.integers(NOBODY, count, len(work.names)))
    leaving = (rng.random(nodes) < 0.2) & (holder != NOBODY)
    held = EnvironmentColumns(tuple(f"e{row}" for row in range(count)), holder, owner, quota, leaving)
    open_now = seen.nodes.schedulable & ~leaving & (holder != NOBODY)
    columns = replace(seen.nodes, schedulable=open_now, draining=seen.nodes.draining | leaving)
    return replace(seen, nodes=columns, environments=held)


def columns_of(seen: Snapshot) -> EnvironmentColumns:
    assert seen.environments is not None
    return seen.environments


# --- parting ---------------------------------------------------------------------------------------------------------


def naive_owners(seen: Snapshot) -> tuple[dict[str, str], dict[str, ReasonCode]]:
    """Whose policy sees each workload ("" is that of the pool), by name; and why no policy sees those that wait."""
    held, rows = columns_of(seen), rows_of(seen)[1]
    owners: dict[str, str] = {}
    refused: dict[str, ReasonCode] = {}
    left = {env: int(quota) for env, quota in enumerate(held.quota) if quota >= 0}
    running: Counter[int] = Counter()
    for row, env in zip(rows, held.workload.tolist(), strict=True):
        if row.state is WorkloadState.RUNNING:
            running[row.app] += 1
            if env in left:
                left[env] -= row.instances
    turns = []
    for at, row in enumerate(rows):
        nth = 0
        if row.state is not WorkloadState.RUNNING and may_start(row, seen.now_s) and row.app >= 0:
            nth = running[row.app]
            running[row.app] += 1
        turns.append((row.app >= 0 and nth >= seen.web.min_instances[row.app], nth, row.submit_s, at))
    for _, _, _, at in sorted(turns):
        row, env = rows[at], int(held.workload[at])
        waits = row.state is not WorkloadState.RUNNING
        if env == NOBODY:
            refused |= {row.name: ReasonCode.ENVIRONMENT} if waits else {}
        elif env in left and waits and may_start(row, seen.now_s) and row.instances > left[env]:
            refused[row.name] = ReasonCode.OVER_QUOTA
        else:
            if env in left and waits and may_start(row, seen.now_s):
                left[env] -= row.instances
            owners[row.name] = "" if env == POOL or env in left else held.names[env]
    return owners, refused


def may_start(row: WorkRow, now_s: float) -> bool:
    return not row.fixed and max(row.desired_start_s, row.not_before_s) <= now_s


@settings(max_examples=examples(120))
@given(seed=SEEDS)
def test_parts_are_disjoint_complete_and_true(seed: int) -> None:
    """Every part has the nodes and workloads that are its own, in their order and with all that is known of them."""
    seen = parted(seed)
    held, shares = columns_of(seen), groups.parts(seen)
    owners, refused = naive_owners(seen)
    whose = {POOL: ""} | {row: name for row, name in enumerate(held.names) if held.quota[row] < 0}
    assert [part.environment for part in shares] == list(whose.values())
    assert {one.workload: one.reason.code for one in shares[0].refused} == refused
    nodes = dict(zip(seen.nodes.names, held.node.tolist(), strict=True))
    for part in shares:
        own = [name for name in seen.nodes.names if whose.get(nodes[name]) == part.environment]
        assert list(part.snapshot.nodes.names) == own
        same_nodes(seen, part.snapshot)
        assert rows_of(part.snapshot)[1] == expected_rows(seen, part.snapshot, owners, part.environment)
        same_apps(seen, part.snapshot)
        inside = {*part.snapshot.workloads.names, *part.snapshot.web.names}
        assert all(inside.issuperset(one.members) for one in part.snapshot.constraints)
        assert part.snapshot.environments is None


@pytest.mark.parametrize("seed", range(6))
def test_loads_go_with_their_workloads_and_nodes(seed: int) -> None:
    seen = with_loading(parted(seed), seed)
    whole, work, nodes = seen.loading, seen.workloads.names, seen.nodes.names
    assert whole is not None
    for part in groups.parts(seen):
        mine = part.snapshot.loading
        assert mine is not None
        assert (mine.resources, mine.model) == (whole.resources, whole.model)
        for row, name in enumerate(part.snapshot.workloads.names):
            np.testing.assert_array_equal(mine.parts[:, row], whole.parts[:, work.index(name)])
        kinds = [int(whole.node_type[nodes.index(name)]) for name in part.snapshot.nodes.names]
        assert mine.node_type.tolist() == kinds


def same_nodes(seen: Snapshot, part: Snapshot) -> None:
    for at, name in enumerate(part.nodes.names):
        row = seen.nodes.names.index(name)
        for column in ("cores", "cpu_mhz", "free_cpu_mhz", "free_memory_mib", "schedulable", "draining", "labels"):
            assert getattr(part.nodes, column)[at] == getattr(seen.nodes, column)[row]


def expected_rows(seen: Snapshot, part: Snapshot, owners: dict[str, str], name: str) -> list[WorkRow]:
    """What `rows_of` says of the whole, with nodes and applications numbered as in the part."""
    expected = []
    for row in rows_of(seen)[1]:
        if owners.get(row.name) != name:
            continue
        names = [seen.nodes.names[node] if node >= 0 else "" for node, _ in row.places]
        away = ELSEWHERE if row.state is WorkloadState.SUSPENDED else -1
        local = [part.nodes.names.index(n) if n in part.nodes.names else away if n else -1 for n in names]
        astray = any(n and at < 0 for n, at in zip(names, local, strict=True))
        expected.append(
            replace(
                row,
                places=tuple((at, mhz) for at, (_, mhz) in zip(local, row.places, strict=True)),
                fixed=row.fixed or (astray and row.state is WorkloadState.RUNNING),
                app=part.web.names.index(seen.web.names[row.app]) if row.app >= 0 else -1,
            )
        )
    return expected


def same_apps(seen: Snapshot, part: Snapshot) -> None:
    """Each application of the part is as in the whole, but for instances that are not shown, with all its flows."""
    for at, name in enumerate(part.web.names):
        row = seen.web.names.index(name)
        shown = int((part.workloads.app == at).sum())
        assert part.web.min_instances[at] == min(seen.web.min_instances[row], shown)
        assert part.web.max_instances[at] == min(seen.web.max_instances[row], shown)
        assert part.web.importance[at] == seen.web.importance[row]
        here, there = part.flows.app == at, seen.flows.app == row
        assert part.flows.goal[here].tolist() == seen.flows.goal[there].tolist()


def test_every_case_occurs() -> None:
    """The random clusters hold what the comparison is about."""
    seen = [parted(seed) for seed in range(60)]
    codes = {refusal.reason.code for one in seen for refusal in groups.parts(one)[0].refused}
    assert codes == {ReasonCode.ENVIRONMENT, ReasonCode.OVER_QUOTA}
    assert any(part.snapshot.web.names and part.environment for one in seen for part in groups.parts(one))
    assert any(part.snapshot.constraints for one in seen for part in groups.parts(one)[1:])
    assert any(part.leaving is not None for one in seen for part in groups.parts(one))


# --- deciding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(25))
@given(seed=SEEDS)
def test_no_decision_crosses_a_border(policy: str, seed: int) -> None:
    """Whatever the policy: nodes of others are never named, quotas are kept, nothing is lost when decisions are
    joined, and what is on a node that another is to have leaves it."""
    seen = parted(seed)
    held = columns_of(seen)
    request = DecideRequest(
        seen, PolicyChoice(policy), None, None, None, {}, dict.fromkeys(held.names, PolicyChoice(policy))
    )
    outcome = pipeline.run(request)
    assert not outcome.failed
    placed = outcome.placement
    assert len({change.workload for change in placed.changes}) == len(placed.changes)
    home = {name: _home(held, env) for name, env in zip(seen.workloads.names, held.workload.tolist(), strict=True)}
    rows = {name: row for row, name in enumerate(seen.nodes.names)}
    for change in placed.changes:
        for allotment in change.allotments:
            row = rows[allotment.node]
            assert held.node[row] == home[change.workload] != NOBODY
            assert not held.leaving[row]
    _keeps_quotas(seen, placed)
    _leaves(seen, placed)


def _home(held: EnvironmentColumns, env: int) -> int:
    return POOL if env >= 0 and held.quota[env] >= 0 else env


def _keeps_quotas(seen: Snapshot, placed: PlacementDecision) -> None:
    held, work = columns_of(seen), seen.workloads
    after = dict(zip(work.names, (work.state == WorkloadState.RUNNING.value).tolist(), strict=True))
    before = dict(after)
    for change in placed.changes:
        after[change.workload] = change.kind not in (ChangeKind.SUSPEND, ChangeKind.STOP)
    for env in np.flatnonzero(held.quota >= 0).tolist():
        own = [(name, int(k)) for name, k, e in zip(work.names, work.instances, held.workload, strict=True) if e == env]
        was, is_now = (sum(k for name, k in own if runs[name]) for runs in (before, after))
        assert is_now <= max(held.quota[env], was)


def _leaves(seen: Snapshot, placed: PlacementDecision) -> None:
    """Nothing that may be changed stays on a node that another is to have."""
    held, made = columns_of(seen), {change.workload for change in placed.changes}
    for part in groups.parts(seen):
        names = part.snapshot.nodes.names
        out = {name for name, leaves in zip(seen.nodes.names, held.leaving, strict=True) if leaves}
        for row in rows_of(part.snapshot)[1]:
            if row.state is WorkloadState.RUNNING and any(n >= 0 and names[n] in out for n, _ in row.places):
                assert row.fixed or row.name in made


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(15))
@given(seed=SEEDS)
def test_each_part_is_decided_as_if_it_were_alone(policy: str, seed: int) -> None:
    """The joined decision has exactly the changes and refusals that the policy makes of each part, apart from what
    gives way; each is sound for its part."""
    seen = parted(seed)
    names = columns_of(seen).names
    request = DecideRequest(
        seen, PolicyChoice(policy), None, None, None, {}, dict.fromkeys(names, PolicyChoice(policy))
    )
    shares = groups.parts(seen)
    alone = []
    for part in shares:
        own = pipeline.run(DecideRequest(part.snapshot, PolicyChoice(policy), None, None, None)).placement
        alone.append(groups.give_way(part, own))
        assert verify(part.snapshot, own) == []
    placed = pipeline.run(request).placement
    assert Counter(placed.changes) == Counter(change for one in alone for change in one.changes)
    hidden = [refusal for part in shares for refusal in part.refused]
    assert {*placed.refusals} >= {*hidden, *(r for one in alone for r in one.refusals)} - _unasked(shares, alone)


def _unasked(shares: tuple[groups.Partition, ...], alone: list[PlacementDecision]) -> set[object]:
    """Refusals of parts without workloads: there are none."""
    return {
        r for part, one in zip(shares, alone, strict=True) if not part.snapshot.workloads.names for r in one.refusals
    }
