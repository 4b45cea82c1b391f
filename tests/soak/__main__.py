"""`python -m tests.soak --seconds 180`: soak a cluster of real daemons, and print what came of it.

Exit status: 0 when all was as it should be, 1 when not, 2 when there can be no soak here, and why.
"""

from __future__ import annotations

import argparse
import sys

import pytest

from tests.integration.private_broker import private_broker
from tests.soak.faults import FAULTS
from tests.soak.running import report, run

DONE, WRONG, IMPOSSIBLE = 0, 1, 2
SECONDS_MIN = 60.0


def main() -> int:
    """Run one; the exit status."""
    names = [fault.name for fault in FAULTS]
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="a cluster under soak")
    parser.add_argument("--seconds", type=float, default=1_800.0, help="how long; %(default)s if not given")
    parser.add_argument("--fault", action="append", default=[], choices=names, help="this one alone; may be repeated")
    given = parser.parse_args()
    if given.seconds < SECONDS_MIN:
        parser.error(f"at least {SECONDS_MIN:g} s")
    try:
        with private_broker() as broker:
            outcome = run(broker, given.seconds, given.fault, _tell)
    except (pytest.skip.Exception, pytest.fail.Exception) as reason:
        return _failed(IMPOSSIBLE, f"no soak can be made here: {reason}")
    except (AssertionError, RuntimeError) as error:
        return _failed(WRONG, str(error) or repr(error))
    _tell(f"\n{report(outcome)}")
    return WRONG if outcome.wrong else DONE


def _tell(line: str) -> None:
    print(line, flush=True)


def _failed(status: int, why: str) -> int:
    print(why, file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
