"""A library whose private names we use has an upper bound: the next version may not have them any more."""

from __future__ import annotations

import re

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests import lowest
from tests.architecture import locks
from tests.architecture.private_names import KNOWN, Use, uses
from tests.architecture.sources import ROOT, Source, tree_sources


def bounded() -> dict[str, set[str]]:
    """The upper bounds of each distribution in setup.cfg, "" where a line has none."""
    found: dict[str, set[str]] = {}
    for requirement in lowest.asked():
        above = [one.version for one in requirement.specifier if one.operator == "<"]
        found.setdefault(canonicalize_name(requirement.name), set()).add(above[0] if above else "")
    return found


def test_every_private_name_is_known() -> None:
    """A new one needs an upper bound and a line in `KNOWN`; one that is gone needs neither any more."""
    assert uses(tree_sources()) == set(KNOWN)


def test_what_we_know_too_well_is_bounded_and_nothing_else_is() -> None:
    bounds = bounded()

    assert {name for name, above in bounds.items() if above != {""}} == set(KNOWN.values())
    assert {name: above for name, above in bounds.items() if len(above) != 1} == {}


def test_a_bound_is_the_next_version_but_those_of_tests() -> None:
    """Given what is locked, then its minor version is allowed, and the next one is not."""
    locked = locks.everything()
    for name in set(KNOWN.values()) & set(locked):
        (above,) = bounded()[name]
        version = Version(locked[name].version)
        assert above == f"{version.major}.{version.minor + 1}", name


def test_setup_cfg_says_what_is_used_where() -> None:
    """In comments: the last part of each name, and a file that has it, one of the product's where there is one."""
    comments = " ".join(re.findall(r"(?m)^ *# (.*)$", (ROOT / "setup.cfg").read_text("utf-8")))
    words = set(re.findall(r"\w[\w/]*(?:\.py)?", comments))
    first = {use.name: use.path for use in sorted(KNOWN, key=lambda use: use.path, reverse=True)}

    assert [name for name, path in first.items() if not {name.rpartition(".")[2], path} <= words] == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import pika\npika._x()\n", "pika._x"),
        ("import msgpack._cmsgpack\n", "msgpack._cmsgpack"),
        ("from starlette._utils import is_async_callable\n", "starlette._utils.is_async_callable"),
        ("from rich.console import _is_jupyter\n", "rich.console._is_jupyter"),
        ("import importlib\nimportlib.import_module('click._compat')\n", "click._compat"),
        ("from uvicorn.protocols import utils\n", "uvicorn.protocols.utils"),
        ("import uvicorn\nx = uvicorn.protocols\n", "uvicorn.protocols"),
        ("def f(request):\n    return request._send_at_once\n", "_send_at_once"),
        ("def f(request):\n    return getattr(request, '_send_at_once')\n", "_send_at_once"),
        ("import click\ngetattr(click, '_x')\n", "click._x"),
        ("import uvicorn\nclass S(uvicorn.Server): ...\n", "uvicorn.Server"),
        (
            "import click\nclass R(click.IntRange):\n    def _describe_range(self): ...\n",
            "click.IntRange._describe_range",
        ),
        (
            "import click\nclass A(click.IntRange): ...\nclass B(A):\n    _number_class = int\n",
            "click.IntRange._number_class",
        ),
    ],
)
def test_a_private_name_is_found(text: str, name: str) -> None:
    """Given one planted use, when looked at, then it is named."""
    assert uses([Source.parse("daemons/x.py", text)]) == {Use("daemons/x.py", name)}


def test_a_class_of_ours_in_between_hides_nothing() -> None:
    """Given a class of ours in another file that is derived from click's, then what its child overrides is found."""
    parent = Source.parse("daemons/a.py", "import click\nclass A(click.IntRange): ...\n")
    child = Source.parse("daemons/b.py", "from daemons.a import A\nclass B(A):\n    def _clamp(self): ...\n")

    assert uses([parent, child]) == {Use("daemons/b.py", "click.IntRange._clamp")}


@pytest.mark.parametrize(
    "text",
    [
        "import click\nclick.echo('x', __x__=1)\n",
        "import os\nos._exit(1)\n",
        "class A:\n    def __init__(self):\n        self._x = 1\ndef f(a):\n    return a._x\n",
        "def f(point):\n    return point._replace(x=1)\n",
        "import click\nclass A(click.IntRange):\n    def _of_our_own(self): ...\n",
        "import tests.full\nx = tests.full._pytest('x')\n",
        "from pika import exceptions\n",
    ],
)
def test_what_is_ours_or_public_passes(text: str) -> None:
    assert uses([Source.parse("daemons/x.py", text)]) == set()
