"""What leaves a controller that leads: changes go to the store, and only when they are there orders, answers and
acknowledgements go out; orders are looked at a last time and sent again until the broker has them."""

from __future__ import annotations

from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.reconcile.reconciler import Reconciler
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.planning.validate import NodeNow, validate
from daemons.values.records.cluster import Deleted, Record
from shared.ports.effects import Effect, Exit, Publish, Published, Write, Written
from shared.protocol.messages import Order
from shared.values.actions import Action


class Commit:
    """Writes what the unit of work says and sends what waits for it."""

    def __init__(
        self, cluster: Cluster, unit_of_work: UnitOfWork, deciding: DecisionCycle, reconciler: Reconciler
    ) -> None:
        self.cluster, self.unit_of_work, self.deciding, self.reconciler = cluster, unit_of_work, deciding, reconciler
        self._writes: dict[int, list[Effect]] = {}
        self._write_id = 0
        self._unconfirmed: dict[int, Publish] = {}
        self._publish_id = 0

    def counts(self) -> dict[str, int]:
        """Return the number of open writes and unconfirmed messages."""
        return {"unconfirmed": len(self._unconfirmed), "writes_open": len(self._writes)}

    def again(self) -> list[Effect]:
        """Return what must be published again on a new connection, because its arrival is uncertain."""
        return list(self._unconfirmed.values())

    def write(self) -> None:
        """Write everything that changed, on condition of the term; what waits for it goes out when it is stored."""
        unit_of_work = self.unit_of_work
        if not (unit_of_work.stored or unit_of_work.changed):
            return
        records: list[Record] = [Deleted(("node", name)) for name in unit_of_work.removed_nodes]
        records += [Deleted(("web", name)) for name in unit_of_work.removed_web]
        records += [web.record() for web in unit_of_work.dirty_web.values()]
        records += [entry.record() for entry in unit_of_work.dirty_environments.values()]
        for node in unit_of_work.dirty_nodes.values():
            _contiguous(node)
            if node.name in self.cluster.nodes:
                records.append(node.record())
        records += [entry.record() for entry in unit_of_work.dirty_jobs.values()]
        records += unit_of_work.records
        if unit_of_work.dirty_control:
            records.append(self.deciding.control())
        waiting, unit_of_work.stored = unit_of_work.stored, []
        unit_of_work.removed_nodes, unit_of_work.dirty_nodes, unit_of_work.dirty_jobs = [], {}, {}
        unit_of_work.removed_web, unit_of_work.dirty_web, unit_of_work.dirty_environments = [], {}, {}
        unit_of_work.dirty_control = False
        unit_of_work.records = []
        self._write_id += 1
        self._writes[self._write_id] = waiting
        unit_of_work.effects.append(Write(self._write_id, unit_of_work.term, tuple(records)))

    def ask_term(self) -> list[Effect]:
        """Ask the store whether this controller still leads, unless a write in progress will show it."""
        if self._writes:
            return []
        self._write_id += 1
        self._writes[self._write_id] = []
        return [Write(self._write_id, self.unit_of_work.term, ())]

    def written(self, answer: Written, now_s: float) -> list[Effect]:
        """Handle the store's answer: release what waited for the write, or exit because this controller no longer
        leads."""
        waiting = self._writes.pop(answer.write_id, [])
        if not answer.ok:
            return [Exit("another controller has raised the term" if answer.stale else f"store: {answer.detail}")]
        effects: list[Effect] = []
        for effect in waiting:
            if isinstance(effect, Publish) and isinstance(effect.message, Order):
                effects += self._order(effect, effect.message.action, now_s)
            else:
                effects.append(effect)
        return effects

    def published(self, event: Published, now_s: float) -> list[Effect]:
        """Handle the broker's answer: publish an unconfirmed order again while it can still be followed."""
        publish = self._unconfirmed.pop(event.publish_id, None)
        if publish is None or event.ok:
            return []
        if isinstance(publish.message, Order) and now_s < publish.message.action.expires_at_s:
            self._unconfirmed[event.publish_id] = publish  # the agent knows an action by its id: twice is once
            return [publish]
        return []

    def _order(self, publish: Publish, action: Action, now_s: float) -> list[Effect]:
        """Validate an order for the last time before it is sent."""
        target = self._node_now(action.to_node) if action.to_node else None
        refused = validate(action, self._node_now(action.node), target, now_s)
        if not self.unit_of_work.acting:
            refused = "the controller only observes"
        if refused:
            self.unit_of_work.emit(now_s, "action-not-sent", action.vm, f"{action.id} {action.kind}: {refused}")
            self.reconciler.rolled_back(action)
            return []
        self._publish_id += 1
        self.deciding.progress.sent(action, now_s)
        if action.vm in self.cluster.instances:
            self.cluster.operation_times.sent(action, self.cluster.instances[action.vm].job.job.memory_mib, now_s)
        confirmed = Publish(publish.exchange, publish.routing_key, publish.message, self._publish_id)
        self._unconfirmed[self._publish_id] = confirmed
        return [confirmed]

    def _node_now(self, name: str) -> NodeNow:
        node = self.cluster.nodes.get(name)
        if node is None:
            return NodeNow(False, "", 0.0)
        return NodeNow(node.usable, node.boot_id, node.room_mib())


def _contiguous(node: NodeEntry) -> None:
    """Move the mark up to which every guest event is stored (with this write)."""
    while node.events_seen + 1 in node.events_above:
        node.events_seen += 1
        node.events_above.discard(node.events_seen)
