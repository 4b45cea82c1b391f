"""What manual pages are written in."""

from __future__ import annotations

from daemons.cli.reference.roff import escaped, head


def test_nothing_in_a_text_is_a_request() -> None:
    assert escaped(".x\n'y\na.b --c \\d") == "\\&.x\n\\&'y\na.b \\-\\-c \\ed"


def test_a_page_begins_with_its_title_and_name() -> None:
    assert list(head("trimtab-x", 5, "1.2", "Does things.")) == [
        '.TH "TRIMTAB\\-X" 5 "" "trimtab 1.2" "Trimtab"',
        ".SH NAME",
        "trimtab\\-x \\- Does things",
    ]
