"""What is checked before the driver is made."""

from __future__ import annotations

import sys

import pytest

from agents.hypervisors.libvirt.build import check_config
from shared.base.errors import InvalidInput
from shared.config.agent import AgentConfig
from shared.config.toml import parse

SHARED_DISKS = '[libvirt]\nshared_pools = ["images"]\n[libvirt.migration]\ncopy_storage = "always"\n'


def test_a_library_that_cannot_be_imported_is_told_with_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """`trimtab-agent --check` said nothing, and the agent ended when it was started."""
    monkeypatch.setitem(sys.modules, "libvirt", None)
    with pytest.raises(InvalidInput) as raised:
        check_config(parse(SHARED_DISKS, AgentConfig))
    assert [problem.where for problem in raised.value.problems] == [
        "hypervisor.driver",
        "libvirt.migration.copy_storage",
    ]
    assert "trimtab[libvirt]" in str(raised.value)
