"""The base clock of a core of this machine, which does not change with the load."""

from __future__ import annotations

from pathlib import Path

_FILES = ("base_frequency", "cpuinfo_max_freq")  # kHz, in cpufreq's folder of a CPU


def base_clock_mhz(root: Path = Path("/")) -> float | None:
    """Return the base clock that cpufreq reports, else the highest; None if cpufreq reports neither, as in most virtual
    machines."""
    for file in _FILES:
        try:
            khz = int((root / "sys/devices/system/cpu/cpu0/cpufreq" / file).read_text("ascii"))
        except (OSError, ValueError):
            continue
        if khz > 0:
            return khz / 1_000.0
    return None
