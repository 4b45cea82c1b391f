"""Files for adopted VMs: terms and rules by pattern of VM names, and a table `rules` alone."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar

from daemons.manifests import rules as rulesfile
from daemons.manifests.rules import RulesTable
from daemons.values.replies import nearest
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.config import toml
from shared.config.records import Form, Items, Range
from shared.values.jobs import Rules
from shared.values.vm_terms import MOVES_PER_DAY_MAX, PAUSE_S_PER_DAY_MAX, OnShutdown, VmAutomation, VmTerms

Pattern = Annotated[str, Form(r"\S{1,128}", "a pattern of VM names without spaces, such as `db-*`")]
LEVELS = ("", *(level.value for level in VmAutomation))
Level = Annotated[str, Form("|".join(LEVELS), "one of " + ", ".join(LEVELS[1:]) + ", or nothing")]
VMS_MAX = 1_000
SHOWN_MAX = 3  # names that an error message lists


@dataclass(frozen=True, slots=True)
class VmTable:
    """Terms of the VMs whose names match. The first table that matches a VM counts."""

    match: Pattern
    """Own names of VMs, as libvirt has them; `*` stands for any characters, `?` for one, `[ab]` for one of these.
    Example: `"db-*"`."""
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
    """What a file says of one VM. `table`, `match`: number and pattern of the table that says it (None, "": no table
    does)."""

    importance: float = 1.0
    rules: Rules = field(default_factory=Rules)
    terms: VmTerms = field(default_factory=VmTerms)
    table: int | None = None
    match: str = ""


def read_rules(path: Path) -> Rules:
    """Read the table `rules` of a TOML file. Raises `InvalidInput` with one problem for each thing that is wrong, also
    for a file without the table: that would remove all rules by mistake."""
    file = toml.load(path, RulesFile)
    if "rules" not in tomllib.loads(path.read_text("utf-8")):
        raise InvalidInput(Problem(f"{path}: rules", "is missing", "a table [rules], which may be empty"))
    return rulesfile.rules_of(file.rules)


def read_terms(path: Path, names: Iterable[str], there: Collection[str] | None = None) -> dict[str, AssignedTerms]:
    """Read the terms of VMs, by name; VMs that no pattern matches are left out. O(VMs x patterns).

    there: the names of all VMs that exist (None: not known). Raises `InvalidInput` with one problem for each thing that
    is wrong, also for a pattern that matches none of them.
    """
    file = toml.load(path, VmFile)
    tables: list[AssignedTerms] = []
    problems = []
    for index, table in enumerate(file.vms):
        try:
            tables.append(_assigned(index, table))
        except InvalidValue as wrong:
            problems.append(Problem(f"{path}: vms[{index}].rules.{wrong.field}", f"is {wrong.got!r}", wrong.expected))
        if there is not None and not any(fnmatchcase(name, table.match) for name in there):
            what = f"is {table.match!r}, which matches none of the VMs"
            problems.append(Problem(f"{path}: vms[{index}].match", what, _meant(table.match, there)))
    if problems:
        raise InvalidInput(*problems)
    found = {name: next((each for each in tables if fnmatchcase(name, each.match)), None) for name in names}
    return {name: each for name, each in found.items() if each is not None}


def _meant(pattern: str, there: Collection[str]) -> str:
    """Return what a pattern could be: like names near it, else like some of those that exist."""
    names = sorted(there)
    shown = ", ".join(map(repr, nearest(pattern, names) or names[:SHOWN_MAX]))
    return f"a name such as {shown}, or a pattern" if shown else "no table, because there are no VMs"


def _assigned(index: int, table: VmTable) -> AssignedTerms:
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
    return AssignedTerms(table.importance, rulesfile.rules_of(table.rules), terms, index, table.match)
