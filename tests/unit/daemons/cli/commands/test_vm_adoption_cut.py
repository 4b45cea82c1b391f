"""`trimtab vms adopt` where there are more VMs than it looks at: it says so, and patterns for others are no mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemons.cli.asking import ROWS_MAX
from shared.base.clock import ManualClock
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import AdoptVm, Query, Request
from tests.support.fake_controller import FakeController, trimtab


@pytest.mark.parametrize("total", [ROWS_MAX, ROWS_MAX + 1])
def test_it_says_that_there_are_more(tmp_path: Path, total: int) -> None:
    row = {"node": "n1", "managed": False, "known": True, "not_adoptable": "", "state": "running"}
    rows = [{**row, "vm": f"vm{number}"} for number in range(ROWS_MAX)]
    (tmp_path / "vms.toml").write_text('[[vms]]\nmatch = "vm1"\n[[vms]]\nmatch = "elsewhere"\n')

    def answer(request: Request) -> Reply:
        if isinstance(request, AdoptVm):
            return Reply(request.request, True)
        assert isinstance(request, Query)
        at = int(request.after or 0)
        following = at + request.limit
        page = rows[at:following]
        data = {"total": total, "vms": page, "next": str(following) if following < total else ""}
        return Reply(request.request, True, data=data)

    bus = FakeController(ManualClock(100.0), answer)
    outcome = trimtab(bus, "vms", "adopt", "vm1", "--terms", tmp_path / "vms.toml", "--dry-run")

    note = f"only the first {ROWS_MAX} of {total} VMs are considered; choose others with --node"
    assert (note in outcome.stderr) is (total > ROWS_MAX)
    assert ("'elsewhere', which matches none of the VMs" in outcome.stderr) is (total == ROWS_MAX)
    assert outcome.exit_code == (0 if total > ROWS_MAX else 2), outcome.output
