"""What of a page is a session, when an output is as the page says, and what a shell passes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.matching import abridged, line_matches, matches, rewritten, shape
from tests.docs.pages import Block, Command, Kind, Page, read_page
from tests.docs.sessions import Ran, differences, main, renumbered, run_page, session_pages, written
from tests.docs.shell import Shell


def page_of(folder: Path, text: str) -> Page:
    """A page with this text."""
    file = folder / "page.md"
    file.write_text(text)
    page = read_page(file)
    assert page is not None
    return page


# --- matching ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("node host1 is up", "node host1 is up"),
        ("decided 2026-11-28T15:00:01Z", "decided 2030-01-01T00:00:00Z"),
        ("opens 2026-10-24 18:00 +0200", "opens 2026-11-28 18:00 +0100"),
        ("report age  0.419 s", "report age  12 s"),
        ("ends in 9 min 58 s", "ends in 10 min"),
        ("10 passed in 0.64s", "10 passed in 1.2s"),
        ("progress   0.5 %  -", "progress   12 %     -"),
        ("used 3,982.05 MHz", "used 12.5 MHz"),
        ("request 46caf87b747b43b1a0e61f41098e640b", "request b732d391d2c548799ec98ce47e22115e"),
        (" ─────── ", "──"),
        ("after=0.49915 gain=none", "after=0.5 gain=none"),
        ("password ...", "password 1c5e90b2"),
        ("... ran in ...", "it ran in no time"),
    ],
)
def test_lines_that_match(expected: str, printed: str) -> None:
    assert line_matches(expected, printed)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("node host1 is up", "node host2 is up"),
        ("cpu 4,000 MHz", "cpu 8,000 MHz"),
        ("decision 10", "decision 11"),
        ("3 hosts", "4 hosts"),
        ("a.b", "axb"),
        ("password ...", "passwort 1c5e90b2"),
        ("ends at 2026-11-28T15:00:01Z", "ends at -"),
        ("batch-1 on host1", "batch-2 on host1"),
        ("", "more"),
    ],
)
def test_lines_that_do_not_match(expected: str, printed: str) -> None:
    assert not line_matches(expected, printed)


def test_names_keep_their_numbers() -> None:
    assert shape("host1 render#0 batch-10 1-11 v0.1.0") == "host1 render#0 batch-10 1-11 v0.1.0"


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a b", "a b", True),
        ("a b", "a", False),
        ("a", "a b", False),
        ("... b", "a a b", True),
        ("... b", "b", True),
        ("a ...", "a b c", True),
        ("a ... c", "a c", True),
        ("a ... c", "a b b c", True),
        ("a ... c", "a b", False),
        ("... b ... d", "b b c d", True),
        ("... b ... d", "a b c", False),
        ("b ...", "a b", False),
        ("...", "", True),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_a_line_of_dots_is_any_lines(expected: str, printed: str, same: bool) -> None:
    assert matches(expected.split(), printed.split()) is same


def test_blank_lines_at_the_ends_and_blanks_at_line_ends_do_not_count() -> None:
    assert matches(["", "a", "", "b", ""], ["a  ", "", "b   ", "", ""])


def test_what_matches_is_not_rewritten() -> None:
    assert rewritten(["at 2026-11-28T15:00:01Z", "..."], ["at 2030-01-01T00:00:00Z", "b"]) == (
        "at 2026-11-28T15:00:01Z",
        "...",
    )


def test_what_differs_is_rewritten_but_for_lines_with_dots() -> None:
    old = ["portal runs", "password ..., for good", "gone"]

    assert rewritten(old, ["controller runs", "password 8a04, for good"]) == (
        "controller runs",
        "password ..., for good",
    )


def test_of_what_differs_only_what_is_to_be_shown_is_written() -> None:
    printed = ["job a", "name a", "phase running", "order 1", "held no", "cpu 1"]

    new = rewritten(["old"], printed, "^job|phase|cpu")

    assert new == ("job a", "...", "phase running", "...", "cpu 1")
    assert matches(new, printed)


def test_a_rule_and_what_is_wrapped_go_with_the_line_above() -> None:
    printed = ["a", "───", "1", "b", "───", " c    words", "       ", " c    words", "        more", "d"]

    assert abridged(printed, "^b|c") == ("...", "b", "───", " c    words", "...", " c    words", "        more", "...")


def test_a_text_of_dots_alone_is_written() -> None:
    assert rewritten(["..."], ["a"]) == ("a",)


def test_numbers_are_exchanged_where_they_stand_alone() -> None:
    numbers = {"12": "10"}

    assert renumbered("decision 12, plan approve 12", numbers) == "decision 10, plan approve 10"
    assert renumbered("12,000 MHz 0.12 s host12 2026-12-12 1-12", numbers) == "12,000 MHz 0.12 s host12 2026-12-12 1-12"


# --- pages ------------------------------------------------------------------------------------------------------------


def test_a_page_without_the_comment_is_no_session(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("```console\n$ true\n```\n")

    assert session_pages(tmp_path) == []


def test_blocks_of_a_page(tmp_path: Path) -> None:
    page = page_of(
        tmp_path,
        """<!-- session: shell -->
