"""Whether required rules of several workloads can hold together: what must share a domain must not be kept apart, and
some node must suit all of it. Pure.

Preferences, capacity and the number of domains are not looked at. O(workloads + named workloads), and O(nodes) for each
scope and each set of rules about nodes among the workloads that are tied to those in question.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shared.values.jobs import NODE_SCOPE, Rules

WHYS_MAX = 4  # ties, or workloads, that a text names
UNKNOWN = ""  # the domain of a node whose labels are not known
KEYS = ("node_affinity", "node_anti_affinity", "label_affinity", "label_anti_affinity", "required_labels")


@dataclass(frozen=True, slots=True)
class Ruled:
    """What a workload requires of its nodes."""

    rules: Rules
    required_labels: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[tuple[str, ...], ...]:
        """What it requires of a node alone, in the order of `KEYS`."""
        rules = self.rules
        return (
            rules.node_affinity,
            rules.node_anti_affinity,
            rules.label_affinity,
            rules.label_anti_affinity,
            self.required_labels,
        )

    def needs(self) -> str:
        """Return in words what it requires of a node alone."""
        return ", ".join(f"{key} {list(names)}" for key, names in zip(KEYS, self.key, strict=True) if names)

    def suits(self, node: str, labels: frozenset[str] | None) -> bool:
        """Return whether it may run on a node. labels: None if they are not known."""
        rules = self.rules
        if (rules.node_affinity and node not in rules.node_affinity) or node in rules.node_anti_affinity:
            return False
        wanted = {*self.required_labels, *rules.label_affinity}
        return labels is None or (wanted <= labels and labels.isdisjoint(rules.label_anti_affinity))


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Rules that cannot all hold. name: a workload in question that they concern; text: which they are."""

    name: str
    text: str


@dataclass(slots=True, eq=False)
class _Tie:
    """Two workloads that must share a domain of the scope. group: of both ("": `first` names `second`)."""

    first: str
    second: str
    scope: str
    group: str = ""

    def __str__(self) -> str:
        if self.group:
            return f"affinity of both {self.first!r} and {self.second!r} is {self.group!r}"
        return f"vm_affinity of {self.first!r} names {self.second!r}"


@dataclass(slots=True)
class _Tied:
    """Workloads that must share a domain, in the order in which they were found, each with the tie that led to it."""

    by: dict[str, _Tie | None] = field(default_factory=dict)

    def path(self, one: str, other: str) -> list[_Tie]:
        """Return the ties between two of them."""
        up, down = self._to_root(one), self._to_root(other)
        while up and down and up[-1] is down[-1]:
            up.pop()
            down.pop()
        return up + down[::-1]

    def _to_root(self, name: str) -> list[_Tie]:
        found = []
        while (tie := self.by[name]) is not None:
            found.append(tie)
            name = tie.first if name == tie.second else tie.second
        return found


def contradictions(
    ruled: Mapping[str, Ruled], about: Collection[str], nodes: Mapping[str, frozenset[str] | None]
) -> list[Contradiction]:
    """Return contradictions that concern the workloads `about`, one for each set of workloads that must share a domain.

    ruled: all workloads, with the rules that they are to have. nodes: the labels of each node (None: not known).
    """
    ties = _ties(ruled)
    if not ties:
        return []
    found: dict[str, Contradiction] = {}
    for scope in sorted(_scopes(ruled), key=lambda each: (each != NODE_SCOPE, each)):
        places = _Places(nodes, scope)
        for name, tied in _sets(ties, about, scope):
            text = _kept_apart(ruled, tied, scope) or _without_a_place(ruled, tied, places)
            if text and name not in found and found.keys().isdisjoint(tied.by):
                found[name] = Contradiction(name, text)
    return list(found.values())


def _scopes(ruled: Mapping[str, Ruled]) -> set[str]:
    return {scope for each in ruled.values() for scope in (each.rules.affinity_scope, each.rules.anti_affinity_scope)}


def _ties(ruled: Mapping[str, Ruled]) -> dict[str, list[_Tie]]:
    """Return the ties of each workload that has any. Of a group, each scope ties all members to one that has it."""
    found: dict[str, list[_Tie]] = {}
    groups: dict[str, list[str]] = {}

    def tie(one: _Tie) -> None:
        found.setdefault(one.first, []).append(one)
        found.setdefault(one.second, []).append(one)

    for name, each in ruled.items():
        if each.rules.affinity:
            groups.setdefault(each.rules.affinity, []).append(name)
        for other in each.rules.vm_affinity:
            if other != name and other in ruled:
                tie(_Tie(name, other, each.rules.affinity_scope))
    for group, members in groups.items():
        holders: dict[str, str] = {}
        for name in members:
            holders.setdefault(ruled[name].rules.affinity_scope, name)
        for scope, holder in holders.items():
            for name in members:
                if name != holder:
                    tie(_Tie(holder, name, scope, group))
    return found


