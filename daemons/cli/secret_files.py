"""Files that commands write secrets to: in folders that nobody else writes to, never through a link, mode 0600."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from shared.base.errors import InvalidInput, Problem
from shared.base.secrets import TO_WRITE
from shared.base.write_file import write_file


def folder_of_ours(option: str, folder: Path) -> None:
    """Create a folder, mode 0700, unless it exists. Raises InvalidInput, attributed to `option`, if it cannot be
    created, or others could put files into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = os.stat(folder)
    except OSError as error:
        raise InvalidInput(Problem(option, str(error), "a folder that can be written to")) from error
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & TO_WRITE:
        what = f"{folder} is one that others can write to (mode {stat.S_IMODE(found.st_mode):04o})"
        raise InvalidInput(Problem(option, what, f"a folder of your own: chmod go-w {folder}"))


def write_secret(option: str, file: Path, text: str) -> None:
    """Write a file that only its owner can read, replacing an existing one. Raises InvalidInput, attributed to
    `option`, if that fails, or if the path is a link."""
    if file.is_symlink():
        raise InvalidInput(Problem(option, f"{file} is a link", "a file, or nothing there"))
    write_file(option, file, text, mode=0o600)
