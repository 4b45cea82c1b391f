"""Secrets in files: where such a file is, who may read it, and how a password joins the URL that it belongs to.

A place is an absolute path, one below the user's own folder (`~/`), or `credential:NAME`, which systemd passes a unit
(`LoadCredential=`). What is read here is never part of an error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
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
    """Return whether a place is a credential and this process was passed none."""
    return place.startswith(CREDENTIAL) and not os.environ.get(FOLDER_VARIABLE)


def path_of(place: str) -> str:
    """Return the file of a place ("" for none). Raises InvalidInput for a credential in a process that was passed
    none."""
    if not place.startswith(CREDENTIAL):
        return str(Path(place).expanduser()) if place.startswith("~/") else place
    if is_absent(place):
        what = f"{FOLDER_VARIABLE} is not set"
        raise InvalidInput(Problem(place, what, "a unit with LoadCredential=, or the path of a file"))
    return str(Path(os.environ[FOLDER_VARIABLE]) / place.removeprefix(CREDENTIAL))


def fault_of(path: str | Path, status: os.stat_result | None = None) -> Problem | None:
    """Return the problem with the owner or mode of a file that holds a secret. Only root and the user of this process
    may own it, nobody else may write it, and others have no access; its group may read it. Raises OSError when there is
    none."""
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
    """Return the text of a secret file without the line's end. Raises InvalidInput naming `key` unless the file can be
    read, and by nobody else. It must hold one line of 1 to SECRET_BYTES_MAX bytes of UTF-8 without control
    characters."""
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
    """Return whether a URL includes a password; one that cannot be parsed has none."""
    try:
        return urlsplit(url).password is not None
    except ValueError:
        return False


def with_password(key: str, url: str, place: str, only_look: bool = False) -> str:
    """Return a URL with the password from the file of `place` (unchanged when there is no place). Raises InvalidInput
    if the URL names no user or has a password already; see `secret_of` for the rest. With `only_look`, a process need
    not have been passed the credential: a placeholder is used."""
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


def completed(settings: C, file: Path | None, only_look: bool = False, *, sections: Sequence[str] = SECTIONS) -> C:
    """Return a configuration with the passwords of each section's `password_file` in its URLs, for those of `sections`
    that it has. Raises InvalidInput with everything that is wrong, see `with_password`. If `file`, which it was read
    from, holds a password itself, `fault_of` applies to it."""
    problems: list[Problem] = []
    whole: dict[str, Any] = {}
    for key in sections:
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
