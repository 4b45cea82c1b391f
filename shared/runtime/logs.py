"""Structured logs: one JSON object or one console line per event, UTC, never on standard output."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from shared.base.clock import SystemClock
from shared.base.errors import InvalidValue

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _LibraryHandler(logging.StreamHandler[TextIO]):
    """Carries what libraries log through the standard module; a class of its own so that it can be replaced."""


def configure(
    level: str = "info",
    json: bool = True,
    stream: TextIO | None = None,
    now_s: Callable[[], float] | None = None,
) -> None:
    """Set up logging for the process; call once, in a composition root, before the first event.

    `level` is a key of `LEVELS`; libraries are heard from `warning` up. `stream` is standard error unless given and
    never standard output, which belongs to results: `InvalidValue` for either. `now_s` gives the seconds since the
    epoch that events are stamped with (the machine's clock unless given).
    """
    if level not in LEVELS:
        raise InvalidValue("level", level, "one of " + ", ".join(LEVELS))
    stream = sys.stderr if stream is None else stream
    if stream is sys.stdout or stream is sys.__stdout__:
        raise InvalidValue("stream", "standard output", "another stream")
    common: list[Processor] = [
        structlog.processors.add_log_level,
        _stamp(now_s or SystemClock().now_s),
    ]
    rendering = _rendering(json, stream)
    structlog.configure(
        processors=[*common, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=True,
    )
    _hear_libraries(max(LEVELS[level], logging.WARNING), stream, [*common, _library_name], rendering)


def _stamp(now_s: Callable[[], float]) -> Processor:
    def stamp(_logger: Any, _method: str, event: EventDict) -> EventDict:
        at = datetime.fromtimestamp(now_s(), UTC).isoformat(timespec="milliseconds")
        event["timestamp"] = at.replace("+00:00", "Z")
        return event

    return stamp


def _library_name(_logger: Any, _method: str, event: EventDict) -> EventDict:
    record: logging.LogRecord = event["_record"]
    event["component"] = record.name
    return event


def _rendering(json: bool, stream: TextIO) -> list[Processor]:
    if json:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(sort_keys=True)]
    # Plain tracebacks: prettier ones print local variables, and those can hold passwords.
    return [
        structlog.dev.ConsoleRenderer(
            colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback, sort_keys=True
        )
    ]


def _hear_libraries(level: int, stream: TextIO, common: list[Processor], rendering: list[Processor]) -> None:
    handler = _LibraryHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=common,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    for earlier in [one for one in root.handlers if isinstance(one, _LibraryHandler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(level)


def get_logger(name: str) -> FilteringBoundLogger:
    """Return a logger whose events carry `component` = name. It can be created at any time, but used only after
    `configure`."""
    return cast(FilteringBoundLogger, structlog.get_logger(component=name))
