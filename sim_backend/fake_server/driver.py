"""The driver of a fake server's nodes, as the entry point `fake` makes it; see docs/reference/fake-server.md."""

from __future__ import annotations

from collections.abc import Callable

from shared.config.agent import AgentConfig
from sim_backend.fake_server.client import RemoteHypervisor

__all__ = ["RemoteHypervisor", "from_config"]


def from_config(config: AgentConfig, wake: Callable[[], None] | None = None) -> RemoteHypervisor:
    """Return the node that `hypervisor.uri` names. Raises the errors of `RemoteHypervisor`."""
    return RemoteHypervisor(config.hypervisor.uri, wake)
