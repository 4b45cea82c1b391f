"""House rules inside the files: clock, chance, swallowed errors, patched code. Each rule lists its violations."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.architecture.sources import PACKAGES, ROOT, Source, tree_sources, under

CLOCK = "shared/base/clock.py"
CLOCK_CALLS = ("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today")
NUMBERS = "daemons/cli/numbers.py"
CLICK_NUMBERS = ("click.FloatRange", "click.IntRange", "click.FLOAT", "click.INT")
OUTPUT = "daemons/cli/output.py"
COMMANDS = ("daemons/cli/", "sim_backend/commands/", "sim_backend/env_commands/", "sim_backend/cli.py")
PRINTERS = ("click.echo", "click.secho", "print", "rich.print", "rich.console.Console", "sys.stdout.write")
WRITER = "shared/base/write_file.py"
TRANSITIONS = "daemons/controller/state/transitions.py"
CLOCK_MODULES = ("time", "timeit")
LARGE = 8  # values
BY_POSITION_MAX = 3

# Allowed with an explicit seed; Generator and SeedSequence also as types.
SEEDED = frozenset(
    {"random.Random"}
    | {f"numpy.random.{name}" for name in ("default_rng", "Generator", "SeedSequence", "PCG64", "Philox", "SFC64")}
)
CHANCE = ("random", "numpy.random")

# Written so that no pattern matches itself.
PLACES = re.compile(r"\.\./share[d]|share[d]/data|/wor[k]/|/roo[t]/|/hom[e]/\w|/User[s]/")
MARKS = re.compile(r"\b(TO[D]O|FIXM[E]|XX[X])\b|NotImplemente[d]Error")
NO_VERBS = re.compile(
    r"(A|All|An|As|At|Before|By|Each|Every|Everything|For|From|How|If|In|It|Its|More|Most|No|Nobody|Not|Nothing|Of|On"
    r"|One|Only|Some|Somebody|Such|That|The|Their|These|Those|Two|Until|What|When|Where|Whether|Which|Who|Why|With)\b"
)
DOCUMENT = re.compile(r"[\w./-]+\.md\b")


def wall_clock(source: Source) -> list[str]:
    """Only shared/base/clock.py reads the time; tests may measure through it."""
    if source.path == CLOCK or source.package == "tests":
        return []
    found = [
        source.at(line, f"{name}: only {CLOCK} reads the time")
        for line, name in source.imports()
        if under(name, *CLOCK_MODULES)
    ]
    return found + [
        source.at(call.lineno, f"{name}(): only {CLOCK} reads the time")
        for call, name in source.calls()
        if name in CLOCK_CALLS
    ]


def global_chance(source: Source) -> list[str]:
    """Randomness comes from a generator that was given its seed."""
    found = [
        source.at(line, f"{name} draws from global state") for line, name in source.imports() if _global_draw(name)
    ]
    found += [
        source.at(node.lineno, f"{source.dotted(node)} draws from global state")
        for node in source.nodes
        if isinstance(node, ast.Attribute) and _global_draw(source.dotted(node))
    ]
    return found + [
        source.at(call.lineno, f"{name}() without a seed")
        for call, name in source.calls()
        if name in SEEDED and not _seeded(call)
    ]


def _global_draw(name: str) -> bool:
    return under(name, *CHANCE) and name not in CHANCE and not under(name, *SEEDED)


def _seeded(call: ast.Call) -> bool:
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return bool(values) and not (isinstance(values[0], ast.Constant) and values[0].value is None)


def swallowed_errors(source: Source) -> list[str]:
    """No bare except, no catching of everything to do nothing."""
    found = []
    for node in source.nodes:
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                found.append(source.at(node.lineno, "bare except"))
            elif _catches_all(source, node.type) and all(_does_nothing(statement) for statement in node.body):
                found.append(source.at(node.lineno, "every error swallowed"))
    return found + [
        source.at(call.lineno, "every error suppressed")
        for call, name in source.calls()
        if name == "contextlib.suppress" and any(_catches_all(source, argument) for argument in call.args)
    ]


def _catches_all(source: Source, caught: ast.expr) -> bool:
    types = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(source.dotted(one).removeprefix("builtins.") in ("Exception", "BaseException") for one in types)


def _does_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass | ast.Continue) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def patched_code(source: Source) -> list[str]:
    """Tests replace nothing inside our own code: fakes are given through the ports."""
    targets = [call.args[0] for call, _ in source.calls() if call.args and _patches(call.func)]
    for node in source.nodes:
        if isinstance(node, ast.Assign):
            targets += [target for target in node.targets if isinstance(target, ast.Attribute)]
    named = ((target.lineno, _target_name(source, target)) for target in targets)
    return [source.at(line, f"patches {name}") for line, name in named if under(name, *PACKAGES)]


def _patches(function: ast.expr) -> bool:
    """Whether it reads like patch, patch.object, monkeypatch.setattr or their kin, whatever it hangs on."""
    parts = ast.unparse(function).split(".")
    return parts[-1] in ("patch", "setattr", "delattr", "setitem", "delitem") or parts[-2:-1] == ["patch"]


def _target_name(source: Source, target: ast.expr) -> str:
    if isinstance(target, ast.Constant) and isinstance(target.value, str):
        return target.value
    return source.dotted(target)


def option_numbers(source: Source) -> list[str]:
    """The numbers of options have one type each: click's own let NaN, `1_0` and whole numbers without bounds pass."""
    if source.package not in PACKAGES or source.path == NUMBERS:
        return []
    found = [
        source.at(node.lineno, f"{source.dotted(node)}: {NUMBERS} has the types of numbers")
        for node in source.nodes
        if isinstance(node, ast.Attribute | ast.Name) and source.dotted(node) in CLICK_NUMBERS
    ]
    for call, name in source.calls():
        if name not in ("click.option", "click.argument"):
            continue
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        kind, default = given.get("type"), given.get("default")
        plain = kind is not None and source.dotted(kind).removeprefix("builtins.") in ("int", "float")
        guessed = kind is None and isinstance(default, ast.Constant) and type(default.value) in (int, float)
        if plain or guessed:
            found.append(source.at(call.lineno, f"an option that is a plain number: {NUMBERS} has the types"))
    return found


