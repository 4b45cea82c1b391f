"""Lease files: written in place, read whole, and never in a folder that is not the shared one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from agents.lease.folder import (
    MARK,
    RECORD_BYTES,
    FolderUnusable,
    LeaseFile,
    check,
    decoded,
    encoded,
    read_all,
)
from shared.base.errors import InvalidValue
from shared.values.lease import Lease

LEASE = Lease("n1", "0a1b2c3d-0000-4000-8000-0123456789ab", 12_345, 75.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "leases"
    made.mkdir()
    (made / MARK).touch()
    return made


def put(folder: Path, node: str, content: bytes) -> None:
    (folder / f"{node}.lease").write_bytes(content)


def test_what_is_written_is_read(folder: Path) -> None:
    file = LeaseFile(str(folder), "n1")
    assert file.look() is None

    file.write(LEASE)
    file.write(replace(LEASE, number=12_346, released=True))

    assert file.look() == replace(LEASE, number=12_346, released=True)
    assert read_all(str(folder)).leases == {"n1": replace(LEASE, number=12_346, released=True)}
    assert (folder / "n1.lease").stat().st_size == RECORD_BYTES
    assert (folder / "n1.lease").stat().st_mode & 0o777 == 0o644


def test_a_record_is_one_line_of_fixed_size() -> None:
    record = encoded(LEASE)
    assert len(record) == RECORD_BYTES
    assert record.endswith(b" \n")
    assert decoded(record, "n1") == LEASE


def test_a_file_is_written_in_place_and_stays_open(folder: Path) -> None:
    """An NFS server gives no delegation to readers of a file that is open for writing."""
    file = LeaseFile(str(folder), "n1")
    file.write(LEASE)
    before = (folder / "n1.lease").stat().st_ino

    file.write(replace(LEASE, number=12_346))

    assert (folder / "n1.lease").stat().st_ino == before
    assert _open_here(folder / "n1.lease") == 1


def _open_here(path: Path) -> int:
    links = (os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
    return sum(link == str(path) for link in links)


def test_a_folder_without_its_mark_is_not_written_to(folder: Path) -> None:
    """The mount point of storage that is not mounted looks like this."""
    file = LeaseFile(str(folder), "n1")
    file.write(LEASE)
    folder.rename(folder.with_name("away"))
    folder.mkdir()

    with pytest.raises(FolderUnusable, match=f"no file {MARK}.*touch {folder}/{MARK}"):
        file.write(LEASE)
    assert [*folder.iterdir()] == []
    for look in (file.look, lambda: read_all(str(folder)), lambda: check(str(folder))):
        with pytest.raises(FolderUnusable, match="no file"):
            look()


def test_a_folder_that_is_not_there_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(FolderUnusable, match="No such file or directory"):
        LeaseFile(str(tmp_path / "none"), "n1").write(LEASE)
    assert [*tmp_path.iterdir()] == []


def test_after_a_change_of_the_storage_it_writes_where_others_read(folder: Path) -> None:
    file = LeaseFile(str(folder), "n1")
    file.write(LEASE)
    folder.rename(folder.with_name("away"))
    folder.mkdir()
    (folder / MARK).touch()

    file.write(replace(LEASE, number=12_346))

    assert read_all(str(folder)).leases["n1"].number == 12_346
    assert read_all(str(folder.with_name("away"))).leases["n1"].number == 12_345


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_lease_that_is_no_file_is_not_written(folder: Path, kind: str) -> None:
    path = folder / "n1.lease"
    if kind == "link":
        (folder / "other").touch()
        path.symlink_to(folder / "other")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()

    with pytest.raises(FolderUnusable):
        LeaseFile(str(folder), "n1").write(LEASE)
    assert "n1" in read_all(str(folder)).invalid


@pytest.mark.parametrize(
    "content",
    [
        b"x",
        b" " * RECORD_BYTES,
        b"\xff" * RECORD_BYTES,
        encoded(LEASE)[:-1],
        encoded(LEASE) + b" ",
        encoded(replace(LEASE, node="n2")),
        encoded(LEASE).replace(b'"number":12345', b'"number":-1234'),
        encoded(LEASE).replace(b'"proof_s":75.0', b'"proof_s":-5.0'),
        encoded(LEASE).replace(b'"proof_s":75.0', b'"proof_s":1e99'),
        encoded(LEASE).replace(b'"released":false', b'"released":"no" '),
        encoded(LEASE).replace(b"0a1b2c3d-", b"0a1b2c3d "),
        (b"[" * 200).ljust(RECORD_BYTES),
    ],
)
def test_what_is_no_lease_is_named_and_hides_no_other(folder: Path, content: bytes) -> None:
    put(folder, "n1", content)
    put(folder, "n3", encoded(replace(LEASE, node="n3")))

    found = read_all(str(folder))

    assert [*found.leases] == ["n3"]
    assert [*found.invalid] == ["n1"]
    assert LeaseFile(str(folder), "n1").look() is None


def test_a_first_lease_that_is_being_written_is_not_there_yet(folder: Path) -> None:
    put(folder, "n1", b"")
    found = read_all(str(folder))
    assert (found.leases, found.invalid) == ({}, {})


def test_a_later_version_may_add_to_a_lease(folder: Path) -> None:
    put(folder, "n1", encoded(LEASE).replace(b"{", b'{"more":1,', 1)[:RECORD_BYTES])
    assert read_all(str(folder)).leases["n1"] == LEASE


def test_a_lease_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidValue, match="below 512 bytes"):
        encoded(replace(LEASE, node="n" * 250, boot_id="b" * 250))
