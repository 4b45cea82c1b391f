"""One method of fencing: an agent with its options for each node, and the proof that a node is off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from daemons.config.fencing import FencingKeys, FencingMethod
from daemons.drivers.fencing.agent import FAILURE, SUCCESS, FenceAgent, PowerState, Reading, locate
from daemons.drivers.fencing.options import options_of, problems_of_options
from shared.base.errors import InvalidInput, Problem, TransientError
from shared.base.secrets import is_absent, secret_of


@dataclass(frozen=True, slots=True)
class Method:
    """A configured method by its name. Methods keep nothing: one may be used for several nodes at a time."""

    name: str
    keys: FencingMethod
    agent: FenceAgent

    def fence(self, node: str, mac: str) -> str:
        """Switch a node off and read its power state; return "" if that is off, else why there is no proof.

        The state is read whatever became of `off`, unless that ended with a status that fence agents do not have: what
        such a program says of the power is no proof. `mac`: a hardware address of the node ("": none is known).
        """
        try:
            options, password = options_of(self.keys, node, mac), self._password()
            off = self.agent.run("off", options, password)
            if off.status is not None and off.status > FAILURE:
                return f"off: {off.detail}"
            reading = self.agent.read_power(options, password)
        except (InvalidInput, TransientError) as error:
            return str(error)
        if reading.state is PowerState.OFF:
            return ""
        said = f"status: {reading.detail or reading.state.value}"
        return said if off.status == SUCCESS else f"off: {off.detail}; {said}"

    def read_power(self, node: str, mac: str) -> Reading:
        """Return the power state of a node; changes nothing. What prevents the reading is an error with its detail."""
        try:
            return self.agent.read_power(options_of(self.keys, node, mac), self._password())
        except (InvalidInput, TransientError) as error:
            return Reading(PowerState.ERROR, str(error))

    def _password(self) -> str:
        """Return the password from its file, read now: it may have been changed. Raises InvalidInput."""
        return password_of(self.name, self.keys)


def make_methods(keys: FencingKeys) -> tuple[Method, ...]:
    """Return the configured methods in their order. Raises InvalidInput with everything that is wrong with their keys
    as far as it shows without running an agent."""
    made, problems = examine(keys)
    if problems:
        raise InvalidInput(*problems)
    return tuple(sorted(made, key=lambda method: keys.methods.index(method.name)))


def examine(keys: FencingKeys, only_look: bool = False) -> tuple[list[Method], list[Problem]]:
    """Return the methods whose own keys are right, and everything that is wrong. With `only_look`, a process need not
    have been passed the unit's credentials."""
    problems = [*_problems_of_names(keys)]
    made: list[Method] = []
    for name, method in keys.method.items():
        program = locate(method.agent)
        wrong = list(_problems_of(name, method, program, only_look))
        problems += wrong
        if not wrong:
            made.append(Method(name, method, FenceAgent(program, method.limit_s)))
    return made, problems


def password_of(name: str, keys: FencingMethod) -> str:
    """Return the password of a method ("": it needs none). Raises InvalidInput for a file that cannot be used, and for
    a password that agents would not read as it is."""
    if not keys.password_file:
        return ""
    key = f"fencing.method.{name}.password_file"
    if is_absent(keys.password_file):
        what = f"{keys.password_file!r} is not passed to this process"
        raise InvalidInput(Problem(key, what, "a unit with LoadCredential=, or the path of a file"))
    password = secret_of(key, keys.password_file)
    if password != password.strip() or (len(password) > 1 and password[0] == password[-1] == '"'):
        what = "holds a password that fence agents would read without its first and last characters"
        raise InvalidInput(Problem(key, what, "no spaces and no quotes around it"))
    return password


def _problems_of_names(keys: FencingKeys) -> Iterator[Problem]:
    for name in keys.methods:
        if name not in keys.method:
            known = ", ".join(map(repr, keys.method))
            expected = f"one of {known}" if known else "that table"
            yield Problem("fencing.methods", f"there is no table [fencing.method.{name}]", expected)
    for name in keys.method:
        if name not in keys.methods:
            yield Problem(f"fencing.method.{name}", "is not in fencing.methods", "its name there, or no such table")


def _problems_of(name: str, keys: FencingMethod, program: str, only_look: bool) -> Iterator[Problem]:
    key = f"fencing.method.{name}"
    if not program:
        what = f"{keys.agent!r} is no program that can be executed, on PATH or in /usr/sbin"
        yield Problem(f"{key}.agent", what, "a program of the fence-agents package")
    yield from problems_of_options(key, keys)
    if not (only_look and is_absent(keys.password_file)):
        try:
            password_of(name, keys)
        except InvalidInput as error:
            yield from error.problems
