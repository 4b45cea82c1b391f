"""Processes of a demo: started again as services are, ended with all that they have started."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from shared.base.clock import SystemClock
from sim_backend.demo.children import Child

SLEEPER = "sim_backend_sleeper"


def child(folder: Path, body: str) -> Child:
    """A child whose module's `main` has this body; `folder` is its own."""
    (folder / f"{SLEEPER}.py").write_text(
        "import os, subprocess, sys, time\nfrom pathlib import Path\n\n"
        f"def main(arguments):\n    here = Path(arguments[1]).parent\n    {body}\n"
    )
    return Child("sleeper", SLEEPER, folder / "config.toml", folder)


async def until(ready: Callable[[], object]) -> None:
    """Wait until something is true. TimeoutError after a while."""
    clock = SystemClock()
    limit_s = clock.monotonic_s() + 20.0
    while not ready():
        if clock.monotonic_s() > limit_s:
            raise TimeoutError
        await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; one that was not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(autouse=True)
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


@pytest.mark.parametrize(("status", "again"), [(0, False), (2, False), (1, True), (75, True)])
def test_which_ends_are_followed_by_another_life(tmp_path: Path, status: int, again: bool) -> None:
    made = child(tmp_path, f"(here / f'{{os.getpid()}}.life').touch(); return {status}")

    async def live() -> int | None:
        made.start()
        await until(lambda: made.exit_status is not None)
        first = made.exit_status
        await asyncio.sleep(0.2)
        if again:
            await until(lambda: len(list(tmp_path.glob("*.life"))) > 1)
        await made.stop()
        return first

    assert asyncio.run(live()) == status
    assert (len(list(tmp_path.glob("*.life"))) > 1) is again


def test_a_kill_ends_what_it_has_started_too(tmp_path: Path) -> None:
    started = "(here / 'pid').write_text(str(subprocess.Popen(['sleep', '60']).pid))"
    made = child(tmp_path, f"{started}; time.sleep(60)")

    async def live() -> int:
        made.start()
        await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        grandchild = int((tmp_path / "pid").read_text())
        assert alive(grandchild)
        await made.kill()
        await until(lambda: not alive(grandchild))  # it is killed, and ends when the kernel gets to it
        return grandchild

    grandchild = asyncio.run(live())

    assert not alive(grandchild)
    assert (made.pid, made.has_failed) == (None, False)


def test_after_a_kill_it_can_be_started_again(tmp_path: Path) -> None:
    made = child(tmp_path, "(here / f'{os.getpid()}.life').touch(); time.sleep(60)")

    def has_lived(lives: int) -> bool:
        return len(list(tmp_path.glob("*.life"))) == lives

    async def live() -> None:
        for lives in (1, 2):
            made.start()
            await until(partial(has_lived, lives))
            await made.kill()

    asyncio.run(live())


def test_what_it_prints_is_in_its_log(tmp_path: Path) -> None:
    made = child(tmp_path, "print('no such broker', file=sys.stderr); return 2")

    async def live() -> None:
        made.start()
        await until(lambda: made.has_failed)

    asyncio.run(live())

    assert made.tail() == "no such broker\n"
