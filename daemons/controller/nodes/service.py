"""The deployment engine: brings nodes into service and out of it, and to sleep and awake (batch-provisioning.txt
section 3.2.5).

A decision sets which nodes are wanted; this converges on it in steps that may each be repeated, from what is in the
store and what agents report. A node that holds or may hold a VM is never put to sleep, and its agent refuses too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Set

from daemons.controller.decide.node_pool import ServiceChange
from daemons.controller.nodes.drain import Drain
from daemons.controller.nodes.durations import DEPLOY, REMOVE, Durations
from daemons.controller.nodes.handover import Handovers
from daemons.controller.nodes.power_operations import DETAIL_MAX, PowerOperations
from daemons.controller.state.availability import can_wake, is_available, is_bound, is_empty, sleep_blocker, staying
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.settings import ControllerSettings
from shared.ports.effects import PowerDone
from shared.protocol.messages import SleepAnswer
from shared.values.nodes import Handover, NodeCondition, NodeService, PowerOperation

DAY_S = 86_400.0
SOON_S = 0.001
LOOK_S = 30.0  # how often it is looked whether what keeps a node awake has gone
SLEEP_LIMIT_S = 180.0  # a node that goes on reporting for so long after it was asked to sleep does not
_UP, _OFF = NodeCondition.UP, NodeCondition.OFF


class NodeLifecycle:
    """Moves every node towards where it is wanted. Limits count the controller's time without its jumps."""

    def __init__(
        self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings, emptying: Drain
    ) -> None:
        self.cluster, self.unit_of_work, self.settings, self.power = cluster, unit_of_work, settings, settings.power
        self.durations = Durations(settings.power)
        self.work = PowerOperations(unit_of_work, settings)
        self.emptying = emptying
        self.handovers = Handovers(cluster, unit_of_work, settings, self.need)
        self._emptying: list[NodeEntry] = []
        self._due_s = math.inf

    # --- what is wanted ---------------------------------------------------------------------------------------------

    def seen(self, now_s: float) -> dict[str, int]:
        """Return the change counts of the nodes that a decision requested at `now_s` may use; for `change_to`."""
        self.work.pass_time(now_s, self._due_s)
        nodes = self.cluster.nodes.values()
        return {node.name: node.changes for node in nodes if is_available(node, self.power)}

    def staying(self, named: Set[str] = frozenset()) -> frozenset[str]:
        """Return the names of the nodes that must stay in service when those `named` are wanted there, including those
        among them that could not be evacuated lately."""
        late = self.work.staying()
        return staying(self.cluster, self.power, named | late) | late

    def change_to(self, in_service: Iterable[str], seen: dict[str, int], now_s: float) -> ServiceChange:
        """Return the change after which exactly these nodes are wanted, except for nodes that the decision could not
        use and those that must stay in service."""
        self.work.pass_time(now_s, self._due_s)
        named = frozenset(in_service)
        stay = self.staying(named)
        added: list[str] = []
        removed: list[str] = []
        dropped: list[str] = []
        for name, node in self.cluster.nodes.items():
            wanted = name in named or name in stay
            if node.held or name not in seen or wanted is node.wanted:
                continue
            if seen[name] != node.changes:
                dropped.append(name)
            else:
                (added if wanted else removed).append(name)
        return ServiceChange(tuple(added), tuple(removed), tuple(dropped))

    def apply(self, change: ServiceChange, now_s: float) -> None:
        """Make it the desired state; what stays in service by then is not removed any more."""
        self.work.pass_time(now_s, self._due_s)
        nodes = self.cluster.nodes.values()
        stay = self.staying({*change.added, *(node.name for node in nodes if node.wanted)} - {*change.removed})
        for name in change.added:
            self._want(name, True)
        for name in change.removed:
            if name not in stay:
                self._want(name, False)

    def stop(self, now_s: float) -> ServiceChange:
        """Give up what decisions want of nodes, and return that: nodes that are awake stay in service, nodes that
        sleep are not woken. A wake or sleep that has been ordered is finished, and a node that must serve still
        comes into service."""
        self.work.pass_time(now_s, self._due_s)
        nodes = self.cluster.nodes.values()
        removed = tuple(node.name for node in nodes if self._leaves(node))
        asleep = {node.name for node in nodes if self._waits_to_wake(node)}
        kept = self.staying({*removed, *(node.name for node in nodes if node.wanted and node.name not in asleep)})
        added = tuple(name for name in sorted(asleep) if name not in kept)
        for name in (*added, *removed):
            self._want(name, name in removed)
            self.cluster.nodes[name].changes += 1
        return ServiceChange(added, removed)

    def _leaves(self, node: NodeEntry) -> bool:
        """Return whether a decision takes the node out of service and that can still be undone. One that was woken,
        or that cannot be put to sleep, rests in standby."""
        if node.wanted or node.held or node.sleeping:
            return False
        if node.service is NodeService.STANDBY:
            return can_wake(node, self.power) and (not node.woken_s or node.since_s != node.woken_s)
        return node.service in (NodeService.IN_SERVICE, NodeService.DRAINING)

    def _waits_to_wake(self, node: NodeEntry) -> bool:
        """Return whether a decision wants a sleeping node in service, and its wake has not begun."""
        asleep = node.sleeping or node.service is NodeService.OFF
        return asleep and node.wanted and not (node.held or is_bound(node))

    def _want(self, name: str, wanted: bool) -> None:
        node = self.cluster.nodes.get(name)
        if node is None or node.held or node.wanted is wanted:
            return
        node.wanted = wanted
        way = self.work.way(node)
        way.asked_s, way.woke = self.work.elapsed_s, False
        self.unit_of_work.change_node(node)
        self.unit_of_work.deploy = True

    def need(self, node: NodeEntry, now_s: float) -> None:
        """Bring the node into service, independent of decisions, unless an operator holds it back."""
        self.work.pass_time(now_s, self._due_s)
        self._want(node.name, True)

    def hold(self, node: NodeEntry, on: bool, now_s: float) -> None:
        """Hold the node out of service for an operator, or end that."""
        if node.held is on:
            return
        self.work.pass_time(now_s, self._due_s)
        node.held = on
        node.changes += 1
        if not on:
            node.wanted = True
            self.unit_of_work.emit(now_s, "node-undrained", node.name)
        self.work.way(node).asked_s = None
        self.unit_of_work.change_node(node)
        self.unit_of_work.place = self.unit_of_work.deploy = True
        if on and not is_empty(node):
            self.unit_of_work.cycle = True  # others give way to what is moved: that is a cycle's to decide
        if on and node.service is NodeService.IN_SERVICE:
            self._go(node, NodeService.DRAINING, now_s, "an operator keeps it out")

    def repair(self, node: NodeEntry, now_s: float) -> None:
        """Retry a node that failed, on an operator's request."""
        self.handovers.repair(node, now_s)
        if node.service is not NodeService.FAILED:
            return
        self.work.pass_time(now_s, self._due_s)
        self.unit_of_work.emit(now_s, "node-repaired", node.name, node.detail)
        node.detail = ""
        node.changes += 1
        self._go(node, NodeService.STANDBY if node.condition is _UP else NodeService.OFF, now_s)
        self.unit_of_work.place = self.unit_of_work.cycle = True

    def forget(self, name: str) -> None:
        """Drop the state of a node that was removed."""
        self.work.forget(name)
        self.handovers.forget(name)

    def waking_s(self, node: NodeEntry) -> float:
        """Return the seconds since the node started to wake."""
        return self.work.elapsed_s - self.work.way(node).from_s

    # --- what is heard ----------------------------------------------------------------------------------------------

    def powered(self, done: PowerDone, now_s: float) -> None:
        """Handle a power driver's answer."""
        self.work.pass_time(now_s, self._due_s)
        node = self.cluster.nodes.get(done.node)
        if node is None or not self.work.done(node, done, now_s):
            return
        self.unit_of_work.deploy = True
        way = self.work.way(node)
        if done.operation is PowerOperation.SLEEP and node.sleeping:
            self._slept(node, done.ok, done.detail, now_s)
        elif done.operation is PowerOperation.LINK and done.ok:
            node.linked = True
            self.unit_of_work.change_node(node)
        elif done.operation is PowerOperation.DELINK and done.ok:
            way.delinked = True

    def sleep_answer(self, answer: SleepAnswer, now_s: float) -> None:
        """Handle an agent's answer to `GoToSleep`."""
        self.work.pass_time(now_s, self._due_s)
        node = self.cluster.nodes[answer.node]
        way = self.work.way(node)
        if node.sleeping and way.request in ("", answer.request):
            self._slept(node, answer.ok, answer.detail, now_s)
            self.unit_of_work.deploy = True

    def _slept(self, node: NodeEntry, ok: bool, detail: str, now_s: float) -> None:
        if ok:
            self.work.way(node).answered = True
        else:
            self._awake(node, "sleep-failed", detail, now_s)

    def _awake(self, node: NodeEntry, what: str, detail: str, now_s: float) -> None:
        """Note that a node that was asked to sleep is awake; retry later."""
        node.sleeping = False
        way = self.work.way(node)
        way.sleep_failures += 1
        way.retry_s = self.work.later(way.sleep_failures)
        self.unit_of_work.change_node(node)
        self.unit_of_work.emit(now_s, what, node.name, detail[:DETAIL_MAX])

    def loaded(self, now_s: float) -> None:
        """Start after a new leader has read all records: time limits of operations in progress restart."""
        self.work.begin(now_s)
        for node in self.cluster.nodes.values():
            if node.sleeping:
                self.work.way(node).expires_s = now_s + self.settings.action_ttl_s
        self.handovers.loaded(now_s)
        self.unit_of_work.deploy = True

    # --- converging -------------------------------------------------------------------------------------------------

    def emptied(self) -> bool:
        """Return whether a node that was being evacuated is now empty."""
        return self.handovers.emptied() or any(
            is_empty(node) and node.service is NodeService.DRAINING for node in self._emptying
        )

    def run(self, now_s: float) -> float:
        """Take every step that may be taken now; returns when to look again (inf: when something happens)."""
        self.work.pass_time(now_s, self._due_s)
        self._due_s = math.inf
        handover_due_s = self.handovers.run(now_s)
        self.unit_of_work.deploy = False
        self._due_s = min(self._due_s, handover_due_s)
        if not self.unit_of_work.acting:
            return math.inf
        moving = [node for node in self.cluster.nodes.values() if not _rests(node)]
        for node in sorted(moving, key=lambda node: (node.since_s, node.name)):
            for _ in NodeService:
                if not self._step(node, now_s):
                    break
        self._test_wake(now_s)
        self._emptying = [node for node in moving if node.service is NodeService.DRAINING and not is_empty(node)]
        return self._due_s

    def _step(self, node: NodeEntry, now_s: float) -> bool:
        """Advance the node; return whether its service has changed."""
        match node.service:
            case NodeService.IN_SERVICE:
                return self._serving(node, now_s)
            case NodeService.DRAINING:
                return self._draining(node, now_s)
            case NodeService.STANDBY:
                return self._standby(node, now_s)
            case NodeService.OFF:
                return self._off(node, now_s)
            case NodeService.WAKING:
                return self._waking(node, now_s)
        return False

    def _at(self, elapsed_s: float, now_s: float) -> None:
        """Schedule the next check for this elapsed time, but strictly after now: a sum of times may fall short of it by
        less than the clock resolves."""
        self._due_s = min(self._due_s, now_s + max(elapsed_s - self.work.elapsed_s, SOON_S))

    def _go(self, node: NodeEntry, service: NodeService, now_s: float, detail: str = "") -> bool:
        node.service, node.since_s, node.sleeping = service, now_s, False
        self.work.way(node).restart(self.work.elapsed_s)
        if service is NodeService.OFF:
            self._learn(node, REMOVE)
            if node.condition is not _OFF:
                node.condition, node.silent_s = NodeCondition.UNKNOWN, None
        self.unit_of_work.change_node(node)
        self.unit_of_work.deploy = True
        what = "asleep" if service is NodeService.OFF else service.value
        self.unit_of_work.emit(now_s, f"node-{what}", node.name, detail)
        return True

    def _learn(self, node: NodeEntry, what: str) -> None:
        """Record a transition time; only those that this controller observed completely count."""
        way = self.work.way(node)
        if way.asked_s is None or node.wanted is not (what == DEPLOY):
            return
        node_type = node.inventory.node_type if node.inventory is not None else ""
        self.unit_of_work.records.append(self.durations.learn(node_type, what, self.work.elapsed_s - way.asked_s))
        way.asked_s = None

    def _serving(self, node: NodeEntry, now_s: float) -> bool:
        if node.held:
            return self._go(node, NodeService.DRAINING, now_s, "an operator keeps it out")
        way = self.work.way(node)
        if node.wanted or node.condition is not _UP or node.name in self.power.never:
            return False
        if self.work.elapsed_s < way.stays_until_s:
            self._at(way.stays_until_s, now_s)
            return False
        self._go(node, NodeService.DRAINING, now_s)
        self.unit_of_work.place = True
        self.emptying.begin(node, now_s)
        return True

    def _draining(self, node: NodeEntry, now_s: float) -> bool:
        way = self.work.way(node)
        if node.wanted and not node.held:
            return self._enter(node, now_s)
        if node.held:
            return False
        if node.condition is _OFF:
            return self._fail(node, "it fell silent while it was being emptied", now_s)
        if node.condition is not _UP:
            return False
        if is_empty(node) and (PowerOperation.DELINK not in self.power.does or way.delinked):
            self._go(node, NodeService.STANDBY, now_s)
            if not can_wake(node, self.power):
                self._learn(node, REMOVE)
            return True
        if is_empty(node):
            node.linked = False
            self._at(self.work.ask(node, PowerOperation.DELINK), now_s)
        if self.emptying.waits(node):
            way.from_s = self.work.elapsed_s
            return False
        wait_s = self.emptying.go_on(node, self.work.elapsed_s - way.from_s, now_s)
        self._at(self.work.elapsed_s + min(wait_s, LOOK_S), now_s)
        limit_s = way.from_s + self.power.drain_limit_s
        if self.work.elapsed_s < limit_s:
            self._at(limit_s, now_s)
            return False
        return self._drain_failed(node, now_s)

    def _drain_failed(self, node: NodeEntry, now_s: float) -> bool:
        way = self.work.way(node)
        way.drain_failures += 1
        way.asked_s = None
        stays_s = self.power.drain_limit_s * 2.0 ** min(way.drain_failures, 10)
        left = way.detail if is_empty(node) else f"{len(node.claimed)} VMs are or may be on it"
        self.unit_of_work.emit(now_s, "drain-failed", node.name, f"{left}; it stays for {stays_s:.0f} s")
        node.wanted = True
        node.changes += 1
        self.unit_of_work.change_node(node)
        way.stays_until_s = self.work.elapsed_s + stays_s
        return self._enter(node, now_s)

    def _standby(self, node: NodeEntry, now_s: float) -> bool:
        if node.sleeping:
            return self._going_to_sleep(node, now_s)
        if node.held:
            return self._go(node, NodeService.DRAINING, now_s, "an operator keeps it out")
        if node.condition is not _UP:
            return self._silent_in_standby(node, now_s)
        if node.wanted:
            return self._enter(node, now_s)
        if not self.power.can_sleep:
            return False
        way = self.work.way(node)
        rest_s = max(way.from_s + self.power.standby_s, way.retry_s)
        if self.work.elapsed_s < rest_s:
            self._at(rest_s, now_s)
        elif way.power is not None or sleep_blocker(node, self.power):
            self._at(self.work.elapsed_s + LOOK_S, now_s)
        elif not self.work.may_sleep(now_s):
            self._at(self.work.elapsed_s + self.settings.reconcile_s, now_s)
        else:
            node.sleeping = True
            self.unit_of_work.change_node(node)
            self.work.send_to_sleep(node, now_s)
            self._at(self.work.elapsed_s + self.settings.action_ttl_s, now_s)
        return False

    def _silent_in_standby(self, node: NodeEntry, now_s: float) -> bool:
        heard_of = now_s - node.seen_s < self.settings.unreachable_after_s
        if node.condition is _OFF:
            return self._fail(node, "it fell silent in standby", now_s)
        if self.work.way(node).answered and not heard_of:
            return self._go(node, NodeService.OFF, now_s, "it had agreed to sleep")
        if heard_of or not node.wanted:
            self._at(self.work.elapsed_s + self.settings.unreachable_after_s, now_s)
            return False
        if can_wake(node, self.power):
            return self._wake(node, now_s)
        return self._go(node, NodeService.IN_SERVICE, now_s, "it is unreachable")

    def _going_to_sleep(self, node: NodeEntry, now_s: float) -> bool:
        """Silence is what was asked for. What may still begin to sleep does not come into service."""
        way = self.work.way(node)
        if node.condition is _OFF or (
            node.condition is not _UP and now_s - node.seen_s >= self.settings.unreachable_after_s
        ):
            return self._go(node, NodeService.OFF, now_s)
        expired = node.last is not None and node.last.clock_s > way.expires_s + self.settings.max_skew_s
        reported_s = self.work.elapsed_s - (now_s - node.seen_s)
        if node.condition is _UP and reported_s >= way.sleep_asked_s + SLEEP_LIMIT_S:
            self._awake(node, "sleep-failed", "it goes on reporting", now_s)
        elif node.condition is _UP and expired and not way.answered and way.power is None:
            self._awake(node, "sleep-failed", "it did not answer", now_s)
        else:
            self._at(self.work.elapsed_s + self.settings.reconcile_s, now_s)
            return False
        self._at(self.work.elapsed_s, now_s)
        return False

    def _off(self, node: NodeEntry, now_s: float) -> bool:
        if node.condition is _UP:
            node.woken_s = now_s
            return self._go(node, NodeService.STANDBY, now_s, "it reports")
        return node.wanted and not node.held and self._wake(node, now_s)

    def _wake(self, node: NodeEntry, now_s: float) -> bool:
        if not can_wake(node, self.power):
            return False
        if not self.work.may_wake(now_s):
            self._at(self.work.elapsed_s + self.settings.reconcile_s, now_s)
            return False
        node.silent_s = None
        return self._go(node, NodeService.WAKING, now_s)

    def _waking(self, node: NodeEntry, now_s: float) -> bool:
        way = self.work.way(node)
        limit_s = way.from_s + self.power.wake_limit_s
        late = self.work.elapsed_s >= limit_s
        if node.condition is not _UP:
            if late:
                why = f"it did not come back within {self.power.wake_limit_s:.0f} s"
                return self._fail(node, f"{why}: {way.detail}" if way.detail else why, now_s)
            self._at(min(self.work.ask(node, PowerOperation.WAKE), limit_s), now_s)
            return False
        node.woken_s = now_s
        if not node.wanted or node.held:
            return self._go(node, NodeService.STANDBY, now_s, "it can be woken")
        return self._enter(node, now_s)

    def _enter(self, node: NodeEntry, now_s: float) -> bool:
        """Put the node into service, after other schedulers of the node are notified."""
        way = self.work.way(node)
        if not node.linked and PowerOperation.LINK in self.power.does:
            if way.entering_s is None:
                way.entering_s = self.work.elapsed_s
            limit_s = way.entering_s + self.power.wake_limit_s
            if self.work.elapsed_s >= limit_s:
                return self._fail(node, f"it could not be linked: {way.detail}", now_s)
            self._at(min(self.work.ask(node, PowerOperation.LINK), limit_s), now_s)
            return False
        if way.power is PowerOperation.DELINK:
            return False
        if way.woke:
            self._learn(node, DEPLOY)
        way.asked_s = None
        node.linked, way.delinked = True, False
        if node.handover is not Handover.FAILED:
            node.detail = ""
        self.unit_of_work.place = True
        return self._go(node, NodeService.IN_SERVICE, now_s)

    def _fail(self, node: NodeEntry, why: str, now_s: float) -> bool:
        """Out of everything until an operator says that it is repaired; a new decision finds another for one that was
        wanted."""
        node.detail = why[:DETAIL_MAX]
        node.changes += 1
        node.silent_s = None
        if node.wanted:
            self.unit_of_work.place = self.unit_of_work.cycle = True
        return self._go(node, NodeService.FAILED, now_s, node.detail)

    # --- the wake test ----------------------------------------------------------------------------------------------

    def _test_wake(self, now_s: float) -> None:
        """Wake the node whose last observed wake is the oldest, one at a time."""
        if self.power.wake_test_days <= 0.0 or not self.power.can_sleep:
            return
        nodes = self.cluster.nodes.values()
        asleep = [n for n in nodes if n.service is NodeService.OFF and not n.held and can_wake(n, self.power)]
        if not asleep or any(_is_test(node) for node in nodes):
            return
        node = min(asleep, key=lambda node: (_proven_s(node), node.name))
        due_s = _proven_s(node) + self.power.wake_test_days * DAY_S
        if now_s < due_s:
            self._due_s = min(self._due_s, due_s)
        elif self._wake(node, now_s):
            self.unit_of_work.emit(now_s, "wake-test", node.name)
            self._step(node, now_s)


def _rests(node: NodeEntry) -> bool:
    """Return whether the node needs no action."""
    if node.service is NodeService.IN_SERVICE:
        return node.wanted and not node.held
    return node.service is NodeService.FAILED


def _proven_s(node: NodeEntry) -> float:
    return max(node.woken_s, 0.0) or node.since_s


def _is_test(node: NodeEntry) -> bool:
    return node.service is NodeService.WAKING and not node.wanted
