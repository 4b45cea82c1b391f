"""Python files as the architecture rules see them: path, text, syntax tree and where each imported name comes from."""

from __future__ import annotations

import ast
import builtins
import gc
from collections.abc import Iterable, Iterator
from configparser import ConfigParser
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("shared", "agents", "daemons", "sim_backend")
FOLDERS = (*PACKAGES, "benchmarks", "examples", "tests")


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file. `path` is relative to the repository, with forward slashes; `nodes` are all of its syntax tree;
    `names` maps local names to the dotted names they were imported from."""

    path: str
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]
    names: dict[str, str]

    @classmethod
    def parse(cls, path: str, text: str) -> Source:
        """Raises SyntaxError when the text is not Python."""
        tree = ast.parse(text, path)
        nodes = tuple(ast.walk(tree))
        return cls(path, text, tree, nodes, _origins(nodes))

    @property
    def package(self) -> str:
        """The top folder: one of `FOLDERS`."""
        return self.path.split("/", 1)[0]

    @property
    def module(self) -> str:
        """The dotted name of the module; a package's own name for its `__init__`."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def at(self, line: int, what: str) -> str:
        """A violation as people read it."""
        return f"{self.path}:{line}: {what}"

    def imports(self) -> Iterator[tuple[int, str]]:
        """(line, dotted name) of everything imported, wherever in the file; `from a import b` gives `a.b`. A relative
        import gives a name with its leading dots. `import_module("a.b")` counts."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
            elif isinstance(node, ast.Call) and self.dotted(node.func) in ("importlib.import_module", "__import__"):
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield node.lineno, first.value

    def dotted(self, node: ast.expr) -> str:
        """The dotted name that an expression stands for, traced to an import or a builtin; "" for anything else."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id) or (node.id if hasattr(builtins, node.id) else "")
        if isinstance(node, ast.Attribute):
            value = self.dotted(node.value)
            return f"{value}.{node.attr}" if value else ""
        return ""

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        """Every call and the dotted name of what is called ("" when it has none)."""
        for node in self.nodes:
            if isinstance(node, ast.Call):
                yield node, self.dotted(node.func)


def _origins(nodes: Iterable[ast.AST]) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".", 1)[0]
                names[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
    return names


def under(name: str, *prefixes: str) -> bool:
    """Whether a dotted name is one of the prefixes or inside one."""
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


@cache
def settings() -> ConfigParser:
    """setup.cfg, read once."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    return config


def tree_paths() -> list[str]:
    """Where every Python file of the repository is."""
    return [file.relative_to(ROOT).as_posix() for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]


def tree_sources() -> tuple[Source, ...]:
    """Every Python file of the repository, parsed once; broken ones are `unreadable` and left out."""
    return _read()[0]


def unreadable() -> tuple[str, ...]:
    """Why each file that is not Python of the running version could not be parsed."""
    return _read()[1]


@cache
def _read() -> tuple[tuple[Source, ...], tuple[str, ...]]:
    sources, broken = [], []
    gc.disable()  # looking through millions of nodes that all stay takes longer than to make them
    try:
        for path in tree_paths():
            try:
                sources.append(Source.parse(path, (ROOT / path).read_text("utf-8")))
            except SyntaxError as error:
                broken.append(f"{path}:{error.lineno}: {error.msg}")
    finally:
        gc.freeze()
        gc.enable()
    return tuple(sources), tuple(broken)
