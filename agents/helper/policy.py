"""What the helper may do: its own configuration, which only root may write, and who may ask."""

from __future__ import annotations

import os
import pwd
import re
import socket
import stat
import struct
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from agents.helper.errors import Refusal
from agents.helper.request import Request

CONFIG_BYTES_MAX = 65_536
PATTERN = re.compile(r"[a-z0-9+.*-]{1,128}")
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


@dataclass(frozen=True, slots=True)
class Policy:
    """The helper's policy. user: the user whose requests are accepted. packages: patterns of names that may be
    requested; `*` stands for any characters. dependencies: patterns of names that may be installed along with them.
    update: fetch the package lists again if they lack a requested package."""

    user: str = "trimtab"
    packages: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    update: bool = True

    def check(self, request: Request) -> None:
        """Raise Refusal, naming every package that may not be asked for."""
        foreign = [package.name for package in request.install if not _matches(package.name, self.packages)]
        if foreign:
            raise Refusal(f"not in the helper's packages: {', '.join(foreign)}")

    def check_others(self, names: set[str]) -> None:
        """Raise Refusal, naming what would come along and may not."""
        foreign = sorted(name for name in names if not _matches(name, self.packages + self.dependencies))
        if foreign:
            raise Refusal(f"would install besides, not in the helper's dependencies: {', '.join(foreign)}")


def read(path: str, owner: int = 0) -> Policy:
    """Read the policy from a TOML file. Raises Refusal unless the file belongs to `owner`, no one else may write it,
    and all of it is valid."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != owner or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Refusal(f"{path} may be written by others than root")
        content = file.read(CONFIG_BYTES_MAX)
    try:
        table = tomllib.loads(content.decode())
    except ValueError as error:
        raise Refusal(f"{path}: {error}") from error
    except RecursionError as error:
        raise Refusal(f"{path}: nested too deeply") from error
    return _policy(path, table)


def _policy(path: str, table: dict[str, Any]) -> Policy:
    default = Policy()
    if unknown := sorted(set(table) - {"user", "packages", "dependencies", "update"}):
        raise Refusal(f"{path}: no such keys: {', '.join(unknown)}")
    user, update = table.get("user", default.user), table.get("update", default.update)
    if not isinstance(user, str) or not isinstance(update, bool):
        raise Refusal(f"{path}: user is no name, or update neither true nor false")
    return Policy(user, _patterns(path, table, "packages"), _patterns(path, table, "dependencies"), update)


def _patterns(path: str, table: dict[str, Any], key: str) -> tuple[str, ...]:
    given = table.get(key, [])
    if not isinstance(given, list) or not all(isinstance(one, str) and PATTERN.fullmatch(one) for one in given):
        raise Refusal(f"{path}: {key} is no list of names and patterns of packages")
    return tuple(given)


def check_peer(channel: socket.socket, user: str) -> None:
    """Raise Refusal unless the process at the other end is that user's, as the kernel says."""
    raw = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    try:
        wanted = pwd.getpwnam(user).pw_uid
    except KeyError as error:
        raise Refusal(f"there is no user {user}") from error
    if uid != wanted:
        raise Refusal(f"user id {uid} may ask for nothing: only {user} may")


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
