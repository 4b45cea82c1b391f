"""Publish the measurements of a web application on the bus of a demo: `push.py SOCKET PROGRAM APP FLOW:KEY=VALUE,...`.

The message is made by the function `body` of a page's program.
"""

from __future__ import annotations

import runpy
import sys

from shared.bus.buses import find_bus
from shared.protocol import topology


def sample(text: str) -> dict[str, str | float]:
    """Read one flow: its name, then what was measured, such as `pages:window_s=20,served=810`."""
    flow, _, values = text.partition(":")
    measured = dict(pair.split("=") for pair in values.split(","))
    return {"flow": flow, **{key: float(value) if "." in value else int(value) for key, value in measured.items()}}


def main(socket: str, program: str, app: str, *samples: str) -> None:
    """Publish one message."""
    body: bytes = runpy.run_path(program)["body"](app, [sample(text) for text in samples])
    url = f"unix://{topology.web_user(app)}@{socket}"
    bus = find_bus(url)(url, opening_s=10.0)
    try:
        bus.publish(topology.REPORTS, topology.web_key(app), body)
        bus.poll(0.0)
    finally:
        bus.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
