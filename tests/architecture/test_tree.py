"""The tree: packages, what each is for, unit tests where their modules are, no circles of imports."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

from tests.architecture.sources import PACKAGES, ROOT

# Modules that stand in a top folder: entry points, and virtual time, which has no second file.
ENTRY_POINTS = {"sim_backend/cli.py", "sim_backend/engine.py"}
UNIT = ROOT / "tests/unit"


def packages() -> list[Path]:
    """Every package, the top ones included."""
    return [file.parent for top in PACKAGES for file in sorted((ROOT / top).rglob("__init__.py"))]


@pytest.mark.parametrize("top", PACKAGES)
def test_top_folders_have_packages_only(top: str) -> None:
    found = {file.relative_to(ROOT).as_posix() for file in (ROOT / top).glob("*.py")}
    assert found - {f"{top}/__init__.py"} <= ENTRY_POINTS


def test_every_folder_with_modules_is_a_package_that_says_what_it_is() -> None:
    folders = {file.parent for top in PACKAGES for file in (ROOT / top).rglob("*.py")}
    assert sorted(folders - set(packages())) == []
    silent = [
        package.relative_to(ROOT).as_posix()
        for package in packages()
        if not ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8")))
    ]
    assert silent == []


def module_of(test: Path) -> Path | None:
    """The module that a unit test is of: `a/b/test_c_words.py` is of `a/b/c.py`, or of the package `a/b/c`."""
    folder = ROOT / test.parent.relative_to(UNIT)
    words = test.stem.removeprefix("test_").split("_")
    for many in range(len(words), 0, -1):
        name = "_".join(words[:many])
        for found in (folder / f"{name}.py", folder / name / "__init__.py"):
            if found.exists():
                return found
    return None


def test_every_unit_test_has_its_module() -> None:
    tests = sorted(UNIT.rglob("*.py"))
    assert len(tests) > 200
    assert [test.relative_to(ROOT).as_posix() for test in tests if module_of(test) is None] == []


def circle(graph: grimp.ImportGraph) -> list[str]:
    """A circle of modules that import each other, annotations included; [] when there is none."""
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_planted_circle_is_found() -> None:
    graph = grimp.ImportGraph()
    for one, other in (("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")):
        graph.add_import(importer=one, imported=other)
    assert set(circle(graph)) == {"b", "c"}


def test_no_modules_import_each_other() -> None:
    graph = grimp.build_graph(*PACKAGES, include_external_packages=False, exclude_type_checking_imports=False)
    assert circle(graph) == []
