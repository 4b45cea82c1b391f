"""Where the node's counters come from: psutil, or anything that answers like it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil  # type: ignore[import-untyped]

READ_ERRORS: tuple[type[Exception], ...] = (OSError, RuntimeError, ValueError, AttributeError, psutil.Error)


@dataclass(frozen=True, slots=True)
class Source:
    """The psutil functions that a `NodeSampler` uses, under their own names; tests supply their own.

    They raise one of READ_ERRORS when the system does not report a value.
    """

    cpu_times: Callable[[], Any]
    getloadavg: Callable[[], Any]
    virtual_memory: Callable[[], Any]
    swap_memory: Callable[[], Any]
    disk_io_counters: Callable[[], Any]
    net_io_counters: Callable[[], Any]
    disk_usage: Callable[[str], Any]


def psutil_source() -> Source:
    """Return the source for this machine. Counters are per disk and per interface, and never decrease when the kernel's
    counters wrap around."""
    return Source(
        psutil.cpu_times,
        psutil.getloadavg,
        psutil.virtual_memory,
        psutil.swap_memory,
        lambda: psutil.disk_io_counters(perdisk=True),
        lambda: psutil.net_io_counters(pernic=True),
        psutil.disk_usage,
    )
