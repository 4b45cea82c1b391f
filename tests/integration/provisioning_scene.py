"""A scene whose controller decides how many nodes are in service, and the power of its hosts.

The power driver is `exec`: its program writes down what it was asked, and `Switchboard` does that to the fake hosts
while the test waits for something, so that a node truly falls silent and comes back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from shared.protocol.operator_messages import SubmitJob
from shared.values.jobs import Job, Stage
from tests.integration.harness import CLOCK, CONTROLLER, Lab, merged
from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import LIMIT_S, SOON_S, Scene, scene

MINUTE_S = 60.0
HOUR_S = 3600.0
AHEAD_S = 100.0  # the deadline is further away than this, and nearer than a minute more
PER_KWH = 0.25
IDLE_W, PEAK_W, OFF_W = 100.0, 200.0, 5.0
CYCLE_S = 4.0
WINDOW = QUEUE = "night"
SWITCH = """#!/bin/sh
# {folder}/broken-NODE: what the power of NODE says instead of waking it.
if [ "$1" = wake ] && [ -e "{folder}/broken-$2" ]; then cat "{folder}/broken-$2"; exit 7; fi
echo "$1 $2" >> "{folder}/orders"
"""


@dataclass(slots=True)
class Switchboard:
    """The power of the hosts. While `holds` is true orders are taken and not carried out."""

    folder: Path
    holds: bool = False
    lab: Lab | None = None
    done: int = 0
    program: Path = field(init=False)

    def __post_init__(self) -> None:
        self.program = self.folder / "switch"
        self.program.write_text(SWITCH.format(folder=self.folder))
        self.program.chmod(0o755)

    @property
    def orders(self) -> list[tuple[str, str]]:
        """All that was asked, in order: operation and node."""
        file = self.folder / "orders"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(operation, node) for operation, node in map(str.split, lines)]

    def asked(self, operation: str) -> list[str]:
        """The nodes that an operation was asked for."""
        return [node for what, node in self.orders if what == operation]

    def break_wake(self, node: str, says: str) -> None:
        """Let each wake of the node fail with these words, until `mend`."""
        (self.folder / f"broken-{node}").write_text(says + "\n")

    def mend(self, node: str) -> None:
        """Let it be woken again."""
        (self.folder / f"broken-{node}").unlink()

    def tend(self) -> None:
        """Carry out what has been asked since the last time."""
        assert self.lab is not None
        if self.holds:
            return
        for operation, node in self.orders[self.done :]:
            self.done += 1
            is_up = self.lab.truth(node)["up"]
            if operation == "sleep" and is_up:
                self.lab.power_off(node)
            elif operation == "wake" and not is_up:
                self.lab.power_on(node)

    def sections(self, *does: str, **keys: Any) -> dict[str, Any]:
        """The section [power] that uses it for these operations, besides to wake and to put to sleep."""
        draw = {"default": {"idle_w": IDLE_W, "peak_w": PEAK_W, "off_w": OFF_W}}
        programs = {name: [str(self.program), name, "{node}"] for name in ("wake", "sleep", *does)}
        times = {"standby_s": 1.0, "deploy_s": CYCLE_S, "remove_s": CYCLE_S, "wake_test_days": 0.0}
        return {"power": {"driver": "exec", **times, **keys, "exec": {**programs, "limit_s": 10.0}, "draw": draw}}


@dataclass(frozen=True, slots=True)
class Day:
    """A window that is open now. Times of day have no seconds: how far its deadline is away differs from run to run."""

    opens_s: float
    deadline_s: float

    @classmethod
    def now(cls) -> Day:
        """Open for a minute at least; jobs are taken until a minute before the deadline."""
        now_s = CLOCK.now_s()
        deadline_s = MINUTE_S * math.ceil((now_s + AHEAD_S) / MINUTE_S)
        return cls(MINUTE_S * (now_s // MINUTE_S - 1.0), deadline_s)

    @property
    def left_s(self) -> float:
        """Until its deadline."""
        return self.deadline_s - CLOCK.now_s()

    def section(self, **keys: Any) -> dict[str, Any]:
        """The section of the window."""
        times = {"submit_from": self.opens_s, "submit_until": self.deadline_s - MINUTE_S, "deadline": self.deadline_s}
        return {name: clock(at_s) for name, at_s in times.items()} | {"timezone": "UTC", **keys}


def clock(at_s: float) -> str:
    """The time of day, UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M")