def printed_elsewhere(source: Source) -> list[str]:
    """Commands print through one module, which cleans what could order a terminal about."""
    if not source.path.startswith(COMMANDS) or source.path == OUTPUT:
        return []
    return [
        source.at(call.lineno, f"{name}(): only {OUTPUT} prints")
        for call, name in source.calls()
        if name.removeprefix("builtins.") in PRINTERS
    ]


def written_elsewhere(source: Source) -> list[str]:
    """Commands write files through one function, which leaves the whole file or the one before."""
    if not source.path.startswith((*COMMANDS, "daemons/report/", "sim_backend/experiments/")):
        return []
    return [
        source.at(node.lineno, f"{node.attr}: {WRITER} writes files")
        for node in source.nodes
        if isinstance(node, ast.Attribute) and node.attr in ("write_text", "write_bytes")
    ]


def phases_elsewhere(source: Source) -> list[str]:
    """In the controller one module writes phases and revisions of jobs."""
    if not source.path.startswith("daemons/controller/") or source.path == TRANSITIONS:
        return []
    return [
        source.at(part.lineno, f"{part.attr}: only {TRANSITIONS} writes it")
        for target in _targets(source)
        for part in ast.walk(target)
        if isinstance(part, ast.Attribute) and part.attr in ("phase", "revision")
    ]


