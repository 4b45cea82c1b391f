"""What every type of environment must do: run each of `CHECKS` on an instance, with a seed.

A check that fails raises `ContractViolation` with the broken rule, the seed and what the type saw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shared.base.errors import CodecError, ContractViolation, InvalidInput, InvalidValue
from shared.policy_api.coordination import Asked, InstancesView, ManagerView, Party, WaitingJob
from shared.policy_api.policies import EnvironmentType
from shared.ports.plugins import find_policy
from shared.protocol.codec import decode, encode
from shared.protocol.operator_messages import CreateEnvironment
from shared.values.agreement import UNITS_MAX, Agreement, BatchTerms, Scheduling, WebTerms, WorkloadType
from shared.values.scalars import check_name
from shared.values.web_app import Distribution

Terms = Mapping[str, Any]
DECLARED = "more_waiting_asks_more"  # a type that has this, true, never asks for less where more waits
UNKNOWN = ("no-such-term", "nor-this-one")
_VIEWS = 150


@dataclass(frozen=True, slots=True)
class TypeSubject:
    """A type under test, with the seed of what it sees, terms that it takes, and terms that it refuses."""

    type: EnvironmentType
    seed: int = 0
    good_terms: Sequence[Terms] = ({},)
    bad_terms: Sequence[Terms] = ()

    @property
    def batch(self) -> bool:
        """Jobs are submitted to it."""
        return self.type.workload is WorkloadType.BATCH

    def managed(self) -> Iterator[tuple[ManagerView, Terms]]:
        """Yield views for its manager, the same for the same seed: nothing owned or more than the bounds, all of it
        idle or none, nothing waiting or more than all environments have."""
        rng = np.random.default_rng(self.seed)
        for _ in range(_VIEWS):
            view = _batch_view(rng) if self.batch else _web_view(rng)
            yield view, self.good_terms[int(rng.integers(len(self.good_terms)))]

    def adjusted(self) -> Iterator[tuple[InstancesView, Terms]]:
        """Applications, the same for the same seed; none where jobs are submitted to it."""
        rng = np.random.default_rng(self.seed)
        for _ in range(0 if self.batch else _VIEWS):
            least, most = sorted(int(bound) for bound in rng.integers(0, 12, 2))
            count, use = int(rng.integers(0, 14)), float(rng.choice([0.0, 0.005, 0.2, 0.5, 0.6, 0.79, 0.81, 1.0, 1.3]))
            use = math.inf if count == 0 and use > 0.0 else use
            add = float(rng.choice([0.3, 0.8, 1.0]))
            terms = WebTerms(add, add * float(rng.choice([0.5, 1.0])))
            view = InstancesView(count, use, terms, least, max(1, most))
            yield view, self.good_terms[int(rng.integers(len(self.good_terms)))]

    def manage(self, view: ManagerView, terms: Terms) -> Asked:
        """Return the units that its manager requests. Raise ContractViolation if the type raises anything."""
        try:
            return self.type.manage(view, terms)
        except Exception as error:
            raise ContractViolation(f"{self.type.name}: raises {error!r} for {view} with {terms}") from error

    def adjust(self, view: InstancesView, terms: Terms) -> int:
        """Return its adjustment step. Raise ContractViolation if the type raises anything."""
        try:
            return self.type.adjust(view, terms)
        except Exception as error:
            raise ContractViolation(f"{self.type.name}: raises {error!r} for {view} with {terms}") from error

    def refused(self, terms: Terms) -> int:
        """Return the number of problems that the type finds in the terms. Raise ContractViolation for any error but
        `InvalidInput`."""
        try:
            self.type.check_terms(terms)
        except InvalidInput as error:
            return len(error.problems)
        except Exception as error:
            raise ContractViolation(f"{self.type.name}: check_terms raises {error!r} for {terms}") from error
        return 0

    def expect(self, holds: bool, rule: str, seen: Any = None) -> None:
        """Raise `ContractViolation` unless the rule holds."""
        if not holds:
            raise ContractViolation(f"{self.type.name}, seed {self.seed}: {rule}; it saw {seen}")


Check = Callable[[TypeSubject], None]


def _units(rng: np.random.Generator) -> int:
    return int(rng.choice([0, 1, 2, 3, 5, 8, 13, 64, 1_000, UNITS_MAX]))


def _bounds(rng: np.random.Generator) -> tuple[int, int | None]:
    lower = _units(rng)
    return lower, None if rng.integers(2) else max(1, lower, _units(rng))


def _batch_view(rng: np.random.Generator) -> ManagerView:
    lower, upper = _bounds(rng)
    owned = _units(rng)
    waiting = tuple(
        WaitingJob(
            float(rng.choice([0.25, 0.5, 1.0, 2.0, 7.0, UNITS_MAX / 8])),
            float(rng.choice([0.0, 59.0, 60.0, 900.0, 1e5])),
            None if rng.integers(2) else float(rng.choice([-60.0, 0.0, 60.0, 1e5])),
        )
        for _ in range(int(rng.choice([0, 0, 1, 2, 5])))
    )
    idle = int(rng.choice([0, owned // 2, owned]))
    party = Party(
        "batch",
        WorkloadType.BATCH,
        lower,
        upper=upper,
        owned=owned,
        idle=idle,
        batch=BatchTerms(float(rng.choice([0.3, 1.2, 2.0]))),
    )
    return _waiting(ManagerView(party, (), float(rng.choice([0.0, 60.0, 1e5, math.inf]))), waiting)


def _waiting(view: ManagerView, waiting: tuple[WaitingJob, ...]) -> ManagerView:
    """Return the view with these jobs waiting, counted in the party as the controller does."""
    queued, biggest = (
        math.ceil(sum(one.units for one in waiting)),
        math.ceil(max((w.units for w in waiting), default=0)),
    )
    return replace(view, party=replace(view.party, queued=queued, biggest=biggest), waiting=waiting)


def _web_view(rng: np.random.Generator) -> ManagerView:
    lower, upper = _bounds(rng)
    owned = _units(rng)
    idle = int(rng.integers(owned + 1))
    return ManagerView(Party("web", WorkloadType.WEB, lower, upper=upper, owned=owned, idle=idle, wanted=_units(rng)))


# --- checks ----------------------------------------------------------------------------------------------------------


def check_declarations(subject: TypeSubject) -> None:
    """Check that the type has a valid name, a workload type, an installed scheduler that accepts its parameters, a
    distribution, and a description of each of its terms."""
    kind = subject.type
    try:
        check_name("name", kind.name)
    except (InvalidValue, TypeError) as error:
        raise ContractViolation(f"{kind.name!r}: it has no name that an agreement could have: {error}") from error
    subject.expect(isinstance(kind.workload, WorkloadType), f"its workload is {kind.workload!r}")
    subject.expect(isinstance(kind.scheduling, Scheduling), f"its scheduling is {kind.scheduling!r}")
    try:
        find_policy("placement", kind.scheduling.policy).check_params(kind.scheduling.params)
    except (InvalidInput, InvalidValue) as error:
        subject.expect(False, f"its scheduler cannot be had: {error}", kind.scheduling)
    subject.expect(isinstance(kind.distribution, Distribution), f"its distribution is {kind.distribution!r}")
    said = all(isinstance(key, str) and isinstance(text, str) and text for key, text in kind.terms.items())
    subject.expect(said, "it does not say what its terms mean", dict(kind.terms))


def check_terms_taken(subject: TypeSubject) -> None:
    """Terms that are good are taken, are among those that it names, and come over the bus as they are."""
    for terms in subject.good_terms:
        subject.expect(subject.refused(terms) == 0, "it refuses terms that it takes", terms)
        subject.expect(terms.keys() <= subject.type.terms.keys(), "it does not say what these terms mean", terms)
        agreed = Agreement("env", "owner", subject.type.workload, lower=0, type=subject.type.name, terms=terms)
        try:
            came = decode(encode(CreateEnvironment("request", agreed)))
        except CodecError as error:
            raise ContractViolation(f"{subject.type.name}: {terms} cannot be sent: {error}") from error
        there = came.agreement.terms if isinstance(came, CreateEnvironment) else None
        subject.expect(repr(there) == repr(dict(terms)), f"these come over the bus as {there}", terms)


def check_terms_refused(subject: TypeSubject) -> None:
    """Terms that it does not know are refused, each with a problem of its own, and so are those that are bad."""
    for terms in subject.good_terms:
        for count in (1, 2):
            more = dict(terms) | dict.fromkeys(UNKNOWN[:count], 1)
            subject.expect(subject.refused(more) == count, f"{count} unknown terms are not listed one by one", more)
    for terms in subject.bad_terms:
        subject.expect(subject.refused(terms) > 0, "it takes terms that cannot be used", terms)


def check_asks(subject: TypeSubject) -> None:
    """Check that the manager requests an integer number of units from 0 to `UNITS_MAX`, with a text as its reason, and
    that a batch environment returns only idle units."""
    for view, terms in subject.managed():
        asked = subject.manage(view, terms)
        whole = type(asked.units) is int and 0 <= asked.units <= UNITS_MAX
        subject.expect(whole and isinstance(asked.reason, str), f"its manager asks for {asked}", view)
        busy = view.party.owned - view.party.idle
        subject.expect(not subject.batch or asked.units >= busy, f"its manager gives up busy units: {asked}", view)


def check_steps(subject: TypeSubject) -> None:
    """Check that the step is -1, 0 or 1 instance, and never leads further outside the range allowed."""
    for view, terms in subject.adjusted():
        step = subject.adjust(view, terms)
        subject.expect(type(step) is int and step in (-1, 0, 1), f"its step is {step!r}", view)
        count = view.instances + step
        within = min(view.least, view.instances) <= count <= max(view.most, view.instances)
        subject.expect(within, f"its step of {step} leads away from {view.least} to {view.most}", view)


def check_same_again(subject: TypeSubject) -> None:
    """Check that the answer depends only on the arguments, not on earlier calls, and that the arguments are
    unchanged."""
    asked: list[tuple[Any, Terms]] = [*subject.managed(), *subject.adjusted()]
    before = [(repr(view), deepcopy(dict(terms))) for view, terms in asked]
    first = [_answer(subject, view, terms) for view, terms in asked]
    again = [_answer(subject, view, terms) for view, terms in reversed(asked)][::-1]
    for (view, terms), one, other, (text, held) in zip(asked, first, again, before, strict=True):
        subject.expect(one == other, f"it said {one}, then {other}", view)
        subject.expect(repr(view) == text and dict(terms) == held, "it changed its arguments", view)


def _answer(subject: TypeSubject, view: Any, terms: Terms) -> Asked | int:
    return subject.manage(view, terms) if isinstance(view, ManagerView) else subject.adjust(view, terms)


def check_more_waiting(subject: TypeSubject) -> None:
    """Check, for a type that declares it, that one more waiting job never lowers the number of units requested for the
    same environment."""
    if not (subject.batch and getattr(subject.type, DECLARED, False)):
        return
    rng = np.random.default_rng(subject.seed)
    for view, terms in subject.managed():
        more = WaitingJob(float(rng.choice([0.5, 1.0, 4.0])), float(rng.choice([0.0, 120.0, 1e5])))
        less, greater = (subject.manage(one, terms) for one in (view, _waiting(view, (*view.waiting, more))))
        subject.expect(greater.units >= less.units, f"{less} becomes {greater} when {more} waits too", view)


CHECKS: tuple[Check, ...] = (
    check_declarations,
    check_terms_taken,
    check_terms_refused,
    check_asks,
    check_steps,
    check_same_again,
    check_more_waiting,
)
