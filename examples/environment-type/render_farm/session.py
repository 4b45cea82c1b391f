"""Web applications that keep their users' sessions in memory: a user stays with one instance, so that load cannot be
moved to a new one, only new users come to it. It adds instances early, has a unit ready for the next one, and is in no
hurry to stop any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from render_farm.numbers import Number, check, meanings, value_of
from shared.policy_api.coordination import Asked, InstancesView, ManagerView
from shared.values.agreement import UNITS_MAX, Scheduling, WorkloadType
from shared.values.web_app import Distribution

TERMS = {
    "target_frac": Number(0.6, "one instance more above this mean use of CPU", 0.05, 1.0),
    "spare_units": Number(1, "units that are kept ready for the next instances", 0, 100, whole=True),
}
RELUCTANCE = 0.5  # one less only if those that stay would be so far below the target
IDLE_FRAC = 0.01  # of its CPU that a guest uses while nobody asks anything of it


class Session:
    """The same client always asks the same instance."""

    name = "session"
    workload = WorkloadType.WEB
    scheduling = Scheduling()
    distribution = Distribution.SOURCE
    terms: Mapping[str, str] = meanings(TERMS)

    def check_terms(self, terms: Mapping[str, Any]) -> None:
        """Numbers within their ranges."""
        check(self.name, TERMS, terms)

    def manage(self, view: ManagerView, terms: Mapping[str, Any]) -> Asked:
        """What its instances fill, and the spare units while there are instances."""
        filled, spare = view.party.wanted, int(value_of(TERMS, terms, "spare_units"))
        if not filled:
            return Asked(0)
        return Asked(min(UNITS_MAX, filled + spare), f"{filled} units for its instances, {spare} spare")

    def adjust(self, view: InstancesView, terms: Mapping[str, Any]) -> int:
        """More above the target; less only if the others would be far below it then."""
        target, count = value_of(TERMS, terms, "target_frac"), view.instances
        if count < view.least or (count < view.most and view.utilisation > target):
            return 1
        if count > view.most:
            return -1
        if count == view.least:
            return 0
        most = IDLE_FRAC if count == 1 else RELUCTANCE * target * (count - 1) / count
        return -1 if view.utilisation < most else 0
