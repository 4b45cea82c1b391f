"""Agreements as somebody fills them into a form, pastes or uploads them: read and checked as `trimtab env create` does.
Nothing of this machine is read: a demand is declared in the text, or is what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemons.manifests.agreement import AgreementFile, agreement_of
from daemons.manifests.agreement_xml import from_xml
from daemons.manifests.assurance_tables import HISTORY
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.config import records, toml
from shared.ports import plugins
from shared.values.agreement import Agreement, Granularity, OnReclaim, Relationship

NAME = "agreement"
TEXT, WHOLE, NUMBER, NAMES = "text", "whole", "number", "names"
# What the form asks for: dotted key, kind, label, help.
FIELDS: tuple[tuple[str, str, str, str], ...] = (
    ("name", TEXT, "Name", "Letters, digits, - and _"),
    ("owner", TEXT, "Owner", "Account name without owner."),
    ("workload", TEXT, "Type", ""),
    ("lower", WHOLE, "Guaranteed units", "Only the environment or its partner uses them"),
    ("upper", WHOLE, "Maximum units", "Up to here it and its partner have priority; empty: undefined"),
    ("model", TEXT, "Coordination model", ""),
    ("granularity", TEXT, "Allocation unit", ""),
    ("relationship", TEXT, "Relationship to the provider", ""),
    ("lease_s", NUMBER, "Reallocation interval (s)", "The period of its timers"),
    ("users", NAMES, "Users", "Accounts that may submit jobs, without user., separated by spaces"),
    ("coordinated_with", TEXT, "Shares units with", "The partner environment, or empty"),
    ("scheduling.policy", TEXT, "Placement policy", ""),
    ("batch.on_reclaim", TEXT, "Jobs on reclaimed units", ""),
    ("template.name", TEXT, "Template: name", "Only for the allocation unit vm"),
    ("template.vcpus", WHOLE, "Template: vCPUs", ""),
    ("template.memory_mib", WHOLE, "Template: memory (MiB)", ""),
    ("template.max_mhz", NUMBER, "Template: speed (MHz)", ""),
)


def choices() -> dict[str, list[tuple[str, str]]]:
    """Return the choices of the selection fields."""
    own = [("", "default of the type")]
    return {
        "workload": [(name, name) for name in plugins.names(plugins.ENVIRONMENTS)],
        "model": [(name, name) for name in plugins.names(plugins.policy_group("coordination"))],
        "granularity": [(each.value, each.value) for each in Granularity],
        "relationship": [(each.value, each.value) for each in Relationship],
        "scheduling.policy": own + [(name, name) for name in plugins.names(plugins.policy_group("placement"))],
        "batch.on_reclaim": [("", "default: saved to disk")] + [(each.value, each.value) for each in OnReclaim],
    }


def table_from(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys of an agreement's file that a form sets. Empty fields are left out. A text in place of a number
    stays text, so the file's own check reports it."""
    table: dict[str, Any] = {}
    for key, kind, _, _ in FIELDS:
        text = fields.get(key, "").strip()
        if text:
            section, _, name = key.rpartition(".")
            inner = table.setdefault(section, {}) if section else table
            inner[name] = _value(kind, text)
    return table


def _value(kind: str, text: str) -> Any:
    if kind == NAMES:
        return text.replace(",", " ").split()
    for number, wanted in ((int, (WHOLE, NUMBER)), (float, (NUMBER,))):
        if kind in wanted:
            try:
                return number(text)
            except ValueError:
                continue
    return text


def from_table(table: Mapping[str, Any]) -> Agreement:
    """Return the agreement that a form describes. Raises `InvalidInput` with every problem."""
    return _agreement(records.read(table, AgreementFile, NAME, {}))


def from_text(text: str) -> Agreement:
    """Return the agreement in a TOML or XML file's text. Raises `InvalidInput` with every problem."""
    if text.lstrip().startswith("<"):
        return from_table(from_xml(text, AgreementFile, NAME))
    return _agreement(toml.parse(text, AgreementFile, NAME))


def from_either(fields: Mapping[str, str], text: str) -> Agreement:
    """Return the agreement of a text, or of a form if there is no text. Raises `InvalidInput` with every problem."""
    return from_text(text) if text.strip() else from_table(table_from(fields))


def _agreement(file: AgreementFile) -> Agreement:
    demand = "" if file.assurance is None else file.assurance.demand
    if demand not in ("", HISTORY):
        raise InvalidInput(
            Problem(f"{NAME}: assurance.demand", "names a file", f'"{HISTORY}", or tables [[assurance.slot]]')
        )
    try:
        return agreement_of(file)
    except InvalidValue as error:  # what no rule of the file has said
        raise InvalidInput(Problem(f"{NAME}: {error.field}", f"is {error.got!r}", error.expected)) from error


def by_field(error: InvalidInput) -> dict[str, str]:
    """Return the problems by field, for those whose place ends in a field's key."""
    found: dict[str, str] = {}
    known = {key for key, *_ in FIELDS}
    for problem in error.problems:
        key = problem.where.rsplit(" ", 1)[-1].rsplit(":", 1)[-1]
        key = key.split("[", 1)[0]
        if key in known:
            found.setdefault(key, f"{problem.what}, expected {problem.expected}" if problem.expected else problem.what)
    return found
