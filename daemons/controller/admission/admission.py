"""Admission in the controller: whether an environment may come in, by the policy of the configuration, which is asked
in a worker process (statistical-assurance.txt section 4).

One question at a time: what is admitted stands before the next one is asked. Of the reservations that stand, only what
has changed is sent.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from msgspec import structs

from daemons.controller.admission.assurance import Assurance, terms_of
from daemons.controller.admission.demand_history import demand_from
from daemons.controller.contract.computations import Computations
from daemons.controller.contract.replies import Replies
from daemons.controller.environments.feasibility import can_serve, unknown_zone, usable_nodes
from daemons.controller.environments.inventory import slots
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.state.tenancy import nodes_of
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.decision.admitting import AdmissionAnswer, AdmissionTask
from daemons.values.calendar import clock_s, local_text
from daemons.values.settings import ControllerSettings
from shared.base.errors import InvalidValue
from shared.policy_api.admission import (
    AdmissionOutcome,
    Binding,
    Grid,
    Pool,
    PoolStep,
    SlotFigures,
    Split,
    Standing,
    Verdict,
)
from shared.ports.effects import Received
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import CheckReservation, CreateEnvironment, ReserveEnvironment, ResizeEnvironment
from shared.values.agreement import SERVERS, Agreement, AssuranceTerms
from shared.values.reservation import Reservation, ResourceDemand, Share, SlotDemand

Asks = CreateEnvironment | ResizeEnvironment | ReserveEnvironment | CheckReservation
Refused = tuple[str, str]
DONE: Refused = ("", "")
LIMIT_S = 60.0
PUT_MAX = 50  # reservations in one task: a large one would hold the controller up while it is sent
QUESTIONS_MAX = 200  # that wait
QUESTIONS_OF_ONE_MAX = 20  # of one sender
Row = dict[str, Any]
CarryOut = Callable[[Received, float, Row | None], None]


@dataclass(slots=True, eq=False)
class _Question:
    """A request that waits for its verdict, and what is asked of the policy."""

    received: Received
    agreement: Agreement
    assure: float = 0.0


class Admission:
    """Takes requests that reserve something, asks the policy, and gives them to `carry_out(received, now_s, data)` with
    its verdict as the data of their answer. figures: what the promises need in every slot, as of `figures_s`; trouble:
    why the policy has not answered."""

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        unit_of_work: UnitOfWork,
        settings: ControllerSettings,
        computations: Computations,
        replies: Replies,
        carry_out: CarryOut,
    ) -> None:
        self.name, self.cluster, self.unit_of_work, self.settings = name, cluster, unit_of_work, settings
        self.assurance = Assurance(cluster, unit_of_work, settings)
        self._computations, self._replies, self._carry_out = computations, replies, carry_out
        self.figures: tuple[Grid, tuple[SlotFigures, ...]] | None = None
        self.figures_s: float | None = None
        self.trouble = ""
        self._questions: deque[_Question] = deque()
        self._verdicts: dict[str, Verdict | str] = {}
        self._in_progress = False
        self._more = False
        self._sent: dict[str, Standing] = {}
        self._revision = 0
        self._units: dict[str, tuple[object, Standing]] = {}
        self._forecast = False
        self._serving: set[str] = set()

    @property
    def on(self) -> bool:
        """A policy is configured."""
        return self.settings.admission is not None

    def loaded(self, now_s: float) -> None:
        """Start admission after a new leader has read all records."""
        self.assurance.loaded()
        self._serving = {node.name for node in usable_nodes(self.cluster)}
        self.forecast(now_s)

    def due(self, now_s: float) -> None:
        """Slots may be over."""
        if self.assurance.due(now_s):
            self.forecast(now_s)

    def settle(self, now_s: float) -> float:
        """End an instant: write what is known of demand to the store. Return when to look again (inf: when something
        happens)."""
        if not self.on:
            return math.inf
        if self._other_nodes():
            self.forecast(now_s)
        self.assurance.flush()
        return self.assurance.next_due_s()

    def _other_nodes(self) -> bool:
        """Return whether the nodes that changed in this instant alter the set of nodes that environments can get."""
        changed = {
            name: node.inventory is not None and can_serve(node) for name, node in self.unit_of_work.dirty_nodes.items()
        } | dict.fromkeys(self.unit_of_work.removed_nodes, False)
        other = {name for name, serves in changed.items() if serves is not (name in self._serving)}
        self._serving ^= other
        return bool(other)

    # --- asking -----------------------------------------------------------------------------------------------------

    def takes(self, received: Received, now_s: float) -> bool:
        """Return whether a request has been answered, or now waits for a verdict and is carried out with it."""
        message = received.message
        if not isinstance(message, Asks) or message.request in self._verdicts:
            return False
        if not self.on:
            return isinstance(message, CheckReservation) and self._reply(received, _no_policy(), None, now_s)
        agreement = self._wanted(message)
        if agreement is None:
            return False
        strange = unknown_zone(agreement.assurance)
        if strange != DONE:  # others are refused when they are carried out
            return isinstance(message, CheckReservation) and self._reply(received, strange, None, now_s)
        if self._many(received.sender):
            busy = Reply(message.request, False, "busy", "too many questions wait already; ask later")
            self._replies.when_stored(received, busy, now_s)
            return True
        assure = message.assure if isinstance(message, CheckReservation) else 0.0
        self._questions.append(_Question(received, agreement, assure))
        self._next(now_s)
        return True

    def _many(self, sender: str) -> bool:
        """Return whether no more questions may wait. Each question holds a delivery, and agents' messages need
        deliveries too."""
        if len(self._questions) >= QUESTIONS_MAX:
            return True
        return sum(each.received.sender == sender for each in self._questions) >= QUESTIONS_OF_ONE_MAX

    def _wanted(self, message: Asks) -> Agreement | None:
        """Return the agreement that the request would result in; None where no check is needed."""
        if isinstance(message, CheckReservation | CreateEnvironment):
            known = self.cluster.environments.get(message.agreement.name)
            repeated = known is not None and known.request == message.request
            return None if repeated else message.agreement
        entry = self.cluster.environments.get(message.environment)
        if entry is None or entry.over:
            return None
        before = entry.agreement
        try:
            if isinstance(message, ReserveEnvironment):
                return replace(before, assurance=message.assurance)
            if before.assurance is not None and message.lower <= before.lower:
                return None  # its upper bound is not what is reserved
            return replace(before, lower=message.lower, upper=message.upper)
        except InvalidValue:
            return None

    def _reply(self, received: Received, refused: Refused, data: Row | None, now_s: float) -> bool:
        message = received.message
        assert isinstance(message, CheckReservation)
        code, detail = refused
        self._replies.when_stored(received, Reply(message.request, not code, code, detail, data), now_s)
        return True

    def forecast(self, now_s: float) -> None:
        """Ask what the promises need from now on, when nothing else is asked."""
        self._forecast = self.on
        self._next(now_s)

    def _next(self, now_s: float) -> None:
        """Ask the next question, unless one is being answered."""
        while not self._in_progress and (self._questions or self._forecast):
            question = self._questions.popleft() if self._questions else None
            self._forecast = self._forecast and question is not None
            request = None
            if question is not None:
                filled = self._filled(question.agreement)
                if isinstance(filled, str):
                    self._decided(question, filled, now_s)
                    continue
                question.agreement = filled
                request = self._standing(filled, now_s)
            self._ask(question, request, now_s)

    def _filled(self, agreement: Agreement) -> Agreement | str:
        """Return an agreement with its demand, taken from history where it says so, or the reason why there is none."""
        terms = agreement.assurance
        if terms is None or terms.demand:
            return agreement
        known = self.cluster.environments.get(agreement.name)
        own = known is not None and known.owner == agreement.owner
        entry = self.assurance.entries.get(agreement.name) if own else None
        alike = entry is not None and (entry.terms.timezone, entry.terms.slot_s) == (terms.timezone, terms.slot_s)
        demand = demand_from(entry.days, terms) if entry is not None and alike else ()
        if not demand:
            slots = f"slots of {terms.slot_s:g} s, {terms.timezone}"
            return f"nothing was measured of environment {agreement.name!r} in {slots}"
        return replace(agreement, assurance=replace(terms, demand=demand))

    def _ask(self, question: _Question | None, request: Standing | None, now_s: float) -> None:
        choice = self.settings.admission
        assert choice is not None
        standing = {
            entry.name: self._standing_of(entry, now_s)
            for entry in sorted(self.cluster.environments.values(), key=lambda entry: entry.order)
            if not entry.over and not _ended(entry.agreement, now_s)
        }
        gone = tuple(name for name in self._sent if name not in standing)
        new = [name for name, each in standing.items() if self._sent.get(name) is not each]
        more = len(new) > PUT_MAX
        put = tuple(standing[name] for name in new[:PUT_MAX])
        since, self._revision = self._revision, self._revision + 1
        late = frozenset(new[PUT_MAX:])
        before = self._sent
        self._sent = {
            name: before[name] if name in late else each
            for name, each in standing.items()
            if name not in late or name in before
        }
        token = f"{self.name}/{self.unit_of_work.term}"
        task = AdmissionTask(
            token,
            since,
            self._revision,
            gone=gone,
            put=put,
            policy=choice.name,
            params=choice.params,
            pools=self._pools(question.agreement if question is not None else None),
            now_s=now_s,
            request=request,
            replaces=self._replaced(question.agreement) if question is not None else "",
            assure=question.assure if question is not None else 0.0,
            more=more,
        )
        self._in_progress, self._more = True, more
        self._computations.ask(task, LIMIT_S, partial(self._computed, question))

    def _replaced(self, agreement: Agreement) -> str:
        """Return the environment whose reservation this one would replace: only one of the same owner."""
        known = self.cluster.environments.get(agreement.name)
        return agreement.name if known is not None and known.owner == agreement.owner else ""

    # --- what stands ------------------------------------------------------------------------------------------------

    def _standing_of(self, entry: EnvironmentEntry, now_s: float) -> Standing:
        """Return the standing of an environment: the same object until one of its inputs changes."""
        known = self.assurance.entries.get(entry.name)
        coupling, observations = known.coupling if known is not None else (0.0, 0)
        zone = terms_of(entry.agreement, self.settings.assurance.timezone).timezone
        key = (
            entry.agreement,
            round(coupling, 3),
            observations,
            _offset_s(now_s, zone),
            self._per_node(entry.agreement),
        )
        kept = self._units.get(entry.name)
        if kept is None or kept[0] != key:
            kept = self._units[entry.name] = (key, self._standing(entry.agreement, now_s))
        return kept[1]

    def _standing(self, agreement: Agreement, now_s: float) -> Standing:
        """Return what an agreement reserves, in nodes."""
        terms = terms_of(agreement, self.settings.assurance.timezone)
        bound = sum(share.units or 0 for share in terms.shares)
        demand = terms.demand or (SlotDemand((*(0.0,) * bound, 1.0)),) * terms.slots
        demand = tuple(_at_least(slot, agreement.lower) for slot in demand)
        known = self.assurance.entries.get(agreement.name)
        coupling, observations = known.coupling if known is not None else (0.0, 0)
        reserved = in_nodes(terms, demand, agreement, self._per_node(agreement))
        return Standing(reserved, _offset_s(now_s, terms.timezone), coupling, observations)

    def _per_node(self, agreement: Agreement) -> int:
        """Return the number of units that fit on a node, by the smallest node that can hold any."""
        template = agreement.template
        if template is None:
            return 1
        memory_mib = template.memory_mib + self.cluster.vm_overhead_mib
        each = (slots(node, memory_mib, template.max_mhz) for node in nodes_of(agreement, self.cluster))
        return max(1, min((count for count in each if count > 0), default=1))

    def _pools(self, agreement: Agreement | None) -> tuple[Pool, ...]:
        """Return the existing nodes; where an agreement names an operating system, only the nodes that run it."""
        nodes = usable_nodes(self.cluster)
        if agreement is not None and agreement.os_type:
            system = (agreement.os_type, agreement.os_version)
            nodes = [node for node in nodes if (node.os_type, node.os_version if system[1] else "") == system]
        return (Pool(SERVERS, (PoolStep(0.0, len(nodes)),)),)

    # --- answers ----------------------------------------------------------------------------------------------------

    def _computed(self, question: _Question | None, answer: AdmissionAnswer | None, error: str, now_s: float) -> None:
        """Take a worker's answer."""
        self._in_progress = False
        if answer is None or answer.behind:
            self._sent, self._revision = {}, 0
        if answer is not None and (answer.behind or self._more):
            if question is not None:
                self._questions.appendleft(question)
            self._forecast = self._forecast or question is None
        elif question is not None:
            found = answer.verdict if answer is not None and answer.verdict is not None else error
            self._decided(question, found, now_s, answer.splits if answer is not None else ())
        elif answer is not None and answer.figures is not None:
            self.figures, self.figures_s, self.trouble = answer.figures, now_s, ""
        else:
            self.trouble = error
        self._next(now_s)

    def _decided(self, question: _Question, found: Verdict | str, now_s: float, splits: tuple[Split, ...] = ()) -> None:
        message = question.received.message
        if isinstance(message, CheckReservation):
            if isinstance(found, str):
                self._reply(question.received, ("not-admissible", found), None, now_s)
            else:
                data = verdict_view(found) | {"splits": [_plain(asdict(split)) for split in splits]}
                self._reply(question.received, DONE, data | {"name": question.agreement.name}, now_s)
            return
        assert isinstance(message, CreateEnvironment | ResizeEnvironment | ReserveEnvironment)
        self._verdicts[message.request] = found
        received = question.received
        if isinstance(message, CreateEnvironment):
            received = structs.replace(received, message=replace(message, agreement=question.agreement))
        elif isinstance(message, ReserveEnvironment):
            received = structs.replace(received, message=replace(message, assurance=question.agreement.assurance))
        self._carry_out(received, now_s, verdict_view(found) if isinstance(found, Verdict) else None)
        del self._verdicts[message.request]
        name = question.agreement.name
        if name in self.assurance.entries and name in self.cluster.environments:
            self.assurance.entry_of(self.cluster.environments[name])  # stored with the agreement
        self.forecast(now_s)

    def refused(self, request: str) -> Refused:
        """Return why a request that now has its verdict is not carried out; `DONE` where it may be."""
        found = self._verdicts.get(request)
        if found is None:
            return DONE
        if isinstance(found, str):
            return "not-admissible", found
        if found.outcome is AdmissionOutcome.ADMITTED:
            return DONE
        if found.outcome is AdmissionOutcome.OFFERED:
            return "share-offered", why(found)
        return "not-admitted", why(found)


