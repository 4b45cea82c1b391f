"""`make full-lowest` tries the lower bounds of setup.cfg, all of them."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import full, lowest
from tests.architecture.sources import ROOT, settings


def test_every_requirement_is_pinned_to_its_lower_bound() -> None:
    """As it is written in setup.cfg, whatever reads it."""
    pinned = dict(line.split("==") for line in lowest.constraints(lowest.asked()).splitlines())
    texts = [settings()["options"]["install_requires"], *settings()["options.extras_require"].values()]
    written = {
        canonicalize_name(name): bound
        for text in texts
        for name, bound in re.findall(r"(?m)^([\w-]+)(?:\[\w+\])?>=([\d.]+)(?:,<[\d.]+)?$", text)
    }

    assert len(pinned) > 30
    assert pinned == written


def test_a_distribution_that_several_extras_ask_for_has_one_bound() -> None:
    bounds: dict[str, set[str]] = {}
    for requirement in lowest.asked():
        bounds.setdefault(canonicalize_name(requirement.name), set()).add(str(requirement.specifier))

    assert [name for name, several in bounds.items() if len(several) > 1] == []


def test_of_several_bounds_the_highest_counts() -> None:
    """Given the same distribution twice, then it is pinned once, to what does for both."""
    requirements = [Requirement(text) for text in ("a>=1.9,<3", "A>=1.10", "b[x]>=2")]

    assert lowest.constraints(requirements) == "a==1.10\nb==2\n"


@pytest.mark.parametrize("text", ["a", "a<3", "a==1", "a>1"])
def test_a_requirement_without_a_lower_bound_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="has no lower bound"):
        lowest.constraints([Requirement(text)])


def test_the_extras_are_those_of_the_usual_environment() -> None:
    """What `make setup` installs, which is what the quick tests need."""
    assert f"--editable '.[{','.join(lowest.EXTRAS)}]'" in (ROOT / "Makefile").read_text("utf-8")


def test_it_is_a_part_of_the_full_run() -> None:
    assert [part.name for part in full.PARTS if any("tests.lowest" in command for command in part.commands)] == [
        "lowest"
    ]
