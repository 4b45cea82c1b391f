"""Operations on real VMs by Trimtab beside plain virsh, and what daemons use meanwhile, in a lab of two hosts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from statistics import median

import pytest

from benchmarks.runner import Figure
from tests.lab import measure
from tests.lab.measured_operations import AGENT, DRIVER, KINDS, VIRSH, WHOLE, Timing

ROUNDS = 3
WAYS = (VIRSH, DRIVER, AGENT, WHOLE)


def figures(say: Callable[[str], None]) -> Iterator[Figure]:
    """Ratios first, then seconds, CPU time and memory; nothing where no lab can be made."""
    if os.geteuid() != 0:
        say("left out the lab of real VMs: it needs root")
        return
    say(f"operations in a lab, {ROUNDS} rounds")
    report = measure.Report(show=lambda _: None)
    try:
        timings = measure.measure_cluster(ROUNDS, report)
    except (pytest.skip.Exception, pytest.fail.Exception) as reason:
        say(f"left out the lab of real VMs: {reason}")
        return
    yield from _operations(timings)
    for line in report.tables[measure.AGENT_TITLE]:
        bench = f"ten VMs, reports every {line['reports every s']:g} s"
        yield Figure(bench, "the agent's CPU time", line["agent CPU s/min"], "s/min")
        yield Figure(bench, "messages through the broker", line["messages/s"], "/s")
    for line in report.tables[measure.MEMORY_TITLE]:
        yield Figure("memory in the lab", line["process"], line["RSS MiB"], "MiB")


def _operations(timings: Sequence[Timing]) -> Iterator[Figure]:
    for kind in KINDS:
        took = {way: [one.took_s for one in timings if (one.kind, one.way) == (kind, way)] for way in WAYS}
        plain_s = median(took[VIRSH])
        for way, each in took.items():
            if each and way != VIRSH:
                yield Figure("operations in the lab", f"{kind}: {way} / virsh", median(each) / plain_s, "times")
        yield Figure("operations in the lab", f"{kind}: virsh", plain_s, "s")