def _no_policy() -> Refused:
    return "no-admission", "no admission policy is configured: every request is admitted"


def _ended(agreement: Agreement, now_s: float) -> bool:
    terms = agreement.assurance
    return terms is not None and terms.end_s is not None and terms.end_s <= now_s


def _offset_s(at_s: float, zone: str) -> float:
    return clock_s(at_s, zone) - at_s


def in_nodes(terms: AssuranceTerms, demand: tuple[SlotDemand, ...], agreement: Agreement, per_node: int) -> Reservation:
    """Return what terms reserve for an environment, with its units counted as the nodes that they fill."""
    base = replace(terms, demand=demand).reservation(agreement.name)
    if per_node == 1:
        return base
    shares, before, filled = [], 0, 0
    for share in terms.shares:
        if share.units is None:
            shares.append(share)
            continue
        before += share.units
        nodes = math.ceil(before / per_node)
        shares.append(Share(share.service_class, nodes - filled, share.theta))
        filled = nodes
    each = tuple(_slot_in_nodes(slot, per_node) for slot in base.demands[0].slots)
    return replace(base, demands=(ResourceDemand(SERVERS, each),), shares=tuple(shares))


def _at_least(slot: SlotDemand, lower: int) -> SlotDemand:
    """Demand with what is set aside whether or not it is asked for."""
    chances = slot.probabilities
    if lower == 0:
        return slot
    return SlotDemand((*(0.0,) * lower, math.fsum(chances[: lower + 1]), *chances[lower + 1 :]), slot.observations)


