"""What owners and the provider ask of environments: checked whole before anything changes, done once however often it
is delivered. What follows from it is `daemons/controller/environments/lifecycle.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.environments.feasibility import (
    DONE,
    Known,
    Refused,
    infeasible,
    refuse_partner,
    refuse_policies,
    stretched,
    unknown_zone,
)
from daemons.controller.environments.lifecycle import EnvironmentLifecycle, Give, RemoveApp
from daemons.controller.environments.pairing import Pairing
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.models.coordination import pairing
from daemons.values.replies import unknown
from shared.base.errors import InvalidValue
from shared.ports.effects import StartTimer
from shared.protocol.operator_messages import (
    ActivateEnvironment,
    ConsentEnvironment,
    CreateEnvironment,
    DeactivateEnvironment,
    DestroyEnvironment,
    ReserveEnvironment,
    ResizeEnvironment,
)
from shared.values.agreement import EnvironmentState

TIMER = "environments"
Ask = (
    CreateEnvironment
    | ActivateEnvironment
    | DeactivateEnvironment
    | DestroyEnvironment
    | ResizeEnvironment
    | ConsentEnvironment
    | ReserveEnvironment
)


Changed = Callable[[str, float], None]


class EnvironmentRequests:
    """Carries out what is asked of environments. `changed` is called with the name of every environment whose
    agreement, partner or state has changed. `admitted` says why a request, by its id, is not admitted.

    Answers of requests are a code and a text; without a code it was done, and the text says what else there is to know.
    """

    def __init__(
        self,
        cluster: Cluster,
        unit_of_work: UnitOfWork,
        deciding: DecisionCycle,
        remove_web: RemoveApp,
        give: Give,
        changed: Changed,
        admitted: Callable[[str], Refused],
    ) -> None:
        self.cluster, self.unit_of_work, self.deciding = cluster, unit_of_work, deciding
        self.changed, self.admitted = changed, admitted
        self.partners = Pairing(cluster, unit_of_work, changed)
        self.life = EnvironmentLifecycle(cluster, unit_of_work, deciding, remove_web, self.partners, give)

    # --- asked for --------------------------------------------------------------------------------------------------

    def handle(self, request: Ask, now_s: float, named: Known = None) -> Refused:
        """Carry out a request, or return why it is refused; a refusal changes nothing and only emits an event. `named`:
        the environments that the answer may name (None: all)."""
        code, detail = self._handle(request, now_s, named)
        if code:
            name = request.agreement.name if isinstance(request, CreateEnvironment) else request.environment
            self.unit_of_work.emit(now_s, "environment-refused", name, f"{request.KIND}: {code}: {detail}")
        return code, detail

    def _handle(self, request: Ask, now_s: float, named: Known) -> Refused:
        if isinstance(request, CreateEnvironment):
            strange = unknown_zone(request.agreement.assurance)
            return self._create(request, now_s, named) if strange == DONE else strange
        entry = self.cluster.environments.get(request.environment)
        if entry is None:
            known = [name for name in self.cluster.environments if named is None or name in named]
            return "unknown-environment", unknown("environment", request.environment, known)
        if entry.over:
            if isinstance(request, DestroyEnvironment):
                return DONE
            how = "destroyed" if entry.destroyed else "being destroyed"
            return "environment-destroyed", f"environment {entry.name!r} is {how}"
        match request:
            case ActivateEnvironment():
                return self._activate(entry, now_s)
            case DeactivateEnvironment():
                return self._deactivate(entry, now_s)
            case DestroyEnvironment():
                self.life.want(entry, EnvironmentState.DESTROYED, now_s)
                return DONE
            case ResizeEnvironment():
                return self._resize(entry, request, now_s, named)
            case ConsentEnvironment():
                return self._consent(entry, request, now_s, named)
            case ReserveEnvironment():
                return self._reserve(entry, request, now_s)

    def _create(self, request: CreateEnvironment, now_s: float, named: Known) -> Refused:
        agreement = request.agreement
        known = self.cluster.environments.get(agreement.name)
        if known is not None and known.request == request.request:
            return DONE
        if known is not None and not known.destroyed:
            told = known.over and (named is None or known.name in named)
            how = f"environment {known.name!r} is being destroyed; create it when it is" if told else ""
            return "duplicate-name", how or f"there is an environment {agreement.name!r} already; choose another name"
        for refused in (refuse_policies(agreement), refuse_partner(agreement, self.cluster, named)):
            if refused != DONE:
                return refused
        why = infeasible(agreement, self.cluster, named)
        if why:
            return "infeasible", why
        refused = self.admitted(request.request)
        if refused != DONE:
            return refused
        entry = EnvironmentEntry(agreement, request.request, self.deciding.next_submission(), created_s=now_s)
        self.cluster.environments[agreement.name] = entry
        self.cluster.last_ended_s.pop(agreement.name, None)  # of an earlier one of that name
        self.unit_of_work.change_environment(entry)
        self.unit_of_work.stored.append(StartTimer(TIMER, now_s))  # it is configured once it is in the store
        self.unit_of_work.emit(now_s, "environment-uninitialised", agreement.name)
        return "", stretched(agreement, self.cluster, named)

    def _activate(self, entry: EnvironmentEntry, now_s: float) -> Refused:
        if entry.serves:
            return DONE
        if entry.state is EnvironmentState.RUNNING:
            return "being-deactivated", f"environment {entry.name!r} is being deactivated; activate it when it is"
        terms = entry.agreement.assurance
        if terms is not None and terms.end_s is not None and terms.end_s <= now_s:
            return "reservation-over", f"what was reserved for {entry.name!r} is over; reserve again"
        self.life.want(entry, EnvironmentState.RUNNING, now_s)
        return DONE

    def _deactivate(self, entry: EnvironmentEntry, now_s: float) -> Refused:
        if entry.wanted is EnvironmentState.CREATED:
            return "not-activated", f"environment {entry.name!r} has not been activated"
        if entry.serves:
            self.life.want(entry, EnvironmentState.DEACTIVATED, now_s)
        return DONE

    def _resize(self, entry: EnvironmentEntry, request: ResizeEnvironment, now_s: float, named: Known) -> Refused:
        before = entry.agreement
        if (before.lower, before.upper) == (request.lower, request.upper):
            return DONE
        try:
            agreement = replace(before, lower=request.lower, upper=request.upper)
        except InvalidValue as problem:
            return "invalid-value", str(problem)
        refused = refuse_policies(agreement)
        if refused != DONE:
            return refused
        why = infeasible(agreement, self.cluster, named) if agreement.lower > before.lower else ""
        if why:
            return "infeasible", why
        refused = self.admitted(request.request)
        if refused != DONE:
            return refused
        entry.agreement = agreement
        self.unit_of_work.change_environment(entry)
        upper = "none" if agreement.upper is None else f"{agreement.upper}"
        self.unit_of_work.emit(now_s, "environment-resized", entry.name, f"lower {agreement.lower}, upper {upper}")
        self.changed(entry.name, now_s)
        return "", stretched(agreement, self.cluster, named)

    def _reserve(self, entry: EnvironmentEntry, request: ReserveEnvironment, now_s: float) -> Refused:
        if entry.agreement.assurance == request.assurance:
            return DONE
        strange = unknown_zone(request.assurance)
        if strange != DONE:
            return strange
        refused = self.admitted(request.request)
        if refused != DONE:
            return refused
        try:
            agreement = replace(entry.agreement, assurance=request.assurance)
        except InvalidValue as problem:
            return "invalid-value", str(problem)
        entry.agreement = agreement
        self.unit_of_work.change_environment(entry)
        shares = "nothing" if request.assurance is None else f"{len(request.assurance.shares)} shares"
        self.unit_of_work.emit(now_s, "environment-reserved", entry.name, shares)
        self.changed(entry.name, now_s)
        return DONE

    def _consent(self, entry: EnvironmentEntry, request: ConsentEnvironment, now_s: float, named: Known) -> Refused:
        if request.partner == entry.name:
            return "coordination", f"environment {entry.name!r} cannot be coordinated with itself"
        if not request.on:
            self.partners.withdraw(entry, request.partner, now_s)
            return DONE
        partner = self.cluster.environments.get(request.partner)
        if named is None and (partner is None or partner.over):
            return "unknown-environment", unknown("environment", request.partner, self.cluster.environments)
        if partner is not None and (named is None or partner.name in named):  # of others nothing is told
            objections = pairing.objections(entry.agreement, partner.agreement)
            if objections:
                return "coordination", "; ".join(objections)
        self.partners.consent(entry, request.partner, now_s)
        return DONE

    def without(self, node: NodeEntry, now_s: float) -> None:
        """Take back a node that an operator removes from service: its current or assigned environment loses it."""
        if node.given:
            name = node.given
            self.life.give(node, "", now_s)
            self.changed(name, now_s)

    # --- time goes by -----------------------------------------------------------------------------------------------

    def loaded(self, now_s: float) -> None:
        """Continue transitions in progress after a new leader has read all records."""
        self.life.loaded()
        self.due(now_s)

    def due(self, now_s: float) -> None:
        """Mark stored environments as created, and separate those whose notice has ended."""
        self.life.created(now_s)
        self.partners.due(now_s)

    def pair(self, now_s: float) -> None:
        """Pair environments that can be coordinated, before units are allocated."""
        if self.partners.dirty:
            self.partners.seek(now_s)

    def run(self, now_s: float) -> None:
        """Take every step that may be taken now, after units have been shared out."""
        self.life.run(now_s)

    def next_due_s(self) -> float:
        """Return when to call `due` (inf: never on a timer)."""
        return self.partners.next_due_s()
