"""What would be installed is what the tree holds, and nobody else owns our import names."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGES, ROOT, Source, settings, tree_paths, tree_sources

DISTRIBUTION = "trimtab"
ENTRY_POINT_SECTION = "options.entry_points"


def foreign_owners(distributions: Mapping[str, Iterable[str]]) -> list[str]:
    """Our import names that another distribution also owns, given `packages_distributions()`."""
    return [
        f"{name} also belongs to {owner}"
        for name in PACKAGES
        for owner in sorted(set(distributions.get(name, ())) - {DISTRIBUTION})
    ]


def package_faults(sources: Iterable[Source], included: Iterable[str]) -> list[str]:
    """Folders of the packages that would not be installed whole: no `__init__`, no docstring in it, not included."""
    patterns = tuple(included)
    inside = [source for source in sources if source.package in PACKAGES]
    by_path = {source.path: source for source in inside}
    faults = []
    for folder in sorted({source.path.rpartition("/")[0] for source in inside}):
        init = by_path.get(f"{folder}/__init__.py")
        dotted = folder.replace("/", ".")
        if init is None:
            faults.append(f"{folder} has no __init__.py")
        elif not init.text.startswith('"""'):
            faults.append(f"{folder}/__init__.py has no docstring")
        if not any(fnmatch(dotted, pattern) for pattern in patterns):
            faults.append(f"{dotted} is not among the packages in setup.cfg")
    return faults


def left_out(package: str, files: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Files of a package, by their paths in it, that are neither modules nor among its data in setup.cfg."""
    wanted = tuple(patterns)
    others = (path for path in files if not path.endswith(".py"))
    return [
        f"{package}/{path} is not among the data in setup.cfg"
        for path in others
        if not any(fnmatch(path, pattern) and path.count("/") == pattern.count("/") for pattern in wanted)
    ]


def written_entry_points() -> set[tuple[str, str, str]]:
    """(group, name, value) of every entry point in setup.cfg."""
    return {
        (group, name.strip(), value.strip())
        for group, text in settings()[ENTRY_POINT_SECTION].items()
        for name, value in (line.split("=", 1) for line in text.strip().splitlines())
    }


def test_nobody_else_owns_our_import_names() -> None:
    """Trimtab lives in an environment of its own."""
    assert foreign_owners(packages_distributions()) == []


def test_a_foreign_owner_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given another installed distribution with a package `agents`, when asked, then it is named."""
    info = tmp_path / "other_agents-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-agents\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("agents\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert foreign_owners(packages_distributions()) == ["agents also belongs to other-agents"]


def test_every_folder_is_a_package_that_is_installed() -> None:
    """Each has an `__init__` that says what it is for."""
    assert package_faults(tree_sources(), settings()["options.packages.find"]["include"].split()) == []


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({"shared/runtime/shell.py": ""}, "shared/runtime has no __init__.py"),
        ({"shared/bus/__init__.py": "x = 1\n"}, "shared/bus/__init__.py has no docstring"),
        ({"daemons/__init__.py": '"""The centre."""\n'}, "daemons is not among the packages in setup.cfg"),
    ],
)
def test_a_faulty_package_is_found(files: dict[str, str], fault: str) -> None:
    """Given one planted fault, when looked at, then it is named."""
    sources = [Source.parse(path, text) for path, text in files.items()]

    assert package_faults(sources, ["shared*"]) == [fault]


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_carry_their_types(package: str) -> None:
    """py.typed is there and installed."""
    assert (ROOT / package / "py.typed").exists()
    assert "py.typed" in settings()["options.package_data"][package].split()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_other_file_is_installed(package: str) -> None:
    """Templates and the like are there where the package is."""
    every = sorted(path for path in (ROOT / package).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    patterns = settings()["options.package_data"][package].split()

    assert left_out(package, (path.relative_to(ROOT / package).as_posix() for path in every), patterns) == []


def test_a_file_that_is_left_out_is_found() -> None:
    files = ["a.py", "py.typed", "t/x.html", "t/deep/y.html"]

    assert left_out("p", files, ["py.typed", "t/*"]) == ["p/t/deep/y.html is not among the data in setup.cfg"]


def test_what_is_installed_knows_every_entry_point() -> None:
    """A stale installation would hide a policy; `make setup` renews it."""
    installed = {(point.group, point.name, point.value) for point in distribution(DISTRIBUTION).entry_points}

    assert installed == written_entry_points()


@pytest.mark.parametrize(
    "point", distribution(DISTRIBUTION).entry_points, ids=lambda point: f"{point.group}:{point.name}"
)
def test_every_entry_point_loads(point: object) -> None:
    """What setup.cfg names exists."""
    assert callable(point.load())  # type: ignore[attr-defined]


@pytest.mark.full
def test_the_wheel_holds_every_module(tmp_path: Path) -> None:
    """Given a wheel built from a copy of the tree, when opened, then it has each module, and no tests."""
    copy = tmp_path / "copy"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)

    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(copy)]
    subprocess.run(command, check=True, timeout=600)

    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.endswith(".py")}
    assert packed == {path for path in tree_paths() if path.split("/", 1)[0] in PACKAGES}
