"""Files and answers that are nested more deeply than Python's parsers go are refused as others that cannot be read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.helper import policy
from agents.helper.errors import Refusal
from agents.hypervisors.libvirt import capacity
from agents.hypervisors.process import launch, record
from agents.setups import packages
from daemons.decision import overrides
from daemons.portal.what_if import runs
from shared.base.errors import TransientError

DEEP = "[" * 100_000 + "]" * 100_000


def in_file(folder: Path, name: str, text: str = DEEP) -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    "read",
    [
        lambda folder: record.read(in_file(folder, record.FILE).parent),
        lambda folder: runs._read(in_file(folder, "run.json")),
        lambda _: capacity._card(DEEP.encode()),
    ],
    ids=["record of a program", "run of the portal", "card of a host"],
)
def test_what_is_nobody_s_reads_as_nothing(read: Callable[[Path], object], tmp_path: Path) -> None:
    assert read(tmp_path) is None


@pytest.mark.parametrize(
    ("read", "refusal"),
    [
        (lambda folder: launch.read(in_file(folder, launch.FILE)), ValueError),
        (lambda folder: policy.read(str(in_file(folder, "helper.toml", f"packages = {DEEP}")), os.getuid()), Refusal),
        (lambda _: packages._read(DEEP.encode()), TransientError),
    ],
    ids=["launch file", "policy of the helper", "answer of the helper"],
)
def test_what_should_be_there_is_refused_with_words(
    read: Callable[[Path], object], refusal: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(refusal, match=r"nested too deeply|cannot be read"):
        read(tmp_path)


def test_a_value_of_set_is_the_text_itself() -> None:
    found = overrides.alteration(None, None, [f"placement.tolerance={DEEP}"])

    assert found.values == (("placement.tolerance", DEEP),)
