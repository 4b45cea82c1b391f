"""The documents say what the code has, no more and no less."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from shared.base import errors
from shared.base.errors import TrimtabError
from tests.architecture.sources import PACKAGES, ROOT, tree_paths

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
MAKE_TARGET = re.compile(r"^([a-z]+):.*## ", re.MULTILINE)
ANCHOR = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
# Made by commands, not kept in the repository.
GENERATED = ("out/",)


def section(text: str, heading: str) -> str:
    """What stands under a heading of the second level, up to the next one."""
    return re.split(r"^## ", text.split(f"## {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def first_column(text: str) -> list[str]:
    """The codes in the first column of every table, in order: rows that begin with a word in backticks."""
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def differences(documented: Iterable[str], existing: Iterable[str]) -> list[str]:
    """What only one side knows, and what is documented twice."""
    listed = list(documented)
    documented, existing = set(listed), set(existing)
    return [
        *(f"not documented: {name}" for name in sorted(existing - documented)),
        *(f"documented, does not exist: {name}" for name in sorted(documented - existing)),
        *(f"documented twice: {name}" for name in sorted(documented) if listed.count(name) > 1),
    ]


def broken_links(path: Path, text: str) -> list[str]:
    """Relative links that lead nowhere."""
    targets = (target for target in LINK.findall(text) if "://" not in target and not target.startswith("mailto:"))
    return [
        f"{path.name}: {target}"
        for target in targets
        if not target.startswith(GENERATED) and not (path.parent / target).exists()
    ]


def anchors(text: str) -> set[str]:
    """What the headings of a document are called in links."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in HEADING.findall(prose))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def broken_anchors(path: Path, text: str) -> list[str]:
    """Links to headings that are not there, in this document or another."""
    found = []
    for target, anchor in ANCHOR.findall(text):
        page = path.parent / target if target else path
        if "://" not in target and page.suffix == ".md" and (not target or page.exists()):
            known = anchors(page.read_text("utf-8") if target else text)
            found += [] if anchor in known else [f"{path.name}: {target}#{anchor}"]
    return found


def documents() -> tuple[Path, ...]:
    """Every Markdown file of the repository."""
    return (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))


def error_codes() -> set[str]:
    """The code of every error class."""
    return {
        value.code for value in vars(errors).values() if isinstance(value, type) and issubclass(value, TrimtabError)
    }


def test_error_codes_are_unique() -> None:
    """No two classes share a code."""
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, TrimtabError)]

    assert len({cls.code for cls in classes}) == len(classes)


def test_differences_are_found() -> None:
    """Given a page that misses one code, invents one and repeats one, then all three are named."""
    page = (
        "## Codes\n\n| code | meaning |\n|---|---|\n| `a` | x |\n| `b` | x |\n| `b` | x |\n\n## Other\n\n| `z` | x |\n"
    )

    found = differences(first_column(section(page, "Codes")), {"a", "c"})

    assert found == ["not documented: c", "documented, does not exist: b", "documented twice: b"]


def missing_files(text: str, paths: Iterable[str]) -> list[str]:
    """Python files and folders of ours that a text names in code and that no path ends or begins with."""
    known = tuple(paths)
    files = re.findall(r"`([\w/]+\.py)`", text)
    folders = re.findall(rf"`((?:{'|'.join(PACKAGES)})/[\w/]*)`", text)
    return [
        *(file for file in files if not any(f"/{path}".endswith(f"/{file}") for path in known)),
        *(folder for folder in folders if not any(f"{path}/".startswith(folder.rstrip("/") + "/") for path in known)),
    ]


def test_named_files_exist() -> None:
    """A page that describes a module describes one that is there; examples and alternatives name others."""
    paths = tree_paths()
    found = {
        path.name: missing_files(path.read_text("utf-8"), paths) for path in documents() if path.parent.name != "adr"
    }

    assert {name: missing for name, missing in found.items() if missing} == {}


def test_a_missing_file_is_found() -> None:
    """Given a page with files and folders that are there and not, then those that are not are named."""
    page = "`world.py`, `shared/gone.py`, `sim_backend/bus/`, `daemons/gone/`, `old.py`"

    assert missing_files(page, ["sim_backend/world/world.py", "sim_backend/bus/memory.py"]) == [
        "shared/gone.py",
        "old.py",
        "daemons/gone/",
    ]


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    """Every relative link of a document names a file that exists, and a heading that is in it."""
    text = path.read_text("utf-8")

    assert broken_links(path, text) == []
    assert broken_anchors(path, text) == []


def test_a_broken_link_is_found() -> None:
    """Given a page with one good link and one broken, then the broken one is named."""
    page = "[there](README.md), [web](https://example.org/x), [gone](docs/nothing.md#part)"

    assert broken_links(ROOT / "page.md", page) == ["page.md: docs/nothing.md"]


def test_a_broken_anchor_is_found() -> None:
    """Given links to headings, of which one is not there, then that one is named."""
    page = (
        "# One page\n\n## Who's [in](x.md) `it`?\n\n[a](#one-page), [b](#whos-in-it), [c](#gone), [d](README.md#none)"
    )

    assert broken_anchors(ROOT / "page.md", page) == ["page.md: #gone", "page.md: README.md#none"]


def proofs(text: str) -> list[str]:
    """The tests that a text names as FILE::TEST."""
    return re.findall(r"`([\w/.-]+\.py::\w+)`", text)


def missing_proofs(named: Iterable[str], root: Path) -> list[str]:
    """Those that are not there."""
    found = []
    for proof in named:
        file, test = proof.split("::")
        text = (root / file).read_text("utf-8") if (root / file).is_file() else ""
        if not re.search(rf"^(?:async )?def {test}\(", text, re.MULTILINE):
            found.append(proof)
    return found


def test_every_row_of_the_threat_model_names_tests_that_exist() -> None:
    table = section((ROOT / "docs/explanation/security-model.md").read_text("utf-8"), "Threat model")
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]

    assert len(rows) > 10
    assert [row[:60] for row in rows if not proofs(row.rsplit("|", 2)[1])] == []
    assert missing_proofs(proofs(table), ROOT) == []


def test_a_missing_proof_is_found(tmp_path: Path) -> None:
    """Given a file with one test, then another test in it, and one in no file, are named."""
    (tmp_path / "test_a.py").write_text("def test_one() -> None: ...\n")
    named = proofs("`test_a.py::test_one`, `test_a.py::test_two` and `test_b.py::test_one`")

    assert missing_proofs(named, tmp_path) == ["test_a.py::test_two", "test_b.py::test_one"]


def test_named_make_targets_exist() -> None:
    """`make x` in a document is a target of the Makefile."""
    targets = set(MAKE_TARGET.findall((ROOT / "Makefile").read_text("utf-8")))
    named = {
        target for path in documents() for target in re.findall(r"\bmake ([a-z]+)\b(?=`|$)", path.read_text("utf-8"))
    }

    assert {"run", "test", "check", "accept"} <= targets
    assert named <= targets
