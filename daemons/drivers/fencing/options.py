"""The options of fence agents: which a node gets, and those that nobody may set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from daemons.config.fencing import FencingMethod
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.values.scalars import check_name

NODE, MAC = "{node}", "{mac}"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_PLACEHOLDER = re.compile(r"\{[a-z_]+\}")
_SHOWS_PASSWORDS = ("writes the password to the log", "no such option; `trimtab nodes fence-status` prints the errors")
_NO_ACTION = ("would replace the action", "no such option")
REFUSED: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("action", "option", "help", "version"), _NO_ACTION),
    **dict.fromkeys(("password", "passwd"), ("is a secret in a file that others can read", "password_file")),
    **dict.fromkeys(("verbose", "verbose_level", "debug", "debug_file"), _SHOWS_PASSWORDS),
    "missing_as_off": ("takes a wrong name of a machine for proof that it is off", "no such option"),
}
ANY_CERTIFICATE, YES = "ssl_insecure", frozenset({"1", "yes", "on", "true"})


def options_of(keys: FencingMethod, node: str, mac: str) -> dict[str, str]:
    """Return the options of an agent for a node. `mac`: a hardware address of the node ("": none is known). Raises
    InvalidInput if an option needs an address and there is none."""
    given = {**keys.options, **keys.nodes.get(node, {})}
    if not mac and any(MAC in value for value in given.values()):
        raise InvalidInput(Problem(node, "no hardware address is known", f"a report of its agent, or no {MAC}"))
    return {key: value.replace(NODE, node).replace(MAC, mac) for key, value in given.items()}


def problems_of_options(key: str, keys: FencingMethod) -> Iterator[Problem]:
    """Yield what is wrong with a method's options, whatever the agent. `key`: the method's dotted key."""
    yield from _problems(f"{key}.options", keys.options)
    for node, options in keys.nodes.items():
        try:
            check_name("node", node)
        except InvalidValue as error:
            yield Problem(f"{key}.nodes", f"{node!r} is no name of a node", error.expected)
        yield from _problems(f"{key}.nodes.{node}", options)


def plain(name: str) -> str:
    """Return the name of an option in the one spelling of two that agents accept."""
    return name.replace("-", "_")


def _problems(key: str, options: Mapping[str, str]) -> Iterator[Problem]:
    for name, value in options.items():
        if not _NAME.fullmatch(name):
            yield Problem(key, f"{name!r} is no name of an option", "letters, digits, '-' and '_'")
        elif plain(name) in REFUSED:
            what, expected = REFUSED[plain(name)]
            yield Problem(f"{key}.{name}", what, expected)
        elif plain(name) == ANY_CERTIFICATE and value.lower() not in YES:
            what = f"is {value!r}; agents accept any certificate with '0', too"
            yield Problem(f"{key}.{name}", what, "'1', or no such option")
        for unknown in sorted({*_PLACEHOLDER.findall(value)} - {NODE, MAC}):
            yield Problem(f"{key}.{name}", f"{unknown} stands for nothing", f"{NODE} or {MAC}")
