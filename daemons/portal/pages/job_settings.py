"""The form that changes importance and, of an adopted VM, terms."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from daemons.portal.context import Form
from shared.base.errors import InvalidValue
from shared.protocol.operator_messages import SetJob
from shared.values.vm_terms import OnShutdown, VmAutomation, VmTerms

CLUSTER = "cluster"  # automation as everywhere
T = TypeVar("T", bound=StrEnum)


def set_job(request: str, job: str, form: Form) -> SetJob:
    """Return the request that a form makes. Terms are set only where the form has them: it has all of them then. Raises
    `InvalidValue` with the field that is wrong."""
    terms = None
    if form.text("on_shutdown"):
        level = form.text("automation", CLUSTER)
        terms = VmTerms(
            running=form.text("running") != "off",
            on_shutdown=_one_of(OnShutdown, "on_shutdown", form),
            suspend=bool(form.text("suspend")),
            automation=None if level == CLUSTER else _one_of(VmAutomation, "automation", form),
            moves_per_day=form.whole("moves_per_day"),
            pause_s_per_day=form.number("pause_s_per_day"),
            post_copy=bool(form.text("post_copy")),
            failover=bool(form.text("failover")),
        )
    return SetJob(request, job, importance=form.number("importance"), terms=terms)


def _one_of(kind: type[T], name: str, form: Form) -> T:
    text = form.text(name)
    try:
        return kind(text)
    except ValueError as error:
        raise InvalidValue(name, text[:60], "one of " + ", ".join(kind)) from error
