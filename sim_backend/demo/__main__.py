"""`python -m sim_backend.demo`: the process of a demo in the background, and what its power driver runs.

`run FOLDER HOSTS PORT` prints one JSON object per line: {"step": TEXT} while it starts, then {"ready": {...}} or
{"error": TEXT, "problems": [[WHERE, WHAT, EXPECTED], ...]}, and nothing more. `fence SOCKET HOST` ends with 0 when the
host is proven off.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from shared.base.errors import InvalidInput, TrimtabError

REFUSED, USAGE = 1, 2


def main(arguments: list[str]) -> int:
    """Run the command. Exit status 0 done, 1 refused, 2 wrong usage."""
    if arguments[:1] == ["fence"] and len(arguments) == 3:
        return _fence(Path(arguments[1]), arguments[2])
    if arguments[:1] == ["run"] and len(arguments) == 4:
        return _run(Path(arguments[1]), int(arguments[2]), int(arguments[3]))
    sys.stderr.write(f"{__doc__}\n")
    return USAGE


def _fence(socket: Path, host: str) -> int:
    from sim_backend.demo.control import ask

    try:
        return 0 if ask(socket, "fence", host).get("off") else REFUSED
    except TrimtabError as error:
        sys.stderr.write(f"{error}\n")
        return REFUSED


def _run(folder: Path, host_count: int, port: int) -> int:
    from sim_backend.demo.layout import Layout
    from sim_backend.demo.supervisor import Demo

    layout = Layout(folder, host_count, port)

    async def live() -> None:
        await Demo(layout, lambda text: _put({"step": text})).run(ready)

    def ready(status: dict[str, Any]) -> None:
        _put({"ready": status})
        with (layout.logs / "demo.log").open("ab") as log:  # who has started this reads no more
            for stream in (sys.stdout, sys.stderr):
                os.dup2(log.fileno(), stream.fileno())

    try:
        asyncio.run(live())
    except TrimtabError as error:
        problems = error.problems if isinstance(error, InvalidInput) else ()
        _put({"error": str(error), "problems": [[each.where, each.what, each.expected] for each in problems]})
        return USAGE if problems else REFUSED
    return 0


def _put(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
