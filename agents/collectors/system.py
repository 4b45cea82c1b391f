"""Which operating system this host runs."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping

LENGTH_MAX = 64


def os_of(read: Callable[[], Mapping[str, str]] = platform.freedesktop_os_release) -> tuple[str, str]:
    """Its type and version, such as "debian" and "12", by os-release(5): ID and VERSION_ID; "" for what it does not
    tell."""
    try:
        told = read()
    except (OSError, ValueError):
        return "", ""
    return told.get("ID", "")[:LENGTH_MAX], told.get("VERSION_ID", "")[:LENGTH_MAX]
