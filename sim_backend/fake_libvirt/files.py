"""Files of the cluster's hosts: volumes, saved images, and their folders, some of which all hosts see as the same."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from sim_backend.fake_libvirt.codes import Err, From, fail

MAGIC = b"LibvirtQemudSave"
PARTIAL = b"LibvirtQemudPart"
HEADER_BYTES = 64
PADDING = b"\0" * 512  # stands for the guest's memory


class Files:
    """The files of one host: its own, and those below `shared` folders, which are the same objects everywhere."""

    def __init__(self, common: dict[str, bytearray], shared: tuple[str, ...]) -> None:
        self._own: dict[str, bytearray] = {}
        self._common, self._shared = common, shared
        self.folders: set[str] = set()
        self._seen: dict[str, tuple[bytearray, bytes, int]] = {}

    def is_shared(self, path: str) -> bool:
        """Whether all hosts see it."""
        return any(path.startswith(f"{folder}/") for folder in self._shared)

    def get(self, path: str) -> bytearray | None:
        """What is in a file, None when there is none."""
        return self._of(path).get(path)

    def put(self, path: str, data: bytes) -> None:
        """Make or replace a file."""
        self._of(path)[path] = bytearray(data)

    def remove(self, path: str) -> bool:
        """Whether there was one."""
        return self._of(path).pop(path, None) is not None

    def changed_at(self, path: str) -> int:
        """A number that grows whenever what is in a file, or the file itself, is another than it was when asked
        before."""
        data = self.get(path)
        known = self._seen.get(path)
        if data is None:
            return 0
        if known is None or known[0] is not data or known[1] != data:
            known = self._seen[path] = (data, bytes(data), 1 if known is None else known[2] + 1)
        return known[2]

    def within(self, folder: str) -> list[str]:
        """The paths of the files in a folder."""
        held = self._common if self.is_shared(f"{folder}/x") else self._own
        return sorted(path for path in held if path.rpartition("/")[0] == folder)

    def _of(self, path: str) -> dict[str, bytearray]:
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
        """As it lies on disk."""
        body = json.dumps([self.xml, self.running, self.work_s, self.token]).encode()
        header = MAGIC + len(body).to_bytes(8, "big")
        return header.ljust(HEADER_BYTES, b"\0") + body + PADDING


def partial() -> bytes:
    """What lies on disk while a guest is being saved, and afterwards where nobody tidies up."""
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
