"""The VMs that the driver `process` named files and cgroups by, for tests that look at what it left on the machine."""

from __future__ import annotations

import re


def unescaped(name: str) -> str:
    """The VM that `agents.hypervisors.process.names.escaped` made the name from."""
    plain = re.sub(r":([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), name)
    return plain.encode("latin-1").decode("utf-8", "surrogatepass")
