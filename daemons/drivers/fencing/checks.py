"""What fence agents say of a configuration, without asking any device: their options, and whether they are complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from xml.etree import ElementTree as ET

from daemons.config.fencing import FencingKeys
from daemons.drivers.fencing.agent import FAILURE, FenceAgent
from daemons.drivers.fencing.method import Method, examine, password_of
from daemons.drivers.fencing.options import options_of, plain
from daemons.values.replies import nearest
from shared.base.errors import InvalidInput, Problem, TransientError
from shared.base.secrets import is_absent

LIMIT_S = 30.0  # of a run that asks no device
NEEDED = ("off", "status")
PASSWORD = frozenset({"password", "passwd"})
VALIDATE = "validate-all"
END = "</resource-agent>"
ANY_NODE, ANY_MAC, ANY_PASSWORD = "node", "02:00:00:00:00:01", "unread"


def check_fencing(keys: FencingKeys) -> None:
    """Raise InvalidInput with everything that is wrong with `[fencing]`. Each agent is run with the actions `metadata`
    and `validate-all`, which ask no device. One that does not answer in time is not judged."""
    methods, problems = examine(keys, only_look=True)
    problems += [problem for method in methods for problem in _problems(method)]
    if problems:
        raise InvalidInput(*problems)


def _problems(method: Method) -> Iterator[Problem]:
    key = f"fencing.method.{method.name}"
    agent = replace(method.agent, limit_s=min(LIMIT_S, method.agent.limit_s))
    try:
        ended = agent.run("metadata", {})
        if ended.status is None:
            return
        described = _described(ended.printed) if ended.ok else None
        if described is None:
            what = f"{method.keys.agent!r} does not answer `metadata` as a fence agent: {ended.detail}"
            yield Problem(f"{key}.agent", what, "a program of the fence-agents package")
            return
        options, actions = described
        for action in NEEDED:
            if action not in actions:
                yield Problem(f"{key}.agent", f"{method.keys.agent!r} has no action {action!r}", "another agent")
        unknown = [*_unknown(f"{key}.options", method.keys.options, options)]
        for node, own in method.keys.nodes.items():
            unknown += _unknown(f"{key}.nodes.{node}", own, options)
        yield from unknown
        if method.keys.password_file and not options & PASSWORD:
            yield Problem(f"{key}.password_file", f"{method.keys.agent} takes no password", "no such key")
        if VALIDATE in actions and not unknown:
            yield from _incomplete(method, agent, key)
    except TransientError as error:
        yield Problem(f"{key}.agent", str(error), "a program of the fence-agents package")


def _unknown(key: str, given: Iterable[str], known: frozenset[str]) -> Iterator[Problem]:
    for name in given:
        if plain(name) not in known:
            near = nearest(plain(name), sorted(known))
            yield Problem(f"{key}.{name}", "the agent has no such option", " or ".join(near))


def _incomplete(method: Method, agent: FenceAgent, key: str) -> Iterator[Problem]:
    """Have the agent judge the options of one node: the first that has its own, since a method may need those."""
    node = next(iter(method.keys.nodes), ANY_NODE)
    password = ANY_PASSWORD if is_absent(method.keys.password_file) else password_of(method.name, method.keys)
    ended = agent.run(VALIDATE, options_of(method.keys, node, ANY_MAC), password)
    if ended.status == FAILURE:
        where = f"{key}.nodes.{node}" if node in method.keys.nodes else f"{key}.options"
        yield Problem(where, f"{method.keys.agent} refuses the options: {ended.detail}", "what the agent needs")


def _described(text: str) -> tuple[frozenset[str], frozenset[str]] | None:
    """Return the names of an agent's options and actions from its metadata; None for any other text."""
    begin, end = text.find("<resource-agent"), text.rfind(END)
    if begin < 0 or end < 0:
        return None
    try:
        tree = ET.fromstring(text[begin : end + len(END)])
    except ET.ParseError:
        return None
    options = {plain(each.get("name", "")) for each in tree.iterfind("parameters/parameter")}
    return frozenset(options), frozenset(each.get("name", "") for each in tree.iterfind("actions/action"))
