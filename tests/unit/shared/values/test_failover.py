"""Sentences about what lies on one host alone, and what a start needs elsewhere."""

from __future__ import annotations

import pytest

from shared.values.failover import HOST_FILES, host_file, host_file_sentence, start_needs


def test_everything_has_a_sentence() -> None:
    for kind in HOST_FILES:
        said = host_file_sentence(host_file(kind, "/a"))
        assert "{" not in said, kind
        assert not said.endswith("."), kind
    assert host_file_sentence("later=/a") == "its /a lies on its host alone"
    assert host_file_sentence("later=") == "its later lies on its host alone"
    with pytest.raises(KeyError):
        host_file("no-such-thing")


def test_what_a_definition_has_is_text_and_no_format() -> None:
    said = host_file_sentence(host_file("definition", "an element of another namespace: {q}commandline"))
    assert said == "its definition has an element of another namespace: {q}commandline, which no other host takes"


def test_needs_of_a_live_migration_alone_are_none_of_a_start() -> None:
    assert start_needs(("cpu=EPYC", "bound=invtsc", "bound=pci-device:x", "shared=/a")) == (
        "bound=pci-device:x",
        "shared=/a",
    )
