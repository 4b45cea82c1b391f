"""Types of environment that do what a test says: `PLANTED` has what their managers and adjustments answer or raise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemons.environment_types.batch import Batch
from daemons.environment_types.web import Web
from shared.base.errors import InvalidInput, Problem
from shared.policy_api.coordination import Asked, InstancesView, ManagerView
from shared.values.web_app import Distribution

PLANTED: dict[str, Any] = {}
SEEN: list[Any] = []


def said(view: ManagerView | InstancesView, key: str) -> Any:
    """What was planted; an exception is raised."""
    SEEN.append(view)
    answer = PLANTED[key]
    if isinstance(answer, Exception):
        raise answer
    return answer


class Jobs(Batch):
    """On the batch side; takes the term `speed` alone."""

    name = "jobs"
    terms: Mapping[str, str] = {"speed": "any"}

    def check_terms(self, terms: Mapping[str, Any]) -> None:
        if "check" in PLANTED:
            raise PLANTED["check"]
        if terms.keys() - {"speed"}:
            raise InvalidInput(*(Problem(key, "is not known") for key in terms if key != "speed"))

    def manage(self, view: ManagerView, terms: Mapping[str, Any]) -> Asked:
        del terms
        return Asked(said(view, "units"), PLANTED.get("reason", ""))


class Site(Web):
    """On the web side."""

    name = "site"
    distribution = Distribution.SOURCE

    def manage(self, view: ManagerView, terms: Mapping[str, Any]) -> Asked:
        del terms
        return Asked(view.party.wanted + said(view, "spare"), "one to spare")

    def adjust(self, view: InstancesView, terms: Mapping[str, Any]) -> int:
        del terms
        return said(view, "step")  # type: ignore[no-any-return]


class Sideless(Batch):
    """It does not say in the words of Trimtab on which side it is."""

    workload = "batch"  # type: ignore[assignment]


class Bare:
    """It says no more than where it belongs."""

    name, workload, scheduling, distribution = "bare", Batch.workload, Batch.scheduling, Batch.distribution
    terms: Mapping[str, str] = {}
