"""Migrations of the fake hypervisor whose guests are known to change memory."""

from __future__ import annotations

import pytest

from daemons.models.migration_time import Link, MigrationDemand, forecast
from shared.ports.effects import Operated
from shared.values.actions import ActionKind, Outcome
from shared.values.migration_terms import LIMIT_S, MigrationBounds, MigrationMethod, MigrationTerms
from sim_backend.fakes.migrations import Migrations
from sim_backend.world.migrating import GuestMemory
from tests.unit.sim_backend.fakes.test_hypervisor import VM, Lab

CALM = GuestMemory(1_000.0, 5.0, 200.0)
FAST = GuestMemory(1_000.0, 150.0, 200.0)
WILD = GuestMemory(1_000.0, 990.0, 1_000.0)


def migrated(memory: GuestMemory, terms: MigrationTerms | None = None) -> tuple[Lab, Operated]:
    lab = Lab()
    lab.cluster.migrations.memories[VM] = memory
    lab.cluster.migrations.link_mib_per_s = 100.0
    lab.start(lab.n1)
    answer = lab.run(lab.n1, ActionKind.MIGRATE, 100.0, expects=1, generation=1, to_node="n2", migration=terms)
    return lab, answer


@pytest.mark.parametrize("method", [MigrationMethod.PRE_COPY, MigrationMethod.AUTO_CONVERGE])
def test_a_calm_guest_takes_as_long_as_the_model_says(method: MigrationMethod) -> None:
    lab, answer = migrated(CALM, MigrationTerms(method))
    wanted = forecast(MigrationDemand(1_000.0, 5.0, 200.0), Link(100.0), method, setup_s=0.0)
    assert (answer.outcome, lab.live_on()) == (Outcome.OK, ["n2"])
    assert answer.migrated is not None
    assert answer.migrated.duration_s == pytest.approx(wanted.duration_s)
    assert lab.cluster.now_s == pytest.approx(100.0 + wanted.duration_s)


def test_a_guest_that_is_too_fast_stays_and_its_limit_passes() -> None:
    lab, answer = migrated(FAST)
    said = "after 159 rounds the guest changes 100 MiB/s"
    assert (answer.outcome, answer.detail) == (Outcome.NOT_CONVERGING, said)
    assert lab.live_on() == ["n1"]
    assert lab.cluster.now_s == pytest.approx(100.0 + LIMIT_S)


@pytest.mark.parametrize(
    "terms", [MigrationTerms(MigrationMethod.POST_COPY), MigrationTerms(post_copy=True), MigrationTerms(limit_s=500.0)]
)
def test_post_copy_ends_it_where_it_may(terms: MigrationTerms) -> None:
    lab, answer = migrated(WILD, terms)
    assert answer.migrated is not None
    assert (answer.outcome is Outcome.OK) == terms.may_switch
    assert (answer.migrated.method is MigrationMethod.POST_COPY) == terms.may_switch
    assert lab.live_on() == (["n2"] if terms.may_switch else ["n1"])


def test_those_beside_it_take_their_part_of_the_link() -> None:
    known = Migrations({VM: GuestMemory(1_000.0)}, 100.0)
    alone, second = (known.plan(VM, None, others, runs=True) for others in (0, 1))
    assert alone is not None
    assert second is not None
    assert second.duration_s == pytest.approx(2.0 * alone.duration_s, rel=0.01)
    assert known.plan("other", None, 0, runs=True) is None


def test_a_paused_guest_changes_nothing() -> None:
    plan = Migrations({VM: WILD}, 100.0).plan(VM, MigrationTerms(MigrationMethod.POST_COPY), 0, runs=False)
    assert plan is not None
    assert (plan.outcome, plan.figures.method) == (Outcome.OK, MigrationMethod.PRE_COPY)


def test_what_would_have_to_move_is_reported() -> None:
    lab, _ = migrated(CALM)
    (status,) = lab.n2.vms(lab.cluster.now_s)
    assert (status.resident_mib, status.working_set_mib) == (1_000, 200)
    assert status.dirty_mib_per_s == pytest.approx(5.0)


def test_what_its_source_allows_counts_for_more_than_the_terms() -> None:
    known = Migrations({VM: GuestMemory(50_000.0)}, 100.0)  # 500 s at the full rate
    high = MigrationTerms(limit_s=600.0)
    late, enough, slow = (
        known.plan(VM, high, 0, True, bounds)
        for bounds in (MigrationBounds(), MigrationBounds(550.0), MigrationBounds(550.0, bandwidth_mib_per_s=50))
    )
    assert late is not None
    assert enough is not None
    assert slow is not None
    assert (late.outcome, late.duration_s) == (Outcome.NOT_CONVERGING, LIMIT_S)
    assert (enough.outcome, slow.outcome) == (Outcome.OK, Outcome.NOT_CONVERGING)


def test_a_guest_that_is_not_known_takes_what_the_costs_say() -> None:
    lab = Lab()
    lab.start(lab.n1)
    answer = lab.run(lab.n1, ActionKind.MIGRATE, 100.0, expects=1, generation=1, to_node="n2")
    assert (answer.outcome, answer.migrated) == (Outcome.OK, None)
    assert lab.cluster.now_s == pytest.approx(113.2)
