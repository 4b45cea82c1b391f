"""The power of a lab's hosts, as programs for the driver `exec` (docs/how-to/power.md):

    python -m tests.lab.power --lab FOLDER fence h1

`fence` and `sleep` end when no process of the host is left, `wake` when it has power and its libvirtd was started,
`status` prints `on` or `off`. Exit status 0: done. 1: not done, and why on standard error. Without --lab, TRIMTAB_LAB
names the folder.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.lab import plan
from tests.lab.errors import LabError
from tests.lab.hosts import ask

ASKS = {"fence": "power_off", "sleep": "power_off", "wake": "power_on"}


def main() -> int:
    """Do it; the exit status."""
    parser = argparse.ArgumentParser(prog="power", description="the power of a lab's hosts")
    parser.add_argument("--lab", default=os.environ.get("TRIMTAB_LAB"), help="the lab's folder")
    parser.add_argument("operation", choices=(*ASKS, "status"))
    parser.add_argument("host")
    given = parser.parse_args()
    if not given.lab:
        parser.error("no lab is named")
    folder = Path(given.lab)
    try:
        if given.operation == "status":
            print("on" if has_power(folder, given.host) else "off")
        else:
            ask(folder, ASKS[given.operation], names=[given.host])
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def has_power(folder: Path, name: str) -> bool:
    """Whether a host of the lab in a folder has power. Raises LabError when the lab has no such host."""
    if not (folder / name / "etc/libvirt").is_dir():
        raise LabError(f"the lab has no host {name}")
    return (folder / name / plan.FIRST).exists()


if __name__ == "__main__":
    sys.exit(main())
