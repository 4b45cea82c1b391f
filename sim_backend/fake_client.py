"""The driver of a fake server's nodes, by the name that the entry point `fake` refers to; see docs/fake.md."""

from __future__ import annotations

from sim_backend.remote.client import RemoteHypervisor

__all__ = ["RemoteHypervisor"]
