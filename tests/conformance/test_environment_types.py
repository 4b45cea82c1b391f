"""Every type of environment that comes with Trimtab keeps its contract, and each check finds the bug that it is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from daemons.environment_types.batch import Batch
from daemons.environment_types.web import Web
from shared.base.errors import ContractViolation, InvalidInput, Problem
from shared.policy_api.coordination import Asked, InstancesView, ManagerView
from shared.ports.plugins import ENVIRONMENTS, find_environment_type, names
from shared.values.agreement import Scheduling
from sim_backend.conformance import environment_type_checks as checks
from sim_backend.conformance.environment_type_checks import CHECKS, Check, TypeSubject

Terms = Mapping[str, Any]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", names(ENVIRONMENTS))
def test_registered_type(name: str, check: Check) -> None:
    """Each check, with two seeds; it is found under its own name."""
    assert find_environment_type(name).name == name
    for seed in range(2):
        check(TypeSubject(find_environment_type(name), seed))


class Patient(Batch):
    """Sound, with a term and what it declares."""

    terms: Mapping[str, str] = {"patience_s": "s: how long a job may wait; 60"}
    more_waiting_asks_more = True

    def check_terms(self, terms: Terms) -> None:
        """Its term is a number."""
        problems = [Problem(key, "there is no such term") for key in terms if key != "patience_s"]
        if not isinstance(terms.get("patience_s", 60.0), float):
            problems.append(Problem("patience_s", "is no number"))
        if problems:
            raise InvalidInput(*problems)

    def manage(self, view: ManagerView, terms: Terms) -> Asked:
        """A unit more while anything has waited too long."""
        late = [job for job in view.waiting if job.waited_s >= terms.get("patience_s", 60.0)]
        return Asked(min(65_536, view.party.owned + len(late)))


GOOD: tuple[Terms, ...] = ({}, {"patience_s": 600.0})
BAD: tuple[Terms, ...] = ({"patience_s": "long"},)


@pytest.mark.parametrize("check", CHECKS)
def test_a_sound_type_with_terms(check: Check) -> None:
    check(TypeSubject(Patient(), 0, GOOD, BAD))


class Nameless(Patient):
    name = "no name"


class Unscheduled(Patient):
    scheduling = Scheduling("round-and-round")


class Unsaid(Patient):
    terms: Mapping[str, str] = {"patience_s": ""}


class Fussy(Patient):
    def check_terms(self, terms: Terms) -> None:
        if terms:
            raise InvalidInput(Problem("terms", "are there"))


class Undocumented(Patient):
    terms: Mapping[str, str] = {}


class Trusting(Patient):
    def check_terms(self, terms: Terms) -> None:
        del terms


class FirstOnly(Patient):
    def check_terms(self, terms: Terms) -> None:
        try:
            super().check_terms(terms)
        except InvalidInput as error:
            raise InvalidInput(error.problems[0]) from error


class Lenient(Patient):
    def check_terms(self, terms: Terms) -> None:
        super().check_terms({key: value for key, value in terms.items() if key != "patience_s"})


class Stumbling(Patient):
    def check_terms(self, terms: Terms) -> None:
        del terms["patience_s"]  # type: ignore[attr-defined]


class Managing(Patient):
    """Asks for whatever was planted."""

    def __init__(self, asks: Callable[[ManagerView], Any]) -> None:
        self._asks = asks

    def manage(self, view: ManagerView, terms: Terms) -> Asked:
        del terms
        return Asked(self._asks(view))


class Scribbling(Patient):
    def manage(self, view: ManagerView, terms: Terms) -> Asked:
        terms["seen"] = 1  # type: ignore[index]
        return Asked(view.party.owned)


class Adjusting(Web):
    """Takes whatever step was planted."""

    def __init__(self, steps: Callable[[InstancesView], Any]) -> None:
        self._steps = steps

    def adjust(self, view: InstancesView, terms: Terms) -> int:
        del terms
        return self._steps(view)  # type: ignore[no-any-return]


class Counting:
    """It remembers how often it was asked."""

    def __init__(self, most: Callable[[Any], int]) -> None:
        self.asked, self.most = 0, most

    def __call__(self, view: Any) -> int:
        self.asked += 1
        return self.most(view) if self.asked % 5 else 0


def busy(view: ManagerView) -> int:
    """Units that are not idle."""
    return view.party.owned - view.party.idle


def one_more(view: InstancesView) -> int:
    """While there may be one more."""
    return int(view.instances < view.most)


MANAGERS: dict[str, Callable[[ManagerView], Any]] = {
    "fractions": lambda view: view.party.owned + sum(job.units for job in view.waiting),
    "insatiable": lambda view: view.party.owned + view.party.queued,
    "hasty": lambda view: view.party.owned if view.waiting else 0,
    "raising": lambda view: int(view.waiting[0].units),
    "contrary": lambda view: busy(view) if view.waiting else view.party.owned,
    "remembering": Counting(lambda view: view.party.owned),
}
STEPS: dict[str, Callable[[InstancesView], Any]] = {
    "leaping": lambda view: 2 if view.instances + 2 <= view.most else 0,
    "boundless": lambda view: int(view.utilisation > 0.8),
    "undecided": lambda view: view.instances < view.most,
    "drifting": Counting(one_more),
}
PLANTED: list[tuple[Check, Any, str]] = [
    (checks.check_declarations, Nameless(), "it has no name"),
    (checks.check_declarations, Unscheduled(), "its scheduler cannot be had"),
    (checks.check_declarations, Unsaid(), "what its terms mean"),
    (checks.check_terms_taken, Fussy(), "refuses terms that it takes"),
    (checks.check_terms_taken, Undocumented(), "does not say what these terms mean"),
    (checks.check_terms_taken, Stumbling(), "check_terms raises"),
    (checks.check_terms_refused, Trusting(), "not listed one by one"),
    (checks.check_terms_refused, FirstOnly(), "not listed one by one"),
    (checks.check_terms_refused, Lenient(), "terms that cannot be used"),
    (checks.check_asks, Managing(MANAGERS["fractions"]), "asks for"),
    (checks.check_asks, Managing(MANAGERS["insatiable"]), "asks for"),
    (checks.check_asks, Managing(MANAGERS["hasty"]), "gives up busy units"),
    (checks.check_asks, Managing(MANAGERS["raising"]), "raises IndexError"),
    (checks.check_steps, Adjusting(STEPS["leaping"]), "its step is 2"),
    (checks.check_steps, Adjusting(STEPS["boundless"]), "leads away"),
    (checks.check_steps, Adjusting(STEPS["undecided"]), "its step is"),
    (checks.check_same_again, Managing(MANAGERS["remembering"]), "then"),
    (checks.check_same_again, Adjusting(STEPS["drifting"]), "then"),
    (checks.check_same_again, Scribbling(), "changed its arguments"),
    (checks.check_more_waiting, Managing(MANAGERS["contrary"]), "when"),
]


@pytest.mark.parametrize(("check", "kind", "said"), PLANTED, ids=lambda part: getattr(type(part), "__name__", ""))
def test_planted_bug_is_found(check: Check, kind: Any, said: str) -> None:
    """By its check, in words."""
    good, bad = ([dict(each) for each in GOOD], BAD) if isinstance(kind, Patient) else ([{}], ())
    with pytest.raises(ContractViolation, match=said):
        check(TypeSubject(kind, 0, good, bad))


def test_terms_that_the_bus_cannot_carry_are_found() -> None:
    """Whatever the type itself thinks of them."""

    class Sets(Trusting):
        terms: Mapping[str, str] = {"tags": "names"}

    with pytest.raises(ContractViolation, match=r"cannot be sent|come over the bus as"):
        checks.check_terms_taken(TypeSubject(Sets(), 0, ({"tags": {"a", "b"}},)))
    with pytest.raises(ContractViolation, match=r"cannot be sent|come over the bus as"):
        checks.check_terms_taken(TypeSubject(Sets(), 0, ({"tags": ("a", "b")},)))


def test_every_check_has_a_planted_bug() -> None:
    assert {check for check, _, _ in PLANTED} == set(CHECKS)