def _slot_in_nodes(slot: SlotDemand, per_node: int) -> SlotDemand:
    chances = [0.0] * (math.ceil((len(slot.probabilities) - 1) / per_node) + 1)
    for units, chance in enumerate(slot.probabilities):
        chances[math.ceil(units / per_node)] += chance
    return SlotDemand(tuple(chances), slot.observations)


# --- in words and as plain data --------------------------------------------------------------------------------------


def why(verdict: Verdict) -> str:
    """Return a verdict that does not admit, as text."""
    parts = []
    if verdict.binding is not None:
        parts.append(_binding(verdict.binding))
    parts += [verdict.detail] if verdict.detail else []
    if verdict.offer is not None:
        each = "; ".join(
            f"{' + '.join(map(str, one.offered))} of {' + '.join(map(str, one.asked))} {one.resource}"
            for one in verdict.offer.units
        )
        parts.append(f"offered: {each} in its shares, the rest as best effort")
    if verdict.first_start_s is not None:
        parts.append(f"all of it fits from {local_text(verdict.first_start_s, 'UTC')} on")
    return f"{verdict.reason.value}: " + "; ".join(parts)


def _binding(binding: Binding) -> str:
    return (
        f"slot {binding.slot} needs {binding.needed} {binding.resource} for all promises down to "
        f"{binding.service_class.value} {binding.theta:g}, there are {binding.units}"
    )


def verdict_view(verdict: Verdict) -> Row:
    """Return a verdict as plain data. docs/reference/views.md lists the keys."""
    row: Row = _plain(asdict(replace(verdict, offer=None)))
    offer = verdict.offer
    row["offer"] = None if offer is None else [_plain(asdict(each)) for each in offer.units]
    row["text"] = "" if verdict.outcome is AdmissionOutcome.ADMITTED else why(verdict)
    return row


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, str) else value
