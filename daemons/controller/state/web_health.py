"""What is known of the health of a web application's instances, and which of them were replaced for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

HOUR_S = 3_600.0  # over so long replacements are counted


@dataclass(slots=True, eq=False)
class Ill:
    """An instance that its node's agent has found unhealthy: its node, the start by the controller's clock, and the
    reason. `now`: the agent's last report confirms it (an agent that has restarted has not checked anything yet)."""

    node: str
    since_s: float
    detail: str
    now: bool = True


@dataclass(slots=True, eq=False)
class WebHealth:
    """ill: instances that are unhealthy, by VM. unknown: those whose probe's command their node does not know, and what
    it says. replaced_s: when instances were replaced within the last hour. least: as long as one is being replaced, so
    many instances are to run (0: none is). why: why none of the unhealthy ones is replaced ("": one may be).
    """

    ill: dict[str, Ill] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    replaced_s: deque[float] = field(default_factory=deque)
    least: int = 0
    why: str = ""

    def replaced(self, now_s: float) -> int:
        """Return how many were replaced in the hour before now."""
        while self.replaced_s and self.replaced_s[0] <= now_s - HOUR_S:
            self.replaced_s.popleft()
        return len(self.replaced_s)

    def drop(self, vm: str) -> None:
        """Drop all health data of an instance."""
        self.ill.pop(vm, None)
        self.unknown.pop(vm, None)

    def alarms(self) -> Iterable[tuple[str, float | None, str]]:
        """Yield the health alarms: code, since when (None: unknown), and why."""
        if self.ill:
            first = min(self.ill.values(), key=lambda ill: ill.since_s)
            told = "; ".join(f"{vm} on {ill.node}: {ill.detail}" for vm, ill in sorted(self.ill.items()))
            yield "web-unhealthy", first.since_s, "; ".join(filter(None, (told, self.why)))
        if self.unknown:
            yield "probe-unknown", None, "; ".join(f"{vm}: {detail}" for vm, detail in sorted(self.unknown.items()))
