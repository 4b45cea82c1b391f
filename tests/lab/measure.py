"""Measurements in the lab, printed and written to a folder.

    python -m tests.lab.measure --rounds 10 --folder out/lab

Operations by Trimtab beside plain virsh, what agents and daemons use, and how guests slow one another. Needs what a lab
needs (docs/reference/lab.md); nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from shared.values.actions import ActionKind
from sim_backend.experiments.dilation.measured import Measuring
from tests.integration.harness import Section
from tests.lab import measured_interference, measured_operations, measured_overhead, verdicts
from tests.lab.cluster import Cluster, cluster
from tests.lab.hosts import HostSpec
from tests.lab.measured_bus import Tap
from tests.lab.measured_operations import AGENT, DRIVER, VIRSH, WHOLE, Timing, Virsh

WIDTH = 220
SPEC = HostSpec(cores=1, core_mhz=1_000.0, core_frac=1.0, memory_mib=1_500)
CONTROLLER: Mapping[str, Section] = {"periods": {"decide_s": 5.0}, "timeouts": {"decide_limit_s": 4.0}}
OVERHEAD = ((1.0, 10.0), (5.0, 20.0))  # period of reports and window, in seconds
AGENT_TITLE, MEMORY_TITLE = "an agent with ten VMs", "memory"
Lines = Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class Report:
    """Tables by title, shown as they come; written to a folder when all are there."""

    tables: dict[str, Lines] = field(default_factory=dict)
    show: Callable[[Table], object] = Console(width=WIDTH).print

    def add(self, title: str, lines: Lines) -> None:
        """Show a table, and keep it."""
        self.tables[title] = lines
        self.show(table(title, lines))

    def write(self, folder: Path) -> None:
        """As measured.json and measured.txt."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "measured.json").write_text(json.dumps(self.tables, indent=1) + "\n", "utf-8")
        with (folder / "measured.txt").open("w", encoding="utf-8") as file:
            console = Console(file=file, width=WIDTH)
            for title, lines in self.tables.items():
                console.print(table(title, lines))


def table(title: str, lines: Lines) -> Table:
    """Lines of the same keys as a table."""
    made = Table(*(lines[0] if lines else ()), title=title)
    for line in lines:
        made.add_row(*("-" if value is None else str(value) for value in line.values()))
    return made


def measure_cluster(rounds: int, report: Report, overhead: Sequence[tuple[float, float]] = OVERHEAD) -> list[Timing]:
    """Operations and overhead on two hosts; returns all timings."""
    with cluster(2, SPEC, controller=CONTROLLER, web=True, begin=False) as made:
        timings, plain = _by_driver(made, rounds)
        report.add("operations: the driver beside virsh", measured_operations.lines(timings, [DRIVER]))
        nothing_s = [plain.nothing_s() for _ in range(rounds)]
        report.add("a process of virsh that asks for next to nothing", [{"median s": f"{median(nothing_s):.3f}"}])
        made.begin()
        with ExitStack() as stack:
            tap = stack.enter_context(Tap(made))
            trimtab = stack.enter_context(measured_operations.operating(made, tap))
            whole = measured_operations.in_turn({VIRSH: plain, WHOLE: trimtab}, rounds)
            report.add("operations: all of Trimtab beside virsh", measured_operations.lines(whole, [AGENT, WHOLE]))
            node = made.lab.nodes[0]
            measured_overhead.start_ten(trimtab, made, node)
            used = [measured_overhead.agents(made, tap, node, *each) for each in overhead]
            report.add(AGENT_TITLE, measured_overhead.lines_of_agents(used))
            sizes = measured_overhead.memory(made, node) + measured_overhead.memory_of_kinds(made, made.lab.nodes[1])
            report.add(MEMORY_TITLE, measured_overhead.lines_of_memory(sizes))
        return timings + whole


def measure_learnt(rounds: int, report: Report) -> dict[str, tuple[float, float]]:
    """By kind of operation, after so many of each: the median of all as they pass the broker, and what the controller
    counts with, in seconds."""
    with cluster(2, SPEC, controller=CONTROLLER, web=True, begin=False) as made:
        made.begin()
        with ExitStack() as stack:
            tap = stack.enter_context(Tap(made))
            trimtab = stack.enter_context(measured_operations.operating(made, tap))
            measured_operations.in_turn({WHOLE: trimtab}, rounds)
        rows = verdicts.data(made, "profile", "operations")["operations"]
        report.add("operations: as measured and as counted with", rows)
        return {row["kind"]: (median(tap.took_s(ActionKind(row["kind"]))), row["expected_s"]) for row in rows}


def _by_driver(made: Cluster, rounds: int) -> tuple[list[Timing], Virsh]:
    """No agent is at work: the driver is here."""
    with measured_operations.driving(made) as driver:
        plain = _model(made, driver)
        return measured_operations.in_turn({VIRSH: plain, DRIVER: driver}, rounds), plain


def _model(made: Cluster, driver: measured_operations.Driver) -> Virsh:
    """A VM to take the domain from; all of virsh's and the driver's first operations are over then."""
    first, *others = measured_operations.KINDS
    measured_operations.cycle(driver, "model#0", [first])
    plain = driver.model(made, "model#0")
    measured_operations.cycle(driver, "model#0", others)
    return plain


def measure_interference(rounds: int, profile_rounds: int, window_s: float, report: Report) -> None:
    """How guests slow one another."""
    settings = Measuring(rounds, profile_rounds, window_s, settle_s=0.2, copies=(1, 2, 3))
    found = measured_interference.measure(settings)
    report.add("memory of emulators", measured_overhead.lines_of_memory(found.memory))
    for title, lines in measured_interference.tables(found.measured).items():
        report.add(title, lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="Measurements in the lab.")
    parser.add_argument("--rounds", type=int, default=5, help="of every operation and every set of guests")
    parser.add_argument("--only", choices=("operations", "interference"), help="the one or the other")
    parser.add_argument("--folder", type=Path, default=Path("out/lab"), help="where measured.json and .txt go")
    asked = parser.parse_args(arguments)
    report = Report()
    if asked.only != "interference":
        measure_cluster(asked.rounds, report)
    if asked.only != "operations":
        measure_interference(asked.rounds, max(2, asked.rounds // 3), 1.5, report)
    report.write(asked.folder)


if __name__ == "__main__":
    main()
