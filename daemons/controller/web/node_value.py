"""What taking a node costs the web side: the demand of every hour is remembered, and valued by models of response."""

from __future__ import annotations

import numpy as np

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.web.snapshot import flow_columns, flow_now, running_apps, web_columns
from daemons.models.web_loss import hourly_losses
from daemons.values.calendar import time_of_day_s
from daemons.values.settings import PriceSettings
from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats
from shared.values.nodes import NodeService

HOUR_S = 3_600.0
NEW_SHARE = 0.3  # of what was measured last in what is remembered of an hour


class WebLoss:
    """Remembers the arrivals of every flow by local hour, in memory alone."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, settings: PriceSettings) -> None:
        self.cluster, self.unit_of_work, self.settings = cluster, unit_of_work, settings
        self._rates: dict[tuple[str, str], dict[int, float]] = {}
        self._told = False

    def note(self, now_s: float) -> None:
        """Remember the demand of now."""
        apps = running_apps(self.cluster)
        names = {(web.app.name, flow.name) for web in apps for flow in web.app.flows}
        self._rates = {key: hours for key, hours in self._rates.items() if key in names}
        hour = self._hour(now_s)
        for web in apps:
            if not web.samples:
                continue
            for flow in web.app.flows:
                rate = flow_now(web, flow).rate_per_s
                hours = self._rates.setdefault((web.app.name, flow.name), {})
                hours[hour] = rate if hour not in hours else hours[hour] + NEW_SHARE * (rate - hours[hour])

    def added(self, interval_s: float, begins_s: Floats) -> Floats:
        """Return the cost, in currency, of taking a node in the intervals that begin at these times."""
        hours = [self._hour(begin_s) for begin_s in begins_s.tolist()]
        distinct = sorted(set(hours))
        try:
            losses = dict(zip(distinct, self._losses(distinct).tolist(), strict=True))
        except (InvalidValue, ArithmeticError) as error:
            if not self._told:
                self._told = True
                self.unit_of_work.emit(float(begins_s[0]), "web-loss-unknown", "prices", str(error))
            return np.zeros(len(hours))
        worth = self.settings.per_utility * interval_s / HOUR_S
        return worth * np.array([losses[hour] for hour in hours])

    def _losses(self, hours: list[int]) -> Floats:
        apps = running_apps(self.cluster)
        nodes = [
            (node.inventory, node.wanted_mhz)
            for node in self.cluster.nodes.values()
            if node.inventory is not None and node.service is NodeService.IN_SERVICE
        ]
        if not apps or not nodes:
            return np.zeros(len(hours))
        all_mhz = sum(inventory.cpu_mhz for inventory, _ in nodes)
        web_mhz = sum(
            allotment.cpu_mhz
            for web in apps
            for replica in self.cluster.replicas.get(web.app.name, {}).values()
            for allotment in replica.allotments
        )
        jobs_mhz = max(0.0, sum(wanted_mhz for _, wanted_mhz in nodes) - web_mhz)
        now = [(web.app.name, flow.name, flow_now(web, flow).rate_per_s) for web in apps for flow in web.app.flows]
        rates = [[self._rates.get((app, flow), {}).get(hour, rate) for app, flow, rate in now] for hour in hours]
        return hourly_losses(
            web_columns(apps),
            flow_columns(apps),
            max(inventory.core_mhz for inventory, _ in nodes),
            np.array(rates, dtype=np.float64),
            max(0.0, all_mhz - jobs_mhz),
            all_mhz / len(nodes),
        )

    def _hour(self, at_s: float) -> int:
        return int(time_of_day_s(at_s, self.settings.timezone) // HOUR_S)
