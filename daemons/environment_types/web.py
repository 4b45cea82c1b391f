"""The type `web`: web applications behind a balancer, adjusted as in phoenixcloud.txt section 6.4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemons.environment_types.terms import refuse_all
from daemons.models.adjustment import adjusted
from shared.policy_api.coordination import Asked, InstancesView, ManagerView
from shared.values.agreement import Scheduling, WorkloadType
from shared.values.web_app import Distribution


class Web:
    """As many units as its instances fill; one instance more or less by the agreement's table `[web]`."""

    name = "web"
    workload = WorkloadType.WEB
    scheduling = Scheduling()
    distribution = Distribution.LEAST_CONNECTIONS
    terms: Mapping[str, str] = {}

    def check_terms(self, terms: Mapping[str, Any]) -> None:
        """None but those of the table `[web]`."""
        refuse_all(self.name, terms)

    def manage(self, view: ManagerView, terms: Mapping[str, Any]) -> Asked:
        """Return the units that its instances need."""
        del terms
        return Asked(view.party.wanted)

    def adjust(self, view: InstancesView, terms: Mapping[str, Any]) -> int:
        """Decide by the mean CPU usage of the instances."""
        del terms
        return adjusted(view.instances, view.utilisation, view.terms, view.least, view.most)
