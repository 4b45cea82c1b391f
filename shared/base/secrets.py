"""Secrets in files: where such a file is, who may read it, and how a password joins the URL that it belongs to.

A place is an absolute path, one below the user's own folder (`~/`), or `credential:NAME`, which systemd passes a unit
(`LoadCredential=`). What is read here is never part of an error.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

from shared.base.errors import InvalidInput, Problem
from shared.base.read_file import opened

CREDENTIAL = "credential:"
FOLDER_VARIABLE = "CREDENTIALS_DIRECTORY"
SECRET_BYTES_MAX = 4096
OF_OTHERS = 0o007
TO_WRITE = 0o022
SECTIONS = ("bus", "store", "history")  # of configurations: those with a URL and a password

C = TypeVar("C", bound=Any)


def is_absent(place: str) -> bool:
    """Whether a place is a credential and nobody has passed this process any."""
    return place.startswith(CREDENTIAL) and not os.environ.get(FOLDER_VARIABLE)


def path_of(place: str) -> str:
    """The file of a place ("" of none). InvalidInput for a credential in a process that was passed none."""
    if not place.startswith(CREDENTIAL):
        return str(Path(place).expanduser()) if place.startswith("~/") else place
    if is_absent(place):
        what = f"{FOLDER_VARIABLE} is not set"
        raise InvalidInput(Problem(place, what, "a unit with LoadCredential=, or the path of a file"))
    return str(Path(os.environ[FOLDER_VARIABLE]) / place.removeprefix(CREDENTIAL))


def fault_of(path: str | Path, status: os.stat_result | None = None) -> Problem | None:
    """What is wrong with the owner or the mode of a file that holds a secret: only root and the user of this process
    may own it, nobody else write it, others not touch it at all; its group may read it. OSError when there is none."""
    found = os.stat(path) if status is None else status
    mode = stat.S_IMODE(found.st_mode)
    mend = f"chmod {'0640' if found.st_uid == 0 else '0600'} {path}"
    if not stat.S_ISREG(found.st_mode):
        return Problem(str(path), "is no regular file", "a file")
    if found.st_uid not in (0, os.geteuid()) and os.geteuid() != 0:
        return Problem(str(path), "holds a secret and belongs to another user", f"chown root {path}")
    if mode & OF_OTHERS:
        return Problem(str(path), f"holds a secret that every user of this machine can reach (mode {mode:04o})", mend)
    if mode & TO_WRITE:
        return Problem(str(path), f"holds a secret that its group can change (mode {mode:04o})", mend)
    return None


def secret_of(key: str, place: str) -> str:
    """The text of a secret file without the line's end. InvalidInput, told of `key`, unless it can be read, nobody else
    can, and it is one line of 1 to SECRET_BYTES_MAX bytes of UTF-8 without control characters."""
    path = path_of(place)
    try:
        with opened(Path(path), "a file") as file:
            wrong = fault_of(path, os.fstat(file.fileno()))
            content = b"" if wrong else file.read(SECRET_BYTES_MAX + 2)
    except InvalidInput as error:
        (problem,) = error.problems
        raise InvalidInput(Problem(f"{key}: {problem.where}", problem.what, problem.expected)) from error
    if wrong is not None:
        raise InvalidInput(Problem(f"{key}: {wrong.where}", wrong.what, wrong.expected))
    line = content.removesuffix(b"\n").removesuffix(b"\r")
    text = line.decode("utf-8", "replace")
    if not 0 < len(line) <= SECRET_BYTES_MAX or "\ufffd" in text or not text.isprintable():
        expected = f"one line of 1 to {SECRET_BYTES_MAX} bytes of UTF-8 without control characters"
        raise InvalidInput(Problem(f"{key}: {path}", "is not a password", expected))
    return text


def has_password(url: str) -> bool:
    """Whether a URL names a password; one that cannot be read has none."""
    try:
        return urlsplit(url).password is not None
    except ValueError:
        return False


def with_password(key: str, url: str, place: str, only_look: bool = False) -> str:
    """A URL with the password that is in the file of `place` (as it is when there is no place). InvalidInput where the
    URL names no user or has a password already; see `secret_of` for the rest. To `only_look` a process need not have
    been passed the credential: then some word stands for it."""
    if not place:
        return url
    if has_password(url):
        raise InvalidInput(Problem(f"{key}.url", f"has a password, and {key}.password_file is given", "one of the two"))
    try:
        user, at, host = urlsplit(url).netloc.rpartition("@")
    except ValueError as error:
        raise InvalidInput(Problem(f"{key}.url", f"cannot be used: {error}", "a URL SCHEME://USER@HOST/")) from error
    if not (at and user):
        raise InvalidInput(Problem(f"{key}.url", f"names no user, and {key}.password_file is given", "USER@HOST in it"))
    password = "unread" if only_look and is_absent(place) else secret_of(f"{key}.password_file", place)
    return urlunsplit(urlsplit(url)._replace(netloc=f"{user}:{quote(password, safe='')}@{host}"))


def completed(settings: C, file: Path | None, only_look: bool = False) -> C:
    """A configuration whose SECTIONS, as far as it has them, name in their URLs the passwords of
    their `password_file`. InvalidInput with everything that is wrong: see `with_password`; where `file`, which it was
    read from, holds a password itself, that is held to `fault_of`."""
    problems: list[Problem] = []
    whole: dict[str, Any] = {}
    for key in SECTIONS:
        section: Any = getattr(settings, key, None)
        if section is None:
            continue
        if file is not None and has_password(section.url) and (wrong := fault_of(file)) is not None:
            problems.append(wrong)
        try:
            url = with_password(key, section.url, section.password_file, only_look)
        except InvalidInput as error:
            problems += error.problems
        else:
            whole[key] = replace(section, url=url, password_file="")
    if problems:
        raise InvalidInput(*dict.fromkeys(problems))
    made: C = replace(settings, **whole)
    return made
