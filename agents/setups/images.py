"""VM images of agreements: cloned from the host's library, by reference where the file system can, with the digest that
the agreement says."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Sequence

from agents.setups import folders
from shared.base.deadline import Deadline
from shared.base.errors import PermanentError
from shared.values.host_setup import Image

FICLONE = 0x40049409  # linux/fs.h
CANNOT_CLONE = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM)
MODE = 0o644


class Images:
    """Clones from `library` ("": there is none) into `folder`/ENVIRONMENT."""

    def __init__(self, library: str, folder: str) -> None:
        self._library, self._folder = library, folder

    def objections(self, images: Sequence[Image]) -> list[str]:
        """Return why some of the images cannot be cloned."""
        if images and not self._library:
            return ["no library of images is configured (setup.library)"]
        return [why for image in images if (why := self._objection(image))]

    def clone(self, environment: str, images: Sequence[Image], deadline: Deadline) -> list[str]:
        """Have them in the environment's folder, whole and unchanged; returns the names of those that were not. Raises
        PermanentError, TransientError or OSError."""
        return [image.name for image in images if self._clone(environment, image, deadline)]

    def remove(self, environment: str) -> bool:
        """Remove the environment's folder; false when there was none."""
        return folders.removed(self._folder, environment)

    def _objection(self, image: Image) -> str:
        real, base = os.path.realpath(f"{self._library}/{image.name}"), os.path.realpath(self._library)
        if not real.startswith(base.rstrip("/") + "/"):
            return f"image {image.name} leads out of the library"
        return "" if os.path.isfile(real) else f"image {image.name} is not in the library"

    def _clone(self, environment: str, image: Image, deadline: Deadline) -> bool:
        if why := self._objection(image):
            raise PermanentError(why)
        base = os.path.realpath(self._library)
        inside = os.path.relpath(os.path.realpath(f"{base}/{image.name}"), base)
        with folders.opened(base, inside) as source:
            return folders.placed(
                self._folder,
                f"{environment}/{image.name}",
                image.sha256,
                MODE,
                lambda fd: _filled(source, fd, deadline),
                deadline,
            )


def _filled(source: int, target: int, deadline: Deadline) -> str:
    """Make a file the same as another; returns the digest of what it holds now."""
    try:
        fcntl.ioctl(target, FICLONE, source)
    except OSError as error:
        if error.errno not in CANNOT_CLONE:
            raise
        return _copied(source, target, deadline)
    return folders.digest_of(target, deadline)


def _copied(source: int, target: int, deadline: Deadline) -> str:
    """Copy like `_filled`, byte by byte; zeros take no space."""
    digest = hashlib.sha256()
    at = 0
    while chunk := os.pread(source, folders.CHUNK_BYTES, at):
        deadline.left_s()
        digest.update(chunk)
        done = len(chunk) if not any(chunk) else 0
        while done < len(chunk):
            done += os.pwrite(target, chunk[done:], at + done)
        at += len(chunk)
    os.ftruncate(target, at)
    return digest.hexdigest()
