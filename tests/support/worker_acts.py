"""What workers run in tests; imports little, since each of their processes does."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any


def act(request: Any) -> Any:
    """Does as the request says. Found by its name in the worker's process."""
    how, value = request
    if how == "hang":
        while True:
            pass
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        raise SystemExit(3)
    if how == "divide":
        return 1 / value
    if how == "unsendable":
        return threading.Lock()
    return (os.getpid(), value)
