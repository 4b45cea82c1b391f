"""What a process drops after it has begun is found soon, however much it imported."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

from shared.runtime.garbage_collection import collect_young

# Much that lives, then cycles of some size that are dropped one after the other; says how many were there at most.
PROGRAM = """
import gc, sys, weakref
from shared.runtime.garbage_collection import keep_what_is_there

class Cycle:
    def __init__(self):
        self.own = self
        self.parts = [[] for _ in range(50)]

alive = [[] for _ in range(1_000_000)]
gc.collect()
if sys.argv[1] == "kept":
    keep_what_is_there()
else:
    gc.freeze()
there, most = weakref.WeakSet(), 0
aged = []
for number in range(6_000):
    cycle = Cycle()
    there.add(cycle)
    aged.append(cycle)
    if len(aged) > 40:  # by then it has outlived the young ones
        del aged[0]
    del cycle
    most = max(most, len(there))
print(most)
"""


def most_there(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True, timeout=60.0
    )
    return int(done.stdout)


def test_garbage_is_found_soon_beside_much_that_stays() -> None:
    assert most_there("kept") * 2 < most_there("frozen alone")


class Cycle:
    def __init__(self) -> None:
        self.own = self


def test_young_garbage_goes_at_once_and_what_lives_stays() -> None:
    gc.disable()
    try:
        alive, dropped = Cycle(), Cycle()
        seen = [weakref.ref(alive), weakref.ref(dropped)]
        del dropped
        assert all(each() for each in seen)
        collect_young()
        assert [each() for each in seen] == [alive, None]
    finally:
        gc.enable()
