"""First-come first-served without preemption: whatever fits is placed on the first nodes with room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemons.policies.placement.moves import begin, drain, seat
from daemons.policies.placement.refusals import refusals
from daemons.policies.placement.room import Room, shape_of
from daemons.policies.placement.seats import fill_seats
from daemons.policies.placement.waiting import Pending, asking, screen
from shared.decision import PlacementDecision, Reason, ReasonCode
from shared.errors import InvalidInput, Problem
from shared.ports import Needs
from shared.snapshot import Snapshot

_ARRIVAL = Reason(ReasonCode.ARRIVAL_ORDER)


class FirstFit:
    """Waiting and suspended jobs in order of arrival; each that fits is placed, the others do not hold it up.

    Running jobs are left alone, except that instances on draining nodes are moved, before any job is placed. Web
    applications come next, with as many instances as they must have and never more. Takes no parameters.
    """

    name = "first-fit"
    needs = Needs()
    event_driven = True

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` for any parameter at all."""
        if params:
            raise InvalidInput(*(Problem(f"policy {self.name}: {key}", "there is no such parameter") for key in params))

    def decide(self, snapshot: Snapshot, state: Any, params: Mapping[str, Any]) -> tuple[PlacementDecision, None]:
        """Place what fits; `state` is not used. Raises `InvalidInput` as `check_params` does, nothing else."""
        del state
        self.check_params(params)
        room = Room(snapshot)
        changes, refused = drain(room)
        fill_seats(room, changes, refused)
        rows, at_once = screen(snapshot, asking(snapshot))
        refused.update(at_once)
        pending = Pending(snapshot, rows)
        for row in pending:
            shape = shape_of(snapshot, row)
            fit = seat(room, row, shape)
            if fit.rows is None:
                pending.strike(shape, fit.slots)
            else:
                changes.append(begin(room, row, shape, fit.rows, _ARRIVAL))
                pending.placed()
        return PlacementDecision(tuple(changes), refusals(room, refused, pending.left), pending.tried), None
