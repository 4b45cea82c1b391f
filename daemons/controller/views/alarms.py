"""What is not as it should be now, of the spine and of every feature."""

from __future__ import annotations

from collections.abc import Container, Iterable

from daemons.controller.measure.adopted import is_lost
from daemons.controller.state.failover import waits_for
from daemons.controller.state.fencing import heard_s, needs_no_fence
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.migration_fit import pages_lacking_on
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.queries import last_node
from daemons.controller.state.vm_terms import terms_of
from daemons.controller.views.context import ViewContext
from daemons.controller.views.nodes import node_trouble, silent_since_s
from daemons.values.view_format import Row
from shared.values.jobs import JobPhase
from shared.values.nodes import NodeCondition, NodeService


def alarms(tables: ViewContext, now_s: float) -> list[Row]:
    """Return all current alarms."""
    features = [_alarm(*each) for each in tables.features.alarms(now_s)]
    blocked = {each["subject"] for each in features if each["what"] == "failover-blocked"}
    found = [*_node_alarms(tables, now_s), *_job_alarms(tables, blocked, now_s), *features]
    found += [_alarm(*each) for each in tables.screening.alarms(now_s)]
    found += [_alarm(*each) for each in tables.deciding.alarms()]
    trouble, pending = tables.deciding.trouble, tables.deciding.pending
    if trouble is not None:
        found.append(_alarm("decision-trouble", "controller", trouble.at_s, f"{trouble.what}: {trouble.detail}"))
    if pending is not None:
        what = f"decision {pending.number}: {len(pending.held)} changes"
        found.append(_alarm("plan-waiting", "controller", pending.at_s, what))
    found += [_alarm(what, "controller", *each) for what, each in sorted(tables.troubles.items())]
    if not tables.unit_of_work.acting:
        found.append(_alarm("not-acting", "controller", None, "it only observes until deciding is switched on"))
    return found


def _node_alarms(tables: ViewContext, now_s: float) -> Iterable[Row]:
    for name, node in sorted(tables.cluster.nodes.items()):
        if node.asleep or node.service is NodeService.FAILED:
            continue  # nothing is to be heard of it
        if node.condition is NodeCondition.UNKNOWN:
            yield _alarm("node-unreachable", name, silent_since_s(node), _unreachable(tables, node, now_s))
        if node.condition is NodeCondition.OFF:
            yield _alarm("node-off", name, node.off_s, "")
        if node.skewed:
            yield _alarm("clock-skewed", name, None, f"{min(node.skews_s):.1f} s")
        if node.back_s is not None and now_s < node.back_s + tables.settings.decide_s:
            yield _alarm("off-node-reports", name, node.back_s, "it was taken for off and is not")


def _unreachable(tables: ViewContext, node: NodeEntry, now_s: float) -> str:
    """Return what is known of an unreachable node, and why it is not fenced although nodes can be."""
    parts = [f"{len(node.claimed)} VMs are or may be on it"]
    said = node_trouble(node, tables.settings.unreachable_after_s, now_s)
    has_reported = said is not None or node.last is not None  # to this leader
    is_heard = has_reported and now_s < heard_s(node) + tables.settings.unreachable_after_s
    hindrance = "its agent reports" if is_heard else ""
    if needs_no_fence(tables.cluster, node):
        hindrance = "it is drained and empty"
    if said:
        parts.insert(0, f"its agent is connected, but cannot read its hypervisor: {said['text']}")
    if hindrance and tables.settings.fence_after_s is not None:
        parts.append(f"not fenced: {hindrance}")
    return "; ".join(parts)


def _job_alarms(tables: ViewContext, blocked: Container[str], now_s: float) -> Iterable[Row]:
    """Yield the alarms of jobs and their VMs. `blocked`: jobs of adopted VMs of which an alarm says already why they do
    not run."""
    for name, entry in tables.cluster.active.items():
        yield from _missing_alarms(tables, entry, now_s)
        if entry.reconciliation_paused is not None and entry.left_alone(now_s):
            hold_off, left_s = entry.reconciliation_paused, entry.reconciliation_paused.until_s - now_s
            yield _alarm(
                hold_off.what, hold_off.vm, hold_off.at_s, f"{hold_off.detail}; left alone for {left_s:.0f} s more"
            )
        if entry.over:
            continue
        if entry.phase is JobPhase.SHUT_OFF:
            if name not in blocked:
                yield from _adopted_alarms(tables, entry)
            continue
        if entry.stalled:
            yield _alarm("job-stalled", name, entry.progress_s, "no CPU time was used")
        late = entry.wanted_s + tables.settings.gang_timeout_s < now_s and not entry.released
        if name in tables.reconciler.blocked and late:
            what = "web-instance-blocked" if entry.job.app else "job-blocked"
            yield _alarm(what, name, entry.wanted_s, f"{entry.phase.value}, but a step finds no room")


def _adopted_alarms(tables: ViewContext, entry: JobEntry) -> Iterable[Row]:
    """Yield the alarm of an adopted VM that should run and does not, or that is lost until it is seen or released
    (`trimtab vms release`)."""
    (instance,) = entry.instances
    where = last_node(instance) or "no node"
    if is_lost(tables.cluster, instance):
        detail = f"{entry.adopted} is not defined on {where} any more; its definition is in the store"
        yield _alarm("adopted-vm-lost", entry.job.name, entry.wanted_s, detail)
    elif waits := waits_for(tables.cluster, entry):
        yield _alarm("adopted-vm-waits", entry.job.name, entry.wanted_s, f"{entry.adopted} waits for {waits}")
    elif terms_of(entry).running:
        lacking = pages_lacking_on(tables.cluster, instance, where)
        detail = "; ".join((f"{entry.adopted} is shut off on {where}", *lacking))
        yield _alarm("adopted-vm-off", entry.job.name, entry.wanted_s, detail)


def _missing_alarms(tables: ViewContext, entry: JobEntry, now_s: float) -> Iterable[Row]:
    for instance in entry.instances:
        open_action = instance.in_flight
        limit_s = tables.settings.operation_timeout_s
        if open_action is not None and now_s >= open_action.expires_at_s + limit_s:
            detail = f"{open_action.kind.value} on {open_action.node}: not done in {limit_s:g} s"
            yield _alarm("action-overdue", instance.vm, open_action.expires_at_s, detail)
        out_s = now_s - instance.missed_s
        if instance.left and out_s >= tables.settings.arrival_grace_s:
            yield _alarm("vm-missing", instance.vm, instance.missed_s or None, instance.left)
        elif instance.awaited and out_s >= tables.settings.unreachable_after_s:
            names = ", ".join(sorted(instance.awaited))
            yield _alarm("vm-missing", instance.vm, instance.missed_s, f"gone; no word since from {names}")


def _alarm(what: str, subject: str, since_s: float | None, detail: str) -> Row:
    return {"what": what, "subject": subject, "since_s": since_s, "detail": detail}
