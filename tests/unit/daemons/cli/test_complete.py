"""Names that the shell completes, from a real controller; and that nobody waits or reads an error for them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from daemons.cli.connection import Access, OperatorBus
from daemons.cli.main import main
from shared.base.clock import SystemClock
from shared.base.errors import BusUnavailable
from shared.ports.bus import Bus
from tests.support.operator_harness import URL, Rig
from tests.unit.daemons.controller.views.test_nodes_operator import WEB, node_of, submit


def completed(access: Access, *words: str) -> list[str]:
    """What is offered for the last of the words."""
    shell = ShellComplete(main, {"obj": access}, "trimtab", "_TRIMTAB_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setenv("TRIMTAB_URL", URL)
    monkeypatch.setenv("HOME", "/none")
    made = Rig()
    made.run(30.0)
    return made


def test_names_of_nodes_jobs_vms_and_applications(rig: Rig, tmp_path: Path) -> None:
    for name in ("render-1", "render-2", "load"):
        submit(rig, tmp_path, name, memory_mib=100)
    (tmp_path / "web.toml").write_text(WEB)
    rig.asked("web", "submit", tmp_path / "web.toml")
    rig.run(30.0)
    assert completed(rig.access, "nodes", "drain", "") == ["n1", "n2"]
    assert completed(rig.access, "nodes", "drain", "n2", "") == ["n1"]
    assert completed(rig.access, "nodes", "show", "x") == []
    assert completed(rig.access, "jobs", "show", "re") == ["render-1", "render-2"]
    assert completed(rig.access, "vms", "migrate", "l") == ["load#0"]
    assert completed(rig.access, "vms", "migrate", "load#0", "n") == ["n1", "n2"]
    assert completed(rig.access, "web", "show", "") == ["shop"]
    assert completed(rig.access, "plan", "history", "--workload", "") == ["load", "render-1", "render-2", "shop"]
    rig.asked("vms", "release", "load")
    rig.asked("jobs", "cancel", "render-1")
    rig.run(60.0)
    assert completed(rig.access, "jobs", "cancel", "") == ["render-2"]
    assert completed(rig.access, "vms", "adopt", "") == ["load#0"]
    assert completed(rig.access, "vms", "adopt", "load#0", "--node", node_of(rig, "render-2")[:1]) == ["n1", "n2"]


def test_without_a_broker_or_a_controller_nothing_is_offered_or_said(
    rig: Rig, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.loop.controllers["a"].supervised = False
    rig.loop.controllers["a"].kill()
    assert completed(rig.access, "nodes", "show", "") == []
    rig.unreachable = "nobody listens there"
    assert completed(rig.access, "jobs", "show", "") == []
    monkeypatch.delenv("TRIMTAB_URL")
    assert completed(rig.access, "jobs", "show", "") == []
    assert capfd.readouterr() == ("", "")


def test_nobody_waits_for_a_connection_that_hangs(rig: Rig) -> None:
    del rig
    ended = threading.Event()

    def hang(_bus: OperatorBus, _limit_s: float) -> Bus:
        ended.wait(20.0)
        raise BusUnavailable("at last")

    clock = SystemClock()
    begun_s = clock.monotonic_s()
    assert completed(Access(hang), "nodes", "show", "") == []
    took_s = clock.monotonic_s() - begun_s
    ended.set()
    assert took_s < 10.0
