"""Becomes a program, as its launch file says: `python -I -m agents.hypervisors.process.launch FILE`.

Runs as the program's own account, in its own group or unit. Imports next to nothing: it is started for each program.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

FILE, OUTPUT = "launch.json", "output"
BYTES_MAX = 4 << 20
UNUSABLE = 125
NOT_STARTED = 127


def read(path: Path) -> dict[str, Any]:
    """Read a launch file. Raises ValueError, KeyError, TypeError or OSError for one that cannot be used."""
    with path.open("rb") as file:
        content = file.read(BYTES_MAX + 1)
    if len(content) > BYTES_MAX:
        raise ValueError(f"{path} is too large")
    try:
        said = json.loads(content)
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply") from error
    words, environment = said["words"], said["environment"]
    if not (isinstance(words, list) and words and all(isinstance(word, str) for word in words)):
        raise ValueError(f"{path}: words")
    if not (isinstance(environment, dict) and all(isinstance(value, str) for value in environment.values())):
        raise ValueError(f"{path}: environment")
    if not isinstance(said["output"], str):
        raise ValueError(f"{path}: output")
    return dict(said)


def become(said: dict[str, Any]) -> NoReturn:
    """Execute the program in its own folder, with its own variables and none of the agent's; append all its output to
    the file there."""
    words, environment = said["words"], said["environment"]
    try:
        os.chdir(said["output"])
        # as the program's own account: where that has put a link, nothing is opened for it
        output = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, number in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, number)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what is ignored stays so
            signal.signal(ignored, signal.SIG_DFL)
        os.execve(words[0], words, environment)
    except OSError as error:
        print(f"{words[0]} cannot be executed: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(NOT_STARTED)


def main(arguments: list[str]) -> NoReturn:
    """Wait to be continued if the program starts paused, then execute it."""
    try:
        said = read(Path(arguments[0]))
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        print(f"no usable launch file: {error}", file=sys.stderr)
        sys.exit(UNUSABLE)
    if said.get("paused"):
        os.kill(os.getpid(), signal.SIGSTOP)
    become(said)


if __name__ == "__main__":
    main(sys.argv[1:])
