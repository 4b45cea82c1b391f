"""The table `rules` of the files of jobs, web applications and VMs: where they may run, and where they would rather."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from shared.config.records import Form, Items, Range
from shared.values.jobs import (
    NODE_SCOPE,
    PREFERENCES_MAX,
    RULE_NAMES_MAX,
    WEIGHT_MAX,
    Preference,
    PreferenceKind,
    Rules,
)

NodeName = Annotated[str, Form(r"[A-Za-z0-9_-]{1,128}", "1 to 128 ASCII letters, digits, '-' or '_'")]
Group = Annotated[str, Form(r"[A-Za-z0-9_-]{0,128}", "at most 128 ASCII letters, digits, '-' or '_'")]
Label = Annotated[str, Form(r"\S{1,128}", "1 to 128 characters without spaces")]
NoLabel = Annotated[str, Form(r"\S{0,128}", "at most 128 characters without spaces")]
Scope = Annotated[str, Form(r"[^\s=-][^\s=]{0,127}", "`node`, or the key of a label such as `rack`")]
Names = Annotated[tuple[NodeName, ...], Items(0, RULE_NAMES_MAX)]
Labels = Annotated[tuple[Label, ...], Items(0, RULE_NAMES_MAX)]

TARGETS = tuple(kind.value.replace("-", "_") for kind in PreferenceKind)
_ONE_TARGET = "exactly one of " + ", ".join(TARGETS)
_WITH_SCOPE = (PreferenceKind.AFFINITY, PreferenceKind.ANTI_AFFINITY)


@dataclass(frozen=True, slots=True)
class PreferenceTable:
    """A rule that is kept where it costs nothing. Give one key beside `weight` and `scope`."""

    node_affinity: Group = ""
    """Node on which instances should run. Example: `"n1"`."""
    node_anti_affinity: Group = ""
    """Node on which they should not run. Example: `"n2"`."""
    label_affinity: NoLabel = ""
    """Label that their nodes should have. Example: `"ssd"`."""
    label_anti_affinity: NoLabel = ""
    """Label that their nodes should not have. Example: `"old"`."""
    affinity: Group = ""
    """Workload, or group of workloads, with which they should share a node. Example: `"cache"`."""
    anti_affinity: Group = ""
    """Workload, or group of workloads, with which they should not share a node. Example: `"web"`."""
    scope: Scope = NODE_SCOPE
    """What `affinity` and `anti_affinity` are about: `node`, or the key of a label such as `rack`."""
    weight: Annotated[int, Range(1, WEIGHT_MAX)] = 10
    """How much it counts against the workload's other preferences."""


@dataclass(frozen=True, slots=True)
class RulesTable:
    """Where instances may run. Every placement policy keeps these rules; `preferred` only where it costs nothing."""

    node_affinity: tuple[NodeName, ...] = ()
    """Nodes on which instances may run. Empty: any node."""
    node_anti_affinity: tuple[NodeName, ...] = ()
    """Nodes on which instances never run."""
    affinity: Group = ""
    """Name of a group whose workloads run on the same node. Empty: none."""
    anti_affinity: Group = ""
    """Name of a group whose workloads never share a node. Empty: none."""
    no_migration: bool = False
    """Never move an instance once it runs."""
    label_affinity: Labels = ()
    """Labels that its nodes must have, all of them."""
    label_anti_affinity: Labels = ()
    """Labels that its nodes must not have."""
    affinity_scope: Scope = NODE_SCOPE
    """What `affinity` and `vm_affinity` share: `node`, or the value of a label with this key, such as `zone`. A node
    without it is a domain of its own."""
    anti_affinity_scope: Scope = NODE_SCOPE
    """What the workloads of `anti_affinity` and `vm_anti_affinity` never share, such as `rack`."""
    vm_affinity: Names = ()
    """Names of workloads with which instances share a node."""
    vm_anti_affinity: Names = ()
    """Names of workloads with which instances never share a node. Its own name: no two of its instances do."""
    preferred: Annotated[tuple[PreferenceTable, ...], Items(0, PREFERENCES_MAX)] = ()
    """Rules that are kept where it costs nothing."""


@dataclass(frozen=True, slots=True)
class Unlike:
    """`key` and `other` share no name."""

    key: str
    other: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        value, other = values.get(self.key), values.get(self.other)
        if not value or not other:
            return ""
        both = value == other if isinstance(value, str) else {*value} & {*other}
        return f"nothing that {self.other} has" if both else ""


