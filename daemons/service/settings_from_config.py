"""The controller's configuration converted to the settings of its core."""

from __future__ import annotations

from daemons.config.controller import ControllerConfig, Policies
from daemons.drivers.notifiers import notify_of
from daemons.drivers.price_feed import prices_of
from daemons.service.assurance_settings import admission_of, assurance_of
from daemons.service.power_settings import power_settings
from daemons.service.window_settings import windows_of
from daemons.values.settings import (
    BalancerSettings,
    ControllerSettings,
    InterferenceSettings,
    Limits,
    MigrationSettings,
    PolicyChoice,
    WebPlanning,
    from_keys,
)
from shared.ports.controller import PowerDriver
from shared.values.nodes import PowerOperation
from shared.values.operation_costs import OperationCosts


def settings_of(
    config: ControllerConfig, driver: PowerDriver | None = None, measures: bool = False
) -> ControllerSettings:
    """Return the settings of the core. Without a driver that can fence nodes, an operator confirms that a node is off.
    `measures`: the load balancer's driver can measure."""
    policies, power = config.policies, power_settings(config, driver)
    fences = PowerOperation.FENCE in power.does
    return from_keys(
        ControllerSettings,
        config.periods,
        config.timeouts,
        config.automation,
        fence_after_s=config.timeouts.fence_after_s if fences else None,
        setup_tries=config.setup.attempts,
        automation=config.automation.level,
        vm_overhead_mib=float(config.memory.vm_overhead_mib),
        operation_costs=from_keys(OperationCosts, config.operation_costs),
        learn_costs=config.operation_costs.learn,
        limits=from_keys(Limits, config.limits),
        web_planning=from_keys(WebPlanning, config.web),
        placement=choice_of(policies, policies.placement),
        provisioning=choice_of(policies, policies.provisioning),
        admission=admission_of(policies),
        assurance=assurance_of(config.assurance),
        power=power,
        windows=windows_of(config.windows),
        prices=prices_of(config.prices),
        balancer=from_keys(BalancerSettings, config.balancer, measures=measures),
        notify=notify_of(config.notify),
        interference=from_keys(InterferenceSettings, config.interference, model=config.interference.model.value),
        migration=from_keys(MigrationSettings, config.migration),
        spare_nodes=config.failover.spare_nodes,
        lease_witnesses=config.fencing.lease_witnesses,
        record_snapshots=config.store.record_snapshots,
    )


def choice_of(policies: Policies, name: str) -> PolicyChoice:
    """Return a policy by its name, with its configured parameters."""
    return PolicyChoice(name, policies.params.get(name, {}))
