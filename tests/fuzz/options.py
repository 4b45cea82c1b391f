"""Every option and argument of every command, found in the commands themselves, with odd values."""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import click

from tests.fuzz.mutations import DATES, NUMBERS, PATHS, SURROGATES, TEXTS
from tests.fuzz.readers import ELSEWHERE, READERS, STREAMS
from tests.fuzz.scene import Ended, Scene, judged
from tests.fuzz.wire import Wire

PORTAL_ACCOUNT = "trimtab-portal account"
PARSED_ALONE = ("trimtab sim run", "trimtab sim faults", "trimtab sim reproduce", "trimtab sim what-if")
"""Commands that compute for seconds whatever they are asked: with a last word that cannot be, so that all words are
read and nothing more."""
LONG = ("trimtab sim ", "trimtab env advise", "trimtab snapshot replay", "trimtab broker", "trimtab doctor")
"""Commands that may take long with what is within the bounds: such a value is a small one, and they are interrupted."""
GIVEN = {
    "trimtab decide": ("--dry-run",),
    "trimtab profile run": ("standard", "--standard", "cpu"),
    "trimtab nodes fit": ("--vcpus", "2", "--memory", "1GiB"),
    "trimtab vms migrate": ("small#0", "n1"),
    "trimtab sim what-if": ("--from", "1970-01-02T00:00Z", "--to", "1970-01-03T00:00Z"),
    "trimtab snapshot replay": ("--from", "1970-01-02T00:00Z", "--to", "1970-01-03T00:00Z"),
    "trimtab sim days": ("days.swf", "--prices", "days.csv", "--from", "2022-06-11", "--first-day", "2", "--days", "1"),
    "trimtab broker tls": ("--host", "b.example", "--folder", "tls"),
    "trimtab report": ("--store", "sqlite:///store.db"),
    "trimtab store upgrade": ("--url", "sqlite:///store.db"),
    "trimtab store prune": ("--url", "sqlite:///store.db"),
}
"""What a command needs beside the words that are found by their types."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that does something: its path with the name of the program, and click's object."""

    path: str
    click: click.Command

    @property
    def program(self) -> str:
        """Whose it is."""
        return self.path.partition(" ")[0]


@cache
def commands() -> tuple[Command, ...]:
    """All of them."""
    from daemons.cli.main import main
    from daemons.portal.auth.account_command import account

    return (*_leaves(main, "trimtab"), *_leaves(account, PORTAL_ACCOUNT))


def _leaves(command: click.Command, path: str) -> Iterator[Command]:
    if not isinstance(command, click.Group):
        yield Command(path, command)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None, f"{path} {name}"
        yield from _leaves(found, f"{path} {name}")


def paths(command: Command) -> Iterator[tuple[str, str]]:
    """The options and arguments of a command that are paths: each with the command before it, and its name alone."""
    for parameter in command.click.params:
        if isinstance(parameter.type, click.Path) or parameter.name == "password_file":
            name = parameter.opts[0] if isinstance(parameter, click.Option) else (parameter.name or "").upper()
            yield f"{command.path} {name}", name


def reading(path: str) -> tuple[str, ...]:
    """The words of a command with a whole file, where a reader has them."""
    for reader in READERS:
        if reader.program == "trimtab" and path == " ".join(("trimtab", *reader.words))[: len(path)]:
            count = len(path.split()) - 1
            if all(not word.startswith("{") for word in reader.words[:count]):
                return tuple(reader.files[0] if word == "{}" else word for word in reader.words[count:])
    return ()


def words_of(command: Command) -> list[str]:
    """What a command is usually asked for."""
    found = [*(GIVEN.get(command.path) or reading(command.path))]
    if found:
        return found
    for parameter in command.click.params:
        if parameter.required and isinstance(parameter, click.Argument):
            found.append(_usual(parameter))
        elif parameter.required:
            found += [parameter.opts[0], _usual(parameter)]
    return found


def _usual(parameter: click.Parameter) -> str:
    kind = parameter.type
    if isinstance(kind, click.Choice):
        return str(kind.choices[0])
    if isinstance(kind, click.IntRange | click.FloatRange):
        return f"{kind.min:g}"
    if isinstance(kind, click.DateTime):
        return "2022-06-11"
    if isinstance(kind, click.Path):
        return "new-file"
    return {"node": "n1", "nodes": "n1", "vm": "small#0", "vms": "small#0", "seeds": "0"}.get(
        parameter.name or "", "small"
    )


