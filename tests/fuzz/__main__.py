"""`python -m tests.fuzz TARGET NUMBER` repeats a case; `python -m tests.fuzz --cases N` runs N over all targets."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tests.fuzz.running import run
from tests.fuzz.targets import GROUPS, PREFIXES, counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 where nothing went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="?", help="such as read:job; a beginning stands for all that begin so")
    parser.add_argument("number", nargs="?", type=int, help="of the case")
    parser.add_argument("--cases", type=int, default=10_000, help="over all targets (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case of each target")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="print the targets")
    given = parser.parse_args(arguments)
    begin = given.target or ""
    groups = [PREFIXES[begin.partition(":")[0]]] if begin.partition(":")[0] in PREFIXES else [*GROUPS]
    many = counts(given.cases, groups)
    chosen = [begin] if begin in many else [name for name in many if name.startswith(begin)]
    if given.list or not chosen:
        print("\n".join(chosen or many))
        return 0 if given.list else 2
    if given.number is not None:
        pieces = [(name, given.number, given.number + 1, 1) for name in chosen]
    else:
        scale = given.cases / sum(many[name] for name in chosen) if begin else 1.0
        pieces = [(name, given.first, given.first + max(1, round(many[name] * scale)), 1) for name in chosen]
    summary = run(pieces, min(given.workers, 1 if given.number is not None else given.workers), _tell)
    print("\n".join(summary.lines()))
    return 1 if summary.wrong else 0


def _tell(wrong: str) -> None:
    print(f"WRONG {wrong}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
