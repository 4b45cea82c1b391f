"""Terms of VMs by pattern: which table counts, and every mistake by its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemons.manifests.vm_terms import AssignedTerms, read_rules, read_terms, with_changes
from shared.base.errors import InvalidInput, InvalidValue
from shared.values.jobs import PreferenceKind, Rules
from shared.values.vm_terms import OnShutdown, VmAutomation, VmTerms


def file_of(folder: Path, text: str) -> Path:
    path = folder / "vms.toml"
    path.write_text(text)
    return path


def test_the_first_table_that_matches_counts(tmp_path: Path) -> None:
    path = file_of(
        tmp_path,
        '[[vms]]\nmatch = "db-?"\nimportance = 3\nautomation = "off"\n'
        'rules = { vm_anti_affinity = ["db-2"], preferred = [ { label_affinity = "ssd" } ] }\n'
        '[[vms]]\nmatch = "*"\non_shutdown = "restart"\nmoves_per_day = 1\npause_s_per_day = 2.5\n',
    )
    found = read_terms(path, ["db-1", "db-10", "www"])
    first = found["db-1"]
    assert (first.importance, first.terms) == (3.0, VmTerms(automation=VmAutomation.OFF))
    assert first.rules.vm_anti_affinity == ("db-2",)
    assert [(one.kind, one.target) for one in first.rules.preferred] == [(PreferenceKind.LABEL_AFFINITY, "ssd")]
    other = VmTerms(on_shutdown=OnShutdown.RESTART, moves_per_day=1, pause_s_per_day=2.5)
    assert found["db-10"] == found["www"] == AssignedTerms(terms=other)


def test_one_that_no_pattern_matches_is_left_out(tmp_path: Path) -> None:
    assert set(read_terms(file_of(tmp_path, '[[vms]]\nmatch = "a*"\n'), ["a1", "b1"])) == {"a1"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[vms]]\nmatch = "x*"\n', "vms[0].match: is 'x*'"),
        (
            '[[vms]]\nmatch = "a*"\nrules = { node_affinity = ["n1"], node_anti_affinity = ["n1"] }\n',
            "node_anti_affinity",
        ),
        (
            '[[vms]]\nmatch = "a*"\nrules = { preferred = [ { affinity = "x", node_affinity = "n1" } ] }\n',
            "exactly one",
        ),
        ('[[vms]]\nmatch = "a*"\npause_s_per_day = 0\n', "pause_s_per_day"),
        ('[[vms]]\nmatch = "a b"\n', "match"),
        ("", "vms"),
    ],
)
def test_mistakes_are_named_by_their_key(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_terms(file_of(tmp_path, text), ["a1"])
    assert words in str(caught.value)


def test_a_table_of_rules_alone(tmp_path: Path) -> None:
    assert read_rules(file_of(tmp_path, '[rules]\naffinity = "db"\naffinity_scope = "rack"\n')) == Rules(
        affinity="db", affinity_scope="rack"
    )
    assert read_rules(file_of(tmp_path, "[rules]\n")) == Rules()
    with pytest.raises(InvalidInput, match="rules"):
        read_rules(file_of(tmp_path, ""))


def test_changes_leave_what_is_not_given() -> None:
    terms = with_changes(VmTerms(moves_per_day=2), suspend=True, automation=None)
    assert terms == VmTerms(moves_per_day=2, suspend=True)
    with pytest.raises(InvalidValue, match="moves_per_day"):
        with_changes(terms, moves_per_day=0)