```console
$ one
a

$ two
> more
$ three
```
text
<!-- not run -->
```console
$ never
```
```sh
never
```
<!-- run -->
```sh
four
five
```
1. step

   <!-- number: 10 = decision (\\d+) -->

   <!-- until: up$ -->
   <!-- show: b|c -->
   ```console
   $ six
   b
   ```
""",
    )

    assert page.kind is Kind.SHELL
    assert [[command.text for command in block.commands] for block in page.blocks] == [
        ["one", "two\nmore", "three"],
        ["four\nfive"],
        ["six"],
    ]
    assert [command.expected for command in page.blocks[0].commands] == [("a", ""), (), ()]
    assert page.blocks[1].commands[0].expected is None
    last = page.blocks[2]
    assert (last.until, last.show, last.number, last.number_pattern) == ("up$", "b|c", "10", r"decision (\d+)")
    assert last.indent == "   "


def test_what_readers_do_not_see_and_files_are_commands_too(tmp_path: Path) -> None:
    text = """<!-- session: shell -->
  <!-- setup: one -->
<!-- setup: two -->

<!-- file: job.toml -->
```toml
name = "$x"

[goal]
```
```toml
other = 1
```
"""
    page = page_of(tmp_path, text)

    assert [command.text for block in page.blocks for command in block.commands] == [
        "one",
        "two",
        "cat >job.toml <<'END_OF_FILE'\nname = \"$x\"\n\n[goal]\nEND_OF_FILE",
    ]
    assert all(command.expected is None for block in page.blocks for command in block.commands)


def test_an_option_is_of_the_next_block_alone(tmp_path: Path) -> None:
    text = "<!-- session: demo -->\n<!-- not run -->\nText.\n\n```console\n$ one\n```\n```console\n$ two\n```\n"

    assert len(page_of(tmp_path, text).blocks) == 2


@pytest.mark.parametrize("text", ["<!-- session: lab -->", "<!-- session: demo -->\n```console\noutput\n```"])
def test_a_page_that_cannot_be_run_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "page.md").write_text(text)

    with pytest.raises(ValueError, match=r"lab|begins with a command"):
        session_pages(tmp_path)


def test_what_was_printed_is_written_in_its_place(tmp_path: Path) -> None:
    text = "<!-- session: shell -->\n  ```console\n  $ one\n  old\n  $ two\n  ```\nend\n"
    page = page_of(tmp_path, text)
    (block,) = page.blocks
    ran = [Ran(block, block.commands[0], ("new", "", "lines")), Ran(block, block.commands[1], ("out",))]

    assert written(page, ran).splitlines()[1:] == [
        "  ```console",
        "  $ one",
        "  new",
        "",
        "  lines",
        "  $ two",
        "  out",
        "  ```",
        "end",
    ]


def test_a_difference_names_page_line_and_command(tmp_path: Path) -> None:
    page = page_of(tmp_path, "<!-- session: shell -->\n```console\n$ one\nold\n```\n")
    (block,) = page.blocks

    (text,) = differences(page, [Ran(block, block.commands[0], ("new",))])

    assert text.splitlines()[0] == "page.md:3: $ one"
    assert {"-old", "+new"} <= set(text.splitlines())


# --- running ----------------------------------------------------------------------------------------------------------


def printed(text: str, folder: Path) -> list[tuple[str, ...]]:
    """What the commands of a page print."""
    return [ran.printed for ran in run_page(page_of(folder, f"<!-- session: shell -->\n{text}"))]


def test_what_one_command_sets_is_there_for_the_next(tmp_path: Path) -> None:
    text = (
        "<!-- run -->\n```sh\ncat >f <<'END'\n$x\nEND\ncd /tmp\n```\n```console\n$ x=1\n$ cat ~/f; pwd; echo $x\n```\n"
    )

    assert printed(text, tmp_path)[2] == ("$x", "/tmp", "1")


def test_the_screen_has_80_columns_and_no_colours(tmp_path: Path) -> None:
    size = "python3 -c 'import os; print(os.get_terminal_size().columns)'"
    text = f"```console\n$ {size}; echo $COLUMNS; printf '\\e[1mb\\e[0m'\n```\n"

    assert printed(text, tmp_path) == [("80", "80", "b")]


def test_both_outputs_are_printed_and_input_is_empty(tmp_path: Path) -> None:
    assert printed("```console\n$ cat; echo out; echo err >&2; (exit 3)\n$ echo $?\n```\n", tmp_path) == [
        ("out", "err"),
        ("0",),
    ]


def test_a_mistake_does_not_end_the_session(tmp_path: Path) -> None:
    first, second = printed("```console\n$ if\n$ echo on\n```\n", tmp_path)

    assert "syntax error" in first[0]
    assert second == ("on",)


def test_until_repeats_the_last_command(tmp_path: Path) -> None:
    text = "<!-- until: xx -->\n```console\n$ rm -f f\n$ printf x >>f; cat f\n```\n"

    assert printed(text, tmp_path) == [(), ("xx",)]


def test_a_script_that_fails_is_a_problem(tmp_path: Path) -> None:
    page = page_of(tmp_path, "<!-- session: shell -->\n<!-- run -->\n```sh\nfalse\n```\n")

    (text,) = differences(page, list(run_page(page)))

    assert "it ended with status 1" in text


def test_a_setup_that_fails_is_a_problem(tmp_path: Path) -> None:
    page = page_of(tmp_path, "<!-- session: shell -->\n<!-- setup: echo why; false -->\n")

    (text,) = differences(page, list(run_page(page)))

    assert text.splitlines()[:2] == ["page.md:2: $ echo why; false", "it ended with status 1"]
    assert "+why" in text


def test_a_file_is_in_the_folder_of_the_session_beside_the_examples(tmp_path: Path) -> None:
    text = "<!-- file: job.toml -->\n```toml\nname = 1\n```\n```console\n$ cat job.toml; ls examples/job.toml\n```\n"

    assert printed(text, tmp_path)[1] == ("name = 1", "examples/job.toml")


def test_a_number_is_called_as_in_the_page(tmp_path: Path) -> None:
    text = "<!-- number: 10 = decision (\\d+) -->\n```console\n$ echo decision 7\n$ echo $((10 + 1)) 10\n```\n"

    assert printed(text, tmp_path) == [("decision 10",), ("8 10",)]


def test_the_home_folder_is_a_tilde(tmp_path: Path) -> None:
    assert printed("```console\n$ echo $HOME/x\n```\n", tmp_path) == [("~/x",)]


def test_a_command_that_does_not_end_is_an_error() -> None:
    with Shell() as shell, pytest.raises(TimeoutError, match="has not ended within"):
        shell.run("sleep 60", limit_s=0.2)


def test_nothing_is_left_of_a_shell() -> None:
    with Shell() as shell:
        shell.run("touch f")

    assert not shell.home.exists()


def test_the_command_writes_and_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = page_of(tmp_path, "<!-- session: shell -->\n```console\n$ echo new\nold\n```\n")

    assert main([str(page.path)]) == 1
    assert "+new" in capsys.readouterr().out
    assert main(["--write", str(page.path)]) == 0
    assert page.path.read_text() == "<!-- session: shell -->\n```console\n$ echo new\nnew\n```\n"
    assert main([str(page.path)]) == 0


def test_a_command_of_a_block_is_what_is_run() -> None:
    command = Command("true", 1, 1, ())

    assert Ran(Block((command,)), command, ()).is_right
    assert not Ran(Block((command,)), command, ("noise",)).is_right
