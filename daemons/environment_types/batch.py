"""The type `batch`: parallel jobs, with the resource management policy of phoenixcloud.txt section 5.2."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from daemons.environment_types.terms import refuse_all
from shared.policy_api.coordination import Asked, InstancesView, ManagerView, Party
from shared.values.agreement import Scheduling, WorkloadType
from shared.values.web_app import Distribution


class Batch:
    """Jobs in their order; asks for what is queued by the ratios of the agreement's table `[batch]`."""

    name = "batch"
    workload = WorkloadType.BATCH
    scheduling = Scheduling()
    distribution = Distribution.LEAST_CONNECTIONS
    terms: Mapping[str, str] = {}

    def check_terms(self, terms: Mapping[str, Any]) -> None:
        """None but those of the table `[batch]`."""
        refuse_all(self.name, terms)

    def manage(self, view: ManagerView, terms: Mapping[str, Any]) -> Asked:
        """Decide by the batch ratios."""
        del terms
        return managed(view.party)

    def adjust(self, view: InstancesView, terms: Mapping[str, Any]) -> int:
        """Return 0: it has no instances."""
        del view, terms
        return 0


def managed(batch: Party) -> Asked:
    """Return the number of units that the manager requests at its timer, and why in words.

    The ratio of adjusting is queued / owned; without units of its own it is infinite if anything waits, else 0. Above U
    it requests DR1 = queued - owned more. Otherwise, if the biggest waiting job exceeds the owned units, it requests
    DR2 = biggest - idle more. Below V it returns RSS = G x idle, rounded down.
    """
    terms, owned = batch.batch, batch.owned
    ratio = batch.queued / owned if owned else (math.inf if batch.queued else 0.0)
    if ratio > terms.request_ratio:
        more = max(0, batch.queued - owned)  # less is queued when U is below 1
        return Asked(owned + more, f"DR1 = {more}: {batch.queued} queued, {owned} owned")
    if batch.biggest > owned:
        more = batch.biggest - batch.idle
        return Asked(owned + more, f"DR2 = {more}: the biggest job needs {batch.biggest}, {batch.idle} idle of {owned}")
    if ratio < terms.release_ratio:
        less = math.floor(terms.elastic_factor * batch.idle)
        return Asked(owned - less, f"RSS = {less}: {batch.queued} queued, {batch.idle} idle of {owned}")
    return Asked(owned)
