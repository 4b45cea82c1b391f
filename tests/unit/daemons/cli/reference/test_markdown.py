"""The reference as pages of the documentation."""

from __future__ import annotations

from daemons.cli.reference.files import FILES
from daemons.cli.reference.markdown import cell, code, escaped, page_of, paragraph, table, tables_of


def test_a_page_has_the_tables_of_its_file_rules_and_links() -> None:
    page = page_of(FILES["agent"])

    assert page.startswith("# agent.toml\n\n<!-- ")
    assert "| Key | Type | Default | Change | Meaning |\n|---|---|---|---|---|\n" in page
    assert "\n## `[libvirt.templates.NAME]`\n\nA VM template, which jobs" in page
    assert "\n| `file` | string: an absolute path | required | restart | File of the domain XML." in page
    assert "\n* `node.type`, unless empty, is a name in the table `node_types`.\n" in page
    assert "\n* [how-to/first-node.md](../how-to/first-node.md)\n" in page
    assert "\n* [examples/reference/agent.toml](../../examples/reference/agent.toml)\n" in page


def test_a_file_that_no_daemon_reads_needs_nothing_after_a_change() -> None:
    page = page_of(FILES["job"])

    assert "| Key | Type | Default | Meaning |" in page
    assert "SIGHUP" not in page


def test_tables_stand_under_headings_of_the_level_that_is_asked_for() -> None:
    headings = [line for line in tables_of(FILES["operator"], 3) if line.startswith("#")]

    assert headings == ["### Top level", "### `[bus]`", "### `[bus.tls]`"]


def test_cells_and_code_keep_what_is_special() -> None:
    assert cell("a | b\nc") == "a \\| b c"
    assert code("a") == "`a`"
    assert code("a`b") == "`` a`b ``"
    assert escaped("a * `b * c` [d] <e>") == "a \\* `b * c` \\[d\\] \\<e\\>"


def test_tables_and_paragraphs() -> None:
    assert list(table(("A", "B"), [("1", "2")])) == ["| A | B |", "|---|---|", "| 1 | 2 |"]
    assert paragraph("word " * 30) == [("word " * 28).strip(), "word word"]
