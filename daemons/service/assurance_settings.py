"""What the configuration says of admission and of what goes with it."""

from __future__ import annotations

from daemons.config.controller import AssuranceKeys, Policies
from daemons.values.calendar import check_zone
from daemons.values.settings import AssuranceSettings, PolicyChoice, from_keys
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.policy_api.admission import WINDOWS_MAX

NO_ADMISSION = "none"


def admission_of(policies: Policies) -> PolicyChoice | None:
    """Return the admission policy for environments, None if all are admitted."""
    name = policies.admission
    return None if name == NO_ADMISSION else PolicyChoice(name, policies.params.get(name, {}))


def assurance_of(keys: AssuranceKeys) -> AssuranceSettings:
    """Return the settings for service assurance. Raises `InvalidInput` for an unknown time zone, or invalid windows."""
    problems = []
    try:
        check_zone("assurance.timezone", keys.timezone)
    except InvalidValue as error:
        problems.append(Problem(error.field, f"is {error.got!r}", error.expected))
    if len({*keys.windows}) < len(keys.windows) or len(keys.windows) > WINDOWS_MAX:
        expected = f"at most {WINDOWS_MAX} windows, each once"
        problems.append(Problem("assurance.windows", f"is {list(keys.windows)}", expected))
    if problems:
        raise InvalidInput(*problems)
    return from_keys(AssuranceSettings, keys, horizontal=keys.windows)