def value_of(parameter: click.Parameter, rng: random.Random, is_long: bool) -> str:
    """A word for an option or argument: one that is right, at a bound, beyond it, or of another kind."""
    kind, chance = parameter.type, rng.random()
    if isinstance(kind, click.Choice) and chance < 0.4:
        return str(rng.choice(kind.choices))
    if isinstance(kind, click.IntRange | click.FloatRange) and chance < 0.6:
        least, most = kind.min or 0, kind.max
        near = [least, least + 1, least + 2, least - 1, -least]
        if most is not None:
            near += [most + 1, most * 10] + ([] if is_long else [most, most - 1])
        return f"{rng.choice(near):.17g}" if isinstance(kind, click.FloatRange) else str(int(rng.choice(near)))
    if isinstance(kind, click.Path) and chance < 0.6:
        return rng.choice(PATHS)
    if chance < 0.7:
        return _usual(parameter)
    pool: Sequence[str] = rng.choice((NUMBERS, TEXTS, PATHS, DATES, SURROGATES))
    return rng.choice(pool)


def as_word(text: str) -> str:
    """What a shell can pass on: no null bytes, and no surrogates but those that stand for bytes that are not UTF-8."""
    return re.sub("[\ud800-\udc7f\udd00-\udfff]", "\udcff", text.replace("\x00", ""))


def run(command: Command, scene: Scene, rng: random.Random) -> str:
    """One case: what is wrong with how the command ended ("": nothing)."""
    is_long = command.path.startswith(LONG)
    words, env, is_json = words_of(command), {}, rng.random() < 0.4
    odd: list[str] = []
    for _ in range(rng.choice((1, 1, 2))):
        parameter = rng.choice(command.click.params)
        value = as_word(value_of(parameter, rng, is_long))
        odd.append(value)
        named = [name for name in (getattr(parameter, "envvar", None) and [parameter.envvar]) or [] if name]
        if isinstance(parameter, click.Argument):
            at = 0 if words and not words[0].startswith("-") else len(words)
            words[at : at + 1] = [value]
        elif named and rng.random() < 0.3:
            env[str(named[0])] = value
        elif getattr(parameter, "is_flag", False):
            words.append(rng.choice(parameter.opts))
        else:
            words += [rng.choice(parameter.opts), value] if rng.random() < 0.9 else [f"{parameter.opts[0]}={value}"]
    if is_json and "--output" not in words and any("--output" in each.opts for each in command.click.params):
        words += ["--output", "json"]
    else:
        is_json = False
    if command.path.startswith(PARSED_ALONE):
        words += ["--seed", "-"] if any("--seed" in each.opts for each in command.click.params) else ["--no-such", "-"]
    wire = Wire(nodes=1)
    scene.guard.allow(odd)
    ended = _ended(command, scene, words, env, wire)
    # After a word "--" all others are arguments, also `--output`.
    shown = is_json and not any(word in ("-h", "--help", "--") or word.startswith("--output=") for word in words)
    has_nan = any(word.strip("+-").lower().startswith(("nan", "inf")) for word in odd)
    stream = shown and command.path.split()[1] in STREAMS
    return judged(ended, shown and not stream, has_nan, wire.interrupted or is_long, stream)


def _ended(command: Command, scene: Scene, words: list[str], env: dict[str, str], wire: Wire) -> Ended:
    if command.program == "trimtab":
        return scene.trimtab([*command.path.split()[1:], *words], env, wire)
    from daemons.portal.auth.account_command import account_command

    own = [] if "--config" in words else ["--config", "accounts.toml"]
    return scene.daemon(account_command, [*command.path.split()[2:], *words, *own])


# --- daemons --------------------------------------------------------------------------------------------------------


@cache
def daemons() -> dict[str, argparse.ArgumentParser]:
    """The parser of each daemon."""
    import agents.service.main
    import daemons.portal.main
    import daemons.service.main

    found = (agents.service.main.DAEMON, daemons.service.main.DAEMON, daemons.portal.main.DAEMON)
    return {daemon.name: daemon.parser() for daemon in found}


def run_daemon(program: str, scene: Scene, rng: random.Random) -> str:
    """One case of a daemon that only looks at its file."""
    from tests.fuzz.readers import run_program

    words = ["--check"]
    for _ in range(rng.choice((1, 2))):
        action = rng.choice(daemons()[program]._actions)
        words.append(rng.choice(action.option_strings))
        if action.nargs != 0:
            words.append(as_word(rng.choice(rng.choice((PATHS, TEXTS, NUMBERS, SURROGATES)))))
        elif rng.random() < 0.2:
            words[-1] += "=" + as_word(rng.choice(TEXTS))
    rng.shuffle(words)
    words.append("--check")
    return judged(run_program(scene, program, words))


__all__ = ["ELSEWHERE", "Command", "commands", "daemons", "paths", "run", "run_daemon"]
