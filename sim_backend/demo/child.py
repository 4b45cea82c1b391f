"""`python -m sim_backend.demo.child MODULE ARGUMENT...`: runs a daemon's `main` that ends when its parent does."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from shared.runtime.child_process import live_with_parent


def main(arguments: list[str]) -> int:
    """Run the module's `main` with the other arguments; the first is the process id of the parent."""
    parent, module, *rest = arguments
    live_with_parent(int(parent))
    os.environ.pop("NOTIFY_SOCKET", None)  # a supervisor of the demo is none of the daemons'
    status: int = import_module(module).main(rest)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
