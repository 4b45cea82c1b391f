"""What a shell logs: changes and what went wrong; not every question, and nothing that says the same all day."""

from __future__ import annotations

import pytest

from daemons.access.delegation import on_behalf
from shared.ports.effects import Input, Probed, Received, Scraped
from shared.protocol.messages import Hello, Message
from shared.protocol.operator_messages import CancelJob, DryRun, Query
from shared.runtime import trace


def heard(message: Message) -> trace.LogLine:
    line = trace.of_input(Received(1, "operator.ann", message, "reply.operator.ann"))
    assert line is not None
    return line


@pytest.mark.parametrize(
    "message",
    [Query("q", "status"), DryRun("d"), on_behalf("owner.kim", Query("q", "jobs"))],
    ids=["query", "dry-run", "portal"],
)
def test_what_only_reads_is_for_who_looks_into_a_fault(message: Message) -> None:
    assert heard(message).level == "debug"


def test_a_query_is_named_and_a_change_is_logged() -> None:
    assert heard(Query("q", "node", "n1")).fields["what"] == "node"
    assert heard(Query("q", "node", "n1")).fields["subject"] == "n1"
    assert heard(CancelJob("c", "job")).level == "info"


def test_a_hello_is_logged_where_it_is_heard() -> None:
    """A node that is silent for days is greeted once a minute, and in the line is not even its name."""
    sent = trace.of_sent(Hello(1))
    assert sent is not None
    assert sent.level == "debug"
    assert heard(Hello(1)).level == "info"


def test_what_fails_for_a_day_is_told_once_an_hour_for_each_subject() -> None:
    """Given two applications that are never measured and one probe that fails, at every 5 s, then a day has 24 lines
    of each at most."""
    repeats, told = trace.Repeats(), list[str]()
    events: list[Input] = [
        Scraped("a", 0.0, error="refused"),
        Scraped("b", 0.0, error="gone"),
        Probed("vm", 1, False, "HTTP 503"),
    ]
    for step in range(17_280):
        for event in events:
            line = trace.of_input(event)
            assert line is not None
            told += [line.event] * (repeats.level(line, 5.0 * step) == line.level)

    assert told.count("web application not measured") == 48
    assert told.count("probe failed") == 24
