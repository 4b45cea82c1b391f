"""Which operating system this host runs."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping

LENGTH_MAX = 64


def os_of(read: Callable[[], Mapping[str, str]] = platform.freedesktop_os_release) -> tuple[str, str]:
    """Return the operating system's type and version, such as "debian" and "12", from ID and VERSION_ID of
    os-release(5); "" for each one that is missing."""
    try:
        told = read()
    except (OSError, ValueError):
        return "", ""
    return told.get("ID", "")[:LENGTH_MAX], told.get("VERSION_ID", "")[:LENGTH_MAX]
