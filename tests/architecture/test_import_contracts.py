"""The import contracts in setup.cfg hold on a bare skeleton of the tree, and each breaks when something is planted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGES, ROOT, settings

# Contract, file, text: each reaches what its contract forbids, most of them only through another file.
PLANTED = (
    ("top", "shared/wrong.py", "import daemons\n"),
    ("shared", "shared/values/wrong.py", "import shared.protocol\n"),
    ("agents", "agents/core/wrong.py", "import agents.drivers\n"),
    ("sim", "sim_backend/world/wrong.py", "import sim_backend.faults\n"),
    ("daemons", "daemons/models/wrong.py", "import daemons.store\n"),
    ("controller", "daemons/controller/state/wrong.py", "import daemons.controller.core\n"),
    ("features", "daemons/controller/views/wrong.py", "import daemons.controller.web\n"),
    ("environments", "daemons/controller/requests/wrong.py", "import daemons.controller.environments\n"),
    ("portal", "daemons/portal/auth/wrong.py", "import daemons.portal.context\n"),
    ("pure", "daemons/policies/placement/wrong.py", "import shared.helper\n"),
    ("pure", "shared/helper.py", "import time\n"),
    ("worlds", "sim_backend/engine/other.py", "import shared.helper\n"),
    ("chance", "daemons/planning/wrong.py", "import random\n"),
    ("plug-ins", "daemons/decision/wrong.py", "import daemons.policies.placement\n"),
    ("drivers", "daemons/store/wrong.py", "import daemons.drivers\n"),
    ("portal-cli", "daemons/portal/wrong.py", "import daemons.cli\n"),
    ("roles", "daemons/policies/provisioning/wrong.py", "import daemons.policies.placement.wrong\n"),
    ("light-agents", "agents/wrong.py", "import shared.policy_api.snapshot\n"),
    ("world", "sim_backend/fakes/wrong.py", "import daemons.controller\n"),
    ("pika", "daemons/wrong.py", "import pika\n"),
    ("libvirt", "daemons/wrong_too.py", "import libvirt\n"),
    ("jeepney", "agents/core/wrong_too.py", "import jeepney\n"),
)
# What the skeleton has beside the modules that the contracts name.
ROLES = ("daemons.policies.placement", "daemons.policies.provisioning")
CONTRACT = "importlinter:contract:"


def contracts() -> dict[str, str]:
    """The name of each contract by its key."""
    config = settings()
    return {key.removeprefix(CONTRACT): config[key]["name"] for key in config if key.startswith(CONTRACT)}


def write(folder: Path, path: str, text: str) -> None:
    """A file, and an `__init__` in each package above it."""
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    for package in file.relative_to(folder).parents:
        if package != Path():
            (folder / package / "__init__.py").touch()
    file.write_text(text)


def skeleton(folder: Path) -> None:
    """setup.cfg, the four packages, and every module of ours that a contract names: empty, but for a library that it
    alone may import."""
    shutil.copy(ROOT / "setup.cfg", folder)
    config = settings()
    named = {
        line
        for key in config
        if key.startswith(CONTRACT)
        for option in (
            "source_modules",
            "forbidden_modules",
            "protected_modules",
            "allowed_importers",
            "modules",
            "layers",
        )
        for line in config[key].get(option, "").split()
        if line.split(".")[0] in PACKAGES and "*" not in line
    }
    for module in (*PACKAGES, *named, *ROLES):
        write(folder, f"{module.replace('.', '/')}/__init__.py", "")
    for key in config:
        libraries = [name for name in config[key].get("protected_modules", "").split() if name not in named]
        for importer in config[key]["allowed_importers"].split() if libraries else ():
            write(
                folder, f"{importer.replace('.', '/')}/__init__.py", "".join(f"import {name}\n" for name in libraries)
            )


def lint(folder: Path) -> str:
    """What import-linter says."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False).stdout


def test_no_contract_has_an_exception() -> None:
    """What may not be imported is imported nowhere."""
    assert not [key for key, section in settings().items() if "ignore_imports" in section]


def test_the_contracts_hold_on_a_skeleton(tmp_path: Path) -> None:
    """Without files that come later nothing fails to be found."""
    skeleton(tmp_path)

    said = lint(tmp_path)

    assert f"{len(contracts())} kept, 0 broken" in said, said


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What import-linter says when everything is planted at once."""
    folder = tmp_path_factory.mktemp("planted")
    skeleton(folder)
    for _, path, text in PLANTED:
        shutil.rmtree((folder / path).with_suffix(""), ignore_errors=True)
        write(folder, path, text)
    return lint(folder)


@pytest.mark.parametrize("contract", contracts())
def test_a_planted_import_breaks_the_contract(contract: str, broken: str) -> None:
    """Every contract has something planted against it, and reports it."""
    assert contract in {key for key, _, _ in PLANTED}
    assert f"{contracts()[contract]} BROKEN" in broken, broken
