"""Run what `make quick` runs with the oldest versions that setup.cfg allows: `python -m tests.lowest`.

A part of `make full`. In a new environment in a temporary folder every requirement of setup.cfg is at its lower bound;
what those bring along is as new as pip finds it. The extras are those of `make setup`; those of others are not tried.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.architecture.locks import wanted
from tests.architecture.sources import ROOT, settings

EXTRAS = ("dev", "plots", "portal")
# What a make around this one would tell the one that is run here.
MAKES_OWN = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL")


def asked() -> list[Requirement]:
    """Read every requirement of setup.cfg, those of all extras included."""
    return list(wanted(settings(), settings()["options.extras_require"]))


def lower_bound(requirement: Requirement) -> Version:
    """Return the oldest version that does. Raises ValueError where no bound has the form `>=`."""
    bounds = [one.version for one in requirement.specifier if one.operator == ">="]
    if len(bounds) != 1:
        raise ValueError(f"{requirement} has no lower bound")
    return Version(bounds[0])


def constraints(requirements: Iterable[Requirement]) -> str:
    """Write constraints for pip: each distribution once, at its lower bound, the highest where it has several."""
    lowest: dict[str, Version] = {}
    for requirement in requirements:
        name, bound = canonicalize_name(requirement.name), lower_bound(requirement)
        lowest[name] = max(lowest.get(name, bound), bound)
    return "".join(f"{name}=={version}\n" for name, version in sorted(lowest.items()))


def main() -> int:
    """Make the environment and run the tests; returns the exit status."""
    environment = {name: value for name, value in os.environ.items() if name not in (*MAKES_OWN, "TRIMTAB_TESTS")}
    environment.setdefault("QUICK_WORKERS", os.environ.get("WORKERS", "3"))
    with tempfile.TemporaryDirectory(prefix="trimtab-lowest-") as place:
        folder = Path(place)
        python = folder / "bin/python"
        versions = folder / "versions.txt"
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        install += ["--constraint", str(versions), "--editable", f"{ROOT}[{','.join(EXTRAS)}]"]
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        versions.write_text(constraints(asked()), "utf-8")
        print(f"oldest versions:\n{versions.read_text('utf-8')}", flush=True)
        if subprocess.run(install, env=environment, check=False).returncode:
            print("they cannot be installed: see above", file=sys.stderr)
            return 1
        (folder / ".installed").touch()  # or `make quick` would bring the locked versions first
        return subprocess.run(
            ["make", "-C", str(ROOT), "quick", f"VENV={folder}"], env=environment, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
