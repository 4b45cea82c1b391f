"""Names of other people's libraries that are not for us and that we use all the same.

Found in the syntax trees: imports of private names and of modules that are documented nowhere, private attributes that
are traced to a library or that nothing of ours defines, and methods that take the place of a library's private ones. A
private attribute of a library's object that is called like something of ours is not seen.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module

from tests.architecture.sources import FOLDERS, Source, under

# Modules without an underscore that their makers document nowhere, or call internal.
INSIDES = ("hypothesis.internal", "pika.adapters.utils", "pika.data", "uvicorn.protocols")
# Classes whose methods are documented nowhere: whoever derives from them builds on how they are made.
BASES = ("uvicorn.Server",)
# They look private, and the documents of the standard library tell of them; `_actions` is argparse's, as old as Python.
STANDARD = frozenset({"_actions", "_asdict", "_exit", "_fields", "_getframe", "_make", "_replace"})
LAST_PARTS = frozenset(name.rpartition(".")[2] for name in INSIDES)
BY_NAME = ("getattr", "setattr", "delattr", "hasattr")


@dataclass(frozen=True, slots=True)
class Use:
    """A private name where it is used. `name`: dotted as far as it is known where it comes from."""

    path: str
    name: str


# What there is: where, of which distribution. Each has an upper bound in setup.cfg, whose comment says why.
KNOWN: Mapping[Use, str] = {
    Use("daemons/cli/numbers.py", "click.IntRange._describe_range"): "click",
    Use("daemons/portal/http/server.py", "uvicorn.Server"): "uvicorn",
    Use("daemons/portal/http/server.py", "uvicorn.protocols.http.h11_impl.H11Protocol"): "uvicorn",
    Use("shared/bus/rabbitmq/bus.py", "_adapter_disconnect_stream"): "pika",
    Use("shared/bus/rabbitmq/bus.py", "_poller"): "pika",
    Use("shared/bus/rabbitmq/bus.py", "pika.adapters.utils.connection_workflow"): "pika",
    Use("shared/bus/rabbitmq/bus.py", "pika.data"): "pika",
    Use("tests/security/attacker.py", "pika.data"): "pika",
    Use("tests/security/test_poisoned_messages.py", "pika.data"): "pika",
    Use("tests/unit/shared/bus/rabbitmq/test_field_tables.py", "pika.data"): "pika",
    Use("tests/conftest.py", "_setupstate"): "pytest",
    Use("tests/fuzz/messages.py", "hypothesis.internal.conjecture.providers.AVAILABLE_PROVIDERS"): "hypothesis",
    Use("tests/fuzz/messages.py", "hypothesis.internal.conjecture.providers.HypothesisProvider"): "hypothesis",
    Use(
        "tests/fuzz/messages.py", "hypothesis.internal.conjecture.providers.HypothesisProvider._local_constants"
    ): "hypothesis",
    Use("tests/fuzz/messages.py", "hypothesis.internal.constants_ast.Constants"): "hypothesis",
}


def uses(sources: Iterable[Source]) -> set[Use]:
    """Find every use in these files."""
    files = tuple(sources)
    ours = {name for source in files for name in _defined(source)}
    families = {f"{source.module}.{node.name}": bases for source in files for node, bases in _classes(source)}
    found = set()
    for source in files:
        names = {*_imported(source), *_attributes(source, ours), *_overridden(source, families)}
        found |= {Use(source.path, name) for name in names}
    return found


def _foreign(name: str) -> bool:
    """Whether a dotted name is a library's: neither ours nor Python's."""
    top = name.split(".", 1)[0]
    return bool(top) and top not in FOLDERS and top not in sys.stdlib_module_names


def _private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def _imported(source: Source) -> Iterator[str]:
    for _, name in source.imports():
        if _foreign(name) and (under(name, *INSIDES) or any(_private(part) for part in name.split("."))):
            yield name


def _attributes(source: Source, ours: set[str]) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.Attribute):
            if _private(node.attr):
                yield from _attribute(source, node.value, node.attr, ours)
            elif node.attr in LAST_PARTS and source.dotted(node) in INSIDES:
                yield source.dotted(node)  # `import a`, then a.b
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BY_NAME:
            word = node.args[1] if len(node.args) > 1 else None
            if isinstance(word, ast.Constant) and isinstance(word.value, str) and _private(word.value):
                yield from _attribute(source, node.args[0], word.value, ours)


def _attribute(source: Source, owner: ast.expr, name: str, ours: set[str]) -> Iterator[str]:
    """A private attribute, where it is a library's."""
    dotted = source.dotted(owner)
    if dotted in dir(builtins):  # a local name that hides a builtin
        dotted = ""
    if _foreign(dotted):
        yield f"{dotted}.{name}"
    elif not dotted and name not in ours and name not in STANDARD:
        yield name


def _defined(source: Source) -> Iterator[str]:
    """Private names that this file gives to something."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            name = node.attr if node.value.id in ("self", "cls") else ""
        else:
            continue
        if _private(name):
            yield name


def _classes(source: Source) -> Iterator[tuple[ast.ClassDef, list[str]]]:
    """Each class with the dotted names of its bases."""
    for node in source.nodes:
        if isinstance(node, ast.ClassDef):
            plain = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
            named = [(base, source.dotted(base)) for base in plain]
            yield node, [name or f"{source.module}.{ast.unparse(base)}" for base, name in named]


def _overridden(source: Source, families: Mapping[str, list[str]]) -> Iterator[str]:
    for node, bases in _classes(source):
        for base in sorted(_roots(bases, families)):
            if under(base, *BASES):
                yield base
            taken = [name for name in _members(node) if hasattr(_load(base), name)]
            yield from (f"{base}.{name}" for name in taken)


def _members(node: ast.ClassDef) -> Iterator[str]:
    """The private names that a class body gives."""
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [statement.name]
        else:
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        yield from (name for name in names if _private(name))


def _roots(bases: Iterable[str], families: Mapping[str, list[str]]) -> set[str]:
    """The classes of libraries among these bases and the bases of those that are ours."""
    found, waiting, seen = set[str](), list(bases), set[str]()
    while waiting:
        base = waiting.pop()
        if base not in seen:
            seen.add(base)
            if base in families:
                waiting += families[base]
            elif _foreign(base):
                found.add(base)
    return found


def _load(name: str) -> object:
    """The class that is called so; None for what only a library that is not installed has."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(import_module(module), attribute, None)
    except ImportError:
        return None
