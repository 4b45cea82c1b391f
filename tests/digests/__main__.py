"""`python -m tests.digests [CASE ...]` writes digests and names again, after a change that means to change them."""

from __future__ import annotations

import json
import sys

from tests.digests.cases import CASES, DIGESTS
from tests.digests.names import NAMES, names


def main(wanted: list[str]) -> None:
    """Write the digests of the cases, of all if none are named, and the names."""
    kept = json.loads(DIGESTS.read_text("utf-8")) if DIGESTS.exists() else {}
    for name in wanted or CASES:
        kept[name] = CASES[name]().to_json()
        print(name, kept[name]["effects"], flush=True)
    kept = {name: kept[name] for name in CASES if name in kept}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(digest)}" for name, digest in kept.items())
    DIGESTS.write_text(f"{{\n{lines}\n}}\n", "utf-8")
    NAMES.write_text(json.dumps(names(), indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
