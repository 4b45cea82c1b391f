"""The types of environment that are installed, and what they answer: found by name, checked, asked."""

from __future__ import annotations

import math

from shared.base.errors import InvalidInput, InvalidValue, Problem, UnknownType
from shared.policy_api.coordination import InstancesView
from shared.policy_api.policies import EnvironmentType
from shared.ports.plugins import ENVIRONMENTS, find_environment_type, names
from shared.values.agreement import Agreement
from shared.values.scalars import whole
from shared.values.web_app import Distribution, WebApp


def type_of(agreement: Agreement) -> EnvironmentType:
    """Return the type of an environment; raises `UnknownType` if it is not registered here, cannot be loaded, or is for
    the other workload."""
    found: EnvironmentType = find_environment_type(agreement.type_name)
    if found.workload is not agreement.workload:
        what = f"is for {found.workload.value} workloads, not {agreement.workload.value}"
        others = "one of " + ", ".join(names(ENVIRONMENTS))
        raise UnknownType(Problem(f"type of environment {agreement.type_name!r}", what, others))
    return found


def refuse_type(agreement: Agreement) -> tuple[str, str]:
    """Return a code and a text if an agreement has an unknown type, or terms that the type refuses; two empty strings
    if it is accepted."""
    try:
        type_of(agreement).check_terms(agreement.terms)
    except UnknownType as problem:
        return "unknown-type", str(problem)
    except (InvalidInput, InvalidValue) as problem:
        return "invalid-value", str(problem)
    except Exception as problem:  # noqa: BLE001 - a type may raise anything: it takes no agreement then
        return "invalid-value", f"type {agreement.type_name!r} cannot check its terms: {problem!r}"
    return "", ""


def replica_step(agreement: Agreement, view: InstancesView) -> int:
    """Return one instance more (1), one less (-1), or the same number (0). Raises the type's errors, and `InvalidValue`
    for an impossible answer."""
    if math.isnan(view.utilisation):
        return 0
    step = type_of(agreement).adjust(view, agreement.terms)
    whole("adjust", step, -1, 1)
    if step:
        whole("instances", view.instances + step, min(view.instances, view.least), max(view.instances, view.most))
    return step


def distribution_of(app: WebApp, agreement: Agreement | None) -> Distribution:
    """Return the distribution of an application's requests: as in its file, else that of its environment's type, else
    least connections."""
    said = app.serving.distribution if app.serving is not None else None
    if said is not None or agreement is None:
        return said or Distribution.LEAST_CONNECTIONS
    try:
        return type_of(agreement).distribution
    except UnknownType:  # `without_type` tells of it
        return Distribution.LEAST_CONNECTIONS
