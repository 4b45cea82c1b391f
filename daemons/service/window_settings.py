"""Configured deadline windows: checked, and converted to the settings of the controller's core."""

from __future__ import annotations

from collections.abc import Mapping

from daemons.config.controller import Weekday, Window
from daemons.values.calendar import check_zone, weekly
from daemons.values.settings import PolicyChoice, WindowSettings, from_keys
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.ports import plugins

ANALYSERS = "trimtab.analysers"
_DAYS = tuple(Weekday)


def windows_of(tables: Mapping[str, Window]) -> tuple[WindowSettings, ...]:
    """Settings of every table [windows.NAME]. Raises `InvalidInput`, naming the keys, for what cannot be kept."""
    problems: list[Problem] = []
    queues: dict[str, str] = {}
    windows = []
    for name, table in tables.items():
        found = _problems(name, table)
        queue = table.queue or name
        if queue in queues:
            found.append(Problem(f"windows.{name}.queue", f"is that of {queues[queue]!r} too", "a queue of its own"))
        queues[queue] = name
        problems += found
        if not found:
            windows.append(_settings(name, table))
    if problems:
        raise InvalidInput(*problems)
    return tuple(windows)


def _problems(name: str, table: Window) -> list[Problem]:
    where = f"windows.{name}"
    found = []
    try:
        check_zone("timezone", table.timezone)
    except InvalidValue as error:
        found.append(Problem(f"{where}.timezone", f"is {error.got!r}", error.expected))
    if table.nodes_min > table.nodes_max:
        expected = f"at most nodes_max = {table.nodes_max}"
        found.append(Problem(f"{where}.nodes_min", f"is {table.nodes_min}", expected))
    if not table.days:
        found.append(Problem(f"{where}.days", "is empty", "at least one day of the week"))
    found += _analyser(where, table)
    if table.days and not found and _settings(name, table).periods.overlaps():
        expected = "a time before it opens again, at submit_from"
        found.append(Problem(f"{where}.deadline", f"is {table.deadline} of the next day or the one after", expected))
    return found


def _analyser(where: str, table: Window) -> list[Problem]:
    """Return the problems with the choice of an analyser and its parameters."""
    known = plugins.names(ANALYSERS)
    if table.analyser not in known:
        return [Problem(f"{where}.analyser", f"there is no {table.analyser!r}", f"one of {', '.join(known)}")]
    try:
        plugins.load(ANALYSERS, table.analyser)().check_params(table.analyser_params)
    except InvalidInput as error:
        return [Problem(f"{where}.analyser_params: {each.where}", each.what, each.expected) for each in error.problems]
    return []


def _settings(name: str, table: Window) -> WindowSettings:
    days = [_DAYS.index(day) for day in table.days]
    return from_keys(
        WindowSettings,
        table,
        name=name,
        queue=table.queue or name,
        periods=weekly(table.timezone, table.submit_from, table.submit_until, table.deadline, days),
        analyser=PolicyChoice(table.analyser, table.analyser_params),
    )
