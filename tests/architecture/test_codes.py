"""`daemons/codes` has every code that the code has, and no others; the reference pages have its tables."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from enum import StrEnum
from functools import cache

import pytest

from daemons.codes.catalogue import ALL
from daemons.codes.code import Kind
from daemons.codes.pages import PAGES, generated
from daemons.values.event_codes import ALARMS, EVENTS
from shared.policy_api.admission import AdmissionOutcome, AdmissionReason, PoliceReason, SurplusUse
from shared.policy_api.decision import ReasonCode
from shared.runtime import startup
from shared.runtime.shell import BEGIN_ANEW
from shared.values.actions import GuestChange, Outcome
from tests.architecture.sources import PACKAGES, ROOT
from tests.architecture.test_documents import differences, error_codes
from tests.architecture.test_operator_pages import CODE, alarms_of, constants, events_of, texts_in_code, trees

SIGNALS = 130, 143
ENDS = {"aborted", "interrupted", "terminated"}  # what commands report that no class of an error has as its code
PAIR = 2


def listed(kind: Kind) -> list[str]:
    """The codes of one kind that the source has, twice where it has one twice."""
    return [each.code for each in ALL if each.kind is kind]


def values(*kinds: type[StrEnum]) -> set[str]:
    return {each.value for kind in kinds for each in kind}


@pytest.mark.parametrize(
    ("kind", "existing"),
    [
        (Kind.EVENT, set(EVENTS)),
        (Kind.ALARM, set(ALARMS)),
        (Kind.REASON, values(ReasonCode)),
        (Kind.OUTCOME, values(Outcome)),
        (Kind.GUEST_CHANGE, values(GuestChange)),
        (
            Kind.EXIT_STATUS,
            {
                str(status)
                for status in (
                    startup.DONE,
                    startup.REFUSED,
                    startup.UNREADABLE,
                    startup.DEFECT,
                    BEGIN_ANEW,
                    *SIGNALS,
                )
            },
        ),
    ],
)
def test_every_code_is_in_the_source(kind: Kind, existing: set[str]) -> None:
    assert differences(listed(kind), existing) == []


def test_every_verdict_is_in_the_source() -> None:
    verdicts = values(AdmissionOutcome, AdmissionReason, PoliceReason, SurplusUse)

    assert differences(sorted(set(listed(Kind.VERDICT))), verdicts) == []


def test_every_event_and_alarm_that_is_reported_is_in_the_source() -> None:
    """And each of the source stands in the code, whole or by its beginning."""
    whole, begun = texts_in_code()

    assert sorted(code for code in listed(Kind.EVENT) if code not in whole and not code.startswith(tuple(begun))) == []
    assert sorted(set(listed(Kind.ALARM)) - whole) == []
    assert sorted(set().union(*map(events_of, trees())) - set(listed(Kind.EVENT))) == []
    assert sorted(set().union(*map(alarms_of, trees())) - set(listed(Kind.ALARM))) == []


# --- refusals -------------------------------------------------------------------------------------------------------


def refusals_of(tree: ast.AST) -> set[str]:
    """The codes in what functions return that are annotated to return a refusal (a code and a detail), and of replies
    that are made in place."""
    names: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names.setdefault(node.targets[0].id, set()).update(constants(node.value, names))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.returns is not None and _refuses(ast.unparse(node.returns)):
            for inside in ast.walk(node):
                if isinstance(inside, ast.Tuple) and len(inside.elts) == PAIR:
                    found |= constants(inside.elts[0], names)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Reply":
            given = [*node.args[2:3], *(each.value for each in node.keywords if each.arg == "code")]
            found |= {code for each in given for code in constants(each, names)}
    return {code for code in found if CODE.fullmatch(code)}


def _refuses(annotation: str) -> bool:
    return "Refused" in annotation or "tuple[str, str]" in annotation


@cache
def refused() -> frozenset[str]:
    """The codes with which the controller refuses, but for those of errors that it catches."""
    return frozenset().union(*map(refusals_of, trees())) - WORDS


# Kinds of requests and things, which stand in such places too.
WORDS = {"job", "query"}


def test_every_refusal_is_in_the_source() -> None:
    """And none that neither a function of the controller returns nor an error has that it turns into a reply."""
    assert len(refused()) > 50
    assert sorted(refused() - set(listed(Kind.REFUSAL))) == []
    assert sorted(set(listed(Kind.REFUSAL)) - refused() - error_codes()) == []


def test_refusals_are_found() -> None:
    """Given codes in a returned pair, in a choice, under a name, and in a reply, then all are found, others not."""
    tree = ast.parse(
        "LATER = 'try-later'\n"
        "def one(on) -> Refused:\n"
        "    if on:\n"
        "        return 'no-such-thing', f'there is none'\n"
        "    return ('a-code' if on else 'b-code'), ''\n"
        "def two() -> Row | Refused:\n"
        "    return LATER, 'x'\n"
        "def three():\n"
        "    return Reply('r', False, 'c-code', 'x'), Reply('r', False, code='d-code')\n"
        "def four():\n"
        "    return 'no-refusal', 'x'\n"
    )

    assert refusals_of(tree) == {"no-such-thing", "a-code", "b-code", "try-later", "c-code", "d-code"}


# --- errors ---------------------------------------------------------------------------------------------------------


def codes_of_classes(tree: ast.AST) -> set[str]:
    """What classes have as their `code`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        for each in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None:
                target = each.targets[0] if isinstance(each, ast.Assign) else each.target
                found |= constants(each.value, {}) if getattr(target, "id", "") == "code" else set()
    return found - {""}


def all_trees(tops: Iterable[str] = PACKAGES) -> list[ast.Module]:
    return [ast.parse(path.read_text("utf-8")) for top in tops for path in sorted((ROOT / top).rglob("*.py"))]


def test_every_error_is_in_the_source() -> None:
    existing = set().union(*map(codes_of_classes, all_trees())) | ENDS

    assert existing > error_codes()
    assert differences(listed(Kind.ERROR), existing) == []


def test_codes_of_classes_are_found() -> None:
    tree = ast.parse(
        "class A(E):\n    code = 'a'\nclass B(E):\n    code: ClassVar[str] = 'b'\n    other = 'c'\ncode = 'd'\n"
    )

    assert codes_of_classes(tree) == {"a", "b"}


# --- pages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_the_reference_has_the_tables_of_the_source(page: str) -> None:
    """`python -m daemons.cli.code_pages docs/reference` writes them."""
    text = (ROOT / "docs/reference" / f"{page}.md").read_text("utf-8")

    assert generated(page, text) == text
