"""What of the code reports events and raises alarms; commands of pages are what the programs take."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.architecture.sources import ROOT
from tests.lab import namespaces
from tests.lab.plan import FIRST

CODE = re.compile(r"[a-z]+(?:-[a-z]+)*")
ALARM_SOURCES = ("alarms", "stranded_jobs", "missed")  # how the functions are named that tell of alarms


def codes_of_tables(text: str) -> set[str]:
    """Every code in the first columns of tables."""
    cells = re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE)
    return {code for cell in cells for code in re.findall(r"`([^`]+)`", cell) if CODE.fullmatch(code)}


def constants(node: ast.AST, names: dict[str, set[str]]) -> set[str]:
    """The texts that an expression may be: a constant, either side of a choice, what a local name was given."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    if isinstance(node, ast.IfExp):
        return constants(node.body, names) | constants(node.orelse, names)
    return names.get(node.id, set()) if isinstance(node, ast.Name) else set()


def functions(tree: ast.AST) -> Iterator[tuple[str, list[ast.AST], dict[str, set[str]]]]:
    """Every function: its name, all that is in it, and what its local names are given."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            inside, names = list(ast.walk(function)), dict[str, set[str]]()
            for node in inside:
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    names.setdefault(node.targets[0].id, set()).update(constants(node.value, names))
            yield function.name, inside, names


def events_of(tree: ast.AST) -> set[str]:
    """The codes of events that are told in a file, as far as they are told by their names."""
    return {
        code
        for _, inside, names in functions(tree)
        for node in inside
        if isinstance(node, ast.Call) and len(node.args) > 2
        for called in [getattr(node.func, "attr", getattr(node.func, "id", ""))]
        if called in ("emit", "Happened")
        for code in constants(node.args[1], names)
    }


def alarms_of(tree: ast.AST) -> set[str]:
    """The codes of alarms that are told in a file."""
    found: set[str] = set()
    for function, inside, names in functions(tree):
        tells = function.endswith(ALARM_SOURCES)
        for node in inside:
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "_alarm" and len(node.args) > 1:
                found |= constants(node.args[0], names)
            if tells and isinstance(node, ast.Tuple) and len(node.elts) >= 3:
                found |= {code for code in constants(node.elts[0], names) if "-" in code}
    return found


@cache
def trees() -> tuple[ast.Module, ...]:
    """The files of the controller and of its process; nothing else tells of events and alarms."""
    return tuple(
        ast.parse(path.read_text("utf-8"))
        for top in ("controller", "service")
        for path in sorted((ROOT / "daemons" / top).rglob("*.py"))
    )


@cache
def texts_in_code() -> tuple[set[str], set[str]]:
    """Every text in the controller's code, and the beginnings of those that are put together (`node-`...)."""
    whole: set[str] = set()
    begun: set[str] = set()
    for tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                whole.add(node.value)
            if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                begun.add(str(node.values[0].value))
    return whole, {text for text in begun if re.fullmatch(r"[a-z]+-", text)}


def test_what_is_told_is_found() -> None:
    """Given events and alarms told by a constant, a choice and a local name, then all of them are found."""
    tree = ast.parse(
        "def one(self, on):\n"
        "    what = 'c-up' if on else 'c-down'\n"
        "    self.unit_of_work.emit(0.0, 'a-told', 'x')\n"
        "    self.unit_of_work.emit(0.0, what, 'x', 'why')\n"
        "    yield _alarm('d-told', 'x', None, 'why')\n"
        "def node_alarms(nodes):\n"
        "    yield 'e-told', 'x', None, 'why'\n"
        "def other(nodes):\n"
        "    yield 'no-alarm', 'x', None\n"
    )

    assert events_of(tree) == {"a-told", "c-up", "c-down"}
    assert alarms_of(tree) == {"d-told", "e-told"}


# --- commands and keys of the pages ---------------------------------------------------------------------------------


def test_volumes_are_filled_as_virsh_has_it() -> None:
    """`virsh vol-upload VOLUME FILE --pool POOL`: a pool in the first place is taken for the volume."""
    found = [
        line.split()
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for line in page.read_text("utf-8").splitlines()
        if line.strip().startswith("virsh vol-upload ")
    ]
    assert found
    assert [words[4:5] for words in found] == [["--pool"]] * len(found)


def test_the_lab_says_how_its_hosts_are_entered() -> None:
    """With the namespaces that its own programs are in."""
    entered = " ".join(namespaces.inside(1, [])).split(" 1 ", 1)[1].partition(" --chdir")[0].removesuffix(" env")
    assert f'nsenter --target $(cat FOLDER/h1/{FIRST}) {entered}"' in (ROOT / "docs/how-to/lab.md").read_text("utf-8")
