"""Facts from which `trimtab doctor` judges, and every setting."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from daemons.controller.views.context import ViewContext
from daemons.controller.views.jobs import all_jobs
from daemons.controller.views.nodes import age_of
from daemons.values.settings import ControllerSettings, NotifySettings, WindowSettings
from daemons.values.view_format import Row
from shared.protocol.operator_messages import Query


def doctor(tables: ViewContext, query: Query, now_s: float) -> Row:
    """Facts from which `trimtab doctor` judges."""
    cluster = tables.cluster
    places = [place for _, place in sorted(cluster.nodes.items())]
    models = sorted({place.inventory.cpu_model for place in places if place.inventory and place.inventory.cpu_model})
    strays = [vm for place in places for vm in place.vms if vm not in cluster.instances]
    return {
        "settings": settings_view(tables.settings),
        "nodes": [
            {
                "name": place.name,
                "condition": place.condition.value,
                "report_age_s": age_of(place, now_s),
                "skew_s": min(place.skews_s, default=None),
                "boot_id": place.boot_id,
                "echoed": place.echoed,
                "agent_term": place.last.term if place.last is not None else None,
                "events_open": len(place.events_above),
            }
            for place in places[: query.limit]
        ],
        "queues": tables.in_hand()
        | {"blocked_jobs": len(tables.reconciler.blocked), "touched_jobs": len(tables.unit_of_work.queued)},
        "facts": {
            "jobs": sum(1 for _ in all_jobs(cluster)),
            "active_jobs": sum(not entry.job.app for entry in cluster.active.values()),
            "instances": len(cluster.instances),
            "history": len(tables.deciding.history),
            "cpu_models": models,
            "mixed_cpu_models": len(models) > 1,
            "unknown_vms": sorted(strays)[: query.limit],
            **tables.features.facts(),
        },
    }


def _window_settings(window: WindowSettings) -> Row:
    periods = asdict(window.periods) | {"days": list(window.periods.days)}
    params = {key: f"{value}" for key, value in window.analyser.params.items()}
    analyser = {"name": window.analyser.name, "params": params}
    return asdict(window) | {"periods": periods, "removal": window.removal.value, "analyser": analyser}


def _listed(value: Any) -> Any:
    """Return the value with lists in place of tuples, at every depth."""
    if isinstance(value, dict):
        return {key: _listed(each) for key, each in value.items()}
    return [_listed(each) for each in value] if isinstance(value, list | tuple) else value


def _notify(settings: NotifySettings) -> dict[str, Any]:
    """Return the notification settings as plain data; of channels only their kinds."""
    rules = [
        asdict(rule) | {name: [*getattr(rule, name)] for name in ("events", "channels", "subjects")}
        for rule in settings.rules
    ]
    return asdict(settings) | {"channels": dict(settings.channels), "rules": rules}


def settings_view(settings: ControllerSettings) -> Row:
    """Return every setting by name, as plain data; null for what is switched off."""
    plain = {key: None if value == math.inf else value for key, value in asdict(settings).items()}
    plain["automation"] = settings.automation.value
    for role in ("placement", "provisioning"):
        choice = getattr(settings, role)
        plain[role] = {"name": choice.name, "params": {key: str(value) for key, value in choice.params.items()}}
    if settings.admission is not None:
        plain["admission"] = asdict(settings.admission)
    surplus = settings.assurance.surplus.value
    windows = [*settings.assurance.horizontal]
    plain["assurance"] = asdict(settings.assurance) | {"surplus": surplus, "horizontal": windows}
    plain["windows"] = [_window_settings(window) for window in settings.windows]
    plain["notify"] = _notify(settings.notify)
    power = settings.power
    plain["power"] = asdict(power) | {
        "does": sorted(operation.value for operation in power.does),
        "sleep": power.sleep.value,
        "never": sorted(power.never),
    }
    return plain
