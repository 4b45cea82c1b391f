"""Values that a user writes check themselves: what is wrong is named, with what would be right."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from shared.base.errors import InvalidValue
from shared.values.jobs import Job, Preference, PreferenceKind, Rules, Stage, instance_name, workload_of
from shared.values.nodes import Node


def job(**fields: object) -> Job:
    given: dict[str, object] = {"name": "j", "stages": (Stage(1.0, 1.0),)}
    return Job(**(given | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Stage(-1.0, 1000.0), "work_mcycles"),
        (lambda: Stage(math.nan, 1000.0), "work_mcycles"),
        (lambda: Stage(1.0, 0.0), "max_mhz"),
        (lambda: Stage(1.0, math.inf), "max_mhz"),
        (lambda: Stage(1.0, 10.0, min_mhz=11.0), "min_mhz"),
        (lambda: Stage(1.0, 10.0, memory_mib=-1), "memory_mib"),
        (lambda: job(name="no spaces"), "name"),
        (lambda: job(name=""), "name"),
        (lambda: job(name="é"), "name"),
        (lambda: job(stages=()), "stages"),
        (lambda: job(desired_start_s=100.0, goal_s=100.0), "goal_s"),
        (lambda: job(desired_start_s=100.0, goal_s=99.0), "goal_s"),
        (lambda: job(goal_s=math.inf), "goal_s"),
        (lambda: job(submit_s=-1.0), "submit_s"),
        (lambda: job(instances=0), "instances"),
        (lambda: job(instances=True), "instances"),
        (lambda: job(vcpus=0), "vcpus"),
        (lambda: job(importance=0.0), "importance"),
        (lambda: job(checkpoint_mcycles=-1.0), "checkpoint_mcycles"),
        (lambda: Node("n", 0, 1000.0, memory_mib=10), "cores"),
        (lambda: Node("n", 1, -5.0, memory_mib=10), "core_mhz"),
        (lambda: Node("n", 1, 1.0, memory_mib=10, reserve_mib=11), "reserve_mib"),
    ],
)
def test_a_bad_value_is_refused_by_name(make: Callable[[], object], field: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        make()
    assert caught.value.field == field
    assert "expected" in str(caught.value)


def test_a_job_is_as_large_as_its_largest_stage_and_as_long_as_all_of_them() -> None:
    staged = job(stages=(Stage(10.0, 100.0, 5.0, 300), Stage(20.0, 50.0, 10.0, 200)))
    assert (staged.work_mcycles, staged.max_mhz, staged.min_mhz, staged.memory_mib) == (30.0, 100.0, 10.0, 300)


def test_an_instance_never_gets_more_than_its_vcpus() -> None:
    node = Node("n", 4, 1000.0, memory_mib=10)
    assert job(stages=(Stage(1.0, 5000.0),)).speed_on_mhz(node) == 1000.0
    assert job(stages=(Stage(1.0, 5000.0),), vcpus=3).speed_on_mhz(node) == 3000.0
    assert job(stages=(Stage(1.0, 5000.0),), vcpus=9).speed_on_mhz(node) == 4000.0


PREFER = PreferenceKind


def prefers(*kinds: PreferenceKind, **more: object) -> dict[str, object]:
    return {"preferred": tuple(Preference(kind, "x", **more) for kind in kinds)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"node_affinity": ("x",), "node_anti_affinity": ("x", "y")}, "no node that `node_affinity` names too"),
        ({"label_affinity": ("x",), "label_anti_affinity": ("x",)}, "no label that `label_affinity` names too"),
        ({"label_affinity": ("x",) * 101}, "0 to 100"),
        ({"affinity": "x", "anti_affinity": "x"}, "another group than `affinity`"),
        ({"vm_affinity": ("x",), "vm_anti_affinity": ("x",)}, "no workload that `vm_affinity` names too"),
        (
            {"affinity": "x", "anti_affinity": "x", "affinity_scope": "rack", "anti_affinity_scope": "rack"},
            "another group than `affinity`",
        ),
        ({"affinity": "x", "anti_affinity": "x", "anti_affinity_scope": "rack"}, "another group than `affinity`"),
        (prefers(PREFER.NODE_AFFINITY, PREFER.NODE_ANTI_AFFINITY), "not both this and node-affinity to it"),
        (prefers(PREFER.AFFINITY, PREFER.AFFINITY), "each preference once"),
        (prefers(PREFER.LABEL_AFFINITY) | {"label_anti_affinity": ("x",)}, "nothing that `label_anti_affinity` rules"),
        (prefers(PREFER.NODE_AFFINITY) | {"node_anti_affinity": ("x",)}, "nothing that `node_anti_affinity` rules"),
        ({"affinity_scope": ""}, '"node", or the key of a label'),
        ({"anti_affinity_scope": "rack=r1"}, '"node", or the key of a label'),
        ({"vm_affinity": ("x",) * 101}, "0 to 100"),
    ],
)
def test_rules_that_cannot_all_hold_are_refused(rules: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        Rules(**rules)  # type: ignore[arg-type]


def test_the_same_zone_on_different_nodes_is_no_contradiction() -> None:
    rules = Rules(affinity="db", anti_affinity="db", affinity_scope="zone", vm_affinity=("a",), vm_anti_affinity=("a",))
    assert rules.divisible
    assert Rules(**prefers(PREFER.AFFINITY, PREFER.LABEL_AFFINITY), anti_affinity="x").preferred[0].weight == 10  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"target": ""}, "the name of a node, label, workload or group"),
        ({"scope": "rack"}, "only affinity has a scope"),
        ({"weight": 0}, "1 to 100"),
        ({"weight": 101}, "1 to 100"),
        ({"weight": math.nan}, "1 to 100"),
    ],
)
def test_a_bad_preference_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        Preference(**({"kind": PREFER.LABEL_AFFINITY, "target": "ssd"} | fields))  # type: ignore[arg-type]


def test_a_label_is_not_both_required_and_ruled_out() -> None:
    with pytest.raises(InvalidValue, match="no label that `required_labels` names too"):
        job(required_labels=("ssd", "new"), rules=Rules(label_anti_affinity=("ssd",)))


def test_a_vm_is_named_after_its_workload_and_index() -> None:
    assert workload_of(instance_name("a-b", 12)) == ("a-b", 12)
    for wrong in ("a", "a#", "a#x", "#"):
        with pytest.raises(InvalidValue):
            workload_of(wrong)