def write_prices(
    file: Path, from_h: int, until_h: int = 72, per_kwh: float = PER_KWH, leave_out: Sequence[int] = ()
) -> None:
    """Put a file of hourly prices in place, given per MWh; hours count from the present one."""
    now_h = int(CLOCK.now_s() // HOUR_S)
    rows = [
        f"{datetime.fromtimestamp((now_h + hour) * HOUR_S, UTC):%Y-%m-%dT%H:%M},{1000.0 * per_kwh:g}\n"
        for hour in range(from_h, until_h)
        if hour not in leave_out
    ]
    fresh = file.with_suffix(".new")
    fresh.write_text("hour,price\n" + "".join(rows))
    fresh.replace(file)


def prices_section(file: Path) -> dict[str, Any]:
    """The section [prices] that reads it."""
    return {"prices": {"shape": "series", "file": str(file), "factor": 0.001, "read_every_s": 1.0}}


class Plant(Scene):
    """A `Scene` with a switchboard, a window and prices."""

    switches: Switchboard
    day: Day
    prices: Path

    def service(self, *services: str) -> list[str]:
        """The nodes that are so by the command's word."""
        rows = self.do("nodes", "list", "--output", "json").data["nodes"]
        return sorted(row["name"] for row in rows if row["service"] in services)

    def truth_up(self, node: str) -> bool:
        """Whether the host has power."""
        return bool(self.lab.truth(node)["up"])

    def with_tables(self) -> dict[str, Any]:
        """The forecast once its tables are ready, else nothing."""
        row = self.forecast()
        return row if row["tables"] == "ready" else {}

    def forecast(self) -> dict[str, Any]:
        """What `trimtab forecast` says of the window."""
        (row,) = self.do("forecast", WINDOW, "--output", "json").data["windows"]
        return dict(row)

    def submit_all(self, names: Sequence[str], work_s: float) -> None:
        """Submit jobs of the queue that each take so long at full speed."""
        for name in names:
            work = 1_000.0 * work_s
            job = Job(
                name, (Stage(work, 1_000.0, memory_mib=1_000),), template=f"fake:work={work:g};max=1000", queue=QUEUE
            )
            reply = self.lab.ask(partial(SubmitJob, job=job))
            assert reply.done, reply

    def rest(self, count: int) -> list[str]:
        """Wait until so many nodes are asleep; which."""
        self.wait_for(lambda: len(self.asleep()) == count, LIMIT_S, f"{count} nodes to be asleep")
        return self.asleep()

    def asleep(self) -> list[str]:
        """Nodes that went to sleep and have not been woken since, by the events."""
        state: dict[str, str] = {}
        for one in self.happened():
            if one["what"] in ("node-asleep", "node-waking"):
                state[one["subject"]] = one["what"]
        return sorted(node for node, what in state.items() if what == "node-asleep")

    def until_heard(self, what: str, subject: str = "", timeout_s: float = SOON_S) -> dict[str, Any]:
        """Wait for an event; the first of its kind."""
        return self.wait_for(lambda: self.heard(what, subject), timeout_s, f"{what} {subject}")[0]


@contextmanager
def plant(
    broker: PrivateBroker,
    folder: Path,
    *,
    window: Callable[[Day], Mapping[str, Any]] | None = None,
    power: Mapping[str, Any] | None = None,
    controller: Mapping[str, Any] | None = None,
    does: Sequence[str] = (),
    holds: bool = False,
) -> Iterator[Plant]:
    """Three nodes of four cores. `window`: keys of [windows.night] besides its times; `does`, `holds`: as of
    `Switchboard`."""
    switches, day, prices = Switchboard(folder, holds), Day.now(), folder / "prices.csv"
    write_prices(prices, -48)
    keys = {"nodes_max": 3, "confidence": 0.8, **(window(day) if window is not None else {})}
    sections = merged(
        CONTROLLER,
        {"periods": {"decide_s": CYCLE_S}, "timeouts": {"decide_limit_s": 0.9 * CYCLE_S}},
        {"policies": {"provisioning": "threshold"}},
        {"windows": {WINDOW: day.section(**keys)}},
        prices_section(prices),
        switches.sections(*does, **(power or {})),
        controller or {},
    )
    with scene(broker, begin=False, kind=Plant, controller=sections) as made:
        assert isinstance(made, Plant)
        made.switches, made.day, made.prices = switches, day, prices
        switches.lab = made.lab
        made.lab.tenders.append(switches.tend)
        made.begin()
        yield made
