"""The table `rules` of a file: what it means, and what is wrong with it, by key."""

from __future__ import annotations

import pytest

from daemons.manifests.job import JobFile, job_of
from daemons.manifests.rules import rules_of, understood
from shared.base.errors import InvalidInput
from shared.config import toml
from shared.values.jobs import Preference, PreferenceKind, Rules

JOB = """name = "j"
required_labels = ["fast"]
[[stages]]
work_mcycles = 1
max_mhz = 1
[rules]
"""
GOOD = """node_affinity = ["n1", "n2"]
anti_affinity = "db"
anti_affinity_scope = "rack"
label_affinity = ["ssd", "rack=r1"]
label_anti_affinity = ["old"]
vm_affinity = ["cache"]
affinity_scope = "zone"
vm_anti_affinity = ["j"]
preferred = [
  { label_affinity = "ssd", weight = 20 },
  { anti_affinity = "web", scope = "rack" },
]
"""


def read(rules: str) -> Rules:
    return job_of(toml.parse(JOB + rules, JobFile), 0.0, "job.toml").rules


def refused(rules: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(rules)
    return str(caught.value)


def test_every_key_is_read_and_shown() -> None:
    rules = read(GOOD)
    assert rules == Rules(
        ("n1", "n2"),
        anti_affinity="db",
        label_affinity=("ssd", "rack=r1"),
        label_anti_affinity=("old",),
        affinity_scope="zone",
        anti_affinity_scope="rack",
        vm_affinity=("cache",),
        vm_anti_affinity=("j",),
        preferred=(
            Preference(PreferenceKind.LABEL_AFFINITY, "ssd", weight=20),
            Preference(PreferenceKind.ANTI_AFFINITY, "web", "rack"),
        ),
    )
    shown = understood(rules)
    assert shown["preferred"] == [
        {"label_affinity": "ssd", "weight": 20},
        {"anti_affinity": "web", "scope": "rack", "weight": 10},
    ]
    assert shown["label_affinity"] == ["ssd", "rack=r1"]
    assert (shown["vm_affinity"], shown["anti_affinity_scope"]) == (["cache"], "rack")
    assert rules_of(toml.parse(JOB, JobFile).rules) == Rules()


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("preferred = [{ weight = 5 }]", "rules.preferred[0].scope: is 'node' (expected exactly one of node_affinity"),
        (
            'preferred = [{ affinity = "a", node_affinity = "n1" }]',
            "rules.preferred[0].scope: is 'node' (expected exactly",
        ),
        (
            'preferred = [{ node_affinity = "n1", scope = "rack" }]',
            "expected no scope: only affinity and anti_affinity",
        ),
        ('preferred = [{ affinity = "a", weight = 101 }]', "rules.preferred[0].weight: is 101"),
        ('preferred = [{ affinity = "a" }, { affinity = "a" }]', "rules.preferred[1].affinity: is 'a' (expected each"),
        (
            'preferred = [{ affinity = "a" }, { anti_affinity = "a" }]',
            "rules.preferred[0].affinity: is 'a' (expected nothing that rules.preferred[1].anti_affinity has)",
        ),
        (
            'node_anti_affinity = ["n1"]\npreferred = [{ node_affinity = "n1" }]',
            "rules.preferred[0].node_affinity: is 'n1' (expected nothing that rules.node_anti_affinity has)",
        ),
        (
            'label_anti_affinity = ["fast"]',
            "rules.label_anti_affinity: is ('fast',) (expected nothing that required_labels",
        ),
        (
            'label_affinity = ["a"]\nlabel_anti_affinity = ["a"]',
            "rules.label_anti_affinity: is ('a',) (expected nothing that rules.label_affinity has)",
        ),
        (
            'vm_affinity = ["a"]\nvm_anti_affinity = ["a"]',
            "rules.vm_anti_affinity: is ('a',) (expected nothing that rules.vm",
        ),
        (
            'affinity = "a"\nanti_affinity = "a"',
            "rules.anti_affinity: is 'a' (expected nothing that rules.affinity has)",
        ),
        ('affinity_scope = "rack=r1"', "rules.affinity_scope: is 'rack=r1'"),
        ('preferred = [{ afinity = "a" }]', "no such key (expected rules.preferred[0].affinity)"),
    ],
)
def test_what_is_wrong_is_named(rules: str, said: str) -> None:
    assert said in refused(rules)


def test_a_wider_affinity_does_not_contradict() -> None:
    """The same zone, on different nodes."""
    assert read('affinity = "a"\nanti_affinity = "a"\naffinity_scope = "zone"').divisible
