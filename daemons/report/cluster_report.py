"""The report on a span of a cluster's history: utilities and goals of workloads, costs, decisions, actions, events."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from daemons.report.report import Report
from daemons.report.sections_costs import costs_section, nodes_section
from daemons.report.sections_deciding import actions_section, decisions_section, events_section
from daemons.report.sections_goals import environments_section, goals_section, utilities_section
from daemons.report.spans import History, figures_of, gather
from daemons.store.reading import Reading, reading
from daemons.values.text_format import time_text
from shared.base.errors import InvalidValue

TITLE = "Cluster report"


def cluster_report(reading: Reading, from_s: float, to_s: float, zone: str = "UTC") -> Report:
    """Return the report on the span from `from_s` to `to_s` (UTC seconds since the epoch); times are shown in `zone`.

    Raises `InvalidValue` for an empty span and for an unknown zone, and the errors of `Reading`.
    """
    if not 0.0 <= from_s < to_s:
        raise InvalidValue("to_s", to_s, f"after from_s = {from_s:g}, which is 0 or above")
    check_zone(zone)
    history = gather(reading, from_s, to_s, zone)
    sections = (
        utilities_section(history),
        goals_section(history),
        nodes_section(history),
        costs_section(history),
        decisions_section(history),
        actions_section(history),
        events_section(history),
        *environments_section(history),
    )
    return Report(TITLE, from_s, to_s, zone, figures_of(history), sections, _notes(history))


def report_of(url: str, from_s: float, to_s: float, zone: str) -> Report:
    """Return the same report from the store of a URL, which is opened for it: for a process of its own."""
    with reading(url) as history:
        return cluster_report(history, from_s, to_s, zone)


def check_zone(zone: str) -> None:
    """Raise `InvalidValue` unless that is the name of a time zone."""
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidValue("zone", zone, "the name of a time zone, such as Europe/Berlin") from error


def _notes(history: History) -> tuple[str, ...]:
    first_s = history.kept.first_s()
    if first_s is None:
        return ("The history is empty.",)
    if first_s > history.from_s:
        return (f"The history begins at {time_text(first_s, history.zone)}. There are no data for the time before.",)
    return ()
