"""A fixed number of nodes in service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.decision import ProvisioningDecision, Reason, ReasonCode
from shared.errors import InvalidInput, Problem
from shared.ports import Needs, Shelf
from shared.snapshot import Snapshot


class Static:
    """The first `nodes` nodes in row order are in service, all of them when `nodes` is None or not given."""

    name = "static"
    needs = Needs()
    event_driven = False

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` for a parameter other than `nodes`, or a `nodes` that is neither None nor a count."""
        where = f"policy {self.name}"
        problems = [
            Problem(f"{where}: {key}", "there is no such parameter", "nodes") for key in params if key != "nodes"
        ]
        count = params.get("nodes")
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
            problems.append(
                Problem(f"{where}: nodes", f"{count!r} is no number of nodes", "a whole number, 0 or above")
            )
        if problems:
            raise InvalidInput(*problems)

    def decide(
        self, snapshot: Snapshot, state: Any, params: Mapping[str, Any], shelf: Shelf
    ) -> tuple[ProvisioningDecision, None]:
        """Name the nodes; fewer than `nodes` when there are fewer. Raises `InvalidInput` as `check_params` does."""
        del state, shelf
        self.check_params(params)
        names = tuple(dict.fromkeys(snapshot.nodes.names))
        chosen = names[: params.get("nodes")]
        numbers = (("in_service", float(len(chosen))), ("nodes", float(len(names))))
        return ProvisioningDecision(chosen, Reason(ReasonCode.KEEP, numbers)), None
