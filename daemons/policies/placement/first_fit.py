"""First-come first-served without preemption: each workload that fits is placed on the first nodes with free
capacity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemons.policies.placement.free_capacity import FreeCapacity, shape_of
from daemons.policies.placement.moves import begin, drain, find_fit
from daemons.policies.placement.refusals import refusals
from daemons.policies.placement.replicas import start_missing_replicas
from daemons.policies.placement.sharers import sharers_of, sharing_problems
from daemons.policies.placement.waiting import Pending, asking, screen
from shared.base.errors import InvalidInput, Problem
from shared.policy_api.decision import PlacementDecision, Reason, ReasonCode
from shared.policy_api.policies import Needs
from shared.policy_api.snapshot import Snapshot

_ARRIVAL = Reason(ReasonCode.ARRIVAL_ORDER)


class FirstFit:
    """Waiting and suspended jobs in order of arrival; each that fits is placed, the others do not hold it up.

    Running jobs are left alone, except that instances on draining nodes, and at cycles those for which a required rule
    does not hold, are moved before any job is placed. Web applications come next, with as many instances as they must
    have and never more. Required rules hold for everything that is placed; of the nodes that fit, those come first on
    which the least weight of preferred rules is broken. Parameter `sharing` ("off", the default, or "composed": of the
    nodes that fit, not the first but the one where the last of those that share its disk or network ends first).
    """

    name = "first-fit"
    needs = Needs()
    event_driven = True

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` for a parameter other than `sharing`, or another value than it may have."""
        where = f"policy {self.name}"
        problems = [Problem(f"{where}: {k}", "there is no such parameter", "sharing") for k in params if k != "sharing"]
        problems += sharing_problems(params, where)
        if problems:
            raise InvalidInput(*problems)

    def decide(self, snapshot: Snapshot, state: Any, params: Mapping[str, Any]) -> tuple[PlacementDecision, None]:
        """Place what fits; `state` is not used. Raises `InvalidInput` as `check_params` does, nothing else."""
        del state
        self.check_params(params)
        room = FreeCapacity(snapshot)
        changes, refused = drain(room)
        start_missing_replicas(room, changes, refused)
        rows, at_once = screen(snapshot, asking(snapshot))
        refused.update(at_once)
        pending, sharers = Pending(snapshot, rows), sharers_of(snapshot, params, changes)
        for row in pending:
            shape = shape_of(snapshot, row)
            fit = find_fit(room, row, shape) if sharers is None else sharers.find_fit(room, row, shape)
            if fit.rows is None:
                if room.ruled(row) is None:
                    pending.strike(shape, fit.slots)
                continue
            reason = _ARRIVAL
            if sharers is not None:
                sharers.take(row, fit.rows, room.allotment_mhz(shape)[fit.rows])
                reason = sharers.with_slowdown(_ARRIVAL, row, fit.rows)
            changes.append(begin(room, row, shape, fit.rows, reason))
            pending.placed()
        return PlacementDecision(tuple(changes), refusals(room, refused, pending.left), pending.tried), None
