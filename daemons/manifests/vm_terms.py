"""Files for adopted VMs: terms and rules by pattern of VM names, and a table `rules` alone."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar

from daemons.manifests import rules as rulesfile
from daemons.manifests.rules import RulesTable
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.config import toml
from shared.config.records import Form, Items, Range
from shared.values.jobs import Rules
from shared.values.vm_terms import MOVES_PER_DAY_MAX, PAUSE_S_PER_DAY_MAX, OnShutdown, VmAutomation, VmTerms

Pattern = Annotated[str, Form(r"\S{1,128}", "a pattern of VM names without spaces, such as `db-*`")]
LEVELS = ("", *(level.value for level in VmAutomation))
Level = Annotated[str, Form("|".join(LEVELS), "one of " + ", ".join(LEVELS[1:]) + ", or nothing")]
VMS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class VmTable:
    """Terms of the VMs whose names match. The first table that matches a VM counts."""

    match: Pattern
    """Names of VMs; `*` stands for any characters, `?` for one, `[ab]` for one of these. Example: `"db-*"`."""
    importance: Annotated[float, Range(0.001, 1e6)] = 1.0
    """Weight against other workloads when CPU is short."""
    automation: Level = ""
    """How far decisions about the VM are carried out: `off`, `advise`, `confirm` or `auto`. Empty: as the cluster."""
    on_shutdown: OnShutdown = OnShutdown.DOMAIN
    """When its guest shuts itself down: `domain` (libvirt's `on_poweroff` decides), `leave-off` or `restart`."""
    suspend: bool = False
    """Decisions may save the VM to disk for others."""
    moves_per_day: Annotated[int, Range(1, MOVES_PER_DAY_MAX)] | None = None
    """Most migrations that decisions may order within 24 hours. Not given: no limit. Example: `2`."""
    pause_s_per_day: Annotated[float, Range(0.001, PAUSE_S_PER_DAY_MAX)] | None = None
    """Longest pause by migrations that decisions order within 24 hours. Not given: no limit. Example: `10`."""
    post_copy: bool = False
    """Migrations that do not converge may switch to post-copy. A failure of either node then stops the VM."""
    failover: bool = False
    """Restart the VM on another node when its own is proven off. Trimtab then replaces libvirt's autostart of it."""
    rules: RulesTable = field(default_factory=RulesTable)


@dataclass(frozen=True, slots=True)
class VmFile:
    """Terms of adopted VMs by pattern, for `trimtab vms adopt` and `trimtab vms set`."""

    vms: Annotated[tuple[VmTable, ...], Items(1, VMS_MAX)]


@dataclass(frozen=True, slots=True)
class RulesFile:
    """A table `rules`, for `trimtab vms set`, `jobs set` and `web set`."""

    RULES: ClassVar[tuple[Any, ...]] = rulesfile.RULES

    rules: RulesTable = field(default_factory=RulesTable)


@dataclass(frozen=True, slots=True)
class AssignedTerms:
    """What a file says of one VM."""

    importance: float = 1.0
    rules: Rules = field(default_factory=Rules)
    terms: VmTerms = field(default_factory=VmTerms)


def read_rules(path: Path) -> Rules:
    """Read the table `rules` of a TOML file. Raises `InvalidInput` with one problem for each thing that is wrong, also
    for a file without the table: that would remove all rules by mistake."""
    file = toml.load(path, RulesFile)
    if "rules" not in tomllib.loads(path.read_text("utf-8")):
        raise InvalidInput(Problem(f"{path}: rules", "is missing", "a table [rules], which may be empty"))
    return rulesfile.rules_of(file.rules)


def read_terms(path: Path, names: Iterable[str]) -> dict[str, AssignedTerms]:
    """Read the terms of VMs, by name; VMs that no pattern matches are left out. O(names x patterns).

    Raises `InvalidInput` with one problem for each thing that is wrong: also for a pattern that matches none of the
    names.
    """
    file = toml.load(path, VmFile)
    assigned: dict[str, AssignedTerms] = {}
    problems, used = [], set()
    made: dict[int, AssignedTerms] = {}
    for index, table in enumerate(file.vms):
        try:
            made[index] = _assigned(table)
        except InvalidValue as wrong:
            problems.append(Problem(f"{path}: vms[{index}].rules.{wrong.field}", f"is {wrong.got!r}", wrong.expected))
    for name in names:
        matching = [index for index, table in enumerate(file.vms) if fnmatchcase(name, table.match)]
        used |= {*matching}
        if matching and matching[0] in made:
            assigned[name] = made[matching[0]]
    problems += [
        Problem(
            f"{path}: vms[{index}].match", f"is {table.match!r}, which matches none of the VMs", "a name or pattern"
        )
        for index, table in enumerate(file.vms)
        if index not in used
    ]
    if problems:
        raise InvalidInput(*problems)
    return assigned


def _assigned(table: VmTable) -> AssignedTerms:
    for one in table.rules.preferred:
        given = [name for name in rulesfile.TARGETS if getattr(one, name)]
        if len(given) != 1:
            raise InvalidValue("preferred", ", ".join(given), f"exactly one of {', '.join(rulesfile.TARGETS)}")
    terms = VmTerms(
        on_shutdown=table.on_shutdown,
        suspend=table.suspend,
        automation=VmAutomation(table.automation) if table.automation else None,
        moves_per_day=table.moves_per_day,
        pause_s_per_day=table.pause_s_per_day,
        post_copy=table.post_copy,
        failover=table.failover,
    )
    return AssignedTerms(table.importance, rulesfile.rules_of(table.rules), terms)


def with_changes(terms: VmTerms, **changes: Any) -> VmTerms:
    """Return the terms with those changes that are not None. Raises `InvalidValue` for one that cannot be."""
    return replace(terms, **{key: value for key, value in changes.items() if value is not None})
