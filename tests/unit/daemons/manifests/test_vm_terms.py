"""Terms of VMs by pattern: which table counts, and every mistake by its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemons.manifests.vm_terms import AssignedTerms, read_rules, read_terms
from shared.base.errors import InvalidInput
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
    assert (first.table, first.match) == (0, "db-?")
    assert first.rules.vm_anti_affinity == ("db-2",)
    assert [(one.kind, one.target) for one in first.rules.preferred] == [(PreferenceKind.LABEL_AFFINITY, "ssd")]
    other = VmTerms(on_shutdown=OnShutdown.RESTART, moves_per_day=1, pause_s_per_day=2.5)
    assert found["db-10"] == found["www"] == AssignedTerms(terms=other, table=1, match="*")


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
        read_terms(file_of(tmp_path, text), ["a1"], ["a1", "b1"])
    assert words in str(caught.value)


def test_patterns_are_held_against_all_vms(tmp_path: Path) -> None:
    """Given tables for other VMs than those that are chosen, then they are no mistake."""
    path = file_of(tmp_path, '[[vms]]\nmatch = "a*"\n[[vms]]\nmatch = "b*"\n')
    assert set(read_terms(path, ["a1"], ["a1", "b1"])) == {"a1"}
    assert set(read_terms(path, ["a1"])) == {"a1"}
    with pytest.raises(InvalidInput, match=r"vms\[1\].match: is 'b\*', which matches none of the VMs"):
        read_terms(path, ["a1"], ["a1", "c1"])


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (["web-01", "db-1"], "(expected a name such as 'web-01', or a pattern)"),
        (["e", "d", "c", "b"], "(expected a name such as 'b', 'c', 'd', or a pattern)"),
        ([], "(expected no table, because there are no VMs)"),
    ],
)
def test_a_pattern_of_no_vm_is_said_with_names_that_exist(tmp_path: Path, there: list[str], words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_terms(file_of(tmp_path, '[[vms]]\nmatch = "wbe-0*"\n'), [], there)
    assert words in str(caught.value)


def test_a_table_of_rules_alone(tmp_path: Path) -> None:
    assert read_rules(file_of(tmp_path, '[rules]\naffinity = "db"\naffinity_scope = "rack"\n')) == Rules(
        affinity="db", affinity_scope="rack"
    )
    assert read_rules(file_of(tmp_path, "[rules]\n")) == Rules()
    with pytest.raises(InvalidInput, match="rules"):
        read_rules(file_of(tmp_path, ""))
