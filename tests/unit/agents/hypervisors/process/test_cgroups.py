"""Which hierarchy each controller is used in, on machines of every kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.hypervisors.process.cgroups import Hierarchies, Place, mounted
from shared.base.errors import InvalidInput


def unified(folder: Path, offers: str) -> Place:
    """A hierarchy of version 2 that offers controllers."""
    folder.mkdir()
    (folder / "cgroup.controllers").write_text(offers + "\n", "ascii")
    return Place(folder, True)


def test_what_is_mounted_is_found_by_controller() -> None:
    one = "cgroup /c/cpu cgroup rw,cpu,cpuacct 0 0\ncgroup /c/blkio cgroup rw,blkio 0 0\n"
    assert mounted(one + "cgroup2 /c2 cgroup2 rw 0 0\n") == {
        "cpu": Place(Path("/c/cpu"), False),
        "cpuacct": Place(Path("/c/cpu"), False),
        "io": Place(Path("/c/blkio"), False),
        "unified": Place(Path("/c2"), True),
    }


def test_version_2_alone_is_used_where_it_shares_the_cpu_out(tmp_path: Path) -> None:
    """Given version 1 mounted beside it for counting and freezing, then nothing is made there."""
    two = unified(tmp_path / "two", "cpu io memory cpuset")
    one = {name: Place(tmp_path / name, False) for name in ("cpuacct", "freezer")}
    found = Hierarchies("/trimtab", {"unified": two, **one})
    assert set(found.places.values()) == {two}
    assert set(found.places) == {"cpu", "cpuacct", "freezer", "memory", "io", "cpuset"}


def test_a_kernel_with_version_1_is_used_as_it_is(tmp_path: Path) -> None:
    """Given systemd's hybrid, a version 2 without controllers, then all stays where version 1 has it."""
    two = unified(tmp_path / "two", "")
    one = {name: Place(tmp_path / name, False) for name in ("cpu", "cpuacct", "freezer", "memory")}
    assert Hierarchies("/trimtab", {"unified": two, **one}).places == one


def test_what_version_1_lacks_version_2_counts_and_freezes(tmp_path: Path) -> None:
    two, cpu = unified(tmp_path / "two", "memory"), Place(tmp_path / "cpu", False)
    found = Hierarchies("/trimtab", {"unified": two, "cpu": cpu})
    assert found.places == {"cpu": cpu, "cpuacct": two, "freezer": two, "memory": two}


def test_a_kernel_that_cannot_share_the_cpu_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no cgroup has cpu"):
        Hierarchies("/trimtab", {"unified": unified(tmp_path / "two", "memory")})
