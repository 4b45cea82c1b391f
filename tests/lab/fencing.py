"""Fencing of a lab's hosts by programs with the interface of fence agents (docs/how-to/fencing.md): one that cuts their
power, and devices that do not work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.lab.errors import LabError
from tests.lab.hosts import ROOT, ask
from tests.lab.power import has_power
from tests.support.fence_agent import FakeAgent, metadata_of

DONE, FAILED, IS_OFF = 0, 1, 2
OPTIONS, ACTIONS = ("action", "plug"), ("off", "status", "metadata")
SAYS = "Unable to connect/login to fencing device"
_PROGRAM = """#!{python} -P
import sys
from pathlib import Path

sys.path.insert(0, {root!r})
from tests.lab.fencing import answer

sys.exit(answer(Path({lab!r}), sys.stdin.read()))
"""


def write_agent(program: Path, lab: Path) -> None:
    """Write the fence agent of the lab in a folder; its plugs are the names of the hosts."""
    program.write_text(_PROGRAM.format(python=sys.executable, root=str(ROOT), lab=str(lab)))
    program.chmod(0o755)


def answer(lab: Path, text: str) -> int:
    """Carry out what an agent was given as its input; return its exit status."""
    options = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    action, plug = options.get("action", ""), options.get("plug", "")
    try:
        match action:
            case "metadata":
                print(metadata_of(OPTIONS, ACTIONS))
            case "off":
                ask(lab, "power_off", names=[plug])
            case "status":
                on = has_power(lab, plug)
                print(f"Status: {'ON' if on else 'OFF'}")
                return DONE if on else IS_OFF
            case _:
                print(f"no such action: {action}")
                return FAILED
    except LabError as error:
        print(f"Failed: {error}")
        return FAILED
    return DONE


def refusing(folder: Path) -> Path:
    """Make an agent whose device cannot be reached; return its program."""
    made = FakeAgent.make(folder)
    made.script(always={"off": FAILED, "status": FAILED, "cuts": False, "prints": SAYS})
    return made.program


def hanging(folder: Path, seconds: float) -> Path:
    """Make an agent whose device takes a connection and answers nothing for so long; return its program."""
    made = FakeAgent.make(folder)
    made.script(always={"off_s": seconds, "status_s": seconds, "off": FAILED, "status": FAILED, "cuts": False})
    return made.program


def section(limit_s: float, **methods: Path) -> dict[str, Any]:
    """Return the section `[fencing]` with methods in this order, each with its program. `limit_s`: of one run."""
    keys = {"limit_s": limit_s, "options": {"plug": "{node}"}}
    return {
        "methods": list(methods),
        "method": {name: {"agent": str(program), **keys} for name, program in methods.items()},
    }
