"""The tables of the reference pages, made of the source of all codes."""

from __future__ import annotations

import pytest

from daemons.codes.catalogue import ALL
from daemons.codes.pages import PAGES, generated, tables
from tests.architecture.test_documents import first_column


def test_every_code_has_a_row_on_one_page() -> None:
    rows = [code for page in PAGES for code in first_column(tables(page))]

    assert sorted(rows) == sorted(each.code for each in ALL)


def test_rows_of_a_table_have_as_many_cells_as_its_head() -> None:
    for page in PAGES:
        for table in tables(page).split("\n\n"):
            rows = [line.replace("\\|", "").count("|") for line in table.splitlines() if line.startswith("|")]
            assert len(set(rows)) <= 1


def test_what_is_above_the_marker_stays() -> None:
    """And what was below it is made again, however often."""
    page = "# Alarms\n\nBy hand.\n\n<!-- generated: alarms -->\nxyzzy\n"

    made = generated("alarms", page)

    assert made.startswith("# Alarms\n\nBy hand.\n\n<!-- generated: alarms -->\n\n## Controller and decisions\n")
    assert "| `node-off` | It was fenced or confirmed off; its VMs count as lost. | Switch it on again, or" in made
    assert "[Details](../how-to/plans.md)." in made
    assert "xyzzy" not in made
    assert generated("alarms", made) == made


def test_a_page_without_a_marker_is_refused() -> None:
    with pytest.raises(ValueError, match="<!-- generated: codes -->"):
        generated("codes", "# Codes\n")
