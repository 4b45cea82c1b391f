"""Who asked for what, why, and what became of it: a record of every request that changes something."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.rate_limit import PerMinute
from shared.ports.audit import Audited
from shared.ports.effects import Received
from shared.protocol.account_messages import Assess, OnBehalf
from shared.protocol.codec import fingerprint
from shared.protocol.messages import Message, Reply
from shared.protocol.operator_messages import AdoptVm, CheckReservation, CheckRules, CheckVmFit, DryRun, Query

QUESTIONS = (Query, DryRun, Assess, CheckReservation, CheckRules, CheckVmFit)  # which change nothing
REFUSALS_PER_MINUTE = 60  # of one account that are recorded
FORWARDED_PER_MINUTE = 600  # of all accounts for which one user of the broker speaks
REMEMBERED_MAX = 1_000
TEXT_LENGTH_MAX = 200
DETAIL_LENGTH_MAX = 600
# Fields that say what a request is about, and of what is whole: the name in it.
SUBJECTS = ("job", "app", "environment", "agreement", "vm", "node", "decision", "notification", "channel")
NOT_AUDITED = frozenset({"request", "why", "account", "body"})


class Audit:
    """Creates the audit records. A request that is answered again, as its repeats are, has one record. Refusals are
    limited: a client that repeats requests without end cannot fill the store or hide those of others. Omitted ones are
    counted in the next record."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self._unit_of_work = unit_of_work
        self._refusals, self._forwarded = PerMinute(REFUSALS_PER_MINUTE), PerMinute(FORWARDED_PER_MINUTE)
        self._left_out: dict[str, int] = {}
        self._known: dict[tuple[str, str, str], bytes] = {}

    def answered(self, received: Received, reply: Reply, now_s: float) -> None:
        """Record an answered request; the record is published when its changes are stored, as is its answer."""
        checks = isinstance(received.message, AdoptVm) and received.message.check
        if not checks and not isinstance(received.message, QUESTIONS):
            self._note(received, reply, now_s)

    def forged(self, received: Received, message: OnBehalf, reply: Reply, now_s: float) -> None:
        """Record a request on behalf of an account that the sender may not act for, or a message that is no request."""
        made = Received(None, message.account, message, via=received.sender, why=message.why)
        self._note(made, reply, now_s)

    def _note(self, received: Received, reply: Reply, now_s: float) -> None:
        via = received.via or received.sender
        key = (received.sender, reply.request, reply.code)
        asked = fingerprint(received.message)
        if self._known.get(key) == asked:  # one with the id of another is another
            return
        left_out = 0
        if not reply.done:
            if not self._passes(via, received, now_s):
                self._left_out[via] = self._left_out.get(via, 0) + 1
                return
            left_out = self._left_out.pop(via, 0)
        self._known.pop(key, None)
        self._known[key] = asked
        if len(self._known) > REMEMBERED_MAX:
            del self._known[next(iter(self._known))]
        record = audited(received, reply, now_s, left_out)
        (self._unit_of_work.stored if reply.done else self._unit_of_work.effects).append(record)

    def _passes(self, via: str, received: Received, now_s: float) -> bool:
        """Return whether one more refusal is recorded: within the limit of the account and, for a forwarded request, of
        all accounts of the forwarder. Forged requests count for the account that sent them."""
        if via == received.sender or isinstance(received.message, OnBehalf):
            return self._refusals.passes(via, now_s)
        return self._forwarded.passes(via, now_s) and self._refusals.passes(received.sender, now_s)


def audited(received: Received, reply: Reply, now_s: float, left_out: int = 0) -> Audited:
    """Return the record of a request and its answer. left_out: earlier refusals of the same user without a record."""
    message = received.message
    more = f"({left_out} refusals before it are not recorded)" if left_out else ""
    return Audited(
        now_s,
        received.sender[:TEXT_LENGTH_MAX],
        (received.via or received.sender)[:TEXT_LENGTH_MAX],
        request=reply.request[:TEXT_LENGTH_MAX],
        kind=message.KIND,
        subject=subject_of(message)[:TEXT_LENGTH_MAX],
        why=received.why or getattr(message, "why", ""),
        done=reply.done,
        code=reply.code,
        detail="; ".join(part for part in (asked_of(message), reply.detail, more) if part)[:DETAIL_LENGTH_MAX],
    )


def subject_of(message: Message) -> str:
    """Return what a request is about: a name or a number ("": the controller)."""
    for name in SUBJECTS:
        value = getattr(message, name, None)
        if value is not None and value != "":
            return str(getattr(value, "name", value))
    return ""


def asked_of(message: Message) -> str:
    """Return the other short fields of a request: `on=False`, `node=n2`."""
    subject = next((name for name in SUBJECTS if getattr(message, name, None)), "")
    told = []
    for field in fields(message):
        value: Any = getattr(message, field.name)
        if field.name not in NOT_AUDITED and field.name != subject and isinstance(value, str | bool | int | float):
            told.append(f"{field.name}={value}")
    return ", ".join(told)
