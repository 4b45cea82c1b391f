"""What is asked of decisions: approve, reject, stop, pause, resume, decide now."""

from __future__ import annotations

from collections.abc import Mapping

from daemons.controller.contract.feature import DONE, Caller, Refused, RequestHandler
from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.decide.stopping import PlanStop
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.records.cluster import Approval
from shared.protocol.account_messages import RejectPlan
from shared.protocol.operator_messages import ApprovePlan, DecideNow, SetDeciding, StopPlan


class PlanRequests:
    """Carries them out. `handlers`: by request."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, deciding: DecisionCycle) -> None:
        self.cluster, self.unit_of_work, self.deciding = cluster, unit_of_work, deciding
        self.handlers: Mapping[type, RequestHandler] = {
            ApprovePlan: self._approve,
            RejectPlan: self._reject,
            SetDeciding: self._set_deciding,
            StopPlan: self._stop,
            DecideNow: self._decide_now,
        }
        self._stopping = PlanStop(cluster, unit_of_work, deciding)

    def _approve(self, request: ApprovePlan, caller: Caller, now_s: float) -> Refused:
        return self.deciding.approving.approve(request.decision, Approval(caller.sender, now_s, caller.why))

    def _reject(self, request: RejectPlan, caller: Caller, now_s: float) -> Refused:
        rejection = Approval(caller.sender, now_s, request.why or caller.why)
        return self.deciding.approving.reject(request.decision, rejection)

    def _stop(self, request: StopPlan, caller: Caller, now_s: float) -> Refused:
        if not self.unit_of_work.acting:
            return "not-acting", "the controller only observes; nothing is in progress (`trimtab unpause`)"
        return "", str(self._stopping.stop(request.abort, Approval(caller.sender, now_s, caller.why)))

    def _decide_now(self, _request: DecideNow, _caller: Caller, now_s: float) -> Refused:
        if not self.unit_of_work.acting:
            return "not-acting", "the controller only observes (`trimtab unpause`)"
        if not self.deciding.enabled:
            return "deciding-paused", "deciding is paused (`trimtab unpause`)"
        self.unit_of_work.place = self.unit_of_work.cycle = True
        self.unit_of_work.emit(now_s, "decision-requested", "controller")
        return DONE

    def _set_deciding(self, request: SetDeciding, _caller: Caller, now_s: float) -> Refused:
        unit_of_work = self.unit_of_work
        if request.on and not unit_of_work.acting:
            unit_of_work.acting = unit_of_work.dirty_control = unit_of_work.place = unit_of_work.deploy = True
            for entry in self.cluster.active.values():
                unit_of_work.enqueue(entry)
            unit_of_work.emit(now_s, "acting", "controller")
        self.deciding.enable(request.on, now_s)
        return DONE
