"""Agreements survive every change of notation: TOML to XML and back, XML to XML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daemons.manifests.agreement import AgreementFile, read_agreement, understood
from daemons.manifests.agreement_text import table_of, to_toml
from daemons.manifests.agreement_xml import from_xml, to_xml
from daemons.manifests.safe_xml import parse
from shared.base.errors import InvalidInput
from shared.values.agreement import Agreement, Granularity, Scheduling, WorkloadType
from tests.extent import examples
from tests.property.message_values import AGREEMENTS

SLOW = [HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


def known(table: Mapping[str, Any], cls: type[Any] = AgreementFile) -> dict[str, Any]:
    """The keys that a file may have."""
    hints = get_type_hints(cls)
    own = {field.name for field in fields(cls)}
    return {
        key: known(value, hints[key]) if isinstance(hints[key], type) and is_dataclass(hints[key]) else value
        for key, value in table.items()
        if key in own
    }


def without_null(value: Any) -> Any:
    """What TOML can say of a value."""
    if isinstance(value, Mapping):
        return {key: without_null(item) for key, item in value.items() if item is not None}
    return [without_null(item) for item in value if item is not None] if isinstance(value, list | tuple) else value


@settings(max_examples=examples(150), suppress_health_check=SLOW)
@given(agreement=AGREEMENTS)
def test_every_table_survives(agreement: Agreement) -> None:
    """Given any agreement, also one whose names nobody has registered, then each notation says the same keys."""
    table = known(table_of(understood(agreement)))

    assert table == {key: value for key, value in table_of(understood(agreement)).items() if key != "type"}
    assert from_xml(to_xml(table), AgreementFile) == table
    plain = without_null(table)
    assert tomllib.loads(to_toml(plain)) == plain
    assert tomllib.loads(to_toml(from_xml(to_xml(plain), AgreementFile))) == plain


@settings(max_examples=examples(50), suppress_health_check=SLOW)
@given(agreement=AGREEMENTS)
def test_every_agreement_survives(agreement: Agreement, tmp_path_factory: Any) -> None:
    """Given an agreement that can be asked for here, then both files are understood alike, checks and all."""
    folder: Path = tmp_path_factory.getbasetemp()
    valid = replace(
        agreement,
        model="flb-nub",
        lease_s=max(1.0, agreement.lease_s % 1e9),
        os_type="debian",
        os_version="12",
        scheduling=Scheduling(),
        type="",
        terms={},
        setup=replace(agreement.setup, limit_s=90.0),
        coordinated_with=agreement.coordinated_with if agreement.coordinated_with != agreement.name else "",
    )
    if valid.granularity is Granularity.VM and valid.template is not None:
        valid = replace(valid, template=replace(valid.template, max_mhz=2_000.0))
    other = "web" if valid.workload is WorkloadType.BATCH else "batch"
    table = known(table_of(understood(valid)))
    for name, text in (("a.toml", to_toml(table)), ("a.xml", to_xml(table))):
        (folder / name).write_text(text, "utf-8")
    found = read_agreement(folder / "a.toml")

    assert read_agreement(folder / "a.xml") == found
    assert known(table_of(understood(found))) == table
    assert getattr(found, other) == getattr(Agreement("x", "y", valid.workload, lower=0), other)


WORDS = "<RE_agreement> </RE_agreement> <setup> </setup> <type> </type> <terms> </terms> &amp; &b; <?a ?> <![CDATA[ ]]>"
MORE = ("<!DOCTYPE a [", "<!ENTITY b 'c'>", "]>", "<entry key='k'>", "</entry>", "<!--", "-->", " coding='json'")
PIECES = st.sampled_from((*WORDS.split(" "), *MORE, '"', "'", ">", "\0", "\ud800", "\ufeff"))


@settings(max_examples=examples(200))
@given(pieces=st.lists(PIECES | st.text(max_size=4), max_size=14))
def test_no_text_does_more_than_be_refused(pieces: list[str]) -> None:
    """Given any text, then it says keys, or is refused with reasons."""
    with suppress(InvalidInput):
        assert isinstance(from_xml("".join(pieces), AgreementFile), dict)


@settings(max_examples=examples(100))
@given(content=st.binary(max_size=60), at=st.integers(0, 40))
def test_no_bytes_do_more_than_be_refused(content: bytes, at: int) -> None:
    sound = b"<RE_agreement><name>night</name></RE_agreement>"
    with suppress(InvalidInput):
        assert parse(sound[:at] + content + sound[at:], "file", "XML").name
