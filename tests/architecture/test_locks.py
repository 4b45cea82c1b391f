"""What the Debian packages hold of others is locked: every requirement, with a version and hashes, and nothing else."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture import locks
from tests.architecture.sources import ROOT, settings

BUILD = (ROOT / "systemd/debian/build").read_text("utf-8")
SHA = "--hash=sha256:" + "0" * 64
ENTRY = f"one==1.2 \\\n    {SHA}\n"


@pytest.mark.parametrize("name", locks.SETS)
def test_all_that_setup_cfg_asks_for_is_locked(name: str) -> None:
    asked = list(locks.wanted(settings(), locks.SETS[name]))

    assert len(asked) > 5
    assert locks.gaps(asked, locks.locked(name)) == []


@pytest.mark.parametrize("name", locks.SETS)
def test_what_the_locked_ask_for_is_locked(name: str) -> None:
    """By what is installed here, where it has the version that is locked: the same, as `make setup` takes it."""
    entries = locks.locked(name)
    extras: dict[str, set[str]] = {
        canonicalize_name(one.name): one.extras for one in locks.wanted(settings(), locks.SETS[name])
    }
    looked_at = 0
    found = []
    for entry in entries:
        try:
            installed = distribution(entry.name)
        except PackageNotFoundError:
            continue  # libvirt's module is made where tests need it
        if installed.version == entry.version:
            looked_at += 1
            asks = [Requirement(line) for line in installed.requires or ()]
            found += [f"{entry.name}: {gap}" for gap in locks.gaps(asks, entries, ("", *extras.get(entry.name, set())))]

    assert found == []
    assert looked_at > len(entries) / 2, "make setup takes the versions of the lock files"


@pytest.mark.parametrize("name", [*locks.SETS, "build"])
def test_every_entry_has_one_version_and_hashes(name: str) -> None:
    entries = locks.locked(name)

    assert entries
    assert [str(entry.requirement) for entry in entries if not entry.version or not entry.hashes] == []
    assert len({entry.name for entry in entries}) == len(entries)


@pytest.mark.parametrize("name", [*locks.SETS, "build"])
def test_no_place_is_named(name: str) -> None:
    """Where things come from is the builder's to say: no index, address, folder or option but hashes."""
    text = (locks.FOLDER / f"{name}.txt").read_text("utf-8")

    assert re.findall(r"(?m)://|@|/(?:opt|tmp|home|root|work)\b|^\s*-(?!-hash=)\S+", text) == []


def test_all_sets_have_the_same_versions() -> None:
    """What the portal's package has beyond the others' is found by comparing them."""
    versions = {(entry.name, entry.version) for name in locks.SETS for entry in locks.locked(name)}

    assert len({name for name, _ in versions}) == len(versions)


def test_what_builds_is_locked() -> None:
    """Neither our wheel nor libvirt's is made by something that was fetched unseen."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    asked = [Requirement(one) for one in re.findall(r'^requires = \["([^"]+)"\]$', text, re.MULTILINE)]

    assert [one.name for one in asked] == ["setuptools"]
    assert locks.gaps(asked, locks.locked("build")) == []


def test_the_build_compares_hashes_whatever_it_installs() -> None:
    """Each call of pip compares hashes, or takes no index and what was made or compared before."""
    calls = re.findall(r'"\$\{pip\[@\]\}"((?:[^\n]*\\\n)*[^\n]*)', BUILD)
    fetching = [call for call in calls if re.search(r"\b(?:install|wheel|download)\b", call)]

    assert len(fetching) >= 4
    assert [call for call in fetching if "--require-hashes" not in call and "--no-index" not in call] == []
    assert [call for call in fetching if "--no-deps" not in call] == []
    assert [call for call in fetching if "wheel " in call.split("--")[0] and "--no-build-isolation" not in call] == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("one==1.2 \\\n    --hash=md5:0\n", "is no SHA-256 hash"),
        ("--extra-index-url x\n", "Expected"),
        ("  lost\n" + ENTRY, "belong to no distribution"),
    ],
)
def test_a_lock_file_with_anything_else_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        locks.read(text)


def test_gaps_are_found() -> None:
    """Given entries, then a requirement without one, and one of another version, are named."""
    entries = locks.read(ENTRY + "bare>=1\n")
    asked = [Requirement(text) for text in ("one>=1", "one>=2", "two", "three; python_version<'3'", "four; extra=='x'")]

    assert locks.gaps(asked, entries) == ["one>=2 is locked at 1.2", "two is not locked"]
    assert [(entry.version, entry.hashes) for entry in entries] == [("1.2", (SHA,)), ("", ())]
