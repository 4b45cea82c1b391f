"""Services of agreements, and an operator's own units for wipes and commands: started and stopped by systemd."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Protocol

from shared.base.deadline import Deadline
from shared.base.errors import PermanentError, TransientError


class Systemd(Protocol):
    """What is asked of systemd; see `agents.drivers.systemd.SystemdBus`."""

    def start(self, unit: str, limit_s: float | None = None) -> None:
        """Start a unit and wait for it."""
        ...

    def stop(self, unit: str, limit_s: float | None = None) -> None:
        """Stop a unit and wait for it."""
        ...


class Services:
    """Starts and stops the units that match one of the patterns."""

    def __init__(self, patterns: Sequence[str], systemd: Systemd) -> None:
        self._patterns, self._systemd = tuple(patterns), systemd

    def objections(self, services: Sequence[str]) -> list[str]:
        """Return why some of the services may not be started or stopped."""
        allowed = ", ".join(self._patterns) or "none"
        return [
            f"service {service} matches none of setup.services: {allowed}"
            for service in services
            if not self._allows(service)
        ]

    def start(self, services: Sequence[str], deadline: Deadline) -> None:
        """Have them active, in this order. Raises PermanentError or TransientError."""
        for service in services:
            self._systemd.start(service, deadline.left_s())

    def stop(self, services: Sequence[str], deadline: Deadline) -> None:
        """Have those of them that may be stopped inactive, the last one first. Raises PermanentError or
        TransientError."""
        for service in filter(self._allows, reversed(services)):
            self._systemd.stop(service, deadline.left_s())

    def _allows(self, service: str) -> bool:
        return any(fnmatchcase(service, pattern) for pattern in self._patterns)


def run_unit(systemd: Systemd, unit: str, deadline: Deadline) -> str:
    """Start a unit that runs to its end (Type=oneshot) and wait for that; returns why it failed, "" when it did not.
    It is stopped when it takes too long."""
    try:
        systemd.start(unit, deadline.left_s())
    except PermanentError as error:
        return str(error)
    except TransientError as error:
        try:
            systemd.stop(unit)
        except (PermanentError, TransientError) as other:
            return f"{error}; {other}"
        return f"{error}; it is being stopped"
    return ""