@dataclass(frozen=True, slots=True)
class UnlikeInScope:
    """`key` and `other` share no name, unless `affinity_scope` is wider: `affinity_scope = "zone"` and
    `anti_affinity_scope = "node"` are the same zone on different nodes."""

    key: str
    other: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        near, far = (values.get(f"rules.{name}_scope", NODE_SCOPE) for name in ("affinity", "anti_affinity"))
        return "" if near not in (NODE_SCOPE, far) else Unlike(self.key, self.other).broken(values)


@dataclass(frozen=True, slots=True)
class OnePreference:
    """Each preference has exactly one key beside `weight` and `scope`; `scope` belongs to `affinity` and
    `anti_affinity`."""

    index: int

    @property
    def key(self) -> str:
        """Where a problem is said to be."""
        return f"rules.preferred[{self.index}].scope"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds or something else is wrong with the preference."""
        keys = {name: f"rules.preferred[{self.index}].{name}" for name in TARGETS}
        if self.key not in values or any(key not in values for key in keys.values()):
            return ""
        given = [name for name, key in keys.items() if values[key]]
        if len(given) != 1:
            return f"{_ONE_TARGET} beside it"
        scoped = given[0] in ("affinity", "anti_affinity")
        return "" if scoped or values[self.key] == NODE_SCOPE else "no scope: only affinity and anti_affinity have one"


@dataclass(frozen=True, slots=True)
class OncePreferred:
    """Each preference is there once, and neither another preference nor a required rule rules it out."""

    index: int
    name: str

    @property
    def key(self) -> str:
        """Where a problem is said to be."""
        return f"rules.preferred[{self.index}].{self.name}"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds or something else is wrong."""
        target = values.get(self.key)
        if not target:
            return ""
        opposite = "" if "anti" in self.name else self.name.replace("affinity", "anti_affinity")
        scope = values.get(f"rules.preferred[{self.index}].scope")
        for other in range(PREFERENCES_MAX):
            at = f"rules.preferred[{other}]"
            if values.get(f"{at}.scope") != scope:
                continue
            if other < self.index and values.get(f"{at}.{self.name}") == target:
                return "each preference once"
            if opposite and values.get(f"{at}.{opposite}") == target:
                return f"nothing that {at}.{opposite} has"
        if opposite in ("node_anti_affinity", "label_anti_affinity") and target in values.get(f"rules.{opposite}", ()):
            return f"nothing that rules.{opposite} has"
        return ""


RULES: tuple[Any, ...] = (
    Unlike("rules.node_anti_affinity", "rules.node_affinity"),
    Unlike("rules.label_anti_affinity", "rules.label_affinity"),
    UnlikeInScope("rules.anti_affinity", "rules.affinity"),
    UnlikeInScope("rules.vm_anti_affinity", "rules.vm_affinity"),
    *(OnePreference(index) for index in range(PREFERENCES_MAX)),
    *(OncePreferred(index, name) for index in range(PREFERENCES_MAX) for name in TARGETS),
)
"""Of every file with a table `rules`."""
LABEL_RULE = Unlike("rules.label_anti_affinity", "required_labels")
"""Of every such file with a key `required_labels`."""


def _targets(table: PreferenceTable) -> Iterator[tuple[PreferenceKind, str]]:
    for kind, name in zip(PreferenceKind, TARGETS, strict=True):
        if getattr(table, name):
            yield kind, getattr(table, name)


def rules_of(table: RulesTable) -> Rules:
    """Return the rules that a table describes."""
    return Rules(
        table.node_affinity,
        table.node_anti_affinity,
        affinity=table.affinity,
        anti_affinity=table.anti_affinity,
        no_migration=table.no_migration,
        label_affinity=table.label_affinity,
        label_anti_affinity=table.label_anti_affinity,
        affinity_scope=table.affinity_scope,
        anti_affinity_scope=table.anti_affinity_scope,
        vm_affinity=table.vm_affinity,
        vm_anti_affinity=table.vm_anti_affinity,
        preferred=tuple(
            Preference(kind, target, each.scope, each.weight)
            for each in table.preferred
            for kind, target in _targets(each)
        ),
    )


def understood(rules: Rules) -> dict[str, Any]:
    """Return rules as they were understood, for people and for JSON."""
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(rules).items()}
    plain["preferred"] = [
        {
            one.kind.value.replace("-", "_"): one.target,
            **({"scope": one.scope} if one.kind in _WITH_SCOPE else {}),
            "weight": one.weight,
        }
        for one in rules.preferred
    ]
    return plain
