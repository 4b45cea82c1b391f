"""The form that changes importance and, of an adopted VM, terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from daemons.portal.context import Form
from shared.base.errors import InvalidValue
from shared.protocol.account_messages import WHY_LENGTH_MAX
from shared.protocol.operator_messages import SetJob
from shared.values.vm_terms import OnShutdown, TermChanges, VmAutomation

CLUSTER = "cluster"  # automation as everywhere
YES = "yes"
NUMBERS = ("moves_per_day", "pause_s_per_day")
SWITCHES = ("suspend", "post_copy", "failover")
TERMS = ("on_shutdown", "automation", *NUMBERS, *SWITCHES)
SHOWN = "shown_"  # before the name of a field: the hidden one with what the form showed at first
TEXT_MAX = 100
T = TypeVar("T", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class ChangeForm:
    """The form as a page has it. what: the text of each field; shown: of each hidden one, what it showed at first;
    why: the reason; wrong: it was sent, and something in it is wrong."""

    what: Mapping[str, str]
    shown: Mapping[str, str]
    why: str = ""
    wrong: bool = False


def form_of(row: Mapping[str, Any]) -> ChangeForm:
    """Return the form that shows a job, as its view has it."""
    what = {"importance": f"{row['importance']}"}
    terms = row["terms"]
    if terms:
        what |= {"on_shutdown": terms["on_shutdown"], "automation": terms["automation"] or CLUSTER}
        what |= {name: "" if terms[name] is None else f"{terms[name]}" for name in NUMBERS}
        what |= {name: YES if terms[name] else "" for name in SWITCHES}
    return ChangeForm(what, {SHOWN + name: text for name, text in what.items()})


def sent_again(row: Mapping[str, Any], form: Form) -> ChangeForm:
    """Return the form of a job with what was entered, and what it showed at first."""
    names = form_of(row).what
    return ChangeForm(
        {name: form.text(name)[:TEXT_MAX] for name in names},
        {SHOWN + name: form.text(SHOWN + name)[:TEXT_MAX] for name in names},
        form.text("why")[:WHY_LENGTH_MAX],
        wrong=True,
    )


def set_job(request: str, job: str, form: Form) -> SetJob:
    """Return the request for what differs from what the form showed at first: what others have changed since stays as
    it is. Raises `InvalidValue` with the field that is wrong."""
    importance = _importance(form) if "importance" in form.fields and _differs("importance", form) else None
    values = {name: _term(name, form) for name in TERMS if _differs(name, form)} if form.text("on_shutdown") else {}
    clear = tuple(name for name, value in values.items() if value is None)
    terms = TermChanges(**{name: value for name, value in values.items() if value is not None}, clear=clear)
    return SetJob(request, job, importance, terms=terms if values else None)


def _differs(name: str, form: Form) -> bool:
    """Return whether a field differs from what the form showed at first, or that is not known."""
    return SHOWN + name not in form.fields or form.text(name) != form.text(SHOWN + name)


def _importance(form: Form) -> float:
    importance = form.number("importance")
    if importance is None:
        raise InvalidValue("importance", "", "a number from 0.001 to 1000000")
    return importance


def _term(name: str, form: Form) -> Any:
    """Return the value of a term (None: it is to have none)."""
    if name == "on_shutdown":
        return _one_of(OnShutdown, name, form)
    if name == "automation":
        return None if form.text(name, CLUSTER) == CLUSTER else _one_of(VmAutomation, name, form)
    if name in SWITCHES:
        return bool(form.text(name))
    return form.whole(name) if name == "moves_per_day" else form.number(name)


def _one_of(kind: type[T], name: str, form: Form) -> T:
    text = form.text(name)
    try:
        return kind(text)
    except ValueError as error:
        raise InvalidValue(name, text[:60], "one of " + ", ".join(kind)) from error
