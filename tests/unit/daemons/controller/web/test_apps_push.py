"""The program that docs/how-to/web-metrics.md shows to those who push measurements does what it says."""

from __future__ import annotations

import re
from typing import Any

from shared.protocol.codec import decode
from shared.protocol.messages import WebReport
from shared.protocol.topology import REPORTS
from shared.values.web_app import FlowSample
from tests.architecture.sources import ROOT

WINDOW = {"flow": "browse", "window_s": 20.0, "offered": 812, "served": 810, "mean_s": 0.021}


class Channel:
    """Keeps what is published."""

    def __init__(self) -> None:
        self.published: list[tuple[Any, ...]] = []

    def basic_publish(self, *words: Any) -> None:
        """As pika's."""
        self.published.append(words)


def program() -> dict[str, Any]:
    """What the program defines."""
    (text,) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs/how-to/web-metrics.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(text, "docs/how-to/web-metrics.md", "exec"), names)
    return names


def test_the_program_sends_what_the_controller_reads() -> None:
    channel = Channel()

    program()["push"](channel, "shop", [WINDOW])

    ((exchange, key, body, properties),) = channel.published
    report = decode(body)
    assert isinstance(report, WebReport)
    assert (exchange, key, properties.user_id) == (REPORTS, "web.shop", "web.shop")
    assert (report.app, report.flows) == ("shop", (FlowSample("browse", 20.0, 812, served=810, mean_s=0.021),))
    assert report.seq > 1_000 * 1_600_000_000
