"""A machine in a container ends with the process that started it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.integration import debian
from tests.integration.machine import ROOT

START = """
from pathlib import Path
from tests.integration.machine import bare_machine
with bare_machine(Path("/")) as machine:
    print(machine.pid, flush=True)
    input()
"""
GONE_S = 30.0


def test_nothing_is_left_of_a_machine_whose_test_is_killed(tmp_path: Path) -> None:
    debian.need_root("a machine in a container")
    with subprocess.Popen(
        [sys.executable, "-c", START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        pid = process.stdout.readline().decode().strip()
        names = [path.name for path in tmp_path.iterdir() if path.is_dir()]
        process.kill()
    if not pid:
        debian.go_without("no machine could be booted")

    until_s = time.monotonic() + GONE_S
    while list(tmp_path.iterdir()) and time.monotonic() < until_s:
        time.sleep(0.1)

    left = [path for path in tmp_path.iterdir() if path.suffix != ".lock"]  # who installs packages locks beside them
    assert left == []
    assert not Path(f"/proc/{pid}").exists()
    assert [group for name in names for group in Path("/sys/fs/cgroup").rglob(name)] == []
