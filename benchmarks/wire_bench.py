"""The wire between agents, controller and operators, on a private RabbitMQ."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks import wire_broker, wire_processes, wire_reports
from benchmarks.runner import Figure
from shared.config.common import Log, LogLevel
from shared.runtime.startup import configure_log


def figures(say: Callable[[str], None]) -> Iterator[Figure]:
    """What reports, answers and idle daemons cost; without RabbitMQ only what needs none."""
    configure_log(Log(LogLevel.WARNING))
    say("the core alone")
    yield from wire_reports.core_figures()
    try:
        with wire_broker.broker() as broker:
            say("reports through RabbitMQ")
            yield from wire_reports.broker_figures(broker)
            say(f"a controller of {wire_processes.NODES} nodes, for {wire_processes.WINDOW_S:g} s and more")
            yield from wire_processes.controller_figures(broker)
            say(f"an idle agent, for {wire_processes.AGENT_WINDOW_S:g} s and more")
            yield from wire_processes.agent_figures(broker)
    except wire_broker.NoBroker as reason:
        say(f"left out what needs RabbitMQ: {reason}")
