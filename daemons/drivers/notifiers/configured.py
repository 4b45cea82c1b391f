"""The section `[notify]` of the configuration: creates its channels, checks its rules and converts them to the core's
settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from daemons.config.notify import NotifyKeys, NotifyRuleKeys
from daemons.values.calendar import check_zone, seconds_of_day
from daemons.values.event_codes import ALARMS, EVENTS
from daemons.values.replies import nearest
from daemons.values.settings import NotifyRule, NotifySettings, QuietHours
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.ports import plugins
from shared.ports.controller import NotifyChannel

ALARM = "alarm:"
CODES = (*EVENTS, *(ALARM + code for code in ALARMS))


def make_channels(keys: NotifyKeys) -> dict[str, NotifyChannel]:
    """Return the configured channels, by name. Raises InvalidInput with everything that is wrong with their keys."""
    made: dict[str, NotifyChannel] = {}
    problems: list[Problem] = []
    for name, table in keys.channels.items():
        where = f"notify.channels.{name}"
        own = {key: value for key, value in table.items() if key != "kind"}
        try:
            made[name] = plugins.find_driver(plugins.NOTIFIERS, f"{where}.kind", _kind(table.get("kind")))(where, own)
        except InvalidInput as error:
            problems += error.problems
    if problems:
        raise InvalidInput(*problems)
    return made


def notify_of(keys: NotifyKeys) -> NotifySettings:
    """Return the settings of the core. Raises InvalidInput with everything that is wrong with the rules."""
    problems = [
        problem for place, rule in enumerate(keys.rules) for problem in _problems(f"notify.rules[{place}]", rule, keys)
    ]
    if problems:
        raise InvalidInput(*problems)
    channels = {name: _kind(table.get("kind")) for name, table in keys.channels.items()}
    rules = tuple(map(_rule, keys.rules))
    return NotifySettings(channels, rules, keys.attempts_max, keys.give_up_s, keys.waiting_max, keys.cluster)


def _kind(given: object) -> str:
    return given if isinstance(given, str) else ""


def _rule(keys: NotifyRuleKeys) -> NotifyRule:
    quiet = None
    if keys.quiet_from:
        quiet = QuietHours(seconds_of_day(keys.quiet_from), seconds_of_day(keys.quiet_until), keys.timezone)
    return NotifyRule(
        keys.events, keys.channels, keys.subjects, keys.at_least_every_s, keys.digest_s, keys.deduplicate_s, quiet
    )


def _problems(where: str, rule: NotifyRuleKeys, keys: NotifyKeys) -> Iterator[Problem]:
    for name in ("events", "channels"):
        if not getattr(rule, name):
            yield Problem(f"{where}.{name}", "is empty", "one or more")
    for code in rule.events:
        if not any(fnmatchcase(known, code) and known.startswith(ALARM) is code.startswith(ALARM) for known in CODES):
            near = nearest(code, CODES)
            yield Problem(
                f"{where}.events", f"nothing has the code {code!r}", _one_of(near) or "see docs/how-to/notifications.md"
            )
    for name in rule.channels:
        if name not in keys.channels:
            yield Problem(f"{where}.channels", f"there is no channel {name!r}", _one_of(keys.channels))
    if bool(rule.quiet_from) != bool(rule.quiet_until):
        yield Problem(f"{where}.quiet_until", "goes with quiet_from", "both, or none")
    elif rule.quiet_from and rule.quiet_from == rule.quiet_until:
        yield Problem(f"{where}.quiet_until", f"is {rule.quiet_until!r}", "another time than quiet_from")
    try:
        check_zone("timezone", rule.timezone)
    except InvalidValue as error:
        yield Problem(f"{where}.timezone", f"is {rule.timezone!r}", error.expected)


def _one_of(names: Iterable[str]) -> str:
    known = [repr(str(name)) for name in names]
    return "one of " + ", ".join(known) if known else ""
