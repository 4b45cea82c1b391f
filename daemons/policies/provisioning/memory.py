"""What provisioning policies remember from one decision to the next, as plain data."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from daemons.policies.provisioning.outlay import period_price
from shared.policy_api.snapshot import Snapshot, WindowView

SAME = 1.5  # intervals: deadlines that differ by less are of one period


class Memory:
    """The prices of each period, so that tables stay valid while they are about the same, and which windows wanted
    fewer nodes at the decision point before. A state of another policy is as none."""

    def __init__(self, state: Any) -> None:
        known = state if isinstance(state, dict) else {}
        self._before: list[dict[str, Any]] = [each for each in known.get("periods", []) if isinstance(each, dict)]
        self._now: list[dict[str, Any]] = []
        self._at_s = 0.0

    def state(self) -> dict[str, Any]:
        """Return the state to be kept until the next decision."""
        return {"periods": self._now}

    def price(self, snapshot: Snapshot, window: WindowView) -> list[float]:
        """Return the cost of a reference node in each interval of the period; call it first, once for each window."""
        self._at_s = snapshot.now_s
        kept = self._find(self._before, window)
        price = period_price(snapshot, window, kept["price"] if kept else None)
        self._now.append({"window": window.name, "deadline_s": self._deadline_s(window), "price": price, "fewer": -1})
        for key in ("risk", "since", "deploy_s", "remove_s"):
            if kept is not None and key in kept:
                self._now[-1][key] = kept[key]
        return price

    def with_times(self, window: WindowView) -> WindowView:
        """Return the window with its nodes' times to deploy and to remove as first known in its period; the deploy time
        is longer if a longer one was seen since. Otherwise every node that leaves would cause its tables to be computed
        again."""
        kept = self._find(self._now, window)
        if kept is None:
            return window
        deploy_s, remove_s = kept.get("deploy_s"), kept.get("remove_s")
        found = replace(
            window,
            deploy_s=max(deploy_s, window.deploy_s) if isinstance(deploy_s, float) else float(window.deploy_s),
            remove_s=remove_s if isinstance(remove_s, float) else float(window.remove_s),
        )
        if math.isfinite(found.deploy_s) and math.isfinite(found.remove_s):
            kept["deploy_s"], kept["remove_s"] = found.deploy_s, found.remove_s
        return found

    def since(self, window: WindowView, problem: str) -> int:
        """Return the interval in which a problem of the window's period, by its digest, was first seen: its tables need
        to go back no further."""
        kept = self._find(self._now, window)
        if kept is None:
            return 0
        first = kept.get("since")
        if not (isinstance(first, list) and len(first) == 2 and first[0] == problem and isinstance(first[1], int)):
            first = kept["since"] = [problem, window.interval if not window.opens_s > 0.0 else 0]
        return min(max(int(first[1]), 0), window.interval)

    def risk_left(self, window: WindowView) -> float | None:
        """Return how much the decisions of the window's period may still add to its probability of breach; None:
        unknown."""
        kept = self._find(self._now, window)
        found = kept.get("risk") if kept is not None else None
        return float(found) if isinstance(found, int | float) else None

    def leave_risk(self, window: WindowView, left: float) -> None:
        """Remember how much they may add from now on."""
        kept = self._find(self._now, window)
        if kept is not None:
            kept["risk"] = left

    def wanted_fewer(self, window: WindowView) -> bool:
        """Return whether the window requested fewer nodes at the previous decision point."""
        kept = self._find(self._before, window)
        return kept is not None and 0 <= kept["fewer"] < window.interval

    def want_fewer(self, window: WindowView) -> None:
        """Record that the window requests fewer nodes, and does not get them yet."""
        before, now = self._find(self._before, window), self._find(self._now, window)
        if now is not None:
            again = before is not None and before["fewer"] >= 0
            now["fewer"] = before["fewer"] if before is not None and again else window.interval

    def _deadline_s(self, window: WindowView) -> float:
        return self._at_s + window.opens_s + (window.intervals - window.interval) * window.interval_s

    def _find(self, periods: list[dict[str, Any]], window: WindowView) -> dict[str, Any] | None:
        for each in periods:
            near = abs(each["deadline_s"] - self._deadline_s(window)) < SAME * window.interval_s
            if each["window"] == window.name and near and len(each["price"]) == window.intervals:
                return each
        return None
