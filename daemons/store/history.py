"""History beside the state: what happened, what was ordered, how much nodes were used.

It passes through the controller's shell as effects and inputs, so the core need not know about it: `History` gathers,
and the shell takes what has gathered to the store every few seconds. Losing some of it harms nothing but the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from sqlalchemy import Connection, Select, insert, select

from daemons.decision.recording import SnapshotEntry
from daemons.store import schema
from daemons.store.cluster_use import put_cluster_use
from daemons.store.rows import Row
from daemons.store.samples import NodeUse, SampleBook, merge
from daemons.store.upsert import fill_in, put
from shared.ports.audit import Audited
from shared.ports.effects import Effect, Input, Publish, Received
from shared.protocol.messages import Happened, Order, Report, Result

PENDING_MAX = 20_000  # events, actions and requests that wait for a store that does not answer; the oldest go first
SNAPSHOTS_MAX = 100  # that wait for it: some hundreds of kB each for 1,000 nodes
USES = select(*(schema.samples.c[field.name] for field in fields(NodeUse)))


@dataclass(frozen=True, slots=True)
class ActionEntry:
    """What is known of an action: from its order (`sent_s`), or from its result (`done_s`, `outcome`), or from both.

    `at_s` is when it was first heard of.
    """

    id: str
    at_s: float
    kind: str
    vm: str
    node: str
    term: int
    to_node: str | None = None
    sent_s: float | None = None
    done_s: float | None = None
    outcome: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """History to be stored together."""

    events: tuple[Happened, ...] = ()
    actions: tuple[ActionEntry, ...] = ()
    uses: tuple[NodeUse, ...] = ()
    snapshots: tuple[SnapshotEntry, ...] = ()
    audits: tuple[Audited, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.events or self.actions or self.uses or self.snapshots or self.audits)


class History:
    """Gathers history from what passes through a controller's shell. `dropped` counts what there was no room for."""

    def __init__(self) -> None:
        self.dropped = 0
        self._events: list[Happened] = []
        self._actions: list[ActionEntry] = []
        self._audits: list[Audited] = []
        self._samples = SampleBook()
        self._snapshots: list[SnapshotEntry] = []

    def snapshot(self, entry: SnapshotEntry) -> None:
        """Note what a decision was computed from."""
        self._snapshots.append(entry)
        self._bound(self._snapshots, SNAPSHOTS_MAX)

    def audit(self, audited: Audited) -> None:
        """Note what somebody has asked for."""
        self._audits.append(audited)
        self._bound(self._audits)

    def effect(self, effect: Effect, now_s: float) -> None:
        """Note an effect that is carried out."""
        if not isinstance(effect, Publish):
            return
        message = effect.message
        if isinstance(message, Happened):
            self._events.append(message)
            self._bound(self._events)
        elif isinstance(message, Order):
            action = message.action
            sent = ActionEntry(action.id, now_s, action.kind, vm=action.vm, node=action.node, term=action.term)
            self._note(sent, to_node=action.to_node, sent_s=now_s)

    def input(self, event: Input, now_s: float) -> None:
        """Note an input that is given to the core."""
        if not isinstance(event, Received):
            return
        message = event.message
        if isinstance(message, Report):
            self._samples.add(message.node, message.sample, now_s)
        elif isinstance(message, Result):
            answered = ActionEntry(
                message.action, now_s, message.kind, vm=message.vm, node=message.node, term=message.term
            )
            self._note(answered, done_s=now_s, outcome=message.outcome.value, detail=message.detail)

    def take(self, now_s: float) -> Batch:
        """Take everything that has been collected and is complete at `now_s` (infinity: all); it is not returned
        again."""
        events, self._events = self._events, []
        actions, self._actions = self._actions, []
        snapshots, self._snapshots = self._snapshots, []
        audits, self._audits = self._audits, []
        return Batch(tuple(events), tuple(actions), self._samples.take(now_s), tuple(snapshots), tuple(audits))

    def give_back(self, batch: Batch) -> None:
        """Take a batch back that could not be stored; it comes with the next one."""
        self._events[:0] = batch.events
        self._actions[:0] = batch.actions
        self._snapshots[:0] = batch.snapshots
        self._samples.give_back(batch.uses)
        self._bound(self._events)
        self._bound(self._actions)
        self._bound(self._snapshots, SNAPSHOTS_MAX)
        self._audits[:0] = batch.audits
        self._bound(self._audits)

    def _note(self, entry: ActionEntry, **known: Any) -> None:
        self._actions.append(ActionEntry(**(asdict(entry) | known)))
        self._bound(self._actions)

    def _bound(self, pending: list[Any], most: int = PENDING_MAX) -> None:
        over = len(pending) - most
        if over > 0:
            del pending[:over]
            self.dropped += over