def late_wiring(source: Source) -> list[str]:
    """In the controller no part sets another's attributes: what a part is made of it is given when it is made. The unit
    of work is there to be written, and rows (`node.held`, `entry.awaits`) are."""
    if not source.path.startswith("daemons/controller/"):
        return []
    return [
        source.at(part.lineno, f"{ast.unparse(part)}: a part sets its attributes itself")
        for target in _targets(source)
        for part in ast.walk(target)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and _is_part(part.value)
    ]


def _is_part(owner: ast.expr) -> bool:
    """Whether this is an attribute of `self`, or of one of those."""
    if not isinstance(owner, ast.Attribute) or owner.attr.lstrip("_") == "unit_of_work":
        return False
    return (isinstance(owner.value, ast.Name) and owner.value.id == "self") or _is_part(owner.value)


def _targets(source: Source) -> list[ast.expr]:
    return [
        target
        for node in source.nodes
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]


@cache
def large_classes() -> dict[str, int]:
    """How many values each class of ours is made of, by its dotted name, where these are LARGE at least."""
    found: dict[str, int] = {}
    for source in tree_sources():
        for node in source.tree.body:
            count = _values_of(node) if isinstance(node, ast.ClassDef) else 0
            if count >= LARGE and isinstance(node, ast.ClassDef):
                found[f"{source.module}.{node.name}"] = count
    return found


def _values_of(node: ast.ClassDef) -> int:
    """How many values a class is made of: the arguments of its constructor, or its fields."""
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            return len(member.args.args) - 1
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    return sum("ClassVar" not in ast.unparse(each.annotation) for each in fields)


def many_by_position(source: Source) -> list[str]:
    """What a class is made of is named, from the fourth value on, where there are LARGE of them or more."""
    large = large_classes()
    found = []
    for call, name in source.calls():
        if not name and isinstance(call.func, ast.Name):
            name = f"{source.module}.{call.func.id}"
        starred = any(isinstance(each, ast.Starred) for each in call.args)
        if name in large and len(call.args) > BY_POSITION_MAX and not starred:
            found.append(source.at(call.lineno, f"{name.rpartition('.')[2]}: name its values"))
    return found


def named_places(source: Source) -> list[str]:
    """No file names a folder of one machine or the folder of the data."""
    return places_in(source.path, source.text)


def places_in(path: str, text: str) -> list[str]:
    """The lines of any text that name a folder of one machine or the folder of the data."""
    return [f"{path}:{number}: names a place: {line.strip()}" for number, line in _matching(PLACES, text)]


def named_documents(source: Source) -> list[str]:
    """A document that the packages refer to is there; codes name pages below docs, a page its neighbours."""
    if source.package not in PACKAGES:
        return []
    return [
        source.at(number, f"there is no {name}")
        for number, line in _matching(DOCUMENT, source.text)
        for name in DOCUMENT.findall(line)
        if not any((folder / name).exists() for folder in (ROOT, ROOT / "docs", ROOT / "docs/reference"))
    ]


def unfinished_marks(source: Source) -> list[str]:
    """Nothing in the packages is marked as unfinished."""
    if source.package not in PACKAGES:
        return []
    return [source.at(number, f"unfinished: {line.strip()}") for number, line in _matching(MARKS, source.text)]


def docstring_verbs(source: Source) -> list[str]:
    """Docstrings of functions in the packages begin with a verb; properties are named by nouns."""
    if source.package not in PACKAGES:
        return []
    functions = (node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    found = []
    for node in functions:
        text = ast.get_docstring(node) or ""
        decorators = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
        if NO_VERBS.match(text) and not decorators & {"property", "cached_property"}:
            found.append(source.at(node.lineno, f"{node.name}: its docstring does not begin with a verb"))
    return found


def _matching(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(text.splitlines(), 1) if pattern.search(line))


RULES = (
    wall_clock,
    global_chance,
    swallowed_errors,
    patched_code,
    option_numbers,
    printed_elsewhere,
    written_elsewhere,
    phases_elsewhere,
    late_wiring,
    many_by_position,
    named_places,
    named_documents,
    unfinished_marks,
    docstring_verbs,
)
