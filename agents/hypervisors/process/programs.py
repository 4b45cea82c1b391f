"""The programs that an operator allows, and how one of them is run for a VM."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.config.agent import Program
from shared.values.jobs import workload_of
from shared.values.scalars import check_name
from shared.values.vms import VmSpec

PATH = "/usr/local/bin:/usr/bin:/bin"
ARGUMENTS = "{arguments}"
ENVIRONMENT = "{environment}"
PLACES = ("{vm}", "{job}", "{index}", "{node}", "{address}", ENVIRONMENT)
_PLACE = re.compile(r"\{[a-z]+\}")


@dataclass(frozen=True, slots=True)
class Here:
    """The facts about their node that programs receive."""

    node: str
    address: str


def check(programs: Mapping[str, Program]) -> None:
    """Raise InvalidInput, naming everything that cannot be run as it is written."""
    problems = []
    for name, program in programs.items():
        key = f"process.programs.{name}.run"
        if not program.run or not program.run[0].startswith("/"):
            problems.append(Problem(key, "names no file", "an absolute path first"))
        for word in program.run:
            for place in _PLACE.findall(word):
                if place == ARGUMENTS and word != ARGUMENTS:
                    problems.append(Problem(key, f"has {word!r}", f"{ARGUMENTS} as a word of its own"))
                elif place not in (*PLACES, ARGUMENTS):
                    problems.append(Problem(key, f"has {place}", "one of " + ", ".join((*PLACES, ARGUMENTS))))
    if problems:
        raise InvalidInput(*problems)


def words_of(spec: VmSpec, programs: Mapping[str, Program], here: Here) -> tuple[str, ...]:
    """Return the command line for a VM: each argument is one word, without interpretation. Raises InvalidValue if there
    is no such program, it takes no arguments, or its file cannot be run."""
    program = programs.get(spec.template)
    if program is None:
        allowed = ", ".join(sorted(programs)) or "none is allowed on this node"
        raise InvalidValue("template", spec.template, f"a program of this node: {allowed}")
    if spec.arguments and ARGUMENTS not in program.run:
        raise InvalidValue("arguments", spec.arguments[0], f"none: {spec.template!r} takes no arguments")
    if shutil.which(program.run[0]) is None:
        raise InvalidValue("template", spec.template, f"a program that is there: {program.run[0]} cannot be run")
    if any(ENVIRONMENT in word for word in program.run):
        if not spec.environment:
            raise InvalidValue("environment", "", f"an environment, for program {spec.template!r}")
        check_name("environment", spec.environment)
    values = _values(spec, here)
    words: list[str] = []
    for word in program.run:
        if word == ARGUMENTS:
            words += spec.arguments
        else:
            words.append(_PLACE.sub(lambda found: values[found[0]], word))
    return tuple(words)


def environment_of(spec: VmSpec, here: Here, output: str) -> dict[str, str]:
    """Return all variables of a program's environment; `output` is the folder that it may write to."""
    values = _values(spec, here)
    return {
        "PATH": PATH,
        "LANG": "C.UTF-8",
        "TRIMTAB_VM": spec.vm,
        "TRIMTAB_JOB": values["{job}"],
        "TRIMTAB_INDEX": values["{index}"],
        "TRIMTAB_NODE": here.node,
        "TRIMTAB_ADDRESS": here.address,
        "TRIMTAB_ENVIRONMENT": spec.environment,
        "TRIMTAB_OUTPUT": output,
    }


def last_line(path: str, length: int = 200, window: int = 4_096) -> str:
    """Return the last line of a program's output that is not empty, or its end if it is long; "" when there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        size = os.fstat(descriptor).st_size
        lines = os.pread(descriptor, window, max(0, size - window)).decode(errors="replace").split("\n")
    except OSError:  # whatever its program has put there instead of a file
        return ""
    finally:
        os.close(descriptor)
    said = [line.strip() for line in lines if line.strip()]
    return "".join(c if c.isprintable() else "?" for c in said[-1])[-length:] if said else ""


def _values(spec: VmSpec, here: Here) -> dict[str, str]:
    try:
        job, index = workload_of(spec.vm)
    except InvalidValue:  # an instance of a web application may have any name
        job, index = spec.vm, 0
    return {
        "{vm}": spec.vm,
        "{job}": job,
        "{index}": str(index),
        "{node}": here.node,
        "{address}": here.address,
        ENVIRONMENT: spec.environment,
    }
