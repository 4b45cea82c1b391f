"""The processes of a demo, started again when they end as a supervisor of services would."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from shared.runtime.startup import DONE, UNREADABLE

RESTART_S = 1.0
STOP_S = 10.0
NOT_STARTED = 126  # as a shell says it
LEFT = (DONE, UNREADABLE, NOT_STARTED)  # exit statuses after which a process is not started again
LOG_TAIL_BYTES = 2_000


class Child:
    """A daemon with its configuration file and its log. It ends with this process, however that ends."""

    def __init__(self, name: str, module: str, config: Path, logs: Path) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        self.exit_status: int | None = None  # of the last life that ended
        self._module, self._config = module, config
        self._process: asyncio.subprocess.Process | None = None
        self._wanted = False
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None when it does not run."""
        return self._process.pid if self._process is not None else None

    @property
    def has_failed(self) -> bool:
        """Whether it has ended in a way that nobody wanted, once or more."""
        return self._wanted and self.exit_status is not None

    def start(self) -> None:
        """Begin; nothing happens when it runs."""
        if self._task is None or self._task.done():
            self._wanted, self.exit_status = True, None
            self._task = asyncio.get_running_loop().create_task(self._keep())

    async def kill(self) -> None:
        """End it at once with all that it has started, as a power cut would."""
        self._wanted = False
        self._signal(signal.SIGKILL)
        await self._ended(STOP_S)

    async def stop(self) -> None:
        """Ask it to end, and end it when it has not within STOP_S."""
        self._wanted = False
        if self._process is not None:
            self._process.terminate()
        await self._ended(STOP_S)
        await self.kill()

    def tail(self) -> str:
        """Return the end of the process's log."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")

    async def _keep(self) -> None:
        while self._wanted:
            await self._live()
            if self.exit_status in LEFT or not self._wanted:
                return
            await asyncio.sleep(RESTART_S)

    async def _live(self) -> None:
        command = [sys.executable, "-P", "-m", "sim_backend.demo.child", str(os.getpid()), self._module]
        with self.log.open("ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    "--config",
                    str(self._config),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                log.write(f"{sys.executable} cannot be run: {error.strerror}\n".encode())
                self.exit_status = NOT_STARTED
                return
        try:
            self.exit_status = await self._process.wait()
        finally:
            self._signal(signal.SIGKILL)  # what it had started and left
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def _ended(self, limit_s: float) -> None:
        if self._task is not None:
            await asyncio.wait([self._task], timeout=limit_s)
