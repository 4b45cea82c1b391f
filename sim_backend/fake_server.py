"""The fake cluster as a process of its own: `python -m sim_backend.fake_server`, see docs/fake.md."""

from __future__ import annotations

from sim_backend.remote.control import FakeControl
from sim_backend.remote.main import main
from sim_backend.remote.server import FakeServer

__all__ = ["FakeControl", "FakeServer", "main"]

if __name__ == "__main__":
    raise SystemExit(main())
