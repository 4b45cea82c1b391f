"""The fake cluster as a process of its own: `python -m sim_backend.fake_server`, see docs/reference/fake-server.md."""

from __future__ import annotations

from sim_backend.fake_server.control import FakeControl
from sim_backend.fake_server.main import main
from sim_backend.fake_server.server import FakeServer

__all__ = ["FakeControl", "FakeServer", "main"]

if __name__ == "__main__":
    raise SystemExit(main())
