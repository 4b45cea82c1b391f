"""Publish the measurements of a web application on the bus of a demo: `push.py SOCKET PROGRAM APP FLOW:KEY=VALUE,...`.

The function `body` of PROGRAM makes the message, as in the page that shows such a program; "-": as Trimtab does.
"""

from __future__ import annotations

import runpy
import sys

from shared.base.clock import SystemClock
from shared.bus.buses import find_bus
from shared.protocol import topology
from shared.protocol.codec import encode
from shared.protocol.messages import WebReport
from shared.values.web_app import FlowSample

OPENING_S = 10.0


def sample(text: str) -> dict[str, str | float]:
    """Read one flow: its name, then what was measured, such as `pages:window_s=20.0,served=810`."""
    flow, _, values = text.partition(":")
    measured = dict(pair.split("=") for pair in values.split(","))
    return {"flow": flow, **{key: float(value) if "." in value else int(value) for key, value in measured.items()}}


def body(app: str, flows: list[dict[str, str | float]]) -> bytes:
    """Encode the flows of one window."""
    now_s = SystemClock().now_s()
    samples = tuple(FlowSample(**flow) for flow in flows)  # type: ignore[arg-type]
    return encode(WebReport(app, int(1_000 * now_s), now_s, samples))


def main(socket: str, program: str, app: str, *texts: str) -> None:
    """Publish one message."""
    made = body if program == "-" else runpy.run_path(program)["body"]
    url = f"unix://{topology.web_user(app)}@{socket}"
    bus = find_bus(url)(url, opening_s=OPENING_S)
    try:
        bus.publish(topology.REPORTS, topology.web_key(app), made(app, [sample(text) for text in texts]))
        bus.poll(0.0)
    finally:
        bus.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
