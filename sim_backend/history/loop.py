"""A closed loop of a recorded span: the real controller and agents, with the work and the demand that were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from agents.core.settings import AgentSettings
from daemons.decision.overrides import Alteration, number, refuse_others
from daemons.values.settings import Automation, ControllerSettings, Draw, Limits, PowerSettings, PriceSettings
from shared.protocol.operator_messages import CancelJob, SubmitJob
from shared.values.load_vector import IO
from shared.values.operation_costs import OperationCosts
from shared.values.web_app import ModelForm
from sim_backend.fakes.power import DOES, PowerTimes
from sim_backend.fakes.price_feed import FakePrices
from sim_backend.fakes.store import MemoryStore
from sim_backend.history.values import Log, LoggedApp, LoggedJob
from sim_backend.loop.closed_loop import SCRIPT_PRIORITY, ClosedLoop, LoopSettings
from sim_backend.world.demand import steps
from sim_backend.world.web_site import TrueFlow, TrueWeb

# Nothing is lost here, so that reports are for progress and use alone. What is measured of web applications is told as
# often: the work profiler compares both, and what is told too late comes too late for them.
REPORT_S, REPORT_LARGE_S = 60.0, 300.0
LARGE_NODES = 100
SETTLE_S = 1.0  # until nodes have joined

# What may be set besides parameters of policies, and where it is in the settings.
COSTS = {f"operation_costs.{each.name}": each.name for each in fields(OperationCosts)}
LIMITS = {f"limits.{each.name}": each.name for each in fields(Limits)}
POWER = {f"power.{name}": name for name in ("standby_s", "drain_limit_s", "keep_nodes")}
PLAIN = {
    "memory.vm_overhead_mib": "vm_overhead_mib",
    "periods.decide_s": "decide_s",
    "periods.web_adjust_s": "web_adjust_s",
}
WHOLE = frozenset((*LIMITS, "power.keep_nodes"))
KNOWN: Mapping[str, str] = {**COSTS, **LIMITS, **POWER, **PLAIN}


def settings_for(log: Log, base: ControllerSettings, other: Alteration) -> ControllerSettings:
    """Return the settings of a run: `base`, updated with the settings of the span's decisions and with the alterations.

    Raises `InvalidInput` for unknown or invalid settings, policies and parameters.
    """
    refuse_others(other.values, KNOWN)
    given: dict[str, Any] = {key: number(key, value) for key, value in other.values if key in KNOWN}
    given |= {key: int(given[key]) for key in WHOLE & given.keys()}

    def part(names: Mapping[str, str]) -> dict[str, Any]:
        return {names[key]: value for key, value in given.items() if key in names}

    often = log.apps or len(log.nodes) <= LARGE_NODES
    report_s = min(REPORT_S if often else REPORT_LARGE_S, log.cycle_s)
    own = replace(
        base,
        report_s=report_s,
        reconcile_s=report_s,
        unreachable_after_s=3 * report_s,
        fence_after_s=None,
        probe_s=report_s,
        stall_after_s=float("inf"),
        decide_s=log.cycle_s,
        vm_overhead_mib=log.overhead_mib,
        automation=Automation.AUTO,
        admission=None,
        windows=(),
        power=replace(_power(log, base.power, other), **part(POWER)),
        prices=_prices(log, base.prices),
        operation_costs=replace(log.costs, **part(COSTS)),
        learn_costs=False,  # they are those that were counted with then
        limits=replace(base.limits, **part(LIMITS)),
        placement=other.choice("placement", log.placement),
        provisioning=other.choice("provisioning", log.provisioning),
        record_snapshots=True,
    )
    return replace(own, **part(PLAIN))


def can_sleep(log: Log, other: Alteration) -> bool:
    """Return whether nodes can be put to sleep: some were, or this is unknown because all were kept in service."""
    return log.power.slept or (log.provisioning.name == "static" and bool(other.provisioning))


def _power(log: Log, base: PowerSettings, other: Alteration) -> PowerSettings:
    draws = {name or "default": Draw(*watts) for name, watts in log.power.draws.items()}
    asleep = can_sleep(log, other)
    return replace(
        base,
        driver="fake",
        does=DOES if asleep else frozenset(),
        through_agents=asleep,
        needs_mac=False,
        wake_test_days=0.0,
        draws=draws,
    )


def _prices(log: Log, base: PriceSettings) -> PriceSettings:
    if not log.prices.starts_s:
        return base
    mean = sum(log.prices.per_kwh) / len(log.prices.per_kwh)
    return replace(base, shape="series", per_kwh=max(mean, 0.0), currency=log.prices.currency)


def loop_of(log: Log, settings: ControllerSettings, seed: int, store: MemoryStore) -> ClosedLoop:
    """Return the closed loop, not yet started, with its records in `store`. `seed` determines the times that nodes
    take."""
    wakes_s = max(1.0, log.power.deploy_s) if log.power.deploy_s else PowerTimes().resume_s
    loop = ClosedLoop(
        log.nodes,
        LoopSettings(
            settings,
            AgentSettings(report_s=settings.report_s),
            power_times=PowerTimes(resume_s=wakes_s),
            seed=seed,
            costs=log.costs,
            epoch_s=log.from_s,
            make_store=lambda: store,
        ),
    )
    if log.prices.starts_s:
        feed = FakePrices(log.prices.starts_s, log.prices.per_kwh, log.prices.until_s)
        for shell in loop.controllers.values():
            shell.read_prices = feed
    for at, app in enumerate(log.apps):
        _serve(loop, app, seed + at)
    for job in log.jobs:
        _submit(loop, job)
    return loop


def _submit(loop: ClosedLoop, logged: LoggedJob) -> None:
    """Have a job submitted when it was. Its times are absolute already."""
    job = logged.job
    loop.world.add_task(
        job.name, logged.true_stages, job.instances, job.checkpoint_mcycles, job.resource_profile.part(IO)
    )
    request = SubmitJob(f"submit-{job.name}", job)
    at_s = max(logged.at_s, SETTLE_S)
    loop.engine.at(at_s, SCRIPT_PRIORITY, lambda: loop.operator.send(request))
    if logged.cancelled_s is not None:
        end = CancelJob(f"cancel-{job.name}", job.name)
        loop.engine.at(max(logged.cancelled_s, at_s + SETTLE_S), SCRIPT_PRIORITY, lambda: loop.operator.send(end))


def _serve(loop: ClosedLoop, logged: LoggedApp, seed: int) -> None:
    flows = tuple(
        TrueFlow(
            flow.name,
            steps(logged.rates.get(flow.name) or ((0.0, 0.0),)),
            logged.work_mcycles.get(flow.name) or flow.work_mcycles or 0.0,
            flow.t_min_s,
            flow.percentile,
        )
        for flow in logged.app.flows
    )
    several = all(flow.model is ModelForm.MULTI_SERVER for flow in logged.app.flows)
    form = ModelForm.MULTI_SERVER if several else ModelForm.PROCESSOR_SHARING
    truth = TrueWeb(flows, form, chance=False, seed=seed)
    report_s = loop.settings.controller.report_s
    loop.submit_web(logged.app, truth, max(logged.from_s, report_s), report_s)
