"""Agreements in XML: every key in both notations, what is wrong said with its element, and files that mean harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemons.manifests.agreement import AgreementFile, read_agreement, understood
from daemons.manifests.agreement_text import table_of, to_toml
from daemons.manifests.agreement_xml import from_xml, to_xml
from daemons.manifests.safe_xml import ATTRIBUTES_MAX, DEPTH_MAX, ELEMENTS_MAX, FILE_BYTES_MAX
from shared.base.errors import InvalidInput, Problem
from shared.values.agreement import Agreement, Relationship, Scheduling, WorkloadType
from shared.values.host_setup import SetupPolicy
from tests.architecture.sources import ROOT

FIGURE_3 = """<RE_agreement>
  <name>night</name>
  <owner>kim</owner>
  <relationship>business </relationship>
  <type> parallel_batch_jobs </type>
  <coordinated_RE>Yes</coordinated_RE>
  <granularity>node </granularity>
  <resource_coordination_model>FLB_NUB</resource_coordination_model>
  <lower_bound_size>100</lower_bound_size>
  <upper_bound_size>null</upper_bound_size>
  <setup_policy>NOOP</setup_policy>
</RE_agreement>
"""


def read(tmp_path: Path, text: str | bytes) -> Agreement:
    path = tmp_path / "env.xml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_agreement(path)


def problems(tmp_path: Path, text: str | bytes) -> dict[str, Problem]:
    """By line and element."""
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, text)
    return {
        each.where.removeprefix(f"{tmp_path / 'env.xml'}").removeprefix(":"): each for each in caught.value.problems
    }


def problem(tmp_path: Path, text: str | bytes) -> Problem:
    """The only one."""
    (found,) = problems(tmp_path, text).values()
    return found


def test_figure_3(tmp_path: Path) -> None:
    """Given what the paper prints, as text of elements, and the two names that it leaves out."""
    expected = Agreement(
        "night",
        "kim",
        WorkloadType.BATCH,
        lower=100,
        model="flb-nub",
        relationship=Relationship.BUSINESS,
        shares=True,
    )
    assert read(tmp_path, FIGURE_3) == expected


@pytest.mark.parametrize("name", ["batch", "web"])
def test_examples_in_both_notations(name: str, tmp_path: Path) -> None:
    agreement = read_agreement(ROOT / f"examples/env-{name}.toml")
    table = table_of(understood(agreement))

    assert read(tmp_path, to_xml(table)) == agreement
    (tmp_path / "again.toml").write_text(to_toml(table), "utf-8")
    assert read_agreement(tmp_path / "again.toml") == agreement
    assert from_xml(to_xml(table), AgreementFile) == table


def test_the_words_of_the_paper_and_ours_mean_the_same(tmp_path: Path) -> None:
    ours = FIGURE_3.replace("FLB_NUB", "flb-nub").replace("NOOP", "wipe").replace("Yes", "true")
    found = read(tmp_path, ours.replace("parallel_batch_jobs", "web_services"))
    assert (found.model, found.setup.policy, found.shares) == ("flb-nub", SetupPolicy.WIPE, True)
    assert found.workload is WorkloadType.WEB


def test_parameters_of_any_type(tmp_path: Path) -> None:
    """Given parameters of a policy, which say of what type they are."""
    inner = '<scheduling><policy>edf</policy><params><entry key="preempt" type="boolean">false</entry></params>'
    found = read(tmp_path, FIGURE_3.replace("</RE_", f"{inner}</scheduling></RE_"))
    assert found.scheduling == Scheduling("edf", {"preempt": False})


def test_what_nodes_are_set_up_with(tmp_path: Path) -> None:
    """Given tables that repeat, then elements that do; what is wrong in one names it."""
    digest = "0123456789abcdef" * 4
    inner = (
        f"<setup><packages><name>nginx</name><sha256>{digest}</sha256></packages>"
        f"<packages><name>curl</name><sha256>{digest}</sha256><version>7.88</version></packages>"
        "<services>shop.service</services></setup>"
    )
    text = FIGURE_3.replace("</RE_", f"{inner}</RE_")
    found = read(tmp_path, text).setup
    assert [(each.name, each.version) for each in found.packages] == [("nginx", ""), ("curl", "7.88")]
    assert found.services == ("shop.service",)
    wrong = problem(tmp_path, text.replace("<name>curl</name>", "<name>CURL</name>"))
    assert wrong.where.endswith("env.xml:12: setup/packages[1]/name")


def test_a_word_for_nothing_can_be_a_name(tmp_path: Path) -> None:
    """Given a policy that is called null, then it is told from none."""
    table = {"name": "night", "scheduling": {"policy": "null"}}
    assert from_xml(to_xml(table), AgreementFile) == table
    with pytest.raises(InvalidInput, match="is 'null'"):
        read(tmp_path, FIGURE_3.replace("</RE_", '<scheduling><policy coding="json">"null"</policy></scheduling></RE_'))


def test_every_problem_at_once_with_its_element(tmp_path: Path) -> None:
    wrong = (
        FIGURE_3.replace("kim", "k.im")
        .replace("100", "many")
        .replace("parallel_batch_jobs", "render")
        .replace("<granularity>", '<granularity kind="x">')
        .replace("</RE_", "  <lower_bound>3</lower_bound><setup><limit_s>0</limit_s></setup>\n<name>x</name></RE_")
    )
    found = problems(tmp_path, wrong)
    assert set(found) == {
        "3: owner",
        "5: type",
        "7: granularity",
        "9: lower_bound_size",
        "12: lower_bound",
        "12: setup/limit_s",
        "13: name",
    }
    assert found["9: lower_bound_size"].what == "is 'many'"
    assert "a whole number from 0" in found["9: lower_bound_size"].expected
    assert "parallel_batch_jobs" in found["5: type"].expected
    assert found["12: lower_bound"].expected == "<lower_bound_size>"
    assert "again, after line 2" in found["13: name"].what


@pytest.mark.parametrize(
    ("old", "new", "where", "words"),
    [
        ("<owner>kim</owner>", "", "owner", "1 to 128"),
        ("FLB_NUB", "FBB", "8: resource_coordination_model", "one of dedicated, fb"),
        ("NOOP", "EXEC", "setup/command", "a command that agents know"),
        ("null", "3", "10: upper_bound_size", "at least 100"),
        ("<granularity>node ", "<granularity>vm", "7: granularity", "an element <template>"),
        ("</RE_", "<web/></RE_", "5: type", "no element <web>"),
        ("</RE_", "<setup><policy>noop</policy></setup></RE_", "12: setup/policy", "<command>"),
        ("</RE_", "hello</RE_", "1: RE_agreement", "elements alone"),
        ("</RE_", "<users><b/>joe</users></RE_", "12: b", "text alone"),
        ("</RE_", "<users>joe</users><users>joe</users></RE_", "12: users", "each once"),
        ("</RE_", "<terms2/></RE_", "12: terms2", ""),
        ("</RE_", '<os_type coding="base64">x</os_type></RE_', "12: os_type", 'coding="json"'),
        ("</RE_", '<os_type coding="json">12</os_type></RE_', "12: os_type", 'coding="json"'),
    ],
)
def test_problems(old: str, new: str, where: str, words: str, tmp_path: Path) -> None:
    found = problems(tmp_path, FIGURE_3.replace(old, new))
    named = [each for place, each in found.items() if place.endswith(where)]
    assert named, found
    assert words in named[0].expected


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ('<entry key="a"/><entry key="a"/>', "every key once"),
        ("<entry>1</entry>", "<entry key="),
        ('<entry key="a" json_key="b"/>', "<entry key="),
        ('<entry key="a" type="integer">1.5</entry>', "a value of type integer"),
        ('<entry key="a" type="date">1</entry>', "one of string, integer"),
        ('<entry key="a" type="null">1</entry>', "nothing, for null"),
        ('<entry key="a" type="array"><entry key="b"/></entry>', "<item>"),
        ('<entry key="a" type="array">1</entry>', "elements alone"),
        ("<preempt>false</preempt>", "<entry key="),
        ('<entry key="a" lang="en">1</entry>', "values are the text of elements"),
    ],
)
def test_problems_of_parameters(inner: str, words: str, tmp_path: Path) -> None:
    text = FIGURE_3.replace("</RE_", f"<scheduling><params>{inner}</params></scheduling></RE_")
    assert any(words in each.expected for each in problems(tmp_path, text).values())


# --- files that mean harm ---------------------------------------------------------------------------------------------

LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
MANY_ATTRIBUTES = "".join(f' a{n}="1"' for n in range(ATTRIBUTES_MAX + 1))
BOMB = f'<!DOCTYPE RE_agreement [<!ENTITY l0 "ha">{LAUGHS}]>' + FIGURE_3.replace("kim", "&l9;")
QUADRATIC = f'<!DOCTYPE RE_agreement [<!ENTITY a "{"a" * 50_000}">]>' + FIGURE_3.replace("kim", "&a;" * 50_000)
OUTSIDE = '<!DOCTYPE RE_agreement [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + FIGURE_3.replace("kim", "&x;")
PARAMETER = '<!DOCTYPE RE_agreement [<!ENTITY % p SYSTEM "http://127.0.0.1:1/x.dtd"> %p;]>' + FIGURE_3


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (BOMB, "holds a document type"),
        (QUADRATIC, "holds a document type"),
        (OUTSIDE, "holds a document type"),
        (PARAMETER, "holds a document type"),
        ('<!DOCTYPE RE_agreement SYSTEM "file:///etc/passwd">' + FIGURE_3, "holds a document type"),
        (FIGURE_3.replace("kim", "&x;"), "undefined entity"),
        ("<?php 1 ?>" + FIGURE_3, "holds a processing instruction"),
        (FIGURE_3.encode("utf-16"), "not UTF-8"),
        (FIGURE_3.encode("utf-16-le"), "holds a null character"),
        ('<?xml version="1.0" encoding="UTF-7"?>' + FIGURE_3, "says that it is in another encoding"),
        ('<?xml version="1.0" encoding="UTF-7"?>+ADw-RE_agreement+AD4-', "says that it is in another encoding"),
        ('<?xml version="1.0" encoding="utf-16"?>' + FIGURE_3, "says that it is in another encoding"),
        ('<?xml version="1.1"?>' + FIGURE_3, "is not XML 1.0"),
        (FIGURE_3.replace("kim", "k\0im"), "holds a null character"),
        (FIGURE_3.replace("kim", "k&#0;im"), "reference to invalid character number"),
        (b"\xff" + FIGURE_3.encode(), "not UTF-8"),
        (" " * (FILE_BYTES_MAX + 1), "too large"),
        ("", "no element found"),
        ("<RE_agreement>" * (DEPTH_MAX + 1), "is nested too deeply"),
        (f"<RE_agreement>{'<users/>' * ELEMENTS_MAX}</RE_agreement>", "has too many elements"),
        (f"<RE_agreement{MANY_ATTRIBUTES}/>", "has too many attributes"),
        (FIGURE_3.replace("<owner>", '<owner a="1" a="2">'), "duplicate attribute"),
        (FIGURE_3.replace("</owner>", ""), "mismatched tag"),
        (FIGURE_3 + "<more/>", "junk after document element"),
        ('<RE_agreement><relationship="business "></relationship></RE_agreement>', "not well-formed (invalid token)"),
        ("<agreement/>", "is the element <agreement>"),
    ],
)
def test_files_that_are_refused(text: str | bytes, what: str, tmp_path: Path) -> None:
    """Given a file that is no agreement or means harm, then the reason is said and nothing of it is used."""
    assert problem(tmp_path, text).what == what


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        read_agreement(tmp_path / "none.xml")


def test_what_toml_cannot_say() -> None:
    with pytest.raises(InvalidInput, match="cannot be said in TOML"):
        to_toml({"terms": {"a": None}})
