"""What is asked of decisions: approve, reject, pause, resume."""

from __future__ import annotations

from collections.abc import Mapping

from daemons.controller.contract.feature import DONE, Caller, Refused, RequestHandler
from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.records.cluster import Approval
from shared.protocol.account_messages import RejectPlan
from shared.protocol.operator_messages import ApprovePlan, SetDeciding


class PlanRequests:
    """Carries them out. `handlers`: by request."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, deciding: DecisionCycle) -> None:
        self.cluster, self.unit_of_work, self.deciding = cluster, unit_of_work, deciding
        self.handlers: Mapping[type, RequestHandler] = {
            ApprovePlan: self._approve,
            RejectPlan: self._reject,
            SetDeciding: self._set_deciding,
        }

    def _approve(self, request: ApprovePlan, caller: Caller, now_s: float) -> Refused:
        return self.deciding.approving.approve(request.decision, Approval(caller.sender, now_s, caller.why))

    def _reject(self, request: RejectPlan, caller: Caller, now_s: float) -> Refused:
        rejection = Approval(caller.sender, now_s, request.why or caller.why)
        return self.deciding.approving.reject(request.decision, rejection)

    def _set_deciding(self, request: SetDeciding, _caller: Caller, now_s: float) -> Refused:
        unit_of_work = self.unit_of_work
        if request.on and not unit_of_work.acting:
            unit_of_work.acting = unit_of_work.dirty_control = unit_of_work.place = unit_of_work.deploy = True
            for entry in self.cluster.active.values():
                unit_of_work.enqueue(entry)
            unit_of_work.emit(now_s, "acting", "controller")
        self.deciding.enable(request.on, now_s)
        return DONE
