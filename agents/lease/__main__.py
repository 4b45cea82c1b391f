"""`python -m agents.lease`: the command `trimtab-lease`."""

from __future__ import annotations

import sys

from agents.lease.service import main

if __name__ == "__main__":
    sys.exit(main())
