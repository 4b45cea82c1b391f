"""Files of the cluster's hosts: volumes, saved images, and their folders, some of which all hosts see as the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sim_backend.fake_libvirt.codes import Err, From, fail

MAGIC = b"LibvirtQemudSave"
PARTIAL = b"LibvirtQemudPart"
HEADER_BYTES = 64
PADDING = b"\0" * 512  # stands for the guest's memory


class Content(bytearray):
    """What is in a file. `changed_at`: a number that grows with every change of any file of the cluster."""

    def __init__(self, data: bytes, changes: Iterator[int]) -> None:
        super().__init__(data)
        self._changes, self.changed_at = changes, next(changes)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.changed_at = next(self._changes)


class Files:
    """The files of one host: its own, and those below `shared` folders, which are the same objects everywhere.
    `changes` counts the changes of all hosts' files."""

    def __init__(self, common: dict[str, Content], shared: tuple[str, ...], changes: Iterator[int]) -> None:
        self._own: dict[str, Content] = {}
        self._common, self._shared, self._changes = common, shared, changes
        self.folders: set[str] = set()

    def is_shared(self, path: str) -> bool:
        """Return whether all hosts see a path."""
        return any(path.startswith(f"{folder}/") for folder in self._shared)

    def get(self, path: str) -> Content | None:
        """Return the data of a file, None when there is none."""
        return self._of(path).get(path)

    def size(self, path: str) -> int:
        """Return the bytes of a file (0: there is none)."""
        return len(self.get(path) or b"")

    def put(self, path: str, data: bytes) -> None:
        """Make or replace a file."""
        self._of(path)[path] = Content(data, self._changes)

    def remove(self, path: str) -> bool:
        """Remove a file. Return whether it existed."""
        return self._of(path).pop(path, None) is not None

    def changed_at(self, path: str) -> int:
        """Return the number of the last change of a file (0: no such file), see `Content`."""
        data = self.get(path)
        return 0 if data is None else data.changed_at

    def within(self, folder: str) -> list[str]:
        """Return the paths of the files in a folder."""
        held = self._common if self.is_shared(f"{folder}/x") else self._own
        return sorted(path for path in held if path.rpartition("/")[0] == folder)

    def _of(self, path: str) -> dict[str, Content]:
        return self._common if self.is_shared(path) else self._own


@dataclass(slots=True)
class Image:
    """A saved guest. `work_s`: the CPU time that the guest has had since it booted."""

    xml: str
    running: bool
    work_s: float
    token: int
    whole: bool = field(default=True)

    def data(self) -> bytes:
        """Return the bytes of the image as stored on disk."""
        body = json.dumps([self.xml, self.running, self.work_s, self.token]).encode()
        header = MAGIC + len(body).to_bytes(8, "big")
        return header.ljust(HEADER_BYTES, b"\0") + body + PADDING


def partial() -> bytes:
    """Return the bytes on disk while a guest is being saved, and afterwards if nobody cleans up."""
    return PARTIAL.ljust(HEADER_BYTES, b"\0") + PADDING


def read_image(data: bytes | bytearray | None, path: str) -> Image:
    """Read a saved guest; without its end it is not `whole`. Raises libvirtError."""
    if data is None:
        fail(Err.SYSTEM_ERROR, From.QEMU, f"Failed to open file '{path}': No such file or directory")
    if len(data) < HEADER_BYTES:
        fail(Err.OPERATION_FAILED, From.QEMU, "failed to read qemu header")
    if data[:16] == PARTIAL:
        fail(Err.OPERATION_FAILED, From.QEMU, "save image is incomplete")
    if data[:16] != MAGIC:
        fail(Err.OPERATION_FAILED, From.QEMU, "image magic is incorrect")
    size = int.from_bytes(data[16:24], "big")
    body = bytes(data[HEADER_BYTES : HEADER_BYTES + size])
    if len(body) < size:
        fail(Err.OPERATION_FAILED, From.QEMU, "failed to read domain XML")
    xml, running, work_s, token = json.loads(body)
    return Image(xml, running, work_s, token, len(data) >= HEADER_BYTES + size + len(PADDING))