# --- into the tables ---------------------------------------------------------------------------------------------


def append(connection: Connection, batch: Batch) -> None:
    """Store a batch. What is stored twice counts once, events apart."""
    if batch.events:
        connection.execute(insert(schema.events), [_event_row(event) for event in batch.events])
    if batch.actions:
        fill_in(connection, schema.actions, [_action_row(entry) for entry in batch.actions])
    if batch.audits:
        connection.execute(insert(schema.audit), [_texts(asdict(audited)) for audited in batch.audits])
    if batch.snapshots:
        put(connection, schema.snapshots, [asdict(entry) for entry in batch.snapshots])
    if batch.uses:
        _put_uses(connection, batch.uses)
        put_cluster_use(connection, {use.from_s for use in batch.uses})


def _event_row(event: Happened) -> Row:
    return {
        "at_s": event.at_s,
        "what": _storable(event.what),
        "subject": _storable(event.subject),
        "term": event.term,
        "detail": _storable(event.detail),
    }


def _action_row(entry: ActionEntry) -> Row:
    return _texts(asdict(entry))


def _texts(row: Row) -> Row:
    return {name: _storable(value) if isinstance(value, str) else value for name, value in row.items()}


def _storable(text: str) -> str:
    """Return a text that every database accepts: invalid UTF-8 and zero bytes become question marks."""
    return text.encode("utf-8", "replace").decode().replace("\0", "?")


def _put_uses(connection: Connection, uses: Sequence[NodeUse]) -> None:
    """Five minutes that are there in part already (another controller led in them too) are put together."""
    table = schema.samples
    there = USES.where(
        table.c.from_s.in_(sorted({use.from_s for use in uses})), table.c.node.in_(sorted({use.node for use in uses}))
    )
    wanted = {(use.node, use.from_s) for use in uses}
    slots: dict[tuple[str, float], NodeUse] = {}
    for use in (*(found for found in uses_of(connection, there) if (found.node, found.from_s) in wanted), *uses):
        known = slots.get((use.node, use.from_s))
        both = use if known is None else merge((known, use), use.from_s, max(known.span_s, use.span_s))
        slots[use.node, use.from_s] = both
    put_uses(connection, slots.values())


def put_uses(connection: Connection, uses: Iterable[NodeUse]) -> None:
    """Put rows of samples in place of those that are there."""
    put(connection, schema.samples, [asdict(use) for use in uses])


def uses_of(connection: Connection, statement: Select[Any]) -> list[NodeUse]:
    """Return the rows of samples that `USES`, or a part of it, selects."""
    return [NodeUse(*row) for row in connection.execute(statement).all()]


# --- out of the tables -------------------------------------------------------------------------------------------


def events(connection: Connection, limit: int, subject: str = "") -> tuple[Happened, ...]:
    """Return the newest events, newest first; with a subject only those about it."""
    table = schema.events
    wanted = select(table.c.at_s, table.c.what, table.c.subject, table.c.term, table.c.detail)
    if subject:
        wanted = wanted.where(table.c.subject == subject)
    rows = connection.execute(wanted.order_by(table.c.at_s.desc(), table.c.id.desc()).limit(limit))
    return tuple(Happened(*row) for row in rows)


def actions(connection: Connection, limit: int, vm: str = "") -> tuple[ActionEntry, ...]:
    """Return the newest actions, newest first; with a VM only those on it."""
    table = schema.actions
    wanted = select(table).where(table.c.vm == vm) if vm else select(table)
    rows = connection.execute(wanted.order_by(table.c.at_s.desc(), table.c.id).limit(limit)).mappings()
    return tuple(ActionEntry(**row) for row in rows)


def samples(connection: Connection, node: str, from_s: float, to_s: float) -> tuple[NodeUse, ...]:
    """Return a node's use from `from_s` (inclusive) to `to_s` (exclusive), oldest first."""
    table = schema.samples
    wanted = USES.where(table.c.node == node, table.c.from_s >= from_s, table.c.from_s < to_s)
    return tuple(uses_of(connection, wanted.order_by(table.c.from_s)))
