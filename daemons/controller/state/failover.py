"""Whether an adopted VM can restart on another node, and what is left of it where it was: questions about one row."""

from __future__ import annotations

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.queries import is_busy, is_unknown, last_node
from daemons.controller.state.vm_terms import fails_over, restarts
from daemons.values.records.cluster import FailoverFacts
from daemons.values.view_format import Row
from shared.values.failover import host_file_sentence
from shared.values.jobs import JobPhase
from shared.values.migration import sentence, ties
from shared.values.nodes import NodeCondition


def hindrance(cluster: Cluster, entry: JobEntry) -> str:
    """Return why no node may be looked for ("": one may)."""
    (instance,) = entry.instances
    facts, where = instance.failover, last_node(instance)
    node = cluster.nodes.get(where)
    if not fails_over(entry):
        return f"failover is off for it: `trimtab vms set {entry.job.name} --failover`"
    if instance.copies or instance.may_run_on or is_busy(cluster, instance) or is_unknown(cluster, instance):
        return "it is not proven to be stopped"
    removed = node is None and where in entry.left_on  # while it was off
    if not removed and (node is None or node.condition is not NodeCondition.OFF):
        return f"{where} is not proven off" if where else "it is not known where it was"
    if facts is None or not facts.guarded:
        return f"{where} may start it by itself when it returns: failover was not set up there"
    return "; ".join(unready(entry))


def waits_for(cluster: Cluster, entry: JobEntry) -> str:
    """Return which node, that is off, an adopted VM waits for that is to run, and why for that one ("": for none)."""
    if not entry.adopted or entry.phase is not JobPhase.SHUT_OFF or not restarts(entry):
        return ""
    where = last_node(entry.instances[0])
    node = cluster.nodes.get(where)
    if node is None or node.condition is not NodeCondition.OFF:
        return ""
    if fails_over(entry):
        why = hindrance(cluster, entry) or "no other node has taken it yet"
    else:
        why = "; ".join(_tied_by(entry)) or "failover is off for it"
    return f"{where}, which is off: {why}"


def unready(entry: JobEntry) -> tuple[str, ...]:
    """Return what of an adopted VM would keep it from running on another node (none: nothing that is known)."""
    return (*_tied_by(entry), *(() if entry.definition else ("its definition is not in the store",)))


def _tied_by(entry: JobEntry) -> tuple[str, ...]:
    facts = entry.instances[0].failover or FailoverFacts()
    return (*map(host_file_sentence, facts.host_files), *map(sentence, ties(facts.needs)))


def failover_view(entry: JobEntry) -> Row | None:
    """Return how far failover of an adopted VM is set up; None for other jobs. `ready`: it would be restarted on
    another node; `why_not`: what keeps it from that."""
    if not entry.adopted or not entry.instances:
        return None
    facts = entry.instances[0].failover or FailoverFacts()
    why = list(unready(entry)) if fails_over(entry) else []
    if fails_over(entry) and not facts.guarded:
        why.append("its host starts it by itself, or has not reported since")
    return {"on": fails_over(entry), "ready": fails_over(entry) and not why, "why_not": why}


def left_behind(cluster: Cluster, entry: JobEntry) -> tuple[str, ...]:
    """Return the nodes that may still have a definition of the VM from before a failover: those that report one, and
    those that do not report."""
    (instance,) = entry.instances
    homes = {allotment.node for allotment in entry.allotments} | instance.may_run_on

    def may_have(name: str) -> bool:
        node = cluster.nodes.get(name)
        return node is not None and (node.condition is not NodeCondition.UP or name in instance.copies)

    return tuple(name for name in entry.left_on if name not in homes and may_have(name))
