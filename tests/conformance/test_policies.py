"""Every registered policy keeps the contract of its role."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from daemons.decision.pipeline import no_tables
from daemons.decision.tables.memory import MemoryTables
from shared.policy_api.policies import TableCache
from shared.ports.plugins import find_policy, names, policy_group
from sim_backend.conformance.policy_checks import CHECKS, PLACEMENT_STEADY, PROVISIONING_MONOTONE, Check, Subject
from tests.extent import first

EVERY = [(role, name, check) for role in CHECKS for name in names(policy_group(role)) for check in CHECKS[role]]
PARAMS: dict[tuple[str, str, str], dict[str, object]] = {
    ("provisioning", "static", "two"): {"nodes": 2},
    ("provisioning", "cost-aware", "unguarded"): {"guarded": False},
    ("placement", "edf", "gentle"): {"preempt": False},
    ("placement", "apc", "plain"): {"guard": "off", "heads": 1},
}


TABLE_CACHE = MemoryTables()  # the same tables are asked for again and again
EXTENTS = first([[(0, 2)], [(0, 40), (1, 40), (2, 40)]])  # seeds, each with so many random clusters
Extent = list[tuple[int, int]]


def _run(
    role: str, name: str, check: Check, params: dict[str, object], extent: Extent, table_cache: TableCache = TABLE_CACHE
) -> None:
    for seed, random in extent:
        check(Subject(find_policy(role, name), params, seed, table_cache if role == "provisioning" else None, random))


@pytest.mark.parametrize("extent", EXTENTS, ids=["few", "many"])
@pytest.mark.parametrize(("role", "name", "check"), EVERY)
def test_registered_policy(role: str, name: str, check: Check, extent: Extent) -> None:
    """Each check of its role, without parameters."""
    _run(role, name, check, {}, extent)


@pytest.mark.full
@pytest.mark.parametrize("extent", EXTENTS, ids=["few", "many"])
@pytest.mark.parametrize("case", PARAMS)
def test_with_parameters(case: tuple[str, str, str], extent: Extent) -> None:
    """Each check of the role, with parameters."""
    role, name, _ = case
    for check in CHECKS[role]:
        _run(role, name, check, PARAMS[case], extent)


@pytest.mark.parametrize("extent", EXTENTS, ids=["few", "many"])
@pytest.mark.parametrize("check", PLACEMENT_STEADY)
def test_first_fit_is_steady(check: Check, extent: Extent) -> None:
    """First-fit stops nothing and has nothing left to do after its decision."""
    _run("placement", "first-fit", check, {}, extent)
    _run("placement", "edf", check, {"preempt": False}, extent)


@pytest.mark.parametrize("extent", EXTENTS, ids=["few", "many"])
@pytest.mark.parametrize("check", CHECKS["provisioning"])
def test_without_tables(check: Check, extent: Extent) -> None:
    """Each check of a policy that decides by tables, while there are none."""
    _run("provisioning", "cost-aware", check, {}, extent, no_tables)


@pytest.mark.parametrize("extent", EXTENTS, ids=["few", "many"])
@pytest.mark.parametrize("check", PROVISIONING_MONOTONE)
@pytest.mark.parametrize("name", ["static", "threshold", "cost-aware-monotone"])
def test_more_jobs_never_mean_fewer_nodes(name: str, check: Check, extent: Extent) -> None:
    """Of the policies that promise it."""
    _run("provisioning", name, check, {}, extent)


def test_roles_are_covered() -> None:
    """Every role with checks has a registered policy, so the suite runs on something."""
    assert {role for role, _, _ in EVERY} == set(CHECKS)


GUIDE = (Path(__file__).parents[2] / "docs" / "how-to" / "write-a-policy.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("check", CHECKS["placement"] + PLACEMENT_STEADY)
def test_example_of_the_guide(check: Check) -> None:
    """The policy that the guide shows is as good as it says."""
    block = next(block for block in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if "class " in block)
    shown: dict[str, Any] = {}
    exec(compile(block, "docs/how-to/write-a-policy.md", "exec"), shown)
    check(Subject(shown["LargestFirst"](), {}, random=10))
