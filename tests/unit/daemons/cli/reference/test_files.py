"""Which files have a reference."""

from __future__ import annotations

import pytest

from daemons.cli.reference.files import FILES


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_read_by_the_class_that_it_names(name: str) -> None:
    assert FILES[name].cls.__module__ == FILES[name].model.partition(":")[0]


def test_the_keys_of_each_kind_of_channel_follow_those_of_notifications() -> None:
    found = [(section.name, section.when) for section in FILES["controller"].sections]
    at = found.index(("notify.rules[]", ""))

    assert found[at + 1 : at + 5] == [
        ("notify.channels.*", 'kind = "webhook"'),
        ("notify.channels.*", 'kind = "email"'),
        ("notify.channels.*", 'kind = "command"'),
        ("store", ""),
    ]


def test_a_channel_begins_with_its_kind() -> None:
    section = next(section for section in FILES["controller"].sections if section.when)

    assert section.keys[0].name == "notify.channels.*.kind"
    assert (section.keys[0].is_required, section.keys[0].example) == (True, '"webhook"')
    assert section.keys[1].name == "notify.channels.*.url"


def test_rules_are_those_of_the_class() -> None:
    assert "`max_instances` is at least `min_instances`." in FILES["web"].rules
