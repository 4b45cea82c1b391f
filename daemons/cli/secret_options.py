"""Options whose values may hold a password: never taken from a command line, which every user can read."""

from __future__ import annotations

import click
from click.core import ParameterSource

from shared.base.errors import InvalidInput, Problem
from shared.base.secrets import has_password

STORE_URL_VARIABLE = "TRIMTAB_STORE_URL"  # of commands that read a controller's store


def without_password(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Check an option's value, as its callback: InvalidInput for a URL with a password on the command line."""
    given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    if value and given and has_password(value):
        expected = f"the URL without it and a file that has it, or all of it in the variable {parameter.envvar}"
        what = "has a password, which every user of this machine can read there"
        raise InvalidInput(Problem(parameter.opts[0], what, expected))
    return value