def _sets(ties: Mapping[str, Sequence[_Tie]], about: Collection[str], scope: str) -> Iterator[tuple[str, _Tied]]:
    """Yield each set of workloads that must share a domain of the scope, with one of `about` that is in it."""
    seen: set[str] = set()
    for name in about:
        if name in seen or name not in ties:
            continue
        tied, open_ = _Tied({name: None}), [name]
        for this in open_:
            for tie in ties[this]:
                other = tie.first if this == tie.second else tie.second
                if tie.scope in (NODE_SCOPE, scope) and other not in tied.by:
                    tied.by[other] = tie
                    open_.append(other)
        seen |= tied.by.keys()
        if len(tied.by) > 1:
            yield name, tied


# --- kept apart ------------------------------------------------------------------------------------------------------


def _kept_apart(ruled: Mapping[str, Ruled], tied: _Tied, scope: str) -> str:
    """Return which two of a set must not share a domain of the scope ("": none)."""
    groups: dict[str, list[str]] = {}
    for name in tied.by:
        rules = ruled[name].rules
        if rules.anti_affinity:
            groups.setdefault(rules.anti_affinity, []).append(name)
        if rules.anti_affinity_scope != scope:
            continue
        for named in rules.vm_anti_affinity:
            if named != name and named in tied.by:
                return _apart(tied, name, named, scope, f"vm_anti_affinity of {name!r} names {named!r}")
    for group, members in groups.items():
        holder = next((name for name in members if ruled[name].rules.anti_affinity_scope == scope), None)
        other = next((name for name in members if name != holder), None)
        if holder is not None and other is not None:
            why = f"anti_affinity of both {holder!r} and {other!r} is {group!r}"
            return _apart(tied, holder, other, scope, why)
    return ""


def _apart(tied: _Tied, one: str, other: str, scope: str, why: str) -> str:
    share = _share(tied, one, other, scope)
    return f"{share} and must not share one ({why}): drop one of these rules"


def _share(tied: _Tied, one: str, other: str, scope: str) -> str:
    ties = tied.path(one, other)
    more = "; ..." if len(ties) > WHYS_MAX else ""
    whys = "; ".join(map(str, ties[:WHYS_MAX]))
    return f"{one!r} and {other!r} must share a {scope} ({whys}{more})"


# --- no node for all -------------------------------------------------------------------------------------------------


class _Places:
    """The domains of a scope that suit workloads, looked up once for all that require the same."""

    def __init__(self, nodes: Mapping[str, frozenset[str] | None], scope: str) -> None:
        self.scope, self._nodes = scope, nodes
        self._domains = {name: self._domain(name, labels) for name, labels in nodes.items()}
        self._found: dict[tuple[tuple[str, ...], ...], frozenset[str]] = {}

    def _domain(self, node: str, labels: frozenset[str] | None) -> str:
        """Return the domain of a node: the label with the key, else the node itself."""
        if self.scope == NODE_SCOPE:
            return node
        if labels is None:
            return UNKNOWN
        values = (label for label in sorted(labels) if label.partition("=")[0] == self.scope)
        return next((f"{self.scope} {value}" for value in values), node)

    def of(self, one: Ruled) -> frozenset[str]:
        """Return the domains that have a node for a workload."""
        key = one.key
        if key not in self._found:
            nodes = (self._domains[name] for name, labels in self._nodes.items() if one.suits(name, labels))
            self._found[key] = frozenset(nodes)
        return self._found[key]


def _without_a_place(ruled: Mapping[str, Ruled], tied: _Tied, places: _Places) -> str:
    """Return which of a set leave each other no domain of the scope ("": there is one for all). What no node suits by
    itself says nothing about the others."""
    common: frozenset[str] | None = None
    before: dict[str, frozenset[str]] = {}
    for name in tied.by:
        if not any(ruled[name].key):
            continue
        own = places.of(ruled[name])
        if not own or UNKNOWN in own:
            continue
        common = own if common is None else common & own
        if not common:
            other = next((each for each, theirs in before.items() if own.isdisjoint(theirs)), None)
            which = [other, name] if other is not None else [*before, name]
            more = ", ..." if len(which) > WHYS_MAX else ""
            needs = ", ".join(f"{each!r}: {ruled[each].needs()}" for each in which[:WHYS_MAX])
            share = _share(tied, which[0], name, places.scope)
            return f"{share}, and no {places.scope} suits all of them: {needs}{more}"
        before[name] = own
    return ""
