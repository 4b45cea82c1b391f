"""The controller's configuration turned into what its core is told."""

from __future__ import annotations

from dataclasses import asdict

from daemons.config.controller import ControllerConfig, Policies
from daemons.drivers.notifiers import notify_of
from daemons.drivers.price_feed import prices_of
from daemons.service.assurance_settings import admission_of, assurance_of
from daemons.service.power_settings import power_settings
from daemons.service.window_settings import windows_of
from daemons.values.settings import (
    Automation,
    BalancerSettings,
    ControllerSettings,
    InterferenceSettings,
    Limits,
    PolicyChoice,
)
from shared.ports.controller import PowerDriver
from shared.values.nodes import PowerOperation
from shared.values.operation_costs import OperationCosts


def settings_of(
    config: ControllerConfig, driver: PowerDriver | None = None, measures: bool = False
) -> ControllerSettings:
    """What the core is told. Without a driver that can prove nodes off an operator confirms it. `measures`: so does the
    driver of load balancers."""
    periods, timeouts, policies = config.periods, config.timeouts, config.policies
    power = power_settings(config, driver)
    return ControllerSettings(
        report_s=periods.report_s,
        reconcile_s=periods.reconcile_s,
        decide_s=periods.decide_s,
        decide_limit_s=timeouts.decide_limit_s,
        silent_after_s=timeouts.silent_after_s,
        fence_after_s=timeouts.fence_after_s if PowerOperation.FENCE in power.does else None,
        max_skew_s=timeouts.max_skew_s,
        probe_s=periods.probe_s,
        scrape_s=periods.scrape_s,
        gang_timeout_s=timeouts.gang_timeout_s,
        action_ttl_s=timeouts.action_ttl_s,
        setup_tries=config.setup.tries,
        stall_after_s=timeouts.stall_after_s,
        hands_off_s=timeouts.hands_off_s,
        automation=Automation(config.automation.level.value),
        hold_starts=config.automation.hold_starts,
        approvals=config.automation.approvals,
        vm_overhead_mib=float(config.memory.vm_overhead_mib),
        operation_costs=OperationCosts(
            config.operation_costs.start_s,
            config.operation_costs.suspend_s_per_mib,
            config.operation_costs.resume_s_per_mib,
            config.operation_costs.migrate_s_per_mib,
        ),
        limits=Limits(
            config.limits.actions_per_node,
            config.limits.migrations_per_node,
            config.limits.actions_total,
            config.limits.migrations_total,
            config.limits.jobs_per_account,
            config.limits.apps_per_environment,
            config.limits.environments_per_owner,
        ),
        placement=choice_of(policies, policies.placement),
        provisioning=choice_of(policies, policies.provisioning),
        admission=admission_of(policies),
        assurance=assurance_of(config.assurance),
        power=power,
        windows=windows_of(config.windows),
        prices=prices_of(config.prices),
        web_adjust_s=periods.web_adjust_s,
        balancer=BalancerSettings(
            config.balancer.driver, config.balancer.drain_limit_s, retell_s=config.balancer.retell_s, measures=measures
        ),
        notify=notify_of(config.notify),
        interference=InterferenceSettings(**asdict(config.interference) | {"model": config.interference.model.value}),
        record_snapshots=config.store.record_snapshots,
    )


def choice_of(policies: Policies, name: str) -> PolicyChoice:
    """A policy by its name, with the parameters that the configuration has for it."""
    return PolicyChoice(name, policies.params.get(name, {}))
